"""The recipe catalogue. Adding a quantizer of an engine is one entry here."""

from __future__ import annotations

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.recipe import Destination, Recipe

#: vLLM and SGLang hold FNUZ to 224 = 448 / 2, which keeps its codes those of OCP; the format itself reaches 240.
ENGINE_FP8 = (
    Destination("float8_e4m3fn", 448.0, "ocp_saturate"),
    Destination("float8_e4m3fnuz", 224.0, "fnuz_saturate"),
)

RECIPES: dict[str, Recipe] = {
    r.name: r
    for r in (
        Recipe(
            name="vllm.fp8_per_token_dynamic",
            granularity="token",
            destinations=ENGINE_FP8,
            constants=(("minimum", ("bound", ("mul", 512.0), ("recip",))),),
            scale=("amax", ("div", "bound"), ("at_least", "minimum")),
            encode=("scale",),
            apply="div",
            amax_nan="drop",
            clamp="fmin_first",
            source="vLLM 0.33.0, csrc/quantization: common.cu:203-245, utils.cuh:31-39",
        ),
        Recipe(
            name="sglang.fp8_per_token_cta",
            granularity="token",
            destinations=ENGINE_FP8,
            scale=("amax", ("div", "bound")),
            encode=("scale", ("recip",)),
            apply="mul",
            amax_nan="drop",
            clamp="fmin_first",
            source="SGLang 0.5.23, kernels/jit/csrc/gemm/per_token_quant_fp8.cuh:102 (the CTA kernel; no minimum)",
        ),
    )
}


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. Raises ``BadInput`` with near names."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def resolve(recipe: str | Recipe) -> Recipe:
    """A recipe given by name or as data."""
    return recipe_named(recipe) if isinstance(recipe, str) else recipe
