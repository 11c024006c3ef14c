"""Pages of key-value caches as views of one form: ``[pages, places // p, p, heads, columns // c, c]``.

A place of a page is ``o = o1 * p + o0``, a column of a head ``d = d1 * c + d0``. With that every engine's page is a
tensor with strides, and one kernel reaches all of them. Nothing is copied.
"""

from __future__ import annotations

import math

import torch

#: torch's type for the patterns of elements of so many bytes
_PATTERNS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


def patterns(cache):
    """The same memory as integers, except float32, which kernels load and store as it is."""
    return cache if cache.dtype == torch.float32 else cache.view(_PATTERNS[cache.element_size()])


def _of(cache, axes):
    """The cache, if it has as many axes as there are names. Raises ``ValueError`` otherwise."""
    if cache.ndim != len(axes.split()):
        raise ValueError(f"a cache is {list(cache.shape)}; expected [{axes.replace(' ', ', ')}]")
    return cache


def nhd(cache):
    """``[pages, places, heads, columns]``."""
    return _of(cache, "pages places heads columns")[:, :, None, :, :, None]


def hnd(cache):
    """``[pages, heads, places, columns]``."""
    return nhd(_of(cache, "pages heads places columns").transpose(1, 2))


def packed_keys(cache):
    """``[pages, heads, columns // x, places, x]``: x elements are 16 bytes."""
    return _of(cache, "pages heads columns/x places x").permute(0, 3, 1, 2, 4)[:, :, None]


def by_columns(cache):
    """``[pages, heads, columns, places]``."""
    return nhd(_of(cache, "pages heads columns places").permute(0, 3, 1, 2))


def interleaved(cache):
    """``[pages, heads, places // x, columns, x]``."""
    return _of(cache, "pages heads places/x columns x").permute(0, 2, 4, 1, 3)[..., None]


def scales(cache):
    """``[pages, places, heads]``: one number of each head."""
    return nhd(_of(cache, "pages places heads")[..., None])


def flat(cache, block=1):
    """A pool ``[slots, heads, columns]``, as pages of any size. Raises ``ValueError`` where they do not divide it."""
    if _of(cache, "slots heads columns").shape[0] % block:
        raise ValueError(f"a cache has {cache.shape[0]} slots; expected whole pages of {block}")
    return nhd(cache.unflatten(0, (-1, block)))


def in_heads(cache, heads):
    """Rows of scales ``[slots, heads * columns]``, heads apart. Raises ``ValueError`` where they are no whole heads."""
    if _of(cache, "slots scales").shape[1] % heads:
        raise ValueError(f"a cache has {cache.shape[1]} scales in a slot; expected a multiple of {heads} heads")
    return cache.unflatten(1, (heads, -1))


def in_row(cache, start, count, dtype=torch.uint8):
    """``count`` elements of one head from byte ``start`` on, of rows of bytes: pages, or slots alone, first."""
    rows = cache if cache.ndim == 3 else cache[:, None]
    return nhd(rows[..., start : start + count * dtype.itemsize].view(dtype)[:, :, None])


def in_places(cache, start, count):
    """``count`` elements of one head from element ``start`` on, of rows ``[pages, places, elements]``."""
    return nhd(cache[:, :, None, start : start + count])


def in_page(cache, start, shape, dtype=torch.uint8):
    """``[pages, *shape]`` from byte ``start`` on, of pages of bytes."""
    size = math.prod(shape) * dtype.itemsize
    return cache[:, start : start + size].view(dtype).unflatten(1, shape)


def by_fours(view):
    """A row of scales in which number s stands at ``(s % 4) * (count // 4) + s // 4``."""
    return view[..., 0].unflatten(4, (4, -1)).transpose(4, 5)


def swizzled(cache):
    """Scales ``[pages, heads, places, columns]`` in which scale s of place t stands in row ``t // 4 * 4 + s // c`` and
    column ``s % c * 4 + t % 4``; c is a quarter of the columns."""
    cut = _of(cache, "pages heads places columns").unflatten(2, (-1, 4)).unflatten(4, (-1, 4))
    return cut.permute(0, 2, 5, 1, 3, 4)


def interleaved_scales(cache):
    """``[pages, heads, 32, places // 32, columns]``."""
    return _of(cache, "pages heads 32 places/32 columns").permute(0, 3, 2, 1, 4)[..., None]


def tiled(cache):
    """Pages of bytes that begin with one head's ``[places // 16, columns // 16, 16, 16]``."""
    return cache.permute(0, 1, 3, 2, 4)[:, :, :, None]


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


def in_words(view):
    """The memory of a view as words of 8 bytes, [slots, words], for moves of whole tokens; None where the elements of a
    token do not stand together."""
    size = view.element_size() * view.shape[3] * width_of(view)
    if size % 8 or view.data_ptr() % 8 or not view.is_contiguous():
        return None
    return view.view(-1, view.shape[3] * width_of(view)).view(torch.int64)


def last_of_each(slots, count):
    """The slots, with -1 for each token whose slot a later token is given too, so that a slot holds one token, whole.

    Kernels write tokens in any order, and a token in parts.
    """
    where = torch.where(slots < 0, count, slots).long()
    token = torch.arange(slots.numel(), device=slots.device)
    last = torch.full((count + 1,), -1, device=slots.device, dtype=torch.int64)
    last.scatter_reduce_(0, where, token, "amax")
    return torch.where(last[where] == token, slots, -1)
