"""AMD Quark: MX by its CPU kernels, which it builds when it is imported."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

PACKAGE = "amd-quark"
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

    element = _ELEMENTS[format_name]
    found = fake_quantize_mx(x, -1, 32, mode, mx_element_dtype=element).double()
    scale = _scale(x, element, mode)
    values = (found.unflatten(-1, (-1, 32)) / scale.double().unsqueeze(-1)).flatten(-2)
    stored = to_e8m0_uint8(scale).numpy()
    stored[~scale.isfinite().numpy()] = 255
    return {"elements": (values * 64 if format_name == "int8" else values).float().numpy(), "scale": stored}


def _scale(x: Any, element: str, mode: str) -> Any:
    """By the method of Quark's own observer."""
    from quark.torch.quantization.config.type import Dtype
    from quark.torch.quantization.observer.observer import PerBlockMXObserver

    amax = x.float().abs().unflatten(-1, (-1, 32)).amax(-1)
    spec = SimpleNamespace(dtype=None, mx_element_dtype=Dtype(element))
    observer = SimpleNamespace(qspec=spec, scale_calculation_mode=mode)
    return PerBlockMXObserver.get_scale(observer, amax, 2.0**-23, "e8m0")
