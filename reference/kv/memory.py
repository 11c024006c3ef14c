"""Between the matrices of a call on a cache and the tensors that a kernel is handed.

A writer gets x and the other parts as [tokens, heads, columns of a head], ``slot_mapping`` int32 [tokens], the buffers
of the cache, which it changes in place, and static scales float32 [1] or [heads] (``k_scale``); to rotate keys
``cos_sin`` [positions, rotated columns] in the format of x and ``positions`` int32 [tokens]. A reader gets the
buffers, the first one as x, ``block_table`` int32 [sequences, pages], ``seq_lens`` int32 [sequences], static scales,
and of attention ``query`` [sequences, query heads, columns of a head]. Numbers for those who ask:
``heads``, ``block_size``, and of attention ``softmax_scale`` and ``soft_cap``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.layout import InMemory
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.attended import softmax_scale
from narrowgauge.reference.kv.call import HELD, heads_of, key_width, matrices_of, rows_of, sizes_of
from narrowgauge.reference.kv.outputs import paged_outputs
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, Sizes, element_of, image, matrices_in
from narrowgauge.reference.kv.settling import free_rows, settled

#: names in a call -> names of a kernel's parameters
NAMES = {"slots": "slot_mapping", "table": "block_table", "lengths": "seq_lens", "positions": "positions"}
#: what stays a matrix
_MATRICES = ("table", "cos_sin")


def to_memory(claim: Claim, x: Coded) -> Input:
    """The call as a kernel is given it."""
    paged = paged_behaviour(claim)
    given, sizes, matrices = given_with(x), sizes_of(given_with(x)), _matrices(paged, x)
    rows = rows_of(paged, x)
    writes = isinstance(claim.contract, KvWrite)
    held = {n.removeprefix(HELD): v for n, v in given.items() if n.startswith(HELD)} if writes else {**given, **rows}
    images = {b.name: image(b, held, matrices, sizes.block) for b in paged.cache.buffers}
    sent = {NAMES.get(n, n): _flat(n, v) for n, v in given.items() if n in NAMES or _is_static(n, matrices, paged)}
    if isinstance(claim.contract, Attend):
        query = given["query"]
        width = key_width({name: value.shape[1] for name, value in rows.items()}, sizes.heads)
        sent["query"] = Coded(query.format, query.data.reshape(query.shape[0], query.shape[1] // width, width))
    if writes:
        first, *others = [_by_heads(paged, name, value, sizes) for name, value in rows.items()]
        sent |= dict(zip(list(rows)[1:], others, strict=True))
        return Input(first.format, first.data, sent | images)
    first_name = paged.cache.buffers[0].name
    return Input(images[first_name].format, images.pop(first_name).data, sent | images)


def _is_static(name: str, matrices: Mapping[str, Matrix], paged: Paged) -> bool:
    """Whether something beside x is given by the caller, and not kept in the cache."""
    return name == "cos_sin" or (name not in matrices and any(name.startswith(f"{part}_") for part, _ in paged.parts))


def _flat(name: str, value: Coded) -> Coded:
    return value if name in _MATRICES else Coded(value.format, value.data.reshape(-1))


def _by_heads(paged: Paged, name: str, value: Coded, sizes: Sizes) -> Coded:
    heads = heads_of(paged.cache.part(name), sizes)
    if paged.cache.part(name).columns:  # no heads: [tokens, columns]
        return value
    return Coded(value.format, value.data.reshape(value.shape[0], heads, value.shape[1] // heads))


def _matrices(paged: Paged, x: Coded) -> dict[str, Matrix]:
    given = given_with(x)
    rows = rows_of(paged, x)
    count = given[HELD + paged.parts[0][0]].shape[0] if isinstance(paged.contract, KvWrite) else x.shape[0]
    return matrices_of(paged, {name: value.shape[1] for name, value in rows.items()}, count, sizes_of(given))


def in_memory(claim: Claim, x: Coded) -> InMemory:
    """What a device must know of a call."""
    paged = paged_behaviour(claim)
    sizes, matrices = sizes_of(given_with(x)), _matrices(paged, x)
    numbers: dict[str, float] = {"heads": sizes.heads, "block_size": sizes.block}
    buffers = {b.name: element_of(b, matrices) for b in paged.cache.buffers}
    if isinstance(claim.contract, KvWrite):
        others = tuple(name for name, _ in paged.parts)[1:]
        return InMemory(buffers, x.shape, (), tuple(buffers), numbers, ("x", *others), tuple(buffers))
    outputs = ["output"] if isinstance(claim.contract, Attend) else [name for name, _ in paged.parts]
    if isinstance(claim.contract, Attend):
        width = key_width({name: matrices[name].columns for name, _ in paged.parts}, sizes.heads)
        numbers |= {"softmax_scale": softmax_scale(claim.contract, width), "soft_cap": claim.contract.soft_cap}
    far = ("x", *list(buffers)[1:])
    return InMemory(dict.fromkeys(outputs, claim.format), x.shape, (), (), numbers, (), far)


def from_memory(claim: Claim, x: Coded, got: Mapping[str, Coded]) -> tuple[dict[str, Coded], tuple[str, ...]]:
    """What a kernel left or returned as matrices, and what is wrong with their form; those are left out."""
    paged = paged_behaviour(claim)
    if not isinstance(claim.contract, KvWrite):
        return _values(paged_outputs(paged, x), got)
    matrices: dict[str, Coded] = {}
    wrong = []
    forms, sizes = _matrices(paged, x), sizes_of(given_with(x))
    for buffer in paged.cache.buffers:
        if buffer.name not in got:
            wrong.append(f"{buffer.name} was not returned")
            continue
        try:
            matrices |= matrices_in(buffer, got[buffer.name], forms, sizes.block)
        except BadInput as error:
            wrong.append(f"{buffer.name}: {error}")
    if wrong:
        return {}, tuple(wrong)
    count = next(iter(matrices.values())).shape[0]
    return settled(paged, x, matrices, paged_outputs(paged, x), free_rows(paged, x, count)), ()


def _values(want: Expected, got: Mapping[str, Coded]) -> tuple[dict[str, Coded], tuple[str, ...]]:
    """Values may come as matrices, or with heads apart."""
    found = {}
    for name, value in got.items():
        shape = want[name].low.shape if name in want else value.shape
        same = value.data.size == int(np.prod(shape)) and value.shape[:1] == shape[:1]
        found[name] = Coded(value.format, value.data.reshape(shape)) if same else value
    return found, ()
