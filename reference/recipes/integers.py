"""int8 quantizers of the engines."""

from __future__ import annotations

from narrowgauge.contracts.recipe import LESS_ZERO_POINT, TENSOR, TOKEN, Blocks, Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import SGLANG, VLLM

_INT8 = (Destination("int8", 127.0, "integer_nearest"),)
_CUT = (Destination("int8", 127.0, "integer_truncated"),)
_SCALED = f"{VLLM}, scaled_quant.cu"


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


def _group(name: str, chain: Chain, source: str, *encode: tuple[str, Chain]) -> Recipe:
    return Recipe(
        name=f"vllm.int8_group{name}",
        blocks=group(128),
        destinations=_CUT,
        steps=(("scale", ("amax", ("at_least", 1e-10), ("div", "bound"))), *encode),
        # from -128, which only a NaN reaches: amax is below
        element=(*chain, ("at_least", -128.0), ("at_most", "bound")),
        source=source,
    )


def _triton_token(name: str, source: str) -> Recipe:
    return Recipe(
        name=name,
        blocks=TOKEN,
        destinations=(Destination("int8", 127.0, "integer_away"),),
        steps=(
            ("scale", ("amax", ("at_least", 1e-10), ("div", "bound"))),
            ("encode", ("amax", ("at_least", 1e-10), ("rdiv", "bound"))),
        ),
        element=("x", ("mul", "encode")),
        source=source,
    )


#: rounded to a whole number first, then the zero point is added, then brought into the range of int8
_WITH_ZERO: tuple[str | Step, ...] = ("rint", ("add_within_int8", "zero_point"))

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
        reader=LESS_ZERO_POINT,
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
        reader=LESS_ZERO_POINT,
        source=f"{_SCALED}:211-261",
    ),
    _group("", ("x", ("mul", "encode")), f"{VLLM}, per_token_group_quant.cu:89-90", ("encode", ("scale", "recip"))),
    _group("_triton", ("x", ("div", "scale")), f"{VLLM}, int8_utils.py:121-128; {SGLANG}, int8_kernel.py:94-133"),
    _triton_token("sglang.int8_per_token", f"{SGLANG}, int8_kernel.py:21-55"),
    _triton_token("vllm.int8_per_token_triton", f"{VLLM}, int8_utils.py:35-60"),
    # fused with an RMSNorm, whose result is the 16-bit x; float8 is vllm.fp8_per_token_dynamic, and static as unfused
    Recipe(
        name="vllm.int8_rms_norm_token",
        blocks=TOKEN,
        destinations=_INT8,
        steps=(
            ("scale", ("amax", ("div", "bound"), ("at_least", 2.0**-23))),
            ("encode", ("scale", "recip")),
        ),
        element=("x", ("mul", "encode")),
        source=f"{VLLM}, fused_kernels/layernorm_utils.cuh:90-193, utils.cuh:41-60",
    ),
)
