# SPDX-License-Identifier: Apache-2.0
"""Writers and readers of caches in plain Python, from the arguments that kernels are handed: loops over tokens.

Slots and places are those of second_caches, numbers those of the second derivation of recipes. Nothing of reference/kv
is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_around import by_matrix, exact, fl, real
from narrowgauge.suites.meta.second_caches import CACHES, target
from narrowgauge.suites.meta.second_catalogue import SECOND, SHAPES
from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast
from narrowgauge.suites.meta.second_derivation import decode as _decode
from narrowgauge.suites.meta.second_kv_parts import PARTS, Part
from narrowgauge.suites.meta.second_kv_places import Cut, Map, Where
from narrowgauge.suites.meta.second_readers import READERS, plain
from narrowgauge.suites.meta.second_recipes import rounded

Array = npt.NDArray[Any]
#: name of a kernel's parameter -> its tensor, as codes
Arguments = Mapping[str, Array]
_IEEE: Mapping[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}  # fmt: skip
_HOLDS = {**_IEEE, "overflow": "max", "infinity": "max"}
#: recipes of which one scale is that of a head
_HEADS = ("_head", "_head_rocm", "_head_rocm_float16")
decode = cache(_decode)


class Memory:
    """Buffers as bytes, written and read number by number."""

    def __init__(self, name: str, held: str, cut: Cut, buffers: Mapping[str, Array]) -> None:
        self.map: Map = CACHES[name](_bits(held))
        self.cut = cut
        self.bytes = {b: bytearray(np.ascontiguousarray(buffers[b]).tobytes()) for b in self.map}

    def _at(self, matrix: str) -> tuple[bytearray, Where]:
        return next((self.bytes[b], of[matrix]) for b, of in self.map.items() if matrix in of)

    def has(self, matrix: str) -> bool:
        return any(matrix in of for of in self.map.values())

    def put(self, matrix: str, slot: int, head: int, i: int, value: int) -> None:
        buffer, at = self._at(matrix)
        first = int(at.place(slot, head, i, self.cut))
        mask = (1 << at.bits) - 1
        value = value >> 4 if at.bits == 28 else value  # the lowest bits of the scale give way
        size = (first % 8 + at.bits + 7) // 8
        whole = int.from_bytes(buffer[first // 8 : first // 8 + size], "little")
        whole = whole & ~(mask << first % 8) | (value & mask) << first % 8
        buffer[first // 8 : first // 8 + size] = whole.to_bytes(size, "little")

    def get(self, matrix: str, slot: int, head: int, i: int) -> int:
        buffer, at = self._at(matrix)
        first = int(at.place(slot, head, i, self.cut))
        size = (first % 8 + at.bits + 7) // 8
        value = int.from_bytes(buffer[first // 8 : first // 8 + size], "little") >> first % 8 & (1 << at.bits) - 1
        return value << 4 if at.bits == 28 else value


def _bits(format: str) -> int:
    return (LAYOUTS[format].codes - 1).bit_length()


def blocks(recipe: str, width: int) -> Iterator[tuple[int, int]]:
    """First and last column of what shares a scale, within a head or a row without heads."""
    shape = SHAPES[recipe]
    whole = recipe.endswith(_HEADS) or recipe == "vllm.int4_per_token_head"
    each = width if whole else shape.columns or 1
    yield from ((start, start + each) for start in range(0, width, each))


def rotated(head: Sequence[int], format: str, cosines: Sequence[int], positions_style: str) -> list[int]:
    """x1 cos - x2 sin, x2 cos + x1 sin, to float32 and then to the format; ``cosines`` has the sines behind them."""
    half = len(cosines) // 2
    out = list(head)
    for j in range(half):
        a, b = (2 * j, 2 * j + 1) if positions_style == "rope_interleaved" else (j, j + half)
        one, two = decode(head[a], format), decode(head[b], format)
        c, s = decode(cosines[j], format), decode(cosines[half + j], format)
        out[a] = cast(_sum(one, c, two, s, -1), format, _IEEE)
        out[b] = cast(_sum(two, c, one, s, 1), format, _IEEE)
    return out


def _python(x: Number) -> float:
    magnitude = {"nan": float("nan"), "inf": float("inf")}.get(x.kind, float(x.magnitude))
    return -magnitude if x.negative else magnitude


def _sum(a: Number, b: Number, c: Number, d: Number, sign: int) -> Number:
    """a b ± c d, rounded once to float32. Zeros and what is not finite: as Python's floats have it."""
    if all(x.kind == "finite" for x in (a, b, c, d)):
        value = exact(a) * exact(b) + sign * exact(c) * exact(d)
        if value:
            return fl(value)
    plain = _python(a) * _python(b) + sign * (_python(c) * _python(d))
    kind = "nan" if plain != plain else "inf" if plain in (float("inf"), -float("inf")) else "finite"
    negative = str(plain).startswith("-")
    return Number(kind, negative and kind != "nan", Fraction(0))


def signs_of(width: int, signs: Sequence[int]) -> tuple[list[int], int]:
    """Signs of a head, and the size of the blocks that are turned: the largest power of two in it."""
    block = 1
    while width % (2 * block) == 0:
        block *= 2
    return [signs[i % block] for i in range(width)], block


def turned(head: Sequence[int], format: str, signs: Sequence[int]) -> list[int]:
    """The Hadamard matrix of a head, exact, in the format of x."""
    each, block = signs_of(len(head), signs)
    return [
        cast(rounded(real(y), "float32"), format, _IEEE)
        for y in by_matrix([exact(decode(x, format)) for x in head], each, block)
    ]


def before(part: Part, head: list[int], source: str, token: int, given: Arguments, signs: Sequence[int]) -> list[int]:
    """A head after what is done to it first."""
    if part.first == "hadamard":
        return turned(head, source, signs)
    if part.first:
        at = [int(c) for c in given["cos_sin"][int(given["positions"].view(np.int32)[token])]]
        return rotated(head, source, at, part.first)
    return head


def write(
    name: str,
    source: str,
    held: str,
    given: Arguments,
    cut: Cut,
    signs: Sequence[int],
    to: Callable[[str, int], int | None] = target,
) -> Memory:
    """What a writer leaves in its buffers. ``given["x"]`` is the first part; ``to`` says where a token goes."""
    memory = Memory(name, held, cut, given)
    for token, number in enumerate(given["slot_mapping"].view(np.int32)):
        slot = to(name, int(number))
        if slot is None:
            continue
        for place, part in enumerate(PARTS[name]):
            rows = given["x" if place == 0 else part.name][token]
            for head, columns in enumerate(rows[None] if rows.ndim == 1 else rows):
                values = before(part, [int(c) for c in columns], source, token, given, signs)
                _keep(memory, part, slot, head, values, source, held, given)
    return memory


def _keep(
    memory: Memory, part: Part, slot: int, head: int, values: list[int], of: str, held: str, given: Arguments
) -> None:
    if not part.recipe:
        for i, value in enumerate(values):
            kept = part.keeps or held
            policy = _HOLDS if part.keeps == "float8_e4m3fn" else _IEEE
            memory.put(part.name, slot, head, i, value if kept == of else cast(decode(value, of), kept, policy))
        return
    beside = _given(part, head, given, SHAPES[part.recipe].given)
    for number, (start, stop) in enumerate(blocks(part.recipe, len(values))):
        answer = SECOND[part.recipe]([decode(c, of) for c in values[start:stop]], of, held, beside)
        for i, code in enumerate(answer.codes):
            memory.put(part.name, slot, head, start + i, code)
        if memory.has(f"{part.name}_scale"):
            memory.put(f"{part.name}_scale", slot, head, number, answer.scale)
        if memory.has(f"{part.name}_zero_point"):
            memory.put(f"{part.name}_zero_point", slot, head, number, answer.zero_point or 0)


def _given(part: Part, head: int, given: Arguments, names: Sequence[str]) -> dict[str, Number]:
    """What a caller gives for a head: a scale of its own, or that of all."""
    found = {}
    for other in names:
        value = given[f"{part.scale_of or part.name}_{other}"].reshape(-1)
        found[other] = decode(int(value[head if value.size > 1 else 0]), "float32")
    return found


def read(
    name: str, held: str, to: str, given: Arguments, cut: Cut, signs: Sequence[int], step: int = 1
) -> dict[str, dict[int, list[int]]]:
    """The values of every so many tokens of all sequences, and of the last one of each: part -> row -> codes."""
    memory = Memory(name, held, cut, given)
    found: dict[str, dict[int, list[int]]] = {part.name: {} for part in PARTS[name]}
    number = -1
    for table, length in zip(given["block_table"].view(np.int32), given["seq_lens"].view(np.int32), strict=True):
        for token in range(int(length)):
            number += 1
            if number % step and token != length - 1:
                continue
            slot = int(table[token // cut.block]) * cut.block + token % cut.block
            for part in PARTS[name]:
                heads, width = (1, part.columns) if part.columns else (cut.heads, cut.width)
                row = [_head(memory, part, slot, head, width, held, to, given, signs) for head in range(heads)]
                found[part.name][number] = [code for codes in row for code in codes]
    return found


def _turned_back(values: Sequence[Number], signs: Sequence[int], block: int) -> list[Number]:
    """D H x over the size of a block. The sign of a sum of 0 is the order's business: there must be none."""
    sums = by_matrix([exact(v) for v in values], [1] * len(values), block)
    assert all(sums), "a sum of 0"
    return [real(sign * y / block) for sign, y in zip(signs, sums, strict=True)]


def _head(
    memory: Memory, part: Part, slot: int, head: int, width: int, held: str, to: str, given: Arguments,
    signs: Sequence[int],
) -> list[int]:  # fmt: skip
    codes = [memory.get(part.name, slot, head, i) for i in range(width)]
    if not part.recipe:
        kept = part.keeps or held
        return [code if kept == to else cast(decode(code, kept), to, _IEEE) for code in codes]
    reader, values = READERS.get(part.recipe, plain), []
    for number, (start, stop) in enumerate(blocks(part.recipe, width)):
        beside = _given(part, head, given, SHAPES[part.recipe].given)
        for other, of in (("scale", SHAPES[part.recipe].scale), ("zero_point", "int32")):
            if memory.has(f"{part.name}_{other}"):
                beside[other] = decode(memory.get(f"{part.name}_{other}", slot, head, number), of)
        values += [reader(decode(code, held), beside) for code in codes[start:stop]]
    if part.first == "hadamard":
        values = _turned_back(values, *signs_of(width, signs))
    return [cast(value, to, _IEEE) for value in values]
