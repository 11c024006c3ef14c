"""AMD's models by the words of the ISA, where mutants were left: medians, NaN, roots, the width of approximations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.devices.emulator.models.amd import models_of
from narrowgauge.devices.emulator.models.amd_plain import WRITTEN_OUT
from narrowgauge.devices.emulator.models.answers import Answers, Band

pytestmark = pytest.mark.meta

QUIET, SIGNALLING = 0x7FC00005, 0x7F800005
VALUES = [0x3F800000, 0xBF800000, 0, 0x80000000, 1, 0x7F800000, 0xFF800000, QUIET, SIGNALLING, 0xFF800001, 0x43E00000]


def column(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    return np.array(values, np.uint32)


def is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def place(bits: int) -> tuple[float, int]:
    """What orders two numbers: the value, and -0 below +0."""
    value = float(np.array([bits], np.uint32).view(np.float32)[0])
    return value, 0 if bits >> 31 and value == 0 else 1


def of_two(name: str, ieee: bool, a: int, b: int) -> int:
    """V_MIN_F32 and V_MAX_F32: MODE.IEEE quiets a signalling NaN; else the one that is no NaN, else the smaller."""
    for each in (a, b):
        if ieee and is_nan(each) and not each & 0x400000:
            return each | 0x400000
    if is_nan(a) or is_nan(b):
        return b if is_nan(a) else a
    return (min if name == "min" else max)(a, b, key=place)


def of_three(ieee: bool, a: int, b: int, c: int) -> int:
    """V_MED3_F32: of a NaN the minimum of the three, else the larger of those left when the largest is dropped."""
    if any(map(is_nan, (a, b, c))):
        return of_two("min", ieee, of_two("min", ieee, a, b), c)
    return sorted((a, b, c), key=place)[1]


@pytest.mark.parametrize("ieee", [False, True])
def test_minimum_maximum_and_median_of_all_kinds(ieee: bool) -> None:
    pairs = list(itertools.product(VALUES, repeat=2))
    for name in ("min", "max"):
        answer = models_of("gfx942")[f"v_{name}_f32"].run(*map(column, map(list, zip(*pairs, strict=True))), ieee)
        assert isinstance(answer, Answers)
        assert answer.first.tolist() == [of_two(name, ieee, *pair) for pair in pairs]
    threes = [t for t in itertools.product(VALUES, repeat=3) if len({place(x)[0] for x in t if not is_nan(x)}) > 0]
    answer = models_of("gfx942")["v_med3_f32"].run(*map(column, map(list, zip(*threes, strict=True))), ieee)
    assert isinstance(answer, Answers)
    for got, three in zip(answer.first.tolist(), threes, strict=True):
        want = of_three(ieee, *three)
        assert got == want or place(got)[0] == place(want)[0] == 0, [hex(x) for x in three]  # which zero is not said


def test_med3_quiets_by_default() -> None:
    one, low = column([0x3F800000]), column([0xC3E00000])
    answer = models_of("gfx942")["v_med3_f32"].run(column([SIGNALLING]), low, one)
    assert isinstance(answer, Answers)
    assert answer.first.tolist() == [of_three(True, SIGNALLING, 0xC3E00000, 0x3F800000)]


@pytest.mark.parametrize("name", ["min", "max"])
def test_numbers_of_ieee_754_2019(name: str) -> None:
    """minimumNumber passes over a NaN, minimum keeps it; what comes of two is a quiet one."""
    pairs = list(itertools.product(VALUES, repeat=2))
    columns = [column(list(c)) for c in zip(*pairs, strict=True)]
    number, keeps = (models_of("gfx1200")[f"v_{name}{end}_f32"].run(*columns) for end in ("_num", "imum"))
    assert isinstance(number, Answers)
    assert isinstance(keeps, Answers)
    for (a, b), one, other in zip(pairs, number.first.tolist(), keeps.first.tolist(), strict=True):
        if is_nan(a) and is_nan(b):
            assert is_nan(one)
            assert one & 0x400000
        else:
            assert one == of_two(name, False, a, b)
        if is_nan(a) or is_nan(b):
            assert other == (a if is_nan(a) else b) | 0x400000
        else:
            assert other == of_two(name, False, a, b)


def test_overflow_of_two_halves() -> None:
    """Toward zero stops at the largest value, of an infinity it is infinity; to nearest it is infinity."""
    large, infinite = column([0x47FFE100, 0x7F800000]), column([0xC7FFE100, 0xFF800000])
    rz = models_of("gfx942")["v_cvt_pkrtz_f16_f32"].run(large, infinite)
    rn = models_of("gfx950")["v_cvt_pk_bf16_f32"].run(column([0x7F7FFFFF]), column([0xFF7FFFFF]))
    assert isinstance(rz, Answers)
    assert isinstance(rn, Answers)
    assert [hex(x) for x in rz.first.tolist()] == ["0xfbff7bff", "0xfc007c00"]
    assert [hex(x) for x in rn.first.tolist()] == ["0xff807f80"]


def units(band: Band) -> tuple[int, int]:
    """How many patterns of a positive band lie below and above the first answer."""
    return int(band.first[0]) - int(band.low[0]), int(band.high[0]) - int(band.first[0])


#: a value, and its image far from a power of two
WIDTHS: tuple[tuple[str, Callable[[float], float], float, int], ...] = (
    ("exp2", lambda x: 2**x, 0.6, 1),
    ("log2", math.log2, 3.0, 1),
    ("exp", math.exp, 0.4, 3),
    ("exp10", lambda x: 10**x, 0.2, 3),
    ("log", math.log, 5.0, 3),
    ("log10", math.log10, 25.0, 3),
)


@pytest.mark.parametrize(("name", "function", "x", "ulp"), WIDTHS)
def test_functions_written_out_are_as_wide_as_opencl_has_it(
    name: str, function: Callable[[float], float], x: float, ulp: int
) -> None:
    given = np.array([x], np.float32)
    band = WRITTEN_OUT[name].run(given.view(np.uint32))
    assert isinstance(band, Band)
    assert band.first.view(np.float32).tolist() == [np.float32(function(float(given[0])))]
    assert units(band) == (ulp, ulp)


def test_the_root_and_its_reciprocal() -> None:
    for name, x, want in (("v_sqrt_f32", 9.0, 3.0), ("v_rsq_f32", 16.0, 0.25), ("v_rsq_f32", 1.0, 1.0)):
        band = models_of("gfx942")[name].run(np.array([x], np.float32).view(np.uint32))
        assert isinstance(band, Band)
        assert Fraction(float(band.first.view(np.float32)[0])) == Fraction(want)


def test_a_nan_as_fp4_and_a_scale_that_is_none() -> None:
    """FP4 has no NaN: the largest with the sign in the first answer, zero or either largest besides."""
    one, nan = column([0x3F800000] * 3), column([QUIET, QUIET | 1 << 31, 0x40000000])
    model = models_of("gfx950")["v_cvt_scalef32_pk_fp4_f32"]
    answer = model.run(nan, one, scale=one, old=column([0] * 3), place=0)
    assert isinstance(answer, Answers)
    assert answer.first.tolist() == [0x27, 0x2F, 0x24]
    for code in range(16):
        allowed = answer.allows(column([0x20 | code] * 3)).tolist()
        assert allowed == [code in (0, 7, 0xF), code in (0, 7, 0xF), code == 4], code
    (eight,) = models_of("gfx1250")["v_cvt_scalef32_pk8_fp4_f32"].run(*[nan] * 8, scale=one)  # type: ignore[misc]
    assert [hex(x) for x in eight.first.tolist()] == ["0x77777777", "0xffffffff", "0x44444444"]
    lost = models_of("gfx950")["v_cvt_scalef32_pk_f32_fp8"].run(column([0x3838]), scale=column([QUIET]), place=0)
    assert all(is_nan(int(answer.first[0])) for answer in lost)  # type: ignore[union-attr]


def test_every_code_of_a_pair_is_read_by_itself() -> None:
    """All 256 codes of the upper element beside each of the lower one's bits: nothing leaks from one to the other."""
    codes = np.arange(0x10000, dtype=np.uint32)
    for name, width in (("fp8", 8), ("bf8", 8), ("fp4", 4)):
        model = models_of("gfx950")[f"v_cvt_scalef32_pk_f32_{name}"]
        words = codes & np.uint32((1 << 2 * width) - 1)
        low, high = model.run(words, scale=np.full_like(words, 0x3F800000), place=0)  # type: ignore[misc]
        mask = np.uint32((1 << width) - 1)
        alone, _ = model.run(words & mask, scale=np.full_like(words, 0x3F800000), place=0)  # type: ignore[misc]
        swapped = (words & mask) << np.uint32(width) | words >> np.uint32(width)
        other, _ = model.run(swapped, scale=np.full_like(words, 0x3F800000), place=0)  # type: ignore[misc]
        assert low.first.tolist() == alone.first.tolist()
        assert high.first.tolist() == other.first.tolist()


@pytest.mark.parametrize(("name", "words", "width"), [("fp8", 2, 8), ("bf8", 2, 8), ("fp4", 1, 4)])
def test_every_code_of_eight(name: str, words: int, width: int) -> None:
    """Each code in each place, among others that are all ones, is what it is in a pair."""
    codes = np.arange(1 << width, dtype=np.uint32)
    pair, eight = (
        models_of("gfx950")[f"v_cvt_scalef32_pk_f32_{name}"],
        models_of("gfx1250")[f"v_cvt_scale_pk8_f32_{name}"],
    )
    want, _ = pair.run(codes, scale=np.full_like(codes, 0x3F800000), place=0)  # type: ignore[misc]
    for at in range(8):
        whole = [((1 << 8 * width) - 1 ^ ((1 << width) - 1) << width * at) | int(code) << width * at for code in codes]
        registers = [column([each >> 32 * i & 0xFFFFFFFF for each in whole]) for i in range(words)]
        found = eight.run(*registers, scale=127)[at]  # type: ignore[index]
        assert found.first.tolist() == want.first.tolist(), at
