"""Writes the second half of docs/conversions.md, from the catalogue."""

from __future__ import annotations

from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.words import facts_of
from narrowgauge.suites.meta.pages import Page


def below() -> str:
    """All that stands below the mark: a section for each conversion."""
    sections = []
    for name, conversion in CONVERSIONS.items():
        lines = [f"* {fact}: {words}" for fact, words in facts_of(conversion)]
        sections.append("\n".join([f"### {name}", "", *lines, ""]))
    return "\n" + "\n".join(sections)


PAGE = Page("conversions.md", "conversion_pages", below)

if __name__ == "__main__":
    PAGE.write()
