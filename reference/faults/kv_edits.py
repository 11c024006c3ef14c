"""The vocabulary in which faults of kernels on caches are written: edits of a ``Paged``, or None where they change
nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Attend, KvWrite
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.call import HELD, Numbers, matrices_of, numbers, places_of, rows_of, sizes_of
from narrowgauge.reference.kv.outputs import paged_outputs
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, element_of, image, matrices_in, shape_of
from narrowgauge.reference.kv.slots import SLOTS, is_padding

PagedEdit = Callable[[Paged], Paged | None]
Fits = Callable[[Paged], bool]
#: the slot of a token that is written nowhere
NOWHERE = -1


def writes(paged: Paged) -> bool:
    return isinstance(paged.contract, KvWrite)


def reads(paged: Paged) -> bool:
    """Whether tokens are gathered from the cache: as values, or for attention."""
    return not writes(paged)


def attends(paged: Paged) -> bool:
    return isinstance(paged.contract, Attend)


def where(fits: Fits, edit: PagedEdit) -> PagedEdit:
    """The edit, for such caches and operations alone."""
    return lambda paged: edit(paged) if fits(paged) else None


def either(*edits: PagedEdit) -> PagedEdit:
    """One mistake that is made in several ways, by writers and readers say: the first that can be."""
    return lambda paged: next((changed for edit in edits if (changed := edit(paged)) is not None), None)


def parts(edit: Callable[[Behaviour], Behaviour | None], only: int | None = None) -> PagedEdit:
    """A mistake in the quantizer or reader of all parts, or of the part in that place."""

    def edited(paged: Paged) -> Paged | None:
        return paged.with_parts(edit, "" if only is None else paged.parts[only][0])

    return edited


def with_given(x: Coded, changed: Mapping[str, Coded]) -> Input:
    """The call with other things beside x."""
    return Input(x.format, x.data, {**given_with(x), **changed})


def taking(change: Callable[[Paged, Input], Coded]) -> PagedEdit:
    """The call is taken for another one."""

    def edit(paged: Paged) -> Paged:
        def taken(x: Coded) -> Input:
            other = change(paged, with_given(x, {}))
            return with_given(other, {})

        return replace(paged, received=(*paged.received, taken))

    return edit


def leaving(change: Callable[[Paged, Expected, Input], Expected]) -> PagedEdit:
    """Other outputs are left. ``change`` is given them and the call; what it gives stands in their place."""

    def edit(paged: Paged) -> Paged:
        def left(outputs: Expected, x: Coded) -> Expected:
            return outputs | change(paged, outputs, with_given(x, {}))

        return replace(paged, after=(*paged.after, left))

    return edit


def of_outputs(edit: PagedEdit, chosen: Callable[[str], bool]) -> PagedEdit:
    """The edit, for some of the matrices of a cache alone: "k_scale", and not "k"."""

    def edited(paged: Paged) -> Paged | None:
        wrong = edit(paged)
        if wrong is None or not any(chosen(name) for name in kept(paged)):
            return None
        return leaving(lambda _, outputs, x: {n: v for n, v in paged_outputs(wrong, x).items() if chosen(n)})(paged)

    return edited


def kept(paged: Paged) -> tuple[str, ...]:
    """The names of all matrices of a cache."""
    fields = (field for buffer in paged.cache.buffers for field in buffer.fields)
    return tuple(name for field in fields for name in (field.of, field.shares) if name)


def is_scale(name: str) -> bool:
    """Whether a matrix holds what belongs to blocks of codes: their scale, or zero point."""
    return name.endswith(("_scale", "_zero_point"))


def has_stored_scales(paged: Paged) -> bool:
    return any(is_scale(name) for name in kept(paged))


def scaled_parts(paged: Paged) -> tuple[str, ...]:
    """The parts that have a scale of their own."""
    recipes = ((name, b.recipe) for name, b in paged.parts)
    return tuple(name for name, recipe in recipes if recipe is not None and not paged.cache.part(name).scale_of)


def given_scales(paged: Paged, x: Coded) -> tuple[str, ...]:
    """The names of the scales that the caller gives."""
    of = tuple(f"{name}_" for name, _ in paged.parts)
    return tuple(n for n in given_with(x) if n.startswith(of) and is_scale(n) and n not in kept(paged))


# --- where a token is written ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slotted:
    """Of a call of a writer: the slots of its tokens, padding as ``NOWHERE``, and what a slot is counted in."""

    slots: Numbers
    padding: npt.NDArray[np.bool_]
    given: Numbers  #: the slots as they came
    block: int  #: slots of a page
    count: int  #: slots of the cache


def slotted(paged: Paged, x: Input) -> Slotted:
    slots = numbers(x.given, "slots").ravel()
    padding = is_padding(paged.slots, slots)
    count = x.given[HELD + paged.parts[0][0]].shape[0]
    return Slotted(np.where(padding, NOWHERE, slots), padding, slots, sizes_of(x.given).block, count)


def moved(change: Callable[[Slotted], Numbers]) -> PagedEdit:
    """Tokens go to other slots. What ``change`` gives beyond the cache is written nowhere."""

    def taken(paged: Paged, x: Input) -> Input:
        found = slotted(paged, x)
        slots = np.asarray(change(found), np.int64)
        slots = np.where((slots < 0) | (slots >= found.count), NOWHERE, slots)
        return with_given(x, {"slots": int32(slots)})

    return where(writes, skipping_negatives(taking(taken)))


def skipping_negatives(edit: PagedEdit) -> PagedEdit:
    """The edit makes padding negative, whatever the engine's rule is."""

    def edited(paged: Paged) -> Paged | None:
        changed = edit(paged)
        return None if changed is None else replace(changed, slots=SLOTS["negative_skipped"])

    return edited


def real(change: Callable[[Numbers, Slotted], Numbers]) -> PagedEdit:
    """The same for tokens that are no padding, which stays what it was."""
    return moved(lambda s: np.where(s.padding, NOWHERE, change(s.slots, s)))


def int32(values: npt.ArrayLike) -> Coded:
    return Coded("int32", np.atleast_2d(np.asarray(values, np.int32)).view(np.uint32))


# --- which tokens are read -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paging:
    """Of a call of a reader: its table and lengths."""

    table: Numbers
    lengths: Numbers
    block: int
    pages: int  #: of the cache


def paging(x: Input) -> Paging:
    sizes = sizes_of(x.given)
    table, lengths = numbers(x.given, "table"), numbers(x.given, "lengths").ravel()
    return Paging(table, lengths, sizes.block, x.shape[0] // sizes.block)


def gathering(change: Callable[[Paging, int, Numbers], Numbers], fits: Fits = reads) -> PagedEdit:
    """For a sequence, other slots than the right ones: ``change`` is given its number and its right slots, in order.

    The call becomes one on pages of one slot, in which the table holds these.
    """

    def taken(paged: Paged, x: Input) -> Input:
        given = paging(x)
        lists = [np.asarray(change(given, n, slots)) for n, slots in enumerate(places_of(x))]
        table = np.zeros((len(lists), max([1, *(each.size for each in lists)])), np.int32)
        for row, each in zip(table, lists, strict=True):
            row[: each.size] = each
        one = {"table": int32(table), "lengths": int32([each.size for each in lists])}
        return with_given(x, one | {"sizes": int32([sizes_of(x.given).heads, 1])})

    return where(fits, taking(taken))


def by_page(change: Callable[[Paging, int, Numbers, Numbers], tuple[Numbers, Numbers]]) -> PagedEdit:
    """Other pages and places of a sequence's tokens: ``change`` is given the number of the sequence, and of its tokens
    the index into its row of the table, and the place in a page."""

    def changed(given: Paging, sequence: int, slots: Numbers) -> Numbers:
        token = np.arange(slots.size, dtype=np.int32)
        page, place = change(given, sequence, token // given.block, token % given.block)
        return np.asarray(page * given.block + place)

    return gathering(changed)


# --- how matrices stand in buffers -----------------------------------------------------------------------------------


def laid(change: Callable[[Cache], Cache | None]) -> PagedEdit:
    """The kernel takes buffers for those of another layout. ``change`` gives the cache with that one."""

    def edit(paged: Paged) -> Paged | None:
        right, wrong = paged.cache, change(paged.cache)
        if wrong is None or wrong.buffers == right.buffers:
            return None
        if not writes(paged):
            return taking(lambda p, x: _as_held(p, x, _through(_held(p, x), _forms(p, x), x, right, wrong)))(paged)
        first = taking(lambda p, x: _as_held(p, x, _through(_held(p, x), _forms(p, x), x, right, wrong)))(paged)

        def back(p: Paged, outputs: Expected, x: Input) -> Expected:
            ends = (
                _through({n: getattr(v, end) for n, v in outputs.items()}, _forms(p, x), x, wrong, right)
                for end in ("low", "high")
            )
            low, high = ends
            return {n: Interval(low[n], high[n]) for n in outputs}

        return None if first is None else leaving(back)(first)

    return edit


def _forms(paged: Paged, x: Input) -> dict[str, Matrix]:
    first = paged.parts[0][0]
    count = x.given[HELD + first].shape[0] if writes(paged) else x.shape[0]
    return matrices_of(paged, {n: v.shape[1] for n, v in rows_of(paged, x).items()}, count, sizes_of(x.given))


def _held(paged: Paged, x: Input) -> dict[str, Coded]:
    """The matrices of the cache that came with a call."""
    if writes(paged):
        return {n: x.given[HELD + n] for n in kept(paged)}
    return {n: x.given.get(n, x) for n in kept(paged)}


def _as_held(paged: Paged, x: Input, matrices: Mapping[str, Coded]) -> Input:
    """The call on a cache that holds these."""
    if writes(paged):
        return with_given(x, {HELD + n: v for n, v in matrices.items()})
    first = paged.parts[0][0]
    return Input(x.format, matrices[first].data, {**x.given, **{n: v for n, v in matrices.items() if n != first}})


def _through(
    held: Mapping[str, Coded], forms: Mapping[str, Matrix], x: Input, written: Cache, taken: Cache
) -> dict[str, Coded]:
    """What matrices are taken for, that were written by one layout and are read by another."""
    block, found = sizes_of(x.given).block, {}
    for one, other in zip(written.buffers, taken.buffers, strict=True):
        memory = image(one, held, forms, block)
        seen = Coded(element_of(other, forms), memory.data.reshape(shape_of(other, forms, block)))
        found.update(matrices_in(other, seen, forms, block))
    return found
