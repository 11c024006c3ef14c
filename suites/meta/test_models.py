"""Models of hardware instructions: cases by hand from the words of the ISA, and the reference over whole spaces.

The models were written without sight of the reference, so agreement is evidence for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.devices.emulator.models import lanes, rounding
from narrowgauge.devices.emulator.models.amd import AMD, models_of
from narrowgauge.devices.emulator.models.answers import Answers, Band, Bits
from narrowgauge.devices.emulator.models.nvidia import NVIDIA
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.codec import RandomBits, values
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.inputs import case_named

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
    a = f32(-1.0, -0.0, 1.0, -INF, NAN)
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


def test_minimum_and_maximum_by_hand() -> None:
    a, b = f32(1, NAN, 1, NAN, -0.0, -3), f32(2, 1, NAN, NAN, 0.0, 2)
    one, two, canonical = 0x3F800000, 0x40000000, 0x7FFFFFFF
    assert first("max.f32", a, b) == [two, one, one, canonical, 0, two]
    assert first("min.f32", a, b) == [one, one, one, canonical, 0x80000000, 0xC0400000]
    assert first("max.NaN.f32", a, b)[:4] == [two, canonical, canonical, canonical]
    assert first("max.xorsign.abs.f32", a, b)[-1] == 0xC0400000  # of 3 and 2, and the signs differ
    assert first("min.xorsign.abs.f32", a, b)[-1] == 0xC0000000
    assert first("min.ftz.f32", f32(1e-40), f32(1.0)) == [0]
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
    band = NVIDIA["div.approx.f32"].run(f32(1.0, -1e38, INF), f32(2.0**127, 2.0**127, 2.0**127))
    assert isinstance(band, Band)
    assert band.allows(words(0, 0x80000000, 0x7FC00000)).all()
    assert not band.allows(f32(2.0**-127, -(2.0**-1), INF)).any()


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


def test_scaled_conversions_by_hand() -> None:
    """The source is divided by the power of two on the way down, multiplied on the way up."""
    two, old = f32(2.0), words(0)
    controls = {"scale": two, "old": old, "place": 0}
    down = amd("gfx950", "v_cvt_scalef32_pk_fp8_f32", f32(2.0), f32(896.0), ovfl=True, **controls)
    assert [int(c) for c in down.first] == [0x7E38]
    both = amd("gfx950", "v_cvt_scalef32_pk_fp4_f16", words(0x4A004400), **controls)  # 12 and 4
    assert [int(c) for c in both.first] == [0x74]
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


def test_every_model_says_where_it_comes_from() -> None:
    for model in (*NVIDIA.values(), *(m for family in AMD.values() for m in family.values())):
        assert model.clause.startswith(("PTX ISA 9.1", "CDNA3", "CDNA4", "RDNA4")), model.name
        assert model.inputs
        assert model.output


def test_the_table_by_upper_bits_is_the_rounding() -> None:
    """Narrow destinations are looked up; random patterns, rounded one by one, give the same."""
    bits = (np.arange(2**18, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(32)).astype(np.uint32)
    for layout in (rounding.E4M3, rounding.E5M2, rounding.E4M3Z, rounding.E5M2Z, rounding.E2M1, rounding.E2M3):
        for how in get_args(rounding.Rounding):
            arguments = (layout, how, layout.special, layout.top)
            np.testing.assert_array_equal(rounding.narrowed(bits, *arguments), rounding.rounded(bits, *arguments))


# --- by hand: lanes --------------------------------------------------------------------------------------------------

LANES = np.arange(64)


def dpp_source(control: int, rdna: bool = False, wave: int = 64) -> list[int]:
    """Per lane the source, -1 out of range."""
    route = lanes.dpp(control, wave, rdna)
    return [int(s) if ok else -1 for s, ok in zip(route.source, route.valid, strict=True)]


def test_dpp_controls_by_hand() -> None:
    assert dpp_source(0xB1)[:6] == [1, 0, 3, 2, 5, 4]  # quad_perm:[1,0,3,2]
    assert dpp_source(0x00)[4:8] == [4] * 4
    assert [dpp_source(0x101)[n] for n in (0, 14, 15, 16)] == [1, 15, -1, 17]  # row_shl:1
    assert [dpp_source(0x118)[n] for n in (7, 8, 15, 16, 24)] == [-1, 0, 7, -1, 16]  # row_shr:8
    assert [dpp_source(0x121)[n] for n in (0, 1, 16)] == [15, 0, 31]  # row_ror:1
    assert [dpp_source(0x140)[n] for n in (0, 17)] == [15, 30]
    assert [dpp_source(0x141)[n] for n in (0, 9)] == [7, 14]
    assert [dpp_source(0x142)[n] for n in (0, 15, 16, 33, 48)] == [-1, -1, 15, 31, 47]  # row_bcast:15
    assert [dpp_source(0x143)[n] for n in (31, 32, 63)] == [-1, 31, 31]
    assert [dpp_source(0x130)[n] for n in (0, 63)] == [1, -1]
    assert [dpp_source(0x134)[n] for n in (0, 63)] == [1, 0]
    assert [dpp_source(0x138)[n] for n in (0, 16)] == [-1, 15]
    assert [dpp_source(0x13C)[n] for n in (0, 16)] == [63, 15]
    assert [dpp_source(0x153, True, 32)[n] for n in (0, 16)] == [3, 19]
    assert [dpp_source(0x168, True, 32)[n] for n in (0, 24)] == [8, 16]  # row_xmask:8
    for control, rdna in ((0x142, True), (0x130, True), (0x161, False), (0x100, False), (0x170, True)):
        with pytest.raises(BadInput, match="no such exchange"):
            lanes.dpp(control, 64, rdna)


def test_update_dpp_keeps_old_where_it_must() -> None:
    old, source = np.full((1, 64), 999, np.uint32), LANES.astype(np.uint32)[None]
    active = np.ones((1, 64), bool)
    active[0, 2] = False
    route = lanes.dpp(0x111, 64, False)  # row_shr:1
    kept = lanes.update_dpp(old, source, route, active, 0xF, 0xF, False)[0]
    assert [int(kept[n]) for n in (0, 1, 2, 3, 4, 16)] == [999, 0, 999, 999, 3, 999]  # lane 3 reads the inactive lane 2
    zeroed = lanes.update_dpp(old, source, route, active, 0xF, 0xF, True)[0]
    assert [int(zeroed[n]) for n in (0, 2, 3, 16)] == [0, 999, 0, 0]
    masked = lanes.update_dpp(old, source, route, active, 0xA, 0x3, True)[0]
    assert [int(masked[n]) for n in (5, 17, 23, 24, 33, 49)] == [999, 16, 22, 999, 999, 48]


def test_shuffles_of_ptx_by_hand() -> None:
    def read(mode: str, b: int, c: int) -> list[int]:
        route = lanes.shfl(mode, np.full(32, b, np.uint32), np.full(32, c, np.uint32))  # type: ignore[arg-type]
        return [int(s) if ok else -1 for s, ok in zip(route.source, route.valid, strict=True)]

    assert [read("bfly", 16, 0x1F)[n] for n in (0, 31)] == [16, 15]
    assert [read("up", 1, 0)[n] for n in (0, 1, 31)] == [-1, 0, 30]
    assert [read("down", 1, 0x1F)[n] for n in (0, 31)] == [1, -1]
    assert read("idx", 5, 0x1F) == [5] * 32
    # segments of eight: mask 0b11000 and clamp 0x07 in c
    assert [read("idx", 3, 0x181F)[n] for n in (0, 8, 31)] == [3, 11, 27]
    assert [read("down", 1, 0x181F)[n] for n in (6, 7, 8)] == [7, -1, 9]
    assert [read("up", 1, 0x1800)[n] for n in (7, 8, 9)] == [6, -1, 8]


def test_permutes_of_amd_by_hand() -> None:
    identity = (0x76543210, 0xFEDCBA98)
    assert list(lanes.permlane16(*identity, 32, True).source[:2]) == [16, 17]
    assert list(lanes.permlane16(0x00000001, 0, 64, False).source[[0, 1, 16, 63]]) == [1, 0, 17, 48]
    assert list(lanes.permlane64(64).source[[0, 40]]) == [32, 8]
    assert list(lanes.permlane64(32).source[:2]) == [0, 1]
    a, b = LANES.astype(np.uint32)[None], 100 + LANES.astype(np.uint32)[None]
    first_, second = lanes.permlane_swap(a, b, 32)
    assert ([int(first_[0, n]) for n in (0, 31, 32, 63)], [int(second[0, n]) for n in (0, 31, 32)]) == (
        [0, 31, 100, 131],
        [32, 63, 132],
    )
    first_, second = lanes.permlane_swap(a, b, 16)
    assert ([int(first_[0, n]) for n in (0, 16, 48)], [int(second[0, n]) for n in (0, 16, 32)]) == (
        [0, 100, 132],
        [16, 116, 48],
    )
    assert list(lanes.ds_swizzle(0x041F, 64).source[[0, 1, 33]]) == [1, 0, 32]  # and 31, xor 1
    assert list(lanes.ds_swizzle(0x801B, 32).source[:4]) == [3, 2, 1, 0]
    active = np.ones((1, 64), bool)
    active[0, 5] = False
    address = np.full((1, 64), 4 * 5, np.uint32)
    assert int(lanes.ds_bpermute(address, b, active)[0, 0]) == 0
    assert int(lanes.ds_bpermute(address + np.uint32(260), b, active)[0, 0]) == 106
    pushed = lanes.ds_permute(np.where(LANES < 2, 12, 252).astype(np.uint32)[None], b, active)
    assert [int(pushed[0, n]) for n in (0, 3, 5, 63)] == [0, 101, 105, 163]


def test_lanes_that_are_read_and_written_alone() -> None:
    b = 100 + LANES.astype(np.uint32)[None]
    active = (LANES >= 7)[None]
    assert int(lanes.readfirstlane(b, active)[0]) == 107
    assert int(lanes.readfirstlane(b, np.zeros((1, 64), bool))[0]) == 100
    assert int(lanes.readlane(b, np.array([66]))[0]) == 102
    written = lanes.writelane(b, words(9), np.array([3]))
    assert [int(written[0, n]) for n in (2, 3, 4)] == [102, 9, 104]


# --- against the reference -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Agreement:
    """A conversion of the models and the policy of the reference that says the same.

    ``shift``: zero bits below the code in the register.
    """

    model: str
    format: str
    policy: CastPolicy
    target: str = ""
    ovfl: bool = True
    shift: int = 0


SATURATE, IEEE = CastPolicy(), CastPolicy(overflow="special", infinity="special")
NO_NAN = CastPolicy(nan="max")
TOWARD_ZERO = CastPolicy(rounding="toward_zero", infinity="special")
#: FP16_OVFL = 1 by its words: an overflow is clamped, an infinity stays (or is NaN)
CLAMPED = CastPolicy(infinity="special")
DOWN = CastPolicy(rounding="toward_zero", negative="magnitude", infinity="max")
UP = CastPolicy(rounding="up", negative="magnitude", infinity="max")
AGREEMENTS = (
    Agreement("cvt.rn.satfinite.e4m3x2", "float8_e4m3fn", SATURATE),
    Agreement("cvt.rn.satfinite.e5m2x2", "float8_e5m2", SATURATE),
    Agreement("cvt.rn.satfinite.e2m1x2", "float4_e2m1fn", NO_NAN),
    Agreement("cvt.rn.satfinite.e2m3x2", "float6_e2m3fn", NO_NAN),
    Agreement("cvt.rn.satfinite.e3m2x2", "float6_e3m2fn", NO_NAN),
    Agreement("cvt.rz.satfinite.ue8m0x2", "float8_e8m0fnu", DOWN),
    Agreement("cvt.rp.satfinite.ue8m0x2", "float8_e8m0fnu", UP),
    Agreement("cvt.rn.bf16", "bfloat16", IEEE),
    Agreement("cvt.rn.satfinite.bf16", "bfloat16", SATURATE),
    Agreement("cvt.rz.bf16", "bfloat16", TOWARD_ZERO),
    Agreement("cvt.rn.f16", "float16", IEEE),
    Agreement("cvt.rz.f16x2", "float16", TOWARD_ZERO),
    Agreement("cvt.rna.tf32", "tfloat32", CastPolicy("nearest_away", "special", "special"), shift=13),
    Agreement("cvt.rn.tf32", "tfloat32", IEEE, shift=13),
    Agreement("v_cvt_pk_fp8_f32", "float8_e4m3fnuz", CLAMPED, "gfx942"),
    Agreement("v_cvt_pk_fp8_f32", "float8_e4m3fnuz", IEEE, "gfx942", False),
    Agreement("v_cvt_pk_bf8_f32", "float8_e5m2fnuz", CLAMPED, "gfx942"),
    Agreement("v_cvt_pk_bf8_f32", "float8_e5m2fnuz", IEEE, "gfx942", False),
    Agreement("v_cvt_pk_fp8_f32", "float8_e4m3fn", CLAMPED, "gfx950"),
    Agreement("v_cvt_pk_fp8_f32", "float8_e4m3fn", IEEE, "gfx1201", False),
    Agreement("v_cvt_pk_bf8_f32", "float8_e5m2", CLAMPED, "gfx1201"),
    Agreement("v_cvt_pk_bf8_f32", "float8_e5m2", IEEE, "gfx950", False),
    Agreement("v_cvt_pk_bf16_f32", "bfloat16", IEEE, "gfx950"),
    Agreement("v_cvt_pkrtz_f16_f32", "float16", TOWARD_ZERO, "gfx942"),
)


def name_of(a: Agreement) -> str:
    return f"{a.model}{'-' + a.target if a.target else ''}{'' if a.ovfl else '-no_clamp'}"


def run_lower(a: Agreement, x: Coded) -> Bits:
    """The lower element of what the model makes of every input."""
    bits, width = x.data.astype(np.uint32), FORMATS[a.format].bits
    zero = np.zeros_like(bits)
    if a.target:
        extra: tuple[object, ...] = (zero, 0, a.ovfl) if "8_f32" in a.model else ()
        answer = amd(a.target, a.model, bits, zero, *extra)
    elif x.format == "float32":
        model = NVIDIA[f"{a.model}.f32"]
        answer = model.run(*([zero] * (len(model.inputs) - 1)), bits)  # type: ignore[assignment]
    else:
        answer = NVIDIA[f"{a.model}.{WIDE[x.format]}x2"].run(bits)  # type: ignore[assignment]
    return (answer.first >> np.uint32(a.shift)) & np.uint32((1 << width) - 1)


def differing(codes: Bits, wanted: Coded) -> npt.NDArray[np.intp]:
    """Where the codes part; NaN is a class."""
    reals = values(FORMATS[wanted.format])
    nan = np.isnan(reals[codes]) & np.isnan(reals[wanted.codes])
    return np.flatnonzero((codes != wanted.codes) & ~nan)


def differences(a: Agreement, x: Coded) -> list[str]:
    wanted, codes = cast(x, a.format, a.policy), run_lower(a, x)
    return [f"{x.data[i]:#x}: {codes[i]:#x}, not {wanted.codes[i]:#x}" for i in differing(codes, wanted)[:5]]


@pytest.mark.parametrize("a", AGREEMENTS, ids=name_of)
def test_conversions_agree_with_the_reference_on_binary32(a: Agreement) -> None:
    for case, fewest in (("edges", 100), ("stratified", 2**17)):
        x = case_named(case).make(Claim(Cast(a.policy), "float32", a.format))
        assert x.data.size > fewest
        assert differences(a, x) == []


@pytest.mark.parametrize("source", ["float16", "bfloat16"])
@pytest.mark.parametrize("a", AGREEMENTS[:7], ids=name_of)
def test_conversions_agree_with_the_reference_on_every_16_bit_input(a: Agreement, source: str) -> None:
    if f"{a.model}.{WIDE[source]}x2" not in NVIDIA:
        assert (source, a.format) == ("float16", "float8_e8m0fnu")  # the ISA has no such conversion
        return
    assert differences(a, Coded(source, np.arange(65536, dtype=np.uint16))) == []


WIDE = {"float16": "f16", "bfloat16": "bf16"}
NARROW = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e2m1": "float4_e2m1fn",
    "e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
}


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_decodes_agree_with_the_reference_on_every_code(kind: str, to: str) -> None:
    fmt = FORMATS[NARROW[kind]]
    codes = np.arange(fmt.code_count, dtype=np.uint32)
    answer = NVIDIA[f"cvt.rn.{to}x2.{kind}x2"].run(codes << np.uint32(4 if kind == "e2m1" else 8))
    wide = NVIDIA[f"cvt.f32.{to}"].run(answer.first >> np.uint32(16))  # type: ignore[union-attr]
    np.testing.assert_array_equal(wide.first.view(np.float32), values(fmt).astype(np.float32))  # type: ignore[union-attr]
    assert not (answer.first & np.uint32(0xFFFF)).any()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("target", "kind", "name"),
    [
        ("gfx942", "fp8", "float8_e4m3fnuz"),
        ("gfx942", "bf8", "float8_e5m2fnuz"),
        ("gfx950", "fp8", "float8_e4m3fn"),
        ("gfx1201", "bf8", "float8_e5m2"),
    ],
)
def test_decodes_of_amd_agree_with_the_reference_on_every_code(target: str, kind: str, name: str) -> None:
    codes = np.arange(256, dtype=np.uint32)
    for byte in range(4):
        answer = amd(target, f"v_cvt_f32_{kind}", codes << np.uint32(8 * byte), byte)
        np.testing.assert_array_equal(answer.first.view(np.float32), values(FORMATS[name]).astype(np.float32))


@pytest.mark.parametrize(
    ("target", "kind", "name", "width"),
    [
        ("gfx942", "fp8", "float8_e4m3fnuz", 20),
        ("gfx950", "fp8", "float8_e4m3fn", 20),
        ("gfx1201", "bf8", "float8_e5m2", 21),
    ],
)
def test_stochastic_rounding_agrees_with_the_reference_on_normal_results(
    target: str, kind: str, name: str, width: int
) -> None:
    """Below the smallest normal the set of answers holds the reference's, which rounds from the exact value."""
    policy = CastPolicy("stochastic", infinity="special")
    x = case_named("stratified").make(Claim(Cast(CLAMPED), "float32", name))
    seed = (np.arange(x.data.size, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(32)).astype(np.uint32)
    wanted = cast(x, name, policy, RandomBits(seed >> np.uint32(32 - width), width))
    bits = x.data.astype(np.uint32)
    answer = amd(target, f"v_cvt_sr_{kind}_f32", bits, seed, np.zeros_like(bits), 0, True)
    smallest = np.float32(2.0 ** (1 - FORMATS[name].bias))
    normal = ~(np.abs(bits.view(np.float32)) < smallest)
    assert not set(differing(answer.first, wanted)) & set(np.flatnonzero(normal))
    assert answer.allows(wanted.codes.astype(np.uint32))[~normal].all()
