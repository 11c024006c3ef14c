"""What a writer of a key-value cache is called with: parts of tokens, where they go, and what is checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch

from narrowgauge.kernels_under_test.kv_checks import (
    NEGATIVE,
    ZERO,
    check_angles,
    check_format,
    check_numbers,
    check_rows,
    check_same_slots,
    check_scale,
    check_scale_cache,
    check_slots,
    check_source,
    check_stored,
    check_within,
    types_of,
)
from narrowgauge.kernels_under_test.kv_places import count_of, last_of_each

#: elements that are worked on at once
PIECE = 1 << 18


@dataclass(frozen=True)
class Rule:
    """What becomes of padding."""

    padding: str  #: which slot numbers are padding, by a name of kv_checks.py
    lowest: int  #: the first slot that is written to


#: formats of most caches
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
SKIP_NEGATIVE, SKIP_ZERO, WRITE_ALL = Rule(NEGATIVE, 0), Rule(ZERO, 1), Rule(ZERO, 0)


@dataclass(frozen=True)
class Rows:
    """A part of tokens, ``x`` [tokens, heads, columns], and where it goes. Without a recipe it is copied."""

    name: str
    x: torch.Tensor
    view: torch.Tensor  #: of six axes
    recipe: Any = None
    format: str = ""
    code: Any = None  #: another last cast than the format's by integers; or one for each format that is written
    size: int = 0  #: elements of a group; 0 for a head
    given: torch.Tensor | None = None  #: static scales, float32 [1] or [heads]
    per_head: bool = False  #: they are one for each head
    scaled_by: str = ""  #: the part after which the given scale is named; "" for this one
    scales: torch.Tensor | None = None  #: a view of six axes to which scales are stored
    scale_format: str = "float32"
    formats: tuple[str, ...] = FLOAT8  #: those that its kernel writes, where ``code`` does not say it
    bound: float = 0.0  #: 0 for what the engines divide by
    whole: torch.Tensor | None = None  #: a number of the tensor, float32 [1]
    nan: str = "drop"  #: what a NaN is to the largest magnitude
    pack: int = 1  #: codes of a byte
    first: str | None = None  #: "hadamard", "rope", "rope_interleaved"
    beside: Any = None  #: cosines and sines [positions, rotated columns]
    positions: torch.Tensor | None = None

    @property
    def group(self):
        """How many elements share a scale."""
        return self.size or self.x.shape[2]

    @property
    def at_once(self):
        """How many tokens fit into a core's own memory as float32."""
        return max(1, PIECE // max(self.x.shape[1] * self.x.shape[2], 1))

    def pieces(self):
        """The same for so many tokens at once, one after the other."""
        positions = repeat(None) if self.positions is None else self.positions.split(self.at_once)
        for x, of in zip(self.x.split(self.at_once), positions, strict=False):
            yield replace(self, x=x, positions=of)

    def check(self, first):
        """Raise ``ValueError`` for what does not fit, or does not fit the first part."""
        named = self.scaled_by or self.name
        check_source(self.name, self.x, first.x)
        if self.recipe is None:
            check_format(self.format, (str(self.x.dtype).removeprefix("torch."),))
        else:
            check_format(self.format, tuple(self.code) if isinstance(self.code, dict) else self.formats)
        check_rows(self.name, self.x, self.view, self.pack, first.x.shape[0])
        check_same_slots(self.name, self.view, first.view)
        check_stored(self.name, self.view, types_of(self.format))
        if self.given is not None:
            check_scale(f"{named}_scale", self.given, self.x.shape[1] if self.per_head else 1)
        if self.whole is not None:
            check_scale(f"{named}_global_scale", self.whole, 1)
        if self.scales is not None:
            _, heads, width = self.x.shape
            check_same_slots(f"{self.name}_scale", self.scales, first.view)
            check_scale_cache(self.name, self.scales, heads, width // self.group, types_of(self.scale_format))
        if self.positions is not None:
            check_angles(self.beside, self.x)
            check_numbers("positions", self.positions, first.x.shape[0])
            check_within("positions", self.positions, 0, self.beside.shape[0] - 1)


def checked(slots, parts, rule):
    """The slots, each for one token at most. Raises ``ValueError`` for a call that does not fit together."""
    first = parts[0]
    count = count_of(first.view)
    for part in parts:
        part.check(first)
    check_slots(slots, first.x.shape[0], count, rule.padding)
    return last_of_each(slots, count)
