"""What wrong products of matrices have right: sums in float32, scales in blocks, four bits, the last rounding."""

from __future__ import annotations

import torch

#: what E2M1's codes stand for
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_AWQ = (0, 4, 1, 5, 2, 6, 3, 7)


def dot(a, b):
    """[M, K] times [N, K] transposed, summed in float32."""
    return a.float() @ b.float().T


def out(y, format):
    """Rounded once."""
    return y.to(getattr(torch, format))


def spread(grid, shape, rows, columns):
    """What belongs to each element of a matrix; the last blocks may be smaller."""
    wide = grid.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)
    return wide[: shape[0], : shape[1]]


def by_stretches(x, b, a_scale, b_scale, size=128, dot=dot):
    """Sums of stretches of K, each times both of its scales, added up in float32."""
    total = torch.zeros(x.shape[0], b.shape[0], device=x.device)
    for at, start in enumerate(range(0, x.shape[1], size)):
        part = dot(x[:, start : start + size], b[:, start : start + size])
        rows = spread(b_scale[:, at : at + 1], (b.shape[0], 1), size, 1)
        total = total + part * a_scale[:, at : at + 1] * rows.T
    return total


def e2m1(codes):
    """Codes of one byte each, as float32."""
    table = torch.tensor([*_E2M1, *(-v for v in _E2M1)], device=codes.device)
    return table[codes.long()]


def nibbles(packed):
    """[R, C] bytes to [R, 2 C] codes, the low one first."""
    packed = packed.view(torch.uint8)
    return torch.stack([packed & 15, packed >> 4], -1).flatten(1)


def two_to(bytes_):
    """E8M0 bytes as float32; byte 0 is 2^-127."""
    return torch.pow(2.0, bytes_.view(torch.uint8).double() - 127).float()


def words(packed):
    """[R, C] int32 to [R, C, 8] codes of four bits, the lowest first."""
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    return packed[..., None] >> shifts & 15


def awq(packed):
    """[K, N / 8] words to [K, N] codes."""
    order = torch.tensor(_AWQ, device=packed.device)
    return words(packed)[..., order].flatten(1)


def gptq(packed):
    """[K / 8, N] words to [K, N] codes."""
    return words(packed).transpose(1, 2).reshape(-1, packed.shape[1])


def weights(codes, zeros, scales, groups):
    """[K, N] codes less the zero of their group, times its scale, in the scale's own format; ``groups`` [K]."""
    return (codes - zeros[groups]).to(scales.dtype) * scales[groups]


def narrow_sum(x, b, kept):
    """Summed one product after the other in a narrow type."""
    total = torch.zeros(x.shape[0], b.shape[0], dtype=kept, device=x.device)
    a, w = x.float(), b.float()
    for k in range(x.shape[1]):
        total = (total.float() + a[:, k, None] * w[None, :, k]).to(kept)
    return total


def thirteen_bits(x, b, length=32):
    """Ada's and Hopper's fp8 units: ``length`` products at a time, aligned to the largest, 13 bits below it kept."""
    a, w = x.double(), b.double()
    total = torch.zeros(x.shape[0], b.shape[0], dtype=torch.float64, device=x.device)
    for start in range(0, x.shape[1], length):
        products = a[:, None, start : start + length] * w[None, :, start : start + length]
        terms = torch.cat([products, total[..., None]], -1)
        # A product of significands lies in [1, 4), and counts with the exponents of its factors.
        exponents = _exponent(a)[:, None, start : start + length] + _exponent(w)[None, :, start : start + length]
        exponents = torch.cat([exponents, _exponent(total)[..., None]], -1)
        exponents = torch.where(terms == 0, -200.0, exponents)
        unit = torch.pow(2.0, exponents.amax(-1, keepdim=True) - 13)
        sums = (torch.trunc(terms / unit) * unit).sum(-1)
        own = torch.pow(2.0, _exponent(sums) - 13)
        total = torch.trunc(sums / own) * own
    return total.float()


def _exponent(x):
    return (torch.frexp(x)[1] - 1).double()


def nvfp4(x, b, a_scale, b_scale):
    """The sum of products and block scales, without the tensors' scales."""
    sides = [e2m1(nibbles(m)) for m in (x, b)]
    return dot(*(m * spread(s, m.shape, 1, 16) for m, s in zip(sides, (a_scale, b_scale), strict=True)))


def by_experts(x, b, a_scale, b_scale, experts, expert_count, format, scale_of=lambda e: e):
    """Row m times the matrix of its expert; a negative expert, and what lies beyond the last, give zeros."""
    count = int(expert_count)
    matrices, scales = b.float().reshape(count, -1, x.shape[1]), b_scale.reshape(count, -1)
    y = torch.zeros(x.shape[0], matrices.shape[1], device=x.device)
    for row, expert in enumerate(experts.flatten().tolist()):
        if 0 <= expert < count:
            y[row] = dot(x[row : row + 1], matrices[expert])[0] * a_scale[row] * scales[scale_of(expert)]
    return out(y, format)
