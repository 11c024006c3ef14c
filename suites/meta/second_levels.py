# SPDX-License-Identifier: Apache-2.0
"""The second derivation of what needs more than a block and a scale: NVFP4's two levels, zero points, open answers.

Written from the words of the facts on the engines, as second_recipes is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial, reduce

from narrowgauge.suites.meta.second_derivation import Number, decode, is_zero, whole_number
from narrowgauge.suites.meta.second_quantizers import divide, fmax, fmin, multiply
from narrowgauge.suites.meta.second_recipes import (
    Answer,
    Block,
    Given,
    Rule,
    amax_drop,
    code,
    constant,
    float32_bits,
    rounded,
)

_ONE, _ZERO, _NAN = whole_number(1), whole_number(0), Number("nan", False, Fraction(0))
_SIX, _E4M3 = whole_number(6), "float8_e4m3fn"

# ---------------- NVFP4


def divisor(tensor: Block) -> Number:
    """What checkpoints of compressed-tensors divide by: 448 * 6 / amax, and 1 where that is no number."""
    g = divide(whole_number(2688), amax_drop(tensor))
    return g if g.kind == "finite" else _ONE


def multiplier(tensor: Block) -> Number:
    """What checkpoints of ModelOpt multiply by: amax / (448 * 6), and 1 for a tensor of zeros."""
    g = divide(amax_drop(tensor), whole_number(2688))
    return _ONE if is_zero(g) else g


def _two_levels(by_divisor: bool, block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = E4M3 of amax / 6 in units of the tensor's scale; x over both scales, and 0 where SF is 0."""
    g, sixth = given["global_scale"], divide(amax_drop(block), _SIX)
    stored = code(multiply(sixth, g) if by_divisor else divide(sixth, g), _E4M3)
    held = decode(stored, _E4M3)
    factor = divide(g, held) if by_divisor else divide(_ONE, multiply(held, g))
    factor = _ZERO if is_zero(held) else factor
    return Answer([code(multiply(x, factor), format) for x in block], stored)


#: how far, in units of the last place, each approximate reciprocal of a kernel lies from the nearest float32
Ulps = tuple[int, ...]


def flushed(x: Number) -> Number:
    """.ftz: a subnormal is a zero of its sign."""
    small = x.kind == "finite" and x.magnitude < Fraction(2) ** -126
    return Number("finite", x.negative, Fraction(0)) if small else x


def approximate(x: Number, ulps: int) -> Number:
    """rcp.approx.ftz.f32: the nearest float32 to 1/x, or so many places from it; exact for zeros and infinities."""
    x = flushed(x)
    if x.kind != "finite" or is_zero(x):
        return divide(_ONE, x)
    bits = float32_bits(divide(_ONE, x))
    return flushed(decode(bits + ulps, "float32"))


def nvfp4_kernel(ulps: Ulps, block: Block, source: str, format: str, given: Given) -> Answer:
    """SF = g * (amax * rcp(6)) in E4M3; out = rcp(SF * rcp(g)), 0 where SF is 0; x * out. NaN alone: amax is NaN."""
    g = given["global_scale"]
    amax = _NAN if all(x.kind == "nan" for x in block) else amax_drop(block)
    stored = code(multiply(multiply(amax, approximate(_SIX, ulps[0])), g), _E4M3)
    held = decode(stored, _E4M3)
    out = _ZERO if is_zero(held) else approximate(multiply(held, approximate(g, ulps[1])), ulps[2])
    return Answer([code(multiply(x, out), format) for x in block], stored)


def aiter_hip(seed: Number, ulps: Ulps, block: Block, source: str, format: str, given: Given) -> Answer:
    """Stored amax * fl(1/max); x * v_rcp_f32 of it."""
    top = whole_number(448 if format == _E4M3 else 240)
    scale = multiply(amax_drop(block, seed), divide(_ONE, top))
    factor = approximate(scale, ulps[0])
    return Answer([code(multiply(x, factor), format) for x in block], float32_bits(scale))


# ---------------- zero points


def signed(x: Number) -> Fraction:
    return -x.magnitude if x.negative else x.magnitude


def subtract(a: Number, b: Number) -> Number:
    """fl32(a - b). The sign of a zero is no part of what is derived here."""
    if "nan" in (a.kind, b.kind) or (a.kind == b.kind == "inf" and a.negative == b.negative):
        return _NAN
    if "inf" in (a.kind, b.kind):
        return a if a.kind == "inf" else Number("inf", not b.negative, Fraction(0))
    exact = signed(a) - signed(b)
    return rounded(Number("finite", exact < 0, abs(exact)), "float32")


def to_int32(x: Number) -> int:
    """Nearest whole number, ties to even, held to int32; NaN is 0 (cvt.rni.sat.s32)."""
    if x.kind != "finite":
        return 0 if x.kind == "nan" else (-(2**31) if x.negative else 2**31 - 1)
    return min(max(round(signed(x)), -(2**31)), 2**31 - 1)


def _shifted(block: Block, factor: Number, point: int) -> list[int]:
    """x * factor to a whole number, plus the zero point, held to int8."""
    return [min(max(to_int32(multiply(x, factor)) + point, -128), 127) % 256 for x in block]


def static_azp(block: Block, source: str, format: str, given: Given) -> Answer:
    point = to_int32(given["zero_point"])
    return Answer(_shifted(block, divide(_ONE, given["scale"]), point), float32_bits(given["scale"]))


def dynamic_azp(block: Block, source: str, format: str, given: Given) -> Answer:
    """s = (max - min)/255; the zero point is the whole number nearest to -128 - min/s. NaN elements are dropped."""
    least, most = reduce(fmin, block), reduce(fmax, block)
    scale = divide(subtract(most, least), whole_number(255))
    point = to_int32(subtract(whole_number(-128), divide(least, scale)))
    return Answer(_shifted(block, divide(_ONE, scale), point), float32_bits(scale), point % 2**32)


LEVELS: Mapping[str, Rule] = {
    "nvidia.nvfp4_divisor": partial(_two_levels, True),
    "nvidia.nvfp4_multiplier": partial(_two_levels, False),
    "vllm.nvfp4": partial(nvfp4_kernel, (0, 0, 0)),
    "aiter.fp8_hip_token": partial(aiter_hip, _ZERO, (0,)),
    "aiter.fp8_hip_smooth": partial(aiter_hip, _ZERO, (0,)),
    "aiter.fp8_hip_group": partial(aiter_hip, constant(1e-10), (0,)),
    "vllm.int8_static_azp": static_azp,
    "vllm.int8_per_token_dynamic_azp": dynamic_azp,
}
#: values of the whole tensor that a recipe computes: their derivation from all elements
OF_TENSOR: Mapping[str, Callable[[Block], Number]] = {
    "nvidia.nvfp4_divisor": divisor,
    "nvidia.nvfp4_multiplier": multiplier,
}
