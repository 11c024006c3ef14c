"""How many bits a sum keeps: U and -U cancel, and what is left of 2^-t U tells whether it was still there.

Three places tell a fused addition from what is carried on: while all three are added at once, the bits to which terms
are aligned count; after that, those of the accumulator. Where K is summed in stretches, U, its small companion and -U
may each have a stretch of their own; then the bits count in which stretches are added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Row, Rows, row
from narrowgauge.reference.probes.setting import Setting

DEEPEST = 33
#: exponents of U, the most wanted first: small enough for a float16, then whatever the formats can hold
LIFTS = (8, 12, 14, 16, 4, 0, -4, 20, 28)


def columns(setting: Setting) -> dict[str, tuple[int, int, int]]:
    """Where U, 2^-t U and -U stand: next to one another, further apart, at both ends of K, in three thirds."""
    last = setting.k - 1
    near = {str(end): (0, 1, end) for end in (2, 4, 8, 16, 32)}
    if setting.scaled == "unit" and setting.a.along:  # elements of few bits: each has a block with a scale of its own
        near["blocks"] = (0, setting.a.along, 2 * setting.a.along)
    return near | {"far": (0, 1, last), "apart": (0, setting.k // 2, last)}


def _rows(setting: Setting) -> Rows:
    return kept(dict(_each(setting)))


def _each(setting: Setting) -> Iterator[tuple[Key, Row | None]]:
    for name, places in columns(setting).items():
        for t in range(1, DEEPEST + 1):
            yield (name, t), _row(setting, places, t)


def _row(setting: Setting, places: tuple[int, int, int], t: int) -> Row | None:
    lift = _lift(setting, t)
    if lift is None:
        return None
    large = math.ldexp(1.0, lift)
    return row(setting, {places[0]: large, places[1]: math.ldexp(large, -t), places[2]: -large})


def _lift(setting: Setting, t: int) -> int | None:
    """The exponent of U with which both U and 2^-t U can be asked, and the latter returned."""
    for lift in LIFTS:
        parts = (math.ldexp(1.0, lift), math.ldexp(-1.0, lift), math.ldexp(1.0, lift - t))
        if setting.returns(parts[2]) and all(row(setting, {0: part}) is not None for part in parts):
            return lift
    return None


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    bits = {name: _bits(setting, answers, name) for name in columns(setting)}
    if not any(bits.values()):
        why = f"{setting.a.format} x {setting.b.format} to {setting.out} hold no products that are far enough apart"
        return [unsaid(name, why) for name in ("width", "carried", "apart")]
    near = [b for name, b in bits.items() if b and name not in ("far", "apart") and _beside(found, name)]
    if not near:
        why = "the terms at 0 and 1 meet last: nothing is added beside both"
        return [unsaid("width", why), *_ends(setting, bits, found)]
    varies = found["order"].seen.get("varies", False)  # then some columns tell of another order
    width = max(near, key=(lambda b: (near.count(b), _number(b))) if varies else _number)
    table = ", ".join(f"{name}: {b}" for name, b in bits.items())
    return [
        Finding("width", width, f"{width} bits below the largest term are kept in one addition", {"bits": table}),
        *_ends(setting, bits, found),
    ]


def _ends(setting: Setting, bits: dict[str, str], found: Findings) -> list[Finding]:
    far, apart = bits["far"], bits["apart"]
    ends = Finding("carried", far, f"{far} bits are carried from one end of K to the other")
    if not stretches_of_their_own(found, columns(setting)["apart"]):
        return [ends, unsaid("apart", f"stretches of {found['stretch'].value} are too long for three in K")]
    return [ends, Finding("apart", apart, f"{apart} bits where each term has a stretch of K of its own")]


def stretches_of_their_own(found: Findings, places: Sequence[int]) -> bool:
    """Whether each of these places is in another stretch, where K is summed in stretches."""
    value = found["stretch"].value
    return not value.isdecimal() or len({place // int(value) for place in places}) == len(places)


def _beside(found: Findings, end: str) -> bool:
    """Whether the term at 1 is added no later than the one that takes U away: else it never met U."""
    met = found["order"].seen.get("met", {})
    return end not in met or met["1"] <= met[end]


def _number(bits: str) -> int:
    return int(bits.removeprefix(">="))


def _bits(setting: Setting, answers: Answers, name: str) -> str:
    """The largest t with an exact answer: ">=33" where all have one, "" where none could be asked."""
    asked = {t: answers[(name, t)] for t in range(1, DEEPEST + 1) if (name, t) in answers}
    if not asked:
        return ""
    right = [t for t, value in asked.items() if value == math.ldexp(1.0, (_lift(setting, t) or 0) - t)]
    most = max(right, default=0)
    return f">={most}" if most == max(asked) else str(most)


PROBE = Probe(
    "width",
    "How many bits of a term are kept beside a larger one?",
    ("width", "carried", "apart"),
    _rows,
    _read,
)
