# SPDX-License-Identifier: Apache-2.0
"""The second derivation of what small checkpoints stand for: one weight at a time, from the bytes of the file."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction

from narrowgauge.suites.meta.second_derivation import decode
from narrowgauge.suites.meta.second_layouts import SECOND
from narrowgauge.suites.meta.small_bytes import Raw

Tensors = Mapping[str, Raw]
#: the tensors, the module's path, n, k -> the weight
Weight = Callable[[Tensors, str, int, int], Fraction]

FORMATS = {
    "F8_E4M3": ("float8_e4m3fn", 1), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F32": ("float32", 4),
    "I8": ("int8", 1),
}  # fmt: skip


def element(raw: Raw, at: int) -> Fraction:
    """The number of that index, counted over all axes; U8 as an E8M0 exponent."""
    if raw.dtype == "U8":
        return Fraction(2) ** (raw.data[at] - 127)
    if raw.dtype in ("I32", "I64"):
        form, width = ("<i", 4) if raw.dtype == "I32" else ("<q", 8)
        return Fraction(struct.unpack_from(form, raw.data, at * width)[0])
    format, width = FORMATS[raw.dtype]
    number = decode(int.from_bytes(raw.data[at * width : (at + 1) * width], "little"), format)
    if number.kind != "finite":
        raise AssertionError(f"{raw.dtype} at {at} is {number.kind}")
    return -number.magnitude if number.negative else number.magnitude


def packed(raw: Raw, layout: str, row: int, column: int, rows: int, columns: int) -> int:
    """The four bits of a code, by the second derivation of layouts."""
    found = 0
    for i in range(4):
        byte, bit = SECOND[layout][0](row, column, i, rows, columns)
        found |= (raw.data[byte] >> bit & 1) << i
    return found


def e2m1(code: int) -> Fraction:
    number = decode(code, "float4_e2m1fn")
    return -number.magnitude if number.negative else number.magnitude


def signed(nibble: int) -> int:
    return nibble - 16 if nibble > 7 else nibble


def _across(raw: Raw) -> int:
    return raw.shape[-1]


def by_scale(suffix: str, rows: int, columns: int, codes_in: str = "weight") -> Weight:
    """A code of one byte times the scale of its block; 0: the block is as long as the weight."""

    def weight(t: Tensors, p: str, n: int, k: int) -> Fraction:
        codes = t[f"{p}.{codes_in}"]
        height, width = codes.shape
        i, j = n // (rows or height), k // (columns or width)
        return element(codes, n * width + k) * element(
            t[f"{p}.{suffix}"], i * math.ceil(width / (columns or width)) + j
        )

    return weight


def four_bit_floats(name: str, group: int, second: str = "", divides: bool = False) -> Weight:
    def weight(t: Tensors, p: str, n: int, k: int) -> Fraction:
        codes = t[f"{p}.{name}"]
        rows, columns = codes.shape[0], 2 * codes.shape[1]
        value = e2m1(packed(codes, "nibbles_low_first", n, k, rows, columns))
        value *= element(t[f"{p}.weight_scale"], n * (columns // group) + k // group)
        last = element(t[f"{p}.{second}"], 0) if second else Fraction(1)
        return value / last if divides else value * last

    return weight


def old_mx(t: Tensors, p: str, n: int, k: int) -> Fraction:
    raw = t[f"{p}.weight"]
    at = n * raw.shape[1] + k // 32 * 17
    byte = raw.data[at + 1 + k % 32 // 2]
    exponent = raw.data[at] - 256 if raw.data[at] > 127 else raw.data[at]
    return e2m1(byte >> 4 if k % 2 else byte & 15) * Fraction(2) ** exponent


def ct_int4(t: Tensors, p: str, n: int, k: int) -> Fraction:
    rows, columns = (int(element(t[f"{p}.weight_shape"], i)) for i in (0, 1))
    groups = columns // 128
    group = int(element(t[f"{p}.weight_g_idx"], k)) if f"{p}.weight_g_idx" in t else k // 128
    zero = 8
    if f"{p}.weight_zero_point" in t:
        zero = packed(t[f"{p}.weight_zero_point"], "compressed_tensors_zeros_4bit", n, group, rows, groups)
    code = packed(t[f"{p}.weight_packed"], "compressed_tensors_4bit", n, k, rows, columns)
    return (code - zero) * element(t[f"{p}.weight_scale"], n * groups + group)


def modelopt_int4(t: Tensors, p: str, n: int, k: int) -> Fraction:
    raw = t[f"{p}.weight"]
    byte = raw.data[n // 2 * _across(raw) + k]
    code = signed(byte >> 4 if n % 2 else byte & 15)
    return code * element(t[f"{p}.weight_scale"], n * (_across(raw) // 128) + k // 128)


def gptq(less: int) -> Weight:
    """``less``: what is missing in the stored zeros."""

    def weight(t: Tensors, p: str, n: int, k: int) -> Fraction:
        scales, codes = t[f"{p}.scales"], t[f"{p}.qweight"]
        groups, rows = scales.shape
        group = int(element(t[f"{p}.g_idx"], k))
        zero = packed(t[f"{p}.qzeros"], "gptq_zeros_4bit", group, n, groups, rows) + less
        return (packed(codes, "gptq_4bit", k, n, 8 * codes.shape[0], rows) - zero) * element(scales, group * rows + n)

    return weight


def awq(t: Tensors, p: str, n: int, k: int) -> Fraction:
    scales, codes = t[f"{p}.scales"], t[f"{p}.qweight"]
    groups, rows = scales.shape
    group = k // 128
    zero = packed(t[f"{p}.qzeros"], "awq_4bit", group, n, groups, rows)
    return (packed(codes, "awq_4bit", k, n, codes.shape[0], rows) - zero) * element(scales, group * rows + n)


FP8, CHANNEL = by_scale("weight_scale", 0, 0), by_scale("weight_scale", 1, 0)
BLOCK, MX8 = by_scale("weight_scale", 128, 128), by_scale("weight_scale", 1, 32)
DEEPSEEK = by_scale("weight_scale_inv", 128, 128)
MX4, CT_MX4 = four_bit_floats("weight", 32), four_bit_floats("weight_packed", 32)
MO_NV = four_bit_floats("weight", 16, "weight_scale_2")

#: every kind whose linear layers are quantized in files of safetensors
WEIGHTS: Mapping[str, Weight] = {
    "ct_FP8": FP8, "ct_FP8_KV": FP8, "ct_FP8_FUSED": FP8, "ct_FP8_MOE": FP8, "ct_FP8_DYNAMIC": CHANNEL,
    "ct_FP8_BLOCK": BLOCK, "ct_NVFP4": four_bit_floats("weight_packed", 16, "weight_global_scale", True),
    "ct_MXFP4": CT_MX4, "ct_MXFP8": MX8, "ct_W4A16": ct_int4, "ct_W4A16_ASYM": ct_int4, "ct_W4A16_ACTORDER": ct_int4,
    "ct_W8A8": CHANNEL, "int8_rows": by_scale("weight.scale", 1, 0, "weight.qweight"),
    "mo_FP8": FP8, "mo_FP8_alone": FP8, "mo_NVFP4": MO_NV, "mo_NVFP4_MOE": MO_NV,
    "mo_FP8_PB": BLOCK, "mo_MXFP8": MX8, "mo_MXFP4": MX4, "mo_W4A16_AWQ": modelopt_int4, "deepseek": DEEPSEEK,
    "deepseek_ue8m0": DEEPSEEK, "quark_fp8_kv": FP8, "quark_fp8_kv_custom": FP8, "quark_ptpc_fp8": CHANNEL,
    "quark_mxfp4": MX4, "quark_mx17": old_mx, "awq": awq, "gptq_v1": gptq(1), "gptq_v1_asym": gptq(1),
    "gptq_v2": gptq(0), "gptq_actorder": gptq(1),
}  # fmt: skip
