"""What torch's own operations make of the tokens in a cache: a gather by slots, and a decoding of what it gives."""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.hadamard_signs import signs_of
from narrowgauge.kernels_under_test.kv_checks import check_scale, check_sequences
from narrowgauge.kernels_under_test.kv_places import block_of, in_words, index_of

#: the values of the codes of formats that torch has no type for
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TABLES = {"float4_e2m1fn": (*_E2M1, *(-v for v in _E2M1)), "uint4": tuple(range(16))}


def slots_in(table, lengths, block):
    """The slots of all sequences' tokens, one sequence after the other."""
    lengths = lengths.long()
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    token = torch.arange(sequence.numel(), device=lengths.device) - (torch.cumsum(lengths, 0) - lengths)[sequence]
    return table[sequence, token // block].long() * block + token % block


def tokens_of(view, slots):
    """What stands in slots, [tokens, heads, elements]."""
    words = in_words(view)
    if words is None:
        return view[index_of(view, slots)].flatten(2)
    return words[slots].view(view.dtype).unflatten(1, (view.shape[3], -1))


def decoded(view, slots, source):
    """The codes in slots as float32 numbers; of formats of 4 bits two in a byte, the first one lowest."""
    found = tokens_of(view, slots)
    if source not in TABLES:
        return found.float()
    found = found.view(torch.uint8)
    table = torch.tensor(TABLES[source], device=found.device)
    return table[torch.stack([found & 15, found >> 4], dim=-1).flatten(2).long()]


def spread(scale, width):
    """A scale of each group of columns, as one of each of ``width`` columns."""
    return scale.repeat_interleave(width // scale.shape[-1], dim=-1)


def scaled(view, scales, slots, source):
    """Codes under the scales that stand beside them."""
    values = decoded(view, slots, source)
    return values * spread(tokens_of(scales, slots).float(), values.shape[-1])


def given(name, view, scale, slots, format):
    """Codes of 8 bits under a scale that is given: one, or one of each head. There are so few that a table has the
    values of all."""
    check_scale(f"{name}_scale", scale, 1, view.shape[3])
    codes = tokens_of(view, slots).view(torch.uint8).int()
    every = torch.arange(256, dtype=torch.uint8, device=codes.device).view(view.dtype)
    table = (every.float() * scale[:, None]).to(getattr(torch, format))
    if len(scale) > 1:
        codes += 256 * torch.arange(len(scale), dtype=torch.int32, device=codes.device)[:, None]
    return table.flatten().index_select(0, codes.flatten()).view(codes.shape)


def less_hidden_zero(view, scales, slots, source):
    """Codes whose zero points stand in the four lowest bits of their scales."""
    pattern = tokens_of(scales, slots).view(torch.int32)
    return (decoded(view, slots, source) - (pattern & 15)) * (pattern & -16).view(torch.float32)


def turned_back(values):
    """Heads that were rotated (Hadamard) before they were written."""
    width = values.shape[-1]
    block = width & -width
    turned, distance = values, 1
    while distance < block:
        above, below = turned.unflatten(-1, (-1, 2, distance)).unbind(-2)
        turned = torch.stack([above + below, above - below], dim=-2).flatten(-3)
        distance *= 2
    return turned * signs_of(width, values.device) / block


def rows(values, format):
    """[tokens, columns] of a wide format."""
    return values.flatten(1).to(getattr(torch, format))


def places(view, table, lengths):
    """``slots_in`` for the pages of a view. Raises ``ValueError`` for a sequence that does not lie in them."""
    check_sequences(table, lengths, view)
    return slots_in(table, lengths, block_of(view))
