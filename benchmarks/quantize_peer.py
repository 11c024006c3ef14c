"""The child that has torch: eager quantizers, torchao's where it is installed, else the same steps by hand.

It reads ``who CASE`` and ``run CASE`` from standard input, a line each, and answers in a line.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

Work = Callable[[], Any]


def main() -> None:
    """Argument: rows and columns."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    side = int(sys.argv[1])
    x = torch.randn(side, side)
    who, cases = f"torch {torch.__version__}, eager", by_hand(x)
    if importlib.util.find_spec("torchao") is not None:
        who, cases = f"torchao {importlib.metadata.version('torchao')}", by_torchao(x)
    for line in sys.stdin:
        verb, case = line.split()
        if verb == "run":
            cases[case]()
        print(who, flush=True)


def by_torchao(x: Any) -> dict[str, Work]:
    """torchao's own functions, uncompiled."""
    import torch
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale
    from torchao.quantization.quant_primitives import (
        MappingType,
        _choose_scale_float8,
        _quantize_affine_float8,
        choose_qparams_affine,
        quantize_affine,
    )

    rows = (1, x.shape[1])

    def int8() -> Any:
        scale, zero = choose_qparams_affine(
            x, MappingType.SYMMETRIC, rows, torch.int8, -127, 127, eps=1e-5, scale_dtype=torch.float32
        )
        return quantize_affine(x, rows, scale, zero, torch.int8, -127, 127)

    def mx(mode: Any) -> Work:
        return lambda: to_mx(x, torch.float8_e4m3fn, 32, mode)

    return {
        "fp8_per_token": lambda: _quantize_affine_float8(
            x, _choose_scale_float8(x, list(rows), torch.float8_e4m3fn), torch.float8_e4m3fn
        ),
        "int8_per_token": int8,
        "mxfp8_floor": mx(ScaleCalculationMode.FLOOR),
        "mxfp8_rceil": mx(ScaleCalculationMode.RCEIL),
        "nvfp4": lambda: nvfp4_quantize(x, 16, per_tensor_amax_to_scale(x.abs().max())),
    }


def by_hand(x: Any) -> dict[str, Work]:
    """The least that eager torch needs for the same codes and scales."""
    import torch

    fp4 = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])

    def fp8() -> Any:
        scale = x.abs().amax(1, keepdim=True) / 448
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale

    def int8() -> Any:
        scale = x.abs().amax(1, keepdim=True) / 127
        return torch.round(x / scale).clamp(-127, 127).to(torch.int8), scale

    def mx(up: bool) -> Any:
        blocks = x.reshape(-1, 32)
        bits = blocks.abs().amax(1, keepdim=True).div(448.0 if up else 256.0).view(torch.int32)
        exponent = (bits + (0x7FFFFF if up else 0)) & 0x7F800000
        return (blocks / exponent.view(torch.float32)).clamp(-448, 448).to(torch.float8_e4m3fn), exponent >> 23

    def nvfp4() -> Any:
        of_tensor = x.abs().max() / 2688
        blocks = x.reshape(-1, 16)
        scale = (blocks.abs().amax(1, keepdim=True) / 6 / of_tensor).clamp(max=448).to(torch.float8_e4m3fn)
        scaled = blocks / (scale.float() * of_tensor)
        return torch.bucketize(scaled.abs(), fp4).to(torch.uint8) | (scaled < 0).to(torch.uint8) << 3, scale, of_tensor

    return {
        "fp8_per_token": fp8,
        "int8_per_token": int8,
        "mxfp8_floor": lambda: mx(False),
        "mxfp8_rceil": lambda: mx(True),
        "nvfp4": nvfp4,
    }
