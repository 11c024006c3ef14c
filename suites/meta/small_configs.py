# SPDX-License-Identifier: Apache-2.0
"""quantization_config and its sisters, with the keys that each tool writes, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Config = dict[str, Any]


# ---------------- compressed-tensors 0.20.1


def ct_args(bits: int, kind: str, strategy: str, dynamic: bool | str = False, **more: Any) -> Config:
    found = {
        "dynamic": dynamic,
        "group_size": None,
        "num_bits": bits,
        "strategy": strategy,
        "symmetric": True,
        "type": kind,
    } | more
    return dict(sorted(found.items()))


def compressed_tensors(
    format: str, weights: Config, inputs: Config | None, kv: Config | None = None, ignore: Sequence[str] = ("lm_head",)
) -> Config:
    group = {
        "format": format,
        "input_activations": inputs,
        "output_activations": None,
        "targets": ["Linear"],
        "weights": weights,
    }
    return {
        "config_groups": {"group_0": group},
        "format": format,
        "global_compression_ratio": None,
        "ignore": list(ignore),
        "kv_cache_scheme": kv,
        "moe_sparsity_config": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.20.1",
    }


STATIC = {"observer": "static_minmax"}
UINT8, E4M3FN = {"scale_dtype": "torch.uint8"}, {"scale_dtype": "torch.float8_e4m3fn"}
CT_KV = ct_args(8, "float", "tensor", **STATIC)
CT_FP8 = (ct_args(8, "float", "tensor"), ct_args(8, "float", "tensor", **STATIC))
CT_DYNAMIC = (ct_args(8, "float", "channel"), ct_args(8, "float", "token", True))
CT_BLOCK = (
    ct_args(8, "float", "block", block_structure=[128, 128]),
    ct_args(8, "float", "group", True, group_size=128),
)
CT_NVFP4 = (
    ct_args(4, "float", "tensor_group", group_size=16, **E4M3FN),
    ct_args(4, "float", "tensor_group", "local", group_size=16, **STATIC, **E4M3FN),
)
CT_W8A8 = (ct_args(8, "int", "channel"), ct_args(8, "int", "token", True))


def ct_mx(bits: int) -> tuple[Config, Config]:
    return (
        ct_args(bits, "float", "group", group_size=32, **UINT8),
        ct_args(bits, "float", "group", True, group_size=32, **UINT8),
    )


def ct_w4a16(symmetric: bool = True, **more: Any) -> Config:
    weights = ct_args(4, "int", "group", group_size=128, symmetric=symmetric, **more)
    return compressed_tensors("pack-quantized", weights, None)


# ---------------- ModelOpt 0.47.0

PRODUCER = {"name": "modelopt", "version": "0.47.0"}
LEFT = ["lm_head", "model.embed_tokens"]


def modelopt(algo: str, bits: int = 0, group: int = 0, kv: bool = False) -> Config:
    """``bits`` 0: without config_groups, as for fp8_pb_wo, MXFP8, mxfp4 and AWQ."""
    found: Config = {}
    if bits:
        args = {"dynamic": False, "num_bits": bits, "type": "float"} | ({"group_size": group} if group else {})
        found["config_groups"] = {"group_0": {"input_activations": args, "weights": dict(args), "targets": ["Linear"]}}
    found |= {"ignore": list(LEFT), "quant_algo": algo}
    if kv:
        found["kv_cache_scheme"] = {"dynamic": False, "num_bits": 8, "type": "float"}
    return found | {"producer": dict(PRODUCER), "quant_method": "modelopt"}


def hf_quant(algo: str, kv: bool = False, **more: Any) -> Config:
    """hf_quant_config.json."""
    inner = {"quant_algo": algo, "kv_cache_quant_algo": "FP8" if kv else None} | more
    return {"producer": dict(PRODUCER), "quantization": inner | {"exclude_modules": list(LEFT)}}


# ---------------- DeepSeek, gpt-oss


def deepseek(**more: Any) -> Config:
    base = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8"}
    return base | more | {"weight_block_size": [128, 128]}


GPT_OSS: Config = {
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
    "quant_method": "mxfp4",
}


# ---------------- Quark 0.13


def quark_spec(dtype: str, scheme: str, observer: str, **more: Any) -> Config:
    found = {
        "block_size": None,
        "ch_axis": None,
        "dtype": dtype,
        "enable_buffer_reuse": False,
        "group_size": None,
        "is_dynamic": False,
        "is_scale_quant": False,
        "max_input_numel": 4194304,
        "mx_element_dtype": None,
        "observer_cls": observer,
        "qscheme": scheme,
        "round_method": "half_even",
        "scale_calculation_mode": None,
        "scale_format": None,
        "scale_type": "float",
        "symmetric": True,
        "zero_point_type": "int32",
    }
    return found | more


def quark_export(kv: Sequence[str] = ()) -> Config:
    return {
        "kv_cache_group": list(kv),
        "min_kv_scale": 0.0,
        "pack_method": "reorder",
        "weight_format": "real_quantized",
        "weight_merge_groups": None,
    }


QUARK_FP8 = quark_spec("fp8_e4m3", "per_tensor", "PerTensorMinMaxObserver")
CHANNEL = ("fp8_e4m3", "per_channel", "PerChannelMinMaxObserver")
QUARK_PTPC = (quark_spec(*CHANNEL, ch_axis=0), quark_spec(*CHANNEL, ch_axis=1, is_dynamic=True))
MX: Config = {
    "ch_axis": -1,
    "group_size": 32,
    "scale_calculation_mode": "even",
    "scale_format": "e8m0",
    "symmetric": None,
}
BLOCKS = ("fp4", "per_group", "PerBlockMXObserver")
QUARK_MXFP4 = (quark_spec(*BLOCKS, **MX), quark_spec(*BLOCKS, **MX, is_dynamic=True))
OLD: Config = {"ch_axis": -1, "group_size": 32, "mx_element_dtype": "fp4", "scale_type": None, "symmetric": None}
QUARK_OLD = (quark_spec("mx", "per_group", "PerBlockMXObserver", **OLD),) * 2
KV_PARTS = ("*k_proj", "*v_proj")


def _layer(weight: Config, inputs: Config, outputs: Config | None) -> Config:
    return {
        "bias": None,
        "input_tensors": dict(inputs),
        "output_tensors": outputs,
        "target_device": None,
        "weight": dict(weight),
    }


def quark(weight: Config, inputs: Config, kv: bool = False) -> Config:
    parts = KV_PARTS if kv else ()
    caches = {part: _layer(weight, inputs, QUARK_FP8 | {"scale_type": None}) for part in parts}
    return {
        "algo_config": None,
        "exclude": ["lm_head"],
        "export": quark_export(parts),
        "global_quant_config": _layer(weight, inputs, None),
        "kv_cache_post_rope": False,
        "kv_cache_quant_config": caches,
        "layer_quant_config": dict(caches),
        "layer_type_quant_config": {},
        "quant_method": "quark",
        "quant_mode": "eager_mode",
        "softmax_quant_spec": None,
        "version": "0.13",
    }


QUARK_CUSTOM: Config = {
    "activation_scheme": "static",
    "export": quark_export(KV_PARTS),
    "ignored_layers": ["lm_head"],
    "kv_cache_scheme": "static",
    "quant_method": "fp8",
}


# ---------------- AWQ, GPTQ

AWQ: Config = {
    "bits": 4,
    "group_size": 128,
    "modules_to_not_convert": None,
    "quant_method": "awq",
    "version": "gemm",
    "zero_point": True,
}


def gptq(checkpoint_format: str, symmetric: bool = True, act_order: bool = False) -> Config:
    return {
        "bits": 4,
        "checkpoint_format": checkpoint_format,
        "damp_percent": 0.1,
        "desc_act": act_order,
        "dynamic": None,
        "format": checkpoint_format,
        "group_size": 128,
        "lm_head": False,
        "meta": {"quantizer": ["gptqmodel:7.7.0"]},
        "pack_dtype": "int32",
        "quant_method": "gptq",
        "static_groups": False,
        "sym": symmetric,
        "true_sequential": True,
    }
