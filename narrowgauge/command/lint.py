"""``narrowgauge lint``: what of a source has to be changed before float8 of the other flavour passes through it."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.lint.rules import RULES, Rule
from narrowgauge.lint.scan import COMMENT, SUFFIXES, Finding, files, lint
from narrowgauge.plugin.screen import facts, folded, screen, show

#: of an ignore comment that does not hold
COMMENT_REMEDY = "narrowgauge: ignore[RULE] and a reason, on the line itself or alone on the line before it"


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "lint",
        help="places in sources that a port between OCP and FNUZ has to touch",
        description=f"Reads sources ({', '.join(SUFFIXES)}) and runs nothing. Rules: {', '.join(RULES)}; docs/lint.md "
        "says how each fared on real sources. A finding is ignored by a comment on its line, or alone on the line "
        "before it: # narrowgauge: ignore[RULE] reason. Exit code 1 if something is found.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="sources, or folders of them")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    paths = files(arguments.files)
    found = [finding for path in paths for finding in lint(path)]
    if arguments.json:
        print_json({"files": len(paths), "findings": [_data(finding) for finding in found]})
    else:
        show(screen(), [*map(_line, found), *_summary(found, len(paths), screen().width)])
    return Exit.FAILED if found else Exit.OK


def _line(finding: Finding) -> Text:
    place = Text(f"{finding.path}:{finding.line}", "bold")
    return place + Text(f"  {finding.rule}", "yellow") + Text(f"  {' '.join(finding.text.split())}")


def _summary(found: list[Finding], count: int, width: int) -> list[Text]:
    """What each rule that found something means, once, and the counts."""
    texts: list[Text] = []
    for rule in (rule for rule in RULES.values() if any(f.rule == rule.name for f in found)):
        number = sum(f.rule == rule.name for f in found)
        said = (("why:", rule.why), ("remedy:", rule.remedy), ("reports:", f"docs/coverage.md, {', '.join(rule.rows)}"))
        texts += [Text(), Text(f"{rule.name}: {rule.looks_for} ({number})", "bold"), *facts(said, width)]
    if any(f.rule == COMMENT for f in found):
        texts += [Text(), *folded(f"{COMMENT}: {COMMENT_REMEDY}", width)]
    files_ = f"{count} file{'s' if count > 1 else ''}"
    texts += [Text()] if texts else []
    return [*texts, Text(f"{len(found)} finding{'s' * (len(found) != 1)} in {files_}")]


def _data(finding: Finding) -> dict[str, Any]:
    rule: Rule | None = RULES.get(finding.rule)
    data = dataclasses.asdict(finding)
    if rule is None:
        return {**data, "why": finding.text, "remedy": COMMENT_REMEDY, "rows": []}
    return {**data, "why": rule.why, "remedy": rule.remedy, "rows": list(rule.rows)}
