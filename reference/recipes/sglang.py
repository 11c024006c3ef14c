"""SGLang's float8 quantizers."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Chain, Recipe, Step, group
from narrowgauge.reference.recipes.common import (
    ENGINE_FP8,
    GIVEN,
    OCP_FP8,
    OVER_BOUND,
    SGLANG,
    TILE_128,
)
from narrowgauge.reference.recipes.standards import E8M0

_CSRC = f"{SGLANG}, kernels/jit/csrc/gemm"
_TRITON = f"{SGLANG}, kernels/ops/quantization/fp8_kernel.py"
_INVERSE: tuple[str, Chain] = ("encode", ("scale", "recip"))
_TIMES: Chain = ("x", ("mul", "encode"), ("clamp_fmin_first", "bound"))
_LOWEST = ("at_least", 1e-10)


def _per_token(name: str, inverse: str, source: str) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_per_token_{name}",
        blocks=TOKEN,
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", inverse))),
        element=_TIMES,
        source=f"{_CSRC}/per_token_quant_fp8.cuh:{source}",
    )


def _triton(name: str, element: Chain, power: Chain = (), encode: tuple[tuple[str, Chain], ...] = ()) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_group_triton_{name}",
        blocks=group(128),
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", _LOWEST, ("div", "bound"), *power)), *encode),
        element=element,
        source=f"{_TRITON}:132-224 (scales {name.replace('_', ' ')})",
    )


def _native(name: str, blocks: Blocks, over: Step) -> Recipe:
    """Every operation in the format of x."""
    scale: Chain = ("amax", ("at_least_or_nan", 1e-12), ("round", "source"), over, ("round", "source"))
    return Recipe(
        name=f"sglang.fp8_native_{name}",
        blocks=blocks,
        destinations=ENGINE_FP8,
        amax_nan="keep",
        steps=(("scale", scale),),
        element=("x", ("div", "scale"), ("round", "source"), ("clamp_keep_nan", "bound")),
        source=f"{_TRITON}:1000-1030 (without AITER)",
    )


def _group_ue8m0(source: str, held: str) -> Recipe:
    """The multiplier and the product in 16 bits; a multiplier that float16 cannot hold is infinite there."""
    return Recipe(
        name=f"sglang.fp8_group_ue8m0_{source}",
        blocks=group(128),
        destinations=OCP_FP8,
        steps=(
            ("scale", ("amax", _LOWEST, ("mul", "1/bound"), "ceil_pow2")),
            # the multiplier of the exponent 255 is, by its bits, minus infinity
            ("encode", ("scale", "recip", ("zero_to", -(2.0**127)), ("mul", 4.0), ("mul", 0.25), ("round", source))),
        ),
        element=("x", ("mul", "encode"), ("round", source), (held, "bound")),
        scale_format=E8M0,
        scale_cast="gfloat_nonsaturate",
        source=f"{_CSRC}/per_token_group_quant.cuh:277-407 (scale_ue8m0, {source})",
    )


def _static(name: str, blocks: Blocks) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_native_static_{name}",
        blocks=blocks,
        destinations=ENGINE_FP8,
        inputs=("scale",),
        steps=(),
        element=("x", ("div", "scale"), ("clamp_keep_nan", "bound")),
        source=f"{_TRITON}:1000-1030",
    )


def _weights(on: str, over: Step) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_block_ue8m0{on}",
        blocks=TILE_128,
        destinations=OCP_FP8,
        amax_nan="keep",
        # the exponent is held to 1..254: a scale that is NaN or infinite becomes 2^127
        steps=(
            ("scale", ("amax", ("at_least_or_nan", 1e-4), over, ("not_finite_to", 2.0**127), "ceil_pow2")),
            _INVERSE,
        ),
        element=("x", ("mul", "encode")),
        source=f"{SGLANG}, fp8_utils.py:2394-2417",
    )


RECIPES = (
    _per_token("warp", "recip_or_zero", "55 (the warp kernel)"),
    _per_token("cta", "recip", "102 (the CTA kernel; no minimum)"),
    Recipe(
        name="sglang.fp8_per_tensor_dynamic",
        blocks=TENSOR,
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", ("div", "bound"))), _INVERSE),
        element=_TIMES,
        source=f"{_CSRC}/per_tensor_quant_fp8.cuh:51-95",
    ),
    Recipe(
        name="sglang.fp8_group",
        blocks=group(128),
        destinations=OCP_FP8,
        # the multiplier is 448 / amax, and not the reciprocal of what is stored
        steps=(
            ("scale", ("amax", _LOWEST, ("mul", "1/bound"))),
            ("encode", ("amax", _LOWEST, ("rdiv", "bound"))),
        ),
        # fminf alone: NaN becomes +bound
        element=("x", ("mul", "encode"), ("at_most", "bound")),
        source=f"{_CSRC}/per_token_group_quant.cuh:54-57, 277-407",
    ),
    # __hmin2_nan keeps NaN
    _group_ue8m0("bfloat16", "at_most_or_nan"),
    _group_ue8m0("float16", "at_most"),
    _triton("row_major", ("x", ("mul", "encode"), ("clamp_fmax_first", "bound")), encode=(_INVERSE,)),
    _triton("column_major", ("x", ("div", "scale"), ("clamp_fmax_first", "bound"))),
    _triton("column_major_ue8m0", ("x", ("div", "scale"), ("clamp_fmax_first", "bound")), ("exp2_ceil_log2",)),
    *(_native(f"tensor{on}", TENSOR, over) for on, over in OVER_BOUND.items()),
    *(_native(f"token{on}", TOKEN, over) for on, over in OVER_BOUND.items()),
    *(_static(name, blocks) for name, blocks in GIVEN.items() if name in ("tensor", "token")),
    *(_weights(on, over) for on, over in OVER_BOUND.items()),
)
