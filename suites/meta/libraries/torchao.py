"""torchao: MX, NVFP4, float8, int8 and int4."""

from __future__ import annotations

from functools import partial
from typing import Any

PACKAGE = "torchao"
SOURCES = ("float32", "bfloat16", "float16")
_MX = {
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2", "float6_e2m3fn": "fp6_e2m3",
    "float6_e3m2fn": "fp6_e3m2", "float4_e2m1fn": "float4_e2m1fn_x2",
}  # fmt: skip


def calls() -> dict[str, Any]:
    """Every quantizer of torchao that has a recipe."""
    modes = {"floor": "FLOOR", "ceil": "CEIL", "rceil": "RCEIL"} | {f"even_{bits}": "EVEN" for bits in (1, 2, 3)}
    return {
        **{f"torchao.mx_{name}": partial(_mx, mode=mode) for name, mode in modes.items()},
        "torchao.nvfp4": partial(_nvfp4, levels=1),
        "torchao.nvfp4_two_levels": partial(_nvfp4, levels=2),
        "torchao.nvfp4_two_levels_given": partial(_nvfp4, levels=0),
        "torchao.float8_row": partial(_float8, row=True),
        "torchao.float8_tensor": partial(_float8, row=False),
        "torchao.int8_row": partial(_int8, mapping="SYMMETRIC"),
        "torchao.int8_row_asymmetric": partial(_int8, mapping="ASYMMETRIC"),
        "torchao.int4_group": _int4,
    }


def _codes(packed: Any, format_name: str) -> Any:
    import torch

    codes = packed.view(torch.uint8)
    if format_name == "float4_e2m1fn":
        codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    return codes.numpy()


def _mx(x: Any, format_name: str, given: Any, mode: str) -> dict[str, Any]:
    import torch
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    named = _MX[format_name]
    element = getattr(torch, named, named)
    scale, packed = to_mx(x, element, 32, ScaleCalculationMode[mode])
    return {"codes": _codes(packed, format_name), "scale": scale.view(torch.uint8).numpy()}


def _nvfp4(x: Any, format_name: str, given: Any, levels: int) -> dict[str, Any]:
    import torch
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize, per_tensor_amax_to_scale

    of_tensor = None
    if levels != 1:
        of_tensor = given["global_scale"].reshape(()) if levels == 0 else per_tensor_amax_to_scale(x.abs().max())
    scale, packed = nvfp4_quantize(x, 16, of_tensor)
    answer = {"codes": _codes(packed, format_name), "scale": scale.view(torch.uint8).numpy()}
    return answer | ({"global_scale": of_tensor.reshape(1, 1).numpy()} if levels == 2 and of_tensor is not None else {})


def _float8(x: Any, format_name: str, given: Any, row: bool) -> dict[str, Any]:
    import torch
    from torchao.quantization.granularity import PerRow, PerTensor
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
    from torchao.quantization.quantize_.workflows.float8.float8_tensor import Float8Tensor

    granularity = PerRow() if row else PerTensor()
    found = Float8Tensor.from_hp(x, getattr(torch, format_name), granularity, kernel_preference=KernelPreference.TORCH)
    return {"codes": _codes(found.qdata, format_name), "scale": found.scale.numpy()}


def _int8(x: Any, format_name: str, given: Any, mapping: str) -> dict[str, Any]:
    from torchao.quantization.granularity import PerRow
    from torchao.quantization.quant_primitives import MappingType
    from torchao.quantization.quantize_.workflows.int8.int8_tensor import Int8Tensor

    found = Int8Tensor.from_hp(x, PerRow(), MappingType[mapping])
    answer = {"codes": found.qdata.numpy(), "scale": found.scale.numpy()}
    return answer | ({"zero_point": found.zero_point.numpy()} if mapping == "ASYMMETRIC" else {})


def _int4(x: Any, format_name: str, given: Any) -> dict[str, Any]:
    import torch
    from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import IntxUnpackedToInt8Tensor

    found = IntxUnpackedToInt8Tensor.from_hp(x, (1, 32), torch.int4)
    return {"codes": found.qdata.numpy(), "scale": found.scale.float().numpy()}
