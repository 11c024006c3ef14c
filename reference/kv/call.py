"""What a call on a cache is given and gives back, as matrices, and the checks that make it one.

A writer: x [tokens, columns] the first part, the others beside it by name ("v"); ``slots`` int32 [1, tokens];
what the cache held, ``held.k`` [slots, columns], ``held.k_scale`` …; static scales, ``k_scale`` float32 [1, 1] or
[1, heads]; ``sizes`` int32 [1, 2]: heads, and slots of a page; what a part needs before it is quantized, as
reference/kv/before.py has it.
A reader: x [slots, columns] the codes of the first part, the other matrices of the cache by name; ``table`` int32
[sequences, pages of the longest]; ``lengths`` int32 [1, sequences]; static scales and sizes as above; of attention
``query`` [sequences, query heads × head size] too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Part
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, KvWrite
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference import policies, recipes
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.kv.before import before_named
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, Sizes
from narrowgauge.reference.kv.slots import check_slots

#: before the name of a matrix: what the cache held
HELD = "held."
Numbers = npt.NDArray[np.int32]


def numbers(given: Mapping[str, Coded], name: str) -> Numbers:
    """A tensor of whole numbers that comes with a call. Raises ``BadInput`` where it is missing, or is none."""
    if name not in given:
        raise BadInput(f"a call on a cache is given {name!r}; nothing of that name came, only {', '.join(given)}")
    value = given[name]
    if value.format != "int32" or value.data.ndim != 2:
        raise BadInput(f"{name} is {value.format} {list(value.shape)}; expected int32, a matrix")
    return np.asarray(value.data.view(np.int32))


def sizes_of(given: Mapping[str, Coded]) -> Sizes:
    """Heads, and slots of a page. Raises ``BadInput`` for what is none."""
    value = numbers(given, "sizes").ravel()
    if value.size != 2 or (value < 1).any():
        raise BadInput(f"sizes are {value.tolist()}; expected two numbers above 0: heads, and slots of a page")
    return Sizes(int(value[0]), int(value[1]))


def heads_of(part: Part, sizes: Sizes) -> int:
    """How many heads a part has."""
    return part.heads or sizes.heads


def sized(behaviour: Behaviour, part: Part, width: int) -> Behaviour:
    """A part's behaviour for heads of that many columns. Blocks that a fault has changed stay as they are."""
    recipe = behaviour.recipe
    if recipe is None or not part.per_head or recipe.blocks != recipes.resolve(part.recipe).blocks:
        return behaviour
    return replace(behaviour, recipe=replace(recipe, blocks=Blocks(recipe.blocks.rows, width, recipe.blocks.ragged)))


def sized_to(paged: Paged, x: Coded) -> Paged:
    """The same with the blocks of this call: what is edited then stays as it is. Raises ``BadInput`` as ``rows_of``."""
    found, sizes = [], sizes_of(given_with(x))
    for name, rows in rows_of(paged, x).items():
        part = paged.cache.part(name)
        found.append((name, sized(paged.part(name), part, rows.shape[1] // heads_of(part, sizes))))
    return replace(paged, parts=tuple(found), sized=True)


def beside(recipe: Recipe | None, format_name: str) -> dict[str, str]:
    """What a cache keeps beside the codes of a part: names and formats."""
    return {} if recipe is None else {n: f for n, f in recipe.outputs(format_name).items() if n != "codes"}


def matrices_of(paged: Paged, columns: Mapping[str, int], rows: int, sizes: Sizes) -> dict[str, Matrix]:
    """The form of every matrix of the cache, for parts of so many columns and a cache of so many slots."""
    found = {}
    for name, behaviour in paged.parts:
        part = paged.cache.part(name)
        heads, count = heads_of(part, sizes), columns[name]
        held = behaviour.format if isinstance(paged.contract, KvWrite) else behaviour.source
        found[name] = Matrix(held, rows, count, heads)
        recipe = (behaviour if paged.sized else sized(behaviour, part, count // heads)).recipe
        for other, fmt in beside(recipe, held).items():
            assert recipe is not None
            found[f"{name}_{other}"] = Matrix(fmt, *recipe.blocks.grid(rows, count), heads)
    return found


def rows_of(paged: Paged, x: Coded) -> dict[str, Coded]:
    """The matrices that a call brings, of each part. Raises ``BadInput`` for one that is missing, or does not fit."""
    given, sizes, found = given_with(x), sizes_of(given_with(x)), {}
    for place, (name, behaviour) in enumerate(paged.parts):
        part = paged.cache.part(name)
        value = x if place == 0 else given.get(name)
        if value is None:
            raise BadInput(f"cache {paged.cache.name!r} has a part {name!r}; nothing of that name came")
        heads = heads_of(part, sizes)
        if value.data.ndim != 2 or value.shape[1] % heads or (part.columns and value.shape[1] != part.columns):
            of = f"{part.columns} columns" if part.columns else f"whole heads, of which there are {heads}"
            raise BadInput(f"{name} has shape {list(value.shape)}; expected [rows, columns] with {of}")
        if value.format != behaviour.source:
            raise BadInput(f"{name} is {value.format}; expected {behaviour.source}")
        if value.shape[0] != x.shape[0]:
            raise BadInput(f"{name} has {value.shape[0]} rows, {paged.parts[0][0]} has {x.shape[0]}; expected the same")
        found[name] = Coded(value.format, value.data)
    return found


def part_input(paged: Paged, name: str, rows: Coded, given: Mapping[str, Coded]) -> tuple[Behaviour, Input]:
    """A part's behaviour for this call, and its input: rows after what a writer does to them first, with what the
    part's recipe takes beside them."""
    part, sizes = paged.cache.part(name), sizes_of(given)
    if part.first and isinstance(paged.contract, KvWrite):
        rows = before_named(part.first).change(rows, heads_of(part, sizes), given)
    width = rows.shape[1] // heads_of(part, sizes)
    behaviour = paged.part(name) if paged.sized else sized(paged.part(name), part, width)
    recipe = behaviour.recipe
    if recipe is None:
        return behaviour, Input(rows.format, rows.data)
    wanted = recipe.given_to_reader(rows.format) if behaviour.reads else dict.fromkeys(recipe.inputs)
    names = {other: f"{part.scaled_by if other in recipe.inputs else name}_{other}" for other in wanted}
    taken = {other: given[named] for other, named in names.items() if named in given}
    return behaviour, Input(rows.format, rows.data, taken)


def is_undone(part: Part) -> bool:
    """Whether readers turn back what a writer does to a part first."""
    return bool(part.first) and before_named(part.first).undo is not None


def turned_back(part: Part, behaviour: Behaviour, of_part: Input, sizes: Sizes) -> Coded:
    """What a reader's numbers of a part stood for before they were changed, float32."""
    undo = before_named(part.first).undo
    assert undo is not None
    exact = policies.resolve("ieee", "float32")
    wide = replace(behaviour, format="float32", policy=exact, before=(), written="", patched=(), after=())
    return undo(wide.run(of_part)["codes"], heads_of(part, sizes))


def slots_of(paged: Paged, x: Coded, count: int) -> Numbers:
    """The slot of each token, [tokens]. Raises ``BadInput`` for one outside the cache, or another number of them."""
    slots = numbers(given_with(x), "slots").ravel()
    if slots.size != x.shape[0]:
        raise BadInput(f"slots are {slots.size}; expected one for each of {x.shape[0]} tokens")
    check_slots(paged.slots, slots, count)
    return slots


def places_of(x: Coded) -> list[Numbers]:
    """The slots of each sequence's tokens, in their order. Raises ``BadInput`` for a page outside the cache."""
    given = given_with(x)
    table, lengths, block = numbers(given, "table"), numbers(given, "lengths").ravel(), sizes_of(given).block
    pages = x.shape[0] // block
    if lengths.size != table.shape[0]:
        raise BadInput(f"lengths are {lengths.size}, the table has {table.shape[0]} rows; expected one for each")
    found = []
    for sequence, length in enumerate(lengths):
        if not 0 <= length <= table.shape[1] * block:
            room = table.shape[1] * block
            raise BadInput(f"lengths[{sequence}] is {length}; expected 0 to {room}, the pages in its row of the table")
        used = table[sequence, : -(-int(length) // block)]
        wrong = np.flatnonzero((used < 0) | (used >= pages))
        if wrong.size:
            at = int(wrong[0])
            raise BadInput(f"table[{sequence}, {at}] is {int(used[at])}; expected a page from 0 to {pages - 1}")
        token = np.arange(length)
        found.append((used[token // block] * block + token % block).astype(np.int32))
    return found


def key_width(columns: Mapping[str, int], heads: int) -> int:
    """Columns of a head of a key: all parts but values are keys, side by side, of so many columns each."""
    return sum(count for name, count in columns.items() if name != "v") // heads


def query_of(paged: Paged, x: Coded) -> Coded:
    """The query of an attention. Raises ``BadInput`` where its heads are no multiple of the cache's."""
    assert isinstance(paged.contract, Attend)
    query, sizes = given_with(x).get("query"), sizes_of(given_with(x))
    if query is None or query.format != paged.format or query.data.ndim != 2:
        came = "nothing" if query is None else f"{query.format} {list(query.shape)}"
        raise BadInput(f"query: {came} came; expected {paged.format} [sequences, query heads × head size]")
    width = key_width({name: rows.shape[1] for name, rows in rows_of(paged, x).items()}, sizes.heads)
    if query.shape[1] % (width * sizes.heads):
        raise BadInput(
            f"query has {query.shape[1]} columns; expected a multiple of {sizes.heads} heads of {width}: query heads "
            "are the heads of the cache, or share them evenly"
        )
    return query
