"""Pages of key-value caches as views of one form: ``[pages, places // p, p, heads, columns // c, c]``.

A place of a page is ``o = o1 * p + o0``, a column of a head ``d = d1 * c + d0``. With that every engine's page is a
tensor with strides, and one kernel reaches all of them. Nothing is copied.
"""

from __future__ import annotations

import torch

#: torch's type for the patterns of elements of so many bytes
_PATTERNS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def patterns(cache):
    """The same memory as integers, except float32, which kernels load and store as it is."""
    return cache if cache.dtype == torch.float32 else cache.view(_PATTERNS[cache.element_size()])


def nhd(cache):
    """``[pages, places, heads, columns]``."""
    return cache[:, :, None, :, :, None]


def hnd(cache):
    """``[pages, heads, places, columns]``."""
    return nhd(cache.transpose(1, 2))


def packed_keys(cache):
    """``[pages, heads, columns // x, places, x]``: x elements are 16 bytes."""
    return cache.permute(0, 3, 1, 2, 4)[:, :, None]


def by_columns(cache):
    """``[pages, heads, columns, places]``."""
    return nhd(cache.permute(0, 3, 1, 2))


def interleaved(cache):
    """``[pages, heads, places // x, columns, x]``."""
    return cache.permute(0, 2, 4, 1, 3)[..., None]


def scales(cache):
    """``[pages, places, heads]``: one number of each head."""
    return nhd(cache[..., None])


def in_row(cache, start, count, dtype=torch.uint8):
    """``count`` elements from byte ``start`` on of rows of bytes, ``[pages, places, bytes]``: one head."""
    return nhd(cache[..., start : start + count * dtype.itemsize].view(dtype)[:, :, None])


def block_of(view):
    """How many places a page has."""
    return view.shape[1] * view.shape[2]


def count_of(view):
    """How many slots a cache has."""
    return view.shape[0] * block_of(view)


def width_of(view):
    """How many elements of a view a head has."""
    return view.shape[4] * view.shape[5]


def index_of(view, slots):
    """What indexes a view by slot numbers: ``view[index_of(view, slots)]`` is ``[slots, heads, columns // c, c]``."""
    slots = slots.long()
    place = slots % block_of(view)
    return slots // block_of(view), place // view.shape[2], place % view.shape[2]


def last_of_each(slots, count):
    """The slots, with -1 for each token whose slot a later token is given too, so that a slot holds one token, whole.

    Kernels write tokens in any order, and a token in parts.
    """
    where = torch.where(slots < 0, count, slots).long()
    token = torch.arange(slots.numel(), device=slots.device)
    last = torch.full((count + 1,), -1, device=slots.device, dtype=torch.int64)
    last.scatter_reduce_(0, where, token, "amax")
    return torch.where(last[where] == token, slots, -1)
