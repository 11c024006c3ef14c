# SPDX-License-Identifier: Apache-2.0
"""Conversions as the engines' and the tools' own code does them, on a CPU, beside the second derivation.

Run as a program with the name of a package, it answers a line of JSON for each of its conversions: how many bytes of
each output differ over the sets of conversion_sets. Kernels that need a GPU are given by their definition: the static
and the dynamic quantizer of vLLM and SGLang (facts on engines, A.1).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from narrowgauge.suites.meta.conversion_sets import SETS, Patterns, differences
from narrowgauge.suites.meta.engines.loading import Engine
from narrowgauge.suites.meta.second_conversions import CONVERSIONS

Run = Callable[[Patterns], Patterns]
_QUANTIZATION = "model_executor.layers.quantization."


# ---------------- tensors and patterns


def tensor(array: Any, dtype: str) -> Any:
    """Patterns as a tensor of a type of the same width."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(array).copy()).view(getattr(torch, dtype))


def patterns(made: Any, width: int) -> Any:
    """A tensor's patterns, of 1, 2 or 4 bytes."""
    import torch

    signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[width]
    return made.detach().contiguous().view(signed).numpy().view(f"u{width}").copy()


def _fp8(given: Patterns) -> Any:
    return tensor(given["codes"], "float8_e4m3fn")


def _pair(codes: Any, scale: Any) -> Patterns:
    return {"codes": patterns(codes, 1), "scale": patterns(scale.reshape(1, 1) if scale.dim() < 2 else scale, 4)}


def quantize_by_kernel(x: Any, scale: Any = None, *rest: Any, **more: Any) -> tuple[Any, Any]:
    """scaled_fp8_quant on CUDA: amax/448 without NaN where no scale is given; times 1/scale; NaN is held to 448."""
    import torch

    x = x.float()
    scale = torch.nan_to_num(x, 0.0, torch.inf, -torch.inf).abs().amax() / 448.0 if scale is None else scale
    y = torch.nan_to_num(x * (1.0 / scale), 448.0, 448.0, -448.0).clamp(-448.0, 448.0)
    return y.to(torch.float8_e4m3fn), scale


# ---------------- vLLM


def vllm() -> Mapping[str, Run]:
    """The conversions of vLLM that are functions of torch."""
    import torch

    Engine("transformers", (), {})
    nothing = SimpleNamespace(
        is_cuda=lambda: False,
        is_rocm=lambda: False,
        is_fp8_fnuz=lambda: True,
        fp8_dtype=lambda: torch.float8_e4m3fn,
        simple_compile_backend="eager",
    )
    engine = Engine(
        "vllm",
        (
            "utils.deep_gemm",
            "utils.math_utils",
            *(f"{_QUANTIZATION}utils.{name}" for name in ("fp8_utils", "w8a8_utils", "quant_utils")),
            *(f"{_QUANTIZATION}{name}" for name in ("auto_awq", "modelopt")),
            f"{_QUANTIZATION}compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4",
        ),
        {
            "": {"_custom_ops": SimpleNamespace(scaled_fp8_quant=quantize_by_kernel)},
            "platforms": {"current_platform": nothing},
            "model_executor.utils": {"replace_parameter": setattr},
            "model_executor.parameter": {"PackedvLLMParameter": lambda data, **more: data},
        },
    )
    w8a8, fp8 = (engine.module(f"{_QUANTIZATION}utils.{name}") for name in ("w8a8_utils", "fp8_utils"))
    gemm = engine.module("utils.deep_gemm")
    gemm.get_fp8_min_max = lambda: (-448.0, 448.0)

    def normalized(given: Patterns) -> Patterns:
        beside = [tensor(given[name], "float32") for name in ("scale", "input_scale") if name in given]
        codes, *scales = w8a8.normalize_e4m3fn_to_e4m3fnuz(_fp8(given), *beside)
        found = zip(("scale", "input_scale"), scales, strict=False)
        return {"codes": patterns(codes, 1), **{name: patterns(s, 4) for name, s in found if s is not None}}

    def normalized_ue8m0(given: Patterns) -> Patterns:
        made = fp8.process_fp8_weight_block_strategy(_fp8(given), tensor(given["scale"], "float8_e8m0fnu"))
        return {"codes": patterns(made[0], 1), "scale": patterns(made[1], 1)}

    def requantized(given: Patterns) -> Patterns:
        scale, codes = w8a8.requantize_with_max_scale(
            _fp8(given), tensor(given["scale"], "float32").reshape(-1), given["widths"].ravel().tolist()
        )
        return _pair(codes, scale)

    def to_ue8m0(given: Patterns) -> Patterns:
        codes, scale = _fp8(given), tensor(given["scale"], "float32")
        fp8.requant_weight_ue8m0_inplace(codes, scale, (128, 128))
        return _pair(codes, scale)

    def awq(given: Patterns) -> Patterns:
        layer = SimpleNamespace(**{name: tensor(given[name], "int32") for name in ("qweight", "qzeros")})
        for name in ("qweight", "qzeros"):
            setattr(layer, name, torch.nn.Parameter(getattr(layer, name), requires_grad=False))
        engine.module(f"{_QUANTIZATION}auto_awq")._convert_awq_to_standard_format(layer, "qweight", "qzeros", 4)
        return {name: getattr(layer, name).numpy() for name in ("qweight", "qzeros")}

    def kept(given: Patterns, scale: Any) -> Patterns:
        return {name: given[name] for name in ("codes", "scale")} | {"global_scale": patterns(scale.reshape(1, 1), 4)}

    def divisors(given: Patterns) -> Patterns:
        module = engine.module(f"{_QUANTIZATION}compressed_tensors.schemes.compressed_tensors_w4a4_nvfp4")
        scale = tensor(given["global_scale"], "float32").ravel()
        layer = SimpleNamespace(weight_packed=None, weight_global_scale=scale, input_global_scale=scale)
        module.CompressedTensorsW4A4Fp4(use_a16=True).process_weights_after_loading(layer)
        return kept(given, layer.weight_global_scale)

    def multipliers(given: Patterns) -> Patterns:
        module = engine.module(f"{_QUANTIZATION}modelopt")
        scale = tensor(given["global_scale"], "float32").ravel()
        layer = SimpleNamespace(weight_scale=torch.zeros(1), weight_scale_2=scale)
        module.KNvfp4Static().process(layer, module.WEIGHT)
        return kept(given, layer.weight_global_scale)

    return {
        "vllm.ocp_to_fnuz": normalized,
        "vllm.ue8m0_to_fnuz": normalized_ue8m0,
        "vllm.requantize_to_largest_cpu": requantized,
        "vllm.block_to_ue8m0": to_ue8m0,
        "vllm.awq_to_standard": awq,
        "vllm.nvfp4_largest": divisors,
        "vllm.modelopt_nvfp4_largest": multipliers,
    }


# ---------------- SGLang


def sglang() -> Mapping[str, Run]:
    """The conversions of SGLang that are functions of torch."""
    utils: dict[str, Any] = dict.fromkeys(("is_hip", "is_cuda", "is_cpu", "is_npu", "is_musa", "is_xpu"), lambda: False)
    utils |= {"ceil_align": lambda size, by: -(-size // by) * by, "ceil_div": lambda size, by: -(-size // by)}
    engine = Engine(
        "sglang",
        tuple(f"srt.layers.quantization.{name}" for name in ("fp8_utils", "mxfp4_tensor", "utils")),
        {
            "srt.utils": {**utils, "get_device_capability": lambda: (9, 0)},
            "srt.runtime_context": {"get_device_capability": lambda: (9, 0)},
            "srt.utils.common": {"torch_release": (2, 13)},
            "srt.utils.custom_op": {"register_custom_op": lambda *a, **k: a[0] if a else (lambda f: f)},
            "kernels.ops.quantization.fp8_kernel": {
                "fp8_dtype": None, "fp8_max": 448.0, "fp8_min": -448.0, "is_fp8_fnuz": lambda: False,
                "scaled_fp8_quant": quantize_by_kernel,
            },
        },
    )  # fmt: skip
    fp8 = engine.module("srt.layers.quantization.fp8_utils")
    fp8._is_fp8_fnuz = False

    def on_cuda(cuda: bool, function: Callable[[], tuple[Any, Any]]) -> Patterns:
        fp8._is_cuda, fp8.scaled_fp8_quant = cuda, quantize_by_kernel
        return _pair(*function())

    def requantized(given: Patterns) -> Patterns:
        module = engine.module("srt.layers.quantization.utils")
        scale, codes = module.requantize_with_max_scale(
            _fp8(given), tensor(given["scale"], "float32").reshape(-1), given["widths"].ravel().tolist()
        )
        return _pair(codes, scale)

    def to_ue8m0(given: Patterns) -> Patterns:
        fp8.transform_scale_ue8m0 = lambda scale, mn: scale  # how it is packed is the layout ue8m0_int32
        return _pair(*fp8.requant_weight_ue8m0(_fp8(given), tensor(given["scale"], "float32"), [128, 128]))

    def of_block(cuda: bool) -> Run:
        return lambda given: on_cuda(
            cuda,
            lambda: fp8.block_quant_to_tensor_quant(_fp8(given), tensor(given["scale"], "float32"), [128, 128]),
        )

    def of_channel(cuda: bool) -> Run:
        return lambda given: on_cuda(
            cuda, lambda: fp8.channel_quant_to_tensor_quant(_fp8(given), tensor(given["scale"], "float32"))
        )

    def to_mxfp4(hip: bool) -> Run:
        def run(given: Patterns) -> Patterns:
            fp8._is_hip = hip
            made = fp8.quantize_block_fp8_weight_to_mxfp4(_fp8(given), tensor(given["scale"], "float32"), [128, 128])
            return {"codes": patterns(made[0], 1), "scale": patterns(made[1], 1)}

        return run

    return {
        "vllm.requantize_to_largest_cpu": requantized,
        "vllm.ocp_to_fnuz": lambda given: {"codes": patterns(
            fp8.normalize_e4m3fn_to_e4m3fnuz(_fp8(given), tensor(given["scale"], "float32"))[0], 1)},
        "sglang.block_to_ue8m0": to_ue8m0,
        "sglang.block_to_tensor": of_block(True),
        "sglang.block_to_tensor_torch": of_block(False),
        "sglang.channel_to_tensor": of_channel(True),
        "sglang.channel_to_tensor_torch": of_channel(False),
        "sglang.block_to_mxfp4": to_mxfp4(False),
        "sglang.block_to_mxfp4_rocm": to_mxfp4(True),
    }  # fmt: skip


# ---------------- tools


def transformers() -> Mapping[str, Run]:
    """What transformers makes of gpt-oss."""
    engine = Engine(
        "transformers",
        ("integrations.mxfp4",),
        {
            "utils": {"is_torch_available": lambda: True},
            "quantizers.quantizers_utils": {"on_device": lambda device: contextlib.nullcontext()},
        },
    )

    def values(given: Patterns) -> Patterns:
        module = engine.module("integrations.mxfp4")
        made = module.convert_moe_packed_tensors(*(tensor(given[name], "uint8") for name in ("blocks", "scales")))
        return {"values": patterns(made, 2)}

    return {"transformers.gpt_oss": values}


def compressed_tensors() -> Mapping[str, Run]:
    """compressed-tensors' scales of MX, and its words of four bits."""
    import torch

    engine = Engine("compressed_tensors", ("compressors.mx_utils", "compressors.pack_quantized.helpers"), {})
    mx = engine.module("compressors.mx_utils")
    words = engine.module("compressors.pack_quantized.helpers")

    def to_e8m0(given: Patterns) -> Patterns:
        narrow = given["scale"].dtype == np.uint16
        scale = tensor(given["scale"].view(np.int16), "bfloat16") if narrow else tensor(given["scale"], "float32")
        return {"scale": mx.compress_mx_scale(scale, torch.uint8).numpy()}

    def to_words(given: Patterns) -> Patterns:
        return {"codes": words.pack_to_int32(tensor(given["codes"], "int8"), 4).numpy()}

    def from_words(given: Patterns) -> Patterns:
        shape = torch.Size(given["shape"].ravel().tolist())
        return {"codes": patterns(words.unpack_from_int32(tensor(given["codes"], "int32"), 4, shape), 1)}

    return {
        "compressed_tensors.scale_to_e8m0": to_e8m0,
        "compressed_tensors.e8m0_to_scale": lambda given: {
            "scale": patterns(mx.decompress_mx_scale(tensor(given["scale"], "uint8")), 2)
        },
        "compressed_tensors_int4": to_words,
        "compressed_tensors_int4_back": from_words,
    }


PACKAGES: Mapping[str, Callable[[], Mapping[str, Run]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "transformers": transformers,
    "compressed_tensors": compressed_tensors,
}


def main(package: str) -> None:
    """Answer for a package."""
    for name, run in PACKAGES[package]().items():
        wrong = [
            f"set {i}: {difference}"
            for i, given in enumerate(SETS[name]())
            for difference in differences(name, run(given), CONVERSIONS[name](given))
        ]
        print(json.dumps({"conversion": name, "sets": len(list(SETS[name]())), "wrong": wrong[:5]}))


if __name__ == "__main__":
    main(sys.argv[1])
