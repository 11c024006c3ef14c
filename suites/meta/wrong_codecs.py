"""Twelve wrong codecs of float32 to float8_e4m3fn, each an arithmetic of its own on float64, and the inputs to try.

They share no line with the reference and none with its faults. Each mistake is one that shipped somewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.reference.codec import values
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.noise import scrambled

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
CLAIM = Claim(Cast("ocp_saturate"), "float32", "float8_e4m3fn")
TOP, NAN, SIGN = 0x7E, 0x7F, 0x80
MILLION = 1 << 20


def _units(x: F32) -> tuple[F64, Ints]:
    """Each magnitude in units of the last place that e4m3fn has there, and the exponent of that unit."""
    magnitude = np.abs(np.where(np.isfinite(x), x, 0).astype(np.float64))
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1].astype(np.int64) - 1, -6)
    last = np.maximum(exponent, -6) - 3
    return np.ldexp(magnitude, -last), last


def _magnitudes(x: F32, rounded: Callable[[F64], F64] = np.rint) -> Ints:
    """Codes without sign, as though e4m3fn had no end; those of infinity and NaN mean nothing."""
    units, last = _units(x)
    # Eight units make the exponent field 1; a carry into the next binade is an addition like any other.
    return ((last + 10) << 3) + rounded(units).astype(np.int64) - 8


def _finished(x: F32, code: Ints, beyond: int = TOP, infinity: int = TOP, nan: int = NAN) -> Ints:
    bounded = np.where(np.isinf(x), infinity, np.where(code > TOP, beyond, code))
    return np.where(np.isnan(x), nan, bounded + np.where(np.signbit(x), SIGN, 0))


def saturating(x: F32) -> Ints:
    """What is right: to nearest even, everything beyond gives the largest."""
    return _finished(x, _magnitudes(x))


def non_saturating(x: F32) -> Ints:
    """What is right where overflow is to be NaN."""
    return _finished(x, _magnitudes(x), beyond=NAN, infinity=NAN)


def ties_away(x: F32) -> Ints:
    return _finished(x, _magnitudes(x, lambda units: np.floor(units + 0.5)))


def ties_toward_zero(x: F32) -> Ints:
    return _finished(x, _magnitudes(x, lambda units: np.ceil(units - 0.5)))


def truncated(x: F32) -> Ints:
    return _finished(x, _magnitudes(x, np.floor))


def subnormals_flushed(x: F32) -> Ints:
    code = _magnitudes(x)
    return _finished(x, np.where(code < 8, 0, code))


def negative_zero_lost(x: F32) -> Ints:
    code = saturating(x)
    return np.where(code == SIGN, 0, code)


def overflow_to_nan(x: F32) -> Ints:
    return non_saturating(x)


def threshold_448(x: F32) -> Ints:
    """Of the non-saturating cast: NaN begins above 448, not where rounding leaves it, above 464."""
    return np.where(np.abs(x) > 448, NAN, non_saturating(x))


def infinity_to_nan(x: F32) -> Ints:
    return _finished(x, _magnitudes(x), infinity=NAN)


def nan_to_max(x: F32) -> Ints:
    return _finished(x, _magnitudes(x), nan=TOP)


def through_float16(x: F32) -> Ints:
    with np.errstate(over="ignore"):
        return saturating(x.astype(np.float16).astype(np.float32))


def through_bfloat16(x: F32) -> Ints:
    bits = x.view(np.uint32).astype(np.int64)
    upper = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return saturating(np.where(np.isnan(x), x, upper.astype(np.uint32).view(np.float32)))


def sticky_lost(x: F32) -> Ints:
    """A subnormal result: the significand is shifted down, and what falls out is forgotten before the tie test."""
    units, last = _units(x)
    kept = np.where(last == -9, np.floor(np.ldexp(units, 20)) / 2**20, units)
    return _finished(x, ((last + 10) << 3) + np.rint(kept).astype(np.int64) - 8)


@dataclass(frozen=True)
class WrongCodec:
    """A mistake, what would be right, and how the suite names it."""

    name: str
    codes: Callable[[F32], Ints]
    named: str  #: how the diagnosis names it
    right: Callable[[F32], Ints] = saturating
    policy: str = "ocp_saturate"


CODECS = (
    WrongCodec("ties away", ties_away, "cast.ties_away"),
    WrongCodec("ties toward zero", ties_toward_zero, "cast.ties_toward_zero"),
    WrongCodec("truncate", truncated, "cast.truncates"),
    WrongCodec("flush subnormals", subnormals_flushed, "cast.subnormals_flushed"),
    WrongCodec("lost -0", negative_zero_lost, "cast.negative_zero_lost"),
    WrongCodec("overflow to NaN", overflow_to_nan, "cast.overflow_to_nan + cast.infinity_to_nan"),
    WrongCodec(
        "threshold 448 for 464", threshold_448, "cast.overflow_above_the_largest", non_saturating, "ocp_nonsaturate"
    ),
    WrongCodec("infinity alone to NaN", infinity_to_nan, "cast.infinity_to_nan"),
    WrongCodec("NaN to max", nan_to_max, "cast.nan_to_max"),
    WrongCodec("double rounding, fp16", through_float16, "cast.double_rounding_float16"),
    WrongCodec("double rounding, bf16", through_bfloat16, "cast.double_rounding_bfloat16"),
    WrongCodec("sticky bit lost", sticky_lost, "cast.subnormals_lose_sticky_bits"),
)


@cache
def input_sets() -> dict[str, F32]:
    """Every set of inputs by name, as float32: what benchmarks use, the whole 16-bit spaces, and ours."""
    sets = {"randn 1M": _normal(MILLION), "randn 4,096": _normal(4096)}
    sets["uniform 1M"] = ((_unit(MILLION, seed=5) * 2 - 1) * 448).astype(np.float32)
    with np.errstate(invalid="ignore"):
        for name, short in (("bfloat16", "every bf16"), ("float16", "every fp16")):
            sets[short] = values(FORMATS[name]).astype(np.float32)
    smoke = cases_for(CLAIM, "smoke")
    sets["our edges"] = smoke["edges"].data.view(np.float32)
    sets["our smoke"] = np.concatenate([x.data for x in smoke.values()]).view(np.float32)
    return sets


def _unit(count: int, seed: int) -> F64:
    """Uniform in (0, 1), 53 bits."""
    return ((scrambled(count, seed) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _normal(count: int) -> F32:
    """Normally distributed with variance 1 (Box and Muller)."""
    made: F64 = np.sqrt(-2 * np.log(_unit(count, 6))) * np.cos(2 * np.pi * _unit(count, 7))
    return made.astype(np.float32)


def differing(codec: WrongCodec, x: F32) -> int:
    """How many of the inputs a wrong codec gets wrong; NaN counts as one code."""
    wrong, right = codec.codes(x), codec.right(x)
    return int(np.count_nonzero((wrong != right) & ~(_is_nan(wrong) & _is_nan(right))))


def _is_nan(code: Ints) -> npt.NDArray[np.bool_]:
    return np.asarray((code & NAN) == NAN)
