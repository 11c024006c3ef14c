"""torchao's quantizers in eager mode: MX in its four scale modes, NVFP4, float8, int8 and int4."""

from __future__ import annotations

from narrowgauge.contracts.recipe import (
    LESS_ZERO_POINT,
    TENSOR,
    TIMES_GLOBAL,
    TOKEN,
    Blocks,
    Chain,
    Destination,
    Reader,
    Recipe,
    Step,
    group,
)
from narrowgauge.reference.recipes.common import FP4, MX, NAN_WHERE_AMAX_IS
from narrowgauge.reference.recipes.standards import E8M0

_VERSION = "torchao 0.18.0"
_MX = f"{_VERSION}, mx_formats/mx_tensor.py"
_FLOAT8 = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e5m2", 57344.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 240.0, "fnuz_saturate"),
    Destination("float8_e5m2fnuz", 57344.0, "fnuz_saturate"),
)


def _by_exponent(mode: str, destinations: tuple[Destination, ...], *power: str | tuple[str, float]) -> Recipe:
    """A power of two from amax, by its bits, over the largest power of two of the elements.

    The exponent of an infinite amax is 128, and a NaN is put in afterwards. Code 0 stands for 2^-127, but the elements
    are divided by 2^-126; code 255 is a division by infinity.
    """
    return Recipe(
        name=f"torchao.mx_{mode}",
        blocks=group(32),
        destinations=destinations,
        amax_nan="keep",
        steps=(
            NAN_WHERE_AMAX_IS,
            ("top", ("bound", "floor_pow2")),
            ("infinite", ("top", ("rdiv", 2.0**127), ("mul", 2.0))),
            ("scale", ("amax", *power, ("div", "top"), ("not_finite_to", "infinite"), ("add", "nan"))),
            ("divisor", ("stored", ("nan_to", float("inf")), ("at_least", 2.0**-126))),
        ),
        element=("x", ("div", "divisor"), ("clamp_keep_nan", "bound")),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=f"{_MX}:209-387; on a CPU. A NaN in fp6 and fp4, where its block's scale is NaN, is what its bits give",
    )


def _nvfp4(name: str, *first: tuple[str, Chain], scale: Chain, encode: Chain, given: bool = False) -> Recipe:
    """The block's scale is held to the normal range of E4M3, from 2^-6."""
    return Recipe(
        name=f"torchao.nvfp4{name}",
        blocks=group(16),
        destinations=FP4,
        amax_nan="keep",
        inputs=("global_scale",) if given else (),
        reader=TIMES_GLOBAL if given or first else Reader(),
        steps=(
            *first,
            ("scale", (*scale, ("at_least_or_nan", 2.0**-6), ("at_most_or_nan", 448.0))),
            ("encode", encode),
        ),
        element=("x", ("mul", "encode"), ("clamp_keep_nan", "bound")),
        scale_format="float8_e4m3fn",
        scale_cast="ocp_saturate",
        source=f"{_VERSION}, mx_formats/nvfp4_tensor.py:755-858; a NaN, where its block's scale is NaN, as in MX",
    )


_SIXTH: Chain = ("amax", ("div", "bound"))
_TWO_LEVELS: Chain = (*_SIXTH, ("div", "global_scale"))
_ENCODE_TWO: Chain = ("global_scale", "recip", ("div", "stored"))


def _float8(name: str, blocks: Blocks) -> Recipe:
    """The scale is computed in x's own format; there is no least scale."""
    return Recipe(
        name=f"torchao.float8_{name}",
        blocks=blocks,
        destinations=_FLOAT8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"), ("round", "source"))),),
        element=("x", ("div", "scale"), ("clamp_keep_nan", "bound")),
        source=f"{_VERSION}, quant_primitives.py:2243-2357 (Float8Tensor.from_hp, without mslk)",
    )


_PRIMITIVES = f"{_VERSION}, quant_primitives.py:434-495,1498-1593"


def _symmetric(
    name: str, blocks: Blocks, format_name: str, half: float, least: float | str, source: str, *rounded: Step
) -> Recipe:
    """Half of the range of codes stands for amax. ``rounded`` where the scale is in x's own format."""
    return Recipe(
        name=f"torchao.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, half, "integer_nearest"),),
        amax_nan="keep",
        steps=(
            ("scale", ("amax", ("div", "bound"), ("round", "source"), ("at_least_or_nan", least))),
            ("encode", ("scale", "recip", *rounded)),
        ),
        element=("x", ("mul", "encode"), *rounded),
        source=f"{_PRIMITIVES} ({source})",
    )


def _asymmetric(name: str, blocks: Blocks, format_name: str, lowest: float, span: float, source: str) -> Recipe:
    """A zero point in the range of codes; 0 is always between the least and the largest element."""
    return Recipe(
        name=f"torchao.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, -lowest - 1, "integer_nearest"),),
        amax_nan="keep",
        steps=(
            NAN_WHERE_AMAX_IS,
            ("low", ("min", ("at_most", 0.0), ("add", "nan"))),
            (
                "scale",
                (
                    "max",
                    ("at_least", 0.0),
                    ("sub", "low"),
                    ("round", "source"),
                    ("div", span),
                    ("round", "source"),
                    ("at_least_or_nan", 2.0**-23),
                ),
            ),
            (
                "zero_point",
                (
                    "low",
                    ("div", "scale"),
                    ("round", "source"),
                    "rint",
                    ("rsub", lowest),
                    ("at_least_or_nan", lowest),
                    ("at_most_or_nan", lowest + span),
                    ("nan_to", 0.0),
                ),
            ),
            ("encode", ("scale", "recip")),
        ),
        element=("x", ("mul", "encode"), "rint", ("add", "zero_point")),
        reader=LESS_ZERO_POINT,
        source=f"{_PRIMITIVES} ({source})",
    )


_BY_MANTISSA = {1: ("float4_e2m1fn",), 2: ("float6_e3m2fn", "float8_e5m2"), 3: ("float6_e2m3fn", "float8_e4m3fn")}

RECIPES = (
    _by_exponent("floor", MX, "floor_pow2"),
    _by_exponent("ceil", MX, "ceil_pow2"),
    *(
        _by_exponent(f"even_{bits}", tuple(d for d in MX if d.format in formats), ("even_pow2", bits))
        for bits, formats in _BY_MANTISSA.items()
    ),
    Recipe(
        name="torchao.mx_rceil",
        blocks=group(32),
        destinations=MX,
        amax_nan="keep",
        steps=(
            NAN_WHERE_AMAX_IS,
            ("scale", ("amax", ("div", "bound"), "exp2_ceil_log2")),
            # code 0 multiplies by 1
            ("encode", ("stored", "floor_pow2", ("zero_to", 1.0), "recip", ("add", "nan"))),
        ),
        element=("x", ("mul", "encode"), ("clamp_keep_nan", "bound")),
        scale_format=E8M0,
        scale_cast="e8m0_rceil",
        source=f"{_MX}:101-187; on a CPU",
    ),
    _nvfp4("", scale=_SIXTH, encode=("stored", "recip")),
    _nvfp4("_two_levels", ("global_scale", ("tensor_amax", ("div", 2688.0))), scale=_TWO_LEVELS, encode=_ENCODE_TWO),
    _nvfp4("_two_levels_given", scale=_TWO_LEVELS, encode=_ENCODE_TWO, given=True),
    _float8("row", TOKEN),
    _float8("tensor", TENSOR),
    _symmetric("int8_row", TOKEN, "int8", 127.5, 2.0**-23, "Int8Tensor, symmetric"),
    _symmetric(
        "int4_group", group(32), "int4", 7.5, "least_normal", "IntxUnpackedToInt8Tensor, int4", ("round", "source")
    ),
    _asymmetric("int8_row_asymmetric", TOKEN, "int8", -128.0, 255.0, "Int8Tensor, asymmetric"),
)
