"""Writes docs/formats: a page and a picture for each format, from the registries, and the table of docs/formats.md.

python -m narrowgauge.suites.meta.format_pages               # the pages
python -m narrowgauge.suites.meta.format_pages pictures      # and the pictures, which takes matplotlib
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path

from narrowgauge.contracts.formats import FORMATS, Format
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.devices.targets import TARGETS, Target
from narrowgauge.reference.format_words import format_facts
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.suites.meta.format_pictures import drawn, write_picture
from narrowgauge.suites.meta.pages import DOCS, Page, anchor, table

#: facts that stand in the table of all formats
TABLE = ("bits", "largest finite", "smallest normal", "smallest subnormal", "NaN", "infinity", "negative zero")
#: choices of a policy that have a column of their own
COLUMNS = ("rounding", "overflow", "infinity", "nan")
#: what Triton does with a format that a target does not have
REFUSED = "not at all"
#: in the heading of a page: how the codes of a family are laid out
FAMILIES = {
    "ieee": "The largest exponent is infinity and NaN.",
    "fn": "All ones below the sign is NaN. There is no infinity: its codes are numbers.",
    "fnuz": "The code of -0 is the only NaN. There is no infinity and no negative zero.",
    "finite": "Every code is a number: there is neither infinity nor NaN.",
    "exponent": "A power of two alone: no sign and no zero. The last code is NaN.",
    "integer": "Whole numbers. There is neither infinity nor NaN.",
}


def overview() -> str:
    """The table of all formats."""
    rows = []
    for fmt in FORMATS.values():
        said = format_facts(fmt)
        rows.append((f"[{fmt.name}](formats/{fmt.name}.md)", *(said[name] for name in TABLE)))
    return "\n".join(["", "## All formats", "", *table(("format", *TABLE), rows)]) + "\n"


def page(fmt: Format) -> str:
    """All that is known of a format."""
    facts = [(name, said) for name, said in format_facts(fmt).items() if said]
    lines = ["", f"# {fmt.name}", "", FAMILIES[fmt.family], "", *table(("fact", ""), facts), ""]
    if drawn(fmt):
        lines += [
            f"![{fmt.name}: its values, their spacing, and what becomes of what is too large]({fmt.name}.png)",
            "",
        ]
        lines += ["[How to read the picture](../formats.md).", ""]
    sections = (("Conversion on GPUs", targets(fmt)), ("Matrix units", units(fmt)), ("Cast policies", policies(fmt)))
    for title, found in (*sections, ("Recipes", recipes(fmt))):
        made = list(found)
        if made:
            lines += [f"## {title}", "", *made, ""]
    return "\n".join([*lines, f"`narrowgauge explain {fmt.name}` says it on a terminal.", ""])


def targets(fmt: Format) -> Iterator[str]:
    """Which targets convert to it, in hardware and in Triton. Nothing for a format of which targets say nothing."""
    alike: dict[tuple[str, str], list[str]] = {}
    for target in TARGETS.values():
        hardware = "yes" if fmt.name in target.hardware else "no"
        alike.setdefault((hardware, _triton(fmt, target)), []).append(f"{target.name} ({target.product})")
    if set(alike) != {("no", REFUSED)}:
        rows = [(*does, ", ".join(names)) for does, names in sorted(alike.items(), reverse=True)]
        yield from table(("an instruction converts to it", "Triton 3.9 does it", "on"), rows)


def _triton(fmt: Format, target: Target) -> str:
    if fmt.name in target.instruction:
        return "by the instruction"
    return "by integer operations" if fmt.name in target.software else REFUSED


def units(fmt: Format) -> Iterator[str]:
    """Which matrix units take it as operand or scale, or return it."""
    kinds = (
        ("operands", [u.name for u in UNITS.values() if fmt.name in u.formats]),
        ("scales", [u.name for u in UNITS.values() if fmt.name in u.scales]),
        ("results", [u.name for u in UNITS.values() if fmt.name == u.out]),
    )
    for kind, names in kinds:
        if names:
            yield f"* as {kind}: {', '.join(f'`{name}`' for name in names)}"
    if any(names for _, names in kinds):
        yield from ("", "[units.md](../units.md) has what each computes, and on which targets.")


def policies(fmt: Format) -> Iterator[str]:
    """Who casts to it, and what becomes of what it cannot hold."""
    rows = []
    for named in POLICIES.values():
        policy = named.by_format.get(fmt.name)
        if policy is not None:
            choices = (str(getattr(policy, name)).replace("_", " ") for name in COLUMNS)
            rows.append((f"`{named.name}`", *choices, _unusual(policy), named.evidence, named.applies))
    if rows:
        heads = ("policy", "rounding", "overflow becomes", "infinity becomes", "NaN becomes", "else")
        yield from table((*heads, "rests on", "applies to"), rows)
        yield '\n"max" is the largest value, "special" infinity where the format has one, else NaN.'
        yield "`narrowgauge explain POLICY` has the source."


def _unusual(policy: CastPolicy) -> str:
    """The choices without a column that are not the usual ones."""
    usual = CastPolicy()
    other = [f.name for f in fields(CastPolicy) if f.name not in COLUMNS]
    return ", ".join(f"{n}: {getattr(policy, n)}" for n in other if getattr(policy, n) != getattr(usual, n))


def recipes(fmt: Format) -> Iterator[str]:
    """Which recipes make codes or scales of it, by whose they are."""
    made: dict[str, dict[str, list[str]]] = {"codes": {}, "scales": {}}
    for name, recipe in RECIPES.items():
        owner, _, short = name.partition(".")
        said = f"[{short}](../recipes.md#{anchor(name)})"
        if any(d.format == fmt.name for d in recipe.destinations):
            made["codes"].setdefault(owner, []).append(said)
        beside = {f for d in recipe.destinations for n, f in recipe.outputs(d.format).items() if n != "codes"}
        if fmt.name in beside and fmt.bits <= 8:
            made["scales"].setdefault(owner, []).append(said)
    for what, by_owner in made.items():
        if by_owner:
            yield f"As {what}:\n" if what == "codes" or not made["codes"] else f"\nAs {what}:\n"
            yield from (f"* {owner}: {', '.join(names)}" for owner, names in by_owner.items())


PAGES = (
    Page("formats.md", "format_pages", overview),
    *(Page(f"formats/{fmt.name}.md", "format_pages", partial(page, fmt)) for fmt in FORMATS.values()),
)


def picture_of(fmt: Format) -> Path:
    """Where the picture of a format stands."""
    return DOCS / "formats" / f"{fmt.name}.png"


if __name__ == "__main__":
    for each in PAGES:
        each.write()
    if "pictures" in sys.argv[1:]:
        for one in filter(drawn, FORMATS.values()):
            write_picture(one, picture_of(one))
