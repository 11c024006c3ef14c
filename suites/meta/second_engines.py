# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the engines' caches, blocks of four bits and weights, and of what torch does on a GPU.

Written from the words of the facts on the engines, as second_recipes is; it shares nothing with reference/recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial

from narrowgauge.suites.meta.second_bits import BITS, E4M3, LARGEST, SIX, amax_all, by_bits, finite_or_special, special
from narrowgauge.suites.meta.second_derivation import Number, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import approximate, subtract
from narrowgauge.suites.meta.second_quantizers import divide, fmax, fmin, multiply
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    Rule,
    ScaleOf,
    amax_drop,
    amax_keep,
    at_least,
    ceil_log2,
    ceil_of_rounded_log2,
    clamped,
    code,
    constant,
    eps,
    eps_keep,
    float32_bits,
    fp8,
    integer,
    least,
    over,
    power,
    rounded,
    times,
    token_minimum,
    up_to_power,
)
from narrowgauge.suites.meta.second_weights import WEIGHTS

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))


# ---------------- torch on a GPU, and in the format of x


def held_to_bound(by: Callable[[Callable[[Block], Number]], ScaleOf]) -> Rule:
    """Per token with an upper bound of amax, by torch, whose clamp keeps NaN."""

    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        def amax(block: Block) -> Number:
            found = amax_keep(block)
            return found if found.kind == "nan" else fmin(found, given["upper_bound"])

        return fp8(at_least(by(amax), token_minimum), "inverse", "keep")(block, source, format, given)

    return rule


def in_own_format(by_reciprocal: bool) -> Rule:
    """SGLang without AITER: amax at least 1e-12, over 448 (or times its reciprocal), x over it: each in x's format."""

    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        qmax = whole_number(448 if format == E4M3 else 224)
        amax = least(amax_keep(block), rounded(constant(1e-12), source))
        scale = multiply(amax, divide(_ONE, qmax)) if by_reciprocal else divide(amax, qmax)
        scale = rounded(scale, source)
        ys = [rounded(divide(x, scale), source) for x in block]
        low = Number("finite", True, qmax.magnitude)
        return Answer([code(clamped("keep", y, low, qmax), format) for y in ys], float32_bits(scale))

    return rule


# ---------------- caches


def kept(
    middle: str | None, cast: Callable[[Number, str], int], block: Block, source: str, format: str, given: Given
) -> Answer:
    """x over the given scale, perhaps rounded once more, and the cast; no clamp."""
    ys = [divide(x, given["scale"]) for x in block]
    return Answer([cast(rounded(y, middle) if middle else y, format) for y in ys], float32_bits(given["scale"]))


def by_backend(x: Number, format: str) -> int:
    """Triton's store: NVIDIA saturates; on AMD with FNUZ infinity is NaN."""
    return code(x, format) if format == E4M3 else finite_or_special(x, format)


def of_torch(x: Number, format: str) -> int:
    """torch from 2.13: E4M3 saturates, the others do not."""
    return code(x, format) if format == E4M3 else special(x, format)


def pool(number: bool, held: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """SGLang: x over the scale rounded to x's format, or times the reciprocal of a number; rounded to x's format."""
    factor = divide(_ONE, given["scale"]) if number else rounded(given["scale"], source)
    ys = [rounded(multiply(x, factor) if number else divide(x, factor), source) for x in block]
    if held:
        top = whole_number(LARGEST[format])
        ys = [clamped("keep", y, Number("finite", True, top.magnitude), top) for y in ys]
    return Answer([(code if held else of_torch)(y, format) for y in ys], float32_bits(given["scale"]))


def head(block: Block, source: str, format: str, given: Given) -> Answer:
    """max(amax/max, 1e-6); times the reciprocal; int8 adds a half away from zero, then cuts; NaN is the least."""
    top = whole_number(127 if format == "int8" else 448 if format == E4M3 else 224)
    low = whole_number(-128) if format == "int8" else Number("finite", True, top.magnitude)
    scale = fmax(divide(amax_drop(block), top), constant(1e-6))
    ys = [multiply(x, divide(_ONE, scale)) for x in block]
    if format != "int8":
        return Answer([code(clamped("fmax first", y, low, top), format) for y in ys], float32_bits(scale))
    halves = [subtract(y, constant(0.5 if y.negative else -0.5)) for y in ys]
    codes = [integer(clamped("fmax first", y, low, top), format, "toward_zero") for y in halves]
    return Answer(codes, float32_bits(scale))


def latent_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = E4M3 of max(amax/6, 2^-9), the next code where that is below; x times the exact reciprocal of it."""
    wanted = fmax(divide(amax_drop(block), SIX), power(-9))
    stored = code(wanted, E4M3)
    if stored < 0x7E and subtract(decode(stored, E4M3), wanted).negative:  # 0x7E is 448
        stored += 1
    factor = divide(_ONE, decode(stored, E4M3))
    return Answer([code(multiply(x, factor), format) for x in block], stored)


def kernel_fp4(largest: int, block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = g * (amax * rcp(largest)) in E4M3; out = rcp(SF * rcp(g)), 0 where SF is 0. g is 1 over what is given."""
    g = divide(_ONE, given["global_scale"])
    stored = code(multiply(multiply(amax_all(block), approximate(whole_number(largest), 0)), g), E4M3)
    held = decode(stored, E4M3)
    out = _ZERO if is_zero(held) else approximate(multiply(held, approximate(g, 0)), 0)
    return Answer([code(multiply(x, out), format) for x in block], stored)


def triton_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = clamp(g * (amax * fl(1/6))); out = g/SF, 0 where SF is 0; NaN is held to the least. No zero has a sign."""
    g, top = given["global_scale"], whole_number(448)
    sf = multiply(g, multiply(amax_all(block), divide(_ONE, SIX)))
    stored = code(clamped("fmax first", sf, whole_number(-448), top), E4M3)
    held = decode(stored, E4M3)
    out = _ZERO if is_zero(held) else divide(g, held)
    ys = [clamped("fmax first", multiply(x, out), whole_number(-6), SIX) for x in block]
    return Answer([0 if is_zero(y) else code(y, format) for y in ys], stored)


# ---------------- AITER, SGLang and vLLM by groups and rows


def aiter_triton(amax: Callable[[Block], Number], block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/max, x times 1 over it, no clamp: gfx950's cast and Triton's make NaN of infinity."""
    scale = given["scale"] if "scale" in given else divide(amax(block), whole_number(LARGEST[format]))
    ys = [multiply(x, divide(_ONE, scale)) for x in block]
    if format == "int8":
        return Answer([integer(y, format, "toward_zero") for y in ys], float32_bits(scale))
    return Answer([finite_or_special(y, format) for y in ys], float32_bits(scale))


def aiter_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/6 in float32; x times 1 over it; NaN comes out as 1.5."""
    scale = divide(amax_all(block), SIX)
    return Answer([by_bits(multiply(x, divide(_ONE, scale))) for x in block], float32_bits(scale))


def group_ue8m0(keeps_nan: bool, format16: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """amax*fl(1/448) up by bits; the multiplier 2**-e and the product in 16 bits; held to 448 from above.

    The multiplier is bits, 254 - the field: of the field 255 that is minus infinity.
    """
    top = whole_number(448)
    bits = float32_bits(multiply(amax_drop(block, constant(1e-10)), divide(_ONE, top)))
    field = (bits + 0x7FFFFF) >> 23
    factor = Number("inf", True, Fraction(0)) if field == 255 else rounded(power(127 - field), format16)
    codes = []
    for x in block:
        y = rounded(multiply(x, factor), format16)
        codes.append(code(y if y.kind == "nan" and keeps_nan else fmin(y, top), format))
    return Answer(codes, field)


def int8_rows(
    scale_of: ScaleOf,
    factor_of: Callable[[Block, Number], Number],
    low: Number | None,
    rounding: str,
    block: Block,
    source: str,
    format: str,
    given: Given,
) -> Answer:
    """x times a factor; held from ``low`` to 127 by fmax first, if at all; whole by ``rounding``."""
    top, scale = whole_number(127), scale_of(block, whole_number(127))
    factor = factor_of(block, scale)
    ys = [multiply(x, factor) for x in block]
    held = ys if low is None else [clamped("fmax first", y, low, top) for y in ys]
    return Answer([integer(y, format, rounding) for y in held], float32_bits(scale))


def _inverse(block: Block, scale: Number) -> Number:
    return divide(_ONE, scale)


def _largest_over(block: Block, scale: Number) -> Number:
    return divide(whole_number(127), amax_drop(block, constant(1e-10)))


_PER_TOKEN_GPU = at_least(times(amax_keep), token_minimum)
_MINUS_128 = whole_number(-128)


def on_both(name: str, rule: Callable[[Callable[[Callable[[Block], Number]], ScaleOf]], Rule]) -> dict[str, Rule]:
    """By a division, and on a GPU by the reciprocal."""
    return {name: rule(over), f"{name}_gpu": rule(times)}


ENGINES: Mapping[str, Rule] = {
    "vllm.fp8_native_tensor_gpu": fp8(_PER_TOKEN_GPU, "inverse", "keep"),
    "vllm.fp8_native_token_gpu": fp8(_PER_TOKEN_GPU, "inverse", "keep"),
    "vllm.fp8_native_group_gpu": fp8(_PER_TOKEN_GPU, "division", "keep"),
    "vllm.fp8_native_group_ue8m0_gpu": fp8(up_to_power(_PER_TOKEN_GPU, ceil_of_rounded_log2), "division", "keep"),
    **on_both("vllm.fp8_native_token_bounded", held_to_bound),
    **{
        f"vllm.fp8_native_static_{n}": fp8(None, "inverse", "keep") for n in ("tensor", "token", "channel", "group_128")
    },
    "vllm.fp8_block_gpu": fp8(times(eps_keep(1e-4)), "inverse", "none"),
    "vllm.fp8_block_ue8m0_gpu": fp8(up_to_power(times(eps_keep(1e-4)), ceil_of_rounded_log2), "inverse", "none"),
    **{f"vllm.kv_fp8_{n}{on}": partial(kept, None, code) for n in ("tensor", "head") for on in ("", "_rocm")},
    **{f"vllm.kv_fp8_{n}_rocm_float16": partial(kept, "float16", code) for n in ("tensor", "head")},
    **{f"plain.kv_fp8_{n}": partial(kept, None, code) for n in ("tensor", "head")},
    "vllm.kv_fp8_tensor_triton": partial(kept, None, by_backend),
    "vllm.kv_int8_token_head": head,
    "vllm.kv_fp8_token_head": head,
    "vllm.fp8_ds_mla": fp8(
        up_to_power(at_least(over(amax_drop), lambda q: constant(1e-4)), ceil_of_rounded_log2), "division", "none"
    ),
    "vllm.fp8_indexer": fp8(over(eps(1e-4)), "division", "none"),
    "vllm.fp8_indexer_ue8m0": fp8(up_to_power(over(eps(1e-4)), ceil_of_rounded_log2), "division", "none"),
    "vllm.nvfp4_ds_mla": latent_fp4,
    "vllm.nvfp4_kv": partial(kernel_fp4, 6),
    "vllm.nvfp4_kv_over4": partial(kernel_fp4, 4),
    "vllm.nvfp4_triton": triton_fp4,
    "vllm.int8_per_token_triton": partial(int8_rows, over(eps(1e-10)), _largest_over, None, "nearest_away"),
    "vllm.int8_rms_norm_token": partial(
        int8_rows, at_least(over(amax_drop), lambda q: power(-23)), _inverse, None, "nearest_even"
    ),
    "sglang.fp8_group_ue8m0_bfloat16": partial(group_ue8m0, True, "bfloat16"),
    "sglang.fp8_group_ue8m0_float16": partial(group_ue8m0, False, "float16"),
    "sglang.fp8_group_triton_column_major_ue8m0": fp8(
        up_to_power(over(eps(1e-10)), ceil_of_rounded_log2), "division", "fmax first"
    ),
    **{f"sglang.fp8_native_{n}": in_own_format(False) for n in ("tensor", "token")},
    **{f"sglang.fp8_native_{n}_gpu": in_own_format(True) for n in ("tensor", "token")},
    "sglang.fp8_block_ue8m0_gpu": fp8(up_to_power(times(eps_keep(1e-4)), ceil_log2, power(127)), "inverse", "none"),
    "sglang.nvfp4_kv_sm90": partial(kernel_fp4, 6),
    "sglang.int8_group": partial(int8_rows, times(eps(1e-10)), _largest_over, _MINUS_128, "toward_zero"),
    "sglang.int8_group_triton": partial(int8_rows, over(eps(1e-10)), _inverse, whole_number(-127), "toward_zero"),
    "sglang.fp8_dsa": fp8(over(amax_all), "inverse", "fmax first"),
    "sglang.kv_fp8": partial(pool, False, False),
    "sglang.kv_fp8_number": partial(pool, True, False),
    "sglang.kv_fp8_commit": partial(pool, False, True),
    "sglang.kv_fp8_commit_number": partial(pool, True, True),
    **{f"aiter.{n}_triton": partial(aiter_triton, amax_all) for n in ("fp8", "int8")},
    **{f"aiter.{n}_triton_tensor": partial(aiter_triton, amax_drop) for n in ("fp8", "int8")},
    **{f"aiter.{n}_triton_static": partial(aiter_triton, amax_drop) for n in ("fp8", "int8")},
    "aiter.nvfp4_triton": aiter_fp4,
    **BITS,
    **WEIGHTS,
}
