"""Key-value caches as data: what is kept of a token, by which recipe, and where it stands in which buffer.

A cache has parts ("k" and "v"; "latent" and "rope" of MLA). For each part it keeps codes, and what else its recipe
computes: these are matrices [slots, columns], one row for each place of a token. ``Field`` says where such a matrix
stands in memory, in the digits of contracts/layout.py; ``Buffer`` is what a kernel is handed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput

#: what a part is called, and what it is of a token: heads × head size, or a number of columns of its own
Padding = Literal["negative", "zero"]


@dataclass(frozen=True)
class Part:
    """One tensor that goes into a cache, [tokens, columns]."""

    name: str  #: "k", "v", "latent", "rope"; a kernel is given it by this name, the first one as x
    recipe: str = ""  #: name of a recipe; "" for a part that is kept without a scale
    keeps: str = ""  #: without a recipe: the format in which it is kept; "" for that of the claim
    per_head: bool = False  #: the recipe's blocks of columns are heads, of whatever size
    columns: int = 0  #: of a token, where it has no heads; 0 for heads × head size
    first: str = ""  #: what is done to it before: a name of reference/kv/before.py
    heads: int = 0  #: 1 where all columns are one head; 0 for the number that the call has
    cast: str = "ieee"  #: without a recipe: the policy by which it gets its format
    scale_of: str = ""  #: the part whose given scale is this one's too; "" for its own
    unused_scale: bool = False  #: without a recipe: a scale is given all the same, and a right kernel leaves it alone

    @property
    def scaled_by(self) -> str:
        """The part after which its given scale is named: ``latent_scale``."""
        return self.scale_of or self.name


@dataclass(frozen=True)
class Field:
    """Where one matrix of a cache stands in a buffer.

    ``rows`` and ``columns`` cut the number of a slot and of a column into digits, ``storage`` gives the axes of memory,
    as in ``Layout``. A size is a number, or one of: ``block`` (slots of a page), ``width`` (columns of a head),
    ``vector`` (elements in 16 bytes), each with ``/n`` or ``/vector`` behind it. A 4-bit code needs a digit in
    ``slots``.
    """

    of: str  #: "k", "k_scale", "k_zero_point"
    storage: tuple[str, ...]
    rows: str = "b o:block"
    columns: str = "h c:width"
    slots: str = ""  #: digits inside one byte, the first code lowest
    shares: str = ""  #: another matrix that stands in the same numbers: "k_zero_point"
    encode: str = ""  #: how the numbers of the two share one: a name of reference/kv/pages.py


@dataclass(frozen=True)
class Buffer:
    """One tensor of a kernel's arguments. With several fields, those of a token or of a page follow one another."""

    name: str  #: "k_cache", "kv_cache", "k_scale_cache"
    fields: tuple[Field, ...]
    per: Literal["token", "page"] = "page"  #: with several fields: what their bytes are gathered for
    element: str = ""  #: the format of an element, where it is not that of the codes


@dataclass(frozen=True)
class Slots:
    """Which slot numbers stand for padding, and what becomes of it."""

    name: str
    padding: Padding  #: any negative number, or slot 0
    written: bool  #: padding is written to slot 0, and what stands there is nobody's; otherwise it stays as it was
    source: str


@dataclass(frozen=True)
class Cache:
    """A key-value cache of an engine."""

    name: str
    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...]
    slots: str  #: name of a rule of reference/kv/slots.py
    source: str  #: file and lines
    blocks: tuple[int, ...] = (16,)  #: sizes of a page that the engine has; the first one is what cases have

    def __post_init__(self) -> None:
        if not self.parts or len({p.name for p in self.parts}) != len(self.parts):
            raise BadInput(f"cache {self.name!r}: its parts {[p.name for p in self.parts]} must be some, and differ")
        fields = [field for buffer in self.buffers for field in buffer.fields]
        names = [name for field in fields for name in (field.of, field.shares) if name]
        if len(set(names)) != len(names):
            raise BadInput(f"cache {self.name!r}: {names} stand in its buffers; each must stand in one place")

    def part(self, name: str) -> Part:
        """The part of that name. Raises ``BadInput`` where there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise BadInput(f"cache {self.name!r} has no part {name!r}; it has {', '.join(p.name for p in self.parts)}")
