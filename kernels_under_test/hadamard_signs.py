"""The signs of vLLM's Hadamard rotation."""

from __future__ import annotations

import torch

#: vLLM draws them with torch's generator from this seed
_SEED = 0x9E3779B9


def signs_of(width, device):
    """+1 and -1 for each column of a head, float32: those of the largest power of two that divides it, repeated."""
    block = width & -width
    drawn = torch.bernoulli(torch.full((block,), 0.5), generator=torch.Generator().manual_seed(_SEED))
    return (2.0 * drawn - 1.0).repeat(width // block).to(device)
