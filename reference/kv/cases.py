"""Calls on caches that show mistakes: tokens at scattered slots, K and V unlike, pages with NaN in what nobody uses.

What is put where is decided by few numbers (``Shape``), so that a case is one line. Values: every value and tie of the
cache's format under the scale that is given, what lies beyond either end, and specials; where a recipe computes
scales, each head of each token at its own magnitude.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.kv.before import before_named
from narrowgauge.reference.kv.call import HELD, heads_of, is_undone, matrices_of, sized
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, Sizes, storable
from narrowgauge.reference.noise import noise, scrambled

F64 = npt.NDArray[np.float64]
_EXACT = CastPolicy(overflow="special", infinity="special")
#: static scales: none is 1, K's and V's differ, powers of two and others; a head has its own
K_SCALES, V_SCALES = (0.37, 0.25, 3.0, 1.5), (2.0**-4, 1.7, 0.11, 5.0)
SCALES = {"k": K_SCALES, "v": V_SCALES, "latent": K_SCALES}


@dataclass(frozen=True)
class Shape:
    """How many of everything, and which of the given things."""

    tokens: int = 21  #: of a writer
    lengths: tuple[int, ...] = (5, 33, 0, 16, 1)  #: of a reader's sequences
    heads: int = 2
    width: int = 64  #: columns of a head
    value_width: int = 0  #: of V; 0 for the same
    pages: int = 9
    block: int = 0  #: 0 for the first of the cache's
    fill: int = 0  #: which pattern stands in slots that nobody writes: 0 is full of NaN, 1 holds numbers
    turn: int = 0  #: which of the scales
    repeated: bool = False  #: two tokens go to one slot
    query_heads: int = 4  #: for each head of the cache


def call(shape: Shape) -> Callable[[Claim], Coded]:
    """The call of that shape, for any claim on a cache."""
    return lambda claim: (_write if isinstance(claim.contract, KvWrite) else _read)(claim, shape)


def _sizes(paged: Paged, shape: Shape) -> Sizes:
    return Sizes(1 if paged.cache.parts[0].heads == 1 else shape.heads, shape.block or paged.cache.blocks[0])


def _columns(paged: Paged, shape: Shape, sizes: Sizes) -> dict[str, int]:
    widths = {"v": shape.value_width or shape.width}
    return {p.name: p.columns or sizes.heads * widths.get(p.name, shape.width) for p in paged.cache.parts}


def _int32(numbers: object) -> Coded:
    return Coded("int32", np.atleast_2d(np.asarray(numbers, np.int32)).view(np.uint32))


def _static(paged: Paged, columns: dict[str, int], sizes: Sizes, turn: int) -> dict[str, Coded]:
    """The scales that a caller gives, of each part that has them."""
    found = {}
    for name, behaviour in paged.parts:
        part = paged.cache.part(name)
        recipe = sized(behaviour, part, columns[name] // heads_of(part, sizes)).recipe
        if recipe is None or not recipe.inputs or part.scale_of:
            continue
        _, across = recipe.blocks.grid(1, columns[name])
        numbers = SCALES[name]
        for other in recipe.inputs:
            count = across if other == "scale" else 1
            chosen = [numbers[(turn + i) % len(numbers)] for i in range(count)]
            found[f"{name}_{other}"] = Coded("float32", np.array([chosen], np.float32).view(np.uint32))
    return found


def _rows(paged: Paged, name: str, shape: tuple[int, int], static: dict[str, Coded], heads: int) -> Coded:
    """What tokens bring of a part."""
    behaviour = paged.part(name)
    seed = 1 + [n for n, _ in paged.parts].index(name)
    source, recipe = format_named(behaviour.source), behaviour.recipe
    given = f"{paged.cache.part(name).scaled_by}_scale"
    if recipe is not None and given in static:
        scale = static[given].data.view(np.float32).astype(np.float64)
        each = _elements(format_named(behaviour.format))
        order = np.argsort(scrambled(shape[0] * shape[1], seed))
        chosen = np.resize(each, shape[0] * shape[1])[order].reshape(shape)
        x = chosen * np.repeat(scale, shape[1] // scale.shape[1], axis=1)
    else:
        magnitude = 2.0 ** ((np.arange(shape[0])[:, None] * 3 + np.arange(heads)[None] * 5) % 13 - 6)
        x = noise(shape[0] * shape[1], seed).reshape(shape)
        turned = is_undone(paged.cache.part(name))
        x = np.rint(x * 128) / 128 if turned else x  # sums of a head have so few bits that their order does not matter
        x = x * np.repeat(magnitude, shape[1] // heads, axis=1)
        if recipe and not turned:
            x[:, 0] = np.resize([1.0, -0.0, 0.0, np.inf, -3.0, np.nan], shape[0])
    return cast(Coded("float64", np.ascontiguousarray(x, np.float64).view(np.uint64)), source.name, _EXACT)


def _elements(fmt: Format) -> F64:
    """Numbers around every value of a format: itself, ties and what lies beside them, beyond both ends, specials."""
    positive = np.unique(np.abs(v := values(fmt))[np.isfinite(v)])
    ties = (positive[1:] + positive[:-1]) / 2
    largest, least = positive[-1], positive[1]
    ends = np.array([largest * 1.01, largest * 1.07, largest * 2, largest * 300, least / 2, least / 2.1, least / 8])
    every = np.concatenate([positive, ties, ties * (1 + 2.0**-7), ties * (1 - 2.0**-7), ends])
    return np.concatenate([every, -every, [np.nan, np.inf, -np.inf, -0.0]])


def _write(claim: Claim, shape: Shape) -> Coded:
    paged = paged_behaviour(claim)
    sizes = _sizes(paged, shape)
    columns = _columns(paged, shape, sizes)
    count = shape.pages * sizes.block
    static = _static(paged, columns, sizes, shape.turn)
    parts = {
        name: _rows(paged, name, (shape.tokens, columns[name]), static, heads_of(paged.cache.part(name), sizes))
        for name, _ in paged.parts
    }
    held = {
        HELD + name: storable(paged.cache, name, _held(m, shape.fill, place))
        for place, (name, m) in enumerate(matrices_of(paged, columns, count, sizes).items())
    }
    x = parts.pop(paged.parts[0][0])
    slots = _slots(paged, shape, count)
    static |= _rotation(paged, x.format, columns["k"] // sizes.heads, shape) if "k" in columns else {}
    given = {**parts, **static, "slots": _int32(slots), **held, "sizes": _int32([sizes.heads, sizes.block])}
    return Input(x.format, x.data, given)


def _rotation(paged: Paged, format_name: str, width: int, shape: Shape) -> dict[str, Coded]:
    """Positions in no order, and the cosines and sines of all; every other case rotates half of a head alone."""
    if "cos_sin" not in {n for part in paged.cache.parts if part.first for n in before_named(part.first).given}:
        return {}
    rotated = width // (1 + shape.turn % 2)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(0, rotated, 2) / rotated)
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    positions = scrambled(shape.tokens, 13) % np.uint64(64)
    cos_sin = cast(Coded("float64", table.view(np.uint64)), format_name, _EXACT)
    return {"cos_sin": cos_sin, "positions": _int32(positions)}


def _slots(paged: Paged, shape: Shape, count: int) -> npt.NDArray[np.int32]:
    """Scattered slots, among them the last of the cache; every fourth token is padding, by the engine's rule."""
    order = np.argsort(scrambled(count - 1, 7))[: shape.tokens] + 1  # slot 0 may be that of padding
    slots = np.asarray(order, np.int32)
    if shape.tokens > 2:
        slots[slots == count - 1] = slots[0]
        slots[0] = count - 1
        slots[3::4] = -1 - (np.arange(slots[3::4].size) % 3) if paged.slots.padding == "negative" else 0
        if shape.repeated:
            slots[2], slots[5] = slots[1], slots[4]
    return slots


def _held(matrix: Matrix, fill: int, place: int) -> Coded:
    """What a cache holds before: a pattern of its own for each matrix; 0 is NaN where the format has it."""
    fmt = format_named(matrix.format)
    nan = np.flatnonzero(np.isnan(values(fmt))) if fmt.bits <= 16 else np.array([0x7FC00001])
    code = int(nan[place % nan.size]) if fill == 0 and nan.size else (0x5A5A5A5A >> place) & (fmt.code_count - 1)
    codes = np.full((matrix.rows, matrix.columns), code, fmt.storage)
    return Coded(fmt.name, codes)


def _read(claim: Claim, shape: Shape) -> Coded:
    paged = paged_behaviour(claim)
    sizes = _sizes(paged, shape)
    columns = _columns(paged, shape, sizes)
    count = shape.pages * sizes.block
    static = _static(paged, columns, sizes, shape.turn)
    matrices = matrices_of(paged, columns, count, sizes)
    table, used = _table(shape, sizes)
    held = {}
    for place, (name, matrix) in enumerate(matrices.items()):
        held[name] = _held(matrix, shape.fill, place)
        held[name].data[used] = _codes(claim, paged, name, matrix, used.size)
        held[name] = storable(paged.cache, name, held[name])
    x = held.pop(paged.parts[0][0])
    given = {**held, **static, "table": _int32(table), "lengths": _int32(list(shape.lengths))}
    if isinstance(claim.contract, Attend):
        width = sum(columns[n] // heads_of(paged.cache.part(n), sizes) for n in columns if n != "v")
        queries = (len(shape.lengths), shape.query_heads * sizes.heads * width)
        q = noise(queries[0] * queries[1], 11).reshape(queries) * 2.0**-3
        given["query"] = cast(Coded("float64", q.view(np.uint64)), claim.format, _EXACT)
    return Input(x.format, x.data, {**given, "sizes": _int32([sizes.heads, sizes.block])})


def _table(shape: Shape, sizes: Sizes) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Pages of each sequence in no order, the rest of a row naming a page of nobody; and the slots that are used."""
    needed = [-(-length // sizes.block) for length in shape.lengths]
    order = np.argsort(scrambled(shape.pages, 5)).astype(np.int32)
    assert sum(needed) < shape.pages, "a page is left for what nobody uses"
    table = np.full((len(needed), max([*needed, 1]) + 1), order[-1], np.int32)
    used, next_page = [], 0
    for sequence, (pages, length) in enumerate(zip(needed, shape.lengths, strict=True)):
        table[sequence, :pages] = order[next_page : next_page + pages]
        next_page += pages
        token = np.arange(length)
        used.append(table[sequence, token // sizes.block] * sizes.block + token % sizes.block)
    return table, np.concatenate(used).astype(np.int32) if used else np.zeros(0, np.int32)


def _codes(claim: Claim, paged: Paged, name: str, matrix: Matrix, count: int) -> npt.NDArray[np.unsignedinteger]:
    """Codes that stand in used slots: every one of the format; for attention numbers of ordinary size alone."""
    fmt = format_named(matrix.format)
    seed = 20 + len(name)
    part, _, other = name.partition("_")
    if other == "zero_point":
        return (np.arange(count * matrix.columns).reshape(count, matrix.columns) * 7 + 3).astype(fmt.storage)
    if other:
        numbers = np.resize(np.array(SCALES[part] + (2.0**-9, 1.0, 40.0)), count * matrix.columns)
        return _nearest(numbers.reshape(count, matrix.columns), fmt)
    if isinstance(claim.contract, Attend) or fmt.bits > 8:
        return _nearest(noise(count * matrix.columns, seed).reshape(count, matrix.columns) * 2.0, fmt)
    order = scrambled(count * matrix.columns, seed) % np.uint64(fmt.code_count)
    return order.reshape(count, matrix.columns).astype(fmt.storage)


def _nearest(numbers: F64, fmt: Format) -> npt.NDArray[np.unsignedinteger]:
    if fmt.family == "integer":
        return (np.rint(numbers).astype(np.int64) & (fmt.code_count - 1)).astype(fmt.storage)
    exact = Coded("float64", np.ascontiguousarray(numbers, np.float64).view(np.uint64))
    return cast(exact, fmt.name, _EXACT if fmt.family in ("ieee", "fn", "fnuz") else CastPolicy()).codes
