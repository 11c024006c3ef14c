"""Writes the second half of docs/recipes.md, from the catalogue."""

from __future__ import annotations

from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.words import facts_of
from narrowgauge.suites.meta.pages import Page, anchor


def table() -> str:
    """A line for each recipe: blocks, destinations, what is given and what is returned."""
    lines = ["| recipe | one scale for | to | given | returned beside codes |", "|---|---|---|---|---|"]
    for r in RECIPES.values():
        returned = ", ".join(f"{n} {f}" for n, f in r.outputs(r.destinations[0].format).items() if n != "codes")
        to = ", ".join(d.format for d in r.destinations)
        lines.append(f"| [{r.name}](#{anchor(r.name)}) | {r.blocks} | {to} | {', '.join(r.inputs)} | {returned} |")
    return "\n".join(lines) + "\n"


def section(recipe: Recipe) -> str:
    """One recipe, step by step, and where it stands."""
    said = [f"* {name}: {words}" for name, words in facts_of(recipe)[1:]]
    return "\n".join([f"### {recipe.name}", "", *said, ""])


def below() -> str:
    """All that stands below the mark."""
    return "\n" + table() + "\n" + "\n".join(section(recipe) for recipe in RECIPES.values())


PAGE = Page("recipes.md", "recipe_pages", below)

if __name__ == "__main__":
    PAGE.write()
