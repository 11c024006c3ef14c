"""NVIDIA ModelOpt: its quantized tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

PACKAGE = "nvidia-modelopt"
SOURCES = ("float32", "bfloat16", "float16")


def calls() -> dict[str, Any]:
    """Every quantizer of ModelOpt that has a recipe."""
    return {
        "modelopt.mxfp8": _mxfp8,
        "modelopt.mxfp4": _mxfp4,
        "modelopt.nvfp4": _nvfp4,
        "modelopt.fp8_tensor": partial(_fp8, axis=None),
        "modelopt.fp8_channel": partial(_fp8, axis=0),
        "modelopt.fp8_block": partial(_fp8, block_sizes={-1: 128, -2: 128}),
    }


def _nibbles(packed: Any) -> Any:
    import torch

    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).numpy()


def _mxfp8(x: Any, format_name: str, given: Any) -> dict[str, Any]:
    import torch
    from modelopt.torch.quantization.qtensor import MXFP8QTensor

    found, scale = MXFP8QTensor.quantize(x)
    return {"codes": found._quantized_data.view(torch.uint8).numpy(), "scale": scale.numpy()}


def _mxfp4(x: Any, format_name: str, given: Any) -> dict[str, Any]:
    from modelopt.torch.quantization.qtensor import MXFP4QTensor

    found, scale = MXFP4QTensor.quantize(x, 32)
    return {"codes": _nibbles(found._quantized_data), "scale": scale.reshape(len(x), -1).numpy()}


def _nvfp4(x: Any, format_name: str, given: Any) -> dict[str, Any]:
    import torch
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    found, scale, of_tensor = NVFP4QTensor.quantize(x.clone(), 16)
    answer = {"codes": _nibbles(found._quantized_data), "scale": scale.view(torch.uint8).numpy()}
    return answer | {"global_scale": of_tensor.reshape(1, 1).numpy()}


def _fp8(x: Any, format_name: str, given: Any, **blocks: Any) -> dict[str, Any]:
    import torch
    from modelopt.torch.quantization.qtensor import FP8QTensor

    found, scale = FP8QTensor.quantize(x, **blocks)
    return {"codes": found._quantized_data.view(torch.uint8).numpy(), "scale": scale.float().numpy()}
