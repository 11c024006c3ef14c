"""What a kernel on a key-value cache checks before anything is launched: a bad call raises, and no byte is changed.

Each raises ``ValueError`` with what was given and what was expected. The values of slots and scales are looked at,
which waits for the device: an engine checks them where it makes them.
"""

from __future__ import annotations

import torch

from narrowgauge.kernels_under_test.kv_places import block_of, count_of, width_of

#: which slot numbers a rule takes for padding: any negative one, or slot 0
NEGATIVE, ZERO = "negative", "zero"
#: types of what tokens bring
SOURCES = (torch.float32, torch.bfloat16, torch.float16)


def check_format(format, known):
    """A format that the kernel knows."""
    if format not in known:
        raise ValueError(f"format {format!r} is not known here; expected one of {', '.join(known)}")


def check_numbers(name, value, count):
    """Whole numbers, one for each of so many."""
    if value.dtype not in (torch.int32, torch.int64) or value.shape != (count,):
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)}; expected int32 or int64 [{count}]")


def check_within(name, value, low, high):
    """Numbers from ``low`` to ``high``."""
    wrong = (value < low) | (value > high)
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(f"{name}[{at}] is {int(value[at])}; expected {low} to {high}")


def check_slots(slots, tokens, count, padding=NEGATIVE):
    """One slot for each token, in a cache of ``count`` slots; padding aside."""
    check_numbers("slot_mapping", slots, tokens)
    wrong = (slots >= count) | ((slots < 0) & (padding == ZERO))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        of_padding = "any negative number" if padding == NEGATIVE else "0"
        expected = f"0 to {count - 1}, or {of_padding} for padding"
        raise ValueError(f"slot_mapping[{at}] is {int(slots[at])}; expected {expected}")


def check_axes(name, x, axes):
    """As many axes as there are names."""
    if x.ndim != len(axes.split()):
        raise ValueError(f"{name} is {list(x.shape)}; expected [{axes.replace(' ', ', ')}]")


def check_source(name, x, as_first):
    """Elements of a type that kernels load, the same for all parts."""
    if x.dtype not in SOURCES or x.dtype != as_first.dtype:
        expected = " or ".join(str(t) for t in SOURCES) if x is as_first else f"{as_first.dtype}, as the first part"
        raise ValueError(f"{name} is {x.dtype}; expected {expected}")


def check_bytes(name, cache, size, what="rows"):
    """Rows or pages of so many bytes, in the last axis."""
    if cache.dtype != torch.uint8 or cache.shape[-1] != size:
        raise ValueError(f"{name} is {cache.dtype} {list(cache.shape)}; expected torch.uint8 with {what} of {size}")


def check_rows(name, x, view, codes_per_element=1, tokens=None):
    """What tokens bring of a part, ``[tokens, heads, columns]``, against the cache that it goes to."""
    heads, width = view.shape[3], width_of(view) * codes_per_element
    if x.ndim != 3 or x.shape[1:] != (heads, width) or (tokens is not None and x.shape[0] != tokens):
        rows = "tokens" if tokens is None else tokens
        raise ValueError(f"{name} is {list(x.shape)}; expected [{rows}, {heads}, {width}], the heads of its cache")


def types_of(format):
    """Types of a tensor that holds codes of a format: its own, and bytes."""
    own = getattr(torch, format, torch.uint8)
    return (own, torch.uint8) if own.itemsize == 1 else (own,)


def check_stored(name, view, dtypes):
    """The type of a cache's elements: that of its format, or integers of the same width."""
    if view.dtype not in dtypes:
        expected = " or ".join(str(d) for d in dtypes)
        raise ValueError(f"the cache of {name} holds {view.dtype}; expected {expected}")


def check_scale_cache(name, view, heads, groups, dtypes):
    """Where the scales of a part go: so many for each head, of the type in which they are stored."""
    if view.shape[3] != heads or width_of(view) != groups or view.dtype not in dtypes:
        expected = " or ".join(str(d) for d in dtypes)
        came = f"{view.dtype}, {view.shape[3]} heads of {width_of(view)}"
        raise ValueError(f"the cache of {name}_scale holds {came}; expected {expected}, {heads} heads of {groups}")


def check_same_slots(name, view, other):
    """Two caches of as many pages and places."""
    if view.shape[0] != other.shape[0] or count_of(view) != count_of(other):
        pages, expected = ([v.shape[0], v.shape[1] * v.shape[2]] for v in (view, other))
        raise ValueError(f"the cache of {name} has [pages, places] {pages}; expected {expected}, as that of the others")


def check_scale(name, scale, *counts):
    """A static scale: float32, one or one for each head, above 0 and finite."""
    if scale.dtype != torch.float32 or scale.shape not in [(count,) for count in counts]:
        expected = " or ".join(f"[{count}]" for count in dict.fromkeys(counts))
        raise ValueError(f"{name} is {scale.dtype} {list(scale.shape)}; expected torch.float32 {expected}")
    wrong = ~((scale > 0) & torch.isfinite(scale))
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise ValueError(f"{name}[{at}] is {float(scale[at])}; expected a number above 0 that is finite")


def check_angles(table, x):
    """Cosines, then sines, of each position, in the format of x."""
    if table.ndim != 2 or table.dtype != x.dtype or table.shape[1] % 2 or not 0 < table.shape[1] <= x.shape[2]:
        came = f"{table.dtype} {list(table.shape)}"
        raise ValueError(f"cos_sin is {came}; expected {x.dtype} [positions, an even number up to {x.shape[2]}]")


# --- readers ---------------------------------------------------------------------------------------------------------


def check_sequences(table, lengths, view):
    """Lengths that a table has room for, and pages of the cache wherever a token is."""
    if table.dtype not in (torch.int32, torch.int64) or table.ndim != 2:
        raise ValueError(f"block_table is {table.dtype} {list(table.shape)}; expected int32 or int64, a matrix")
    block = block_of(view)
    check_numbers("seq_lens", lengths, table.shape[0])
    check_within("seq_lens", lengths, 0, table.shape[1] * block)
    used = torch.arange(table.shape[1], device=table.device) * block < lengths[:, None]
    wrong = used & ((table < 0) | (table >= view.shape[0]))
    if wrong.any():
        sequence, page = wrong.nonzero()[0].tolist()
        came = f"block_table[{sequence}, {page}] is {int(table[sequence, page])}"
        raise ValueError(f"{came}; expected a page from 0 to {view.shape[0] - 1}")


def check_heads(name, view, other):
    """As many heads in two caches."""
    if view.shape[3] != other.shape[3]:
        raise ValueError(f"the cache of {name} has {view.shape[3]} heads; expected {other.shape[3]}, as those of keys")


def check_query(query, sequences, heads, width):
    """One query of each sequence, whose heads share those of the cache evenly."""
    known = torch.float32, torch.bfloat16, torch.float16
    if query.ndim != 3 or query.dtype not in known or query.shape[::2] != (sequences, width) or query.shape[1] % heads:
        expected = f"[{sequences}, a multiple of {heads} heads, {width}] of 16 or 32 bits"
        raise ValueError(f"query is {query.dtype} {list(query.shape)}; expected {expected}")
