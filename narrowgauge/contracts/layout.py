"""Layouts: where the bits of each code stand in memory, as data.

A layout is declared once, as digits. A row number and a column number are each cut into digits (a mixed radix); memory
is the same digits in another order. Packing and unpacking both follow from that one declaration, in reference/layouts.

``rows="M q:4 r:32"`` reads: row = (M * 4 + q) * 32 + r. The digit without a size takes what is left. ``storage`` gives
the axes of the memory image, outermost first, each as digits; ``slots`` are the digits that are left, inside one word,
and ``word[slot][i]`` is the bit of the word (0 the lowest) that holds bit i of the code in that slot. Words of several
bytes are little-endian.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from narrowgauge.contracts.errors import BadInput

#: for each slot of a word, the bit of the word that holds bit 0, 1, ... of the code
Word = tuple[tuple[int, ...], ...]
#: ``zero``: the engine writes 0 there. ``unwritten``: the engine allocates and leaves it. ``refused``: there is none,
#: and sizes that do not divide are an error.
Padding = Literal["zero", "unwritten", "refused"]


@dataclass(frozen=True)
class Digit:
    """One digit of a row or column number. ``size`` is None for the digit that takes what is left."""

    name: str
    size: int | None


def digits(spelled: str) -> tuple[Digit, ...]:
    """``"M q:4"`` as digits, the most significant first. Raises ``BadInput`` for a size that is not a whole number."""
    found = []
    for part in spelled.split():
        name, _, size = part.partition(":")
        if size and not (size.isdecimal() and int(size) > 0):
            raise BadInput(f"digit {part!r} of {spelled!r}: its size must be a whole number above 0, as in {name}:4")
        found.append(Digit(name, int(size) if size else None))
    return tuple(found)


def dense(bits: int, count: int, order: tuple[int, ...] | None = None) -> Word:
    """A word of ``count`` codes without gaps, the lowest bits first. ``order[slot]`` is the place of a slot's code."""
    places = range(count) if order is None else order
    return tuple(tuple(range(place * bits, (place + 1) * bits)) for place in places)


@dataclass(frozen=True)
class Layout:
    """Where each code of a matrix [rows, columns] stands in memory."""

    name: str
    holds: Literal["codes", "scales", "zero points"]
    bits: int  #: of one code
    rows: str  #: the row number as digits
    columns: str  #: the column number as digits
    storage: tuple[str, ...]  #: axes of the memory image, outermost first; names of digits
    word: Word  #: the bits of one word, slot by slot
    padding: Padding
    users: tuple[str, ...]  #: engines, libraries, file formats
    source: str  #: file that says so, and what it says
    slots: str = ""  #: names of the digits inside a word; empty for one code a word
    storage_dtype: Literal["uint8", "int32", "uint32"] = "uint8"
    align: tuple[int, int] = (1, 1)  #: rows and columns are padded to multiples of these too

    def __post_init__(self) -> None:
        both = (*self.row_digits, *self.column_digits)
        names = [digit.name for digit in both]
        stored = [name for axis in (*self.storage, self.slots) for name in axis.split()]
        if sorted(names) != sorted(set(stored)) or len(set(names)) != len(names) or len(stored) != len(names):
            raise BadInput(f"layout {self.name!r}: digits {names} are stored as {stored}; each must occur once in both")
        for spelled, of in ((self.rows, self.row_digits), (self.columns, self.column_digits)):
            if sum(digit.size is None for digit in of) != 1:
                raise BadInput(f"layout {self.name!r}: {spelled!r} must have just one digit without a size")
        sizes = {digit.name: digit.size for digit in both}
        inside = math.prod(sizes[name] or 0 for name in self.slots.split())
        if inside != len(self.word):
            raise BadInput(f"layout {self.name!r}: slots {self.slots!r} are {inside}, the word has {len(self.word)}")
        used = sorted(bit for slot in self.word for bit in slot)
        whole = used == list(range(8 * self.word_bytes)) and all(len(slot) == self.bits for slot in self.word)
        if not whole or self.word_bytes % self.element_bytes:
            raise BadInput(
                f"layout {self.name!r}: a word must give each of its bits to one code of {self.bits} bits, and be "
                f"whole elements of {self.storage_dtype}; it uses bits {used}"
            )

    @property
    def row_digits(self) -> tuple[Digit, ...]:
        """The row number's digits, the most significant first."""
        return digits(self.rows)

    @property
    def column_digits(self) -> tuple[Digit, ...]:
        """The column number's digits, the most significant first."""
        return digits(self.columns)

    @property
    def word_bytes(self) -> int:
        """Bytes of one word."""
        return len(self.word) * self.bits // 8

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of the storage array."""
        return 1 if self.storage_dtype == "uint8" else 4


@dataclass(frozen=True)
class ZeroPoints:
    """What a format stores for a zero point z, where a weight is (code - z) * scale: z + ``offset``, or nothing."""

    name: str
    bits: int  #: of what is stored
    offset: int
    source: str
    constant: int | None = None  #: every zero point is this one, and none is stored

    @property
    def lowest(self) -> int:
        """The smallest zero point that can be stored."""
        return -self.offset

    @property
    def highest(self) -> int:
        """The largest zero point that can be stored."""
        return (1 << self.bits) - 1 - self.offset


@dataclass(frozen=True)
class InMemory:
    """What a device must know to call a kernel whose buffers are packed, or are changed in place."""

    outputs: Mapping[str, str]  #: names and formats of what is returned, as elements of memory
    shape: tuple[int, ...]  #: of x as a matrix
    loose: tuple[str, ...] = ()  #: outputs whose padding may be left unwritten
    in_place: tuple[str, ...] = ()  #: outputs that are inputs, changed in place
    numbers: Mapping[str, float] = field(default_factory=dict)  #: numbers for a kernel that asks for them
    viewed: tuple[str, ...] = ("x",)  #: inputs that lie in memory in another way, where a case says so
    far: tuple[str, ...] = ("x",)  #: those that lie far apart, where a case says so
