"""How the tensors of one module stand for a weight, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: what a tensor beside the codes is for
Role = Literal[
    "scale",  # of the first level: one a tensor, row, group or block
    "second",  # one a tensor, over the first
    "zeros",
    "order",  # g_idx: the group of each column
    "shape",  # the logical shape, as numbers
    "input",  # the static scale of the activations
    "second_input",
    "before",  # what activations are multiplied by before they are quantized
]
#: how a scale's shape cuts a weight [N, K]: one; one a row; columns in groups; both in blocks
Cut = Literal["tensor", "row", "group", "block"]
FLOATS = ("F32", "BF16", "F16")


@dataclass(frozen=True)
class Part:
    """A tensor beside the codes."""

    role: Role
    suffixes: tuple[str, ...]  #: behind the name of the weight without the weight's own suffix
    dtypes: tuple[str, ...] = FLOATS  #: in the file's word
    format: str = ""  #: of one element, where the file's word does not say it (E8M0 in U8)
    divides: bool = False  #: the weight is divided by it
    needed: bool = True


@dataclass(frozen=True)
class Scheme:
    """One way of storing a quantized weight. Declared once in the files beside this one."""

    name: str
    says: str  #: for people
    weights: tuple[str, ...]  #: suffixes of the tensor of codes
    stored: tuple[str, ...]  #: its dtypes, in the file's word
    element: str  #: format of one code; "" where the stored dtype is that format
    parts: tuple[Part, ...]
    cuts: tuple[Cut, ...]
    by: str  #: who writes it so
    source: str
    group: int = 0  #: columns of a group, where it is fixed
    packing: str = ""  #: a name of reference.layouts; "" for one code an element
    packed: Literal["columns", "rows"] = "columns"  #: the axis of the stored matrix that the packing makes shorter
    transposed: bool = False  #: stored as [K, N]
    merged: int = 0  #: so many last axes of the tensor are the columns, besides the last
    zeros: str = ""  #: a name of ZERO_POINTS: what is stored for a zero point, or the constant; "" for none at all
    when: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: keys of the configuration that tell it from its like
    complete: bool = False  #: it is taken only where nothing that it needs is missing: its name says little
    alone: bool = False  #: who reads it needs no configuration: the names say it
    vectors: bool = False  #: vectors are stored so too, as one row
    divisor: float = 1.0  #: the scale is divided by it
    only_when: bool = False  #: it is taken only where the configuration has all of these keys
    block_bytes: int = 0  #: of GGUF: bytes of a block
    halves: tuple[int, ...] = ()  #: of GGUF: where in a block float16 stand
    block_size: int = 0  #: of GGUF: elements of a block
    unread: str = ""  #: why its values are not read; "" where they are

    def part(self, role: str) -> Part | None:
        """The tensor of that role; None where the scheme has none."""
        return next((part for part in self.parts if part.role == role), None)
