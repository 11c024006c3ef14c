"""Writes the second half of docs/products.md, from the catalogue."""

from __future__ import annotations

from narrowgauge.reference.matmul.accumulators import ACCUMULATORS
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.matmul.words import facts_of, facts_of_accumulator
from narrowgauge.suites.meta.pages import Page


def _section(name: str, facts: list[tuple[str, str]]) -> str:
    return "\n".join([f"### {name}", "", *(f"* {fact}: {words}" for fact, words in facts), ""])


def below() -> str:
    """All that stands below the mark: a section for each product, and one for each accumulator."""
    products = [_section(name, facts_of(product)) for name, product in PRODUCTS.items()]
    kept = [_section(name, facts_of_accumulator(each)) for name, each in ACCUMULATORS.items()]
    return "\n" + "\n".join(["## Products", "", *products, "## Accumulators", "", *kept])


PAGE = Page("products.md", "product_pages", below)

if __name__ == "__main__":
    PAGE.write()
