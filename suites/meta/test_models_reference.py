"""Models of hardware instructions against the reference, over whole spaces of 16 bits and the cases of binary32.

The models were written from the words of the instruction sets, without sight of the reference: agreement is evidence
for both. Where the words leave something open, the reference's answer is one of the model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.devices.emulator.models import rounding
from narrowgauge.devices.emulator.models.amd import models_of
from narrowgauge.devices.emulator.models.answers import Answers, Bits
from narrowgauge.devices.emulator.models.nvidia import NVIDIA
from narrowgauge.reference.codec import RandomBits, values
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.inputs import case_named

pytestmark = pytest.mark.meta


def amd(target: str, name: str, *operands: object, **controls: object) -> Answers:
    answer = models_of(target)[name].run(*operands, **controls)
    assert isinstance(answer, Answers)
    return answer


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


def test_the_table_by_upper_bits_is_the_rounding() -> None:
    """Narrow destinations are looked up; random patterns, rounded one by one, give the same."""
    bits = (np.arange(2**18, dtype=np.uint64) * 0x9E3779B97F4A7C15 >> np.uint64(32)).astype(np.uint32)
    for layout in (rounding.E4M3, rounding.E5M2, rounding.E4M3Z, rounding.E5M2Z, rounding.E2M1, rounding.E2M3):
        for how in get_args(rounding.Rounding):
            arguments = (layout, how, layout.special, layout.top)
            np.testing.assert_array_equal(rounding.narrowed(bits, *arguments), rounding.rounded(bits, *arguments))
