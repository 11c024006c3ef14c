"""RMSNorm in Triton, with and without a residual: a program has whole rows, and all is float32."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge.kernels_under_test.claiming import BFLOAT16, FLOAT32, wide
from narrowgauge.kernels_under_test.triton_codec import load_float32_bits, store_float32_bits
from narrowgauge.kernels_under_test.triton_kv_gather import patterns_for
from narrowgauge.kernels_under_test.triton_steps import bits, over, real, to_bfloat16
from narrowgauge.kernels_under_test.triton_tiling import elements_of, groups_of


@triton.jit
def in_float32(x):
    return x


#: what rounds to the format of x
ROUND = {torch.float32: in_float32, torch.bfloat16: to_bfloat16}


@triton.jit(do_not_specialize=["rows", "columns"])
def norm_rows(
    x, residual, weight, y, stream, rows, columns,
    SUM: tl.constexpr, NORMAL: tl.constexpr, MORE: tl.constexpr, BF16: tl.constexpr, BESIDE: tl.constexpr,
    STREAM: tl.constexpr, TO: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """ROWS rows a program. ``SUM`` rounds x plus the residual, ``NORMAL`` what is normed, before the weight."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    mask = (row < rows) & (column < columns)
    place = row * columns + column
    value = real(load_float32_bits(x, place, mask, BF16))
    if residual is not None:
        value = SUM(value + real(load_float32_bits(residual, place, mask, BESIDE)))
        store_float32_bits(stream, place, bits(value), mask, STREAM)
    mean = over(tl.sum(value * value, 1)[:, None], columns.to(tl.float32))
    normal = NORMAL(value * over(1.0, tl.sqrt_rn(mean + 1e-6)))
    factor = real(load_float32_bits(weight, column, column < columns, BF16)) + MORE
    store_float32_bits(y, place, bits(normal * factor), mask, TO)


def normed(x, weight, format, residual=None, *, rounds_sum=False, rounds_normal=False, more=0.0):
    """y [rows, columns] as patterns of ``format``; with a residual the pair of y and the new one."""
    rows, columns = x.shape
    y, to = patterns_for(format, x.shape, x.device)
    stream, stream_to, of_residual, beside = None, 0, None, False
    if residual is not None:
        kept = str(residual.dtype).removeprefix("torch.")
        stream, stream_to = patterns_for(kept, x.shape, x.device)
        of_residual, beside = elements_of(residual.contiguous())
    width = triton.next_power_of_2(columns)
    tile, _ = groups_of(rows, width)
    loaded, bf16 = elements_of(x.contiguous())
    own = ROUND[x.dtype]
    norm_rows[(triton.cdiv(rows, tile),)](
        loaded, of_residual, elements_of(weight.contiguous())[0], y, stream, rows, columns,
        own if rounds_sum else in_float32, own if rounds_normal else in_float32, more, bf16, beside, stream_to, to,
        tile, width, enable_fp_fusion=False,
    )  # fmt: skip
    return y if stream is None else (y, stream)


@wide("rms_norm", BFLOAT16)
def triton_wide_rms_norm(x, format, weight):
    return normed(x, weight, format)


@wide("rms_norm_twice_rounded", BFLOAT16)
def triton_wide_rms_norm_twice(x, format, weight):
    return normed(x, weight, format, rounds_normal=True)


@wide("rms_norm_one_more", BFLOAT16)
def triton_wide_rms_norm_one_more(x, format, weight):
    return normed(x, weight, format, more=1.0)


@wide("add_rms_norm", FLOAT32)
def triton_wide_add_rms_norm(x, format, weight, residual):
    return normed(x, weight, format, residual)


@wide("add_rms_norm_rounded", BFLOAT16)
def triton_wide_add_rms_norm_rounded(x, format, weight, residual):
    return normed(x, weight, format, residual, rounds_sum=True)


@wide("add_rms_norm_float32", BFLOAT16)
def triton_wide_add_rms_norm_float32(x, format, weight, residual):
    return normed(x, weight, format, residual)
