"""int8 and int4 quantizers of the engines and of compressed-tensors."""

from __future__ import annotations

from narrowgauge.contracts.recipe import CHANNEL, TENSOR, TOKEN, Blocks, Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import SGLANG, VLLM

_INT8 = (Destination("int8", 127.0, "integer_nearest"),)
_CUT = (Destination("int8", 127.0, "integer_truncated"),)
_SCALED = f"{VLLM}, scaled_quant.cu"
_CT = "compressed-tensors ac8e2ba8, quantization/utils calculate_qparams"


def _static(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"vllm.int8_static_{name}",
        blocks=blocks,
        destinations=_INT8,
        inputs=("scale",),
        steps=(),
        element=("x", ("div", "scale")),
        source=f"{_SCALED}:99-117",
    )


def _group(name: str, chain: Chain, source: str) -> Recipe:
    return Recipe(
        name=f"vllm.int8_group{name}",
        blocks=group(128),
        destinations=_CUT,
        steps=(("scale", ("amax", ("at_least", 1e-10), ("div", "bound"))), ("encode", ("scale", "recip"))),
        # from -128, which only a NaN reaches: amax is below
        element=(*chain, ("at_least", -128.0), ("at_most", "bound")),
        source=source,
    )


def _compressed_tensors(name: str, format_name: str, half: float, blocks: Blocks) -> Recipe:
    """Symmetric: half of the range of codes, which is no whole number, stands for amax."""
    return Recipe(
        name=f"compressed_tensors.{name}",
        blocks=blocks,
        destinations=(Destination(format_name, half, "integer_nearest"),),
        amax_nan="keep",
        steps=(("scale", ("amax", ("div", "bound"), ("zero_to", 2.0**-23))),),
        element=("x", ("div", "scale")),
        source=f"{_CT}:86",
    )


#: rounded to a whole number first, then the zero point is added, then brought into the range of int8
_WITH_ZERO: tuple[str | Step, ...] = ("rint", ("add_within_int8", "zero_point"))

_WITHOUT_ZERO: Chain = ("x", ("sub", "zero_point"), ("mul", "stored"))

RECIPES = (
    _static("tensor", TENSOR),
    _static("token", TOKEN),
    Recipe(
        name="vllm.int8_per_token_dynamic",
        blocks=TOKEN,
        destinations=_INT8,
        steps=(
            ("scale", ("amax", ("div", "bound"))),
            ("encode", ("amax", ("rdiv", "bound"), ("zero_where_zero", "amax"))),
        ),
        element=("x", ("mul", "encode")),
        source=f"{_SCALED}:142-178",
    ),
    Recipe(
        name="vllm.int8_static_azp",
        blocks=TENSOR,
        destinations=_INT8,
        inputs=("scale", "zero_point"),
        steps=(("encode", ("scale", "recip")),),
        element=("x", ("mul", "encode"), *_WITH_ZERO),
        value=_WITHOUT_ZERO,
        source=f"{_SCALED}:119-140",
    ),
    Recipe(
        name="vllm.int8_per_token_dynamic_azp",
        blocks=TOKEN,
        destinations=_INT8,
        steps=(
            ("scale", ("max", ("sub", "min"), ("div", 255.0))),
            ("zero_point", ("min", ("div", "scale"), ("rsub", -128.0), "rint")),
            ("encode", ("scale", "recip")),
        ),
        element=("x", ("mul", "encode"), *_WITH_ZERO),
        value=_WITHOUT_ZERO,
        source=f"{_SCALED}:211-261",
    ),
    _group("", ("x", ("mul", "encode")), f"{VLLM}, per_token_group_quant.cu:89-90"),
    _group("_triton", ("x", ("div", "scale")), f"{VLLM}, int8_utils.py:121-128; {SGLANG}, int8_kernel.py:94-133"),
    Recipe(
        name="sglang.int8_per_token",
        blocks=TOKEN,
        destinations=(Destination("int8", 127.0, "integer_away"),),
        steps=(
            ("scale", ("amax", ("at_least", 1e-10), ("div", "bound"))),
            ("encode", ("amax", ("at_least", 1e-10), ("rdiv", "bound"))),
        ),
        element=("x", ("mul", "encode")),
        source=f"{SGLANG}, int8_kernel.py:21-55",
    ),
    _compressed_tensors("int8_channel", "int8", 127.5, TOKEN),
    _compressed_tensors("int8_tensor", "int8", 127.5, TENSOR),
    _compressed_tensors("int4_group", "int4", 7.5, group(128)),
    _compressed_tensors("int4_channel", "int4", 7.5, CHANNEL),
)
