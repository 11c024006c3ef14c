"""``narrowgauge compare``: lanes, targets and nights beside each other."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from narrowgauge.ci.comparison.comparing import Comparison, compare
from narrowgauge.ci.comparison.findings import KINDS, Finding
from narrowgauge.ci.comparison.sides import Side, read_sides
from narrowgauge.ci.ledger import Row
from narrowgauge.command import compare_page, pages
from narrowgauge.command.compare_why import why
from narrowgauge.command.compare_words import markdown, report
from narrowgauge.command.shared import add_json, print_json, results_in
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import screen, show
from narrowgauge.reference.claims_apart import left_open

#: stands for every kind in which something parts
PARTS = "parts"


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="lanes, targets and nights beside each other: where codes agree, where they part, and why",
        description="Takes results directories ('narrowgauge run --out'), ledgers ('narrowgauge test', 'judge "
        "--ledger'), or both. Shards of one place and night are one side. Says of each cell that several targets or "
        "nights have whether codes are the same, by their digests, and what explains it where they are not. Cells "
        "that were not executed are shown as such. Exit code 0: nothing parts; 1: codes or verdicts part; 5: "
        "nothing could be compared; 6: with --require-executed, something was not executed.",
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="RESULTS", help="a results directory or a ledger")
    parser.add_argument("--kernel", default="", metavar="K", help="only this kernel")
    parser.add_argument(
        "--only", action="append", default=[], choices=(PARTS, *KINDS), metavar="KIND",
        help=f"only findings of that kind, for the exit code too: {PARTS}, {', '.join(KINDS)}; several times for more",
    )  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with everything")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write everything as Markdown, for GitHub")
    parser.add_argument("--require-executed", action="store_true", help="exit code 6 for a cell that was not executed")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.html:
        pages.check(arguments.html)
    sides = read_sides([each for path in arguments.paths for each in ([path] if path.is_file() else results_in(path))])
    _check_kernel(sides, arguments.kernel)
    comparison = compare(sides, leaves_only_nan, arguments.kernel)
    kinds = _kinds(arguments.only)
    findings = [f for f in comparison.findings if f.kind in kinds]
    if arguments.json:
        print_json(to_json(comparison, findings))
    else:
        show(screen(), report(comparison, findings, arguments.only, screen().width))
    if arguments.html:
        write_whole(arguments.html, compare_page.page(comparison, findings).encode())
    if arguments.markdown:
        write_whole(arguments.markdown, markdown(comparison, findings).encode())
    return _code(comparison, findings, arguments.require_executed)


def leaves_only_nan(row: Row) -> bool:
    """Whether all codes that keep the claim of a row are equal but for the bits of NaN."""
    try:
        return left_open(Claim.parse(row.claim)).freedom == "nan"
    except BadInput:  # a rule that came as data, or of another version
        return False


def _kinds(asked: list[str]) -> set[str]:
    kinds = set(asked) or set(KINDS)
    return kinds | {name for name, kind in KINDS.items() if kind.parts} if PARTS in kinds else kinds


def _check_kernel(sides: list[Side], kernel: str) -> None:
    names = {planned.kernel for side in sides for planned in side.planned.values()}
    if kernel and kernel not in names:
        raise unknown("kernel", kernel, names, "--kernel")


def _code(comparison: Comparison, findings: list[Finding], require_executed: bool) -> int:
    if any(KINDS[f.kind].parts for f in findings):
        return Exit.FAILED
    if require_executed and any(f.kind == "unexecuted" for f in comparison.findings):
        return Exit.UNKNOWN
    return Exit.OK if comparison.compared else Exit.NOTHING


def to_json(comparison: Comparison, findings: list[Finding]) -> dict[str, Any]:
    """Everything, without the rows of the ledgers."""
    return {
        "sides": [
            {
                "name": side.name,
                "paths": [str(path) for path in side.paths],
                "narrowgauge": side.narrowgauge,
                "golden_manifest_sha256": side.golden,
                "depth": side.depth,
                "written": side.written,
                "planned": len(side.planned),
                "rows": len(side.rows),
                "lost": side.lost,
            }
            for side in comparison.sides
        ],
        "columns": [asdict(column) for column in comparison.columns],
        "notes": comparison.notes,
        "changed": comparison.changed,
        "counts": comparison.counts,
        "findings": [_finding(finding) for finding in findings],
        "matrix": [asdict(line) for line in comparison.lines],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    names = ("section", "kind", "kernel", "operation", "format", "classes", "words", "sources", "cases")
    return {name: getattr(finding, name) for name in names} | {"why": [list(pair) for pair in why(finding)]}
