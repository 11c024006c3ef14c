"""Wrong products of matrices, in torch, from public reports: scales, sums and biases. Each says its mistake first."""

from __future__ import annotations

import torch

from narrowgauge import Matmul, kernel
from narrowgauge.suites.meta.mutant_kernels.products_right import (
    by_stretches,
    dot,
    narrow_sum,
    out,
    spread,
    thirteen_bits,
)

E4, WIDE, B16, F16 = ["float8_e4m3fn"], ["bfloat16", "float32"], ["bfloat16"], ["float16"]
BLOCK, ROWS = Matmul("vllm.fp8_block", "float32"), Matmul("vllm.fp8_token_channel", "float32")
TENSOR, BIASED = Matmul("vllm.fp8_tensor", "float32"), Matmul("vllm.fp8_token_channel_bias", "float32")

# ---------------- which scale


@kernel(BLOCK, WIDE, E4)
def product_one_scale_for_a_tile(x, format, b, a_scale, b_scale):
    """A tile of 256 of K takes the scale of its first block: sglang#39626 (64 instead of 288)."""
    a = a_scale[:, ::2].repeat_interleave(2, 1)[:, : a_scale.shape[1]]
    w = b_scale[:, ::2].repeat_interleave(2, 1)[:, : b_scale.shape[1]]
    return out(by_stretches(x, b, a, w), format)


@kernel(BLOCK, WIDE, E4)
def product_first_scales_for_all(x, format, b, a_scale, b_scale):
    """The first block's scales are taken for all of K: sglang#39626."""
    rows = spread(b_scale[:, :1], (b.shape[0], 1), 128, 1)
    return out(dot(x, b) * a_scale[:, :1] * rows.T, format)


@kernel(BLOCK, WIDE, E4)
def product_last_scales_for_all(x, format, b, a_scale, b_scale):
    """Scales are applied behind the loop over K, and are then those of its last block: a probe of the facts, E2."""
    rows = spread(b_scale[:, -1:], (b.shape[0], 1), 128, 1)
    return out(dot(x, b) * a_scale[:, -1:] * rows.T, format)


@kernel(BLOCK, WIDE, E4)
def product_weight_scales_transposed(x, format, b, a_scale, b_scale):
    """The grid of b's scales is read in the order of its transpose: vllm#44110 (transposed by a guess from shapes)."""
    turned = b_scale.flatten().reshape(b_scale.shape[1], b_scale.shape[0]).T
    return out(by_stretches(x, b, a_scale, turned), format)


@kernel(BLOCK, WIDE, E4)
def product_scales_as_powers_of_two(x, format, b, a_scale, b_scale):
    """b's scales are rounded up to powers of two and its codes are left as they are: transformers#47030."""
    return out(by_stretches(x, b, a_scale, torch.pow(2.0, b_scale.log2().ceil())), format)


@kernel(BLOCK, WIDE, E4)
def product_scale_of_the_block_before(x, format, b, a_scale, b_scale):
    """The pointer to a's scales is advanced one block late: pytorch#193802 (1x128 by 128x128 in a template; the report
    does not say how it is wrong)."""
    late = torch.cat([a_scale[:, :1], a_scale[:, :-1]], 1)
    return out(by_stretches(x, b, late, b_scale), format)


@kernel(ROWS, WIDE, E4)
def product_scales_of_the_other_axis(x, format, b, a_scale, b_scale):
    """a's scales run along N and b's along M: FBGEMM#3505 (a shape was read from the
    wrong dimension)."""
    across, down = torch.arange(b.shape[0]) % x.shape[0], torch.arange(x.shape[0]) % b.shape[0]
    return out(dot(x, b) * a_scale[across].T * b_scale[down], format)


@kernel(ROWS, WIDE, E4)
def product_rows_scaled_as_a_tensor(x, format, b, a_scale, b_scale):
    """The first row's scales hold for all rows: aiter#1258 (the mode of scaling was left per tensor)."""
    return out(dot(x, b) * a_scale[0] * b_scale[0], format)


@kernel(TENSOR, WIDE, E4)
def product_at_unity(x, format, b, a_scale, b_scale):
    """Scales are not applied: stable-diffusion.cpp#1898 (the tensor beside the weight is ignored)."""
    return out(dot(x, b), format)


@kernel(ROWS, WIDE, E4)
def product_without_the_scale_of_a(x, format, b, a_scale, b_scale):
    """Only b's scale is applied: sglang#28144 (the activation was cast to fp8, and its scale is in no product)."""
    return out(dot(x, b) * b_scale.T, format)


@kernel(TENSOR, WIDE, E4)
def product_weight_scale_twice(x, format, b, a_scale, b_scale):
    """b's scale is applied in the loop and again at the end: vllm#39407, vllm#48016."""
    return out(dot(x, b) * a_scale * b_scale * b_scale, format)


@kernel(ROWS, WIDE, E4)
def product_divided_by_the_weight_scale(x, format, b, a_scale, b_scale):
    """b's scale is divided by: modular#6600 (a divisor and a multiplier of one name are confused)."""
    return out(dot(x, b) * a_scale / b_scale.T, format)


# ---------------- in which precision, and when


@kernel(ROWS, WIDE, E4)
def product_scales_in_bfloat16(x, format, b, a_scale, b_scale):
    """Scales are rounded to bfloat16: the facts' probe E6; vllm#34577 has scales of a weight in bfloat16."""
    return out(dot(x, b) * a_scale.bfloat16().float() * b_scale.bfloat16().float().T, format)


@kernel(ROWS, B16, E4)
def product_scaled_after_the_narrowing(x, format, b, a_scale, b_scale):
    """The sum is made bfloat16 first and scaled there: SGLang's fallback, were it not for its float32 output
    (fp8_utils.py:2456-2472)."""
    return dot(x, b).bfloat16() * a_scale.bfloat16() * b_scale.bfloat16().T


@kernel(ROWS, F16, E4)
def product_through_bfloat16(x, format, b, a_scale, b_scale):
    """On its way to float16 the result is rounded to bfloat16: flashinfer#5128 (a cast by way of bfloat16)."""
    return (dot(x, b) * a_scale * b_scale.T).bfloat16().half()


@kernel(ROWS, B16, E4)
def product_cut_to_bfloat16(x, format, b, a_scale, b_scale):
    """The lower half of each float32 is cut off: triton#11897 (the interpreter's cast has no rounding)."""
    y = dot(x, b) * a_scale * b_scale.T
    return (y.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


# ---------------- in what sums are kept


@kernel(TENSOR, WIDE, E4)
def product_in_thirteen_bits(x, format, b, a_scale, b_scale):
    """Sums have 13 bits behind the point: DeepGEMM#37, SageAttention#287 (fp8 units of Ada and Hopper)."""
    return out(thirteen_bits(x, b) * a_scale * b_scale, format)


@kernel(Matmul("vllm.fp8_tensor", "promoted_128"), WIDE, E4)
def product_never_promoted(x, format, b, a_scale, b_scale):
    """13 bits all along K, where float32 takes over every 128: triton#2300 (max_num_imprecise_acc)."""
    return out(thirteen_bits(x, b) * a_scale * b_scale, format)


@kernel(BLOCK, WIDE, E4)
def product_blocks_in_thirteen_bits(x, format, b, a_scale, b_scale):
    """Each block of 128 is summed with 13 bits, under a contract of float32: DeepSeek-V3#197, cutlass#1329."""
    return out(by_stretches(x, b, a_scale, b_scale, dot=thirteen_bits), format)


@kernel(Matmul("plain.matmul"), F16, F16)
def product_in_float16(x, format, b):
    """Sums are kept in float16, and stop at 2048 or overflow: llama.cpp#17746 (float16 accumulators)."""
    return narrow_sum(x, b, torch.float16)


@kernel(Matmul("plain.matmul"), B16, B16)
def product_in_bfloat16(x, format, b):
    """Sums are kept in bfloat16, and stop at 256: ml_dtypes#63, mlx#3909."""
    return narrow_sum(x, b, torch.bfloat16)


@kernel(Matmul("plain.matmul"), B16, B16)
def product_split_in_bfloat16(x, format, b):
    """Four parts of K, each rounded to bfloat16 before they are added: modular#7165, FlagGems#5876."""
    total = torch.zeros(x.shape[0], b.shape[0], dtype=torch.bfloat16, device=x.device)
    for a, w in zip(x.tensor_split(4, 1), b.tensor_split(4, 1), strict=True):
        total = total + dot(a, w).bfloat16()
    return total


@kernel(Matmul("plain.matmul"), B16, B16)
def product_last_part_dropped(x, format, b):
    """K is split in four parts of K // 4, and what is left over is not summed: triton#630 (wrong where K % 32 != 0)."""
    whole = x.shape[1] // 4 * 4
    return out(dot(x[:, :whole], b[:, :whole]), format)


@kernel(Matmul("plain.matmul"), B16, B16)
def product_last_tile_dropped(x, format, b):
    """The loop over K ends at the last whole tile of 32: triton#630, its other half."""
    whole = x.shape[1] // 32 * 32
    return out(dot(x[:, :whole], b[:, :whole]), format)


@kernel(Matmul("plain.matmul"), B16, B16)
def product_nan_in_the_padding(x, format, b):
    """K is padded to a multiple of 32, b with zeros, a with what lies there: vllm#641, flash-attention#1745 (0 times
    NaN)."""
    rest = -x.shape[1] % 32
    a = torch.nn.functional.pad(x.float(), (0, rest), value=torch.nan)
    return out(dot(a, torch.nn.functional.pad(b.float(), (0, rest))), format)


@kernel(Matmul("plain.matmul"), F16, F16)
def product_subnormals_flushed(x, format, b):
    """Subnormal operands count as zero: ROCm's note on MI200 (MFMA of float16 and bfloat16)."""
    flushed = [torch.where(m.float().abs() < 2.0**-14, 0.0, m.float()) for m in (x, b)]
    return out(dot(*flushed), format)


@kernel(TENSOR, WIDE, E4)
def product_nan_as_480(x, format, b, a_scale, b_scale):
    """NaN codes are read as the number behind 448: triton#11897 (the interpreter keeps no NaN: 0x7F is 480)."""
    read = [torch.where(m.float().isnan(), 480.0, m.float()) for m in (x, b)]
    return out(dot(*read) * a_scale * b_scale, format)


@kernel(TENSOR, WIDE, ["float8_e4m3fnuz"])
def product_fnuz_read_as_ocp(x, format, b, a_scale, b_scale):
    """FNUZ bytes are read as OCP's: twice the value on either side: ROCm/TransformerEngine#485."""
    read = [m.view(torch.float8_e4m3fn) for m in (x, b)]
    return out(dot(*read) * a_scale * b_scale, format)


# ---------------- where b lies


@kernel(ROWS, WIDE, E4)
def product_b_not_transposed(x, format, b, a_scale, b_scale):
    """b's memory is read as [K, N]: vllm#44110 (for square weights no check of shapes helps)."""
    return out(dot(x, b.reshape(b.shape[1], b.shape[0]).T) * a_scale * b_scale.T, format)


# ---------------- biases


@kernel(BIASED, B16, E4)
def product_without_bias(x, format, b, a_scale, b_scale, bias):
    """The bias is not added; no report of just this is known."""
    return out(dot(x, b) * a_scale * b_scale.T, format)


@kernel(BIASED, B16, E4)
def product_bias_twice(x, format, b, a_scale, b_scale, bias):
    """Each of two parts of K adds the bias; no report of just this is known."""
    return out(dot(x, b) * a_scale * b_scale.T + 2 * bias.float(), format)


@kernel(BIASED, B16, E4)
def product_bias_scaled(x, format, b, a_scale, b_scale, bias):
    """The bias begins the sum, and is scaled with it: triton#8056 (an addition folded into the dot)."""
    return out((dot(x, b) + bias.float()) * a_scale * b_scale.T, format)


@kernel(BIASED, B16, E4)
def product_bias_after_the_narrowing(x, format, b, a_scale, b_scale, bias):
    """The result is rounded to bfloat16, and the bias is added there: vLLM adds it in float32 "for less rounding
    error" (triton_scaled_mm.py:153)."""
    return (dot(x, b) * a_scale * b_scale.T).bfloat16() + bias


@kernel(BIASED, B16, E4)
def product_bias_before_the_scales(x, format, b, a_scale, b_scale, bias):
    """The sum becomes bfloat16, gets the bias, and is scaled then; no report of just this is known."""
    return out((dot(x, b).bfloat16() + bias).float() * a_scale * b_scale.T, format)
