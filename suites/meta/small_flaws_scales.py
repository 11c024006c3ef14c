# SPDX-License-Identifier: Apache-2.0
"""Mistakes in scales: missing, orphaned, of another value, dtype, shape or direction; of K and V."""

from __future__ import annotations

import numpy as np

from narrowgauge.suites.meta.small_bytes import f32
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_flaw import (
    AGAINST,
    DOWN,
    UP,
    Edit,
    Elements,
    Flaw,
    K,
    Q,
    all_of,
    codes,
    configured,
    each,
    first,
    nothing,
    numbers,
    renamed,
    some_codes,
    without,
)
from narrowgauge.suites.meta.small_models import LAYERS

LOST = ("weights lost",)
EXPERT = "model.layers.1.mlp.experts.1"
KV_LAYER = "model.layers.1.self_attn"
INVERTED = ("second scale inverted",)


def _inverse(x: Elements) -> Elements:
    return 1 / x


def added(name: str, value: float) -> Edit:
    def edit(draft: Draft) -> None:
        draft.tensors[name] = f32(value)

    return edit


def cached(draft: Draft) -> None:
    """ModelOpt's scales of K and V in every layer, and the configuration that says so."""
    for i in range(LAYERS):
        for part in "kv":
            draft.tensors[f"model.layers.{i}.self_attn.{part}_proj.{part}_scale"] = f32(0.02 + 0.01 * i)
    configured("quantization_config", "kv_cache_scheme", value={"dynamic": False, "num_bits": 8, "type": "float"})(
        draft
    )


def _as_numbers(x: Elements) -> Elements:
    """E8M0 codes as if they were the scales themselves."""
    return x.astype("<f4")


def _truncated(x: Elements) -> Elements:
    """A float cast to uint8: 0."""
    return np.zeros(x.shape, np.uint8)


def _biased(x: Elements) -> Elements:
    """The first byte of each block of Quark's old "mx" as E8M0 has it."""
    blocks = x.reshape(x.shape[0], -1, 17)
    blocks[:, :, 0] += 127
    return blocks.reshape(x.shape)


def rescaled(path: str, factor: float) -> Edit:
    """Another second scale with first scales to go with it: the weights are right, the shards no longer agree."""
    return each(
        numbers(f"{path}.weight_scale_2", lambda x: x * factor),
        numbers(f"{path}.weight_scale", lambda x: x / factor),
    )


SCALES: dict[str, Flaw] = {
    # not there, or in another place
    "scale missing": Flaw("ct_FP8", without(f"{DOWN}.weight_scale"), ("scale missing",)),
    "second scale missing": Flaw("mo_NVFP4", without(f"{DOWN}.weight_scale_2"), ("scale missing",)),
    "block scales missing": Flaw(
        "deepseek", without(f"{UP.replace('up', 'shared_experts.up')}.weight_scale_inv"), ("scale missing",)
    ),
    "all scales missing": Flaw("ct_FP8", without(".weight_scale"), ("scale missing",), row="STATE04"),
    "gpt-oss without scales": Flaw("gpt_oss", without("down_proj_scales"), ("scale missing",)),
    "scale under another name": Flaw(
        "ct_FP8", renamed(f"{DOWN}.weight_scale", f"{DOWN}.scale_weight"), ("scale missing",), row="SCALEALG06"
    ),
    "scale without codes": Flaw("bf16", added(f"{DOWN}.weight_scale", 0.01), ("scale orphaned",)),
    "weight gone, scale left": Flaw("ct_FP8_DYNAMIC", without(f"{DOWN}.weight"), ("scale orphaned",)),
    "one expert without input scale": Flaw(
        "mo_NVFP4_MOE", without(f"{EXPERT}.up_proj.input_scale"), ("scale missing",), row="ZERO06"
    ),
    # no scale that could be
    "scale zero": Flaw("ct_FP8_DYNAMIC", numbers(f"{DOWN}.weight_scale", first(0.0)), ("scale zero",)),
    "scale negative": Flaw("ct_FP8_DYNAMIC", numbers(f"{DOWN}.weight_scale", first(-2e-4)), ("scale negative",)),
    "scale infinite": Flaw("ct_FP8_DYNAMIC", numbers(f"{DOWN}.weight_scale", first(np.inf)), ("scale not finite",)),
    "scale NaN": Flaw("ct_FP8_DYNAMIC", numbers(f"{DOWN}.weight_scale", first(np.nan)), ("scale not finite",)),
    "block scale NaN": Flaw(
        "mo_NVFP4", codes(f"{DOWN}.weight_scale", some_codes(0x7F)), ("scale not finite",), row="CAST06"
    ),
    "input scale zero": Flaw(
        "mo_NVFP4_MOE", numbers(f"{EXPERT}.up_proj.input_scale", all_of(0.0)), ("scale zero",), row="ZERO06"
    ),
    "AWQ scales beyond float16": Flaw(
        "awq", numbers(f"{DOWN}.scales", first(np.inf)), ("scale not finite",), row="RANGE1607"
    ),
    "GPTQ scales flushed": Flaw("gptq_v1", numbers(f"{DOWN}.scales", first(0.0)), ("scale zero",)),
    "GPTQ scales subnormal": Flaw("gptq_v1", numbers(f"{DOWN}.scales", first(3e-7)), ("scale subnormal",)),
    "E8M0 255": Flaw("ct_MXFP4", codes(f"{DOWN}.weight_scale", some_codes(255)), ("E8M0 not a number",), row="E8M007"),
    "E8M0 zero": Flaw("ct_MXFP4", codes(f"{DOWN}.weight_scale", some_codes(0)), ("E8M0 zero",), row="E8M006"),
    "unity scales": Flaw("mo_FP8", numbers("_proj.weight_scale", all_of(1.0)), ("all scales one",)),
    "NVFP4 scales subnormal": Flaw(
        "mo_NVFP4", codes(f"{DOWN}.weight_scale", some_codes(1, 2, 3)), ("scale subnormal",), row="RANGE1606"
    ),
    "scales of memory never written": Flaw(
        "ct_FP8",
        each(numbers(f"{DOWN}.weight_scale", all_of(-2.8e-8)), numbers(f"{UP}.weight_scale", all_of(-151552.0))),
        ("scale negative",),
        row="STATE04",
    ),
    # another direction
    "scale inverted": Flaw(
        "ct_FP8_DYNAMIC", numbers(f"{DOWN}.weight_scale", _inverse), LOST, AGAINST, says="the reciprocal"
    ),
    "block scales inverted": Flaw(
        "deepseek", numbers(".weight_scale_inv", _inverse), LOST, AGAINST, says="the reciprocal"
    ),
    "second scale that divides, inverted": Flaw(
        "ct_NVFP4", numbers(".weight_global_scale", _inverse), INVERTED, row="SCALEALG05"
    ),
    "second scale that multiplies, inverted": Flaw("mo_NVFP4", numbers(".weight_scale_2", _inverse), INVERTED),
    "E8M0 one too large": Flaw(
        "ct_MXFP4", codes(".weight_scale", lambda x: x + 1), LOST, AGAINST, says="2 times the original's"
    ),
    "log2 with a bias of 127": Flaw("quark_mx17", codes(f"{DOWN}.weight", _biased), ("scale implausible",)),
    # another dtype
    "scale cast to uint8": Flaw("ct_FP8", codes(f"{DOWN}.weight_scale", _truncated, "U8"), ("scale stored as uint8",)),
    "E4M3 scales labelled uint8": Flaw(
        "ct_NVFP4", codes(".weight_scale", lambda x: x, "U8"), ("scale stored as uint8",), row="E8M009"
    ),
    "E8M0 as numbers": Flaw("mo_MXFP8", codes(".weight_scale", _as_numbers, "F32"), ("scale of another type",)),
    # another shape
    "scale transposed": Flaw(
        "deepseek", codes("model.layers.0.mlp.up_proj.weight_scale_inv", lambda x: x.T), ("blocks do not fit",)
    ),
    "a row of scales too few": Flaw(
        "ct_FP8_DYNAMIC", codes(f"{DOWN}.weight_scale", lambda x: x[:-1]), ("blocks do not fit",), row="GRAN08"
    ),
    "a block of scales too many": Flaw(
        "ct_FP8_BLOCK", codes(f"{DOWN}.weight_scale", lambda x: np.concatenate([x, x])), ("blocks do not fit",)
    ),
    "block size of another": Flaw(
        "deepseek", configured("quantization_config", "weight_block_size", value=[64, 64]), ("blocks do not fit",)
    ),
    "group size of another": Flaw(
        "ct_W4A16",
        configured("quantization_config", "config_groups", "group_0", "weights", "group_size", value=64),
        ("blocks do not fit", "configuration disagrees"),
    ),
    "group index out of range": Flaw("gptq_actorder", codes(f"{DOWN}.g_idx", some_codes(2)), ("order out of range",)),
    "group index missing": Flaw("gptq_actorder", without(f"{DOWN}.g_idx"), ("order missing",)),
    "scales padded for a swizzle": Flaw(
        "mo_NVFP4", codes(f"{K}.weight_scale", lambda x: np.concatenate([x, x * 0])), ("blocks do not fit",)
    ),
    "zero points packed along K": Flaw(
        "ct_W4A16_ASYM", codes(f"{DOWN}.weight_zero_point", lambda x: x.T), ("blocks do not fit",)
    ),
    # shards of one fused weight
    "second scales of q, k, v differ": Flaw("mo_NVFP4", rescaled(Q, 2.0), ("shards differ",), row="GRAN02"),
    "second scales of gate and up differ": Flaw(
        "mo_NVFP4_MOE", rescaled(f"{EXPERT}.up_proj", 2.0), ("shards differ",), row="GRAN01"
    ),
    "input scales of q, k, v differ": Flaw(
        "mo_FP8", numbers(f"{Q}.input_scale", lambda x: x * 1.5), ("shards' inputs differ",)
    ),
    # scales of K and V
    "KV scale missing in a layer": Flaw("ct_FP8_KV", without(f"{KV_LAYER}.k_scale"), ("KV scales in part",)),
    "KV scale of ModelOpt missing in a layer": Flaw("mo_FP8", without(f"{K}.k_scale"), ("KV scales in part",)),
    "KV scale of Quark missing in a layer": Flaw("quark_fp8_kv", without(f"{K}.output_scale"), ("KV scales in part",)),
    "KV scales missing": Flaw("mo_FP8", without(".k_scale", ".v_scale"), ("KV scales promised",)),
    "KV scales of Quark missing": Flaw("quark_fp8_kv_custom", without(".k_scale", ".v_scale"), ("KV scales promised",)),
    "KV scheme dropped": Flaw("ct_FP8", nothing, ("KV scheme dropped",), {"kv_cache_dtype": "fp8", "engine": "vllm"}),
    "KV scheme null": Flaw(
        "ct_FP8_KV", configured("quantization_config", "kv_cache_scheme", value=None), ("KV scales not declared",)
    ),
    "KV scales all one": Flaw(
        "mo_FP8",
        each(numbers(".k_scale", all_of(1.0)), numbers(".v_scale", all_of(1.0))),
        ("unity KV scales",),
        row="KVDELIV07",
    ),
    "KV scale zero": Flaw("mo_FP8", numbers(f"{K}.k_scale", all_of(0.0)), ("scale zero",)),
    # names that an engine's model file does not take (sglang#39942 is open at 0.5.23), and products beyond float16
    "KV scales that SGLang drops": Flaw(
        "mo_NVFP4_MOE", cached, ("cache scales dropped",), {"engine": "sglang"}, row="KVDELIV02"
    ),
    "products beyond float16": Flaw(
        "ct_FP8",
        each(numbers(f"{K}.weight_scale", all_of(200.0)), numbers(f"{Q}.weight_scale", all_of(100.0))),
        ("requantizing overflows",),
        {"engine": "vllm"},
        row="GRAN06",
    ),
}
