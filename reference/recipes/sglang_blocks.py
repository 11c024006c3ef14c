"""SGLang's FP4 and INT8 quantizers, and its key-value caches."""

from __future__ import annotations

from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import TENSOR, TIMES_GLOBAL, Chain, Destination, Recipe, group
from narrowgauge.reference.recipes.common import FP4, OCP_FP8, SGLANG
from narrowgauge.reference.recipes.standards import E8M0

_MXFP4, _KVFP4 = f"{SGLANG}, mxfp4_tensor.py", f"{SGLANG}, kvfp4_tensor.py"
_POOL = f"{SGLANG}, memory_pool.py"


def _mxfp4(name: str, columns: int, cast: CastPolicy, power: Chain, element: Chain, source: str) -> Recipe:
    """What is no number as an exponent becomes the byte 0 (left open by C; torch on x86), and a NaN code is 0."""
    return Recipe(
        name=f"sglang.{name}",
        blocks=group(columns),
        destinations=(Destination("float4_e2m1fn", 6.0, cast),),
        amax_nan="keep",
        steps=(("power", power), ("scale", ("power", ("not_finite_to", 0.0)))),
        element=element,
        scale_format=E8M0,
        scale_cast="e8m0_ceil",
        source=source,
    )


#: -0 and what divides to it count as not negative
_BY_SIGN: Chain = ("x", ("div", "power"))
_LEAST = ("at_least_or_nan", 1e-10)


def _kv(name: str, number: bool, source: str, held: Chain, *casts: str) -> Recipe:
    """A scale that is a tensor is rounded to the format of x; one that is a Python number becomes a multiplier."""
    formats = (("float8_e4m3fn", 448.0), ("float8_e4m3fnuz", 240.0), ("float8_e5m2", 57344.0))
    encode: Chain = ("scale", "recip") if number else ("scale", ("round", "source"))
    return Recipe(
        name=f"sglang.kv_fp8{name}{'_number' if number else ''}",
        blocks=TENSOR,
        destinations=tuple(Destination(f, bound, cast) for (f, bound), cast in zip(formats, casts, strict=False)),
        inputs=("scale",),
        steps=(("encode", encode),),
        element=("x", ("mul" if number else "div", "encode"), ("round", "source"), *held),
        source=source,
    )


_TORCH = ("torch_from_2_13",) * 3
_COMMIT = f"{SGLANG}, cache_move.py:59-142"

RECIPES = (
    # zeros of both signs become -0, and NaN, whose sign torch says is 0
    _mxfp4(
        "mxfp4_util",
        32,
        CastPolicy("nearest_zero", nan="zero"),
        (
            "amax",
            ("div", "bound"),
            ("round", "source"),
            ("exp2_ceil_log2_in", "source"),
            ("at_least_or_nan", 2.0**-127),
        ),
        (*_BY_SIGN, ("round", "source"), ("nan_to", -0.0), ("zero_to", -0.0)),
        f"{_MXFP4}:25-75 (CUDA; eager, in the format of x)",
    ),
    Recipe(
        name="sglang.mxfp4_rne",
        blocks=group(32),
        destinations=(Destination("float4_e2m1fn", 6.0, CastPolicy(nan="zero", negative_zero="drop")),),
        amax_nan="keep",
        # by bits, NaN becomes an infinity
        steps=(("scale", ("amax", ("even_pow2", 1), ("mul", 0.25))),),
        element=("x", ("div", "stored")),
        scale_format=E8M0,
        scale_cast="e8m0_floor",
        source=f"{SGLANG}, fp8_utils.py:2097-2132 (ROCm)",
    ),
    _mxfp4(
        "fp4_kv_block16",
        16,
        CastPolicy("nearest_away", nan="zero"),
        ("amax", ("div", "bound"), _LEAST, "exp2_ceil_log2"),
        (*_BY_SIGN, ("zero_to", 0.0)),
        f"{_KVFP4}:50-101 (under torch.compile, in float32)",
    ),
    _mxfp4(
        "fp4_kv_block16_eager",
        16,
        CastPolicy("nearest_away", nan="zero"),
        ("amax", ("div", "bound"), ("round", "source"), _LEAST, ("round", "source"), ("exp2_ceil_log2_in", "source")),
        (*_BY_SIGN, ("round", "source"), ("zero_to", 0.0)),
        f"{_KVFP4}:50-101 (eager, in the format of x)",
    ),
    Recipe(
        name="sglang.nvfp4_kv_sm90",
        blocks=group(16),
        destinations=FP4,
        amax_nan="all",
        inputs=("global_scale",),
        reader=TIMES_GLOBAL,
        steps=(
            ("inverse", ("global_scale", "recip")),
            ("sixth", ("bound", "recip_approx")),
            ("scale", ("amax", ("mul", "sixth"), ("mul", "inverse"))),
            ("wide", ("inverse", "recip_approx", ("mul", "stored"))),
            ("encode", ("wide", "recip_approx", ("zero_where_zero", "stored"))),
        ),
        element=("x", ("mul", "encode")),
        scale_format="float8_e4m3fn",
        scale_cast="ptx_satfinite",
        source=f"{_KVFP4}:193-211 (SM90: 1 over the given scale, then FlashInfer's fp4_quantize, which is not read)",
        evidence="document",
    ),
    Recipe(
        name="sglang.int8_group",
        blocks=group(128),
        destinations=(Destination("int8", 127.0, "integer_truncated"),),
        steps=(
            ("scale", ("amax", ("at_least", 1e-10), ("mul", "1/bound"))),
            ("encode", ("amax", ("at_least", 1e-10), ("rdiv", "bound"))),
        ),
        element=("x", ("mul", "encode"), ("at_least", -128.0), ("at_most", "bound")),
        source=f"{SGLANG}, kernels/jit/csrc/gemm/per_token_group_quant.cuh:62-71,277-407",
    ),
    Recipe(
        name="sglang.int8_group_triton",
        blocks=group(128),
        destinations=(Destination("int8", 127.0, "integer_truncated"),),
        steps=(("scale", ("amax", ("at_least", 1e-10), ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode"), ("clamp_fmax_first", "bound")),
        source=f"{SGLANG}, fp8_kernel.py:132-224 (to int8)",
    ),
    # no minimum: a group of zeros has the scale 0
    Recipe(
        name="sglang.fp8_dsa",
        blocks=group(128),
        destinations=OCP_FP8,
        amax_nan="all",
        steps=(("scale", ("amax", ("div", "bound"))), ("encode", ("scale", "recip"))),
        element=("x", ("mul", "encode"), ("clamp_fmax_first", "bound")),
        source=f"{SGLANG}, dsa_quant_k_cache.py:269-272",
    ),
    *(_kv("", number, f"{_POOL}:2926-2936", (), *_TORCH) for number in (False, True)),
    *(
        _kv("_commit", number, _COMMIT, (("clamp_keep_nan", "bound"),), "ocp_saturate", "fnuz_saturate")
        for number in (False, True)
    ),
)
