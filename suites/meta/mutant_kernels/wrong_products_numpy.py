"""Wrong products of matrices, in NumPy, from public reports. Each says its mistake in its first words."""

from __future__ import annotations

import numpy as np

from narrowgauge import Matmul, kernel

E4, WIDE, B16, F32 = ["float8_e4m3fn"], ["bfloat16", "float32"], ["bfloat16"], ["float32"]
PLAIN, ROWS = Matmul("plain.matmul"), Matmul("vllm.fp8_token_channel", "float32")


def codes(y, format):
    """float32 as codes of float32 or bfloat16, to the nearest, ties to even."""
    bits = np.ascontiguousarray(y, np.float32).view(np.uint32)
    if format == "float32":
        return bits
    near = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(y), np.uint16(0x7FC0), near)


def wide(x):
    return x.astype(np.float32)


@kernel(ROWS, WIDE, E4, backend="numpy")
def numpy_product_sums_in_the_operands_type(x, format, b, a_scale, b_scale):
    """Sums are rounded to fp8 on their way, as sums of ml_dtypes are: ml_dtypes#63 (64 ones give 16)."""
    total = np.zeros((x.shape[0], b.shape[0]), x.dtype)
    for k in range(x.shape[1]):
        total = (wide(total) + wide(x[:, k])[:, None] * wide(b[:, k])[None, :]).astype(x.dtype)
    return codes(wide(total) * a_scale * b_scale.T, format)


@kernel(PLAIN, B16, B16, backend="numpy")
def numpy_product_rounded_twice(x, format, b):
    """The result is rounded to float16 and then to bfloat16: oneDNN#2361 (rounded twice); beyond 65504 it is lost."""
    with np.errstate(over="ignore"):
        narrow = (wide(x) @ wide(b).T).astype(np.float16)
    return codes(wide(narrow), format)


@kernel(PLAIN, B16, B16, backend="numpy")
def numpy_product_one_column_early(x, format, b):
    """The loop over K begins at 1; no report of just this is known."""
    return codes(wide(x[:, 1:]) @ wide(b[:, 1:]).T, format)


@kernel(PLAIN, B16, B16, backend="numpy")
def numpy_product_skips_zeros(x, format, b):
    """Columns of K where a is 0 are skipped, and with them NaN and infinity of b: what BLAS does for beta = 0, done to
    an operand; no report of just this is known."""
    total = np.zeros((x.shape[0], b.shape[0]), np.float32)
    for k in range(x.shape[1]):
        column = wide(x[:, k])[:, None]
        with np.errstate(invalid="ignore"):
            total += np.where(column == 0, np.float32(0), column * wide(b[:, k])[None, :])
    return codes(total, format)


@kernel(ROWS, WIDE, E4, backend="numpy")
def numpy_product_rows_of_the_neighbour(x, format, b, a_scale, b_scale):
    """Row m has the scale of row m + 1: FBGEMM#3505 (an offset is not advanced with the strides)."""
    return codes(wide(x) @ wide(b).T * np.roll(a_scale, -1, 0) * b_scale.T, format)
