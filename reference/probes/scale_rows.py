"""Rows that tell ways of scaling apart: drawn and made, of which those are asked that part most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import decode, encode
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.probes.scalings import IEEE, Scaling, Sums, f32, scalings
from narrowgauge.reference.probes.setting import Setting, Side

#: rows that are drawn to choose from, and rows that are asked at most: one launch each where a scale is the tensor's
DRAWN, ASKED, LAUNCHES = 48, 12, 9
#: float32 patterns of two scales, without pattern
SHARES = ((0x3FA0E51D, 0x3F9460A3), (0x3FC33D2F, 0x3F82B464), (0x3FB1F3A7, 0x3FE12345), (0x3FE9D5C3, 0x3FA7B1D9))
ONE = (1.0, 1.0)
#: numbers of a and b that are no powers of two: under a scale each is rounded where operands are
THREES = (3.0, 3.0)


def _bits(number: int) -> float:
    return float(np.array([number], np.uint32).view(np.float32)[0])


def _pool(setting: Setting) -> list[Sums]:
    """Rows to choose from, those whose answers are easy to read first."""
    rows = (_ended(setting, row) for row in (*_chosen(setting), *_drawn(setting)))
    return [row for row in rows if _held(setting, row)]


def _ended(setting: Setting, row: Sums) -> Sums:
    """The row with the last block's scales: those of the second sum, where it is in that block."""
    ends = []
    for side, pair, last in ((setting.a, row.a, row.last[0]), (setting.b, row.b, row.last[1])):
        alike = not side.along or starts(setting)[1] // side.along == (setting.k - 1) // side.along
        ends.append(pair[1] if alike else last)
    return replace(row, last=(ends[0], ends[1]))


def starts(setting: Setting) -> tuple[int, int]:
    """Where both sums of a row begin: in blocks of their own."""
    return 0, max(setting.a.along, setting.b.along) or setting.k // 2


def _chosen(setting: Setting) -> Iterator[Sums]:
    """Made for one question each."""
    a, b = bool(setting.a.scales), bool(setting.b.scales)
    steps = (2.0, 4.0) if _blocked(setting) else (2.0, 2.0)
    yield Sums((1, 1), steps if a else ONE, steps if b else ONE, (16.0 if a else 1.0, 16.0 if b else 1.0))
    for first, second in SHARES:  # is each operand multiplied and rounded?
        scales = _both(a, _short(setting.a, first)), _both(b, _short(setting.b, second))
        yield _one(setting, THREES, *scales)
    # an operand that is below what bfloat16 and float32 hold once it is multiplied by its scale
    yield _one(setting, (setting.a.least, 1.0), _both(a, 2.0**-126), _both(b, 2.0**120))
    yield _one(setting, (1.0, setting.b.least), _both(a, 2.0**120), _both(b, 2.0**-126))
    fine = 1 + 2.0**-9
    small = 2.0 ** -(format_named(setting.out).mantissa + 1)
    yield Sums((1, 0), _both(a, fine), _both(b and not a, fine))  # as what is it kept?
    yield Sums((256, 256 * small if small >= 2.0**-8 else 0), _both(a, fine), _both(b and not a, fine))
    for large in (120.0, 100.0):  # float32 overflows in one place, and not in another
        yield Sums((1024, -1024), _both(a, 2.0**large), _both(b and (large == 100.0 or not a), 2.0**large))
    yield Sums((547, 1655), *_sides(setting, (_bits(0x3FA0E51D), _bits(0x3FB460A3))))  # fused?
    yield Sums((407, 1005), *_sides(setting, (_bits(0x3FA1937B),) * 2))  # at the end, or per block?
    yield Sums((612, 0), _both(a, _bits(0x3FC33D2F)), _both(b, _bits(0x3F82B464)))  # in which order?


def _one(setting: Setting, pair: tuple[float, float], a: tuple[float, float], b: tuple[float, float]) -> Sums:
    """One product alone."""
    return Sums((pair[0] * pair[1], 0), a, b, single=pair)


def _short(side: Side, pattern: int) -> float:
    """A float32, cut to as many bits as the format of a side's scales has."""
    bits = format_named(side.scales).mantissa if side.scales else 23
    return _bits(pattern & ~((1 << 23 - bits) - 1))


def _both(has: bool, scale: float) -> tuple[float, float]:
    return (scale, scale) if has else ONE


def _sides(setting: Setting, pair: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """A pair of scales for the side that can have two along K."""
    if setting.a.scales and (setting.a.along or not setting.b.scales):
        return pair, ONE
    return (ONE, pair) if setting.b.scales else (ONE, ONE)


def _drawn(setting: Setting) -> Iterator[Sums]:
    """Numbers without pattern. Results of few bits part only near a tie: the scales put the product there; or, where
    blocks have scales of their own, the second sum takes all but the last bits of the first away."""
    narrow = format_named(setting.out).bits <= 16
    for n in range(DRAWN):
        draw = scrambled(8, seed=100 + n) >> np.uint64(11)
        share = [float(x) * 2.0**-53 for x in draw]
        sums = (float(257 + 2 * int(share[0] * 800)), float(257 + 2 * int(share[1] * 800)))
        one, other, third, fourth = (f32(1 + share[i]) for i in (2, 3, 4, 5))
        if not narrow:
            b = (one, third) if setting.b.along else (one, one)
            a = (other, fourth) if setting.a.along else (other, other)
            yield Sums(sums, a if setting.a.scales else ONE, b if setting.b.scales else ONE)
        elif setting.a.along and setting.a.scales:
            near = _near_a_tie(setting, THREES[0] * THREES[1], one, n)
            yield _one(setting, THREES, _both(True, near), _both(bool(setting.b.scales), one))
            b = ((one, 1.0) if setting.b.along else (one, one)) if setting.b.scales else ONE
            yield Sums((sums[0], -1), (other, f32(sums[0] * other * b[0] / b[1])), b)
        elif setting.a.scales:
            yield Sums(
                (sums[0], 0),
                _both(True, _near_a_tie(setting, sums[0], one, n)),
                _both(bool(setting.b.scales), f32(one)),
            )


def _near_a_tie(setting: Setting, total: float, other: float, n: int) -> float:
    """A scale with which the product is within a few float32 of the middle between two results."""
    step = 2.0 ** -format_named(setting.out).mantissa
    middle = 1 + (n % 3 + 0.5) * step
    exponent = math.floor(math.log2(total * other)) - 1
    scale = np.float32(middle * 2.0**exponent / (total * (other if setting.b.scales else 1.0)))
    return float(scale) if n % 2 else float(np.nextafter(scale, np.float32(np.inf)))


def _held(setting: Setting, row: Sums) -> bool:
    """Whether scales and sums can be given, and whether sides with one scale are given one."""
    for side, pair, last in ((setting.a, row.a, row.last[0]), (setting.b, row.b, row.last[1])):
        if side.scales and not all(Side(side.scales).holds(s) for s in (*pair, last)):
            return False
        if (not side.scales or not side.along) and pair[0] != pair[1]:
            return False
    return all(product(setting, *part) for place in (0, 1) for part in row.parts(place))


def product(setting: Setting, x: float, y: float) -> tuple[float, float] | None:
    """Numbers of a and b: these, or a power of two and its rest shared otherwise."""
    if setting.a.holds(x) and setting.b.holds(y):
        return x, y
    return setting.factors(x * y) if y == 1 and x != 3 else None


def _blocked(setting: Setting) -> bool:
    return any(side.scales and side.along for side in (setting.a, setting.b))


def _results(setting: Setting, sums: list[float | None]) -> list[float | None]:
    """As results; None stays."""
    if setting.out in ("float32", "int32"):
        return sums
    fmt = format_named(setting.out)
    held = decode(encode(np.array([0.0 if each is None else each for each in sums]), fmt, IEEE), fmt)
    return [None if each is None else float(result) for each, result in zip(sums, held, strict=True)]


@cache
def telling(setting: Setting) -> tuple[tuple[Sums, ...], dict[Scaling, tuple[float | None, ...]]]:
    """The rows that tell most ways apart, and what each way gives on them."""
    pool = _pool(setting)
    ways = {way: _results(setting, [way.of(row) for row in pool]) for way in scalings(_blocked(setting))}
    limit = LAUNCHES if any(side.scales and side.rows != 1 for side in (setting.a, setting.b)) else ASKED
    apart = np.stack([_apart([each[n] for each in ways.values()]) for n in range(len(pool))])
    chosen: list[int] = []
    while len(chosen) < limit:
        gain = apart.sum(axis=(1, 2))
        best = int(np.argmax(gain))
        if not gain[best]:
            break
        chosen.append(best)
        apart = apart & ~apart[best]
    return tuple(pool[n] for n in chosen), {way: tuple(each[n] for n in chosen) for way, each in ways.items()}


def _apart(results: Sequence[float | None]) -> npt.NDArray[np.bool_]:
    """Which ways, by pairs, a row tells apart."""
    known = np.array([each is not None for each in results])
    value = np.array([0.0 if each is None else each for each in results])
    value = np.where(np.isnan(value), -12345.678, value)  # a number that no row gives
    return np.asarray((value[:, None] != value) & known[:, None] & known)
