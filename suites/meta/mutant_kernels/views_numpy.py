"""The same in NumPy: see views.py."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from narrowgauge import Quantize, kernel

_TOKENS = Quantize("vllm.fp8_per_token_dynamic")
_E4 = ["float8_e4m3fn"]


def quantized(x):
    """vLLM's steps, as in views.py."""
    x = x.astype(np.float32)
    amax = np.where(np.isnan(x), 0, np.abs(x)).max(axis=1, keepdims=True)
    scale = np.maximum(amax / np.float32(448), np.float32(1 / (448 * 512)))
    y = x / scale
    return np.clip(np.where(np.isnan(y), 448, y), -448, 448).astype(ml_dtypes.float8_e4m3fn), scale


@kernel(_TOKENS, _E4, ["bfloat16"], backend="numpy")
def numpy_negates_in_place(x, format):
    made = quantized(x)
    x[-1:] *= -1
    return made


@kernel(_TOKENS, _E4, ["float32"], backend="numpy")
def numpy_takes_all_for_contiguous(x, format):
    return quantized(np.lib.stride_tricks.as_strided(x, x.shape, (x.shape[1] * x.itemsize, x.itemsize)))
