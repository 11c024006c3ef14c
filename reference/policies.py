"""Named cast policies: who does what, since which version, and on whose authority."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference import deviations
from narrowgauge.reference.codec import has_negative_zero, nan_code, special_code, values

#: What an expectation rests on. A kernel that parts from a ``document`` alone is disputed, not failed.
Evidence = Literal["specification", "measured", "document"]

SATURATE = CastPolicy(overflow="max", infinity="max")
NONSATURATE = CastPolicy(overflow="special", infinity="special")
#: finite overflow is clamped, an infinity is not
CLAMP_FINITE = CastPolicy(overflow="max", infinity="special")

OCP = ("float8_e4m3fn", "float8_e5m2")
FNUZ = ("float8_e4m3fnuz", "float8_e5m2fnuz")
FINITE = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
IEEE = ("float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e3m4")
WIDE = ("bfloat16", "float16", "tfloat32")
B11 = "float8_e4m3b11fnuz"
E8M0 = "float8_e8m0fnu"
E8M0_DOWN = CastPolicy("toward_zero", "max", "max", negative="magnitude")
E8M0_UP = CastPolicy("up", "max", "max", negative="magnitude")
INTEGERS = ("int8", "uint8", "int4", "uint4")
#: what libraries and instructions are asked to cast; a float64 may be rounded twice there
USUAL = ("float32", "bfloat16", "float16")


def _all(formats: tuple[str, ...], policy: CastPolicy) -> dict[str, CastPolicy]:
    return dict.fromkeys(formats, policy)


#: what torch's versions, and ml_dtypes', have in common
TORCH = _all((*OCP, *FNUZ), NONSATURATE) | {
    E8M0: CastPolicy("nearest_away", "special", "special", negative="magnitude")
}
ML_DTYPES = (
    _all((*OCP, *FNUZ, "float8_e4m3", "float8_e3m4", B11, "bfloat16"), NONSATURATE)
    | _all(FINITE, CastPolicy(nan="opposite_zero"))
    | {E8M0: CastPolicy("nearest_away", "special", "special", negative="nan", zero="nan")}
)


@dataclass(frozen=True)
class NamedPolicy:
    """A policy per destination format, under the name of who follows it."""

    name: str
    by_format: dict[str, CastPolicy]
    evidence: Evidence
    authority: str  #: clause, document or measurement
    applies: str = ""  #: product and version range, or "" for a specification
    #: source formats of which ``authority`` says something; none listed: of every real value
    sources: tuple[str, ...] = ()
    exceptions: tuple[deviations.Deviation, ...] = ()  #: where who follows it is known to part from it


POLICIES: dict[str, NamedPolicy] = {
    p.name: p
    for p in (
        NamedPolicy(
            "ocp_saturate",
            _all(OCP, SATURATE),
            "specification",
            "OCP OFP8 1.0, conversion to OFP8, saturating mode: overflow and infinity give the largest normal",
        ),
        NamedPolicy(
            "ocp_nonsaturate",
            _all(OCP, NONSATURATE),
            "specification",
            "OCP OFP8 1.0, conversion to OFP8, non-saturating mode: overflow and infinity give NaN in E4M3, "
            "infinity in E5M2",
        ),
        NamedPolicy(
            "fnuz_saturate",
            _all(FNUZ, SATURATE),
            "specification",
            "ONNX Cast, opset 24 and later, saturate=1: overflow and infinity give the largest finite value "
            "(onnx#7130; until opset 23 an infinity gave NaN: onnx_saturate_until_23)",
        ),
        NamedPolicy(
            "fnuz_nonsaturate",
            _all(FNUZ, NONSATURATE),
            "specification",
            "ONNX Cast, opset 19 and later, saturate=0: overflow and infinity give NaN",
        ),
        NamedPolicy(
            "ieee",
            _all(IEEE, NONSATURATE),
            "specification",
            "IEEE 754-2019, 4.3.1 roundTiesToEven: overflow gives infinity",
        ),
        NamedPolicy(
            "torch_until_2_12",
            TORCH,
            "measured",
            'released torch wheels 2.1.2 to 2.12.1, CPU, 2026-11-30 (docs/proof.md, "Torch by version"): overflow and '
            "infinity give NaN in e4m3fn and FNUZ, infinity in e5m2; e8m0 (from 2.7) ignores the sign",
            "torch >=2.1,<2.13",
            sources=USUAL,
            exceptions=(deviations.TORCH,),
        ),
        NamedPolicy(
            "torch_from_2_13",
            TORCH | {"float8_e4m3fn": SATURATE},
            "measured",
            'released torch wheels 2.13.0 to 2.14.1, CPU, 2026-11-30 (pytorch#178817; docs/proof.md, "Torch by '
            'version"): e4m3fn saturates, infinity too; all else as before',
            "torch >=2.13,<=2.14.1",
            sources=USUAL,
            exceptions=(deviations.TORCH,),
        ),
        NamedPolicy(
            "torch_ieee",
            _all(("bfloat16", "float16"), NONSATURATE),
            "measured",
            'released torch wheels 2.1.2 to 2.14.1, CPU, 2026-11-30 (docs/proof.md, "Torch by version")',
            "torch >=2.1,<=2.14.1",
            sources=USUAL[:1],
        ),
        NamedPolicy(
            "ml_dtypes",
            ML_DTYPES,
            "measured",
            "ml_dtypes 0.5.1 to 0.6.0 astype, 2026-11-30 (ml_dtypes#147, #260: NaN is intended); fp4 and fp6 make a "
            "zero of a NaN, its sign turned round",
            "ml_dtypes >=0.5.1,<=0.6",
            sources=USUAL,
            exceptions=(deviations.ML_DTYPES,),
        ),
        NamedPolicy(
            "ml_dtypes_0_5_0",
            ML_DTYPES | {E8M0: CastPolicy("nearest_even", "special", "special", negative="nan", zero="nan")},
            "measured",
            "ml_dtypes 0.5.0 astype, 2026-11-30: in e8m0 1.5 x 2^e goes to the even code, later upward; all else is "
            "the same",
            "ml_dtypes ==0.5.0",
            sources=USUAL,
            exceptions=(deviations.ML_DTYPES_0_5_0,),
        ),
        NamedPolicy(
            "gfloat_saturate",
            _all((*OCP, *FNUZ, *IEEE[1:], B11), SATURATE)
            | _all(FINITE, CastPolicy(nan="zero"))
            | {E8M0: CastPolicy("nearest_even", "max", "max")},
            "measured",
            "gfloat 0.5.1 and 0.5.2, 2026-11-30, round_ndarray(sat=True) and encode_ndarray; it refuses a NaN in fp4 "
            "and fp6, where our kernel gives it 0 instead",
            "gfloat >=0.5.1,<=0.5.2",
            sources=USUAL[:1],
            exceptions=(deviations.GFLOAT_TINY, deviations.GFLOAT_NEGATIVE),
        ),
        NamedPolicy(
            "gfloat_nonsaturate",
            _all((*OCP, *FNUZ, *IEEE[1:], B11), NONSATURATE) | {E8M0: CastPolicy("nearest_even", "special", "special")},
            "measured",
            "gfloat 0.5.1 and 0.5.2, 2026-11-30, round_ndarray(sat=False) and encode_ndarray; in fp4 and fp6 it "
            "refuses overflow",
            "gfloat >=0.5.1,<=0.5.2",
            sources=USUAL[:1],
            exceptions=(deviations.GFLOAT_TINY, deviations.GFLOAT_NEGATIVE),
        ),
        NamedPolicy(
            "ptx_satfinite",
            _all((*OCP, *WIDE), SATURATE) | _all(FINITE, CastPolicy(nan="max")),
            "document",
            "PTX ISA 8.6, cvt, .satfinite (with .rn): NaN gives the canonical NaN, but the largest positive value in "
            "e2m3, e3m2 and e2m1, which have none; overflow and infinity give the largest value with the sign",
            "e4m3, e5m2 from sm_89; e2m3, e3m2, e2m1 and rn for tf32 from sm_100",
            sources=USUAL,
        ),
        NamedPolicy(
            "ptx_ue8m0_rp_satfinite",
            {E8M0: E8M0_UP},
            "document",
            "PTX ISA 8.6, cvt.rp.satfinite.ue8m0x2: away from zero, NaN gives 255, the sign is not looked at "
            "(cuda_fp8.hpp, __nv_cvt_float_to_e8m0 with cudaRoundPosInf, its code for hosts)",
            "sm_100 and later",
            sources=USUAL,
        ),
        NamedPolicy(
            "ptx_ue8m0_rz_satfinite",
            {E8M0: E8M0_DOWN},
            "document",
            "PTX ISA 8.6, cvt.rz.satfinite.ue8m0x2: toward zero, NaN gives 255, the sign is not looked at "
            "(cuda_fp8.hpp, __nv_cvt_float_to_e8m0 with cudaRoundZero, its code for hosts)",
            "sm_100 and later",
            sources=USUAL,
        ),
        NamedPolicy(
            "e8m0_floor",
            {E8M0: E8M0_DOWN},
            "document",
            "the power of two at or below: OCP MX 1.0, 6.3; torchao FLOOR; ONNX round_mode=down; PTX cvt.rz",
        ),
        NamedPolicy(
            "e8m0_ceil",
            {E8M0: E8M0_UP},
            "document",
            "the power of two at or above: torchao CEIL; ONNX round_mode=up, its default; PTX cvt.rp",
        ),
        NamedPolicy(
            "e8m0_rceil",
            {E8M0: E8M0_UP},
            "document",
            "for one value the same as e8m0_ceil; under this name what is rounded is amax divided by the largest value "
            "of the elements: cuBLAS, torchao RCEIL, TransformerEngine, DeepGEMM",
        ),
        NamedPolicy(
            "e8m0_even",
            {E8M0: CastPolicy("nearest_even", "max", "max", negative="magnitude")},
            "document",
            "the nearest power of two, 1.5 x 2^e to the even code: OpenVINO, gfloat. torchao's and Quark's EVEN is "
            "another thing: amax is rounded to the elements' mantissa, then e8m0_floor",
        ),
        NamedPolicy(
            "e8m0_nearest",
            {E8M0: CastPolicy("nearest_away", "max", "max", negative="magnitude")},
            "document",
            "the nearest power of two, 1.5 x 2^e upward: ONNX round_mode=nearest; torch and ml_dtypes with other rules "
            "for overflow, zero and negative values",
        ),
        NamedPolicy(
            "e4m3_ceil",
            {"float8_e4m3fn": CastPolicy("up", "max", "max")},
            "document",
            "the code at or above, held to the largest, so that no element of a block exceeds it: the scales of vLLM "
            "0.33.0's nvfp4_ds_mla, nvfp4_ds_mla_cache_kernels.cu:112-131",
        ),
        NamedPolicy(
            "ptx_tf32_rna",
            {"tfloat32": CastPolicy("nearest_away", "special", "special")},
            "document",
            "PTX ISA, cvt.rna.tf32.f32: to nearest, ties away from zero",
            "sm_80 and later",
            sources=USUAL,
        ),
        NamedPolicy(
            "ptx_tf32_rn",
            {"tfloat32": NONSATURATE},
            "document",
            "PTX ISA 7.8, cvt.rn.tf32.f32: to nearest, ties to even",
            "sm_90 and later",
            sources=USUAL,
        ),
        NamedPolicy(
            "tf32_truncated",
            {"tfloat32": CastPolicy("toward_zero", "special", "special")},
            "document",
            "float32 patterns given to a tf32 matrix unit as they are: the lower 13 bits are not looked at; so a NaN "
            "that has no other bits reads as infinity there, which is not modelled. Else as cvt.rz.tf32.f32",
            "NVIDIA matrix units, Triton 3.9",
            sources=USUAL,
        ),
        NamedPolicy(
            "onnx_saturate",
            _all((*OCP, *FNUZ), SATURATE) | {E8M0: E8M0_UP},
            "specification",
            "ONNX Cast, opset 24 and later, saturate=1, the default (onnx#7130: infinity too gives the largest value "
            "in FNUZ); e8m0 (onnx#7030) with round_mode=up, the default; negative values are left open there, and "
            "given their magnitude here, as by the reference evaluator",
            "ONNX opset >=24",
        ),
        NamedPolicy(
            "onnx_nonsaturate",
            _all((*OCP, *FNUZ), NONSATURATE),
            "specification",
            "ONNX Cast, opset 19 and later, saturate=0",
            "ONNX opset >=19",
        ),
        NamedPolicy(
            "triton_nvidia",
            _all(OCP, SATURATE),
            "document",
            "Triton 3.9 for NVIDIA: cvt.rn.satfinite from sm_89; e5m2 by software on sm_80, whose PTX, run on a CPU, "
            "parts from it nowhere on all 16-bit and 1.4 million float32 inputs; e4m3fn is refused on sm_80",
            "triton 3.9 on sm_80 and later",
            sources=USUAL,
        ),
        NamedPolicy(
            "triton_amd_ocp",
            _all(OCP, SATURATE),
            "document",
            "Triton 3.9 software conversion for AMD, its IR run on a CPU: finite overflow and infinity saturate "
            "(float16 sources of e4m3fn excepted: 464 < |x| < 480 gives NaN, a defect)",
            "triton 3.9 on gfx90a, gfx942, gfx11, gfx12",
            sources=USUAL,
            exceptions=(deviations.TRITON_AMD,),
        ),
        NamedPolicy(
            "triton_amd_fnuz",
            _all(FNUZ, CLAMP_FINITE),
            "document",
            "Triton 3.9 lowering for AMD: finite overflow saturates, infinity gives NaN (triton#11667); "
            "what the gfx942 instruction itself does with infinity is not settled",
            "triton 3.9 on gfx942",
            sources=USUAL,
        ),
        NamedPolicy(
            "onnx_saturate_until_23",
            _all(OCP, SATURATE) | _all(FNUZ, CLAMP_FINITE),
            "document",
            "ONNX Cast, opsets 19 to 23, saturate=1, the table as published: infinity gives NaN in FNUZ. The reference "
            "evaluator and its test vectors gave the largest value all the same (onnx#6220)",
            "ONNX opset >=19,<24",
        ),
        NamedPolicy(
            "amd_native",
            _all((*OCP, *FNUZ), NONSATURATE),
            "document",
            "CDNA3 and later, v_cvt_*_fp8 and _bf8, MODE.FP16_OVFL = 0: overflow gives NaN or infinity (triton#7337; "
            "rocm-systems#9556 counted it on gfx942 and gfx950)",
            "gfx942, gfx950",
            sources=USUAL,
        ),
        NamedPolicy(
            "amd_native_clamped",
            _all((*OCP, *FNUZ), CLAMP_FINITE),
            "document",
            "the same with MODE.FP16_OVFL = 1: finite overflow is clamped, and true infinities are preserved (AMD ISA "
            "documents, MODE bit 23, which speak of FP16; a public model of gfx12 says so of fp8 from captures); for "
            "infinity in FNUZ nothing is recorded",
            "gfx942, gfx950",
            sources=USUAL,
        ),
        NamedPolicy(
            "integer_nearest",
            _all(INTEGERS, CastPolicy(nan="zero")),
            "specification",
            "PTX ISA cvt.rni.sat: to nearest even, saturating, NaN gives 0",
        ),
        NamedPolicy(
            "integer_away",
            _all(INTEGERS, CastPolicy("nearest_away", nan="zero")),
            "document",
            "C's round() and libdevice.round before a saturating conversion (SGLang per_token_quant_int8)",
        ),
        NamedPolicy(
            "integer_truncated",
            _all(INTEGERS, CastPolicy("toward_zero", nan="zero")),
            "document",
            "a C cast after a clamp (vLLM and SGLang per-token-group int8)",
        ),
    )
}


def policy_named(name: str) -> NamedPolicy:
    """The named policy. Raises ``BadInput`` with near names."""
    if name not in POLICIES:
        raise unknown("cast policy", name, POLICIES)
    return POLICIES[name]


def resolve(policy: str | CastPolicy, format_name: str) -> CastPolicy:
    """The choices for one destination. Raises ``BadInput`` where the policy does not fit the format."""
    fmt = format_named(format_name)
    if isinstance(policy, str):
        named = policy_named(policy)
        if fmt.name not in named.by_format:
            raise BadInput(
                f"policy {policy!r} does not fit {fmt.name}: it is defined for {', '.join(named.by_format)}; "
                f"for {fmt.name} there are {', '.join(fitting(fmt.name)) or 'none'}"
            )
        policy = named.by_format[fmt.name]
    check_fits(policy, fmt)
    return policy


def fitting(format_name: str) -> list[str]:
    """Names of the policies that are defined for a destination format."""
    return [name for name, named in POLICIES.items() if format_name in named.by_format]


def check_fits(policy: CastPolicy, fmt: Format) -> None:
    """Raise ``BadInput`` for a choice that the format cannot express."""
    if policy.limit is not None and policy.limit not in values(fmt):
        raise BadInput(f"cast policy: limit={policy.limit} is not a value of {fmt.name}")
    floating = fmt.family not in ("exponent", "integer")
    wrong = {
        "rounding": policy.rounding == "stochastic" and not floating,
        "overflow": policy.overflow == "special" and special_code(fmt) < 0,
        "infinity": policy.infinity == "special" and special_code(fmt) < 0,
        "nan": (policy.nan == "nan" and nan_code(fmt) < 0)
        or (policy.nan == "opposite_zero" and not has_negative_zero(fmt))
        or (policy.nan in ("min", "signed_max") and not fmt.signed),
        "negative_zero": policy.negative_zero == "drop" and not floating,
        "subnormals": policy.subnormals == "flush" and not floating,
        "limit": policy.limit is not None and fmt.family == "exponent",
        "negative": policy.negative != "smallest" and (fmt.signed or (policy.negative == "nan" and nan_code(fmt) < 0)),
        "zero": policy.zero != "smallest" and fmt.family != "exponent",
        "zero_point": policy.zero_point != 0 and fmt.family != "integer",
    }
    for choice in (name for name, is_wrong in wrong.items() if is_wrong):
        raise BadInput(f"cast policy: {choice}={getattr(policy, choice)!r} does not fit {fmt.name} ({fmt.family})")
