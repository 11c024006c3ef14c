# SPDX-License-Identifier: Apache-2.0
"""Bytes of small checkpoints: codes, scales and files, written straight; nothing is shared with reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

#: bytes of an element, by safetensors' word, and safetensors' own order of tensors in a file: wide dtypes first
WIDTHS = {
    "I64": 8,
    "F32": 4,
    "I32": 4,
    "BF16": 2,
    "F16": 2,
    "F8_E4M3": 1,
    "F8_E4M3FNUZ": 1,
    "F8_E8M0": 1,
    "I8": 1,
    "U8": 1,
}


@dataclass(frozen=True)
class Raw:
    """A tensor as it will lie in the file. ``shape`` is of elements of ``dtype``."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def array(self) -> npt.NDArray[np.generic]:
        """The elements; bfloat16 and the 8-bit floats as their codes."""
        kind = {"I64": "<i8", "F32": "<f4", "I32": "<i4", "BF16": "<u2", "F16": "<f2", "I8": "i1"}.get(self.dtype, "u1")
        return np.frombuffer(self.data, kind).reshape(self.shape)


def _table(exponent_bits: int, mantissa_bits: int, bias: int, nan: Sequence[int]) -> list[float]:
    """The value of each code, sign first, of a format without infinities."""
    values = []
    for code in range(1 << (1 + exponent_bits + mantissa_bits)):
        sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
        exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
        fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
        magnitude = (1 + fraction) * 2.0 ** (exponent - bias) if exponent else fraction * 2.0 ** (1 - bias)
        values.append(float("nan") if code in nan else sign * magnitude)
    return values


E4M3 = _table(4, 3, 7, (0x7F, 0xFF))  #: OCP
FNUZ = _table(4, 3, 8, (0x80,))
E5M2 = _table(5, 2, 15, (0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF))  #: its infinities are none of our codes
E2M1 = _table(2, 1, 1, ())
INT4 = [float(q) for q in range(-8, 8)]  #: by code + 8
UINT4 = [float(q) for q in range(16)]
INT8 = [float(q - 256 if q > 127 else q) for q in range(256)]


def nearest(values: Array, table: Sequence[float]) -> npt.NDArray[np.int64]:
    """The code of ``table`` nearest to each value; what lies outside takes the outermost. Signs of zeros are kept."""
    order = sorted((v, code) for code, v in enumerate(table) if v == v and not (v == 0 and np.signbit(v)))
    levels = np.array([v for v, _ in order])
    codes = np.array([code for _, code in order])
    found = codes[np.searchsorted((levels[1:] + levels[:-1]) / 2, values)]
    below = [code for code, v in enumerate(table) if v == 0 and np.signbit(v)]
    return np.where((values < 0) & (found == 0), below[0], found) if below else found


def look_up(codes: npt.NDArray[np.generic], table: Sequence[float]) -> Array:
    return np.array(table)[codes.astype(np.int64)]


# ---------------- tensors


def f32(x: npt.ArrayLike) -> Raw:
    a = np.asarray(x, "<f4")
    return Raw("F32", a.shape, a.tobytes())


def f16(x: npt.ArrayLike) -> Raw:
    a = np.asarray(x, "<f2")
    return Raw("F16", a.shape, a.tobytes())


def bf16(x: npt.ArrayLike) -> Raw:
    """Rounded to nearest, ties to even."""
    bits = np.asarray(x, "<f4")
    codes = bits.view("<u4") if bits.shape else np.frombuffer(bits.tobytes(), "<u4").reshape(())
    halved = (codes.astype(np.uint64) + 0x7FFF + (codes >> 16 & 1)) >> 16
    return Raw("BF16", bits.shape, halved.astype("<u2").tobytes())


def codes_of(dtype: str, x: npt.ArrayLike) -> Raw:
    """Codes or whole numbers that are bytes (F8_E4M3, U8, I8) or words (I32, I64) already."""
    a = np.asarray(x)
    return Raw(dtype, a.shape, a.astype({"I32": "<i4", "I64": "<i8"}.get(dtype, "u1")).tobytes())


def e8m0(x: npt.ArrayLike) -> Raw:
    """Powers of two, exactly."""
    return codes_of("F8_E8M0", np.log2(np.asarray(x)) + 127)


def value_of(raw: Raw) -> Array:
    """What the elements of a plain tensor, or of scales, stand for. U8 are E8M0 codes here."""
    a = raw.array()
    if raw.dtype == "BF16":
        return (a.astype("<u4") << 16).view("<f4").astype(np.float64) if a.shape else value_of(flat(raw)).reshape(())
    if raw.dtype == "F8_E4M3":
        return look_up(a, E4M3)
    if raw.dtype in ("U8", "F8_E8M0"):
        return np.array([2.0 ** (c - 127) if c < 255 else np.nan for c in range(256)])[a.astype(np.int64)]
    return a.astype(np.float64)


def flat(raw: Raw) -> Raw:
    return Raw(raw.dtype, (int(np.prod(raw.shape, dtype=int)),), raw.data)


def reshaped(raw: Raw, shape: tuple[int, ...]) -> Raw:
    return Raw(raw.dtype, shape, raw.data)


# ---------------- packing


def pairs(codes: npt.NDArray[np.int64], axis: int = -1) -> Bytes:
    """Two nibbles in a byte along an axis, the first in the low one."""
    a = np.moveaxis(codes & 15, axis, -1)
    return np.moveaxis((a[..., 0::2] | a[..., 1::2] << 4).astype(np.uint8), -1, axis)


def words(nibbles: npt.NDArray[np.int64], axis: int, order: Sequence[int] = range(8)) -> npt.NDArray[np.int32]:
    """Eight nibbles in a 32-bit word along an axis: place i from the low end holds number ``order[i]`` of the eight."""
    a = np.moveaxis(nibbles & 15, axis, -1)
    found = np.zeros((*a.shape[:-1], a.shape[-1] // 8), np.uint32)
    for place, which in enumerate(order):
        found |= a[..., which::8].astype(np.uint32) << np.uint32(4 * place)
    return np.ascontiguousarray(np.moveaxis(found, -1, axis)).view(np.int32)


def nibbles_of(words: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.int64]:
    """The eight nibbles of each word along an axis, from the low end."""
    a = np.moveaxis(words.astype(np.int64), axis, -1)
    found = np.stack([a >> 4 * place & 15 for place in range(8)], axis=-1)
    return np.moveaxis(found.reshape(*a.shape[:-1], -1), -1, axis)


# ---------------- files


def write_safetensors(path: Path, tensors: Mapping[str, Raw], metadata: Mapping[str, str] | None = None) -> None:
    """Header, padding and data, tensors in the order that safetensors itself gives them: wide dtypes first, by name."""
    ranks = list(WIDTHS)
    names = sorted(tensors, key=lambda name: (ranks.index(tensors[name].dtype), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in names:
        raw = tensors[name]
        size = WIDTHS[raw.dtype] * int(np.prod(raw.shape, dtype=int))
        if size != len(raw.data):
            raise AssertionError(f"{name}: {raw.dtype} {raw.shape} is {size} bytes, and {len(raw.data)} are there")
        header[name] = {"dtype": raw.dtype, "shape": list(raw.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(tensors[name].data)
