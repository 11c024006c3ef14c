# SPDX-License-Identifier: Apache-2.0
"""The second derivation of the quantizers: steps in float32, each rounded once, and both recipes row by row."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_derivation import Codes, Number, bind, cast_bound, decode, is_zero, whole_number

# ---------------- steps in float32

# fmt: off
_IEEE: Mapping[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}
# fmt: on
_TO_FLOAT32 = bind(_IEEE, "float32")
_NAN = Number("nan", False, Fraction(0))


def _fl32(number: Number) -> Number:
    """The float32 nearest to an exact result: one rounding, overflow to infinity (float32 clause)."""
    return decode(cast_bound(number, _TO_FLOAT32), "float32")


def multiply(a: Number, b: Number) -> Number:
    """fl32(a * b) (float32 clause)."""
    kinds, negative = (a.kind, b.kind), a.negative != b.negative
    if "nan" in kinds:
        return _NAN
    if "inf" in kinds:
        return _NAN if is_zero(a) or is_zero(b) else Number("inf", negative, Fraction(0))
    return _fl32(Number("finite", negative, a.magnitude * b.magnitude))


def divide(a: Number, b: Number) -> Number:
    """fl32(a / b) (float32 clause)."""
    kinds, negative = (a.kind, b.kind), a.negative != b.negative
    if "nan" in kinds or kinds == ("inf", "inf") or (is_zero(a) and is_zero(b)):
        return _NAN
    if a.kind == "inf" or is_zero(b):
        return Number("inf", negative, Fraction(0))
    if b.kind == "inf":
        return Number("finite", negative, Fraction(0))
    return _fl32(Number("finite", negative, a.magnitude / b.magnitude))


def _less(a: Number, b: Number) -> bool:
    """The order of Numbers other than NaN: infinities outside, zeros of either sign equal."""
    if "inf" in (a.kind, b.kind):
        return _outside(a) < _outside(b)
    (p, q), (r, s) = a.magnitude.as_integer_ratio(), b.magnitude.as_integer_ratio()
    return (-p if a.negative else p) * s < (-r if b.negative else r) * q


def _outside(number: Number) -> int:
    """Below, among or above all finite numbers."""
    return 0 if number.kind != "inf" else -1 if number.negative else 1


def fmax(a: Number, b: Number) -> Number:
    """fmax of C: of one NaN and one other operand, the other (float32 clause)."""
    if "nan" in (a.kind, b.kind):
        return b if a.kind == "nan" else a
    return b if _less(a, b) else a


def fmin(a: Number, b: Number) -> Number:
    """fmin of C: of one NaN and one other operand, the other (float32 clause)."""
    if "nan" in (a.kind, b.kind):
        return b if a.kind == "nan" else a
    return b if _less(b, a) else a


# ---------------- quantizers

BOUNDS: Mapping[str, int] = {"float8_e4m3fn": 448, "float8_e4m3fnuz": 224}
RECIPES = ("vllm.fp8_per_token_dynamic", "sglang.fp8_per_token_cta")
# Quantizer clause "code": the clamp before the cast leaves neither overflow nor NaN for it to see.
_TO_FLOAT8 = {format: bind({**_IEEE, "overflow": "max", "infinity": "max"}, format) for format in BOUNDS}


def quantize_row(row: Sequence[Number], recipe: str, format: str) -> tuple[list[int], int]:
    """The codes of a row, and the float32 bits of its scale (quantizer clauses)."""
    if recipe not in RECIPES:
        raise ValueError(f"recipe is one of {RECIPES}, not {recipe!r}")
    one, bound, lowest = whole_number(1), whole_number(BOUNDS[format]), whole_number(-BOUNDS[format])
    amax = reduce(fmax, (Number(x.kind, False, x.magnitude) for x in row), whole_number(0))
    scale = divide(amax, bound)
    if recipe == "vllm.fp8_per_token_dynamic":
        scale = fmax(scale, divide(one, multiply(bound, whole_number(512))))
        scaled = [divide(x, scale) for x in row]
    else:
        inverse = divide(one, scale)
        scaled = [multiply(x, inverse) for x in row]
    # fmin comes first, so a NaN becomes +bound.
    clamped = [fmax(fmin(y, bound), lowest) for y in scaled]
    return [cast_bound(y, _TO_FLOAT8[format]) for y in clamped], cast_bound(scale, _TO_FLOAT32)


def quantize_codes(codes: npt.NDArray[np.integer[Any]], source: str, recipe: str, format: str) -> tuple[Codes, Codes]:
    """`quantize_row` of every row of a 2-D array of `source` codes: codes, and scale bits of shape (rows,)."""
    pairs = [quantize_row([decode(code, source) for code in row], recipe, format) for row in codes.tolist()]
    results = np.array([row for row, _ in pairs], dtype=np.uint32).reshape(codes.shape)
    return results, np.array([scale for _, scale in pairs], dtype=np.uint32)
