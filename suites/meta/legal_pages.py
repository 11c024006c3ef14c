"""Writes the second half of docs/legal.md, from the operations."""

from __future__ import annotations

from collections.abc import Iterator

from narrowgauge.reference.legal.operations import OPERATIONS, YES, Operation
from narrowgauge.suites.meta.pages import Page, anchor


def table() -> Iterator[str]:
    """A line for each operation, a column for each format that several are asked about."""
    formats = [f for f in dict.fromkeys(f for o in OPERATIONS.values() for f in o.verdicts) if _often(f)]
    yield f"| operation | {' | '.join(formats)} | others |"
    yield "|---" * (len(formats) + 2) + "|"
    for o in OPERATIONS.values():
        others = [f"{f}: {v}" for f, v in o.verdicts.items() if f not in formats]
        cells = [f"[{o.name}](#{anchor(o.name)})", *(o.verdicts.get(f, "") for f in formats), ", ".join(others)]
        yield f"| {' | '.join(cells)} |"


def section(o: Operation) -> Iterator[str]:
    """One operation: what is asked, and what each format gives."""
    yield from ("", f"### {o.name}", "", f"* {o.does}: {o.about}", f"* where it is lost: {o.reason}", f"* {o.source}")
    yield from ("", "| format | verdict | gives |", "|---|---|---|")
    for name in o.verdicts:
        seen = o.trial(name)
        verdict = seen.verdict if seen.verdict == YES else f"**{seen.verdict}**"
        yield f"| {name} | {verdict} | {seen.shown} |"


def _often(format_name: str) -> bool:
    return sum(format_name in o.verdicts for o in OPERATIONS.values()) > 2


def below() -> str:
    """All that stands below the mark."""
    sections = [line for o in OPERATIONS.values() for line in section(o)]
    return "\n" + "\n".join([*table(), *sections]) + "\n"


PAGE = Page("legal.md", "legal_pages", below)

if __name__ == "__main__":
    PAGE.write()
