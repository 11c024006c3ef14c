# SPDX-License-Identifier: Apache-2.0
"""One weight, quantized: the tensors that a tool writes for it, and what they stand for. Layouts: facts of the tools'
own files (compressed-tensors 0.20.1, ModelOpt 0.47.0, Quark 0.13) and of their sources where no file was at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.small_bytes import (
    E2M1,
    E4M3,
    INT4,
    INT8,
    UINT4,
    Array,
    Raw,
    bf16,
    codes_of,
    f16,
    f32,
    look_up,
    nearest,
    pairs,
    reshaped,
    value_of,
    words,
)

Store = Callable[[Array], Raw]
Codes = npt.NDArray[np.int64]
GROUP = 128
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class Quantized:
    """Tensors by suffix (``weight_scale``), and the weight [N, K] that they stand for, exact in float64.

    Of two scales that divide (compressed-tensors' NVFP4) it is the correctly rounded quotient.
    """

    tensors: Mapping[str, Raw]
    weight: Array


#: the weight [N, K], the largest magnitude of the weights that share its second scale
Scheme = Callable[[Array, float], Quantized]


def spread(scales: Array, shape: tuple[int, int], block: tuple[int, int]) -> Array:
    """For each weight its block's scale. ``scales`` [ceil(N/rows), ceil(K/columns)]."""
    whole = np.zeros(shape)
    rows, columns = block
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            whole[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] = scales[i, j]
    return whole


def amax(w: Array, block: tuple[int, int]) -> Array:
    rows, columns = block
    found = np.zeros((-(-w.shape[0] // rows), -(-w.shape[1] // columns)))
    for i in range(found.shape[0]):
        for j in range(found.shape[1]):
            found[i, j] = np.abs(w[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]).max()
    return found


Granularity = Literal["tensor", "channel", "block"]


def _block(w: Array, granularity: Granularity) -> tuple[int, int]:
    return {"tensor": w.shape, "channel": (1, w.shape[1]), "block": (128, 128)}[granularity]


def fp8(granularity: Granularity, store: Store, dims: int, scale: str = "weight_scale", power: bool = False) -> Scheme:
    """E4M3 by largest magnitude / 448, stored by ``store`` with ``dims`` axes; ``power``: rounded up to 2**e."""

    def quantize(w: Array, shared: float) -> Quantized:
        block = _block(w, granularity)
        ideal = amax(w, block) / 448
        stored = store(2.0 ** np.ceil(np.log2(ideal)) if power else ideal)
        each = spread(value_of(stored), w.shape, block)
        codes = nearest(w / each, E4M3)
        n, k = stored.shape
        shape = {0: (), 1: (n * k,), 2: (n, k), 4: (n, 1, k, 1)}[dims]
        tensors = {"weight": codes_of("F8_E4M3", codes), scale: reshaped(stored, shape)}
        return Quantized(tensors, look_up(codes, E4M3) * each)

    return quantize


def int8(w: Array, shared: float) -> Quantized:
    """compressed-tensors W8A8: a scale for each row."""
    stored = bf16(amax(w, (1, w.shape[1])) / 127)
    codes = nearest(w / value_of(stored), INT8)
    return Quantized({"weight": codes_of("I8", codes), "weight_scale": stored}, look_up(codes, INT8) * value_of(stored))


def int8_rows(w: Array, shared: float) -> Quantized:
    """As fracast 0.1.0 has it, with nothing in config.json."""
    stored = f32(amax(w, (1, w.shape[1])) / 127)
    codes = nearest(w / value_of(stored), INT8)
    tensors = {"weight.qweight": codes_of("I8", codes), "weight.scale": stored}
    return Quantized(tensors, look_up(codes, INT8) * value_of(stored))


def _mx_codes(w: Array, emax: int) -> tuple[Raw, Array]:
    """Scales of 32 along K, the largest exponent less the format's (OCP MX 1.0), as E8M0; and each weight's own."""
    codes = np.floor(np.log2(amax(w, (1, 32)))).astype(np.int64) - emax + 127
    stored = codes_of("U8", codes)
    return stored, spread(value_of(stored), w.shape, (1, 32))


def mxfp4(weight: str, raw_dtype: str = "U8", scale: str = "weight_scale", scale_dtype: str = "U8") -> Scheme:
    """E2M1, an even k in the low nibble."""

    def quantize(w: Array, shared: float) -> Quantized:
        stored, each = _mx_codes(w, 2)
        codes = nearest(w / each, E2M1)
        tensors = {weight: codes_of(raw_dtype, pairs(codes)), scale: replace(stored, dtype=scale_dtype)}
        return Quantized(tensors, look_up(codes, E2M1) * each)

    return quantize


def mxfp8(w: Array, shared: float) -> Quantized:
    stored, each = _mx_codes(w, 8)
    codes = nearest(w / each, E4M3)
    return Quantized({"weight": codes_of("F8_E4M3", codes), "weight_scale": stored}, look_up(codes, E4M3) * each)


def mx17(w: Array, shared: float) -> Quantized:
    """Quark's old "mx": for each 32 weights a byte with log2 of the scale, signed and without bias, and 16 of pairs."""
    stored, each = _mx_codes(w, 2)
    codes = nearest(w / each, E2M1)
    exponents = stored.array().astype(np.int64) - 127
    n, blocks = exponents.shape
    found = np.zeros((n, blocks, 17), np.uint8)
    found[:, :, 0] = exponents & 255
    found[:, :, 1:] = pairs(codes).reshape(n, blocks, 16)
    return Quantized({"weight": codes_of("U8", found.reshape(n, -1))}, look_up(codes, E2M1) * each)


def nvfp4(divides: bool) -> Scheme:
    """E2M1 by 16 along K; the second scale divides (compressed-tensors) or multiplies (ModelOpt)."""

    def quantize(w: Array, shared: float) -> Quantized:
        second = f32([448 * 6 / shared]) if divides else f32(shared / (448 * 6))
        factor = 1 / float(value_of(second).ravel()[0]) if divides else float(value_of(second))
        scales = nearest(amax(w, (1, 16)) / 6 / factor, E4M3)
        firsts = spread(look_up(scales, E4M3), w.shape, (1, 16))
        codes = nearest(w / np.where(firsts == 0, 1, firsts * factor), E2M1)
        products = look_up(codes, E2M1) * firsts
        exact = products / value_of(second) if divides else products * value_of(second)
        names = ("weight_packed", "weight_global_scale") if divides else ("weight", "weight_scale_2")
        packed = codes_of("U8", pairs(codes))
        return Quantized({names[0]: packed, "weight_scale": codes_of("F8_E4M3", scales), names[1]: second}, exact)

    return quantize


# ---------------- four-bit integers


def ct_int4(zeros: bool = False, act_order: bool = False) -> Scheme:
    """compressed-tensors: code + 8 in words along K, zero points in words along N; act order: the group of each k."""

    def quantize(w: Array, shared: float) -> Quantized:
        n, k = w.shape
        groups = np.arange(k) // GROUP
        if act_order:
            groups = np.random.default_rng(k).permutation(groups)
        parts = [w[:, groups == g] for g in range(k // GROUP)]
        if zeros:
            low = np.stack([np.minimum(p.min(axis=1), 0) for p in parts], axis=1)
            high = np.stack([np.maximum(p.max(axis=1), 0) for p in parts], axis=1)
            scales = bf16((high - low) / 15)
            points = np.clip(np.rint(-8 - low / value_of(scales)), -8, 7)
        else:
            scales = bf16(np.stack([np.abs(p).max(axis=1) for p in parts], axis=1) * 2 / 15)
            points = np.zeros(scales.shape)
        each, zero = value_of(scales)[:, groups], points[:, groups]
        codes = nearest(w / each + zero, INT4) - 8
        tensors = {
            "weight_packed": codes_of("I32", words(codes + 8, 1)),
            "weight_scale": scales,
            "weight_shape": codes_of("I64", [n, k]),
        }
        if zeros:
            tensors["weight_zero_point"] = codes_of("I32", words(points.astype(np.int64) + 8, 0))
        if act_order:
            tensors["weight_g_idx"] = codes_of("I32", groups)
        return Quantized(tensors, (codes - zero) * each)

    return quantize


def modelopt_int4(w: Array, shared: float) -> Quantized:
    """W4A16_AWQ: signed nibbles, an even row of N in the low one; a scale for 128 of K."""
    stored = f32(amax(w, (1, GROUP)) / 7)
    each = spread(value_of(stored), w.shape, (1, GROUP))
    codes = nearest(w / each, INT4) - 8
    return Quantized({"weight": codes_of("U8", pairs(codes, 0)), "weight_scale": stored}, codes * each)


def _unsigned(w: Array, groups: Codes, symmetric: bool) -> tuple[Array, Array, Raw]:
    """Codes [N, K] and zeros [N, groups] of 0 to 15, and the scales [groups, N] in float16."""
    parts = [w[:, groups == g] for g in range(int(groups.max()) + 1)]
    low = np.stack([np.minimum(p.min(axis=1), 0) for p in parts], axis=1)
    high = np.stack([np.maximum(p.max(axis=1), 0) for p in parts], axis=1)
    if symmetric:
        high = np.maximum(high, -low)
        scales, points = f16((2 * high / 15).T), np.full(low.shape, 8.0)
    else:
        scales = f16(((high - low) / 15).T)
        # v1 stores a zero less one: no zero of 0 there
        points = np.clip(np.rint(-low / value_of(scales).T), 1, 15)
    each, zero = value_of(scales).T[:, groups], points[:, groups]
    return nearest(w / each + zero, UINT4).astype(np.float64), points, scales


def gptq(version: int, symmetric: bool, act_order: bool = False) -> Scheme:
    """Codes in words along K, zeros in words along N: less one in version 1."""

    def quantize(w: Array, shared: float) -> Quantized:
        k = w.shape[1]
        groups = np.arange(k) // GROUP
        if act_order:
            groups = np.random.default_rng(k).permutation(groups)
        codes, points, scales = _unsigned(w, groups, symmetric)
        tensors = {
            "qweight": codes_of("I32", words(codes.T.astype(np.int64), 0)),
            "qzeros": codes_of("I32", words(points.T.astype(np.int64) - (version == 1), 1)),
            "scales": scales,
            "g_idx": codes_of("I32", groups),
        }
        return Quantized(tensors, (codes - points[:, groups]) * value_of(scales).T[:, groups])

    return quantize


def awq(w: Array, shared: float) -> Quantized:
    """Codes and zeros in words along N, in AWQ's order of nibbles."""
    groups = np.arange(w.shape[1]) // GROUP
    codes, points, scales = _unsigned(w, groups, False)
    tensors = {
        "qweight": codes_of("I32", words(codes.T.astype(np.int64), 1, AWQ_ORDER)),
        "qzeros": codes_of("I32", words(points.T.astype(np.int64), 1, AWQ_ORDER)),
        "scales": scales,
    }
    return Quantized(tensors, (codes - points[:, groups]) * value_of(scales).T[:, groups])
