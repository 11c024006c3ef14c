"""microxcaling, where its ``mx`` is importable: it is in no registry, only in its repository."""

from __future__ import annotations

from functools import partial
from typing import Any

PACKAGE = "mx"
SOURCES = ("float32",)  # what it is used with
_ELEMENTS = {
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float6_e2m3fn": "fp6_e2m3",
    "float6_e3m2fn": "fp6_e3m2", "float4_e2m1fn": "fp4_e2m1", "int8": "int8",
}  # fmt: skip


def calls() -> dict[str, Any]:
    """Every quantizer of microxcaling that has a recipe."""
    names = {"mx_nearest": "nearest", "mx_even": "even", "mxint8_nearest": "nearest", "mxint8_even": "even"}
    return {f"microxcaling.{name}": partial(_mx, rounding=rounding) for name, rounding in names.items()}


def _mx(x: Any, format_name: str, given: Any, rounding: str) -> dict[str, Any]:
    """It answers dequantized values: they are divided by the scale, a power of two, again."""
    import torch
    from mx.formats import _get_format_params
    from mx.mx_ops import _quantize_mx, _shared_exponents

    element = _ELEMENTS[format_name]
    found = _quantize_mx(x.float(), 8, element, axes=[-1], block_size=32, round=rounding).double()
    emax = _get_format_params(element)[2]
    exponent = _shared_exponents(x.float().unflatten(-1, (-1, 32)), axes=[2]).squeeze(-1) - emax
    lost = exponent.isnan() | (exponent > 127)
    exponent = torch.where(lost, 128, exponent.clamp(min=-127))
    each = torch.exp2(exponent.double()) / (64 if format_name == "int8" else 1)
    values = (found.unflatten(-1, (-1, 32)) / each.unsqueeze(-1)).flatten(-2).float().numpy()
    values[found.isinf().numpy()] = float("nan")  # beyond float32, in which it is dequantized
    return {"elements": values, "scale": (exponent + 127).to(torch.uint8).numpy()}
