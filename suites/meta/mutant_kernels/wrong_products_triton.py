"""Wrong products of matrices in Triton: tails, tiles, parts of K. Each says its mistake in its first words.

The wrappers widen fp8 to float16, which is exact, and round float32 once at the end: the kernels have neither to do.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Matmul, kernel

E4, WIDE, B16, F16, I8 = ["float8_e4m3fn"], ["bfloat16", "float32"], ["bfloat16"], ["float16"], ["int8"]
PLAIN, ROWS, BLOCK = (
    Matmul("plain.matmul"),
    Matmul("vllm.fp8_token_channel", "float32"),
    Matmul("vllm.fp8_block", "float32"),
)


@triton.jit(do_not_specialize=["m_size", "n_size", "k_size"])
def _tiles(
    a, b, y, a_scale, b_scale, bias, m_size, n_size, k_size,
    MASK_A: tl.constexpr, MASK_B: tl.constexpr, MASK_N: tl.constexpr, OWN_SCALE: tl.constexpr, OWN_BIAS: tl.constexpr,
    KEPT: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """A tile M by N of a [m, k] times b [n, k], programs (n, m). The switches say what is right."""
    row, column = tl.program_id(1) * M + tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), dtype=KEPT)
    for start in range(0, k_size, K):
        k = start + tl.arange(0, K)
        a_at, b_at = row * k_size + k[None, :], column * k_size + k[:, None]
        # Without its own mask a tail reads on, up to the end of the memory.
        a_in = (row < m_size) & (k < k_size)[None, :] if MASK_A else (row < m_size) & (a_at < m_size * k_size)
        b_in = (column < n_size) & (k < k_size)[:, None] if MASK_B else (column < n_size) & (b_at < n_size * k_size)
        total = tl.dot(tl.load(a + a_at, a_in, other=0.0), tl.load(b + b_at, b_in, other=0.0), total, out_dtype=KEPT)
    found = total.to(tl.float32)
    if a_scale is not None:
        own = row if OWN_SCALE else tl.arange(0, M)[:, None]
        found = found * tl.load(a_scale + own, own < m_size, other=0.0)
        found = found * tl.load(b_scale + column, column < n_size, other=0.0)
    if bias is not None:
        own = column if OWN_BIAS else tl.arange(0, N)[None, :]
        found = found + tl.load(bias + own, own < n_size, other=0.0)
    at = row * n_size + column
    inside = (row < m_size) & (column < n_size) if MASK_N else at < m_size * n_size
    tl.store(y + at, found, inside)


def product(
    x, b, format, a_scale=None, b_scale=None, bias=None, mask_a=True, mask_b=True, mask_n=True, own_scale=True,
    own_bias=True, kept=tl.float32, tile=(32, 64, 64),
):  # fmt: skip
    """The whole product, tile by tile."""
    (m, k), n = x.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    _tiles[(triton.cdiv(n, tile[1]), triton.cdiv(m, tile[0]))](
        x.half().contiguous(), b.half().contiguous(), y, a_scale, b_scale, bias, m, n, k,
        mask_a, mask_b, mask_n, own_scale, own_bias, kept, *tile,
    )  # fmt: skip
    return y.to(getattr(torch, format))


@kernel(PLAIN, F16, F16, backend="triton", conversion="soft")
def triton_product_reads_the_next_row(x, format, b):
    """The tail of K is not masked: rows of both sides run on into the next ones: triton#630."""
    return product(x, b, format, mask_a=False, mask_b=False)


@kernel(PLAIN, F16, F16, backend="triton", conversion="soft")
def triton_product_zero_times_the_next_row(x, format, b):
    """The tail of K is masked in b alone: 0 times what follows in a, which is wrong where that is NaN or infinity:
    vllm#641, flash-attention#1745."""
    return product(x, b, format, mask_a=False)


@kernel(ROWS, WIDE, E4, backend="triton", conversion="soft")
def triton_product_spills_into_the_next_row(x, format, b, a_scale, b_scale):
    """The mask of the store lacks the end of a row: kernels-community#1153. The last tile of N writes what it has too
    much over the first numbers of the next row."""
    return product(x, b, format, a_scale, b_scale, mask_n=False, tile=(32, 16, 64))


@kernel(ROWS, WIDE, E4, backend="triton", conversion="soft")
def triton_product_scales_of_the_first_tile(x, format, b, a_scale, b_scale):
    """Every tile of M takes the scales of the first: vLLM's kernel adds the tile's number for scales of rows alone
    (triton_scaled_mm.py:75-79)."""
    return product(x, b, format, a_scale, b_scale, own_scale=False, tile=(8, 64, 64))


@kernel(Matmul("vllm.fp8_token_channel_bias", "float32"), B16, E4, backend="triton", conversion="soft")
def triton_product_bias_of_the_first_tile(x, format, b, a_scale, b_scale, bias):
    """Every tile of N takes the bias of the first; no report of just this is known."""
    return product(x, b, format, a_scale, b_scale, bias.float(), own_bias=False, tile=(32, 16, 64))


@kernel(PLAIN, F16, F16, backend="triton", conversion="soft")
def triton_product_in_float16(x, format, b):
    """The dot is told to sum in float16: llama.cpp#17746 (float16 accumulators)."""
    return product(x, b, format, kept=tl.float16)


# ---------------- scales of stretches


@triton.jit(do_not_specialize=["m_size", "n_size", "k_size", "groups"])
def _blocks(
    a, b, y, a_scale, b_scale, m_size, n_size, k_size, groups,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Scales of 128 of K and 128 of N; each tile of K takes those of its start."""
    row, column = tl.program_id(1) * M + tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, k_size, K):
        k = start + tl.arange(0, K)
        a_in, b_in = (row < m_size) & (k < k_size)[None, :], (column < n_size) & (k < k_size)[:, None]
        part = tl.dot(
            tl.load(a + row * k_size + k[None, :], a_in, other=0.0),
            tl.load(b + column * k_size + k[:, None], b_in, other=0.0),
        )
        group = start // 128  # right where K is at most 128
        total += (
            part
            * tl.load(a_scale + row * groups + group, row < m_size, other=0.0)
            * tl.load(b_scale + column // 128 * groups + group, column < n_size, other=0.0)
        )
    tl.store(y + row * n_size + column, total, (row < m_size) & (column < n_size))


@kernel(BLOCK, WIDE, E4, backend="triton", conversion="soft")
def triton_product_tiles_of_two_blocks(x, format, b, a_scale, b_scale):
    """A tile of 256 of K takes one pair of scales: sglang#39626 (BLOCK_K above the group's size)."""
    (m, k), n = x.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    _blocks[(triton.cdiv(n, 128), triton.cdiv(m, 32))](
        x.half().contiguous(), b.half().contiguous(), y, a_scale.contiguous(), b_scale.contiguous(), m, n, k,
        a_scale.shape[1], 32, 128, 256,
    )  # fmt: skip
    return y.to(getattr(torch, format))


# ---------------- parts of K


@triton.jit(do_not_specialize=["m_size", "n_size", "k_size", "share"])
def _parts(
    a, b, y, m_size, n_size, k_size, share,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Program (n, m, part) sums ``share`` of K and adds that to y, in y's own type."""
    row, column = tl.program_id(1) * M + tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    first = tl.program_id(2) * share
    for start in range(first, first + share, K):
        k = start + tl.arange(0, K)
        k_in = (k < k_size) & (k < first + share)
        total = tl.dot(
            tl.load(a + row * k_size + k[None, :], (row < m_size) & k_in[None, :], other=0.0),
            tl.load(b + column * k_size + k[:, None], (column < n_size) & k_in[:, None], other=0.0),
            total,
        )
    inside = (row < m_size) & (column < n_size)
    tl.atomic_add(y + row * n_size + column, total.to(y.dtype.element_ty), inside)


def in_parts(x, b, kept, parts, share):
    (m, k), n = x.shape, b.shape[0]
    y = torch.zeros((m, n), dtype=kept, device=x.device)
    _parts[(triton.cdiv(n, 64), triton.cdiv(m, 32), parts)](
        x.half().contiguous(), b.half().contiguous(), y, m, n, k, share, 32, 64, 32
    )
    return y


@kernel(PLAIN, F16, F16, backend="triton", conversion="soft")
def triton_product_parts_in_float16(x, format, b):
    """Parts of K are added up in float16, by atomics: exllama's kernel in vLLM (q_gemm.cu:251), under a contract of
    float32; modular#7165."""
    share = max(triton.cdiv(x.shape[1], 8), 1)
    return in_parts(x, b, torch.float16, 8, share)


@kernel(PLAIN, F16, F16, backend="triton", conversion="soft")
def triton_product_rest_of_the_parts(x, format, b):
    """Four parts of K // 4 each: what is left over is not summed; triton#630 is of such tails."""
    return in_parts(x, b, torch.float32, 4, x.shape[1] // 4).half()


# ---------------- zero points, experts


@triton.jit(do_not_specialize=["m_size", "n_size", "k_size"])
def _zero_points(
    a, b, y, a_scale, b_scale, zero, m_size, n_size, k_size,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """int8 with one zero point for each row of a. b's row sums are those of the last tile of K alone."""
    row, column = tl.program_id(1) * M + tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    total = tl.zeros((M, N), dtype=tl.int32)
    sums = tl.zeros((1, N), dtype=tl.int32)
    for start in range(0, k_size, K):
        k = start + tl.arange(0, K)
        x = tl.load(a + row * k_size + k[None, :], (row < m_size) & (k < k_size)[None, :], other=0)
        w = tl.load(b + column * k_size + k[:, None], (column < n_size) & (k < k_size)[:, None], other=0)
        total = tl.dot(x, w, total, out_dtype=tl.int32)
        sums = tl.sum(w.to(tl.int32), axis=0)[None, :]  # right: added to what was there
    total -= tl.load(zero + row, row < m_size, other=0) * sums
    found = total.to(tl.float32) * tl.load(b_scale + column, column < n_size, other=0.0)
    found = found * tl.load(a_scale + row, row < m_size, other=0.0)
    tl.store(y + row * n_size + column, found, (row < m_size) & (column < n_size))


@kernel(Matmul("vllm.int8_azp_token"), WIDE, I8, backend="triton", conversion="soft")
def triton_product_row_sums_of_the_last_tile(x, format, b, a_scale, b_scale, a_zero_point):
    """Row sums begin anew with each tile of K; no report of just this is known."""
    (m, k), n = x.shape, b.shape[0]
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    _zero_points[(triton.cdiv(n, 64), triton.cdiv(m, 32))](
        x.contiguous(), b.contiguous(), y, a_scale, b_scale, a_zero_point, m, n, k, 32, 64, 64
    )
    return y.to(getattr(torch, format))


@triton.jit(do_not_specialize=["m_size", "n_size", "k_size"])
def _experts(
    a, b, y, experts, m_size, n_size, k_size,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Tiles of M rows, all of which take the expert of their first one."""
    row, column = tl.program_id(1) * M + tl.arange(0, M)[:, None], tl.program_id(0) * N + tl.arange(0, N)[None, :]
    expert = tl.load(experts + tl.program_id(1) * M)
    total = tl.zeros((M, N), dtype=tl.float32)
    if expert >= 0:
        for start in range(0, k_size, K):
            k = start + tl.arange(0, K)
            w = b + (expert * n_size + column) * k_size + k[:, None]
            total = tl.dot(
                tl.load(a + row * k_size + k[None, :], (row < m_size) & (k < k_size)[None, :], other=0.0),
                tl.load(w, (column < n_size) & (k < k_size)[:, None], other=0.0),
                total,
            )
    tl.store(y + row * n_size + column, total, (row < m_size) & (column < n_size))


@kernel(Matmul("vllm.moe"), B16, B16, backend="triton", conversion="soft")
def triton_product_one_expert_for_a_tile(x, format, b, experts, expert_count):
    """A tile of rows has one expert, that of its first row, and rows are not sorted; no report of just this is
    known."""
    (m, k), n = x.shape, b.shape[0] // int(expert_count)
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    _experts[(triton.cdiv(n, 64), triton.cdiv(m, 2))](
        x.float().contiguous(), b.float().contiguous(), y, experts, m, n, k, 2, 64, 64
    )
    return y.bfloat16()
