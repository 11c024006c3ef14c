"""Writes the second half of docs/conversions.md, from the catalogue."""

from __future__ import annotations

from pathlib import Path

from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.words import facts_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conversions.md"
MARK = "<!-- below: written by python -m narrowgauge.suites.meta.conversion_pages -->\n"


def below() -> str:
    """All that stands below the mark: a section for each conversion."""
    sections = []
    for name, conversion in CONVERSIONS.items():
        lines = [f"* {fact}: {words}" for fact, words in facts_of(conversion)]
        sections.append("\n".join([f"### {name}", "", *lines, ""]))
    return "\n" + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().split(MARK)[0] + MARK + below())
