# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the engines' caches, blocks of four bits and weights, and of what torch does on a GPU.

Written from the words of the facts on the engines, as second_recipes is; it shares nothing with reference/recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce

from narrowgauge.suites.meta.second_derivation import Number, bind, cast_bound, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_levels import approximate, signed, subtract, to_int32
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
    floor_log2,
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

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))
_SIX, _E4M3 = whole_number(6), "float8_e4m3fn"
#: the largest finite value of each format
_LARGEST = {_E4M3: 448, "float8_e4m3fnuz": 240, "float8_e5m2": 57344, "float4_e2m1fn": 6, "int8": 127}


def amax_all(block: Block) -> Number:
    """A maximum without a seed: NaN is dropped, unless there is nothing else."""
    return _NAN if all(x.kind == "nan" for x in block) else amax_drop(block)


def special(x: Number, format: str) -> int:
    """The cast that makes infinity of what overflows, or NaN where there is none."""
    policy = {
        "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
        "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
    }  # fmt: skip
    return cast_bound(x, bind(policy, format))


def finite_or_special(x: Number, format: str) -> int:
    """The cast that holds finite numbers to the largest, and makes NaN of infinity."""
    return special(x, format) if x.kind == "inf" else code(x, format)


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
        qmax = whole_number(448 if format == _E4M3 else 224)
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
    return code(x, format) if format == _E4M3 else finite_or_special(x, format)


def of_torch(x: Number, format: str) -> int:
    """torch from 2.13: E4M3 saturates, the others do not."""
    return code(x, format) if format == _E4M3 else special(x, format)


def pool(number: bool, held: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """SGLang: x over the scale rounded to x's format, or times the reciprocal of a number; rounded to x's format."""
    factor = divide(_ONE, given["scale"]) if number else rounded(given["scale"], source)
    ys = [rounded(multiply(x, factor) if number else divide(x, factor), source) for x in block]
    if held:
        top = whole_number(_LARGEST[format])
        ys = [clamped("keep", y, Number("finite", True, top.magnitude), top) for y in ys]
    return Answer([(code if held else of_torch)(y, format) for y in ys], float32_bits(given["scale"]))


def head(block: Block, source: str, format: str, given: Given) -> Answer:
    """max(amax/max, 1e-6); times the reciprocal; int8 adds a half away from zero, then cuts; NaN is the least."""
    top = whole_number(127 if format == "int8" else 448 if format == _E4M3 else 224)
    low = whole_number(-128) if format == "int8" else Number("finite", True, top.magnitude)
    scale = fmax(divide(amax_drop(block), top), constant(1e-6))
    ys = [multiply(x, divide(_ONE, scale)) for x in block]
    if format != "int8":
        return Answer([code(clamped("fmax first", y, low, top), format) for y in ys], float32_bits(scale))
    halves = [subtract(y, constant(0.5 if y.negative else -0.5)) for y in ys]
    codes = [integer(clamped("fmax first", y, low, top), format, "toward_zero") for y in halves]
    return Answer(codes, float32_bits(scale))


def latent_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = E4M3 of max(amax/6, 2^-9); x times the exact reciprocal of it."""
    stored = code(fmax(divide(amax_drop(block), _SIX), power(-9)), _E4M3)
    factor = divide(_ONE, decode(stored, _E4M3))
    return Answer([code(multiply(x, factor), format) for x in block], stored)


def kernel_fp4(largest: int, block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = g * (amax * rcp(largest)) in E4M3; out = rcp(SF * rcp(g)), 0 where SF is 0. g is 1 over what is given."""
    g = divide(_ONE, given["global_scale"])
    stored = code(multiply(multiply(amax_all(block), approximate(whole_number(largest), 0)), g), _E4M3)
    held = decode(stored, _E4M3)
    out = _ZERO if is_zero(held) else approximate(multiply(held, approximate(g, 0)), 0)
    return Answer([code(multiply(x, out), format) for x in block], stored)


def triton_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = clamp(g * (amax * fl(1/6))); out = g/SF, 0 where SF is 0; NaN is held to the least. No zero has a sign."""
    g, top = given["global_scale"], whole_number(448)
    sf = multiply(g, multiply(amax_all(block), divide(_ONE, _SIX)))
    stored = code(clamped("fmax first", sf, whole_number(-448), top), _E4M3)
    held = decode(stored, _E4M3)
    out = _ZERO if is_zero(held) else divide(g, held)
    ys = [clamped("fmax first", multiply(x, out), whole_number(-6), _SIX) for x in block]
    return Answer([0 if is_zero(y) else code(y, format) for y in ys], stored)


# ---------------- E2M1 with a power of two

_BOUNDS = [Fraction(b) for b in ("0.25", "0.75", "1.25", "1.75", "2.5", "3.5", "5")]


def counted(x: Number, inclusive: bool) -> int:
    """How many bounds a magnitude is above, or at or above; an infinity is above all, and NaN above none."""
    if x.kind != "finite":
        return 7 if x.kind == "inf" else 0
    return sum(x.magnitude >= b if inclusive else x.magnitude > b for b in _BOUNDS)


def counted_blocks(
    width: str | None, inclusive: bool, low: float, zero: int, block: Block, source: str, format: str, given: Given
) -> Answer:
    """Scale 2**ceil(log2(max(amax/6, low))), the logarithm rounded to ``width`` or x's format; codes by counting.

    ``zero``: the code of a zero. What is no number as an exponent is stored as 0.
    """
    own = width or source
    ratio = least(rounded(divide(amax_keep(block), _SIX), own), rounded(constant(low), own) if low else _ZERO)
    e = None
    if ratio.kind == "finite":
        e = -127 if is_zero(ratio) else max(_ceil_log2_in(ratio, own), -127)
    scale = power(e) if e is not None else ratio
    codes = []
    for x in block:
        y = rounded(divide(x, scale), own)
        n = counted(y, inclusive)
        codes.append(zero if is_zero(y) else 0 if y.kind == "nan" else n + (8 if y.negative else 0))
    return Answer(codes, 0 if e is None else e + 127)


def _ceil_log2_in(x: Number, format: str) -> int:
    """ceil of the logarithm, rounded to a format."""
    e = ceil_of_rounded_log2(x)
    if format == "float32" or x.magnitude == Fraction(2) ** floor_log2(x):
        return e
    below = floor_log2(x)
    # the logarithm lies above `below`: it is rounded down to it where it lies within half a place
    near = rounded(_log2(x), format)
    return below if near.kind == "finite" and signed(near) == below else e


def _log2(x: Number) -> Number:
    """The logarithm to some forty digits."""
    from decimal import Context, Decimal

    context = Context(prec=60)
    ratio = context.divide(Decimal(x.magnitude.numerator), Decimal(x.magnitude.denominator))
    log = Fraction(context.divide(context.ln(ratio), context.ln(Decimal(2))))
    return Number("finite", log < 0, abs(log))


def even_nearest(block: Block, source: str, format: str, given: Given) -> Answer:
    """SGLang on ROCm: EVEN by bits of a normal amax; nearest even; NaN is 0 and no code 0 has a sign."""
    bits = float32_bits(amax_keep(block, constant(2.0**-126)))
    held = min(max((((bits + 0x200000) & 0x7F800000) >> 23) - 2, 0), 254)
    held = 254 if (bits + 0x200000) & 0x7F800000 == 0x7F800000 else held
    codes = []
    for x in block:
        y = divide(x, power(held - 127))
        made = 0 if y.kind == "nan" else code(y, format)
        codes.append(0 if made == 8 else made)
    return Answer(codes, held)


def even_kernel(
    field_of_nan: int,
    subnormal_is_zero: bool,
    cast: Callable[[Number], int],
    infinite: int,
    block: Block,
    source: str,
    format: str,
    given: Given,
) -> Answer:
    """EVEN by bits, two binades down; the field 0 as a float32 may be 0, and the multiplier then too.

    ``infinite``: the stored field of what the rounding makes an infinity of. ``field_of_nan``: of NaN alone.
    """
    amax = amax_all(block)
    field = (float32_bits(amax_drop(block)) + 0x200000) >> 23
    held = field_of_nan if amax.kind == "nan" else infinite if field == 255 else max(field - 2, 0)
    factor = _ZERO if held == 0 and subnormal_is_zero else divide(_ONE, power(held - 127))
    return Answer([cast(multiply(x, factor)) for x in block], held)


def _to_fp4(x: Number) -> int:
    return code(x, "float4_e2m1fn")


def _by_bits(x: Number) -> int:
    """AITER's integers: NaN comes out as 1.5."""
    return 3 if x.kind == "nan" else _to_fp4(x)


def downcast(
    up: bool, cast: Callable[[Number, str], int], block: Block, source: str, format: str, given: Given
) -> Answer:
    """triton_kernels: the bits of amax/max, up or down to an exponent field, stored as it is; 1 over it, or 0 for 0.

    NaN alone is 0x7FC00000 or more: up, its carry goes to the sign and leaves 0; down, it is an infinity.
    """
    ratio = divide(amax_drop(block), whole_number(_LARGEST[format]))
    bits = (float32_bits(ratio) + (0x7FFFFF if up else 0)) & 0x7F800000
    if amax_all(block).kind == "nan" and not up:
        bits = 0x7F800000
    factor = divide(_ONE, decode(bits, "float32")) if bits else _ZERO
    return Answer([cast(multiply(x, factor), format) for x in block], bits >> 23)


def cut_then_nearest(x: Number, format: str) -> int:
    """Below 1 an element keeps what is above 2**-23; then nearest even."""
    if x.kind == "finite" and x.magnitude < 1:
        x = Number("finite", x.negative, Fraction(int(x.magnitude * 2**23), 2**23))
    return code(x, format)


def away(x: Number, format: str) -> int:
    """Ties away from zero; a NaN is the largest."""
    return 7 if x.kind == "nan" else counted(x, True) + (8 if x.negative else 0)


def hip_blocks(block: Block, source: str, format: str, given: Given) -> Answer:
    """AITER: amax times fl(1/max), up to a power of two by its bits; an infinity keeps 255; x over it."""
    top = whole_number(_LARGEST[format])
    ratio = multiply(amax_drop(block), divide(_ONE, top))
    bits = (float32_bits(ratio) + 0x7FFFFF) & 0x7F800000
    return Answer([code(divide(x, decode(bits, "float32")), format) for x in block], bits >> 23)


# ---------------- AITER, SGLang and vLLM by groups and rows


def aiter_triton(amax: Callable[[Block], Number], block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/max, x times 1 over it, no clamp: gfx950's cast and Triton's make NaN of infinity."""
    scale = given["scale"] if "scale" in given else divide(amax(block), whole_number(_LARGEST[format]))
    ys = [multiply(x, divide(_ONE, scale)) for x in block]
    if format == "int8":
        return Answer([integer(y, format, "toward_zero") for y in ys], float32_bits(scale))
    return Answer([finite_or_special(y, format) for y in ys], float32_bits(scale))


def aiter_fp4(block: Block, source: str, format: str, given: Given) -> Answer:
    """amax/6 in float32; x times 1 over it; NaN comes out as 1.5."""
    scale = divide(amax_all(block), _SIX)
    return Answer([_by_bits(multiply(x, divide(_ONE, scale))) for x in block], float32_bits(scale))


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
    ys = [multiply(x, factor_of(block, scale)) for x in block]
    held = ys if low is None else [clamped("fmax first", y, low, top) for y in ys]
    return Answer([integer(y, format, rounding) for y in held], float32_bits(scale))


def _inverse(block: Block, scale: Number) -> Number:
    return divide(_ONE, scale)


def _largest_over(block: Block, scale: Number) -> Number:
    return divide(whole_number(127), amax_drop(block, constant(1e-10)))


# ---------------- weights of four bits


def ends(block: Block) -> tuple[Number, Number]:
    """The least and the largest; NaN is dropped."""
    return reduce(fmin, block), reduce(fmax, block)


def unsigned(x: Number) -> Number:
    return Number(x.kind, False, x.magnitude)


def negated(x: Number) -> Number:
    return x if x.kind == "nan" else Number(x.kind, not x.negative, x.magnitude)


def whole(x: Number) -> Number:
    """To the nearest whole number, ties to even."""
    return whole_number(round(signed(x))) if x.kind == "finite" else x


def _code4(y: Number, zero: Number) -> int:
    """A whole number plus the zero point, held to 0 to 15; NaN is 0."""
    total = subtract(y, negated(zero))
    return 0 if total.kind == "nan" else min(max(to_int32(total), 0), 15)


def vllm_weights(with_zero: bool, absolute: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """Of GPTQ: max(|max/7|, |min/-8|), and 8 is zero. Of AWQ: a fifteenth of the span of 1e-5 at least, and the whole
    number next to min/s with its sign turned, or without it, held to 0 to 15. Everything in the weight's format."""
    low, high = ends(block)
    if with_zero:
        span = least(rounded(subtract(high, low), source), rounded(constant(1e-5), source))
        scale = rounded(divide(span, whole_number(15)), source)
        ratio = rounded(divide(low, scale), source)
        zero = whole(unsigned(ratio) if absolute else negated(ratio))
        zero = fmin(fmax(zero, _ZERO), whole_number(15))
    else:
        parts = [unsigned(rounded(divide(e, whole_number(d)), source)) for e, d in ((low, -8), (high, 7))]
        scale, zero = max_keep(parts), whole_number(8)
    ys = [whole(rounded(divide(x, scale), source)) for x in block]
    stored = cast_stored(scale, source)
    return Answer([_code4(y, zero) for y in ys], stored, to_int32(zero) % 2**32 if with_zero else None)


def max_keep(parts: Sequence[Number]) -> Number:
    return _NAN if any(p.kind == "nan" for p in parts) else reduce(fmax, parts)


def cast_stored(scale: Number, format: str) -> int:
    return special(scale, format)


def gptq_weights(symmetric: bool, kept_as: str, block: Block, source: str, format: str, given: Given) -> Answer:
    """Of a range that holds 0; symmetric: from -amax to amax, or from 0 where nothing is negative. In float32."""
    low, high = ends(block)
    low, high = fmin(low, _ZERO), fmax(high, _ZERO)
    if symmetric:
        high = fmax(unsigned(low), high)
        low = _ZERO if is_zero(low) else negated(high)
    if is_zero(low) and is_zero(high):
        low, high = whole_number(-1), _ONE
    scale = divide(subtract(high, low), whole_number(15))
    zero = whole_number(8) if symmetric else whole(divide(negated(low), scale))
    point = whole_number(signed_int(zero)) if not symmetric else zero
    codes = [_code4(whole(divide(x, scale)), point) for x in block]
    return Answer(codes, cast_stored(scale, kept_as), None if symmetric else to_int32(zero) % 2**32)


def signed_int(x: Number) -> int:
    """What is stored of a zero point as an int32."""
    return to_int32(x)


_ROUND_UP, _ROUND_DOWN = True, False
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
    "vllm.mxfp4_triton": partial(even_kernel, 0, True, _to_fp4, 254),
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
    "sglang.mxfp4_util": partial(counted_blocks, None, False, 0.0, 8),
    "sglang.mxfp4_rne": even_nearest,
    "sglang.fp4_kv_block16": partial(counted_blocks, "float32", True, 1e-10, 0),
    "sglang.fp4_kv_block16_eager": partial(counted_blocks, None, True, 1e-10, 0),
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
    "aiter.mxfp8_hip": hip_blocks,
    "aiter.mxfp4_hip": hip_blocks,
    "aiter.mxfp4_triton": partial(even_kernel, 254, False, _by_bits, 254),
    "aiter.nvfp4_triton": aiter_fp4,
    "triton_kernels.mxfp8": partial(downcast, _ROUND_UP, code),
    "triton_kernels.mxfp8_down": partial(downcast, _ROUND_DOWN, code),
    "triton_kernels.mxfp4": partial(downcast, _ROUND_UP, cut_then_nearest),
    "triton_kernels.mxfp4_down": partial(downcast, _ROUND_DOWN, cut_then_nearest),
    "vllm.triton_kernels_mxfp4": partial(downcast, _ROUND_UP, away),
    "vllm.triton_kernels_mxfp4_down": partial(downcast, _ROUND_DOWN, away),
    **{f"vllm.uint4b8{on}": partial(vllm_weights, False, False) for on in ("", "_bf16")},
    **{f"vllm.uint4_zero_point{on}": partial(vllm_weights, True, True) for on in ("", "_bf16")},
    **{f"awq.uint4{on}": partial(vllm_weights, True, False) for on in ("", "_bf16")},
    **{
        f"gptq.uint4_{n}{on}": partial(gptq_weights, n == "symmetric", kept_as)
        for n in ("symmetric", "asymmetric")
        for on, kept_as in (("", "float16"), ("_bf16", "bfloat16"))
    },
}
