"""The calls on caches that suites make, by name; adding one is one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from narrowgauge.contracts.views import View
from narrowgauge.reference.kv.cases import Shape

_WRITES, _READS, _ATTENDS = ("kv_write",), ("kv_read", "attend"), ("attend",)
_ALL = (*_WRITES, *_READS)


class Named(NamedTuple):
    """A call, for which operations, and what it is for."""

    name: str
    operations: tuple[str, ...]
    shape: Shape
    about: str
    depth: Literal["smoke", "standard", "exhaustive"] = "smoke"
    view: View = "contiguous"  #: how x and its companions lie in memory; of "far" the buffers of the cache


def _standard(operations: tuple[str, ...], *rows: tuple[str, Shape, str]) -> tuple[Named, ...]:
    return tuple(Named(name, operations, shape, about, "standard") for name, shape, about in rows)


_SMOKE = (
    Named("scattered", _WRITES, Shape(), "scattered slots, padding; what nobody writes is NaN"),
    Named("other_fill", _WRITES, Shape(tokens=5, fill="numbers", turn=1), "another scale, numbers in the cache"),
    Named("repeated", _WRITES, Shape(at="repeated"), "two tokens of one slot: one stays, whole"),
    Named(
        "in_order",
        _WRITES,
        Shape(tokens=37, at="in_order", heads=3, turn=3),
        "whole pages and a part of one; three heads",
    ),
    Named("ends", _WRITES, Shape(tokens=8, at="ends"), "the first and last slot of the cache, and of pages"),
    Named("all_padding", _WRITES, Shape(tokens=4, at="padding"), "nothing but padding"),
    Named("no_tokens", _WRITES, Shape(tokens=0), "nothing is written"),
    Named("sliced_tokens", _WRITES, Shape(turn=2), "K and V cut out of wider rows, NaN around", view="sliced"),
    Named("permuted", _READS, Shape(), "pages in no order, NaN in all that is not used"),
    Named(
        "permuted_filled",
        _READS,
        Shape(fill="numbers", lengths=(17, 18, 50)),
        "numbers in what is not used",
    ),
    Named(
        "stale_values",
        _ATTENDS,
        Shape(fill="nan_in_v", lengths=(5, 18)),
        "NaN in V alone in what is not used",
    ),
    Named(
        "next_scale", _READS, Shape(turn=1, lengths=(7, 20), unused="stale"), "another scale; old pages in the table"
    ),
    Named(
        "three_heads",
        _READS,
        Shape(turn=2, lengths=(17, 2), heads=3, query_heads=1, of_heads=True),
        "heads of no power of two",
    ),
    Named(
        "negative_table",
        _READS,
        Shape(lengths=(18, 3), unused="negative"),
        "-1 behind the pages of a sequence",
    ),
    Named("no_sequences", _READS, Shape(lengths=()), "nothing is read"),
    Named("read_out", _ATTENDS, Shape(lengths=(1, 2, 7, 21), query="read_out"), "the weights, read out"),
    Named("bend", _ATTENDS, Shape(lengths=(9, 4), query="bend"), "scores as large as the soft cap"),
)
_HEADS = tuple(
    named._replace(shape=replace(named.shape, of_heads=True))
    for named in _standard(
        _ALL,
        ("one_head", Shape(heads=1, lengths=(20,)), "one head"),
        ("eight_heads", Shape(heads=8, width=128, lengths=(18, 4)), "eight heads of 128"),
        ("width_80", Shape(width=80, lengths=(18, 4), turn=1), "heads of 80: no power of two"),
        ("width_96", Shape(width=96, lengths=(18, 4)), "heads of 96"),
        ("width_128", Shape(width=128, lengths=(18, 4), turn=1), "heads of 128"),
        ("width_256", Shape(width=256, lengths=(18, 4)), "heads of 256"),
        ("narrow_values", Shape(value_width=32, lengths=(18, 4), turn=1), "V narrower than K"),
    )
)
_BLOCKS = _standard(
    _ALL,
    *(
        (f"block_{block}", Shape(block=block, tokens=40, lengths=(block + 3, 5)), f"pages of {block}")
        for block in (1, 32, 64, 128, 256)
    ),
)
_FILLS = _standard(
    _ALL,
    *((f"fill_{b}", Shape(fill=b, lengths=(5, 18)), f"0x{b} in what nobody uses") for b in ("00", "7f", "80", "ff")),
    ("fill_infinity", Shape(fill="infinity", lengths=(5, 18)), "infinities in what nobody uses, or the largest number"),
)
_SCALES = _standard(_ALL, *((f"scale_{turn}", Shape(turn=turn, lengths=(20,)), "other scales") for turn in (4, 5)))
_MORE = (
    *_standard(
        _WRITES,
        ("one_token", Shape(tokens=1, turn=1), "one token"),
        ("many_tokens", Shape(tokens=300, turn=1), "more tokens than a program takes"),
    ),
    Named("transposed_tokens", _WRITES, Shape(turn=1), "tokens along the last axis", "standard", "transposed"),
    Named("alternate_tokens", _WRITES, Shape(turn=1), "every second row of a tensor", "standard", "alternate_rows"),
    *_standard(
        _READS,
        ("one_key", Shape(lengths=(1,), turn=1), "one token"),
        ("whole_pages", Shape(lengths=(64, 128), unused="stale"), "pages that are full"),
        ("shared_pages", Shape(lengths=(20, 33, 17), shared=True), "sequences that begin with the same page"),
        ("long", Shape(lengths=(1030, 3), heads=1, unused="stale"), "more pages than a program takes"),
        ("many_sequences", Shape(lengths=(*range(70), 9)), "more sequences than a program takes"),
    ),
    *_standard(
        _ATTENDS,
        ("equal", Shape(lengths=(16, 1, 4), query="equal"), "all scores equal: the mean of the values"),
        ("dominant", Shape(lengths=(9, 20), query="dominant"), "one key outweighs all others"),
        ("poisoned", Shape(lengths=(5, 6), query="poisoned"), "NaN in a key and in a value that are used"),
    ),
    Named("far_pages", _WRITES, Shape(tokens=5, turn=3), "offsets that pass 32 bits", "exhaustive", "far"),
    Named("far_pages", _READS, Shape(lengths=(20, 1)), "offsets that pass 32 bits", "exhaustive", "far"),
    Named("tall", _WRITES, Shape(tokens=65_600, heads=1), "more tokens than a grid's second axis has", "exhaustive"),
    Named("longest", _ATTENDS, Shape(lengths=(4100,), heads=1), "a long sequence", "exhaustive"),
)

CALLS: tuple[Named, ...] = (*_SMOKE, *_HEADS, *_BLOCKS, *_FILLS, *_SCALES, *_MORE)
