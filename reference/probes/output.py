"""How a sum becomes the result: one rounding or two, and by which rule.

The sum is exact in the accumulator; each way from it to the format of the result is computed from its definition, and
the ways that give all of a kernel's results are named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import decode, encode
from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Rows, row
from narrowgauge.reference.probes.setting import F64, Setting

NEAREST = CastPolicy(overflow="max", infinity="special")
#: results of more bits than this show the accumulator itself
WIDEST = 16
#: parts of a sum, as places below its leading one: beside half a step of the result a small part, the smaller the
#: more bits a format on the way must have to see it
TAILS = (2, 4, 8, 12)


def _sums(setting: Setting) -> Iterator[tuple[Key, tuple[float, ...]]]:
    """Parts of a sum: 1, perhaps a step of the result, half a step, and perhaps a tail, of both signs."""
    step = 2.0 ** -format_named(setting.out).mantissa
    for odd in (0, 1):
        for tail in (0, *(s * t for t in TAILS for s in (1, -1))):
            small = math.copysign(step / 2 * 2.0 ** -abs(tail), tail) if tail else 0.0
            parts = (1.0, *([step] if odd else []), step / 2, *([small] if tail else []))
            yield (odd, tail, 1), parts
            yield (odd, tail, -1), tuple(-part for part in parts)


def _rows(setting: Setting) -> Rows:
    if format_named(setting.out).bits > WIDEST or format_named(setting.out).family == "integer":
        return {}
    return kept({key: row(setting, dict(enumerate(parts))) for key, parts in _sums(setting)})


Way = Callable[[F64, Setting], F64]


def _to(format_name: str, values: F64, rounding: str = "nearest_even") -> F64:
    fmt = format_named(format_name)
    policy: CastPolicy = replace(NEAREST, rounding=rounding)  # type: ignore[arg-type]
    return decode(encode(values, fmt, policy), fmt)


#: ways from the exact sum to the result
WAYS: dict[str, tuple[str, Way]] = {
    "once": ("one rounding, to nearest, ties to even", lambda x, s: _to(s.out, x)),
    "ties away": ("one rounding, to nearest, ties away from zero", lambda x, s: _to(s.out, x, "nearest_away")),
    "toward zero": ("cut toward zero", lambda x, s: _to(s.out, x, "toward_zero")),
    "up": ("rounded up", lambda x, s: _to(s.out, x, "up")),
    "down": ("rounded down", lambda x, s: _to(s.out, x, "down")),
    "through bfloat16": ("rounded to bfloat16 first", lambda x, s: _to(s.out, _to("bfloat16", x))),
    "through float16": ("rounded to float16 first", lambda x, s: _to(s.out, _to("float16", x))),
}


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    if format_named(setting.out).bits > WIDEST or not answers:
        return [unsaid("output", f"{setting.out} holds all bits of the accumulator: nothing is rounded at the end")]
    bits = _bits(found)
    if bits is None:
        return [unsaid("output", "how many bits a sum has before it is rounded is not known")]
    asked = {key: parts for key, parts in _sums(setting) if key in answers and _fits(parts, bits)}
    if not asked:
        return [unsaid("output", f"a sum of {bits} bits has no part that {setting.out} does not hold")]
    x = np.array([sum(parts) for parts in asked.values()])
    got = np.array([answers[key] for key in asked])
    ways = {name: way for name, (_, way) in WAYS.items() if name != f"through {setting.out}"}
    fits = [name for name, way in ways.items() if np.array_equal(way(x, setting), got)]
    if not fits:
        return [Finding("output", "other", "rounded by no known rule", {"results": _listed(asked, got)})]
    alike = f" (or, alike on {len(asked)} sums: {', '.join(fits[1:])})" if len(fits) > 1 else ""
    return [Finding("output", " or ".join(fits), f"{WAYS[fits[0]][0]}{alike}")]


def _bits(found: Findings) -> int | None:
    """Bits of one addition, and of what is carried on: the fewer of those that are known."""
    said = [found[name].value.removeprefix(">=") for name in ("width", "carried", "apart")]
    return min(map(int, filter(None, said)), default=None)


def _fits(parts: tuple[float, ...], bits: int) -> bool:
    """Whether a sum of these parts is exact in an accumulator of so many bits below its leading one."""
    total = sum(parts)
    scaled = abs(total) * 2.0 ** (min(bits, 23) - math.floor(math.log2(abs(total))))
    return scaled == int(scaled)


def _listed(asked: dict[Key, tuple[float, ...]], got: F64) -> dict[str, str]:
    return {f"{sum(parts)!r}": f"{value!r}" for parts, value in zip(asked.values(), got.tolist(), strict=True)}


PROBE = Probe("output", "How is the sum rounded to the result?", ("output",), _rows, _read, "output")
