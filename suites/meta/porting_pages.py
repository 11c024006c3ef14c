"""Writes the tables of docs/porting.md: bytes, conversions, overflow, bounds, scales, units and pitfalls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim, Convert
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.words import facts_of
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.number_line import value_of
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.symptoms import SYMPTOMS
from narrowgauge.reference.units.registry import UNITS, UNKNOWN
from narrowgauge.suites.meta.fault_pages import address
from narrowgauge.suites.meta.pages import Page, anchor, table

#: digits of a number, enough to read it back
DIGITS = 9
#: from where, and to where
PLACES = ("sm_90", "gfx942", "gfx950")
PAIRS = (("float8_e4m3fn", "float8_e4m3fnuz"), ("float8_e5m2", "float8_e5m2fnuz"))
#: 0, the smallest, one, the last that both read, and where the two part
BYTES = (0x00, 0x01, 0x38, 0x7C, 0x7E, 0x7F, 0x80, 0x81, 0xB8, 0xFF)
#: inputs at which policies part: around the largest of FNUZ and of OCP, too much, no numbers, and zeros of a sign
EDGES = (240.0, 247.0, 248.0, 300.0, 448.0, 464.0, 1000.0, np.inf, np.nan, -0.0, -1e-8)
#: what is specified, and what there is on the two targets
CASTS = ("ocp_saturate", "triton_amd_ocp", "fnuz_saturate", "triton_amd_fnuz", "amd_native", "amd_native_clamped")
#: the symptom whose faults are the pitfalls, besides the family of flavours and wrong bounds
SYMPTOM = "a model is worse on MI300 than elsewhere, or its weights are off by a factor of two"
BOUNDS = ("scale.448_for_fnuz", "scale.format_maximum_for_224", "cast.clamped_to_240", "cast.clamped_to_448")


def number(value: float) -> str:
    """A value, or what it is in place of one."""
    return "NaN" if np.isnan(value) else f"{value:.{DIGITS}g}"


def _bytes() -> Iterator[str]:
    names = [name for pair in PAIRS for name in pair]
    rows = ((f"0x{code:02x}", *(number(value_of(code, FORMATS[name])) for name in names)) for code in BYTES)
    yield from table(("byte", *names), rows)


def _conversions() -> Iterator[str]:
    rows = []
    for name in (name for pair in PAIRS for name in pair):
        cells = []
        for target in (TARGETS[place] for place in PLACES):
            how = "an instruction" if name in target.instruction else "integer operations"
            cells.append(how if name in target.triton else "refused")
        rows.append((f"[{name}](formats/{name}.md)", *cells))
    yield from table(("Triton 3.9 converts to", *(f"{p} ({TARGETS[p].product})" for p in PLACES)), rows)


def _overflow() -> Iterator[str]:
    """What each policy that is for one of the two targets gives, and the specification's beside it."""
    columns = [(name, fmt) for fmt in PAIRS[0] for name in CASTS if fmt in POLICIES[name].by_format]
    x = Coded("float64", np.array(EDGES).view(np.uint64))
    given = [decode_values(cast(x, fmt, POLICIES[name].by_format[fmt])) for name, fmt in columns]
    heads = (f"{name}, {fmt.removeprefix('float8_')}" for name, fmt in columns)
    rows = ((number(edge), *(number(float(column[i])) for column in given)) for i, edge in enumerate(EDGES))
    yield from table(("input", *heads), rows)
    yield ""
    for name in CASTS:
        named = POLICIES[name]
        yield f"* `{name}`{f', {named.applies}' if named.applies else ''} ({named.evidence}): {named.authority}"


def _bounds() -> Iterator[str]:
    """What engines divide the largest magnitude by, where the codes are FNUZ."""
    by: dict[float, dict[str, list[str]]] = {}
    for name, recipe in RECIPES.items():
        for destination in recipe.destinations:
            if destination.format == PAIRS[0][1]:
                owners = by.setdefault(destination.bound, {})
                owners.setdefault(name.partition(".")[0], []).append(f"[{name}](recipes.md#{anchor(name)})")
    for bound, owners in sorted(by.items()):
        yield f"* {bound:g}: {', '.join(f'{names[0]} and {len(names) - 1} more' for names in owners.values())}"


def _scales() -> Iterator[str]:
    """Conversions from one flavour to the other, with what becomes of scales."""
    rows = []
    for name, conversion in CONVERSIONS.items():
        crossing = [(a, b) for a, b in conversion.formats if {a, b} in map(set, PAIRS)]
        if crossing:
            ((source, to), *_) = crossing
            steps = [words for fact, words in facts_of(conversion) if fact.startswith("step")]
            pair = f"{source.removeprefix('float8_')} to {to.removeprefix('float8_')}"
            rows.append((f"[{name}](conversions.md#{anchor(name)})", pair, "; ".join(steps), _claim(name, source, to)))
    yield from table(("conversion", "", "steps", "claim"), rows)


def _claim(name: str, source: str, to: str) -> str:
    return f"`{Claim(Convert(name), source, to)}`"


def _units() -> Iterator[str]:
    for place in PLACES[1:]:
        known = [f"`{unit.name}`" for unit in UNITS.values() if place in unit.targets]
        yield f"* {place}: {', '.join(known)}"
        yield from (f"* {place}, of others no model is known: {gap.known}" for gap in UNKNOWN if place in gap.targets)


def pitfalls() -> list[str]:
    """The faults that a port makes, by name."""
    (symptom,) = (s for s in SYMPTOMS if s.title == SYMPTOM)
    flavours = [name for name in FAULTS if name.startswith("fnuz.")]
    return list(dict.fromkeys((*flavours, *BOUNDS, *symptom.faults)))


def _pitfalls() -> Iterator[str]:
    rows = ((f"[{name}]({address(name)})", FAULTS[name].cause, FAULTS[name].symptom) for name in pitfalls())
    yield from table(("fault", "what is done wrong", "one sees"), rows)


def below() -> str:
    """All that stands below the mark."""
    sections = (
        ("One byte, four formats", _bytes()),
        ("Who converts", _conversions()),
        ("At the edge of the range", _overflow()),
        ("What scales are made with", _bounds()),
        ("What becomes of a checkpoint's bytes and scales", _scales()),
        ("Matrix units", _units()),
        ("Pitfalls", _pitfalls()),
    )
    return "\n".join(line for title, lines in sections for line in ("", f"## {title}", "", *lines)) + "\n"


PAGE = Page("porting.md", "porting_pages", below)

if __name__ == "__main__":
    PAGE.write()
