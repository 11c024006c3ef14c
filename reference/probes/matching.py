"""Which known matrix units give a kernel's answers: each model is asked the same rows, and nothing is typed in.

Where the kernel adds up stretches of K, so do the models. Rows about schedules, scales and results are left out: those
are the kernel's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.probes import integers, width
from narrowgauge.reference.probes.portrait import PROBES, Portrait, of_probe
from narrowgauge.reference.probes.probe import Answers, Finding, Probe, rows_of
from narrowgauge.reference.probes.rows import Key, Row, Rows
from narrowgauge.reference.probes.setting import F64, Setting, Side
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit

#: places of K that are all zero in every row are left out in pieces of this size: no unit takes more at once
PIECE = 64
#: formats to which operands may be widened before a unit takes them
WIDENED = ("float16", "bfloat16", "float32")
IEEE = CastPolicy(overflow="special", infinity="special")
#: how many units are named where none fits
NEAREST = 3


@dataclass(frozen=True)
class Match:
    """A unit beside a kernel: names of probes whose answers differ, and what each finds of the two."""

    unit: str
    entering: str  #: the format to which operands are widened before; "" for their own
    differing: Mapping[str, int]  #: by probe, how many rows
    apart: Mapping[str, tuple[str, str]]  #: by finding, the kernel's value and the unit's

    @property
    def name(self) -> str:
        """The unit, and as what its operands enter."""
        return f"{self.unit} (operands as {self.entering})" if self.entering else self.unit

    @property
    def parts(self) -> str:
        """In what the two part, in words."""
        if self.apart:
            return ", ".join(
                f"{name} {own or 'not seen'}, not {its or 'not seen'}" for name, (own, its) in self.apart.items()
            )
        return ", ".join(f"{rows} rows of {name}" for name, rows in self.differing.items())


@dataclass(frozen=True)
class Known:
    """The units that fit, or the nearest."""

    fits: tuple[Match, ...]
    nearest: tuple[Match, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"fits": [m.name for m in self.fits], "nearest": {m.name: m.parts for m in self.nearest}}


def known_units(found: Portrait, answers: Answers) -> Known:
    """Every known unit of which a kernel may be made that gave these answers; the nearest ones where there is none.

    Units of one family with the same numbers are asked once; the first question, on the width, tells most apart.
    """
    alike: dict[tuple[object, ...], list[tuple[Unit, str]]] = {}
    for unit, entering in candidates(found.setting):
        alike.setdefault((unit.family, unit.out, unit.through, unit.scales, unit.block, entering), []).append(
            (unit, entering)
        )
    first = [(units, _compared(units[0], found, answers, [width.PROBE])) for units in alike.values()]
    ranked = sorted(
        ((units, match) for units, match in first if match is not None), key=lambda pair: _distance(pair[1])
    )
    asked = [probe for probe in PROBES if probe.of == "unit"]
    fits: list[Match] = []
    nearest: list[Match] = []
    for units, match in ranked:
        if match.differing and (fits or len(nearest) == NEAREST):
            break
        whole = _compared(units[0], found, answers, asked)
        if whole is not None:
            (nearest if whole.differing else fits).extend(replace(whole, unit=unit.name) for unit, _ in units)
    if fits:
        return Known(tuple(fits), ())
    return Known((), tuple(sorted(nearest, key=_distance)[:NEAREST]))


def _distance(match: Match) -> tuple[int, int]:
    return len(match.differing), sum(match.differing.values())


def _compared(candidate: tuple[Unit, str], found: Portrait, answers: Answers, probes: list[Probe]) -> Match | None:
    """A unit's answers beside the kernel's; None where it cannot be given the rows."""
    unit, entering = candidate
    model: dict[str, Answers] = {}
    for probe in probes:
        made = _model(unit, entering, found.setting, probe.name, _stretch(found))
        if made is None:
            return None
        model[probe.name] = made
    return _match(unit, entering, found, answers, model)


def candidates(setting: Setting) -> Iterator[tuple[Unit, str]]:
    """Units that take the operands as they are, or widened, each with the format to which they are; "" for their own.

    Integers are not widened: their sums are exact or they are not.
    """
    own = [side.enters or side.format for side in (setting.a, setting.b)]
    whole = any(format_named(name).family == "integer" for name in own)
    for unit in UNITS.values():
        scaled = all(side.scales in unit.scales for side in (setting.a, setting.b))
        if unit.takes(own[0], own[1]) and (scaled or not unit.scales):
            yield unit, ""
        for wide in () if whole else WIDENED:
            if wide not in own and unit.takes(wide, wide) and not unit.through and not unit.scales:
                yield unit, wide


@lru_cache(maxsize=256)
def _model(unit: Unit, entering: str, setting: Setting, name: str, stretch: int) -> Mapping[Key, float] | None:
    """A unit's answers to a probe."""
    (probe,) = (probe for probe in PROBES if probe.name == name)
    long = setting.of_length(integers.LONG) if probe is integers.PROBE and integers.suits(setting) else setting
    return answers_of(unit, entering, long, rows_of(probe, long), stretch)


def _stretch(found: Portrait) -> int:
    value = found.findings["stretch"].value
    return int(value) if value.isdecimal() else 0


def _match(unit: Unit, entering: str, found: Portrait, answers: Answers, model: Mapping[str, Answers]) -> Match:
    differing = {}
    for name, rows in model.items():
        own = of_probe(answers, name)
        if count := sum(1 for key, value in rows.items() if key in own and not _same(value, own[key])):
            differing[name] = count
    findings: dict[str, Finding] = {"stretch": found.findings["stretch"]}
    for probe in PROBES if differing and len(model) > 1 else ():
        if probe.name in model:
            findings |= {f.name: f for f in probe.read(found.setting, model[probe.name], findings)}
    apart = {
        name: (found.findings[name].value, finding.value)
        for name, finding in findings.items()
        if finding.value != found.findings[name].value
    }
    return Match(unit.name, entering, differing, apart if differing else {})


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


# --- a model's answers -----------------------------------------------------------------------------------------------


def answers_of(unit: Unit, entering: str, setting: Setting, rows: Rows, stretch: int = 0) -> dict[Key, float] | None:
    """What a unit makes of rows, sums of ``stretch`` products added up in float32 (0: in one sum), as results.

    None where it cannot be given them: numbers or scales that it does not hold.
    """
    if not rows:
        return {}
    kept, pieces = _pieces(setting, rows, stretch)
    sides = [_side(unit, entering, side, name, rows, kept) for side, name in ((setting.a, "a"), (setting.b, "b"))]
    if any(side is None for side in sides):
        return None
    (a, a_scale), (b, b_scale) = (side for side in sides if side is not None)
    total = _sums(unit, a, b, a_scale, b_scale, pieces)
    result = total if setting.out in (total.format, "int32") else cast(total, setting.out, IEEE)
    return dict(zip(rows, decode_values(result).tolist(), strict=True))


def _sums(unit: Unit, a: Coded, b: Coded, a_scale: Coded | None, b_scale: Coded | None, pieces: list[slice]) -> Coded:
    total: Coded | None = None
    for piece in pieces:
        one, other = (Coded(x.format, x.data[:, piece]) for x in (a, b))
        scales = [_cut_scale(unit, scale, piece) for scale in (a_scale, b_scale)]
        part = dot(unit, one, other, a_scale=scales[0], b_scale=scales[1])
        if total is None:
            total = part
        else:
            with np.errstate(invalid="ignore"):
                added = (decode_values(total) + decode_values(part)).astype(np.float32)
            total = Coded("float32", added.view(np.uint32))
    assert total is not None
    return total


def _cut_scale(unit: Unit, scale: Coded | None, piece: slice) -> Coded | None:
    if scale is None:
        return None
    return Coded(scale.format, scale.data[:, piece.start // unit.block : -(-piece.stop // unit.block)])


def _pieces(setting: Setting, rows: Rows, stretch: int) -> tuple[list[int], list[slice]]:
    """The places of K that are looked at, and how they are cut into stretches."""
    used = {k // PIECE for row in rows.values() for k, _, _ in row.terms}
    if setting.k % PIECE or (stretch and stretch % PIECE and PIECE % stretch):
        used = set(range(-(-setting.k // PIECE)))
    kept = [k for piece in sorted(used) for k in range(piece * PIECE, min((piece + 1) * PIECE, setting.k))]
    if not stretch:
        return kept, [slice(0, len(kept))]
    starts = [n for n, k in enumerate(kept) if n == 0 or k // stretch != kept[n - 1] // stretch]
    return kept, [slice(first, last) for first, last in zip(starts, [*starts[1:], len(kept)], strict=True)]


def _side(
    unit: Unit, entering: str, side: Side, name: str, rows: Rows, kept: list[int]
) -> tuple[Coded, Coded | None] | None:
    """One operand of all rows as codes [n, places], and its scales [n, blocks]."""
    place = {k: n for n, k in enumerate(kept)}
    numbers = np.zeros((len(rows), len(kept)))
    for n, row in enumerate(rows.values()):
        for k, x, y in row.terms:
            numbers[n, place[k]] = x if name == "a" else y
    scales = _scales(unit, side, name, rows, kept)
    if scales is None:
        numbers = numbers * _each_scale(side, name, rows, kept)
    enters = Side(entering or side.enters or side.format)
    codes = enters.codes(numbers)
    if not np.array_equal(decode_values(codes), numbers):
        return None
    return codes, scales


def _each_scale(side: Side, name: str, rows: Rows, kept: list[int]) -> F64:
    factors = np.ones((len(rows), len(kept)))
    along = np.array(kept) // side.along if side.along else np.zeros(len(kept), np.int64)
    for n, row in enumerate(rows.values()):
        for block, scale in _own(row, name):
            factors[n, along == block] = scale
    return factors


def _own(row: Row, name: str) -> tuple[tuple[int, float], ...]:
    return row.a_scales if name == "a" else row.b_scales


def _scales(unit: Unit, side: Side, name: str, rows: Rows, kept: list[int]) -> Coded | None:
    """For a unit that takes scales: those of the rows, of the format that the kernel is given."""
    if not unit.scales:
        return None
    fmt = side.scales if side.scales in unit.scales else unit.scales[0]
    every = _each_scale(side, name, rows, kept)
    return Side(fmt).codes(every[:, :: unit.block])
