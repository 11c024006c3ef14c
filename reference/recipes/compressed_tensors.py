"""compressed-tensors: what llm-compressor writes, and vLLM reads, as weights and activations."""

from __future__ import annotations

from narrowgauge.contracts.recipe import (
    LESS_ZERO_POINT,
    OVER_GLOBAL,
    TENSOR,
    TOKEN,
    Blocks,
    Chain,
    Destination,
    Recipe,
    Step,
    group,
)
from narrowgauge.reference.recipes.common import FP4, MX, NAN_WHERE_AMAX_IS, OCP_FP8, TILE_128
from narrowgauge.reference.recipes.standards import E8M0

_CT = "compressed-tensors 0.20.1, quantization/utils/helpers.py calculate_qparams"
_FORWARD = "lifecycle/forward_helpers.py _quantize"
#: all is computed in the format of x, and the scales stay in it
_ROUND: Step = ("round", "source")


def _integers(name: str, format_name: str, half: float, blocks: Blocks) -> Recipe:
    """Symmetric: half of the range of codes, which is no whole number, stands for amax."""
    return Recipe(
        name=f"compressed_tensors.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, half, "integer_nearest"),),
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"), _ROUND, ("zero_to", "epsilon"))),),
        element=("x", ("div", "scale"), _ROUND),
        source=f"{_CT}, {_FORWARD} (symmetric)",
    )


def _with_zero_point(name: str, format_name: str, lowest: float, span: float, blocks: Blocks) -> Recipe:
    """The zero point is added before the rounding; 0 is always between the least and the largest element."""
    zero: Chain = (
        "low",
        ("div", "quotient"),
        _ROUND,
        ("rsub", lowest),
        _ROUND,
        ("at_least_or_nan", lowest),
        ("at_most_or_nan", lowest + span),
        "rint",
        ("nan_to", 0.0),
    )
    return Recipe(
        name=f"compressed_tensors.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, -lowest - 1, "integer_nearest"),),
        amax_nan="keep",
        steps=(
            NAN_WHERE_AMAX_IS,
            ("low", ("min", ("at_most", 0.0), ("add", "nan"))),
            ("quotient", ("max", ("at_least", 0.0), ("sub", "low"), _ROUND, ("div", span), _ROUND)),
            ("zero_point", zero),
            ("scale", ("quotient", ("zero_to", "epsilon"))),
        ),
        element=("x", ("div", "scale"), _ROUND, ("add", "zero_point"), _ROUND),
        reader=LESS_ZERO_POINT,
        source=f"{_CT}, {_FORWARD} (asymmetric)",
    )


def _fp8(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"compressed_tensors.fp8_{name}",
        blocks=blocks,
        destinations=OCP_FP8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"), _ROUND, ("zero_to", "epsilon"))),),
        element=("x", ("div", "scale"), _ROUND, ("clamp_keep_nan", "bound")),
        source=f"{_CT}, {_FORWARD}",
    )


def _fp8_static(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"compressed_tensors.fp8_static_{name}",
        blocks=blocks,
        destinations=OCP_FP8,
        inputs=("scale",),
        steps=(),
        element=("x", ("div", "scale"), ("clamp_keep_nan", "bound")),
        source=f"compressed-tensors 0.20.1, {_FORWARD}; a scale in float32",
    )


def _mx(name: str, destination: Destination, mantissa: int, *to_codes: Step) -> Recipe:
    """Rounded to so many mantissa bits, then down: one bit for fp8 too. In x's format a scale of 0 becomes 1.

    A NaN counts as 0: torch's maximum on a CPU makes it all ones, to which the rounding adds. The exponent of an
    infinite scale is written as that of 1.
    """
    power: Chain = ("amax", ("nan_to", 0.0), ("even_pow2", mantissa), _ROUND, ("div", "top"), ("at_least", 2.0**-127))
    return Recipe(
        name=f"compressed_tensors.{name}",
        blocks=group(32),
        destinations=(destination,),
        amax_nan="keep",
        steps=(
            ("top", ("bound", "floor_pow2")),
            ("divisor", (*power, _ROUND, ("zero_to", 1.0))),
            ("scale", ("divisor", ("not_finite_to", 1.0))),
        ),
        element=("x", ("div", "divisor"), _ROUND, ("clamp_keep_nan", "bound"), *to_codes),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source="compressed-tensors 0.20.1, quantization/utils/mxfp_utils.py:70-151, compressors/mx_utils.py; on a CPU",
    )


_BY_FORMAT = {d.format: d for d in MX}
#: the sign of a zero is lost, and a NaN packs as 0
_TO_FP4: tuple[Step, ...] = (("add", 0.0), ("nan_to", 0.0))

RECIPES = (
    _integers("int8_channel", "int8", 127.5, TOKEN),
    _integers("int8_tensor", "int8", 127.5, TENSOR),
    _integers("int4_group", "int4", 7.5, group(128)),
    _integers("int4_channel", "int4", 7.5, TOKEN),
    _with_zero_point("int8_token_asymmetric", "int8", -128.0, 255.0, TOKEN),
    _with_zero_point("int4_group_asymmetric", "int4", -8.0, 15.0, group(128)),
    _fp8("tensor", TENSOR),
    _fp8("token", TOKEN),
    _fp8("group_128", group(128)),
    _fp8("block", TILE_128),
    _fp8_static("tensor", TENSOR),
    _fp8_static("channel", TOKEN),
    _mx("mxfp8", _BY_FORMAT["float8_e4m3fn"], 1),
    _mx("mxfp6", _BY_FORMAT["float6_e2m3fn"], 3, ("nan_to", -0.0)),
    _mx("mxfp4", _BY_FORMAT["float4_e2m1fn"], 1, *_TO_FP4),
    Recipe(
        name="compressed_tensors.nvfp4",
        blocks=group(16),
        destinations=FP4,
        amax_nan="keep",
        steps=(
            (
                "global_scale",
                (
                    "tensor_amax",
                    ("at_least_or_nan", "least_normal"),
                    "recip",  # what torch makes of a number over a tensor
                    _ROUND,
                    ("mul", 2688.0),
                    _ROUND,
                    ("not_finite_to", 1.0),
                ),
            ),
            (
                "scale",
                (
                    "amax",
                    ("div", "bound"),
                    _ROUND,
                    ("mul", "global_scale"),
                    ("clamp_keep_nan", 448.0),
                    ("round", "float8_e4m3fn"),
                    ("zero_to", 0.125),
                ),
            ),
            ("divisor", ("stored", ("div", "global_scale"))),
        ),
        reader=OVER_GLOBAL,
        element=("x", ("div", "divisor"), ("clamp_keep_nan", "bound"), *_TO_FP4),
        scale_format="float8_e4m3fn",
        scale_cast="ocp_saturate",
        source=f"{_CT} and generate_gparam, {_FORWARD}",
    ),
)
