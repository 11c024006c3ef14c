"""The steps that recipes are made of: float32 in, float32 out, one IEEE operation each.

Whether NaN is dropped or kept is in a step's nature and stated in its line. A step whose last bit no document fixes
has ``VARIANTS``: what else it may give (see ``reference.open_steps``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Chain, Recipe
from narrowgauge.reference.fast_codec import cast, to_float32

F32 = npt.NDArray[np.float32]
_SMALLEST_NORMAL = np.float32(2.0**-126)
_MANTISSA = np.uint32(0x7FFFFF)


def _f32(value: Any) -> Any:
    return np.float32(value)


def _bits(x: Any) -> npt.NDArray[np.uint32]:
    return np.asarray(x, np.float32).view(np.uint32)


def _of_bits(bits: npt.NDArray[Any]) -> F32:
    return np.asarray(bits, np.uint32).view(np.float32)


def _round(x: Any, format_name: str) -> Any:
    """To the nearest value of a 16-bit format, ties to even; beyond its largest, infinity. float32 is left alone."""
    if format_name == "float32":
        return x
    nearest = CastPolicy(overflow="special", infinity="special")
    return to_float32(cast(Coded("float32", np.ascontiguousarray(_bits(x))), format_name, nearest))


def _ceil_pow2(x: Any) -> F32:
    """The power of two not below x > 0, by its bits: a subnormal goes to 2^-126. Infinity stays; NaN gives -0."""
    bits = _bits(x)
    return _of_bits((bits + _MANTISSA) & ~_MANTISSA)


def _floor_pow2(x: Any) -> F32:
    """The power of two not above x > 0, by its bits: 0 for a subnormal; infinity and NaN give infinity."""
    return _of_bits(_bits(x) & ~_MANTISSA)


def _even_pow2(x: Any, mantissa: float) -> F32:
    """``floor_pow2`` after half a unit of a mantissa of so many bits was added to the pattern."""
    return _of_bits((_bits(x) + np.uint32(1 << (22 - int(mantissa)))) & np.uint32(0xFF800000))


def _log2(x: Any) -> F32:
    """The float32 nearest to log2, through float64: near a power of two, where the rounding counts, it is exact."""
    return np.log2(np.asarray(x, np.float64)).astype(np.float32)


def _exp2(exponent: Any) -> F32:
    """2 to a whole number, exact; NaN stays NaN."""
    e = np.asarray(exponent, np.float32)
    whole = np.clip(np.where(np.isnan(e), 0, e), -200, 200).astype(np.int32)
    power = np.ldexp(np.float64(1), whole).astype(np.float32)
    return np.where(np.isnan(e), np.float32(np.nan), power).astype(np.float32)


def _ceil_log2_rounded(x: Any, format_name: str) -> F32:
    """2 to the logarithm rounded to a format and then up: in 16 bits it falls on a whole number sooner."""
    return _exp2(np.ceil(_round(_log2(x), format_name)))


def _half_away(x: Any) -> F32:
    """To the nearest whole number, halves away from zero. Through float64, where x + 0.5 is exact."""
    wide = np.asarray(x, np.float64)
    return np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(np.float32)


def _add_half_and_cut(x: Any) -> F32:
    """x + 0.5 (or - 0.5 below zero) in float32, then toward zero: 0.49999997 becomes 1."""
    return np.asarray(np.trunc(x + np.copysign(_f32(0.5), x)), np.float32)


def _add_within_int8(x: Any, c: Any) -> F32:
    """The sum of two whole numbers, brought within -128 to 127. NaN becomes c. Exact, as integers are."""
    total = np.nan_to_num(np.asarray(x, np.float64), posinf=2.0**31 - 1, neginf=-(2.0**31)) + np.asarray(c, np.float64)
    return np.clip(total, -128, 127).astype(np.float32)


def _flushed(x: Any) -> Any:
    """Subnormals as zeros of the same sign."""
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(_f32(0), x), x)


def _recip_flushed(x: Any) -> Any:
    return _flushed(_f32(1) / _flushed(x))


def _beside_recip(x: Any, end: float) -> Any:
    """The float32 next to the reciprocal, toward zero or away from it. Those of zero and infinity are exact."""
    nearest = _f32(1) / _flushed(x)
    beside = np.nextafter(nearest, np.copysign(_f32(end), nearest))
    return _flushed(np.where(np.isfinite(nearest), beside, nearest))


def _ceil_pow2_exactly(x: Any) -> F32:
    """2 to the logarithm that nobody rounded, and then up."""
    wide = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(wide)
    power = _exp2(np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.where(np.isfinite(wide) & (wide > 0), power, _exp2(_log2(x))).astype(np.float32)


def _floor_pow2_exactly(x: Any) -> F32:
    """2 to the logarithm that nobody rounded, and then down."""
    wide = np.asarray(x, np.float64)
    power = _exp2(np.frexp(wide)[1] - 1)
    return np.where(np.isfinite(wide) & (wide > 0), power, _exp2(_log2(x))).astype(np.float32)


STEPS: dict[str, Callable[..., Any]] = {
    "add": lambda x, c: x + _f32(c),
    "add_within_int8": _add_within_int8,
    "sub": lambda x, c: x - _f32(c),
    "rsub": lambda x, c: _f32(c) - x,
    "mul": lambda x, c: x * _f32(c),
    "div": lambda x, c: x / _f32(c),
    "rdiv": lambda x, c: _f32(c) / x,
    "recip": lambda x: _f32(1) / x,
    "recip_or_zero": lambda x: np.where(x == 0, _f32(0), _f32(1) / x),
    "recip_approx": _recip_flushed,  # rcp.approx.ftz.f32: within one ulp, subnormals are zeros
    "at_least": lambda x, c: np.fmax(x, _f32(c)),  # NaN becomes c
    "at_most": lambda x, c: np.fmin(x, _f32(c)),  # NaN becomes c
    "at_least_or_nan": lambda x, c: np.maximum(x, _f32(c)),
    "at_most_or_nan": lambda x, c: np.minimum(x, _f32(c)),
    "zero_to": lambda x, c: np.where(x == 0, _f32(c), x),
    "zero_where_zero": lambda x, c: np.where(_f32(c) == 0, _f32(0), x),
    "nan_to": lambda x, c: np.where(np.isnan(x), _f32(c), x),
    "not_finite_to": lambda x, c: np.where(np.isfinite(x), x, _f32(c)),
    "round": _round,
    "ceil_pow2": _ceil_pow2,
    "floor_pow2": _floor_pow2,
    "even_pow2": _even_pow2,
    "exp2_ceil_log2": lambda x: _exp2(np.ceil(_log2(x))),
    "exp2_floor_log2": lambda x: _exp2(np.floor(_log2(x))),
    "exp2_ceil_log2_in": _ceil_log2_rounded,
    "abs": np.abs,
    "rint": np.rint,
    "half_away": _half_away,
    "add_half_and_cut": _add_half_and_cut,
    "trunc": np.trunc,
    # How an element is brought within a bound. The order of the two operations decides what NaN becomes.
    "clamp_fmin_first": lambda x, c: np.fmax(np.fmin(x, _f32(c)), -_f32(c)),  # NaN becomes +bound
    "clamp_fmax_first": lambda x, c: np.fmin(np.fmax(x, -_f32(c)), _f32(c)),  # NaN becomes -bound
    "clamp_keep_nan": lambda x, c: np.minimum(np.maximum(x, -_f32(c)), _f32(c)),
}

#: Of a step whose last bit is open, all else that it may answer besides. Approximate reciprocals are told to be within
#: one ulp of the nearest float32 (PTX ISA, rcp.approx.ftz.f32; AMD, V_RCP_F32), and so is log2f (CUDA, torch): ceil and
#: floor of it give one of two powers. At a power of two it is taken to be exact: one above would double scales there.
VARIANTS: dict[str, tuple[Callable[..., Any], ...]] = {
    "recip_approx": (lambda x: _beside_recip(x, 0.0), lambda x: _beside_recip(x, np.inf)),
    "exp2_ceil_log2": (_ceil_pow2_exactly, lambda x: _exp2(np.ceil(np.nextafter(_log2(x), _f32(-np.inf))))),
    "exp2_floor_log2": (_floor_pow2_exactly, lambda x: _exp2(np.floor(np.nextafter(_log2(x), _f32(np.inf))))),
}


def operation(name: str, chain: Chain, steps: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The step of that name. Raises ``BadInput`` for one that does not exist."""
    if name not in steps:
        raise unknown("step", name, STEPS, f"recipe chain {chain!r}")
    return steps[name]


def run_chain(chain: Chain, context: Mapping[str, Any], steps: Mapping[str, Callable[..., Any]] = STEPS) -> Any:
    """Apply a chain's steps to the value of the context it starts from. Operands may be names of the context."""
    value = context[str(chain[0])]
    for step in chain[1:]:
        name, operands = named(step)
        value = operation(name, chain, steps)(value, *(context[o] if isinstance(o, str) else o for o in operands))
    return value


def operands_of(recipe: Recipe) -> set[str]:
    """Every name that the steps of a recipe start from or use."""
    chains = [*(chain for _, chain in recipe.steps), recipe.element]
    used = [o for chain in chains for step in chain[1:] for o in named(step)[1]]
    return {str(chain[0]) for chain in chains} | {o for o in used if isinstance(o, str)}


def named(step: str | Sequence[float | str]) -> tuple[str, tuple[float | str, ...]]:
    """A step's name and operands."""
    return (step, ()) if isinstance(step, str) else (str(step[0]), tuple(step[1:]))
