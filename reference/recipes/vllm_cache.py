"""What vLLM writes into its key-value caches. A head stands for 128 columns of a row."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, TIMES_GLOBAL, Blocks, Chain, Destination, Recipe, Step, group
from narrowgauge.reference.recipes.common import ENGINE_FP8, FP4, VLLM

_CACHE, _TOKEN_HEAD = f"{VLLM}, csrc/cache_kernels.cu", f"{VLLM}, triton_reshape_and_cache_flash.py"
_NVFP4 = f"{VLLM}, nvfp4_kv_cache_kernels.cu"
_HEAD = {"tensor": TENSOR, "head": Blocks(0, 128)}
#: no clamp: the cast itself saturates
_CUDA = (Destination("float8_e4m3fn", 448.0, "ocp_saturate"), Destination("float8_e5m2", 57344.0, "ocp_saturate"))
_HIP = (Destination("float8_e4m3fn", 448.0, "ocp_saturate"), Destination("float8_e4m3fnuz", 240.0, "fnuz_saturate"))
_TRITON = (
    Destination("float8_e4m3fn", 448.0, "triton_nvidia"),
    Destination("float8_e4m3fnuz", 240.0, "triton_amd_fnuz"),
)


def _given(name: str, blocks: Blocks, to: tuple[Destination, ...], source: str, *rounded: Step) -> Recipe:
    return Recipe(
        name=f"vllm.kv_fp8_{name}",
        blocks=blocks,
        destinations=to,
        inputs=("scale",),
        steps=(),
        element=("x", ("div", "scale"), *rounded),
        source=source,
    )


def _token_head(name: str, to: tuple[Destination, ...], *held: str | Step) -> Recipe:
    return Recipe(
        name=f"vllm.kv_{name}_token_head",
        blocks=group(128),
        destinations=to,
        steps=(("scale", ("amax", ("div", "bound"), ("at_least", 1e-6))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode"), *held),
        source=f"{_TOKEN_HEAD}:169-286",
    )


def _latent(name: str, scale: Chain, source: str) -> Recipe:
    return Recipe(
        name=f"vllm.{name}",
        blocks=group(128),
        destinations=ENGINE_FP8,
        steps=(("scale", scale),),
        element=("x", ("div", "scale")),
        source=source,
    )


def _nvfp4(name: str, largest: Chain, source: str) -> Recipe:
    """Given is the scale that a reader multiplies by; ``largest`` is what an element may reach, as a reciprocal."""
    return Recipe(
        name=f"vllm.nvfp4_kv{name}",
        blocks=group(16),
        destinations=FP4,
        amax_nan="all",
        inputs=("global_scale",),
        reader=TIMES_GLOBAL,
        steps=(
            ("inverse", ("global_scale", "recip")),
            ("part", largest),
            ("scale", ("amax", ("mul", "part"), ("mul", "inverse"))),
            ("wide", ("inverse", "recip_approx", ("mul", "stored"))),
            ("encode", ("wide", "recip_approx", ("zero_where_zero", "stored"))),
        ),
        element=("x", ("mul", "encode")),
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source=source,
    )


_INDEX: Chain = ("amax", ("at_least", 1e-4), ("div", "bound"))

RECIPES = (
    *(_given(name, blocks, _CUDA, f"{_CACHE}:265-421 (CUDA)") for name, blocks in _HEAD.items()),
    *(
        _given(f"{name}_rocm", blocks, _HIP, f"{_CACHE} (ROCm; 16 bits of float16 apart)")
        for name, blocks in _HEAD.items()
    ),
    # float16 alone is rounded once more
    *(
        _given(f"{name}_rocm_float16", blocks, _HIP, f"{VLLM}, amd/quant_utils.cuh:259-267", ("round", "float16"))
        for name, blocks in _HEAD.items()
    ),
    _given("tensor_triton", TENSOR, _TRITON, f"{_TOKEN_HEAD}:33-154 (the store's own cast)"),
    _token_head(
        "int8",
        (Destination("int8", 127.0, "integer_truncated"),),
        "add_half_and_cut",
        ("at_least", -128.0),
        ("at_most", "bound"),
    ),
    _token_head("fp8", ENGINE_FP8, ("clamp_fmax_first", "bound")),
    # the least scale is set after the division
    _latent(
        "fp8_ds_mla",
        ("amax", ("div", "bound"), ("at_least", 1e-4), "exp2_ceil_log2"),
        f"{_CACHE}:529-635,1466-1491",
    ),
    # the least amax is set before the division
    _latent("fp8_indexer", _INDEX, f"{_CACHE}:637-705"),
    _latent("fp8_indexer_ue8m0", (*_INDEX, "exp2_ceil_log2"), f"{_CACHE}:637-705 (ue8m0)"),
    Recipe(
        name="vllm.nvfp4_ds_mla",
        blocks=group(16),
        destinations=FP4,
        steps=(
            ("scale", ("amax", ("div", "bound"), ("at_least", 2.0**-9))),
            ("encode", ("stored", "recip")),
        ),
        element=("x", ("mul", "encode")),
        scale_format="float8_e4m3fn",
        scale_cast="e4m3_ceil",
        source=f"{VLLM}, nvfp4_ds_mla_cache_kernels.cu:112-131,161 (the scale upward)",
    ),
    _nvfp4("", ("bound", "recip_approx"), f"{_NVFP4}:216"),
    # the other candidate of "4 over 6": the largest element becomes 4
    _nvfp4("_over4", ("bound", ("sub", 2.0), "recip_approx"), f"{_NVFP4}:117-160 (4 over 6, the scale for 4)"),
)
