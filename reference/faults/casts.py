"""Faults of rounding, subnormals and overflow: ``cast.*``. Those of NaN, infinity and sign are in ``specials``."""

from __future__ import annotations

from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.fault import Fault

#: a power of two alone is rounded by a rule of its own: see ``exponents``
ROUNDED = ("ieee", "fn", "fnuz", "finite", "integer")
E4M3_AND_E5M2 = {
    "float8_e4m3fn": "float8_e5m2",
    "float8_e5m2": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e5m2fnuz",
    "float8_e5m2fnuz": "float8_e4m3fnuz",
}

FAULTS = (
    Fault(
        "cast.ties_away",
        "TIES",
        edits.within(ROUNDED, edits.policy(rounding="nearest_away")),
        "values exactly between two codes go to the larger one; random data shows nothing",
        "half is added before cutting, or >= stands at the midpoints, instead of ties to even",
        ("triton#11753", "triton#8322", "aiter#3992", "triton#11897", "ocannl#646"),
    ),
    Fault(
        "cast.ties_toward_zero",
        "TIES",
        edits.within(ROUNDED, edits.policy(rounding="nearest_zero")),
        "values exactly between two codes go to the smaller one; random data shows nothing",
        "> stands at the midpoints where ties to even need a look at the lowest bit",
        ("Model-Optimizer MXFP4, measured", "gguf MXFP4, measured"),
    ),
    Fault(
        "cast.truncates",
        "ROUND",
        edits.within(ROUNDED, edits.policy(rounding="toward_zero")),
        "half of all codes are one too small in magnitude; outputs are biased toward zero",
        "the low bits are cut instead of rounded",
        ("triton interpreter fp32 to bf16, measured", "vllm int8 group quantizer, measured", "pto-isa#318"),
    ),
    Fault(
        "cast.carry_lost",
        "ROUND",
        value_edits.coded(value_edits.carry_lost, value_edits.is_float),
        "values just below a power of two are half of what they should be: 1.97 gives 1",
        "exponent and rounded fraction are joined by 'or': what carries out of the fraction is lost",
        ("triton#11897", "triton#8322"),
    ),
    Fault(
        "cast.double_rounding_float16",
        "DOUBLE-ROUND",
        edits.through("float16"),
        "0.4 % of random values are one code off; float16 and bfloat16 inputs never show it in the normal range",
        "float32 is narrowed to float16 and that to fp8",
        ("triton#11753", "triton#10846", "triton#7382", "OpenVINO Convert, measured", "triton#2583"),
    ),
    Fault(
        "cast.double_rounding_bfloat16",
        "DOUBLE-ROUND",
        edits.through("bfloat16"),
        "3 % of random values are one code off; bfloat16 inputs never show it",
        "float32 is narrowed to bfloat16 and that to the destination",
        ("flashinfer#5128", "ao#4725"),
    ),
    Fault(
        "cast.double_rounding_float32",
        "DOUBLE-ROUND",
        edits.through("float32", lambda source: source.name == "float64"),
        "float64 values beside a midpoint are one code off; float32 inputs never show it",
        "float64 is narrowed to float32 and that to the destination",
        ("ml_dtypes#401", "torch float64 sources, measured"),
    ),
    Fault(
        "cast.overflow_to_nan",
        "OVERFLOW",
        edits.policy(overflow="special"),
        "activations above the calibrated range become NaN: the service answers '!!!!' or nothing",
        "the cast does not saturate and nothing clamps before it",
        ("vllm#4614", "transformers#42746", "Model-Optimizer#1633", "triton#7337"),
    ),
    Fault(
        "cast.overflow_saturates",
        "OVERFLOW",
        edits.policy(overflow="max"),
        "overflow that should be seen as NaN is a plausible largest number",
        "the cast saturates where the contract promises NaN (torch e4m3fn from 2.13 on)",
        ("pytorch#178817", "ao#4364", "rocm-systems#8800", "tilelang#2944"),
    ),
    Fault(
        "cast.limit_before_rounding",
        "OVERFLOW",
        value_edits.coded(
            value_edits.limit_before_rounding,
            lambda b: value_edits.is_float(b) and b.policy.overflow == "max",
        ),
        "values just above the largest are NaN or infinity, larger ones saturate: 472 in e4m3fn",
        "the value is compared with the limit before it is rounded, and rounding lifts it past the limit",
        ("triton AMD float16 to e4m3fn, measured",),
    ),
    Fault(
        "cast.overflow_above_the_largest",
        "OVERFLOW",
        value_edits.coded(
            value_edits.overflow_above_the_largest,
            lambda b: b.policy.overflow == "special" and value_edits.has_an_end(b),
        ),
        "values that should be rounded down to the largest one overflow: 450 in e4m3fn",
        "the value is compared with the largest one before it is rounded",
        (),
    ),
    Fault(
        "cast.overflow_wraps",
        "OVERFLOW",
        edits.either(
            value_edits.coded(value_edits.wrapped, value_edits.is_float),
            value_edits.all_of(value_edits.integer_wrapped, lambda b: value_edits.family(b) == "integer"),
        ),
        "values beyond the largest are small, or have the other sign: 200 in int8 is -56",
        "the code is cut to its width without a look at its size",
        ("torch CPU float32 to uint8, measured",),
    ),
    Fault(
        "cast.subnormals_flushed",
        "SUBNORMAL",
        edits.policy(subnormals="flush"),
        "small values vanish: whatever rounds to less than the smallest normal is zero",
        "a code whose exponent field is zero is replaced by zero, after rounding",
        (),
    ),
    Fault(
        "cast.subnormals_flushed_before_rounding",
        "SUBNORMAL",
        value_edits.given(value_edits.flushed_below_normal, value_edits.is_float),
        "small values vanish, those too that would round up to the smallest normal",
        "the value is compared with the smallest normal before it is rounded",
        (),
    ),
    Fault(
        "cast.subnormals_flushed_without_sign",
        "SUBNORMAL",
        value_edits.given(value_edits.nothing_below_normal, value_edits.is_float),
        "small values vanish, and negative ones, -0 too, are +0",
        "the value is compared with the smallest normal before it is rounded, and a plain zero put in its place",
        (),
    ),
    Fault(
        "cast.source_subnormals_flushed",
        "SUBNORMAL",
        value_edits.given(value_edits.source_flushed, value_edits.reads_a_float),
        "the smallest values of the source are zeros",
        "the processor is told to read subnormals as zeros, or the code tests the exponent field alone",
        (),
    ),
    Fault(
        "cast.subnormals_rounded_twice",
        "SUBNORMAL",
        value_edits.given(
            value_edits.rounded_as_normal,
            lambda b: value_edits.has_subnormals_of_its_own(b) and b.policy.rounding == "nearest_even",
        ),
        "a few values below the smallest normal are one code off",
        "the significand is rounded to its full width, then shifted into the subnormals and rounded again",
        ("openvino#30057", "triton#11897"),
    ),
    Fault(
        "cast.subnormals_lose_sticky_bits",
        "SUBNORMAL",
        value_edits.given(value_edits.cut_to_24_bits, value_edits.has_subnormals_of_its_own),
        "float32 values just above a midpoint of two subnormals go down",
        "bits that are shifted out on the way into the subnormals are not looked at when rounding",
        ("pytorch test reference, measured",),
    ),
    Fault(
        "cast.subnormals_halved",
        "SUBNORMAL",
        value_edits.given(value_edits.halved_below_normal, value_edits.has_subnormals_of_its_own),
        "values below the smallest normal are half of what they should be",
        "the exponent of subnormals is taken one too low: they are shifted by one bit too many",
        ("tt-metal#51971",),
    ),
    Fault(
        "cast.shift_modulo_64",
        "SUBNORMAL",
        value_edits.given(value_edits.shift_modulo_64, value_edits.has_subnormals_of_its_own),
        "some tiny values are not zero: 2^-78 gives 2^-14 in e5m2",
        "a 64-bit significand is shifted right by 64 or more: processors take the count modulo 64",
        ("rocm-systems#10591", "composable_kernel#2571"),
    ),
    Fault(
        "cast.shift_modulo_32",
        "SUBNORMAL",
        value_edits.coded(
            value_edits.shift_modulo_32,
            lambda b: (
                value_edits.has_subnormals_of_its_own(b)
                and b.policy.rounding == "nearest_even"
                and b.source != "float64"
            ),
        ),
        "some tiny values become the largest one",
        "a 32-bit significand is shifted right by 32 or more: processors take the count modulo 32",
        (),
    ),
    Fault(
        "cast.e4m3_and_e5m2_confused",
        "FORMAT",
        edits.written_as(E4M3_AND_E5M2),
        "values are wrong by powers of two that depend on their size; 1 is 1.5 x 2^-8 or 128",
        "the routine for the other 8-bit layout was called",
        ("composable_kernel#975",),
    ),
)
