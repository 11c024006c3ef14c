# SPDX-License-Identifier: Apache-2.0
"""The second derivation of conversions of four bits: NVFP4's globals, AWQ, GPTQ, compressed-tensors, MX and gpt-oss.

Places in memory are second_layouts'. Words are int32, "qweight" and "qzeros" as checkpoints name them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_blocks import Patterns
from narrowgauge.suites.meta.second_codes import (
    E2M1,
    OCP,
    Array,
    bfloat16_bits,
    bits32,
    f32,
    nearest,
    nibbles,
    of_bfloat16,
    packed,
    values,
)
from narrowgauge.suites.meta.second_layouts import AWQ, SECOND, up

_ONE = np.float32(1)

# ---------------- NVFP4


def reciprocal(given: Patterns) -> Patterns:
    """Between the scale that is divided by and the one that is multiplied by: fl(1/g), the rest as it is."""
    return {**given, "global_scale": bits32(_ONE / f32(given["global_scale"]))}


def _one(given: Patterns, scale: np.float32) -> Patterns:
    kept = {name: given[name] for name in ("codes", "scale")}
    return {**kept, "global_scale": bits32(np.reshape(scale, (1, 1)))}


def largest_divisor(given: Patterns) -> Patterns:
    """vLLM compressed_tensors_w4a4_nvfp4.py:113-115: max of what is divided by, and 1 over it; block scales stay."""
    return _one(given, _ONE / f32(given["global_scale"]).max())


def largest_multiplier(given: Patterns) -> Patterns:
    """vLLM modelopt.py:2092-2094: max of what is multiplied by; no block scale moves."""
    return _one(given, f32(given["global_scale"]).max())


def one_global(given: Patterns) -> Patterns:
    """The largest multiplier for all; block scales and codes are rounded once, from exact quotients.

    Codes under a block scale of 0 or NaN stay; where the scale becomes 0, they are zeros of their signs.

    A quotient of whole numbers a/b that is no tie is at least 1/(2b) from it, in units of the tie's last place; here b
    is below 2**30, so float64's 2**-53 cannot take it across.
    """
    own = np.repeat(f32(given["global_scale"]).ravel(), given["widths"].ravel()).astype(np.float64)[:, None]
    common = own.max()
    old = values(given["scale"], OCP)
    scale = nearest(old * own / common, OCP)
    new = values(scale, OCP)
    codes = nibbles(given["codes"])
    v = values(codes, E2M1) * np.repeat(old * own, 16, axis=1)
    made = nearest(v / np.repeat(new * common, 16, axis=1), E2M1)
    gone, kept = (np.repeat(x, 16, axis=1) for x in (new == 0, (old == 0) | np.isnan(old)))
    made = np.where(kept, codes, np.where(gone, codes & 8, made))
    return {"codes": packed(made), "scale": scale, "global_scale": bits32(np.float32(common).reshape(1, 1))}


# ---------------- four bits in words


def unpacked(stored: Array, order: tuple[int, ...] = tuple(range(8))) -> npt.NDArray[np.int64]:
    """[R, C] words -> [R, 8 C] codes; place p of a word holds the code number order[p] of its eight."""
    wide = stored.astype(np.int64) & 0xFFFFFFFF
    codes = np.empty((*wide.shape, 8), np.int64)
    for place, number in enumerate(order):
        codes[..., number] = wide >> 4 * place & 15
    return codes.reshape(len(wide), -1)


def words(codes: Array) -> npt.NDArray[np.int32]:
    """[R, C] codes -> [R, ceil(C/8)] words of eight of a row, the first in the low bits, 0 after the last."""
    rows, columns = codes.shape
    full = np.zeros((rows, up(columns, 8)), np.int64)
    full[:, :columns] = codes
    return np.asarray((full.reshape(rows, -1, 8) << np.arange(0, 32, 4)).sum(axis=2)).astype(np.uint32).view(np.int32)


def words_down(codes: Array) -> npt.NDArray[np.int32]:
    """[R, C] codes -> [R/8, C] words of eight of a column."""
    return np.ascontiguousarray(words(codes.T).T)


def _zeros_moved(by: int, zeros: Array) -> Patterns:
    """[G, N] zero points, each moved by itself; how many of a group go round the end."""
    moved = zeros + by
    return {"qzeros": words(moved % 16), "wrapped": ((moved < 0) | (moved > 15)).sum(axis=1, dtype=np.int32)[:, None]}


def awq_to_gptq(by: int, given: Patterns) -> Patterns:
    """AWQ [K, N/8] -> GPTQ [K/8, N]; under v1 zeros lose one, and 0 goes round to 15."""
    codes = unpacked(given["qweight"], AWQ)
    k = len(codes)
    zeros = _zeros_moved(by, unpacked(given["qzeros"], AWQ))
    groups = np.arange(k, dtype=np.int32) // (k // len(given["qzeros"]))
    return {
        "qweight": words_down(codes),
        **zeros,
        "scales": given["scales"],
        "g_idx": groups[:, None].astype(np.int32),
    }


def awq_to_standard(given: Patterns) -> Patterns:
    """vLLM auto_awq.py:92-160: as GPTQ packs weights; zeros as they are, packed along N."""
    codes, zeros = (unpacked(given[name], AWQ) for name in ("qweight", "qzeros"))
    return {"qweight": words_down(codes), "qzeros": words_down(zeros.T)}


def gptq_zeros(by: int, given: Patterns) -> Patterns:
    """v1 stores one less than v2."""
    return _zeros_moved(by, unpacked(given["qzeros"]))


def to_pack_quantized(given: Patterns) -> Patterns:
    """int8 from -8 to 7 -> offset by 8, dense, low bits first, padded with 0 (pack_quantized/helpers.py:54-95)."""
    codes = given["codes"].view(np.int8).astype(np.int64) + 8
    return {"codes": words(codes)}


def from_pack_quantized(given: Patterns) -> Patterns:
    """Back, of the shape that is stored beside."""
    codes = unpacked(given["codes"])[:, : int(given["shape"].ravel()[1])] - 8
    return {"codes": codes.astype(np.int8).view(np.uint8)}


# ---------------- MX


def gpt_oss(nan: bool, given: Patterns) -> Patterns:
    """[E, R, K/32, 16] and [E, R, K/32] -> bfloat16 [E, K, R]; rows are gate and up by turns.

    A scale of 255 is NaN; to transformers (integrations/mxfp4.py:201-290, torch.ldexp) it is 2**128, exactly, so that
    0.5 becomes 2**127, and all that is larger infinity.
    """
    blocks, scales = given["blocks"], given["scales"]
    factor = np.where(nan & (scales == 255), np.nan, np.exp2(scales.astype(np.float64) - 127))
    v = values(nibbles(blocks), E2M1) * factor[..., None]
    made = bfloat16_bits(v.astype(np.float32).reshape(*blocks.shape[:2], -1)).transpose(0, 2, 1)
    return {"values": made, "gate": made[..., 0::2], "up": made[..., 1::2]}


@cache
def swizzled_places(layout: str, rows: int, columns: int) -> Array:
    """The byte of each scale."""
    place, _ = SECOND[layout]
    return np.array([[place(r, c, 0, rows, columns)[0] for c in range(columns)] for r in range(rows)])


def swizzle(layout: str, given: Patterns) -> Patterns:
    """[M, K] -> [1, bytes]; what is padded is 0."""
    scale = given["scale"]
    image = np.zeros(SECOND[layout][1](*scale.shape), np.uint8)
    image[swizzled_places(layout, *scale.shape)] = scale
    return {"scale": image[None]}


def unswizzle(layout: str, given: Patterns) -> Patterns:
    rows, columns = given["shape"].ravel().tolist()
    return {"scale": given["scale"].ravel()[swizzled_places(layout, rows, columns)]}


def scale_to_e8m0(given: Patterns) -> Patterns:
    """compressed-tensors 0.20.1 mx_utils.py: 127 + floor(log2), rounded in the scale's format; what is no number as an
    int32 has only high bits on a CPU, and the low byte of 127 is left."""
    narrow = given["scale"].dtype == np.uint16
    x = of_bfloat16(given["scale"]) if narrow else f32(given["scale"])
    log = np.log2(x.astype(np.float64)).astype(np.float32)
    log = np.floor(of_bfloat16(bfloat16_bits(log)) if narrow else log)
    whole = np.where(np.isfinite(log), log, 0).astype(np.int64)
    return {"scale": (whole + 127 & 255).astype(np.uint8)}


def e8m0_to_scale(given: Patterns) -> Patterns:
    """bfloat16 2**(b - 127), and infinity for 255."""
    return {"scale": bfloat16_bits(np.exp2(given["scale"].astype(np.float64) - 127).astype(np.float32))}


def quark_mx(given: Patterns) -> Patterns:
    """amd-quark 0.13 utils/pack.py:462-510: 17 bytes of 32 numbers, the first a logarithm with a sign."""
    rows = given["codes"].reshape(len(given["codes"]), -1, 17)
    return {
        "codes": np.ascontiguousarray(rows[..., 1:]).reshape(len(rows), -1),
        "scale": (rows[..., 0].view(np.int8).astype(np.int16) + 127 & 255).astype(np.uint8),
    }


CONVERSIONS: Mapping[str, Callable[[Patterns], Patterns]] = {
    "nvfp4_to_divisor": reciprocal,
    "nvfp4_to_multiplier": reciprocal,
    "vllm.nvfp4_largest": largest_divisor,
    "vllm.modelopt_nvfp4_largest": largest_multiplier,
    "nvfp4_one_global": one_global,
    "awq_to_gptq": partial(awq_to_gptq, -1),
    "awq_to_gptq_v2": partial(awq_to_gptq, 0),
    "vllm.awq_to_standard": awq_to_standard,
    "gptq_v1_to_v2": partial(gptq_zeros, 1),
    "gptq_v2_to_v1": partial(gptq_zeros, -1),
    "compressed_tensors_int4": to_pack_quantized,
    "compressed_tensors_int4_back": from_pack_quantized,
    "gpt_oss": partial(gpt_oss, True),
    "transformers.gpt_oss": partial(gpt_oss, False),
    "swizzle_128x4": partial(swizzle, "scales_128x4"),
    "unswizzle_128x4": partial(unswizzle, "scales_128x4"),
    "compressed_tensors.scale_to_e8m0": scale_to_e8m0,
    "compressed_tensors.e8m0_to_scale": e8m0_to_scale,
    "quark_mx_to_mxfp4": quark_mx,
}
