"""Products as torch's CPU computes them, where that is another than a GPU's. Measured: docs/torch-products.md."""

from __future__ import annotations

from itertools import product as pairs

from narrowgauge.contracts.product import Operand, Product

_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")
_WIDE = ("bfloat16", "float16", "float32")
_SOURCE = "torch 2.13.0 and 2.14.1 on a CPU: each operand times its scale in float32, then a product of float32"


def _scaled(name: str, recipe: str, bias: bool = False) -> Product:
    operand = Operand(recipe, enters="float32")
    formats = tuple(pairs(_FP8, _WIDE))
    return Product(
        name, formats, operand, operand, "operands", _SOURCE, bias="wide" if bias else "", evidence="measured"
    )


TORCH_PRODUCTS = (
    Product(
        "torch.int4_cpu",
        (("bfloat16", "bfloat16"),),
        Operand(),
        Operand("vllm.uint4b8_bf16", "uint4", "float32", by_rows=False),
        "operands",
        "torch._weight_int4pack_mm_for_cpu of torch 2.13.0 and 2.14.1: (code - 8) times a bfloat16 scale in float32",
        evidence="measured",
    ),
    _scaled("torch.scaled_mm_cpu_tensor", "vllm.fp8_static_tensor"),
    _scaled("torch.scaled_mm_cpu_row", "vllm.fp8_static_token"),
    _scaled("torch.scaled_mm_cpu_row_bias", "vllm.fp8_static_token", bias=True),
)
