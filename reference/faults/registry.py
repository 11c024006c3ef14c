"""The faults. One entry each: an edit of the right behaviour, with symptom, cause and where it was seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults.edits import Edit


@dataclass(frozen=True)
class Fault:
    """A mistake that turns a right behaviour into a wrong one."""

    name: str  #: family.what
    code: str  #: stands first in a failure message, in brackets
    edit: Edit
    symptom: str  #: what a user of the kernel sees
    cause: str  #: what was done wrong
    #: public reports that say just this, and libraries in which it was measured or read; empty where we know of none
    reports: tuple[str, ...]

    def applied_to(self, behaviour: Behaviour) -> Behaviour | None:
        """The faulty behaviour, or None where this fault cannot exist."""
        return self.edit(behaviour)


FAULTS: dict[str, Fault] = {
    f.name: f
    for f in (
        Fault(
            "cast.ties_away",
            "TIES",
            edits.policy(rounding="nearest_away"),
            "values exactly between two codes go to the larger one; random data shows nothing",
            "half is added before cutting, or >= stands at the midpoints, instead of ties to even",
            ("triton#11753", "triton#8322", "aiter#3992"),
        ),
        Fault(
            "cast.ties_toward_zero",
            "TIES",
            edits.policy(rounding="nearest_zero"),
            "values exactly between two codes go to the smaller one; random data shows nothing",
            "> stands at the midpoints where ties to even need a look at the lowest bit",
            ("Model-Optimizer MXFP4, measured", "gguf MXFP4, measured"),
        ),
        Fault(
            "cast.truncates",
            "ROUND",
            edits.policy(rounding="toward_zero"),
            "half of all codes are one too small in magnitude; outputs are biased toward zero",
            "the low bits are cut instead of rounded",
            ("triton interpreter fp32 to bf16, measured", "vllm int8 group quantizer, measured", "pto-isa#318"),
        ),
        Fault(
            "cast.overflow_to_nan",
            "OVERFLOW",
            edits.policy(overflow="special"),
            "activations above the calibrated range become NaN: the service answers '!!!!' or nothing",
            "the cast does not saturate and nothing clamps before it",
            ("vllm#4614", "transformers#42746", "Model-Optimizer#1633"),
        ),
        Fault(
            "cast.overflow_saturates",
            "OVERFLOW",
            edits.policy(overflow="max"),
            "overflow that should be seen as NaN is a plausible largest number",
            "the cast saturates where the contract promises NaN (torch e4m3fn from 2.13 on)",
            ("pytorch#178817", "ao#4364", "rocm-systems#8800"),
        ),
        Fault(
            "cast.infinity_to_nan",
            "OVERFLOW",
            edits.policy(infinity="special"),
            "an infinity becomes NaN although finite overflow saturates",
            "only finite values are clamped",
            (),
        ),
        Fault(
            "cast.infinity_saturates",
            "OVERFLOW",
            edits.policy(infinity="max"),
            "an infinity becomes the largest finite number and is never seen again",
            "a clamp runs before the test for infinity",
            ("onnx#6220", "tilelang#2944"),
        ),
        Fault(
            "cast.nan_to_max",
            "NAN",
            edits.policy(nan="max"),
            "a NaN becomes the largest finite number: nothing downstream can notice it",
            "fmin(x, max) returns the number when the other operand is NaN",
            ("vllm per-tensor fp8 CUDA path, read", "Model-Optimizer NVFP4, measured"),
        ),
        Fault(
            "cast.nan_to_zero",
            "NAN",
            edits.policy(nan="zero"),
            "a NaN becomes zero: nothing downstream can notice it",
            "a conversion to integer or a nan_to_num stands before the cast",
            ("torchao quantize_affine int8, measured", "compressed-tensors NVFP4, measured"),
        ),
        Fault(
            "cast.subnormals_flushed",
            "SUBNORMAL",
            edits.policy(subnormals="flush"),
            "small values vanish: everything below the smallest normal is zero",
            "the exponent is clamped at the smallest normal without shifting the significand",
            (),
        ),
        Fault(
            "cast.negative_zero_lost",
            "ZERO-SIGN",
            edits.policy(negative_zero="drop"),
            "-0 and negative underflow become +0",
            "the sign is multiplied in (x * sign(x)) instead of copied",
            ("microxcaling, measured", "breccia, measured", "rocm-libraries#7517"),
        ),
        Fault(
            "cast.double_rounding_float16",
            "DOUBLE-ROUND",
            edits.through("float16"),
            "0.4 % of random values are one code off; float16 and bfloat16 inputs never show it in the normal range",
            "float32 is narrowed to float16 and that to fp8",
            ("triton#11753", "triton#10846", "triton#7382", "OpenVINO Convert, measured"),
        ),
        Fault(
            "cast.double_rounding_bfloat16",
            "DOUBLE-ROUND",
            edits.through("bfloat16"),
            "3 % of random values are one code off; bfloat16 inputs never show it",
            "float32 is narrowed to bfloat16 and that to fp8",
            ("flashinfer#5128",),
        ),
        Fault(
            "fnuz.ocp_codes_written",
            "FNUZ",
            edits.written_as("float8_e4m3fnuz", "float8_e4m3fn"),
            "every value is half of what it should be, and -0 is NaN",
            "codes of float8_e4m3fn are written into a buffer that is read as float8_e4m3fnuz",
            (),
        ),
        Fault(
            "fnuz.fnuz_codes_written",
            "FNUZ",
            edits.written_as("float8_e4m3fn", "float8_e4m3fnuz"),
            "every value is twice what it should be, and what was NaN is -0",
            "codes of float8_e4m3fnuz are written into a buffer that is read as float8_e4m3fn",
            ("vllm#45562", "uccl#804"),
        ),
        Fault(
            "fnuz.negative_underflow_is_nan",
            "FNUZ",
            edits.sign_kept_on_zero("float8_e4m3fnuz"),
            "small negative values become NaN",
            "the sign bit is kept on a zero in a format whose code for -0 is its NaN",
            ("onnxruntime#18473", "xla#17487", "triton#3997"),
        ),
        Fault(
            "scale.inverted",
            "SCALE",
            edits.on_scale(lambda s: np.float32(1) / s),
            "dequantized values are off by the square of the scale",
            "the encode scale is stored where the dequantization scale is expected",
            ("modular#6600",),
        ),
        Fault(
            "scale.unity",
            "SCALE",
            edits.on_scale(np.ones_like),
            "dequantized values all have the same range, whatever the input was",
            "the computed scale is not delivered, 1.0 is stored",
            ("flashinfer#4624", "Model-Optimizer#20"),
        ),
        Fault(
            "scale.reciprocal_multiplied",
            "SCALE",
            edits.in_scale_chain("div", lambda step: (("mul", "1/bound"),)),
            "half of the scales are one ulp off",
            "amax is multiplied by the rounded constant 1/448 instead of divided by 448 (Triton does so on NVIDIA)",
            ("vllm fp8_utils.py Triton path, read", "sglang per_token_group_quant.cuh, read"),
        ),
        Fault(
            "scale.minimum_missing",
            "SCALE",
            edits.in_scale_chain("at_least", lambda step: ()),
            "a row of zeros gets scale 0, and then NaN or the largest code",
            "the floor under the scale was left out",
            ("kernels-community#681", "ao#4713", "slime#2256"),
        ),
        Fault(
            "scale.format_maximum_for_224",
            "FNUZ",
            edits.bound(lambda d: 240.0 if d.format == "float8_e4m3fnuz" else None),
            "scales are 7 % smaller than the engine's, and codes reach 0x7F",
            "the FNUZ format's own maximum 240 is used where the engine holds to 224",
            ("vllm#30360", "vllm#31106"),
        ),
        Fault(
            "scale.448_for_fnuz",
            "FNUZ",
            edits.bound(lambda d: 448.0 if d.format == "float8_e4m3fnuz" else None),
            "on FNUZ hardware the largest values of each row clip, or are NaN",
            "the maximum of the OCP format is a constant in the kernel",
            ("ROCm/TransformerEngine#485",),
        ),
    )
}


def fault_named(name: str) -> Fault:
    """The fault of that name. Raises ``BadInput`` with near names."""
    if name not in FAULTS:
        raise unknown("fault", name, FAULTS)
    return FAULTS[name]
