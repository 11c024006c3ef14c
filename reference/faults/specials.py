"""Faults of infinity, NaN, zero and sign: ``cast.*``."""

from __future__ import annotations

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import has_negative_zero
from narrowgauge.reference.faults import edits, value_edits
from narrowgauge.reference.faults.fault import Fault

FAULTS = (
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
        "cast.nan_to_min",
        "NAN",
        edits.policy(nan="min"),
        "a NaN becomes the lowest finite number: nothing downstream can notice it",
        "fmax(x, -max) comes first and returns the number when the other operand is NaN",
        ("tilelang#3024", "vllm KV cache per token and head, measured"),
    ),
    Fault(
        "cast.nan_to_signed_max",
        "NAN",
        edits.policy(nan="signed_max"),
        "a NaN becomes the largest finite number with the NaN's sign",
        "the magnitude is clamped as an integer, where every NaN is larger than infinity",
        (),
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
        "cast.nan_by_its_bits",
        "NAN",
        value_edits.nan_by_its_bits(),
        "a NaN becomes infinity or some large number, by its payload",
        "a NaN is narrowed like a number: its fraction is cut, and what is left may be no NaN",
        ("triton interpreter fp32 to bf16, measured",),
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
        "cast.exact_negative_zero_lost",
        "ZERO-SIGN",
        value_edits.given(
            value_edits.zero_added,
            lambda b: value_edits.reads_a_float(b) and has_negative_zero(format_named(b.format)),
        ),
        "-0 becomes +0; negative underflow keeps its sign",
        "zero is added (x + 0.0), or an operation before the cast gives +0 for -0",
        (),
    ),
    Fault(
        "cast.sign_lost",
        "SIGN",
        value_edits.given(
            value_edits.without_sign,
            lambda b: value_edits.reads_a_float(b) and format_named(b.format).signed,
        ),
        "a negative value becomes the code of its magnitude",
        "the magnitude is encoded, and the sign never put back",
        (),
    ),
    Fault(
        "cast.magnitude_of_negative",
        "SIGN",
        edits.policy(negative="magnitude"),
        "a negative value becomes the code of its magnitude, in a format without a sign",
        "the sign bit is masked off before the cast",
        ("torch e8m0, measured",),
    ),
)
