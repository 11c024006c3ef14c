# SPDX-License-Identifier: Apache-2.0
"""The second derivation of conversions between formats of fp8, of fused shards and of 16 bits; all by their names.

From the definitions and the engines' sources (vLLM 0.33.0, SGLang 0.5.23, by file and line); it shares nothing with
reference/. Each takes and gives raw patterns by name: "codes" [rows, columns], "scale" float32 patterns as uint32
[rows of blocks, columns of blocks], "blocks" int32 [1, 2] the rows and columns of a block where the scale's shape does
not say, "widths" int32 [shards, 1]. Arithmetic is NumPy's in float32, each step rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from narrowgauge.suites.meta import second_blocks, second_fours
from narrowgauge.suites.meta.second_blocks import Patterns, dequantized, quantized
from narrowgauge.suites.meta.second_codes import (
    F32,
    FNUZ,
    OCP,
    Array,
    bfloat16_bits,
    bits32,
    f32,
    in_float16,
    nearest,
    of_bfloat16,
    values,
)

Conversion = Callable[[Patterns], Patterns]

# ---------------- OCP and FNUZ


def _to_fnuz(codes: Array, keeps_nan: bool) -> Array:
    """-0 becomes 0. OCP's NaN, 0x7F and 0xFF, stay NaN; or their bytes stay, which are +-240 there."""
    codes = np.where(codes == 0x80, 0, codes)
    return (np.where(codes & 0x7F == 0x7F, 0x80, codes) if keeps_nan else codes).astype(np.uint8)


def _scales(given: Patterns, factor: float) -> Patterns:
    return {name: bits32(f32(given[name]) * np.float32(factor)) for name in ("scale", "input_scale") if name in given}


def ocp_to_fnuz(keeps_nan: bool, given: Patterns) -> Patterns:
    """The same byte is half as much. vLLM: w8a8_utils.py:109-130."""
    return {"codes": _to_fnuz(given["codes"], keeps_nan), **_scales(given, 2)}


def fnuz_to_ocp(given: Patterns) -> Patterns:
    """The same byte is twice as much; +-240 would have to be 480, and 448 is the nearest."""
    codes = given["codes"]
    codes = np.where(codes == 0x80, 0x7F, np.where(codes & 0x7F == 0x7F, codes - 1, codes))
    return {"codes": codes.astype(np.uint8), **_scales(given, 0.5)}


def ue8m0_to_fnuz(keeps_nan: bool, given: Patterns) -> Patterns:
    """A byte more doubles. The double of 254 is not there: NaN; vLLM keeps 254, of NaN too (fp8_utils.py:1502-1523)."""
    scale = np.minimum(given["scale"].astype(np.int16) + 1, 255 if keeps_nan else 254)
    return {"codes": _to_fnuz(given["codes"], keeps_nan), "scale": scale.astype(np.uint8)}


def requantized(source: str, format: str, given: Patterns) -> Patterns:
    """By values, under one new scale of the tensor."""
    v = dequantized(given, source)
    return quantized(v, format, v.shape)


# ---------------- fused shards


def _shards(given: Patterns) -> list[tuple[int, slice]]:
    """Of each shard that has rows, its number and its rows."""
    ends = np.cumsum(given["widths"].ravel()).tolist()
    starts = [0, *ends]
    return [(i, slice(start, end)) for i, (start, end) in enumerate(zip(starts, ends, strict=False)) if end > start]


def _cast_by_kernel(v: F32, scale: F32, format: str) -> Array:
    """static_scaled_fp8_quant: times the reciprocal of the scale, held to 448, or to 224 in FNUZ (facts A.1); NaN is
    the largest, as fmin drops it."""
    y, top = v * (np.float32(1) / scale), np.float32(448 if format == OCP else 224)
    return nearest(np.fmax(np.fmin(y, top), -top), format)


def requantize_to_largest(format: str, given: Patterns) -> Patterns:
    """In float32, by a division, and NaN stays NaN."""
    scale, codes = f32(given["scale"]).ravel(), given["codes"].copy()
    largest = scale.max()
    for i, rows in _shards(given):
        v = values(codes[rows], format).astype(np.float32) * scale[i]
        codes[rows] = nearest(v / largest, format)
    return {"codes": codes, "scale": bits32(largest.reshape(1, 1))}


def through_float16(on_cpu: bool, format: str, given: Patterns) -> Patterns:
    """vLLM w8a8_utils.py:44-106, SGLang quantization/utils.py:128-189.

    Nothing is done where the last shard's scale is not above -448. On a GPU torch rounds a scale of no dimensions to
    the tensor's float16 before it multiplies (aten/native/cuda/Loops.cuh); on a CPU it stays float32.
    """
    scale, codes = f32(given["scale"]).ravel(), given["codes"].copy()
    largest = scale.max()  # of a NaN, NaN
    if scale[-1] > -448:
        for i, rows in _shards(given):
            factor = scale[i] if on_cpu else in_float16(scale[i])
            codes[rows] = _cast_by_kernel(
                in_float16(values(codes[rows], format).astype(np.float32) * factor), largest, format
            )
    return {"codes": codes, "scale": bits32(largest.reshape(1, 1))}


# ---------------- to 16 bits


def _first(where: Array) -> Array:
    """[rows, columns] -> [rows, 1]: the first column that holds, or -1."""
    return np.where(where.any(axis=1), where.argmax(axis=1), -1).astype(np.int32)[:, None]


def counted(format: str, given: Patterns) -> Patterns:
    """To float16 or bfloat16; of each row how many numbers became infinite, and how many zero, and the first of each.

    Codes of 16 bits are of the other of the two.
    """
    if given["codes"].dtype == np.uint32:
        x = f32(given["codes"])
    elif format == "float16":
        x = of_bfloat16(given["codes"])
    else:
        x = given["codes"].view(np.float16).astype(np.float32)
    if format == "float16":
        codes = np.where(np.isnan(x), np.uint16(0x7E00), x.astype(np.float16).view(np.uint16))
        inf = codes & 0x7FFF == 0x7C00
    else:
        codes = bfloat16_bits(x)
        inf = codes & 0x7FFF == 0x7F80
    over, under = np.isfinite(x) & inf, (x != 0) & (codes & 0x7FFF == 0)
    return {
        "codes": codes,
        "overflowed": over.sum(axis=1, dtype=np.int32)[:, None],
        "flushed": under.sum(axis=1, dtype=np.int32)[:, None],
        "first_overflowed": _first(over),
        "first_flushed": _first(under),
    }


def quiet(conversion: Conversion) -> Conversion:
    """Overflow and NaN are what is asked for."""

    def converted(given: Patterns) -> Patterns:
        with np.errstate(all="ignore"):
            return conversion(given)

    return converted


_ALL: Mapping[str, Conversion] = {
    "ocp_to_fnuz": partial(ocp_to_fnuz, True),
    "vllm.ocp_to_fnuz": partial(ocp_to_fnuz, False),
    "fnuz_to_ocp": fnuz_to_ocp,
    "ue8m0_to_fnuz": partial(ue8m0_to_fnuz, True),
    "vllm.ue8m0_to_fnuz": partial(ue8m0_to_fnuz, False),
    "ocp_to_fnuz_requantized": partial(requantized, OCP, FNUZ),
    "fnuz_to_ocp_requantized": partial(requantized, FNUZ, OCP),
    "requantize_to_largest": partial(requantize_to_largest, OCP),
    "vllm.requantize_to_largest": partial(through_float16, False, OCP),
    "vllm.requantize_to_largest_cpu": partial(through_float16, True, OCP),
    "sglang.requantize_to_largest": partial(through_float16, False, OCP),
    "requantize_to_largest of FNUZ": partial(requantize_to_largest, FNUZ),
    "vllm.requantize_to_largest of FNUZ": partial(through_float16, False, FNUZ),
    "vllm.requantize_to_largest_cpu of FNUZ": partial(through_float16, True, FNUZ),
    "float16_counted": partial(counted, "float16"),
    "bfloat16_counted": partial(counted, "bfloat16"),
    **second_blocks.CONVERSIONS,
    **second_fours.CONVERSIONS,
}
#: every conversion by its name
CONVERSIONS: Mapping[str, Conversion] = {name: quiet(conversion) for name, conversion in _ALL.items()}
