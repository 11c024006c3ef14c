"""Single elements in words: as value and bits, and those that differ with what went in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.operations import Claim, Convert, Matmul, OfCache, WideOp
from narrowgauge.contracts.product import EXPERTS
from narrowgauge.contracts.recipe import Blocks
from narrowgauge.contracts.verdict import Mismatch
from narrowgauge.reference.behaviour import blocks_of
from narrowgauge.reference.compare import Difference
from narrowgauge.reference.expected import quantized
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.listing import token_of
from narrowgauge.reference.showing import show

#: how many differing elements a verdict lists
LISTED = 10


def mismatches(
    claim: Claim, x: Coded, got: Mapping[str, Coded], want: Expected, difference: Difference
) -> list[Mismatch]:
    """The first differing elements, a few of each class, with what went in."""
    listed: list[Mismatch] = []
    for name, classes in difference.classes.items():
        numbers = np.unique(classes[classes != 0])
        for number in numbers:
            for place in np.argwhere(classes == number)[: max(1, LISTED // len(numbers))]:
                index = tuple(int(i) for i in place)
                low, high = want[name].low, want[name].high
                ends = [show(Coded(c.format, c.data[index])) for c in (low, high)]
                listed.append(
                    Mismatch(
                        output=name,
                        index=index,
                        kind=difference.kind(name, index),
                        input=origin(claim, x, name, index, classes.shape),
                        got=show(Coded(got[name].format, got[name].data[index])),
                        want=ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}",
                    )
                )
    return listed


def origin(claim: Claim, x: Coded, output: str, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What one element of an output came from, in words: values, with what is given for them."""
    if isinstance(claim.contract, OfCache):
        return token_of(claim, x, output, index)
    if isinstance(claim.contract, Convert):
        return _converted_from(x, index, shape)
    if isinstance(claim.contract, Matmul):
        return _multiplied_from(x, index)
    if isinstance(claim.contract, WideOp):
        return _row_of(x, index)
    return input_of(quantized(claim, x), index, shape, blocks_of(claim))


def _converted_from(x: Coded, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The code in that place where there is one, and of what is given what is in it, or shared by it."""
    own = show(Coded(x.format, x.data[index])) if shape == x.shape else ""
    beside = []
    for name, value in given_with(x).items():
        if value.shape == shape or len(value.data.ravel()) == 1:
            there = index if value.shape == shape else (0, 0)
            beside.append(f"{name} {show(Coded(value.format, value.data[there]))}")
    return ", ".join([own, *beside]) if own else ", ".join(beside)


def _row_of(x: Coded, index: tuple[int, ...]) -> str:
    """The element in that place where there is one, and what its row holds, since all of it counts."""
    row = decode_values(Coded(x.format, x.data[index[0]]))
    own = f"{show(Coded(x.format, x.data[index]))}, " if index[1] < x.shape[1] else ""
    odd = np.count_nonzero(~np.isfinite(row))
    ends = row[np.isfinite(row)]
    held = f"{ends.min():.9g} to {ends.max():.9g}" if ends.size else "nothing finite"
    return f"{own}row {index[0]} of {x.shape[1]} elements, {held}" + (f", {odd} not finite" if odd else "")


def _multiplied_from(x: Coded, index: tuple[int, ...]) -> str:
    """Which row and column, and the scales and bias that are theirs alone."""
    row, column = index
    beside = []
    for name, value in given_with(x).items():
        at = row if name.partition("_")[0] in ("a", EXPERTS) else column
        columns = value.shape[1]
        if value.shape == (1, 1) or (name != "b" and 1 in value.shape and max(value.shape) > at):
            there = (0, 0) if value.shape == (1, 1) else (at, 0) if columns == 1 else (0, at)
            beside.append(f"{name} {show(Coded(value.format, value.data[there]))}")
    return ", ".join([f"row {row} of a, column {column}: {x.shape[1]} products", *beside])


def input_of(x: Coded, index: tuple[int, ...], shape: tuple[int, ...], blocks: Blocks | None) -> str:
    """The element that the output element came from, or the block for an output that has one value for each; and what
    is given for it."""
    if blocks is None or shape == x.shape:
        own = show(Coded(x.format, x.data[index]))
    else:
        own = _block(x, index, shape, blocks)
    beside = []
    for name, value in given_with(x).items():
        there = tuple(at * count // of for at, count, of in zip(index, value.shape, shape, strict=True))
        if blocks is not None and shape == x.shape and value.shape != (1, 1):
            each = (blocks.rows or x.shape[0], blocks.columns or x.shape[1])
            there = tuple(at // size for at, size in zip(index, each, strict=True))
        beside.append(f"{name} {show(Coded(value.format, value.data[there]))}")
    return ", ".join([own, *beside])


def _block(x: Coded, index: tuple[int, ...], shape: tuple[int, ...], blocks: Blocks) -> str:
    places, words = [], []
    for axis, (at, count, each) in enumerate(zip(index, shape, (blocks.rows, blocks.columns), strict=True)):
        size = x.shape[axis]
        first, past = (0, size) if count == 1 else (at * each, min((at + 1) * each, size))
        places.append(slice(first, past))
        if past - first < size:
            name = ("row", "column")[axis]
            words.append(f"{name} {first}" if past == first + 1 else f"{name}s {first} to {past - 1}")
    block = decode_values(Coded(x.format, np.ascontiguousarray(x.data[tuple(places)])))
    magnitudes = np.abs(block[~np.isnan(block)])
    return f"{', '.join(words) or 'the tensor'}, largest magnitude {magnitudes.max(initial=0.0):.9g}"
