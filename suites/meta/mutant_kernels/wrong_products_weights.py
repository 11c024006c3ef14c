"""Wrong products of matrices, in torch, from public reports: zero points, four bits, MX, NVFP4 and experts. Each says
its mistake first."""

from __future__ import annotations

import torch

from narrowgauge import Matmul, kernel
from narrowgauge.suites.meta.mutant_kernels.products_right import (
    awq,
    by_experts,
    dot,
    e2m1,
    gptq,
    nibbles,
    nvfp4,
    out,
    spread,
    two_to,
    weights,
    words,
)

I8, E4, E2, WIDE = ["int8"], ["float8_e4m3fn"], ["float4_e2m1fn"], ["bfloat16", "float32"]
B16, F16 = ["bfloat16"], ["float16"]
AZP_ROWS, AZP_TENSOR = Matmul("vllm.int8_azp_token"), Matmul("vllm.int8_azp_tensor")
AWQ, GPTQ, ORDERED = Matmul("awq.gemm"), Matmul("gptq.gemm"), Matmul("gptq.gemm_act_order")
SYMMETRIC = Matmul("gptq.gemm_symmetric")
MX8, MX4, NV4 = Matmul("ocp.mxfp8", "float32"), Matmul("ocp.mxfp4", "float32"), Matmul("nvidia.nvfp4", "float32")
EXPERTS = Matmul("vllm.moe_fp8_channel", "float32")

# ---------------- int8 with zero points


def whole(x, b):
    """The exact sum, in int64."""
    return x.long() @ b.long().T


@kernel(AZP_ROWS, WIDE, I8)
def product_row_sums_missing(x, format, b, a_scale, b_scale, a_zero_point):
    """The zero point of a is not taken out: no report of just this is known (the facts, A.2: acc - azp * rowsum)."""
    return out(whole(x, b).float() * b_scale.T * a_scale, format)


@kernel(AZP_ROWS, WIDE, I8)
def product_row_sums_not_multiplied(x, format, b, a_scale, b_scale, a_zero_point):
    """Row sums of b are subtracted as they are, as if the zero point were in them: vLLM multiplies them beforehand for
    a tensor's zero point and not for rows' (cutlass.py:92-113)."""
    sums = b.long().sum(1)
    return out((whole(x, b) - sums).float() * b_scale.T * a_scale, format)


@kernel(AZP_TENSOR, WIDE, I8)
def product_zero_point_added(x, format, b, a_scale, b_scale, a_zero_point):
    """The zero point's term is added; no report of just this is known."""
    return out((whole(x, b) + a_zero_point.long() * b.long().sum(1)).float() * b_scale.T * a_scale, format)


@kernel(AZP_TENSOR, WIDE, I8)
def product_zero_point_squared(x, format, b, a_scale, b_scale, a_zero_point):
    """Row sums that have the zero point in them already are multiplied by it again: the other half of the confusion of
    vLLM's two forms (cutlass.py:92-113)."""
    zero = a_zero_point.long()
    return out((whole(x, b) - zero * zero * b.long().sum(1)).float() * b_scale.T * a_scale, format)


@kernel(AZP_ROWS, WIDE, I8)
def product_zero_points_of_the_first_row(x, format, b, a_scale, b_scale, a_zero_point):
    """The first row's zero point holds for all: aiter#1258, for zero points."""
    return out((whole(x, b) - a_zero_point[0].long() * b.long().sum(1)).float() * b_scale.T * a_scale, format)


@kernel(Matmul("vllm.int8_token_channel"), WIDE, I8)
def product_integers_in_float16(x, format, b, a_scale, b_scale):
    """The integer sum passes through float16: llama.cpp#17746 (sums in float16), for int8."""
    return out(whole(x, b).half().float() * a_scale * b_scale.T, format)


# ---------------- four bits


def groups_of(k, size=128):
    return torch.arange(k) // size


def gptq_zeros(packed, more=1):
    """[G, N / 8] words to [G, N] zero points; version 1 stores them less 1."""
    return words(packed).reshape(packed.shape[0], -1) + more


def times(x, codes, zeros, scales, format, groups=None):
    """a times weights of four bits, dequantized in the scales' type."""
    groups = groups_of(len(codes)) if groups is None else groups
    return out(dot(x, weights(codes, zeros, scales, groups).T), format)


@kernel(GPTQ, F16, F16)
def product_gptq_zero_one_higher(x, format, b, b_scale, b_zero_point):
    """1 is added to zeros that have it already: vllm#38966 (zeros of v2 under the tag of v1: every weight is off by one
    scale)."""
    return times(x, gptq(b), gptq_zeros(b_zero_point, 2), b_scale, format)


@kernel(GPTQ, F16, F16)
def product_gptq_zero_one_lower(x, format, b, b_scale, b_zero_point):
    """Stored zeros of version 1 are taken as they are: vllm#38966, the other way round."""
    return times(x, gptq(b), gptq_zeros(b_zero_point, 0), b_scale, format)


@kernel(GPTQ, F16, F16)
def product_gptq_zero_wraps(x, format, b, b_scale, b_zero_point):
    """A stored zero of 15 becomes 0 and not 16: GPTQModel#2350 (the same wrap when zeros are written)."""
    return times(x, gptq(b), gptq_zeros(b_zero_point) & 15, b_scale, format)


@kernel(SYMMETRIC, F16, F16)
def product_gptq_zero_of_7(x, format, b, b_scale):
    """Codes are taken less 7, which is what version 1 stores for 8: vllm#38966's neighbour, R27 of the facts."""
    return times(x, gptq(b), torch.full_like(b_scale, 7, dtype=torch.int32), b_scale, format)


@kernel(AWQ, F16, F16)
def product_awq_zero_one_higher(x, format, b, b_scale, b_zero_point):
    """GPTQ's 1 is added to AWQ's zeros: GPTQModel#2350 (of the two conventions one is used for both)."""
    return times(x, awq(b), awq(b_zero_point) + 1, b_scale, format)


@kernel(AWQ, F16, F16)
def product_awq_zero_of_0_wraps(x, format, b, b_scale, b_zero_point):
    """A zero of 0 is 16: GPTQModel#2350 (0 less 1 packs to 15, and 1 is added again)."""
    zeros = awq(b_zero_point)
    return times(x, awq(b), torch.where(zeros == 0, 16, zeros), b_scale, format)


@kernel(AWQ, F16, F16)
def product_awq_in_order(x, format, b, b_scale, b_zero_point):
    """Codes are unpacked from the lowest four bits up, without AWQ's permutation: triton#5197 (an order of nibbles)."""
    return times(x, words(b).reshape(b.shape[0], -1), awq(b_zero_point), b_scale, format)


@kernel(AWQ, F16, F16)
def product_awq_zeros_in_order(x, format, b, b_scale, b_zero_point):
    """Zeros alone are unpacked without AWQ's permutation: triton#5197, for zeros."""
    return times(x, awq(b), words(b_zero_point).reshape(b_scale.shape[0], -1), b_scale, format)


@kernel(AWQ, F16, F16)
def product_awq_groups_of_64(x, format, b, b_scale, b_zero_point):
    """The group of k is k // 64, as far as there are groups: sglang#39626, the other way round."""
    groups = groups_of(len(b), 64).clamp(max=len(b_scale) - 1)
    return times(x, awq(b), awq(b_zero_point), b_scale, format, groups)


@kernel(AWQ, F16, F16)
def product_awq_first_group_for_all(x, format, b, b_scale, b_zero_point):
    """The first group's scales hold for all of K: sglang#39626."""
    return times(x, awq(b), awq(b_zero_point), b_scale, format, groups_of(len(b)) * 0)


@kernel(AWQ, F16, F16)
def product_awq_split_in_float16(x, format, b, b_scale, b_zero_point):
    """Eight parts of K, each stored in float16, and added there: vLLM's awq_triton.py:315,335, under a contract of
    float32."""
    made = weights(awq(b), awq(b_zero_point), b_scale, groups_of(len(b))).T
    total = torch.zeros(x.shape[0], made.shape[0], dtype=torch.float16, device=x.device)
    for a, w in zip(x.tensor_split(8, 1), made.tensor_split(8, 1), strict=True):
        total = total + dot(a, w).half()
    return total


@kernel(AWQ, F16, F16)
def product_awq_weights_in_bfloat16(x, format, b, b_scale, b_zero_point):
    """Weights are dequantized in bfloat16 for a product of float16: vLLM's two paths for four bits differ in the type
    of this product (fused_moe.py:272-274)."""
    return times(x, awq(b), awq(b_zero_point), b_scale.bfloat16(), format)


@kernel(AWQ, F16, F16)
def product_awq_zero_after_the_scale(x, format, b, b_scale, b_zero_point):
    """Codes are scaled, and the zero point, unscaled, is subtracted then; no report of just this is known."""
    codes, zeros, groups = awq(b), awq(b_zero_point), groups_of(len(b))
    made = codes.to(b_scale.dtype) * b_scale[groups] - zeros[groups].to(b_scale.dtype)
    return out(dot(x, made.T), format)


@kernel(ORDERED, F16, F16)
def product_order_of_groups_ignored(x, format, b, b_scale, b_zero_point, b_group_index):
    """The group of k is k // 128 though the checkpoint has an order: no report of just this is known; the facts on
    GPTQ, D.5."""
    return times(x, gptq(b), gptq_zeros(b_zero_point), b_scale, format)


# ---------------- MX and NVFP4


@kernel(MX8, WIDE, E4)
def product_e8m0_as_numbers(x, format, b, a_scale, b_scale):
    """The byte of a scale is taken for its value: composable_kernel#2640 (0xFF became a number)."""
    scales = [s.view(torch.uint8).float() for s in (a_scale, b_scale)]
    sides = [m.float() * spread(s, m.shape, 1, 32) for m, s in zip((x, b), scales, strict=True)]
    return out(dot(*sides), format)


@kernel(MX8, WIDE, E4)
def product_e8m0_zero_for_the_lowest(x, format, b, a_scale, b_scale):
    """Byte 0 gives 0 and not 2^-127: triton#11624, triton#11737."""
    scales = [torch.where(s.view(torch.uint8) == 0, 0.0, two_to(s)) for s in (a_scale, b_scale)]
    sides = [m.double() * spread(s, m.shape, 1, 32).double() for m, s in zip((x, b), scales, strict=True)]
    return out((sides[0] @ sides[1].T).float(), format)


@kernel(MX8, WIDE, E4)
def product_mx_scale_of_the_group_before(x, format, b, a_scale, b_scale):
    """b's scales come one group late; TE#3070 reads scales where none are."""
    late = torch.roll(two_to(b_scale), 1, 1)
    return out(
        dot(x.float() * spread(two_to(a_scale), x.shape, 1, 32), b.float() * spread(late, b.shape, 1, 32)), format
    )


@kernel(MX4, WIDE, E2)
def product_nibbles_swapped(x, format, b, a_scale, b_scale):
    """Of b the high nibble comes first: triton#5197."""
    turned = nibbles(b).reshape(b.shape[0], -1, 2).flip(2).reshape(b.shape[0], -1)
    sides = [e2m1(nibbles(x)), e2m1(turned)]
    scaled = [m * spread(two_to(s), m.shape, 1, 32) for m, s in zip(sides, (a_scale, b_scale), strict=True)]
    return out(dot(*scaled), format)


@kernel(MX4, WIDE, E2)
def product_nibbles_split(x, format, b, a_scale, b_scale):
    """Bytes of b hold elements j and j + 16 of a block, as GGML has them: imp#567."""
    packed = b.view(torch.uint8).reshape(b.shape[0], -1, 16)
    codes = torch.cat([packed & 15, packed >> 4], -1).reshape(b.shape[0], -1)
    sides = [e2m1(nibbles(x)), e2m1(codes)]
    scaled = [m * spread(two_to(s), m.shape, 1, 32) for m, s in zip(sides, (a_scale, b_scale), strict=True)]
    return out(dot(*scaled), format)


@kernel(NV4, WIDE, E2)
def product_global_scales_ignored(x, format, b, a_scale, b_scale, a_global_scale, b_global_scale):
    """The tensors' scales are left out: stable-diffusion.cpp#1898, for NVFP4."""
    return out(nvfp4(x, b, a_scale, b_scale), format)


@kernel(NV4, WIDE, E2)
def product_global_scale_inverted(x, format, b, a_scale, b_scale, a_global_scale, b_global_scale):
    """A divisor is multiplied by: modular#6600 (2688 / amax and amax / 2688 confused)."""
    return out(nvfp4(x, b, a_scale, b_scale) * b_global_scale / a_global_scale, format)


@kernel(NV4, WIDE, E2)
def product_global_scale_of_one_side(x, format, b, a_scale, b_scale, a_global_scale, b_global_scale):
    """b's tensor scale stands for a's too: vllm#54974 (of two global scales one is used for both)."""
    return out(nvfp4(x, b, a_scale, b_scale) / b_global_scale / b_global_scale, format)


# ---------------- experts


@kernel(EXPERTS, B16, E4)
def product_expert_of_the_row_before(x, format, b, a_scale, b_scale, experts, expert_count):
    """Each row takes the expert of the row before it: no report of just this is known."""
    shifted = torch.cat([experts[:, :1], experts[:, :-1]], 1)
    return by_experts(x, b, a_scale, b_scale, shifted, expert_count, format)


@kernel(EXPERTS, B16, E4)
def product_expert_minus_one_wraps(x, format, b, a_scale, b_scale, experts, expert_count):
    """Rows of no expert are multiplied by the last one's matrix: vllm#57156 (the scale is guarded, the data is not)."""
    wrapped = torch.where(experts < 0, expert_count - 1, experts)
    return by_experts(x, b, a_scale, b_scale, wrapped, expert_count, format)


@kernel(EXPERTS, B16, E4)
def product_scales_of_the_first_expert(x, format, b, a_scale, b_scale, experts, expert_count):
    """Every expert is scaled with the first one's scales: vllm#26135 (a scale over part of the experts)."""
    return by_experts(x, b, a_scale, b_scale, experts, expert_count, format, lambda e: 0)


@kernel(EXPERTS, B16, E4)
def product_experts_share_the_largest_scale(x, format, b, a_scale, b_scale, experts, expert_count):
    """One scale, the largest, for all experts, whose codes are as they were: vllm#54974, sglang#4594."""
    return by_experts(x, b, a_scale, b_scale.amax().expand_as(b_scale), experts, expert_count, format)


@kernel(EXPERTS, B16, E4)
def product_rows_of_no_expert_unwritten(x, format, b, a_scale, b_scale, experts, expert_count):
    """Rows of no expert keep what the memory held: vllm#37442 (stale rows)."""
    y = by_experts(x, b, a_scale, b_scale, experts, expert_count, format)
    kept = torch.empty_like(y)
    used = experts.flatten() >= 0
    kept[used] = y[used]
    return kept
