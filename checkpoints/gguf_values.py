"""Values of GGUF's metadata."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from narrowgauge.checkpoints.cursor import Cursor
from narrowgauge.checkpoints.source import refused

#: numbers by their type in the file: GGUF's word, and that of ``struct``
NUMBERS = {
    0: ("uint8", "B"), 1: ("int8", "b"), 2: ("uint16", "H"), 3: ("int16", "h"), 4: ("uint32", "I"), 5: ("int32", "i"),
    6: ("float32", "f"), 10: ("uint64", "Q"), 11: ("int64", "q"), 12: ("float64", "d"),
}  # fmt: skip
BOOL, TEXT, ARRAY = 7, 8, 9
#: how many elements of an array are kept, and how deep arrays lie in arrays
KEPT, DEEPEST = 1024, 4


@dataclass(frozen=True)
class Long:
    """An array that is too long to be kept, as vocabularies are."""

    kind: str  #: of its elements
    count: int


def value(cursor: Cursor) -> Any:
    """The next value with its type before it: a number, True, a text, a tuple, or ``Long``.

    Raises ``BadInput`` with file and byte for a type that GGUF has not, and a value that is none of its type.
    """
    return _of(cursor, cursor.number("I", "the type of a value"), 0)


def _of(cursor: Cursor, kind: int, depth: int) -> Any:
    at = cursor.at
    if kind in NUMBERS:
        return cursor.number(NUMBERS[kind][1], f"a {NUMBERS[kind][0]}")
    if kind == BOOL:
        if (found := cursor.number("B", "a bool")) > 1:
            raise refused(cursor.source.path, at, f"a bool of {found}; expected 0 or 1")
        return bool(found)
    if kind == TEXT:
        return cursor.text("a text").decode(errors="replace")
    if kind == ARRAY and depth < DEEPEST:
        return _array(cursor, depth + 1)
    reason = f"arrays more than {DEEPEST} deep" if kind == ARRAY else f"the unknown type {kind} of a value"
    raise refused(cursor.source.path, max(0, at - 4), reason)


def _array(cursor: Cursor, depth: int) -> Any:
    kind = cursor.number("I", "the type of an array")
    count = cursor.number("Q", "the length of an array")
    if kind in NUMBERS or kind == BOOL:
        name, letter = NUMBERS.get(kind, ("bool", "?"))
        size = count * struct.calcsize(f"<{letter}")
        if count > KEPT:
            cursor.skip(size, f"an array of {count:,} {name}")
            return Long(name, count)
        return struct.unpack(f"<{count}{letter}", cursor.take(size, f"an array of {name}"))
    if kind not in (TEXT, ARRAY):
        raise refused(cursor.source.path, cursor.at - 12, f"the unknown type {kind} of an array")
    # each element has eight bytes at least: a length that the file cannot hold is refused before it is counted out
    cursor.source.within(cursor.at, 8 * count, f"an array of {count:,} elements")
    if kind == TEXT and count > KEPT:
        cursor.skip_texts(count, "a text")
        return Long("text", count)
    found = tuple(_of(cursor, kind, depth) for _ in range(count))
    return found if count <= KEPT else Long("array", count)
