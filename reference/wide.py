"""What comes before a quantizer in a fused kernel, as intervals: every answer that a float32 computation may give.

The order of a sum and the last bits of rsqrt and exp are a kernel's own business, so a result is bounded and not
named. The bounds are proved: u = 2^-24 is the relative error of one float32 operation, and what follows counts them.
A factor 1 + 2^-10 above each covers the products of errors (at most 2^14 of them, each below 2^-24), and what float64
leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.wide import EPSILON, WIDE
from narrowgauge.reference.fast_codec import cast, decode_values

F64 = npt.NDArray[np.float64]
Ends = tuple[F64, F64]
_U = 2.0**-24
_MORE = 1 + 2.0**-10
_NEAREST = CastPolicy(overflow="special", infinity="special")


def wide_result(x: Coded, name: str) -> tuple[Coded, Coded]:
    """The least and the greatest result [rows, columns], in the format of x, that the operation may give.

    Raises ``BadInput`` for an operation that does not exist, what is missing beside x, NaN or infinity in x, and
    numbers whose squares float32 does not hold: of these no bound is derived.
    """
    if name not in WIDE:
        raise unknown("operation", name, WIDE, "Then(...)")
    wide, given = WIDE[name], given_with(x)
    if x.data.ndim != 2 or x.shape[1] % wide.parts:
        raise BadInput(f"{name}: x has shape {list(x.shape)}; expected [rows, {wide.parts} · columns]")
    shape = (1, x.shape[1] // wide.parts)
    for needed in wide.inputs:
        if needed not in given or given[needed].shape != shape or given[needed].format != x.format:
            found = f"{given[needed].format} {list(given[needed].shape)}" if needed in given else "nothing"
            raise BadInput(f"{name}: {needed} is {found}; expected {x.format} {list(shape)}")
    value = decode_values(x)
    if not np.isfinite(value).all() or (np.abs(value) > 2.0**40).any():
        raise BadInput(f"{name}: x has elements that are not finite or above 2^40; what they give is not derived")
    low, high = _OPERATIONS[name](value, given, x.format)
    return _coded(low, x.format), _coded(high, x.format)


def _coded(value: F64, format_name: str) -> Coded:
    return cast(Coded("float64", value.view(np.uint64)), format_name, _NEAREST)


def _widened(value: F64, operations: npt.NDArray[np.float64] | float) -> Ends:
    """All float32 results of a value after so many operations of relative error u, which may flush subnormals.

    What is 0 is a product with 0, and exact.
    """
    reach = np.where(value == 0, 0, np.abs(value) * (operations * _U * _MORE) + 2.0**-126)
    return value - reach, value + reach


def _rounded(ends: Ends, format_name: str) -> Ends:
    """Both ends in a format: rounding is monotone. float32 holds what is in it already."""
    if format_name == "float32":
        return ends
    low, high = (decode_values(_coded(end, format_name)) for end in ends)
    return low, high


def _times(ends: Ends, factor: F64, format_name: str) -> Ends:
    """The product with an exact factor, in the arithmetic of a format."""
    corners = np.stack([ends[0] * factor, ends[1] * factor])
    low, high = corners.min(axis=0), corners.max(axis=0)
    if format_name == "float32":
        return _widened(low, 1)[0], _widened(high, 1)[1]
    return low, high  # of two numbers of 16 bits the product is exact in float32, and rounded at the end


def _normalised(value: F64) -> tuple[F64, float]:
    """x / sqrt(mean(x²) + ε), and by how many operations of float32 it is off.

    A square, n - 1 additions in any order (each term passes through at most so many), the division by n, ε: n + 2 for
    the mean. The root halves that. rsqrt may be off by 2 ulp, which is 4 u, and the product by u; sqrt and a division
    of 1 and 2 ulp are 6 u.
    """
    n = value.shape[1]
    root = np.sqrt((value**2).mean(axis=1, keepdims=True) + EPSILON)
    return value / root, (n + 2) / 2 + 6


def _rms_norm(value: F64, given: Mapping[str, Coded], format_name: str) -> Ends:
    normal, operations = _normalised(value)
    return _widened(normal * decode_values(given["weight"]), operations + 1)


def _rms_norm_twice(value: F64, given: Mapping[str, Coded], format_name: str) -> Ends:
    normal, operations = _normalised(value)
    return _times(_rounded(_widened(normal, operations), format_name), decode_values(given["weight"]), format_name)


def _silu(value: F64) -> Ends:
    """gate / (1 + exp(-gate)).

    exp(-g) as 2^(g · log2 e): the product and its constant are off by u each, which is 2 |g| u in the power; ex2 by
    2 ulp, 4 u. That counts with weight e / (1 + e) < 1 in the sum; then the sum's u, and a division of 2 ulp, 4 u.
    Below -87 the power may be infinite, and the result 0.
    """
    with np.errstate(over="ignore"):
        low, high = _widened(value / (1 + np.exp(-value)), 2 * np.abs(value) + 9)
    return low, np.where(value < -87, np.maximum(high, 0), high)


def _silu_mul(value: F64, given: Mapping[str, Coded], format_name: str) -> Ends:
    gate, up = np.hsplit(value, 2)
    return _times(_silu(gate), up, "float32")


def _silu_mul_twice(value: F64, given: Mapping[str, Coded], format_name: str) -> Ends:
    gate, up = np.hsplit(value, 2)
    return _times(_rounded(_silu(gate), format_name), up, format_name)


_OPERATIONS: dict[str, Callable[[F64, Mapping[str, Coded], str], Ends]] = {
    "rms_norm": _rms_norm,
    "rms_norm_twice_rounded": _rms_norm_twice,
    "silu_mul": _silu_mul,
    "silu_mul_twice_rounded": _silu_mul_twice,
}
