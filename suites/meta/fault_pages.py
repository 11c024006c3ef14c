"""Writes docs/faults.md, docs/faults/ and docs/symptoms.md from the faults and symptoms of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from shlex import quote

from narrowgauge.command.explain import explanation
from narrowgauge.reference.faults.fault import AnyFault
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.faults.reports import link_of
from narrowgauge.reference.symptom import Symptom
from narrowgauge.reference.symptoms import SYMPTOMS
from narrowgauge.suites.meta import fault_places
from narrowgauge.suites.meta.pages import Page, anchor, table


@dataclass(frozen=True)
class Family:
    """Faults of one page, by what stands before the dot in their names."""

    file: str
    title: str
    prefixes: tuple[str, ...]


FAMILIES = (
    Family("casts", "Casts, and reading codes", ("cast", "decode")),
    Family("flavours", "OCP taken for FNUZ, and FNUZ for OCP", ("fnuz",)),
    Family("e8m0", "Powers of two as scales (E8M0)", ("e8m0",)),
    Family("integers", "Integers and zero points", ("integer",)),
    Family(
        "quantizers",
        "Scales, elements, zeros, NaN, granularity and tails of quantizers",
        ("scale", "element", "zero", "nan", "global", "granularity", "tail"),
    ),
    Family("readers", "Reading quantized data", ("read",)),
    Family("layouts", "Layouts in memory", ("layout",)),
    Family("caches", "Key-value caches", ("kv_scale", "kv_code", "kv_layout", "kv_slot", "kv_page", "kv_attention")),
    Family("conversions", "Conversions of checkpoints", ("convert",)),
    Family("products", "Products of matrices", ("product",)),
    Family("wide", "Operations that stay wide", ("wide",)),
)
_FILES = {prefix: family.file for family in FAMILIES for prefix in family.prefixes}


def address(fault: str) -> str:
    """Where a fault stands, seen from docs/."""
    return f"faults/{_FILES[fault.partition('.')[0]]}.md#{anchor(fault)}"


def of(family: Family) -> list[AnyFault]:
    """Its faults, in the order of its prefixes."""
    return [f for prefix in family.prefixes for f in FAULTS.values() if f.name.startswith(f"{prefix}.")]


def overview() -> str:
    """Which page has which faults, and what the words in brackets stand for."""
    rows = []
    for family in FAMILIES:
        names = ", ".join(f"`{prefix}.…`" for prefix in family.prefixes)
        rows.append((f"[{family.title}](faults/{family.file}.md)", names, str(len(of(family)))))
    words: dict[str, list[str]] = {}
    for fault in FAULTS.values():
        words.setdefault(fault.code, []).append(f"[{fault.name}]({address(fault.name)})")
    coded = [(f"`[{word}]`", ", ".join(names)) for word, names in sorted(words.items())]
    lines = ["", "## Pages", "", *table(("page", "names", "faults"), rows)]
    return "\n".join([*lines, "", "## Words in brackets", "", *table(("word", "faults"), coded)]) + "\n"


def page(family: Family) -> str:
    """Every fault of a family."""
    lines = ["", f"# {family.title}", "", "[All faults](../faults.md), [what one sees](../symptoms.md).", ""]
    return "\n".join([*lines, *(line for fault in of(family) for line in section(fault))])


def section(fault: AnyFault) -> Iterator[str]:
    """What is done wrong, what one sees, who reported it, what the suite shows it on."""
    yield from (f"## {fault.name}", "", f"* word: `[{fault.code}]`", f"* cause: {fault.cause}")
    yield f"* one sees: {fault.symptom}"
    yield f"* reports: {'; '.join(map(_report, fault.reports)) or 'none that we know of'}"
    yield from (f"* {what}: {place}" for what, place in _places().get(fault.name, {}).items())
    yield ""


def _report(report: str) -> str:
    link = link_of(report)
    return f"[{report}]({link})" if link else report


@cache
def _places() -> dict[str, dict[str, str]]:
    return fault_places.load()


def symptoms() -> str:
    """Every symptom: a list that leads there, then what is behind each."""
    lines = ["", "## What do you see?", ""]
    lines += [f"* [{s.title}](#{anchor(s.title)})" for s in SYMPTOMS]
    return "\n".join([*lines, "", *(line for s in SYMPTOMS for line in symptom(s))])


def symptom(one: Symptom) -> Iterator[str]:
    """Why it happens, what to do, and the faults that do it."""
    yield from (f"## {one.title}", "", one.why, "", f"**Next:** {one.look}", "")
    yield from (f"    narrowgauge explain {quote(asked(one))}", "")
    yield from (*(f"* [{name}]({address(name)}): {FAULTS[name].cause}" for name in one.faults), "")


def asked(one: Symptom) -> str:
    """The first of its words that leads to it: "half" alone is a format."""
    return next(word for word in one.words if f"'title': {one.title!r}" in str(explanation(word, 80)[0]))


PAGES = (
    Page("faults.md", "fault_pages", overview),
    Page("symptoms.md", "fault_pages", symptoms),
    *(Page(f"faults/{family.file}.md", "fault_pages", partial(page, family)) for family in FAMILIES),
)

if __name__ == "__main__":
    for each in PAGES:
        each.write()
