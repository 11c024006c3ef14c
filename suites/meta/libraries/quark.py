"""AMD Quark: MX by its CPU kernels, which it builds when it is imported."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

PACKAGE = "amd-quark"
#: dequantized values are in the format of x, and float16 has not the range for them
SOURCES = ("float32", "bfloat16")
_ELEMENTS = {
    "float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2", "float6_e2m3fn": "fp6_e2m3",
    "float6_e3m2fn": "fp6_e3m2", "float4_e2m1fn": "fp4", "int8": "int8",
}  # fmt: skip


def calls() -> dict[str, Any]:
    """Every quantizer of Quark that has a recipe."""
    names = {"mxfp4_even": "even", "mx_even_2": "even", "mx_even_3": "even", "mx_floor": "floor", "mx_ceil": "ceil"}
    names |= {f"mxint8_{mode}": mode for mode in ("even", "floor", "ceil")}
    return {f"quark.{name}": partial(_mx, mode=mode) for name, mode in names.items()}


def _mx(x: Any, format_name: str, given: Any, mode: str) -> dict[str, Any]:
    """It answers dequantized values: they are divided by the scale, a power of two, again."""
    from quark.torch.kernel.hw_emulation.hw_emulation_interface import fake_quantize_mx
    from quark.torch.utils.numerics import to_e8m0_uint8

    element, whole = _ELEMENTS[format_name], format_name == "int8"
    found = fake_quantize_mx(x, -1, 32, mode, mx_element_dtype=element).double()
    scale = _scale(x, element, mode)
    each = (scale.float() / 64).clamp(min=2.0**-126) if whole else scale  # as fake_quantize_per_channel_affine has it
    values = (found.unflatten(-1, (-1, 32)) / each.double().unsqueeze(-1)).flatten(-2).float().numpy()
    values[found.isinf().numpy()] = float("nan")  # beyond the format of x, in which it is dequantized
    stored = to_e8m0_uint8(scale).numpy()
    stored[~scale.isfinite().numpy()] = 255
    return {"elements": values, "scale": stored}


def _scale(x: Any, element: str, mode: str) -> Any:
    """By the method of Quark's own observer."""
    from quark.torch.quantization.config.type import Dtype
    from quark.torch.quantization.observer.observer import PerBlockMXObserver

    amax = x.abs().unflatten(-1, (-1, 32)).amax(-1)
    spec = SimpleNamespace(dtype=None, mx_element_dtype=Dtype(element))
    observer = SimpleNamespace(qspec=spec, scale_calculation_mode=mode)
    return PerBlockMXObserver.get_scale(observer, amax, 2.0**-23, "e8m0")
