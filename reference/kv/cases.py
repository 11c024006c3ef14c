"""Calls on caches that show mistakes: tokens at scattered slots, K and V unlike, pages with NaN in what nobody uses.

What is put where is decided by few numbers (``Shape``), so that a case is one line of ``named.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Attend, Claim, KvWrite, OfCache
from narrowgauge.reference.around.hadamard import block_size, vllm_signs
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.kv import contents, queries
from narrowgauge.reference.kv.before import before_named
from narrowgauge.reference.kv.call import HELD, heads_of, is_undone, matrices_of, sized
from narrowgauge.reference.kv.contents import Codes, Fill
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, Sizes, layout_of, storable
from narrowgauge.reference.kv.slots import is_padding
from narrowgauge.reference.layouts import storage_shape
from narrowgauge.reference.noise import scrambled

Numbers = npt.NDArray[np.int32]
#: static scales: none is 1, K's and V's differ, powers of two and others; a head has its own
K_SCALES, V_SCALES = (0.37, 0.25, 3.0, 1.5, 2.0**-7, 2.0**6), (2.0**-4, 1.7, 0.11, 5.0, 2.0**5, 2.0**-9)
SCALES = {"k": K_SCALES, "v": V_SCALES, "latent": K_SCALES, "rope": V_SCALES}


@dataclass(frozen=True)
class Shape:
    """How many of everything, and which of the given things."""

    tokens: int = 24  #: of a writer
    at: Literal["scattered", "repeated", "in_order", "ends", "padding"] = "scattered"  #: where a writer's tokens go
    lengths: tuple[int, ...] = (5, 33, 0, 16, 1)  #: of a reader's sequences
    heads: int = 2
    width: int = 64  #: columns of a head
    value_width: int = 0  #: of V; 0 for the same
    spare: int = 3  #: pages beyond those that tokens fill
    block: int = 0  #: 0 for the first of the cache's
    fill: Fill = "nan"  #: what stands in slots that nobody writes
    turn: int = 0  #: which of the scales
    #: what a row of the table names behind its pages: a page of nobody; one of another sequence; no page, as SGLang
    unused: Literal["nobody", "stale", "negative"] = "nobody"
    shared: bool = False  #: a sequence begins with a page of the one before it
    query_heads: int = 4  #: for each head of the cache
    of_heads: bool = False  #: it is there for the sizes of heads: nothing for a cache whose rows have none
    query: queries.Kind = "ordinary"


def call(shape: Shape) -> Callable[[Claim], Coded]:
    """The call of that shape, for any claim on a cache that it suits."""
    return lambda claim: (_write if isinstance(claim.contract, KvWrite) else _read)(claim, shape)


def suited(shape: Shape) -> Callable[[Claim], bool]:
    """Whether a claim can have calls of that shape, and they are others than those of the usual one."""
    return lambda claim: _suits(shape, claim)


def _has_values_apart(cache: Cache) -> bool:
    """Whether V may be narrower than K: of a buffer that holds both, nobody could tell how wide each is."""
    together = any({"k", "v"} <= {field.of for field in buffer.fields} for buffer in cache.buffers)
    return [part.name for part in cache.parts] == ["k", "v"] and not together


def _suits(shape: Shape, claim: Claim) -> bool:
    paged = paged_behaviour(claim)
    assert isinstance(claim.contract, OfCache)
    cache = paged.cache
    if shape.block and (shape.block not in cache.blocks or shape.block == cache.blocks[0]):
        return False
    if shape.of_heads and all(part.columns for part in cache.parts):
        return False
    if shape.value_width and not _has_values_apart(cache):
        return False
    if shape.unused == "negative" and paged.slots.padding != "zero":  # vLLM leaves old pages there, SGLang -1
        return False
    if not queries.suits(shape.query, claim):
        return False
    sizes = _sizes(paged, shape)
    columns = _columns(paged, shape, sizes)
    try:  # blocks or digits that do not divide the head, a rotation that nobody has recorded for it
        matrices = matrices_of(paged, columns, sizes.block * 4, sizes)
        for field in (field for buffer in cache.buffers for field in buffer.fields):
            matrix = matrices[field.of]
            storage_shape(layout_of(field, matrix, sizes.block), matrix.rows, matrix.columns)
        for part in cache.parts:
            if is_undone(part):
                vllm_signs(block_size(columns[part.name] // heads_of(part, sizes)))
    except BadInput:
        return False
    return True


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
        recipe, numbers = sized(behaviour, part, columns[name] // heads_of(part, sizes)).recipe, SCALES[name]
        if part.unused_scale:
            found[f"{name}_scale"] = Coded(
                "float32", np.array([[numbers[turn % len(numbers)]]], np.float32).view(np.uint32)
            )
        if recipe is None or not recipe.inputs or part.scale_of:
            continue
        _, across = recipe.blocks.grid(1, columns[name])
        for other in recipe.inputs:
            count = across if other == "scale" else 1
            chosen = [numbers[(turn + i) % len(numbers)] for i in range(count)]
            found[f"{name}_{other}"] = Coded("float32", np.array([chosen], np.float32).view(np.uint32))
    return found


def floats(value: Coded) -> contents.F64:
    """Numbers that are given as float32, in one row."""
    return value.data.view(np.float32).astype(np.float64).ravel()


# --- writes ----------------------------------------------------------------------------------------------------------


def _write(claim: Claim, shape: Shape) -> Coded:
    paged = paged_behaviour(claim)
    sizes = _sizes(paged, shape)
    columns = _columns(paged, shape, sizes)
    count = (-(-shape.tokens // sizes.block) + shape.spare) * sizes.block
    static = _static(paged, columns, sizes, shape.turn)
    slots = _slots(paged, shape, count, sizes.block)
    kept = ~is_padding(paged.slots, slots)
    parts = {name: _tokens(paged, name, kept, columns[name], static, sizes) for name, _ in paged.parts}
    held = {
        HELD + name: storable(paged.cache, name, contents.filled(name, m, shape.fill, place))
        for place, (name, m) in enumerate(matrices_of(paged, columns, count, sizes).items())
    }
    x = parts.pop(paged.parts[0][0])
    if "k" in columns:
        static |= _rotation(paged, x.format, columns["k"] // sizes.heads, shape)
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
    return {
        "cos_sin": Coded(format_name, contents.nearest(table, format_named(format_name))),
        "positions": _int32(positions),
    }


def _tokens(
    paged: Paged, name: str, kept: npt.NDArray[np.bool_], columns: int, static: dict[str, Coded], sizes: Sizes
) -> Coded:
    """What tokens bring of a part."""
    seed = 1 + [n for n, _ in paged.parts].index(name)
    part, heads = paged.cache.part(name), heads_of(paged.cache.part(name), sizes)
    behaviour = sized(paged.part(name), part, columns // heads)
    source, rows = format_named(behaviour.source), int(kept.sum())
    if behaviour.recipe is None:
        real = contents.copied_rows(behaviour, rows, columns, seed)
    elif f"{part.scaled_by}_scale" in static:
        scale = floats(static[f"{part.scaled_by}_scale"])
        real = contents.given_scale_rows(behaviour, scale, rows, heads, columns // heads, seed)
    else:
        block = behaviour.recipe.blocks.columns or columns
        real = contents.graded_rows(behaviour, rows, columns, block, seed, few_bits=is_undone(part))
    if part.first and not is_undone(part):
        real = contents.without_extremes(real, source)
    x = contents.poison(source, kept.size, columns)
    x[kept] = real
    return Coded(source.name, x)


def _slots(paged: Paged, shape: Shape, count: int, block: int) -> Numbers:
    """The slot of each token. ``scattered``: anywhere, the last slot of the cache among them, and every fourth token is
    padding by the engine's rule. ``ends``: the first and last slots of pages, slot 0 too where it is one. ``in_order``:
    pages one after the other, in no order of pages, the last one partly."""
    padding = np.int32(-1) if paged.slots.padding == "negative" else np.int32(0)
    if shape.at == "padding":
        few = np.arange(shape.tokens) % 3
        return np.asarray(padding - few if padding else np.zeros(shape.tokens), np.int32)
    if shape.at == "in_order":
        pages = np.argsort(scrambled(count // block - 1, 5))[: -(-shape.tokens // block)] + 1
        token = np.arange(shape.tokens)
        return np.asarray(pages[token // block] * block + token % block, np.int32)
    if shape.at == "ends":
        ends = np.concatenate([np.arange(0, count, block), np.arange(block - 1, count, block)])
        chosen = np.unique(ends[ends > (0 if padding == 0 else -1)])
        return np.roll(chosen[::-1], 3).astype(np.int32)[: shape.tokens]
    order = np.argsort(scrambled(count - 1, 7))[: shape.tokens] + 1  # slot 0 may be that of padding
    slots = np.asarray(order, np.int32)
    if shape.tokens > 2:
        slots[slots == count - 1] = slots[0]
        slots[0] = count - 1
        slots[3::4] = padding - (np.arange(slots[3::4].size) % 3 if padding else 0)
    if shape.at == "repeated":
        slots[2], slots[5] = slots[1], slots[4]
    return slots


# --- reads -----------------------------------------------------------------------------------------------------------


def _read(claim: Claim, shape: Shape) -> Coded:
    paged = paged_behaviour(claim)
    sizes = _sizes(paged, shape)
    columns = _columns(paged, shape, sizes)
    table, used, pages = _table(shape, sizes)
    static = _static(paged, columns, sizes, shape.turn)
    matrices = matrices_of(paged, columns, pages * sizes.block, sizes)
    held = {}
    for place, (name, matrix) in enumerate(matrices.items()):
        held[name] = contents.filled(name, matrix, shape.fill, place)
        turned = is_undone(paged.cache.part(name.split("_")[0]))
        codes = _codes(claim, name, matrix, used.size, turned)
        if turned and "_" not in name:
            codes = contents.odd_sums(codes, block_size(matrix.columns // matrix.heads))
        held[name].data[used] = codes
        held[name] = storable(paged.cache, name, held[name])
    given = {**held, **static, "table": _int32(table), "lengths": _int32(list(shape.lengths))}
    if isinstance(claim.contract, Attend):
        given |= queries.attended(claim, paged, given, shape.query, shape.query_heads, sizes, used)
    x = given.pop(paged.parts[0][0])
    return Input(x.format, x.data, {**given, "sizes": _int32([sizes.heads, sizes.block])})


def _table(shape: Shape, sizes: Sizes) -> tuple[Numbers, Numbers, int]:
    """Pages of each sequence in no order, and what stands behind them in its row; slots that are used; pages in all."""
    needed = [-(-length // sizes.block) for length in shape.lengths]
    count = sum(needed) + shape.spare
    order = np.argsort(scrambled(count, 5)).astype(np.int32)
    table = np.full((len(needed), max([*needed, 1]) + 1), order[-1] if shape.unused == "nobody" else -1, np.int32)
    used, taken = [], 0
    for sequence, (pages, length) in enumerate(zip(needed, shape.lengths, strict=True)):
        table[sequence, :pages] = order[taken : taken + pages]
        if shape.shared and sequence and pages:
            table[sequence, 0] = table[sequence - 1, 0]
        if shape.unused == "stale":
            table[sequence, pages:] = np.resize(np.roll(order[: sum(needed)], 2 - taken), table.shape[1] - pages)
        taken += pages
        token = np.arange(length)
        used.append(table[sequence, token // sizes.block] * sizes.block + token % sizes.block)
    return table, np.concatenate(used).astype(np.int32) if used else np.zeros(0, np.int32), count


def _codes(claim: Claim, name: str, matrix: Matrix, count: int, turned: bool) -> Codes:
    """Codes that stand in used slots: every one of the format; for attention numbers of ordinary size alone."""
    attends = isinstance(claim.contract, Attend)
    seed = 20 + sum(name.encode())
    if "_" in name:
        return contents.stored_scales(matrix, count, seed, attends, few_bits=turned)
    return (contents.ordinary if attends else contents.every_code)(matrix, count, seed)
