"""Faults of scales: ``scale.*``."""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.faults import edits
from narrowgauge.reference.faults.fault import Fault

FAULTS = (
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
        edits.in_chain("scale", "div", edits.by_reciprocal),
        "half of the scales are one ulp off",
        "amax is multiplied by the rounded constant 1/448 instead of divided by 448 (Triton does so on NVIDIA)",
        ("vllm fp8_utils.py Triton path, read", "sglang per_token_group_quant.cuh, read"),
    ),
    Fault(
        "scale.minimum_missing",
        "SCALE",
        edits.in_chain("scale", "at_least", lambda operands: ()),
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
