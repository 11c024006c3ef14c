"""Calls on caches that come back from a file: the tensors that a kernel is handed, as matrices again.

Two numbers of a call are in none of its tensors: how many slots a cache has, where pages are packed, and how many
columns each part has. ``Extent`` says them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.contracts.recipe import INPUTS, OF_TENSOR
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.kv.before import before_named
from narrowgauge.reference.kv.call import (
    HELD,
    heads_of,
    key_width,
    matrices_of,
    places_of,
    query_of,
    rows_of,
    sized,
    sizes_of,
    slots_of,
)
from narrowgauge.reference.kv.memory import NAMES
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Matrix, Sizes, element_of, matrices_in, shape_of


@dataclass(frozen=True)
class Extent:
    """How large a call is."""

    heads: int
    block_size: int
    slots: int
    columns: dict[str, int]  #: of each part

    @classmethod
    def of(cls, claim: Claim, x: Coded) -> Extent:
        """That of a call."""
        paged, given = paged_behaviour(claim), given_with(x)
        rows, sizes = rows_of(paged, x), sizes_of(given)
        writes = isinstance(claim.contract, KvWrite)
        slots = given[HELD + paged.parts[0][0]].shape[0] if writes else x.shape[0]
        return cls(sizes.heads, sizes.block, slots, {name: value.shape[1] for name, value in rows.items()})

    @classmethod
    def read(cls, claim: Claim, said: Any) -> Extent:
        """From JSON. Raises ``BadInput`` for what is none of that claim."""
        names = [name for name, _ in paged_behaviour(claim).parts]
        columns = said.get("columns") if isinstance(said, dict) else None
        if (
            not isinstance(columns, dict)
            or list(columns) != names
            or said.keys() != {"heads", "block_size", "slots", "columns"}
            or not all(_counts(n) for n in (said["heads"], said["block_size"], *columns.values()))
            or not (_counts(said["slots"]) and said["slots"] % said["block_size"] == 0)
        ):
            raise BadInput(
                f"its extent is {said!r}; expected whole numbers above 0: heads, block_size, slots in whole pages, and "
                f"columns of {', '.join(names)}"
            )
        return cls(**said)

    @property
    def as_json(self) -> dict[str, Any]:
        """For ``read``."""
        return asdict(self)


def _counts(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


@dataclass(frozen=True)
class Form:
    """The format of a tensor as a kernel is handed it, and its shape; None for what the extent does not say."""

    format: str
    shape: tuple[int | None, ...]

    def matrix(self, name: str, value: Coded) -> Coded:
        """The tensor as a matrix. Raises ``BadInput`` for one of another form."""
        fits = len(value.shape) == len(self.shape) and all(
            wanted in (None, came) for came, wanted in zip(value.shape, self.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if n is None else str(n) for n in self.shape)
            raise BadInput(f"{name} is {value.format} {list(value.shape)}; expected {self.format} [{wanted}]")
        rows, each = (value.shape[0], value.shape[1:]) if len(value.shape) > 1 else (1, value.shape)
        return Coded(value.format, value.data.reshape(rows, prod(each)))


def forms_of(claim: Claim, extent: Extent) -> dict[str, Form]:
    """What a kernel is handed, by name: x and what comes beside it. Raises ``BadInput`` for an extent of no cache."""
    paged = paged_behaviour(claim)
    forms = _given(paged, claim, extent) | _statics(paged, extent)
    matrices, block = _matrices(paged, extent), extent.block_size
    buffers = {b.name: Form(element_of(b, matrices), shape_of(b, matrices, block)) for b in paged.cache.buffers}
    if not isinstance(claim.contract, KvWrite):
        buffers = {"x": buffers.pop(paged.cache.buffers[0].name)} | buffers
    return forms | buffers


def _given(paged: Paged, claim: Claim, extent: Extent) -> dict[str, Form]:
    sizes, many = Sizes(extent.heads, extent.block_size), Form("int32", (None,))
    heads = {name: heads_of(paged.cache.part(name), sizes) for name in extent.columns}
    if not isinstance(claim.contract, KvWrite):
        forms = {NAMES["table"]: Form("int32", (None, None)), NAMES["lengths"]: many}
        if isinstance(claim.contract, Attend):
            forms["query"] = Form(claim.format, (None, None, key_width(extent.columns, extent.heads)))
        return forms
    forms = {}
    for name, columns in extent.columns.items():
        in_heads = (columns,) if paged.cache.part(name).columns else (heads[name], columns // heads[name])
        forms["x" if name == paged.parts[0][0] else name] = Form(claim.source, (None, *in_heads))
    if any("cos_sin" in before_named(part.first).given for part in paged.cache.parts if part.first):
        forms |= {"cos_sin": Form(claim.source, (None, None)), NAMES["positions"]: many}
    return forms | {NAMES["slots"]: many}


def _statics(paged: Paged, extent: Extent) -> dict[str, Form]:
    """Scales that a caller gives."""
    forms = {}
    for name, behaviour in paged.parts:
        part, columns = paged.cache.part(name), extent.columns[name]
        heads = heads_of(part, Sizes(extent.heads, extent.block_size))
        recipe = sized(behaviour, part, columns // heads).recipe
        if part.unused_scale:
            forms[f"{name}_scale"] = Form(INPUTS["scale"], (1,))
        if recipe is None or part.scale_of:
            continue
        _, across = recipe.blocks.grid(1, columns)
        forms |= {f"{name}_{n}": Form(INPUTS[n], (1 if n in OF_TENSOR else across,)) for n in recipe.inputs}
    return forms


def _matrices(paged: Paged, extent: Extent) -> dict[str, Matrix]:
    return matrices_of(paged, extent.columns, extent.slots, Sizes(extent.heads, extent.block_size))


def call_of(claim: Claim, extent: Extent, tensors: Mapping[str, Coded]) -> Input:
    """The inverse of ``to_memory``. Raises ``BadInput`` that names the tensor which is not that of a call."""
    paged, writes = paged_behaviour(claim), isinstance(claim.contract, KvWrite)
    matrices, logical = _matrices(paged, extent), {named: name for name, named in NAMES.items()}
    given: dict[str, Coded] = {}
    held: dict[str, Coded] = {}
    for name, form in forms_of(claim, extent).items():
        given[logical.get(name, name)] = form.matrix(name, tensors[name])
    for place, buffer in enumerate(paged.cache.buffers):
        named = buffer.name if writes or place else "x"
        given.pop(named)
        held |= matrices_in(buffer, tensors[named], matrices, extent.block_size)
    given |= {HELD + name if writes else name: value for name, value in held.items()}
    x = given.pop("x" if writes else paged.parts[0][0])
    given["sizes"] = Coded("int32", np.array([[extent.heads, extent.block_size]], np.int32).view(np.uint32))
    call = Input(x.format, x.data, given)
    _check(paged, call, extent)
    return call


def _check(paged: Paged, call: Input, extent: Extent) -> None:
    """Raise ``BadInput`` for numbers of tokens that part, and for slots and pages outside the cache."""
    rows_of(paged, call)
    if isinstance(paged.contract, KvWrite):
        slots_of(paged, call, extent.slots)
        return
    places_of(call)
    if isinstance(paged.contract, Attend):
        query = query_of(paged, call)
        if query.shape[0] != call.given["lengths"].shape[1]:
            raise BadInput(f"query is of {query.shape[0]} sequences; seq_lens of {call.given['lengths'].shape[1]}")
