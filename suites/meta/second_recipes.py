# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the quantizer catalogue: block by block, exact fractions, one rounding per operation.

Written from the words of the facts on the engines; it shares nothing with reference/recipes. A rule takes the values
of one block and what the caller gives, and answers the codes and the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, reduce

from narrowgauge.suites.meta.second_derivation import (
    LAYOUTS,
    Bound,
    Number,
    bind,
    cast_bound,
    decode,
    is_zero,
    whole_number,
)
from narrowgauge.suites.meta.second_quantizers import divide, fmax, fmin, multiply

Given = Mapping[str, Number]
Block = Sequence[Number]

_IEEE: Mapping[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}  # fmt: skip
_SATURATE = {"overflow": "max", "infinity": "max"}
_NAN = Number("nan", False, Fraction(0))
_ONE, _ZERO = whole_number(1), whole_number(0)


@cache
def rule_of(format: str, **choices: str) -> Bound:
    """IEEE 754's policy with some other choices, bound to a format: once, since it is asked for with each element."""
    return bind({**_IEEE, **choices}, format)


def rounded(number: Number, format: str) -> Number:
    """The value of `format` nearest to a number; overflow to infinity."""
    return decode(cast_bound(number, rule_of(format)), format)


def constant(value: float | Fraction) -> Number:
    """The float32 nearest to a constant of a source."""
    return rounded(Number("finite", value < 0, abs(Fraction(value))), "float32")


def power(exponent: int) -> Number:
    return Number("finite", False, Fraction(2) ** exponent)


def floor_log2(x: Number) -> int:
    """The e with 2**e <= |x| < 2**(e + 1)."""
    e = x.magnitude.numerator.bit_length() - x.magnitude.denominator.bit_length()
    return e if Fraction(2) ** e <= x.magnitude else e - 1


def ceil_log2(x: Number) -> int:
    """The least e with x <= 2**e, which is what the bits of a float say."""
    e = floor_log2(x)
    return e if x.magnitude == Fraction(2) ** e else e + 1


def ceil_of_rounded_log2(x: Number) -> int:
    """ceil(fl(log2 x)): the logarithm is rounded to float32 first, and may fall on the integer below it."""
    context = Context(prec=60)
    ratio = context.divide(Decimal(x.magnitude.numerator), Decimal(x.magnitude.denominator))
    if x.magnitude == Fraction(2) ** floor_log2(x):
        return floor_log2(x)
    log = Fraction(context.divide(context.ln(ratio), context.ln(Decimal(2))))
    near = rounded(Number("finite", log < 0, abs(log)), "float32")
    return int(-((near.magnitude if near.negative else -near.magnitude) // 1))


def amax_drop(block: Block, seed: Number = _ZERO) -> Number:
    """fmaxf from a seed: NaN is dropped."""
    return reduce(fmax, (Number(x.kind, False, x.magnitude) for x in block), seed)


def amax_keep(block: Block, seed: Number = _ZERO) -> Number:
    """torch's amax, then clamp(min=seed): NaN stays."""
    return _NAN if any(x.kind == "nan" for x in block) else amax_drop(block, seed)


def least(x: Number, low: Number) -> Number:
    """torch's clamp(min=low): NaN stays."""
    return x if x.kind == "nan" else fmax(x, low)


def clamped(how: str, x: Number, low: Number, high: Number) -> Number:
    if how == "none" or (how == "keep" and x.kind == "nan"):
        return x
    return fmin(fmax(x, low), high) if how == "fmax first" else fmax(fmin(x, high), low)


def code(x: Number, format: str) -> int:
    """The saturating cast, nearest even. A format without NaN gives its largest value, as PTX does."""
    nan = "nan" if LAYOUTS[format].nan is not None else "max"
    return cast_bound(x, rule_of(format, nan=nan, **_SATURATE))


@dataclass(frozen=True)
class Answer:
    """Codes of a block, the scale as the code of its format, and the zero point as one of int32."""

    codes: list[int]
    scale: int
    zero_point: int | None = None


Rule = Callable[[Block, str, str, Given], Answer]  # the block, its format, the destination, what is given
ScaleOf = Callable[[Block, Number], Number]


def float32_bits(x: Number) -> int:
    return cast_bound(x, rule_of("float32"))


# ---------------- A.1


def fp8(scale_of: ScaleOf | None, element: str, clamp: str, fnuz: int = 224, middle: str | None = None) -> Rule:
    """FP8 with a float32 scale. `element`: "inverse" x*fl(1/s), "division" x/s, "guarded" 0 where s is 0."""

    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        qmax = whole_number(448 if format == "float8_e4m3fn" else fnuz)
        scale = given["scale"] if scale_of is None else scale_of(block, qmax)
        inverse = _ZERO if element == "guarded" and is_zero(scale) else divide(_ONE, scale)
        ys = [divide(x, scale) if element == "division" else multiply(x, inverse) for x in block]
        if middle:
            ys = [rounded(y, middle) for y in ys]
        low = Number("finite", True, qmax.magnitude)
        return Answer([code(clamped(clamp, y, low, qmax), format) for y in ys], float32_bits(scale))

    return rule


def over(amax: Callable[[Block], Number]) -> ScaleOf:
    """amax/qmax."""
    return lambda block, qmax: divide(amax(block), qmax)


def times(amax: Callable[[Block], Number]) -> ScaleOf:
    """amax*fl(1/qmax)."""
    return lambda block, qmax: multiply(amax(block), divide(_ONE, qmax))


def at_least(scale_of: ScaleOf, low: Callable[[Number], Number]) -> ScaleOf:
    return lambda block, qmax: least(scale_of(block, qmax), low(qmax))


def up_to_power(scale_of: ScaleOf, ceiling: Callable[[Number], int], special: Number | None = None) -> ScaleOf:
    """The least power of two that is not below, by the bits or by a rounded logarithm; `special` for NaN and inf."""

    def power_of(block: Block, qmax: Number) -> Number:
        scale = scale_of(block, qmax)
        return power(ceiling(scale)) if scale.kind == "finite" else special or scale

    return power_of


def token_minimum(qmax: Number) -> Number:
    return divide(_ONE, multiply(qmax, whole_number(512)))


def eps(value: float) -> Callable[[Block], Number]:
    return lambda block: amax_drop(block, constant(value))


def eps_keep(value: float) -> Callable[[Block], Number]:
    return lambda block: amax_keep(block, constant(value))


def tiny(qmax: Number) -> Number:
    return constant(1e-10)


def sglang_group(block: Block, source: str, format: str, given: Given) -> Answer:
    """Stored amax*fl(1/448); the multiplier is 448/amax; fminf, so NaN is 448; a saturating cast."""
    amax, qmax = amax_drop(block, constant(1e-10)), whole_number(448)
    factor = divide(qmax, amax)
    scale = float32_bits(multiply(amax, divide(_ONE, qmax)))
    return Answer([code(fmin(multiply(x, factor), qmax), format) for x in block], scale)


def input_to_float8(block: Block, source: str, format: str, given: Given) -> Answer:
    """scale = qmax * (1/amax), x*scale and the clamp in the input's dtype; the reciprocal is returned."""
    qmax = whole_number(448 if format == "float8_e4m3fn" else 240)
    low = Number("finite", True, qmax.magnitude)
    amax = least(amax_keep(block), rounded(constant(1e-12), source))
    scale = rounded(multiply(rounded(divide(_ONE, amax), source), qmax), source)
    ys = [rounded(multiply(x, scale), source) for x in block]
    return Answer([code(clamped("keep", y, low, qmax), format) for y in ys], float32_bits(divide(_ONE, scale)))


# ---------------- A.2


def integer(x: Number, format: str, rounding: str) -> int:
    """Round, saturate; NaN is 0."""
    return cast_bound(x, rule_of(format, rounding=rounding, nan="zero", **_SATURATE))


def int8(scale_of: ScaleOf | None, element: str, rounding: str, clamp: str = "none") -> Rule:
    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        qmax, low = whole_number(127), whole_number(-128)
        scale = given["scale"] if scale_of is None else scale_of(block, qmax)
        factor = divide(_ONE, scale)
        ys = [divide(x, scale) if element == "division" else multiply(x, factor) for x in block]
        return Answer([integer(clamped(clamp, y, low, qmax), format, rounding) for y in ys], float32_bits(scale))

    return rule


def int8_factor(seed: float, rounding: str) -> Rule:
    """scale amax/127; the multiplier is 127/amax, and 0 where amax is 0."""

    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        amax, qmax = amax_drop(block, constant(seed)), whole_number(127)
        factor = _ZERO if is_zero(amax) else divide(qmax, amax)
        codes = [integer(multiply(x, factor), format, rounding) for x in block]
        return Answer(codes, float32_bits(divide(amax, qmax)))

    return rule


# ---------------- A.3, A.4 and A.6: blocks with a coded scale


def microscaled(exponent: Callable[[Block], int | None]) -> Rule:
    """x/2**e for the stored exponent e, which is held to -127..127; no exponent stores the NaN."""

    def rule(block: Block, source: str, format: str, given: Given) -> Answer:
        e = exponent(block)
        held = None if e is None else min(max(e, -127), 127)
        scale = _NAN if held is None else power(held)
        return Answer([code(divide(x, scale), format) for x in block], 255 if held is None else held + 127)

    return rule


def _coded(x: Number, log2: Callable[[Number], int]) -> int | None:
    """The exponent: NaN has none, an infinity is held to the largest (clamp 254, satfinite), zero to the least."""
    if x.kind == "finite":
        return -127 if is_zero(x) else log2(x)
    return None if x.kind == "nan" else 127


def floor_rule(emax: int) -> Callable[[Block], int | None]:
    """FLOOR: floor(log2 amax) - emax; a zero block is the least scale."""

    def exponent(block: Block) -> int | None:
        amax = amax_keep(block)
        return _coded(amax, lambda x: floor_log2(x) - emax)

    return exponent


def rceil_rule(qmax: int, low: float = 0.0) -> Callable[[Block], int | None]:
    """RCEIL: the least power of two not below fl(amax/qmax)."""

    def exponent(block: Block) -> int | None:
        s = divide(amax_keep(block, constant(low)), whole_number(qmax))
        return _coded(s, ceil_log2)

    return exponent


def log2_rule(amax: Callable[[Block, Number], Number], low: float) -> Callable[[Block], int | None]:
    """ceil(log2(amax/448)) by a logarithm rounded to float32."""

    def exponent(block: Block) -> int | None:
        s = divide(amax(block, constant(low)), whole_number(448))
        return _coded(s, ceil_of_rounded_log2)

    return exponent


def nan_is_byte_0(rule: Rule) -> Rule:
    """A NaN exponent is converted to an unsigned byte, which is 0; the elements were divided by the NaN."""

    def changed(block: Block, source: str, format: str, given: Given) -> Answer:
        answer = rule(block, source, format, given)
        return Answer(answer.codes, 0 if answer.scale == 255 else answer.scale)

    return changed


def gfx950(rule: Rule) -> Rule:
    """The cast of gfx950 makes NaN of infinity; infinity over the largest power of two is one still."""

    def changed(block: Block, source: str, format: str, given: Given) -> Answer:
        answer = rule(block, source, format, given)
        codes = [0x7F if x.kind == "inf" else c for x, c in zip(block, answer.codes, strict=True)]
        return Answer(codes, answer.scale)

    return changed


def held_first(rule: Rule) -> Rule:
    """Elements are held to 448 by fmax first: NaN is -448."""

    def changed(block: Block, source: str, format: str, given: Given) -> Answer:
        answer = rule(block, source, format, given)
        codes = [0xFE if x.kind == "nan" else c for x, c in zip(block, answer.codes, strict=True)]
        return Answer(codes, answer.scale)

    return changed


def even_bits(block: Block) -> int:
    """EVEN of FP4, by bits: (bits + (1 << 21)) & 0xFF800000, less two binades; biased exponent 0 to 254."""
    bits = float32_bits(amax_drop(block))
    return max(((bits + (1 << 21)) >> 23) - 2, 0) - 127


def even_float(block: Block) -> int:
    """The same, but the carry makes an infinity, whose logarithm is held to 127."""
    e = even_bits(block)
    return 127 if e == 126 else e


def field_0_is_zero(rule: Rule) -> Rule:
    """The exponent field 0 is read as the float32 0, whose block has no multiplier: its codes are zeros."""

    def changed(block: Block, source: str, format: str, given: Given) -> Answer:
        answer = rule(block, source, format, given)
        if answer.scale:
            return answer
        return Answer([code(multiply(x, _ZERO), format) for x in block], 0)

    return changed


def nvfp4_emulated(block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = clamp(g*(amax*fl(1/6))) in E4M3; out = 1/(SF*(1/g)), of 0: 1/1e8; x*out clamped to 6. No zero has a sign."""
    g, top = given["global_scale"], whole_number(448)
    sf = multiply(g, multiply(amax_keep(block), divide(_ONE, whole_number(6))))
    stored = code(clamped("keep", sf, whole_number(-448), top), "float8_e4m3fn")
    held = decode(stored, "float8_e4m3fn")
    unit = multiply(held, divide(_ONE, g))
    out = divide(_ONE, constant(1e8) if is_zero(unit) else unit)
    ys = [multiply(x, out) for x in block]
    return Answer([0 if is_zero(y) else code(y, format) for y in ys], stored)


def bounded_token(block: Block, source: str, format: str, given: Given) -> Answer:
    """Per token, with amax held to the upper bound."""

    def scale_of(block: Block, qmax: Number) -> Number:
        amax = fmin(amax_drop(block), given["upper_bound"])
        return fmax(divide(amax, qmax), token_minimum(qmax))

    return fp8(scale_of, "division", "fmin first")(block, source, format, given)


def mxint8(block: Block, source: str, format: str, given: Given) -> Answer:
    """x/2**e, times 64, nearest even, -127 to 127; emax is 0."""
    e = floor_rule(0)(block)
    held = None if e is None else min(max(e, -127), 127)
    scale = _NAN if held is None else power(held)
    ys = [multiply(divide(x, scale), whole_number(64)) for x in block]
    ends = whole_number(-127), whole_number(127)
    codes = [integer(clamped("keep", y, *ends), format, "nearest_even") for y in ys]
    return Answer(codes, 255 if held is None else held + 127)


def delayed(block: Block, source: str, format: str, given: Given) -> Answer:
    """x times the state's scale; a reader gets its reciprocal."""
    scale = given["global_scale"]
    return Answer([code(multiply(x, scale), format) for x in block], float32_bits(divide(_ONE, scale)))


_PER_TOKEN = at_least(over(amax_drop), token_minimum)
_NATIVE = at_least(over(amax_keep), token_minimum)
_GROUP = over(eps(1e-10))

SECOND: Mapping[str, Rule] = {
    "ocp.mxfp8_e4m3": microscaled(floor_rule(8)),
    "ocp.mxfp8_e5m2": microscaled(floor_rule(15)),
    "ocp.mxfp6_e2m3": microscaled(floor_rule(2)),
    "ocp.mxfp6_e3m2": microscaled(floor_rule(4)),
    "ocp.mxint8": mxint8,
    "vllm.fp8_per_token_dynamic_bounded": bounded_token,
    "ocp.mxfp4": microscaled(floor_rule(2)),
    "nvidia.mxfp8_e4m3": microscaled(rceil_rule(448)),
    "nvidia.mxfp8_e5m2": microscaled(rceil_rule(57344)),
    **dict.fromkeys(
        ("vllm.fp8_static_tensor", "vllm.fp8_static_token", "vllm.fp8_static_channel", "vllm.fp8_static_group_128"),
        fp8(None, "inverse", "fmin first"),
    ),
    "vllm.fp8_per_tensor_dynamic": fp8(over(amax_drop), "inverse", "fmin first"),
    "vllm.fp8_per_token_dynamic": fp8(_PER_TOKEN, "division", "fmin first"),
    "vllm.fp8_native_tensor": fp8(_NATIVE, "inverse", "keep"),
    "vllm.fp8_native_token": fp8(_NATIVE, "inverse", "keep"),
    "vllm.fp8_native_group": fp8(_NATIVE, "division", "keep"),
    "vllm.fp8_native_group_ue8m0": fp8(up_to_power(_NATIVE, ceil_of_rounded_log2), "division", "keep"),
    "vllm.fp8_group": fp8(_GROUP, "inverse", "fmax first"),
    "vllm.fp8_group_ue8m0": fp8(up_to_power(at_least(_GROUP, tiny), ceil_of_rounded_log2), "inverse", "fmax first"),
    "vllm.fp8_group_ue8m0_registers": fp8(up_to_power(at_least(_GROUP, tiny), ceil_log2), "inverse", "fmax first"),
    "vllm.fp8_group_ue8m0_packed": fp8(up_to_power(at_least(_GROUP, tiny), ceil_log2), "inverse", "fmax first"),
    "vllm.fp8_group_ue8m0_packed_bf16": fp8(
        up_to_power(at_least(_GROUP, tiny), ceil_log2), "inverse", "fmax first", middle="bfloat16"
    ),
    "vllm.fp8_group_triton": fp8(times(eps(1e-10)), "division", "fmax first"),
    "vllm.fp8_group_triton_ue8m0": fp8(up_to_power(times(eps(1e-10)), ceil_of_rounded_log2), "division", "fmax first"),
    "vllm.fp8_block": fp8(over(eps_keep(1e-4)), "inverse", "none"),
    "vllm.fp8_block_ue8m0": fp8(up_to_power(over(eps_keep(1e-4)), ceil_of_rounded_log2), "inverse", "none"),
    "vllm.input_to_float8": input_to_float8,
    "sglang.fp8_per_token_warp": fp8(over(amax_drop), "guarded", "fmin first"),
    "sglang.fp8_per_token_cta": fp8(over(amax_drop), "inverse", "fmin first"),
    "sglang.fp8_per_tensor_dynamic": fp8(over(amax_drop), "inverse", "fmin first"),
    "sglang.fp8_group": sglang_group,
    "sglang.fp8_group_triton_row_major": fp8(_GROUP, "inverse", "fmax first"),
    "sglang.fp8_group_triton_column_major": fp8(_GROUP, "division", "fmax first"),
    "sglang.fp8_native_static_tensor": fp8(None, "division", "keep"),
    "sglang.fp8_native_static_token": fp8(None, "division", "keep"),
    "sglang.fp8_block_ue8m0": fp8(up_to_power(over(eps_keep(1e-4)), ceil_log2, power(127)), "inverse", "none"),
    "transformer_engine.fp8_delayed": delayed,
    "vllm.int8_static_tensor": int8(None, "division", "nearest_even"),
    "vllm.int8_static_token": int8(None, "division", "nearest_even"),
    "vllm.int8_per_token_dynamic": int8_factor(0.0, "nearest_even"),
    "vllm.int8_group": int8(_GROUP, "inverse", "toward_zero", "fmax first"),
    "vllm.int8_group_triton": int8(_GROUP, "division", "toward_zero", "fmax first"),
    "sglang.int8_per_token": int8_factor(1e-10, "nearest_away"),
    "vllm.mxfp8_torch": nan_is_byte_0(microscaled(log2_rule(amax_keep, 2.0**-126))),
    "vllm.mxfp8_triton": gfx950(microscaled(log2_rule(amax_drop, 2.0**-126))),
    "sglang.mxfp8_kv": held_first(microscaled(log2_rule(amax_drop, 1e-30))),
    "vllm.mxfp4_cuda": field_0_is_zero(microscaled(even_bits)),
    "vllm.nvfp4_emulated": nvfp4_emulated,
}
