# SPDX-License-Identifier: Apache-2.0
"""What a flaw is: an edit of a small checkpoint, what an audit is asked, and what it must find. And edits in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.small_bytes import E4M3, Array, Raw, bf16, codes_of, f16, f32, nearest, value_of
from narrowgauge.suites.meta.small_drafts import Draft

Edit = Callable[[Draft], None]
Elements = npt.NDArray[Any]

Q, K, V = (f"model.layers.1.self_attn.{part}_proj" for part in "qkv")
OUT, UP, DOWN = "model.layers.1.self_attn.o_proj", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.down_proj"


@dataclass(frozen=True)
class Flaw:
    """A mistake in a kind of checkpoint."""

    kind: str
    edit: Edit
    finds: tuple[str, ...]  #: kinds of findings, one of which an audit must raise
    ask: Mapping[str, Any] = field(default_factory=dict)  #: against: the originals; to, target, kv_cache_dtype
    after: Callable[[Path], None] | None = None  #: an edit of the folder once it is written
    row: str = ""  #: of the log of public failures
    says: str = ""  #: a part of what is said, where it names the mistake


AGAINST: Mapping[str, Any] = {"against": True}


def nothing(draft: Draft) -> None:
    """For flaws of the folder alone, or of what is asked."""


def each(*edits: Edit) -> Edit:
    def edit(draft: Draft) -> None:
        for one in edits:
            one(draft)

    return edit


def named(draft: Draft, end: str) -> list[str]:
    """Tensors by the end of their names."""
    found = [name for name in draft.tensors if name.endswith(end)]
    if not found:
        raise AssertionError(f"no tensor ends with {end}")
    return found


def stored(dtype: str, x: Array) -> Raw:
    """Numbers in that dtype."""
    writers: dict[str, Callable[[Array], Raw]] = {"BF16": bf16, "F16": f16, "F32": f32}
    if dtype == "F8_E4M3":
        return codes_of(dtype, nearest(x, E4M3))
    return writers[dtype](x)


def numbers(end: str, change: Callable[[Array], Array]) -> Edit:
    """Another value in all tensors of that name's end, in the same dtype."""

    def edit(draft: Draft) -> None:
        for name in named(draft, end):
            raw = draft.tensors[name]
            draft.tensors[name] = stored(raw.dtype, change(value_of(raw)))

    return edit


def codes(end: str, change: Callable[[Elements], Elements], dtype: str = "") -> Edit:
    """Other codes, and another dtype where it is named."""

    def edit(draft: Draft) -> None:
        for name in named(draft, end):
            raw = draft.tensors[name]
            changed = np.ascontiguousarray(change(raw.array().copy()))
            draft.tensors[name] = Raw(dtype or raw.dtype, changed.shape, changed.tobytes())

    return edit


def first(value: float) -> Callable[[Array], Array]:
    """The first element becomes ``value``."""

    def change(x: Array) -> Array:
        y = x.copy()
        y.flat[0] = value
        return y

    return change


def all_of(value: float) -> Callable[[Array], Array]:
    return lambda x: np.full(x.shape, value)


def some_codes(*values: int) -> Callable[[Elements], Elements]:
    """The first codes become these."""

    def change(x: Elements) -> Elements:
        x.flat[: len(values)] = values
        return x

    return change


def without(*ends: str) -> Edit:
    def edit(draft: Draft) -> None:
        for end in ends:
            for name in named(draft, end):
                del draft.tensors[name]

    return edit


def renamed(end: str, other: str) -> Edit:
    def edit(draft: Draft) -> None:
        for name in named(draft, end):
            draft.tensors[name.removesuffix(end) + other] = draft.tensors.pop(name)

    return edit


def swapped(one: str, other: str) -> Edit:
    def edit(draft: Draft) -> None:
        tensors = draft.tensors
        tensors[one], tensors[other] = tensors[other], tensors[one]

    return edit


def configured(*path: str, value: Any) -> Edit:
    """Another value at a path into config.json."""

    def edit(draft: Draft) -> None:
        at = draft.config
        for key in path[:-1]:
            at[key] = dict(at[key])
            at = at[key]
        at[path[-1]] = value

    return edit


def unconfigured(*path: str) -> Edit:
    def edit(draft: Draft) -> None:
        at = draft.config
        for key in path[:-1]:
            at[key] = dict(at[key])
            at = at[key]
        del at[path[-1]]

    return edit
