"""Every method of quantization that vLLM 0.33.0, SGLang 0.5.23 or a configuration names: what of it is read here.

vLLM: vllm/model_executor/layers/quantization/__init__.py:16-47. SGLang: the same in sglang/srt/layers, :61-152.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from narrowgauge.checkpoints.configured import Configuration
from narrowgauge.checkpoints.findings import Finding

_V, _S = ("vllm",), ("sglang",)
_BOTH = (*_V, *_S)


@dataclass(frozen=True)
class Method:
    """A method by its name."""

    engines: tuple[str, ...]  #: who accepts the name; () where only configurations have it
    reads: tuple[str, ...] = ()  #: beginnings of names of schemes
    online: bool = False  #: quantizes plain weights while loading: there is nothing of it in the file
    unread: str = ""  #: why nothing of it is read; "" where all or some of it is
    in_part: str = ""  #: what of it is not read
    used: Callable[[Mapping[str, Any]], bool] = lambda said: True  #: whether a configuration uses that


_INTEGERS = ("gptq", "awq", "int8", "packed")
_TABLES = "codes that are numbers of entries in tables of vectors"


def _gemv(said: Mapping[str, Any]) -> bool:
    return str(said.get("version", "")).lower().startswith("gemv")


def _transformed(said: Mapping[str, Any]) -> bool:
    return bool(said.get("sparsity_config") or said.get("transform_config"))


def _few_bits(said: Mapping[str, Any]) -> bool:
    return said.get("bits") in (2, 3)


def _four_bits(said: Mapping[str, Any]) -> bool:
    return bool(said.get("load_in_4bit") or said.get("_load_in_4bit"))


METHODS: dict[str, Method] = {
    "aqlm": Method((), unread=f"{_TABLES} (codebooks)"),
    "auto-round": Method(_S, ("gptq", "awq", "mxfp4", "nvfp4", "fp8")),
    "auto-round-int8": Method(_S, ("int8",)),
    "auto_awq": Method(_V, ("awq",)),
    "auto_gptq": Method(_V, ("gptq",)),
    "awq": Method(_BOTH, ("awq",), in_part="gemv and gemv_fast, which pack otherwise", used=_gemv),
    "awq_marlin": Method(_BOTH, ("awq",)),
    "bitnet": Method((), unread="ternary weights, four in a byte"),
    "bitsandbytes": Method(
        _S, ("int8_bitsandbytes",), in_part="nf4 and fp4: their tables are named, not read", used=_four_bits
    ),
    "blockwise_int8": Method(_S, ("int8",)),
    "compressed-tensors": Method(
        _BOTH,
        ("fp8", "int8", "nvfp4_packed", "mxfp4_packed", "packed"),
        in_part="sparsity and transforms",
        used=_transformed,
    ),
    "deepseek_v4_fp8": Method(_V, ("fp8", "mxfp4_experts")),
    "eetq": Method((), unread="int8 weights interleaved for one kernel"),
    "experts_int8": Method(_V, online=True),
    "fbgemm_fp8": Method(_V, ("fp8",)),
    "fp8": Method(_BOTH, ("fp8", "mxfp4_experts")),
    "fp8_per_block": Method(_V, online=True),
    "fp8_per_channel": Method(_V, online=True),
    "fp8_per_tensor": Method(_V, online=True),
    "fp_quant": Method(_V, unread="weights rotated by a Hadamard matrix of hadamard_group_size"),
    "gguf": Method(_S, ("gguf",)),
    "gpt_oss_mxfp4": Method(_V, ("mxfp4",)),
    "gptq": Method(_BOTH, ("gptq",), in_part="2 and 3 bits", used=_few_bits),
    "gptq_marlin": Method(_BOTH, ("gptq",)),
    "higgs": Method((), unread=f"{_TABLES}, after a Hadamard matrix"),
    "hqq": Method((), unread="zero points that are numbers, in a dictionary of its own"),
    "humming": Method(_BOTH, ("fp8", "mxfp4", "nvfp4", *_INTEGERS)),
    "inc": Method(_V, ("gptq", "awq", "mxfp4", "nvfp4", "fp8")),
    "int8_per_channel_weight_only": Method(_V, online=True),
    "minimax_m3_nvfp4": Method(_S, ("fp8_e8m0", "nvfp4_packed")),
    "mlx_q4": Method(_S, unread="groups of MLX: codes in 32 bits with scales and biases"),
    "mlx_q8": Method(_S, unread="groups of MLX: codes in 32 bits with scales and biases"),
    "modelopt": Method(_BOTH, ("fp8", "nvfp4", "mxfp4", "int4_rows", "int8")),
    "modelopt_fp4": Method(_BOTH, ("nvfp4",)),
    "modelopt_fp8": Method(_S, ("fp8",)),
    "modelopt_mixed": Method(_BOTH, ("fp8", "nvfp4", "mxfp4", "int4_rows")),
    "modelopt_mxfp8": Method(_V, ("fp8_e8m0",)),
    "modelslim": Method(_S, ("int8",), in_part="offsets, quant_bias and deq_scale of Ascend; 4 bits"),
    "moe_wna16": Method(_BOTH, ("gptq", "awq")),
    "mxfp4": Method(_BOTH, ("mxfp4",)),
    "mxfp8": Method(_BOTH, ("fp8_e8m0",)),
    "mxfp_w4a8": Method(_S, online=True),
    "nvfp4": Method((), ("nvfp4",)),
    "nvfp4_online": Method(_S, online=True),
    "nvfp4_per_token": Method(_V, online=True),
    "online": Method(_V, online=True),
    "petit_nvfp4": Method(_S, ("nvfp4",)),
    "quanto": Method((), unread="tensors of a class of its own"),
    "quark": Method(_BOTH, ("fp8", "mxfp4", "nvfp4", "int8", "quark_int4", "mx_interleaved"), in_part="values of int4"),
    "quark_int4fp8_moe": Method(_S, online=True),
    "quark_mxfp4": Method(_S, ("mxfp4",)),
    "spqr": Method((), unread="two levels of quantized scales, and outliers apart"),
    "torchao": Method(_V, unread="tensors of torch's subclasses, flattened into several with a JSON beside them"),
    "vptq": Method((), unread=f"{_TABLES} (centroids and residuals)"),
    "w4afp8": Method(_S, ("w4afp8", "fp8")),
    "w8a8_fp8": Method(_S, ("fp8",)),
    "w8a8_int8": Method(_S, ("int8",)),
}
#: other spellings in configurations
SPELLED = {"compressed_tensors": "compressed-tensors", "auto_round": "auto-round", "intel/auto-round": "auto-round"}


def method_findings(said: Configuration) -> Iterator[Finding]:
    """What of the method that a configuration names is not read here. Nothing is passed over."""
    if not said.where:
        return
    method = METHODS.get(SPELLED.get(said.method, said.method))
    named = f"{said.where} names the method {said.method!r}"
    if method is None:
        yield Finding("method not understood", f"{named}, which no list here has")
    elif method.unread:
        yield Finding("method not understood", f"{named}: {method.unread}")
    elif method.online:
        yield Finding("method not understood", f"{named}, which quantizes plain weights while they are loaded")
    elif method.in_part and method.used(said.said):
        yield Finding("method in part", f"{named}; not read of it: {method.in_part}")
