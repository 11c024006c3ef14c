"""Models of hardware instructions: cases by hand, from the words of the instruction sets."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.emulator.models.amd import AMD, models_of
from narrowgauge.devices.emulator.models.answers import Answers, Band, Bits
from narrowgauge.devices.emulator.models.nvidia import NVIDIA, nvidia_model, random_fields
from narrowgauge.devices.emulator.models.rounding_ieee import float32_to_odd
from narrowgauge.devices.targets import TARGETS

pytestmark = pytest.mark.meta

INF, NAN = float("inf"), float("nan")


def f32(*numbers: float) -> Bits:
    with np.errstate(over="ignore"):
        return np.array(numbers, np.float32).view(np.uint32)


def words(*bits: int) -> Bits:
    return np.array(bits, np.uint32)


def first(name: str, *operands: object) -> list[int]:
    """What an NVIDIA model goes on with, as integers."""
    answer = NVIDIA[name].run(*operands)
    assert not isinstance(answer, tuple)
    return [int(code) for code in answer.first]


# --- by hand: NVIDIA -------------------------------------------------------------------------------------------------


#: opcode, binary32 inputs, codes. Worked out from the formats' tables and the sentence that is named
BY_HAND: tuple[tuple[str, tuple[float, ...], tuple[int, ...]], ...] = (
    # e4m3: 448 is 0x7e; above MAX_NORM and infinity give MAX_NORM with the sign; NaN gives NaN
    ("e4m3", (448.0, 464.0, 1e9, -INF, NAN, 1.0, -0.0), (0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x38, 0x80)),
    # smallest subnormal 2^-9; half of it is a tie to zero, three halves a tie to two
    ("e4m3", (2.0**-9, 2.0**-10, 1.5 * 2.0**-9, 2.0**-10 * 1.0001, 2.0**-6), (1, 0, 2, 1, 8)),
    # ties to even: 1.0625 between 0x38 and 0x39, 1.1875 between 0x39 and 0x3a
    ("e4m3", (1.0625, 1.1875, -1.1875, 17.0, 19.0), (0x38, 0x3A, 0xBA, 0x58, 0x5A)),
    (
        "e5m2",
        (57344.0, 61440.0, INF, -INF, 2.0**-16, 2.0**-17, 1.125, 1.375),
        (0x7B, 0x7B, 0x7B, 0xFB, 1, 0, 0x3C, 0x3E),
    ),
    # no NaN in fp4 and fp6: positive MAX_NORM; e2m1 has 0, .5, 1, 1.5, 2, 3, 4, 6
    ("e2m1", (6.0, 5.0, 3.5, 0.25, 0.75, -2.5, INF, -7.0, NAN, -NAN), (7, 6, 6, 0, 2, 0xC, 7, 0xF, 7, 7)),
    ("e2m3", (7.5, 8.0, 0.125, 0.0625, 1.0, -INF, NAN), (0x1F, 0x1F, 1, 0, 8, 0x3F, 0x1F)),
    ("e3m2", (28.0, 30.0, 0.0625, 0.03125, 0.25, -1e9, NAN), (0x1F, 0x1F, 1, 0, 4, 0x3F, 0x1F)),
)


@pytest.mark.parametrize(("kind", "inputs", "codes"), BY_HAND)
def test_narrow_conversions_by_hand(kind: str, inputs: tuple[float, ...], codes: tuple[int, ...]) -> None:
    """Operand a goes to the upper element, b to the lower."""
    width, zero = (4 if kind == "e2m1" else 8), f32(*(0.0 for _ in inputs))
    name = f"cvt.rn.satfinite.{kind}x2.f32"
    assert first(name, f32(*inputs), zero) == [code << width for code in codes]
    assert first(name, zero, f32(*inputs)) == list(codes)


def test_relu_cuts_below_zero_and_keeps_nan() -> None:
    a = f32(-1.0, -0.0, 1.0, -INF, -NAN)
    assert first("cvt.rn.satfinite.relu.e4m3x2.f32", f32(*[0] * 5), a) == [0, 0, 0x38, 0, 0x7F]
    assert first("cvt.rn.relu.bf16.f32", a) == [0, 0, 0x3F80, 0, 0x7FFF]


def test_wide_conversions_by_hand() -> None:
    a = f32(1 + 2**-8, 1 + 3 * 2**-8, INF, 3.4e38, 2.0**-133, 2.0**-134)
    assert first("cvt.rn.bf16.f32", a) == [0x3F80, 0x3F82, 0x7F80, 0x7F80, 1, 0]
    assert first("cvt.rn.satfinite.bf16.f32", a)[2:4] == [0x7F7F, 0x7F7F]
    assert first("cvt.rz.bf16.f32", a) == [0x3F80, 0x3F81, 0x7F80, 0x7F7F, 1, 0]
    half = f32(65504.0, 65519.0, 65520.0, -INF, 2.0**-24, 2.0**-25)
    assert first("cvt.rn.f16.f32", half) == [0x7BFF, 0x7BFF, 0x7C00, 0xFC00, 1, 0]
    assert first("cvt.rz.f16x2.f32", half, half) == [c * 0x10001 for c in (0x7BFF, 0x7BFF, 0x7BFF, 0xFC00, 1, 0)]
    # tf32 has ten bits of mantissa: 1 + 2^-11 is a tie
    assert first("cvt.rna.tf32.f32", f32(1 + 2**-11, -1 - 2**-11, 1 + 2**-12)) == [0x3F802000, 0xBF802000, 0x3F800000]
    assert first("cvt.rn.tf32.f32", f32(1 + 2**-11, 1 + 3 * 2**-11)) == [0x3F800000, 0x3F804000]


def test_float16_to_bfloat16_without_a_rounding_is_open_where_it_rounds() -> None:
    """1 + 2^-7 is a bfloat16, 1 + 3 x 2^-9 lies between two."""
    model = nvidia_model("cvt.bf16.f16")
    assert model is not None
    answer = model.run(words(0x3C08, 0x3C06, 0x7C00))
    assert isinstance(answer, Answers)
    assert [int(c) for c in answer.first] == [0x3F81, 0x3F81, 0x7F80]
    assert answer.open().tolist() == [False, True, False]
    assert answer.allows(words(0x3F81, 0x3F80, 0x7F80)).all()


def test_scales_by_hand() -> None:
    """ue8m0 is 2^(code - 127); a scale of 3 is between 0x80 and 0x81."""
    a = f32(1.0, 3.0, 2.0**127, 3e38, INF, NAN, 0.0, 2.0**-127, 1.5 * 2.0**-127)
    zero = np.zeros_like(a)
    assert first("cvt.rz.satfinite.ue8m0x2.f32", zero, a) == [127, 128, 254, 254, 254, 255, 0, 0, 0]
    assert first("cvt.rp.satfinite.ue8m0x2.f32", zero, a) == [127, 129, 254, 254, 254, 255, 0, 0, 1]
    assert first("cvt.rp.ue8m0x2.f32", a, zero)[3:5] == [0xFF00, 0xFF00]
    assert first("cvt.rz.satfinite.ue8m0x2.bf16x2", words(0x3F804040)) == [0x7F80]
    assert first("cvt.rn.bf16x2.ue8m0x2", words(0x7F80, 0x00FF)) == [0x3F804000, 0x00407FFF]
    negative = NVIDIA["cvt.rz.satfinite.ue8m0x2.f32"].run(zero[:1], f32(-4.0))
    assert isinstance(negative, Answers)
    assert negative.open().all()
    assert {code for code in (0x81, 0x00, 0xFF, 0x82) if negative.allows(words(code)).all()} == {0x81, 0x00, 0xFF}


def test_stochastic_rounding_by_hand() -> None:
    """f16: 13 bits are discarded, 13 random bits each; the carry rounds away from zero."""
    x = f32(1 + 2**-11, 1 + 2**-11, -1 - 2**-11, 1.0)  # 2^12 of the 2^13 of a step
    random = words(0x0FFF, 0x1000, 0x1000, 0x1FFF)
    assert first("cvt.rs.f16x2.f32", f32(*[0] * 4), x, random) == [0x3C00, 0x3C01, 0xBC01, 0x3C00]
    assert first("cvt.rs.f16x2.f32", x, f32(*[0] * 4), random << np.uint32(16))[:2] == [0x3C000000, 0x3C010000]
    assert first("cvt.rs.f16x2.f32", f32(0), f32(1 + 2**-11), words(0xE000)) == [0x3C00]  # 3 upper bits are not used
    assert first("cvt.rs.bf16x2.f32", f32(0, 0), f32(1 + 2**-8, 1 + 2**-8), words(0x7FFF, 0x8000)) == [0x3F80, 0x3F81]
    four = NVIDIA["cvt.rs.satfinite.e4m3x4.f32"].run(f32(1.0), f32(1.05), f32(1e9), f32(NAN), words(0))
    assert isinstance(four, Answers)
    assert [int(c) for c in four.first] == [0x38387E7F]
    assert four.allows(words(0x38397E7F)).all()
    assert not four.allows(words(0x39387E7F)).any()  # 1.0 is a value: nothing is discarded


def test_random_bits_of_four_elements_by_hand() -> None:
    """1.0625 is half a step above 1 in e4m3: the highest of 16 random bits decides. b, f read theirs as written, a, e
    reversed; the upper half is for a, b."""
    x = f32(1.0625)
    for random, code in ((0x80000000, 0x38393838), (0x00010000, 0x39383838), (0x8000, 0x38383839), (1, 0x38383938)):
        assert first("cvt.rs.satfinite.e4m3x4.f32", x, x, x, x, words(random)) == [code]
    fields = random_fields(words(0x11223344), 4)
    assert [int(field[0]) for field in fields] == [0x2244, 0x1133]
    # e2m1: 1.25 is half a step above 1; b is the second nibble from above
    y = f32(1.25)
    assert first("cvt.rs.satfinite.e2m1x4.f32", y, y, y, y, words(0x80000000)) == [0x2322]


def test_minimum_and_maximum_by_hand() -> None:
    a, b = f32(1, NAN, 1, NAN, -0.0, -3), f32(2, 1, NAN, NAN, 0.0, 2)
    one, two, canonical = 0x3F800000, 0x40000000, 0x7FFFFFFF
    assert first("max.f32", a, b) == [two, one, one, canonical, 0, two]
    assert first("min.f32", a, b) == [one, one, one, canonical, 0x80000000, 0xC0400000]
    assert first("max.NaN.f32", a, b)[:4] == [two, canonical, canonical, canonical]
    assert first("max.xorsign.abs.f32", a, b)[-1] == 0xC0400000  # of 3 and 2, and the signs differ
    assert first("min.xorsign.abs.f32", a, b)[-1] == 0xC0000000
    assert first("max.xorsign.abs.f32", f32(-3), f32(-2)) == [0x40400000]
    assert first("min.ftz.f32", f32(1e-40), f32(1.0)) == [0]
    assert first("max.ftz.f16x2", words(0x00010001), words(0x00008001)) == [0]
    assert first("max.ftz.f16x2", words(0x3C000001), words(0x3C000000)) == [0x3C000000]
    assert first("max.ftz.f32", f32(1.5), f32(1e-40)) == [0x3FC00000]
    assert first("max.f16x2", words(0x00010001), words(0x00008001)) == [0x00010001]
    assert first("max.bf16x2", words(0x3F807FC0), words(0x40003F80)) == [0x40003F80]


@pytest.mark.parametrize(
    ("name", "operands", "nearest", "bound"),
    [
        ("ex2.approx.f32", (0.5,), 1.4142135, 2),
        ("rcp.approx.ftz.f32", (3.0,), 1 / 3, 1),
        ("div.full.f32", (448.0, 3.0), 448 / 3, 2),
        ("sqrt.approx.ftz.f32", (2.0,), 1.4142135, 1),
        ("rsqrt.approx.f32", (3.0,), 3**-0.5, 4),
        ("lg2.approx.f32", (10.0,), 3.3219280, 4),
    ],
)
def test_approximations_hold_their_bound(name: str, operands: tuple[float, ...], nearest: float, bound: int) -> None:
    band = NVIDIA[name].run(*(f32(x) for x in operands))
    assert isinstance(band, Band)
    assert band.first.view(np.float32)[0] == np.float32(nearest)
    assert band.open().all()
    steps = [int(k) for k in range(-9, 10) if band.allows(band.first + np.uint32(k % 2**32)).all()]
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert 0 < max(-steps[0], steps[-1]) <= bound
    assert not band.allows(f32(NAN)).any()


def test_approximations_are_exact_at_their_special_cases() -> None:
    x = f32(-INF, -0.0, 0.0, INF, NAN)
    nan = 0x7FFFFFFF
    for name, codes in {
        "rcp.approx.f32": (0x80000000, 0xFF800000, 0x7F800000, 0, nan),
        "ex2.approx.f32": (0, 0x3F800000, 0x3F800000, 0x7F800000, nan),
        "sqrt.approx.f32": (nan, 0x80000000, 0, 0x7F800000, nan),
        "rsqrt.approx.f32": (nan, 0xFF800000, 0x7F800000, 0, nan),
        "lg2.approx.f32": (nan, 0xFF800000, 0xFF800000, 0x7F800000, nan),
    }.items():
        band = NVIDIA[name].run(x)
        assert isinstance(band, Band)
        assert not band.open().any()
        assert [int(code) for code in band.first] == list(codes), name
    flushed = NVIDIA["ex2.approx.ftz.f32"].run(f32(-127.0, 1e-40))
    assert [int(c) for c in flushed.first] == [0, 0x3F800000]  # type: ignore[union-attr]
    kept = NVIDIA["ex2.approx.f32"].run(f32(-127.0))
    assert [int(c) for c in kept.first] == [0x00400000]  # type: ignore[union-attr]


def test_division_by_a_large_number_is_zero() -> None:
    band = NVIDIA["div.approx.f32"].run(f32(1.0, -1e38, INF, 1.0), f32(2.0**127, 2.0**127, 2.0**127, 2.0**126))
    assert isinstance(band, Band)
    assert band.allows(words(0, 0x80000000, 0x7FC00000, 0x00800000)).all()
    assert not band.allows(f32(2.0**-127, -(2.0**-1), INF, 0.0)).any()
    free = NVIDIA["div.approx.f32"].run(f32(1.0), f32(2.0**-127))
    assert isinstance(free, Band)
    assert free.allows(f32(INF)).all()
    assert free.allows(f32(1.0)).all()


# --- by hand: AMD ----------------------------------------------------------------------------------------------------


def amd(target: str, name: str, *operands: object, **controls: object) -> Answers:
    answer = models_of(target)[name].run(*operands, **controls)
    assert isinstance(answer, Answers)
    return answer


def test_fnuz_and_ocp_by_target_and_overflow_mode() -> None:
    """FNUZ e4m3: 240 is 0x7f, NaN and nothing else is 0x80. OCP: 448 is 0x7e, NaN 0x7f."""
    a, b, old = f32(240.0, 1e9, NAN, -0.0, 1.0), f32(*[0] * 5), words(*[0xAABBCCDD] * 5)
    name = "v_cvt_pk_fp8_f32"
    assert [int(c) & 0xFF for c in amd("gfx942", name, a, b, old, 0, True).first] == [0x7F, 0x7F, 0x80, 0, 0x40]
    assert [int(c) & 0xFF for c in amd("gfx942", name, a, b, old, 0, False).first] == [0x7F, 0x80, 0x80, 0, 0x40]
    for target in ("gfx950", "gfx1201"):
        assert [int(c) & 0xFF for c in amd(target, name, a, b, old, 0, True).first] == [0x77, 0x7E, 0x7F, 0x80, 0x38]
        assert [int(c) & 0xFF for c in amd(target, name, a, b, old, 0, False).first] == [0x77, 0x7F, 0x7F, 0x80, 0x38]
    assert [int(c) for c in amd("gfx942", name, a, b, old, 1, True).first][:2] == [0x007FCCDD, 0x007FCCDD]
    assert [
        int(c) & 0xFF for c in amd("gfx950", "v_cvt_pk_bf8_f32", f32(INF, 1e9), f32(0, 0), old[:2], 0, False).first
    ] == [
        0x7C,
        0x7C,
    ]


@pytest.mark.parametrize(("target", "allowed"), [("gfx942", {0x80, 0x7F}), ("gfx950", {0x7F, 0x7E})])
def test_infinity_under_fp16_ovfl_is_open(target: str, allowed: set[int]) -> None:
    answer = amd(target, "v_cvt_pk_fp8_f32", f32(INF), f32(1.0), words(0), 0, True)
    assert answer.open().all()
    upper = 0x4000 if target == "gfx942" else 0x3800
    assert {code for code in range(256) if answer.allows(words(upper | code)).all()} == allowed
    assert not amd(target, "v_cvt_pk_fp8_f32", f32(INF), f32(1.0), words(0), 0, False).open().any()


def test_stochastic_fp8_takes_the_upper_bits_of_the_seed() -> None:
    """e4m3 discards 20 bits: 1.0625 is half a step above 1, so the seed's highest bit decides."""
    x, seed, old = f32(1.0625, 1.0625), words(0x7FFFF000, 0x80000000), words(0, 0x11223344)
    assert [int(c) for c in amd("gfx950", "v_cvt_sr_fp8_f32", x, seed, old, 2, True).first] == [0x380000, 0x11393344]
    assert [int(c) for c in amd("gfx942", "v_cvt_sr_fp8_f32", x, seed, old, 0, True).first] == [0x40, 0x11223341]
    assert [
        int(c) for c in amd("gfx950", "v_cvt_sr_bf8_f32", f32(1.125), words(0x80000000), words(0), 0, True).first
    ] == [0x3D]


def test_stochastic_fp8_is_open_where_nobody_saw_it() -> None:
    """CDNA's pseudo-code cannot be meant literally, so both neighbours count there; on RDNA4 the carry decides."""
    x, seed, old = f32(1.0625), words(0), words(0)
    assert amd("gfx942", "v_cvt_sr_fp8_f32", x, seed, old, 0, True).allows(words(0x41)).all()
    assert amd("gfx950", "v_cvt_sr_fp8_f32", x, seed, old, 0, True).allows(words(0x39)).all()
    assert not amd("gfx1201", "v_cvt_sr_fp8_f32", x, seed, old, 0, True).open().any()
    assert amd("gfx1201", "v_cvt_sr_fp8_f32", f32(1.5 * 2.0**-9), seed, old, 0, True).open().all()
    assert not amd("gfx950", "v_cvt_sr_fp8_f32", f32(1.0), seed, old, 0, True).open().any()
    assert amd("gfx950", "v_cvt_sr_fp8_f32", f32(INF), seed, old, 0, True).allows(words(0x7E)).all()


def test_scaled_conversions_by_hand() -> None:
    """The source is divided by the power of two on the way down, multiplied on the way up."""
    two, old = f32(2.0), words(0)
    controls = {"scale": two, "old": old, "place": 0}
    down = amd("gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(2.0), f32(896.0), ovfl=True, **controls)
    assert [int(c) for c in down.first] == [0x7E38]
    both = amd("gfx950", "v_cvt_scalef32_pk_fp4_f16", words(0x4A004400), **controls)  # 12 and 4
    assert [int(c) for c in both.first] == [0x74]
    nothing = amd(
        "gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(0.0), f32(-0.0), scale=f32(2.0**-126), old=old, place=0, ovfl=True
    )
    assert [int(c) for c in nothing.first] == [0x8000]
    mixed = {"scale": f32(1.0, 2.0), "old": words(0, 0), "place": 0, "ovfl": True}
    each = amd("gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(2.0, 2.0), f32(1.0, 1.0), **mixed)
    assert [int(c) for c in each.first] == [0x3840, 0x3038]
    lost = {"scale": f32(INF), "old": old, "place": 0}
    none = amd("gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(1.0), f32(1.0), ovfl=True, **lost)
    assert [int(c) for c in none.first] == [0x7F7F]
    assert amd("gfx950", "v_cvt_scalef32_pk_fp4_f32", f32(1.0), f32(1.0), **lost).open().all()
    third = amd("gfx950", "v_cvt_scalef32_pk_fp4_f32", f32(1.0), f32(NAN), scale=f32(1.0), old=words(0), place=3)
    assert [int(c) >> 24 for c in third.first] == [0x72]
    assert third.open().all()
    # one rounding: 2^-9 x 1.5 / 2 is 0.75 of the smallest subnormal
    small = amd("gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(1.5 * 2.0**-9), f32(2.0**-9), ovfl=True, **controls)
    assert [int(c) for c in small.first] == [0x0001]
    low, high = models_of("gfx950")["v_cvt_scalef32_pk_f32_fp8"].run(words(0x7E38), scale=two, place=0)  # type: ignore[misc]
    assert [low.first.view(np.float32)[0], high.first.view(np.float32)[0]] == [2.0, 896.0]
    low, high = models_of("gfx950")["v_cvt_scalef32_pk_bf16_fp4"].run(words(0x7200), scale=two, place=1)  # type: ignore[misc]
    assert [int(low.first[0]), int(high.first[0])] == [0x4000, 0x4140]


def test_median_minimum_and_maximum_of_amd() -> None:
    """With a NaN, v_med3 is the minimum of the three: a NaN in a clamp to +-448 gives -448."""
    low, high, signalling = f32(*[-448.0] * 4), f32(*[448.0] * 4), 0x7F800001
    clamped = amd("gfx942", "v_med3_f32", f32(1.0, 1e9, -1e9, NAN), low, high)
    assert list(clamped.first.view(np.float32)) == [1.0, 448.0, -448.0, -448.0]
    assert (
        list(amd("gfx942", "v_med3_f32", f32(3, 1, 2, 2), f32(1, 2, 3, 2), f32(2, 3, 1, 1)).first.view(np.float32))
        == [2] * 4
    )
    s, one = words(signalling), f32(1.0)
    assert [int(c) for c in amd("gfx942", "v_max_f32", s, one).first] == [0x7FC00001]
    assert [int(c) for c in amd("gfx942", "v_min_f32", one, s).first] == [0x7FC00001]
    assert [int(c) for c in amd("gfx942", "v_max_f32", s, one, False).first] == [0x3F800000]
    assert [int(c) for c in amd("gfx1200", "v_max_num_f32", s, one).first] == [0x3F800000]
    assert [int(c) for c in amd("gfx1200", "v_maximum_f32", f32(NAN, 0.0), f32(1.0, -0.0)).first] == [0x7FC00000, 0]
    assert [int(c) for c in amd("gfx1200", "v_minimum_f32", f32(0.0), f32(-0.0)).first] == [0x80000000]


def test_wide_conversions_and_approximations_of_amd() -> None:
    assert [int(c) for c in amd("gfx90a", "v_cvt_pkrtz_f16_f32", f32(65520.0), f32(-1.0)).first] == [0xBC007BFF]
    assert [int(c) for c in amd("gfx950", "v_cvt_pk_bf16_f32", f32(1.0), f32(1 + 3 * 2**-8)).first] == [0x3F823F80]
    band = models_of("gfx942")["v_rcp_f32"].run(f32(3.0, -2.0, -0.0, -INF, 1e-40))
    assert isinstance(band, Band)
    assert [int(c) for c in band.first[1:]] == [0xBF000000, 0xFF800000, 0x80000000, 0x7F800000]
    steps = [k for k in range(-3, 4) if band.allows(band.first + np.uint32(k % 2**32))[0]]
    assert steps == [-1, 0, 1]
    exp = models_of("gfx942")["v_exp_f32"].run(f32(-INF, -0.0, INF, -127.0))
    assert [int(c) for c in exp.first] == [0, 0x3F800000, 0x7F800000, 0]  # type: ignore[union-attr]


def test_every_amd_target_has_its_models_and_others_have_none() -> None:
    for name, target in TARGETS.items():
        if target.backend == "hip":
            has = "v_cvt_pk_fp8_f32" in models_of(name)
            assert has == bool(target.hardware), name
    assert ("v_cvt_scalef32_pk_fp8_f32" in AMD["gfx950"], "v_cvt_scalef32_pk_fp8_f32" in AMD["gfx942"]) == (True, False)
    with pytest.raises(BadInput, match="AMD target"):
        models_of("sm_90")


def test_opcodes_are_found_as_ptx_spells_them() -> None:
    """.relu before or after .satfinite; what has no model is None, so that the engine fails closed."""
    for one, other in (("relu.satfinite", "satfinite.relu"), ("satfinite.relu", "relu.satfinite")):
        for end in ("e4m3x2.f32", "f16x2.f32"):
            found, same = nvidia_model(f"cvt.rn.{one}.{end}"), nvidia_model(f"cvt.rn.{other}.{end}")
            assert found is not None
            assert found is same
    assert nvidia_model("cvt.rn.e4m3x2.f32") is None
    assert nvidia_model("tanh.approx.f16") is None


def test_every_model_says_where_it_comes_from() -> None:
    for model in (*NVIDIA.values(), *(m for family in AMD.values() for m in family.values())):
        assert model.clause.startswith(("PTX ISA 9.1", "CDNA3", "CDNA4", "RDNA4")), model.name
        assert model.inputs
        assert model.output


def test_rounding_to_odd_keeps_what_is_exact_and_marks_the_rest() -> None:
    """Of the two binary32 around a number the one with the odd last bit; what is binary32 is itself."""
    given = np.array([1.0, -2.0, 0.0, 1 + 2.0**-30, -1 - 2.0**-30, 1 + 2.0**-23 + 2.0**-40, 2 - 2.0**-30, 1e300, INF])
    one = 0x3F800000
    want = [one, 0xC0000000, 0, one + 1, one + 1 | 1 << 31, one + 1, 0x3FFFFFFF, 0x7F7FFFFF, 0x7F800000]
    with np.errstate(over="ignore"):
        assert float32_to_odd(given).view(np.uint32).tolist() == want
        assert np.isnan(float32_to_odd(np.array([NAN]))).all()
