"""``narrowgauge golden diff``: what changed between two sets of golden vectors, and why."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from narrowgauge.command import golden_words
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden import sets
from narrowgauge.golden.difference import Difference, difference
from narrowgauge.golden.manifest import VECTORS
from narrowgauge.golden.reasons import REASONS, read_reasons
from narrowgauge.plugin.screen import screen, show

#: examples of each claim
FIRST = 3


def add(actions: Any) -> None:
    """The action, among those of ``narrowgauge golden``."""
    action = actions.add_parser(
        "diff",
        help="what changed between two sets, and why",
        description="Which files, claims and inputs have another expectation, old and new code, which faults other "
        "numbers of vectors show, and the reason that golden/reasons.toml gives. A set is a folder of vectors or an "
        "export. Without NEW, what this version generates; without OLD, the vectors of this version. "
        "Exit code 0: the same; 1: they differ (with --explained: a change has no reason).",
    )
    action.add_argument("old", type=Path, nargs="?", metavar="OLD", help="a folder, .tar.gz, .tgz or .zip")
    action.add_argument("new", type=Path, nargs="?", metavar="NEW", help="another")
    action.add_argument("--git", metavar="REV", help="OLD is what lay in --golden at this revision; give NEW alone")
    action.add_argument(
        "--golden", type=Path, default=VECTORS, metavar="DIR", help="the folder of vectors, for --git and without OLD"
    )
    action.add_argument("--explained", action="store_true", help="differences are well if every change has a reason")
    action.add_argument("--reasons", type=Path, default=REASONS, metavar="FILE", help="why expectations changed")
    action.add_argument("--first", type=int, default=FIRST, metavar="N", help=f"examples of each claim ({FIRST})")
    action.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as Markdown too")
    action.add_argument("--html", type=Path, metavar="FILE", help="write them as one page too")
    add_json(action)
    action.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    _check(arguments)
    reasons = read_reasons(arguments.reasons)
    old, new = _sets(arguments)
    found = difference(old, new, reasons, arguments.first)
    if arguments.markdown:
        write_whole(arguments.markdown, golden_words.markdown(found).encode())
    if arguments.html:
        write_whole(arguments.html, golden_words.page(found).encode())
    if arguments.json:
        print_json(_json(found))
    else:
        show(screen(), golden_words.texts(found, screen().width))
    well = golden_words.explained(found) if arguments.explained else found.equal
    return Exit.OK if well else Exit.FAILED


def _check(arguments: argparse.Namespace) -> None:
    """Raise ``BadInput`` before anything is generated."""
    if arguments.git is not None and arguments.new:
        raise BadInput(
            f"--git {arguments.git} is OLD: give one set, NEW, or none; given {arguments.old} {arguments.new}"
        )
    if arguments.first < 0:
        raise BadInput(f"--first {arguments.first}: expected a number of examples, 0 or more")
    if arguments.html and arguments.html.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"--html {arguments.html}: expected a file that ends in .html")
    if arguments.markdown and arguments.markdown.suffix.lower() != ".md":
        raise BadInput(f"--markdown {arguments.markdown}: expected a file that ends in .md")


def _sets(arguments: argparse.Namespace) -> tuple[sets.VectorSet, sets.VectorSet]:
    """OLD is read before NEW is generated: what is wrong with it is said at once."""
    if arguments.git is not None:
        old, new = sets.of_git(arguments.git, arguments.golden), arguments.old
    else:
        old, new = sets.at(arguments.old or arguments.golden), arguments.new
    return old, sets.at(new) if new else sets.generated()


def _json(found: Difference) -> dict[str, Any]:
    return {
        "old": {"where": found.old.where, "manifest_sha256": found.old.manifest},
        "new": {"where": found.new.where, "manifest_sha256": found.new.manifest},
        "equal": found.equal,
        "version": found.version,
        "flags_compared": found.flags_compared,
        "about": {name: list(pair) for name, pair in found.about.items()},
        "files": [asdict(file) for file in found.files],
    }
