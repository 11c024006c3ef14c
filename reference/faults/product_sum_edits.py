"""The vocabulary in which faults of a product's sums, operands and last roundings are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.faults import product_models as models
from narrowgauge.reference.faults.product_ways import (
    TILES,
    Grid,
    Way,
    Ways,
    enters,
    in_result_type,
    in_tiles,
    one,
    with_terms,
)
from narrowgauge.reference.matmul.accumulators import accumulator_named
from narrowgauge.reference.matmul.multiplying import F64, Dot, Ends, Multiplying, Terms

#: in how many parts a K is split; and the tiles of K of which a part is made
PARTS, OF_TILES = (2, 4, 8), (0, 1, 16, 32, 64, 128)
_THIRTEEN = "tensor_core_13"


# --- accumulators ----------------------------------------------------------------------------------------------------


def _loosely(multiplying: Multiplying, name: str) -> Iterator[Way]:
    """All that a narrower accumulator allows, where results are wide enough to show how many bits it had."""
    narrow = accumulator_named(name)
    if narrow.stored < format_named(multiplying.format).mantissa and not multiplying.accumulator.whole:
        note = f"in some order: within the bound of {name}, and in no more bits"
        yield Way(note, replace(multiplying, accumulator=narrow), narrow.stored + 1)


def kept_in(format_name: str) -> Ways:
    """Sums of float numbers are kept in a 16-bit format: within each stretch of K, of stretches, in both."""
    rounded = models.rounding_to(format_name)

    def combine(total: F64, more: F64) -> F64:
        return rounded(total + more)

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        if multiplying.accumulator.name == format_name:
            return
        if multiplying.accumulator.whole:
            yield Way("the whole sum", replace(multiplying, dot=models.chain(format_name, 1 << 30)))
            return
        if multiplying.product.scaled == "stretches":
            yield Way("from block to block", replace(multiplying, combine=combine))
        for step in models.STEPS:
            narrow = replace(multiplying, dot=models.chain(format_name, step))
            yield Way(f"steps of {step}", narrow)
            if multiplying.product.scaled == "stretches":
                yield Way(f"steps of {step}, and from block to block", replace(narrow, combine=combine))
        yield from _loosely(multiplying, format_name)

    return ways


def in_steps(model: Callable[[int], Dot]) -> Ways:
    """Sums of tiles are kept by a model."""

    def edit(multiplying: Multiplying, step: int) -> Multiplying | None:
        return None if multiplying.accumulator.whole else replace(multiplying, dot=model(step))

    return in_tiles(edit, TILES)


def thirteen_bits(promoted: bool) -> Ways:
    """Sums of fp8 stay in a unit that keeps 13 bits: where they should be promoted, or should not be at all."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        formats = [enters(multiplying, side) for side in ("a", "b")]
        if (
            any(fmt.bits != 8 or not fmt.exponent for fmt in formats)
            or multiplying.accumulator.name == _THIRTEEN
            or bool(multiplying.accumulator.promote_every) != promoted
        ):
            return
        for step in (32, 16):
            yield Way(f"steps of {step}", replace(multiplying, dot=models.thirteen_bits(formats[0].name, step)))
        yield from _loosely(multiplying, _THIRTEEN)

    return ways


def wrapped(bits: int) -> Ways:
    """Integer sums keep their lowest bits alone."""
    return one(lambda m: replace(m, dot=models.wrapped(bits)) if m.accumulator.whole else None)


# --- parts of K ------------------------------------------------------------------------------------------------------


def _part_of(depth: int, parts: int, tile: int, in_turn: bool) -> Grid:
    """To which of several parts each k belongs: parts one after the other, or tiles dealt to them in turn.

    Without a tile parts are as even as can be.
    """
    if not tile:
        return np.repeat(np.arange(parts), [len(each) for each in np.array_split(np.arange(depth), parts)])
    tiles = np.arange(depth) // tile
    count = -(-depth // tile)
    return tiles % parts if in_turn else tiles // max(1, -(-count // parts))


def _splits(edit: Callable[[Multiplying, Callable[[int], Grid]], Multiplying], least: int = 2) -> Ways:
    """A mistake of a split K, for each way to split it."""

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        for parts, tile, in_turn in product((p for p in PARTS if p >= least), OF_TILES, (False, True)):
            of = f"{parts} parts of tiles of {tile}" if tile else f"{parts} even parts"
            if tile > 1 or not in_turn:
                yield Way(of + ", in turn" * in_turn, edit(multiplying, _split(parts, tile, in_turn)))

    return ways


def _split(parts: int, tile: int, in_turn: bool) -> Callable[[int], Grid]:
    return lambda depth: _part_of(depth, parts, tile, in_turn)


def parts_kept(kept: Callable[[Grid, int], Grid], least: int = 2) -> Ways:
    """Of a split K some parts alone count. ``kept`` is given the part of each k, and the last. At ``least`` so many."""

    def edit(multiplying: Multiplying, split: Callable[[int], Grid]) -> Multiplying:
        def change(terms: Terms) -> Terms:
            part = split(terms.a.shape[1])
            counts = kept(part, int(part.max(initial=0)))
            return replace(terms, a=np.where(counts, terms.a, 0.0), b=np.where(counts, terms.b, 0.0))

        return with_terms(multiplying, change)

    return _splits(edit, least)


def _parts_narrow(multiplying: Multiplying, split: Callable[[int], Grid], added_in: str) -> Multiplying:
    """Scaled sums of parts are rounded to the type of the result, and added up in a type."""
    narrow, wide = models.rounding_to(multiplying.format), models.rounding_to(added_in)

    def change(ends: Ends, terms: Terms) -> Ends:
        part, total = split(terms.a.shape[1]), np.zeros(ends[0].shape)
        for number in range(int(part.max(initial=0)) + 1):
            total = wide(total + narrow(scaled_sum(replace(terms, a=np.where(part == number, terms.a, 0.0)))))
        return total, total

    return replace(multiplying, sums=(*multiplying.sums, change))


def parts_in_the_results_type(multiplying: Multiplying) -> Iterator[Way]:
    """The same for each split, where the result has fewer bits than a sum: added up in float32, or in its own type."""
    if format_named(multiplying.format).mantissa >= 23:
        return
    for added_in in ("float32", multiplying.format):
        for way in _splits(partial(_parts_narrow, added_in=added_in))(multiplying):
            yield replace(way, note=f"{way.note}, added up in {added_in}")


def accumulated_in_operands_type(multiplying: Multiplying) -> Iterator[Way]:
    """Sums of fp8 are kept in fp8, which overflows to NaN."""
    fmt = enters(multiplying, "a")
    if fmt.bits == 8 and fmt.exponent and fmt.name == enters(multiplying, "b").name:
        yield Way("", replace(multiplying, dot=models.chain_of(models.narrowly(fmt.name), 1)))


def scaled_sum(terms: Terms) -> F64:
    """The product as float64 has it, under all scales."""
    total = np.zeros((len(terms.a), len(terms.b)))
    for place, where in enumerate(terms.slices):
        scale = terms.a_scale[:, place, None] * terms.b_scale[None, :, place]
        total = total + (terms.a[:, where] @ terms.b[:, where].T) * scale
    return np.asarray(total * float(np.prod(terms.factors)) / float(np.prod(terms.divisors)))


# --- when scales are applied ------------------------------------------------------------------------------------------


def scaled_after_narrowing(multiplying: Multiplying) -> Iterator[Way]:
    """Sums are rounded to the type of the result before both scales, or before one of them, and once more after."""
    if multiplying.product.scaled != "sum" or not (multiplying.a.recipe or multiplying.b.recipe):
        return

    rounded = partial(in_result_type, multiplying)

    def narrowed(before: str, behind: str) -> Multiplying:
        def change(ends: Ends, terms: Terms) -> Ends:
            scales = scales_of(terms)
            first, then = (np.prod([scales[s] for s in sides] or [np.ones((1, 1))], axis=0) if len(sides) < 2
                           else scales["a"] * scales["b"] for sides in (before, behind))  # fmt: skip
            found = rounded(terms.a @ terms.b.T * first) * then
            return found, found

        return replace(multiplying, sums=(*multiplying.sums, change))

    def stepwise(first: str, then: str) -> Multiplying:
        def change(ends: Ends, terms: Terms) -> Ends:
            scales = scales_of(terms)
            found = rounded(rounded(rounded(terms.a @ terms.b.T) * scales[first]) * scales[then])
            return found, found

        return replace(multiplying, sums=(*multiplying.sums, change))

    for before, behind, note in (("", "ab", ""), ("a", "b", "that of b"), ("b", "a", "that of a")):
        yield Way(note, narrowed(before, behind))
    for first, then in (("a", "b"), ("b", "a")):
        yield Way(f"each rounded, that of {first} first", stepwise(first, then))


def scales_of(terms: Terms) -> dict[str, F64]:
    """Scales of the first stretch, as rows and as columns of the result."""
    return {"a": terms.a_scale[:, :1], "b": terms.b_scale[:, :1].T}
