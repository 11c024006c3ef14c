"""SmoothQuant: what is hard in the activations' channels is moved into the weights.

Source: Xiao et al., SmoothQuant (2022), eq. 4, and the authors' smooth.py, whose float32 steps and least values are
kept; AITER e4048607, quant_kernels.cu:429-456, for what a kernel does with the factors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import to_float32

F32 = npt.NDArray[np.float32]
#: neither a weight's largest magnitude nor a factor is below it
LEAST = np.float32(1e-5)


def channel_amax(matrix: Coded) -> F32:
    """The largest magnitude of each column, float32 [columns]. NaN makes it NaN, as torch's does.

    x is [tokens, channels] and a weight [outputs, channels]: both are reduced over rows. Of several weights that share
    an input, the largest of theirs. A matrix without rows has 0. Raises ``BadInput`` for another shape.
    """
    if matrix.data.ndim != 2:
        raise BadInput(f"SmoothQuant: a matrix of shape {list(matrix.shape)}; expected [rows, channels]")
    return np.asarray(np.maximum.reduce(np.abs(to_float32(matrix)), axis=0, initial=np.float32(0)), np.float32)


def factors(x_amax: F32, w_amax: F32, alpha: float = 0.5) -> F32:
    """s = x_amax^alpha / max(w_amax, 1e-5)^(1 - alpha), at least 1e-5, float32 [channels].

    Each power is the float32 nearest to it (through float64), then one division. A channel that no x ever used has
    x_amax 0 and s 1e-5, whatever its weights are (alpha 0 alone makes 0^0 = 1 of it). NaN stays. Raises ``BadInput``
    for shapes that differ, negative magnitudes, and an alpha beyond 0 to 1.
    """
    if x_amax.shape != w_amax.shape or x_amax.ndim != 1:
        raise BadInput(
            f"SmoothQuant: magnitudes of {list(x_amax.shape)} and {list(w_amax.shape)}; "
            "expected [channels] of both, over the axis that the product sums"
        )
    if not 0 <= alpha <= 1:
        raise BadInput(f"SmoothQuant: alpha {alpha}; expected 0 (all stays in x) to 1 (all goes into the weights)")
    if (x_amax < 0).any() or (w_amax < 0).any():
        raise BadInput("SmoothQuant: a negative largest magnitude; expected what channel_amax gives")
    with np.errstate(all="ignore"):
        quotient = _power(x_amax, alpha) / _power(np.maximum(w_amax, LEAST), 1 - alpha)
        return np.asarray(np.maximum(quotient, LEAST), np.float32)


def _power(base: F32, exponent: float) -> F32:
    wide = base.astype(np.float64)  # a square root in float64 is the nearest, which a power need not be
    return (np.sqrt(wide) if exponent == 0.5 else np.power(wide, exponent)).astype(np.float32)


def migrated(x: Coded, w: Coded, s: F32) -> tuple[Coded, Coded]:
    """x / s and w * s, each element rounded once to float32: the product of the two is that of x and w.

    Engines divide the weight of the norm before, and not x itself; where x is divided the rounding is here.
    """
    _check(x, s)
    _check(w, s)
    with np.errstate(all="ignore"):
        return _coded(to_float32(x) / s), _coded(to_float32(w) * s)


def smoothed(x: Coded, smooth_scale: F32) -> Coded:
    """What AITER's kernel quantizes: x * smooth_scale in float32, [tokens, channels], smooth_scale being 1 / s.

    The recipe aiter.fp8_hip_smooth goes on from there, one scale a row.
    """
    _check(x, smooth_scale)
    with np.errstate(all="ignore"):
        return _coded(to_float32(x) * smooth_scale)


def _check(matrix: Coded, s: F32) -> None:
    if matrix.data.ndim != 2 or s.shape != matrix.shape[1:]:
        raise BadInput(
            f"SmoothQuant: a matrix {list(matrix.shape)} and factors {list(s.shape)}; expected one factor a column"
        )


def _coded(values: F32) -> Coded:
    return Coded("float32", np.ascontiguousarray(values, np.float32).view(np.uint32))
