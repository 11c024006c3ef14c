"""What blocks stand for that hold codes and scales together: those of GGUF, and Quark's of 17 bytes.

Each function takes blocks [n, bytes] and gives float64 [n, elements]. Everything is exact: a half, a code of at most 8
bits and a scale of at most 8 bits have 11 + 8 + 8 bits together, and differences of two such have fewer than 53.
Definitions: ggml-common.h (block_q8_0 and the others), ggml-quants.c (dequantize_row_*), gguf quants.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import values

Bytes = npt.NDArray[Any]  #: of uint8
Values = npt.NDArray[np.float64]


def _halves(of: Bytes) -> Values:
    """float16 [n, bytes / 2] as float64."""
    return np.ascontiguousarray(of).view("<f2").astype(np.float64)


def _signed(of: Bytes) -> Values:
    return np.ascontiguousarray(of).view(np.int8).astype(np.float64)


def _planes(of: Bytes, bits: int, piece: int) -> Bytes:
    """Codes of ``bits`` bits: of each ``piece`` bytes first the lowest bits of all, then the next, and so on."""
    parts = of.reshape(len(of), -1, 1, piece)
    shifts = np.arange(0, 8, bits, dtype=np.uint8).reshape(1, 1, -1, 1)
    return np.asarray((parts >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(of), -1)


def _fifths(of: Bytes) -> Bytes:
    """32 bits, the lowest first: the fifth bits of 32 codes."""
    return np.unpackbits(of, axis=1, bitorder="little")


def _q8_0(block: Bytes) -> Values:
    return np.asarray(_halves(block[:, :2]) * _signed(block[:, 2:]))


def _q4_0(block: Bytes) -> Values:
    return _halves(block[:, :2]) * (_planes(block[:, 2:], 4, 16).astype(np.float64) - 8)


def _q4_1(block: Bytes) -> Values:
    scale = _halves(block[:, :4])
    return np.asarray(scale[:, :1] * _planes(block[:, 4:], 4, 16) + scale[:, 1:])


def _q5_0(block: Bytes) -> Values:
    codes = _planes(block[:, 6:], 4, 16) | (_fifths(block[:, 2:6]) << 4)
    return np.asarray(_halves(block[:, :2]) * (codes.astype(np.float64) - 16))


def _q5_1(block: Bytes) -> Values:
    scale, codes = _halves(block[:, :4]), _planes(block[:, 8:], 4, 16) | (_fifths(block[:, 4:8]) << 4)
    return np.asarray(scale[:, :1] * codes + scale[:, 1:])


def _six_bits(packed: Bytes) -> tuple[Bytes, Bytes]:
    """8 scales and 8 mins of 6 bits from 12 bytes, as Q4_K and Q5_K pack them."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = np.hstack([first & 63, (third & 15) | ((first >> 6) << 4)])
    return scales, np.hstack([second & 63, (third >> 4) | ((second >> 6) << 4)])


def _of_mins(block: Bytes, codes: Bytes) -> Values:
    """d scale q - dmin min, of eight parts of 32."""
    scale, (scales, mins) = _halves(block[:, :4]), _six_bits(block[:, 4:16])
    parts = codes.reshape(len(codes), 8, 32).astype(np.float64)
    found = parts * (scale[:, :1] * scales)[:, :, None] - (scale[:, 1:] * mins)[:, :, None]
    return np.asarray(found.reshape(len(codes), 256))


def _q4_k(block: Bytes) -> Values:
    return _of_mins(block, _planes(block[:, 16:], 4, 32))


def _q5_k(block: Bytes) -> Values:
    return _of_mins(block, _planes(block[:, 48:], 4, 32) | (_planes(block[:, 16:48], 1, 32) << 4))


def _q6_k(block: Bytes) -> Values:
    codes = _planes(block[:, :128], 4, 64) | (_planes(block[:, 128:192], 2, 32) << 4)
    scale = _halves(block[:, 208:]) * _signed(block[:, 192:208])
    return np.asarray((codes.astype(np.float64) - 32) * np.repeat(scale, 16, axis=1))


def _q2_k(block: Bytes) -> Values:
    pairs, scale = block[:, :16], _halves(block[:, 80:])
    steps = np.repeat(scale[:, :1] * (pairs & 15), 16, axis=1)
    return np.asarray(_planes(block[:, 16:80], 2, 32) * steps - np.repeat(scale[:, 1:] * (pairs >> 4), 16, axis=1))


def _q3_k(block: Bytes) -> Values:
    high, packed = _planes(block[:, :32], 1, 32), block[:, 96:108]
    low = np.hstack([packed[:, :8] & 15, packed[:, :8] >> 4])
    scales = (low | (_planes(packed[:, 8:], 2, 4) << 4)).astype(np.float64) - 32
    codes = _planes(block[:, 32:96], 2, 32).astype(np.float64) - 4 * (1.0 - high)
    return np.asarray(codes * np.repeat(_halves(block[:, 108:]) * scales, 16, axis=1))


def _fours(codes: Bytes) -> Values:
    return values(FORMATS["float4_e2m1fn"])[codes]


def _mxfp4(block: Bytes) -> Values:
    return _fours(_planes(block[:, 1:], 4, 16)) * values(FORMATS["float8_e8m0fnu"])[block[:, :1]]


def _mx_interleaved(block: Bytes) -> Values:
    codes = np.stack([block[:, 1:] & 15, block[:, 1:] >> 4], axis=2).reshape(len(block), 32)
    return _fours(codes) * np.exp2(_signed(block[:, :1]))


#: by the name of the scheme
BLOCKS: dict[str, Callable[[Bytes], Values]] = {
    "gguf_q8_0": _q8_0, "gguf_q4_0": _q4_0, "gguf_q4_1": _q4_1, "gguf_q5_0": _q5_0, "gguf_q5_1": _q5_1,
    "gguf_q2_k": _q2_k, "gguf_q3_k": _q3_k, "gguf_q4_k": _q4_k, "gguf_q5_k": _q5_k, "gguf_q6_k": _q6_k,
    "gguf_mxfp4": _mxfp4, "mx_interleaved": _mx_interleaved,
}  # fmt: skip
