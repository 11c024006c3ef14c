"""Which dtype the torch that is installed here gives: promotion, and results of operations, as JSON on standard output.

A program of its own, as measure_torch.py: it needs Python and torch, and runs beside any version. What raises is
told as ``!`` and the class of the error.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

FP8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
NARROW = (*FP8, "float4_e2m1fn_x2", "bfloat16", "float16")
#: what narrow ones are paired with
OTHERS = (*NARROW, "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
#: what every operation is asked of
ASKED = (*NARROW, "float32")


def main() -> None:
    """Ask everything, and print what came back."""
    import torch

    warnings.filterwarnings("ignore")
    there = {name: getattr(torch, name) for name in OTHERS if hasattr(torch, name)}
    found: dict[str, str] = {}
    for one in (n for n in NARROW if n in there):
        x = ones(torch, there[one])
        for other in there:
            found[f"promote {one} {other}"] = told(partial(torch.promote_types, there[one], there[other]))
            number = ones(torch, there[other], 1).reshape(())
            found[f"0-dim {one} {other}"] = told(partial(torch.result_type, x, number))
        for name, value in (("int", 2), ("float", 2.0)):
            found[f"number {one} {name}"] = told(partial(torch.result_type, x, value))
    for name in (n for n in ASKED if n in there):
        for operation, call in operations(torch, there[name]).items():
            found[f"{operation} {name}"] = told(call)
    print(json.dumps({"version": torch.__version__, "found": found}))


def told(call: Callable[[], Any]) -> str:
    """The dtype of what comes back, or what is raised."""
    try:
        result = call()
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        return f"!{type(error).__name__}"
    return str(getattr(result, "dtype", result)).removeprefix("torch.")


def ones(torch: Any, dtype: Any, *shape: int) -> Any:
    """A tensor of ones, or of zero bytes where torch makes no other of the dtype."""
    size = shape or (16,)
    try:
        return torch.ones(size).to(dtype)
    except RuntimeError:
        return torch.zeros(size, dtype=torch.uint8).view(dtype)


def operations(torch: Any, dtype: Any) -> dict[str, Callable[[], Any]]:
    """What is asked of a dtype."""
    x, square, weight = ones(torch, dtype), ones(torch, dtype, 16, 16), ones(torch, dtype, 16)
    wide, one = torch.ones(16, 16), torch.ones(())
    f = torch.nn.functional
    return {
        "x + x": lambda: x + x,
        "x + 1": lambda: x + 1,
        "x * 2.0": lambda: x * 2.0,
        "x * float32": lambda: x * wide[0],
        "x / x": lambda: x / x,
        "exp": lambda: x.exp(),
        "silu": lambda: f.silu(x),
        "sum": lambda: x.sum(),
        "mean": lambda: x.mean(),
        "amax": lambda: x.amax(),
        "cumsum": lambda: x.cumsum(0),
        "var": lambda: x.var(),
        "norm": lambda: x.norm(),
        "softmax": lambda: x.softmax(0),
        "softmax to float32": lambda: x.softmax(0, dtype=torch.float32),
        "logsumexp": lambda: x.logsumexp(0),
        "layer_norm": lambda: f.layer_norm(x, (16,), weight),
        "rms_norm": lambda: f.rms_norm(x, (16,), weight),
        "rms_norm, float32 weight": lambda: f.rms_norm(x, (16,), wide[0]),
        "matmul": lambda: square @ square,
        "matmul by float32": lambda: square @ wide,
        "addmm": lambda: torch.addmm(weight, square, square),
        "addmm, float32 bias": lambda: torch.addmm(wide[0], square, square),
        "scaled_dot_product_attention": lambda: f.scaled_dot_product_attention(*[square[None]] * 3),
        "_scaled_mm": lambda: torch._scaled_mm(square, square.T, one, one),
        "_scaled_mm to float32": lambda: torch._scaled_mm(square, square.T, one, one, out_dtype=torch.float32),
    }


if __name__ == "__main__":
    main()
