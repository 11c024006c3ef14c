# SPDX-License-Identifier: Apache-2.0
"""The second derivation of conversions between blocks, channels and tensors of fp8, and from fp8 to MXFP4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from narrowgauge.suites.meta.second_codes import (
    E2M1,
    F32,
    OCP,
    Array,
    bits32,
    f32,
    in_bfloat16,
    nearest,
    packed,
    values,
)

#: patterns by name
Patterns = Mapping[str, Array]
_LEAST, _448 = np.float32(1e-4), np.float32(448)


# ---------------- blocks


def expanded(grid: Array, shape: tuple[int, int], block: tuple[int, int]) -> Array:
    """What belongs to each element of a matrix: the block of row r is r // rows of a block, to the ragged end."""
    rows, columns = (np.arange(n) // b for n, b in zip(shape, block, strict=True))
    return grid[np.ix_(rows, columns)]


def block_of(given: Patterns) -> tuple[int, int]:
    """Said, or what the scale's shape says: one of the tensor, or one of each row."""
    if "blocks" in given:
        rows, columns = given["blocks"].ravel().tolist()
        return rows, columns
    (n, k), grid = given["codes"].shape, given["scale"].shape
    if grid not in ((1, 1), (n, 1)):
        raise ValueError(f"scales of shape {grid} need the shape of a block")
    return (n if grid == (1, 1) else 1, k)


def dequantized(given: Patterns, format: str) -> F32:
    """fl(value of the code * scale of its block), float32."""
    codes = given["codes"]
    scale = expanded(f32(given["scale"]), codes.shape, block_of(given))
    return np.asarray(values(codes, format).astype(np.float32) * scale, np.float32)


def amax(v: F32, block: tuple[int, int], keeps_nan: bool) -> F32:
    """The largest magnitude of each block, float32; NaN wins, or is passed over."""
    size = np.abs(v)
    if not keeps_nan:
        size = np.where(np.isnan(size), np.float32(0), size)
    down = np.maximum.reduceat(size, range(0, v.shape[0], block[0]), axis=0)
    return np.asarray(np.maximum.reduceat(down, range(0, v.shape[1], block[1]), axis=1))


def quantized(v: F32, format: str, block: tuple[int, int]) -> Patterns:
    """Of blocks: scale amax/largest, 1 where all is zero; codes nearest to v/scale."""
    largest = np.float32(448 if format == OCP else 240)
    found = amax(v, block, keeps_nan=False)
    scale = np.where(found == 0, np.float32(1), found / largest)
    return {"codes": nearest(v / expanded(scale, v.shape, block), format), "scale": bits32(scale)}


def regrouped(block: tuple[int, int] | None, given: Patterns) -> Patterns:
    """From any blocks to others, or to rows."""
    v = dequantized(given, OCP)
    return quantized(v, OCP, block or (1, v.shape[1]))


# ---------------- UE8M0


def _ceil_of_rounded_log2(x: F32) -> F32:
    """vllm/utils/deep_gemm.py:1009-1010: the logarithm is rounded to float32 before it goes up."""
    log = np.log2(x.astype(np.float64)).astype(np.float32)
    return np.asarray(np.exp2(np.ceil(log)), np.float32)


def _ceil_by_bits(x: F32) -> F32:
    """SGLang fp8_utils.py:2411-2417: the exponent, one more where there is a mantissa, from 1 to 254."""
    bits = np.abs(x).view(np.uint32).astype(np.int64)
    field = np.clip((bits >> 23) + (bits & 0x7FFFFF != 0), 1, 254)
    return f32(field.astype(np.uint32) << 23)


def to_ue8m0(up: Callable[[F32], F32], middle: Callable[[F32], F32], given: Patterns) -> Patterns:
    """vLLM fp8_utils.py:1136-1154 and deep_gemm.py:1027-1046; SGLang fp8_utils.py:2184-2215 and 2394-2408."""
    v, block = middle(dequantized(given, OCP)), block_of(given)
    found = amax(v, block, keeps_nan=True)
    scale = up(np.asarray(np.where(found < _LEAST, _LEAST, found) / _448))
    factor = np.float32(1) / scale
    return {"codes": nearest(v * expanded(factor, v.shape, block), OCP), "scale": bits32(scale)}


# ---------------- SGLang, to one scale


def by_kernel(given: Patterns) -> Patterns:
    """On CUDA: amax/448 without a least; times its reciprocal; NaN is 448, and so is 0 times infinity."""
    v = dequantized(given, OCP)
    scale = amax(v, v.shape, keeps_nan=False) / _448
    y = v * (np.float32(1) / scale)
    return {"codes": nearest(np.where(np.isnan(y), _448, y), OCP), "scale": bits32(scale)}


def by_torch(given: Patterns) -> Patterns:
    """input_to_float8 (fp8_utils.py:1972-1998): times 448/amax, whose reciprocal is the scale.

    torch divides a number by a tensor as the number times the tensor's reciprocal (Tensor.__rtruediv__).
    """
    v = dequantized(given, OCP)
    found = amax(v, v.shape, keeps_nan=True)
    factor = _448 * (np.float32(1) / np.where(found < np.float32(1e-12), np.float32(1e-12), found))
    return {"codes": nearest(v * factor, OCP), "scale": bits32(np.float32(1) / factor)}


# ---------------- MXFP4


def _in_32(v: F32) -> tuple[F32, F32]:
    """[N, K] -> [N, K/32, 32] and the largest magnitude of each, [N, K/32, 1]."""
    blocks = v.reshape(v.shape[0], -1, 32)
    return blocks, np.abs(blocks).max(axis=2, keepdims=True)


def _mxfp4(codes: Array, exponent: Array) -> Patterns:
    return {
        "codes": packed(codes.reshape(codes.shape[0], -1).astype(np.uint8)),
        "scale": (exponent[..., 0] + 127).astype(np.uint8),
    }


def counting(given: Patterns) -> Patterns:
    """SGLang mxfp4_tensor.py:29-69, all in bfloat16: the logarithm of amax/6 goes up; ties go to zero; zero is 8."""
    v, top = _in_32(in_bfloat16(dequantized(given, OCP)))
    log = in_bfloat16(np.log2(in_bfloat16(top / np.float32(6)).astype(np.float64)).astype(np.float32))
    exponent: F32 = np.ceil(np.maximum(log, np.float32(-127)))
    y = in_bfloat16(np.asarray(v / np.exp2(exponent), np.float32))
    bounds = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], np.float32)
    codes = (np.abs(y)[..., None] > bounds).sum(axis=-1) + np.where(y > 0, 0, 8)
    return _mxfp4(codes, exponent)


def even(given: Patterns) -> Patterns:
    """SGLang fp8_utils.py:2098-2133, in float32: amax is rounded at 1.75; ties to even; no zero has a sign."""
    v, top = _in_32(dequantized(given, OCP))
    bits = np.maximum(top, np.float32(2.0**-126)).view(np.uint32) + np.uint32(0x200000) >> 23
    field = bits.astype(np.int32)
    exponent = np.where(field == 255, 127, np.maximum(field - 129, -127))  # 255: an infinity, and held to 127
    codes = nearest(v / np.exp2(exponent.astype(np.float64)), E2M1)
    return _mxfp4(np.where((codes == 8) | np.isnan(v), 0, codes), exponent)


CONVERSIONS: Mapping[str, Callable[[Patterns], Patterns]] = {
    "block_to_channel": partial(regrouped, None),
    "channel_to_block": partial(regrouped, (128, 128)),
    "vllm.block_to_ue8m0": partial(to_ue8m0, _ceil_of_rounded_log2, lambda v: v),
    "sglang.block_to_ue8m0": partial(to_ue8m0, _ceil_by_bits, in_bfloat16),
    "sglang.block_to_tensor": by_kernel,
    "sglang.block_to_tensor_torch": by_torch,
    "sglang.channel_to_tensor": by_kernel,
    "sglang.channel_to_tensor_torch": by_torch,
    "sglang.block_to_mxfp4": counting,
    "sglang.block_to_mxfp4_rocm": even,
}
