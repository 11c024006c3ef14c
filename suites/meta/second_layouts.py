# SPDX-License-Identifier: Apache-2.0
"""The second derivation of layouts: for one bit of one code, the byte and the bit of memory. Plain arithmetic.

Written from the words of the sources, and for the swizzles of triton_kernels from the kernels that read them, which
run the other way round. It shares nothing with reference/layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

#: row, column, bit of the code, rows, columns -> byte of memory, bit of the byte
Place = Callable[[int, int, int, int, int], tuple[int, int]]
#: rows, columns -> bytes of memory
Size = Callable[[int, int], int]


def up(n: int, multiple: int) -> int:
    return (n + multiple - 1) // multiple * multiple


def at(bit: int) -> tuple[int, int]:
    """A bit of memory, bytes and bits counted from the low end."""
    return bit // 8, bit % 8


# ---------------- nibbles and six bits


def low_first(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return r * (columns // 2) + c // 2, (4 if c % 2 else 0) + i


def high_first(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return r * (columns // 2) + c // 2, (0 if c % 2 else 4) + i


def planar(block: int) -> Place:
    """Byte j of a block holds element j low and element j + block/2 high."""

    def place(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
        byte, upper = c % block, 0
        if byte >= block // 2:
            byte, upper = byte - block // 2, 4
        return r * (columns // 2) + c // block * (block // 2) + byte, upper + i

    return place


def planes(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    """Quark: x[i] << (8 - (i + 1) * n) in each plane, the plane of 2 bits before the plane of 4 bits."""
    start, which = r * columns * 6 // 8 + c // 4 * 3, c % 4
    if i >= 4:
        return start, 8 - (which + 1) * 2 + (i - 4)
    return start + 1 + which // 2, 8 - (which % 2 + 1) * 4 + i


def six_dense(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return at((r * columns + c) * 6 + i)


# ---------------- 32-bit words


def along_columns(bits: int, order: tuple[int, ...] = ()) -> Place:
    """Words run along the columns; place p of a word holds column order[p] of its share."""
    share = 32 // bits
    holds = order or tuple(range(share))

    def place(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
        word = r * (up(columns, share) // share) + c // share
        return at(32 * word + bits * next(p for p in range(share) if holds[p] == c % share) + i)

    return place


def along_rows(bits: int) -> Place:
    share = 32 // bits
    return lambda r, c, i, rows, columns: at(32 * (r // share * columns + c) + bits * (r % share) + i)


# ---------------- scales


def column_major(align: int) -> Place:
    return lambda r, c, i, rows, columns: at(32 * (c * up(rows, align) + r) + i)


def ue8m0_int32(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return 4 * (c // 4 * up(rows, 4) + r) + c % 4, i


def tile_128x4(pad: int) -> Place:
    def place(m: int, k: int, i: int, rows: int, columns: int) -> tuple[int, int]:
        tiles = up(columns, pad) // 4
        return ((m // 128) * tiles + k // 4) * 512 + (m % 32) * 16 + ((m % 128) // 32) * 4 + k % 4, i

    return place


def tile_8x4(m: int, k: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return (m // 8) * 8 * up(columns, 4) + (k // 4) * 32 + (m % 8) * 4 + k % 4, i


def kv_4x4(t: int, s: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    quarter = columns // 4
    return ((t // 4) * 4 + s // quarter) * columns + (s % quarter) * 4 + t % 4, i


# ---------------- swizzles of triton_kernels, from the reading side


def walk(*sizes: int) -> Iterator[tuple[int, ...]]:
    """All numbers of these digits, in the order of memory."""
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for rest in walk(*sizes[1:]):
            yield (first, *rest)


def cdna4(rows: int, columns: int) -> dict[tuple[int, int], int]:
    """unswizzle_mx_scale_cdna4: memory as (N/32, K/8, 4, 16, 2, 2), read in the order 0 5 3 1 4 2."""
    read = walk(rows // 32, columns // 8, 4, 16, 2, 2)
    return {((d[0] * 2 + d[5]) * 16 + d[3], (d[1] * 2 + d[4]) * 4 + d[2]): byte for byte, d in enumerate(read)}


def hopper_scales(warps: int) -> Callable[[int, int], dict[tuple[int, int], int]]:
    """unswizzle_mxfp4_scale_hopper: memory as (M/32/w, w, K/2, 2, 8, 2, 2), read in the order 0 3 1 6 4 2 5."""

    def found(rows: int, columns: int) -> dict[tuple[int, int], int]:
        read = walk(up(rows, 32 * warps) // 32 // warps, warps, up(columns, 2) // 2, 2, 8, 2, 2)
        return {
            ((((d[0] * 2 + d[3]) * warps + d[1]) * 2 + d[6]) * 8 + d[4], d[2] * 2 + d[5]): byte
            for byte, d in enumerate(read)
        }

    return found


def hopper_bytes(width: int) -> Callable[[int, int], dict[tuple[int, int], int]]:
    """_unshuffle_triton: bytes as (M/4, 4, K/128, 2, 4, 8/width, 2, width), read in the order 0 6 1 3 2 5 4 7."""

    def found(rows: int, columns: int) -> dict[tuple[int, int], int]:
        height, length = up(rows, 16) // 4, up(columns, 64) // 2 * 4
        return {
            (
                ((d[0] * 2 + d[6]) * 4 + d[1]) * 2 + d[3],
                ((d[2] * (8 // width) + d[5]) * 4 + d[4]) * width + d[7],
            ): byte
            for byte, d in enumerate(walk(height // 4, 4, length // 128, 2, 4, 8 // width, 2, width))
        }

    return found


def half_word(byte: int, x: int) -> int:
    """mxfp4_to_bf16_triton: what the kernel's shifts and ANDs take for one of four bytes, in one half of the word."""
    if byte < 3:
        return x << 3 * byte & 0b1000000111000000
    return x << 1 & 0b1000000000000000 | x >> 3 & 0b0000000110000000 | x >> 7 & 0b0000000001000000


#: byte of four, bit of the code -> bit of the half-word; bfloat16 has the sign of a code at 15, its magnitude at 8 to 6
HALF = {
    (byte, i): bit
    for byte in range(4)
    for i, wanted in enumerate((6, 7, 8, 15))
    for bit in range(16)
    if half_word(byte, 1 << bit) == 1 << wanted
}


def hopper_values(width: int) -> Place:
    known: dict[tuple[int, int], dict[tuple[int, int], int]] = {}

    def place(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
        if (rows, columns) not in known:
            known[rows, columns] = hopper_bytes(width)(rows, columns)
        byte = known[rows, columns][r, c // 2]
        return at(32 * (byte // 4) + 16 * (c % 2) + HALF[byte % 4, i])

    return place


def by_table(table: Callable[[int, int], dict[tuple[int, int], int]]) -> Place:
    known: dict[tuple[int, int], dict[tuple[int, int], int]] = {}

    def place(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
        if (rows, columns) not in known:
            known[rows, columns] = table(rows, columns)
        return known[rows, columns][r, c], i

    return place


def blackwell_values(r: int, c: int, i: int, rows: int, columns: int) -> tuple[int, int]:
    return r * up((columns + 1) // 2, 128) + c // 2, 4 * (c % 2) + i


AWQ = (0, 2, 4, 6, 1, 3, 5, 7)

# fmt: off
SECOND: dict[str, tuple[Place, Size]] = {
    "nibbles_low_first": (low_first, lambda r, c: r * c // 2),
    "nibbles_high_first": (high_first, lambda r, c: r * c // 2),
    "nibbles_planar_32": (planar(32), lambda r, c: r * c // 2),
    "nibbles_planar_16": (planar(16), lambda r, c: r * c // 2),
    "fp6_planes": (planes, lambda r, c: r * c * 6 // 8),
    "fp6_dense": (six_dense, lambda r, c: r * c * 6 // 8),
    "compressed_tensors_4bit": (along_columns(4), lambda r, c: 4 * r * -(-c * 4 // 32)),
    "compressed_tensors_8bit": (along_columns(8), lambda r, c: 4 * r * -(-c * 8 // 32)),
    "compressed_tensors_zeros_4bit": (along_rows(4), lambda r, c: 4 * c * -(-r * 4 // 32)),
    "compressed_tensors_zeros_8bit": (along_rows(8), lambda r, c: 4 * c * -(-r * 8 // 32)),
    "gptq_4bit": (along_rows(4), lambda r, c: r * c // 2),
    "gptq_8bit": (along_rows(8), lambda r, c: r * c),
    "gptq_zeros_4bit": (along_columns(4), lambda r, c: r * c // 2),
    "gptq_zeros_8bit": (along_columns(8), lambda r, c: r * c),
    "awq_4bit": (along_columns(4, AWQ), lambda r, c: r * c // 2),
    "awq_8bit": (along_columns(8, (0, 2, 1, 3)), lambda r, c: r * c),
    "hopper_mxfp4_values": (hopper_values(1), lambda r, c: up(r, 16) * up(c, 64) // 2),
    "hopper_mxfp4_values_mma2": (hopper_values(4), lambda r, c: up(r, 16) * up(c, 64) // 2),
    "blackwell_mxfp4_values": (blackwell_values, lambda r, c: r * up((c + 1) // 2, 128)),
    "scales_column_major": (column_major(1), lambda r, c: 4 * r * c),
    "scales_tma_aligned": (column_major(4), lambda r, c: 4 * up(r, 4) * c),
    "ue8m0_int32": (ue8m0_int32, lambda r, c: 4 * up(r, 4) * -(-c // 4)),
    "scales_128x4": (tile_128x4(4), lambda r, c: up(r, 128) * up(c, 4)),
    "scales_128x4_k8": (tile_128x4(8), lambda r, c: up(r, 128) * up(c, 8)),
    "scales_8x4": (tile_8x4, lambda r, c: up(r, 8) * up(c, 4)),
    "kv_scales_4x4": (kv_4x4, lambda r, c: r * c),
    "cdna4_mx_scales": (by_table(cdna4), lambda r, c: r * c),
    "hopper_mx_scales_4_warps": (by_table(hopper_scales(4)), lambda r, c: up(r, 128) * up(c, 2)),
    "hopper_mx_scales_8_warps": (by_table(hopper_scales(8)), lambda r, c: up(r, 256) * up(c, 2)),
}
# fmt: on


def memory(name: str, codes: list[list[int]], bits: int) -> bytes:
    """The memory image of a matrix, bit by bit; what no code reaches is 0."""
    place, size = SECOND[name]
    rows, columns = len(codes), len(codes[0]) if codes else 0
    image = bytearray(size(rows, columns))
    for r, row in enumerate(codes):
        for c, code in enumerate(row):
            for i in range(bits):
                if code >> i & 1:
                    byte, bit = place(r, c, i, rows, columns)
                    image[byte] |= 1 << bit
    return bytes(image)
