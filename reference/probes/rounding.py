"""How sums are rounded: to S is added a part of its last bit, and S is taken away again.

What each rule gives is computed here from its definition, in exact fractions, and a kernel's answers are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Row, Rows, row
from narrowgauge.reference.probes.setting import Setting
from narrowgauge.reference.probes.width import stretches_of_their_own

#: bits below the leading one of accumulators that there are: bfloat16, float16, the 13 of fp8 units, float32
CARRIED = (7, 10, 13, 23)
PARTS = (0.75, 0.5, 0.25, 0.125)
#: exponents of S, the most wanted first
LIFTS = (8, 12, 14, 15, 4, 0)
#: one step of an accumulator of w bits is 2^-w of S; parts of it, and an odd last bit with half a step
Case = tuple[float, float]
CASES: tuple[Case, ...] = (*((s, s2 * p) for s in (1.0, -1.0) for s2 in (1.0, -1.0) for p in PARTS),)
ODD: Case = (1.0, 1.5)


def places(setting: Setting) -> dict[str, tuple[int, int, int, int]]:
    """Where S, the odd bit, the part and -S stand: within 32 products, or in stretches of K of their own."""
    last, quarter = setting.k - 1, setting.k // 4
    return {"rounding": (0, 8, 1, last), "adding": (0, quarter, 2 * quarter, last)}


def _each(setting: Setting) -> Iterator[tuple[Key, Row | None]]:
    for name, at in places(setting).items():
        for w in CARRIED:
            lift = _lift(setting, w)
            for case in (*CASES, ODD):
                yield (name, w, *case), None if lift is None else _row(setting, at, w, lift, case)


def _rows(setting: Setting) -> Rows:
    return kept(dict(_each(setting)))


def _row(setting: Setting, at: tuple[int, int, int, int], w: int, lift: int, case: Case) -> Row | None:
    one, odd, part, last = at
    start, step = math.ldexp(case[0], lift), math.ldexp(1.0, lift - w)
    if case == ODD:  # the half comes when the odd bit is in the accumulator
        part = max(part, odd + 16)
        return row(setting, {one: start, odd: step, part: step / 2, last: -start})
    return row(setting, {one: start, part: case[1] * step, last: -start})


def _lift(setting: Setting, w: int) -> int | None:
    for lift in LIFTS:
        start, step = math.ldexp(1.0, lift), math.ldexp(1.0, lift - w)
        parts = (start, -start, step, step / 2, *(s * p * step for p in PARTS for s in (1, -1)))
        returned = all(setting.returns(n * step / 2) for n in (-4, -2, -1, 1, 2, 4))
        if returned and all(row(setting, {0: part}) is not None for part in parts):
            return lift
    return None


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    adding = _of(setting, answers, found, "adding", found["apart"])
    if not found["width"].value:
        return [unsaid("rounding", found["width"].words), adding]
    return [_of(setting, answers, found, "rounding", found["carried"]), adding]


def _of(setting: Setting, answers: Answers, found: Findings, name: str, bits: Finding) -> Finding:
    if not bits.value:
        return unsaid(name, bits.words)
    w = max((known for known in CARRIED if bits.value.isdecimal() and known <= int(bits.value)), default=0)
    lift = _lift(setting, w) if w in CARRIED else None
    odd = name == "rounding" or stretches_of_their_own(found, places(setting)["adding"])
    asked = [case for case in (*CASES, *((ODD,) if odd else ())) if (name, w, *case) in answers]
    if lift is None or not asked:
        known = ", ".join(map(str, CARRIED))
        return unsaid(name, f"sums of {bits.value or 'unknown'} bits: parts of the last bit are asked of {known}")
    half = math.ldexp(1.0, lift - w - 1)
    seen = {case: answers[(name, w, *case)] / half for case in asked}
    fits = [rule for rule, want in _rules(w).items() if all(want[case] == got for case, got in seen.items())]
    raw = {"halves": " ".join(f"{got:g}" for got in seen.values()), "bits": w}
    if not fits:
        return Finding(name, "other", f"by no known rule; in half steps of {w} bits: {raw['halves']}", raw)
    return Finding(name, fits[0], RULES[fits[0]].words.format(w=w), raw)


@dataclass(frozen=True)
class Rule:
    """How two terms become a sum of so many bits: terms are first brought to a grid, or not; then the sum."""

    name: str
    sums: str  #: rounding of the sum
    guard: int | None = None  #: bits of the terms' grid beyond those that are kept; None where terms stay exact
    terms: str = "toward_zero"  #: rounding of the terms to that grid

    @property
    def words(self) -> str:
        """The rule in words; the bits are to be filled in."""
        if self.guard is None:
            return f"the exact sum is rounded {SAID[self.sums]} of {{w}} bits"
        grid = f"{self.guard} bits more than the {{w}} that are kept" if self.guard else "the {w} bits that are kept"
        return f"terms are rounded {SAID[self.terms]} to {grid}, then their sum {SAID[self.sums]}"


SAID = {
    "nearest_even": "to nearest, ties to even",
    "nearest_away": "to nearest, ties away from zero",
    "toward_zero": "toward zero",
    "down": "down",
    "up": "up",
}
#: exact sums first, so that the simplest rule is the one that is named
RULES = {
    rule.name: rule
    for rule in (
        *(Rule(sums, sums) for sums in SAID),
        *(Rule(f"cut+{g}", "toward_zero", g) for g in range(4)),
        *(Rule(f"cut+{g}, nearest", "nearest_even", g) for g in range(4)),
        *(Rule(f"floor+{g}, nearest", "nearest_even", g, "down") for g in range(4)),
    )
}


def _rules(w: int) -> Mapping[str, Mapping[Case, float]]:
    return {name: {case: _predicted(rule, w, case) for case in (*CASES, ODD)} for name, rule in RULES.items()}


def _predicted(rule: Rule, w: int, case: Case) -> float:
    """What is left of a sum under a rule, in half steps."""
    start, step = Fraction(case[0]), Fraction(1, 1 << w)
    if case == ODD:
        held = _added(rule, w, start, step)
        return float((_added(rule, w, held, step / 2) - start) / (step / 2))
    return float((_added(rule, w, start, Fraction(case[1]) * step) - start) / (step / 2))


def _added(rule: Rule, w: int, one: Fraction, other: Fraction) -> Fraction:
    if rule.guard is not None:  # the larger term is of exponent 0
        grid = Fraction(1, 1 << (w + rule.guard))
        one, other = (_whole(rule.terms, term / grid) * grid for term in (one, other))
    return _rounded(rule.sums, w, one + other)


def _rounded(rounding: str, w: int, x: Fraction) -> Fraction:
    """x, between 1/2 and 2 in magnitude, in w bits below its leading one."""
    unit = Fraction(1, 1 << w) if abs(x) >= 1 else Fraction(1, 2 << w)
    return _whole(rounding, x / unit) * unit


def _whole(rounding: str, x: Fraction) -> int:
    match rounding:
        case "nearest_even":
            return round(x)
        case "nearest_away":
            return math.floor(abs(x) + Fraction(1, 2)) * (1 if x > 0 else -1)
        case "down":
            return math.floor(x)
        case "up":
            return math.ceil(x)
    return math.trunc(x)


PROBE = Probe(
    "rounding",
    "How are sums rounded, within a stretch of K and between stretches?",
    ("rounding", "adding"),
    _rows,
    _read,
)
