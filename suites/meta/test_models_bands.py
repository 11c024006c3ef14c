"""Error bounds of approximations: both ends of each interval, worked out in decimals from the PTX ISA's numbers.

PTX ISA 9.1: div 9.7.3.8, rcp .13, sqrt .15, rsqrt .16, sin .18, cos .19, lg2 .20, ex2 .21, tanh .22. Nothing here is
float arithmetic of NumPy but the reading of a pattern.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext

import numpy as np
import pytest

from narrowgauge.devices.emulator.models.answers import Answers, Band, packed
from narrowgauge.devices.emulator.models.bands import within_ulp
from narrowgauge.devices.emulator.models.nvidia import NVIDIA

pytestmark = pytest.mark.meta


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Decimals in which every binary32, and what is said of its bounds, is exact enough."""
    with localcontext() as context:
        context.prec = 200
        yield


INFINITE, SIGN, ONE = 0x7F800000, 0x80000000, 0x3F800000
TWO = Decimal(2)


def value(bits: int) -> Decimal:
    return Decimal(struct.unpack("<f", struct.pack("<I", bits))[0])


def pattern(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def band(name: str, *operands: int) -> Band:
    answer = NVIDIA[name].run(*(np.array([each], np.uint32) for each in operands))
    assert isinstance(answer, Band)
    return answer


def sin(x: Decimal) -> Decimal:
    total, term = Decimal(0), x
    for n in range(1, 1200):
        total, term = total + term, -term * x * x / (2 * n * (2 * n + 1))
    return total


def cos(x: Decimal) -> Decimal:
    total, term = Decimal(0), Decimal(1)
    for n in range(1, 1200):
        total, term = total + term, -term * x * x / (2 * n * (2 * n - 1))
    return total


def log2(x: Decimal) -> Decimal:
    return x.ln() / TWO.ln()


def tanh(x: Decimal) -> Decimal:
    return ((2 * x).exp() - 1) / ((2 * x).exp() + 1)


RELATIVE, ABSOLUTE = True, False
#: opcode, its function, inputs, the bound's power of two, and whether it is relative
BOUNDS: tuple[tuple[str, Callable[[Decimal], Decimal], tuple[float, ...], str, bool], ...] = (
    ("sqrt.approx.f32", Decimal.sqrt, (2.0, 3.0, 1e-40, 3e38), "-23", RELATIVE),
    ("rsqrt.approx.f32", lambda x: 1 / x.sqrt(), (2.0, 3.0, 1e-40, 3e38), "-22.4", RELATIVE),
    ("tanh.approx.f32", tanh, (0.5, -0.5, 2.0, 1e-30, -3.0), "-11", RELATIVE),
    ("lg2.approx.f32", log2, (10.0, 0.25, 0.5, 2.0, 3e38, 1e-40), "-22", RELATIVE),
    ("lg2.approx.f32", log2, (0.50000006, 0.75, 1.0, 1.0000001, 1.5, 1.9999999), "-22", ABSOLUTE),
    ("sin.approx.f32", sin, (1.0, -1.0, 6.2831850, 1e-3, 1e-40, -1e-7), "-20.5", ABSOLUTE),
    ("sin.approx.f32", sin, (6.2831860, -7.0, 314.15924), "-14.7", ABSOLUTE),
    ("cos.approx.f32", cos, (1.0, -1.0, 6.2831850, 1e-3, 1e-40), "-20.5", ABSOLUTE),
    ("cos.approx.f32", cos, (6.2831860, -7.0, 314.15924), "-14.7", ABSOLUTE),
)


@pytest.mark.parametrize(("name", "function", "inputs", "power", "relative"), BOUNDS)
def test_both_ends_are_the_last_values_within_the_bound(
    name: str, function: Callable[[Decimal], Decimal], inputs: tuple[float, ...], power: str, relative: bool
) -> None:
    for x in map(pattern, inputs):
        true = function(value(x))
        found = band(name, x)
        error = TWO ** Decimal(power) * (abs(true) if relative else 1)
        slack = abs(true) * TWO**-50 + TWO**-160  # binary64 of the model
        first, low, high = (int(bits[0]) for bits in (found.first, found.low, found.high))
        assert abs(value(first) - true) <= abs(value(neighbour(first, 1)) - true) + slack
        assert abs(value(first) - true) <= abs(value(neighbour(first, -1)) - true) + slack
        assert value(low) >= true - error - slack or low == first
        assert value(neighbour(low, -1)) < true - error + slack
        assert value(high) <= true + error + slack or high == first
        assert value(neighbour(high, 1)) > true + error - slack


def neighbour(bits: int, step: int) -> int:
    """The next pattern up (1) or down (-1); -0 is below +0."""
    if bits & SIGN:
        step = -step
        return bits & ~SIGN if bits == SIGN and step < 0 else bits + step
    return SIGN if bits == 0 and step < 0 else bits + step


@pytest.mark.parametrize(
    ("name", "operands", "true", "count"),
    [
        ("rcp.approx.f32", (pattern(3.0),), Decimal(1 / 3), 1),
        ("rcp.approx.f32", (pattern(1.0),), Decimal(1), 1),
        ("rcp.approx.f32", (0x7F000000,), Decimal(2.0**-127), 1),  # the quotient is subnormal: a unit is 2^-149
        ("ex2.approx.f32", (pattern(0.5),), Decimal(2**0.5), 2),
        ("ex2.approx.f32", (pattern(-149.0),), Decimal(2.0**-149), 2),  # two units below would be negative
        ("ex2.approx.f32", (pattern(-147.0),), Decimal(2.0**-147), 2),
        ("div.full.f32", (pattern(-1.0), pattern(3.0)), Decimal(-1 / 3), 2),
        ("div.approx.f32", (pattern(-1.0), pattern(3.0)), Decimal(-1 / 3), 2),
    ],
)
def test_units_in_the_last_place_of_the_rounded_result(
    name: str, operands: tuple[int, ...], true: Decimal, count: int
) -> None:
    found = band(name, *operands)
    first = int(found.first[0])
    exponent = max((first >> 23 & 0xFF) - 127, -126) - 23
    reach = min(count * TWO**exponent, abs(value(first)))
    ends = sorted((value(int(found.low[0])), value(int(found.high[0]))))
    assert abs(value(first) - true) <= TWO**exponent / 2
    assert ends == [value(first) - reach, value(first) + reach]


def test_the_largest_value_is_within_units_of_infinity() -> None:
    """A value that rounds to infinity may be the largest one, and the other way round: a unit there is 2^104."""
    over = within_ulp(np.array([2.0**128, 2.0**128 - 2.0**104]), 1)
    assert [int(b) for b in over.first] == [INFINITE, 0x7F7FFFFF]
    assert [int(b) for b in over.low] == [0x7F7FFFFE, 0x7F7FFFFE]
    assert [int(b) for b in over.high] == [INFINITE, INFINITE]


#: rows of the tables of results, which leave no choice
ROWS: dict[str, dict[int, int | None]] = {
    "sin.approx.f32": {0: 0, SIGN: SIGN, INFINITE: None, SIGN | INFINITE: None},
    "sin.approx.ftz.f32": {1: 0, SIGN | 1: SIGN},
    "cos.approx.f32": {0: ONE, SIGN: ONE, INFINITE: None, SIGN | INFINITE: None},
    "cos.approx.ftz.f32": {1: ONE},
    "tanh.approx.f32": {0: 0, SIGN: SIGN, INFINITE: ONE, SIGN | INFINITE: 0xBF800000, 1: 1, 0x807FFFFF: 0x807FFFFF},
    "ex2.approx.f32": {0: ONE, SIGN: ONE, INFINITE: INFINITE, SIGN | INFINITE: 0},
    "rcp.approx.f32": {0: INFINITE, SIGN: SIGN | INFINITE, INFINITE: 0, SIGN | INFINITE: SIGN},
    "sqrt.approx.f32": {0: 0, SIGN: SIGN, INFINITE: INFINITE, SIGN | ONE: None, SIGN | INFINITE: None},
    "rsqrt.approx.f32": {0: INFINITE, SIGN: SIGN | INFINITE, INFINITE: 0, SIGN | ONE: None},
    "lg2.approx.f32": {0: SIGN | INFINITE, SIGN: SIGN | INFINITE, INFINITE: INFINITE, SIGN | ONE: None},
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_tables(name: str) -> None:
    for given, want in {**ROWS[name], 0x7FC00000: None}.items():
        found = band(name, given)
        assert not found.open().any(), hex(given)
        for end in (found.first, found.low, found.high):
            code = int(end[0])
            assert code & ~SIGN > INFINITE if want is None else code == want, hex(given)


def test_beyond_100_pi_nothing_is_guaranteed() -> None:
    """Beyond 2^20 even the sign; 314.16 is beyond 100 pi = 314.1592..., and its sine is 0.0007."""
    for name in ("sin.approx.f32", "cos.approx.f32"):
        for x in (314.16, -1e6, 3e38):
            assert band(name, pattern(x)).allows(np.array([SIGN | ONE], np.uint32)).all()
            assert band(name, pattern(x)).allows(np.array([ONE], np.uint32)).all()


# --- sets of answers -------------------------------------------------------------------------------------------------


def words(*bits: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(bits, np.uint32)


def test_a_set_of_answers() -> None:
    several = Answers(words(5, 7), (words(5, 3), words(9, 7)))
    assert several.open().tolist() == [True, True]
    assert [several.allows(words(code, code)).tolist() for code in (3, 5, 7, 9, 4)] == [
        [False, True], [True, False], [False, True], [True, False], [False, False],
    ]  # fmt: skip
    assert (several.end(False).tolist(), several.end(True).tolist()) == ([5, 3], [9, 7])
    picked = [several.pick(np.array([r, r + 1], np.uint64)).tolist() for r in range(3)]
    assert picked == [[5, 3], [5, 7], [9, 7]]


def test_an_interval_of_answers() -> None:
    """From -1 unit to +2 units: the zeros are two answers. A NaN is every NaN, and nothing else."""
    band = Band(words(0, 0x7FFFFFFF), words(SIGN | 1, 0x7FFFFFFF), words(2, 0x7FFFFFFF))
    inside = [SIGN | 1, SIGN, 0, 1, 2]
    assert [int(band.pick(np.array([r, r], np.uint64))[0]) for r in range(5)] == inside
    assert int(band.pick(np.array([5, 5], np.uint64))[0]) == SIGN | 1
    assert all(band.allows(words(code, 0x7FC00000)).all() for code in inside)
    assert band.allows(words(3, 0)).tolist() == band.allows(words(SIGN | 2, INFINITE)).tolist() == [False, False]
    assert band.allows(words(0x7FC00000, 0xFF800001)).tolist() == [False, True]
    assert band.end(False).tolist() == [SIGN | 1, 0x7FFFFFFF]
    assert band.end(True).tolist() == [2, 0x7FFFFFFF]
    assert band.open().tolist() == [True, False]
    negative = Band(words(SIGN | 2), words(SIGN | 3), words(SIGN | 1))
    assert [int(negative.pick(np.array([r], np.uint64))[0]) for r in range(3)] == [SIGN | 3, SIGN | 2, SIGN | 1]
    closed = Band(words(ONE), words(ONE), words(ONE))
    assert closed.pick(np.array([7], np.uint64)).tolist() == [ONE]


def test_packed_answers_are_every_combination() -> None:
    word = packed([Answers(words(1), (words(2),)), Answers(words(3)), Answers(words(4), (words(5),))], 8)
    assert word.first.tolist() == [0x040301]
    assert {int(other[0]) for other in word.others} == {0x040302, 0x050301, 0x050302}


def ends(name: str, *operands: float) -> tuple[int, int, int]:
    """The first answer and both ends, as patterns."""
    band = NVIDIA[name].run(*(np.array([x], np.float32).view(np.uint32) for x in operands))
    assert isinstance(band, Band)
    return int(band.first[0]), int(band.low[0]), int(band.high[0])


def test_where_the_stated_ranges_end() -> None:
    assert ends("div.approx.f32", 1.0, 2.0**-126) == tuple(pattern(2.0**126) + n for n in (0, -4, 2))
    assert ends("div.approx.f32", 1.0, 0.0) == (INFINITE, INFINITE, INFINITE)
    assert ends("div.approx.f32", 1.0, 2.0**-127)[1:] == (SIGN | INFINITE, INFINITE)
    first, low, high = ends("lg2.approx.f32", 2.9)  # 2^-22 of 1.536 are 3.07 units
    assert (first - low, high - first) == (3, 3)
    largest = np.array([float(np.finfo(np.float32).max)])
    assert within_ulp(largest, 2).high.tolist() == [INFINITE]
    assert within_ulp(-largest, 2).low.tolist() == [SIGN | INFINITE]
