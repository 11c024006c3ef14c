# SPDX-License-Identifier: Apache-2.0
"""The second derivation of GGUF's blocks: one element after the other, from ggml-common.h and ggml-quants.c.

Each function takes the bytes of one block and gives the numbers it stands for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def half(block: bytes, at: int) -> float:
    (value,) = struct.unpack_from("<e", block, at)
    return float(value)


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def q8_0(block: bytes) -> list[float]:
    return [half(block, 0) * signed(block[2 + i]) for i in range(32)]


def nibble(block: bytes, start: int, i: int) -> int:
    """Code i of 32 in 16 bytes: the first 16 are the low halves, the others the high ones."""
    return block[start + i] & 15 if i < 16 else block[start + i - 16] >> 4


def q4_0(block: bytes) -> list[float]:
    return [half(block, 0) * (nibble(block, 2, i) - 8) for i in range(32)]


def q4_1(block: bytes) -> list[float]:
    return [half(block, 0) * nibble(block, 4, i) + half(block, 2) for i in range(32)]


def fifth(block: bytes, start: int, i: int) -> int:
    (word,) = struct.unpack_from("<I", block, start)
    return int(word >> i & 1)


def q5_0(block: bytes) -> list[float]:
    return [half(block, 0) * (nibble(block, 6, i) + 16 * fifth(block, 2, i) - 16) for i in range(32)]


def q5_1(block: bytes) -> list[float]:
    return [half(block, 0) * (nibble(block, 8, i) + 16 * fifth(block, 4, i)) + half(block, 2) for i in range(32)]


def mxfp4(block: bytes) -> list[float]:
    scale = float("nan") if block[0] == 255 else 2.0 ** (block[0] - 127)
    codes = [nibble(block, 1, i) for i in range(32)]
    return [(-1 if code > 7 else 1) * E2M1[code & 7] * scale for code in codes]


def scale_min(packed: bytes, j: int) -> tuple[int, int]:
    """Scale and minimum j of eight, six bits each, of 12 bytes."""
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    low, high = packed[j + 4] & 15, packed[j + 4] >> 4
    return low + 16 * (packed[j - 4] >> 6), high + 16 * (packed[j] >> 6)


def q4_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        part, within = i // 32, i % 32
        byte = block[16 + 32 * (part // 2) + within]
        code = byte >> 4 if part % 2 else byte & 15
        scale, least = scale_min(block[4:16], part)
        found.append(half(block, 0) * scale * code - half(block, 2) * least)
    return found


def q5_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        part, within = i // 32, i % 32
        byte = block[48 + 32 * (part // 2) + within]
        code = (byte >> 4 if part % 2 else byte & 15) + 16 * (block[16 + within] >> part & 1)
        scale, least = scale_min(block[4:16], part)
        found.append(half(block, 0) * scale * code - half(block, 2) * least)
    return found


def q6_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        side, within = i // 128, i % 128
        quarter, place = within // 32, within % 32
        byte = block[64 * side + 32 * (quarter % 2) + place]
        low = byte >> 4 if quarter > 1 else byte & 15
        high = block[128 + 32 * side + place] >> (2 * quarter) & 3
        found.append(half(block, 208) * signed(block[192 + i // 16]) * (low + 16 * high - 32))
    return found


def q2_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        side, within = i // 128, i % 128
        code = block[16 + 32 * side + within % 32] >> (2 * (within // 32)) & 3
        pair = block[i // 16]
        found.append(half(block, 80) * (pair & 15) * code - half(block, 82) * (pair >> 4))
    return found


def q3_k(block: bytes) -> list[float]:
    packed = block[96:108]
    scales = []
    for j in range(16):
        low = packed[j] & 15 if j < 8 else packed[j - 8] >> 4
        scales.append(low + 16 * (packed[8 + j % 4] >> (2 * (j // 4)) & 3) - 32)
    found = []
    for i in range(256):
        side, within = i // 128, i % 128
        code = block[32 + 32 * side + within % 32] >> (2 * (within // 32)) & 3
        high = block[i % 32] >> (i // 32) & 1
        found.append(half(block, 108) * scales[i // 16] * (code - (0 if high else 4)))
    return found


def mx_interleaved(block: bytes) -> list[float]:
    """Quark's 17 bytes: log2 of the scale as int8, then neighbours in each byte, the first low."""
    scale = 2.0 ** signed(block[0])
    codes = [block[1 + i // 2] >> (4 * (i % 2)) & 15 for i in range(32)]
    return [(-1 if code > 7 else 1) * E2M1[code & 7] * scale for code in codes]


#: by the name of the scheme: bytes of a block, and what it stands for
BLOCKS: dict[str, tuple[int, Callable[[bytes], list[float]]]] = {
    "gguf_q8_0": (34, q8_0), "gguf_q4_0": (18, q4_0), "gguf_q4_1": (20, q4_1), "gguf_q5_0": (22, q5_0),
    "gguf_q5_1": (24, q5_1), "gguf_q2_k": (84, q2_k), "gguf_q3_k": (110, q3_k), "gguf_q4_k": (144, q4_k),
    "gguf_q5_k": (176, q5_k), "gguf_q6_k": (210, q6_k), "gguf_mxfp4": (17, mxfp4),
    "mx_interleaved": (17, mx_interleaved),
}  # fmt: skip
