"""SGLang's float8 quantizers."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TOKEN, Blocks, Chain, Recipe, group
from narrowgauge.reference.recipes.common import ENGINE_FP8, GIVEN, OCP_FP8, SGLANG, TILE_128

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


def _triton(name: str, element: Chain, *encode: tuple[str, Chain]) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_group_triton_{name}",
        blocks=group(128),
        destinations=ENGINE_FP8,
        steps=(("scale", ("amax", _LOWEST, ("div", "bound"))), *encode),
        element=element,
        source=f"{_TRITON}:132-224 (scales {name.replace('_', ' ')})",
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


def _weights(name: str, *power: str | tuple[str, float]) -> Recipe:
    return Recipe(
        name=f"sglang.fp8_block{name}",
        blocks=TILE_128,
        destinations=OCP_FP8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("at_least_or_nan", 1e-4), ("div", "bound"), *power)), _INVERSE),
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
        element=("x", ("mul", "encode")),
        source=f"{_CSRC}/per_token_group_quant.cuh:277-407",
    ),
    _triton("row_major", ("x", ("mul", "encode"), ("clamp_fmax_first", "bound")), _INVERSE),
    _triton("column_major", ("x", ("div", "scale"), ("clamp_fmax_first", "bound"))),
    Recipe(
        name="sglang.fp8_native_token",
        blocks=TOKEN,
        destinations=ENGINE_FP8,
        amax_nan="keep",
        steps=(("scale", ("amax", ("at_least_or_nan", 1e-12), ("div", "bound"))),),
        element=("x", ("div", "scale"), ("clamp_keep_nan", "bound")),
        source=f"{_TRITON}:1000-1030",
    ),
    *(_static(name, blocks) for name, blocks in GIVEN.items() if name in ("tensor", "token")),
    _weights(""),
    # the exponent is held to 1..254: a scale that is NaN or infinite becomes 2^127
    _weights("_ue8m0", ("not_finite_to", 2.0**127), "ceil_pow2"),
)
