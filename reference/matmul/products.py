"""Products of matrices that engines compute, one entry each."""

from __future__ import annotations

from itertools import product as pairs

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.reference.matmul.torch_products import TORCH_PRODUCTS

_WIDE = ("bfloat16", "float16", "float32")
_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")
_NIBBLES = (("codes", "nibbles_low_first"),)
_VLLM_SCALED = "vLLM 0.33.0, compressed_tensors/triton_scaled_mm.py:112-162"
_VLLM_MOE = "vLLM 0.33.0, layers/fused_moe/fused_moe.py:486-608"
_PLAIN = Operand()


def _formats(sources: tuple[str, ...], results: tuple[str, ...] = _WIDE) -> tuple[tuple[str, str], ...]:
    return tuple(pairs(sources, results))


def _same(*formats: str) -> tuple[tuple[str, str], ...]:
    return tuple((each, each) for each in formats)


def _of(recipe: str, **fields: object) -> Operand:
    return Operand(recipe, **fields)  # type: ignore[arg-type]


def _rows_of_k(recipe: str, codes: str, zeros: str = "", indexed: bool = False) -> Operand:
    """A weight [K, N] of four bits, which enters the product as float16 or bfloat16.

    Groups are whole: vLLM 0.33.0 refuses another K (auto_awq.py:819, kernels/linear/mixed_precision/exllama.py:62,
    triton_w4a16.py:196 and 355).
    """
    layouts = (("codes", codes), *((("zero_point", zeros),) if zeros else ()))
    enters = "bfloat16" if recipe.endswith("_bf16") else "float16"
    return Operand(recipe, "uint4", enters, by_rows=False, whole=True, indexed=indexed, layouts=layouts)


def _four_bits(
    name: str, recipe: str, codes: str, source: str, zeros: str = "", indexed: bool = False, accumulator: str = ""
) -> tuple[Product, ...]:
    """A product with a weight of four bits in both formats of activations."""
    return tuple(
        Product(
            f"{name}{ending}",
            ((wide, wide), (wide, "float32")),
            _PLAIN,
            _rows_of_k(recipe + ending, codes, zeros, indexed),
            "operands",
            source,
            accumulator=accumulator,
        )
        for ending, wide in (("", "float16"), ("_bf16", "bfloat16"))
    )


_PLAIN_PRODUCTS = (
    Product(
        "plain.matmul",
        (*_same("bfloat16", "float16", "float32"), ("bfloat16", "float32"), ("float16", "float32")),
        _PLAIN,
        _PLAIN,
        "sum",
        "the definition of a product of matrices; torch.matmul",
        evidence="specification",
    ),
    Product(
        "plain.matmul_bias",
        _same("bfloat16", "float16", "float32"),
        _PLAIN,
        _PLAIN,
        "sum",
        "the definition; torch.addmm with a vector",
        bias="wide",
        evidence="specification",
    ),
    Product(
        "plain.matmul_then_bias",
        _same("bfloat16", "float16"),
        _PLAIN,
        _PLAIN,
        "sum",
        "torch: x @ weight.T + bias, two kernels",
        bias="narrow",
        evidence="specification",
    ),
    Product(
        "plain.matmul_tf32",
        _same("float32"),
        Operand(enters="tfloat32"),
        Operand(enters="tfloat32"),
        "operands",
        "PTX ISA, mma .tf32: operands keep 10 bits of fraction; by which rounding is the kernel's own",
        evidence="specification",
    ),
    Product(
        "plain.matmul_fp8",
        _formats(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")),
        _PLAIN,
        _PLAIN,
        "sum",
        "the definition of a product of matrices",
        evidence="specification",
    ),
    Product(
        "plain.matmul_int8",
        (("int8", "int32"),),
        _PLAIN,
        _PLAIN,
        "sum",
        "the definition; torch._int_mm",
        evidence="specification",
    ),
    Product("vllm.moe", _same("bfloat16", "float16"), _PLAIN, _PLAIN, "sum", _VLLM_MOE, grouped=True),
)
_FP8_PRODUCTS = (
    Product(
        "vllm.fp8_tensor",
        _formats(_FP8),
        _of("vllm.fp8_static_tensor"),
        _of("vllm.fp8_static_tensor"),
        "sum",
        _VLLM_SCALED,
    ),
    Product(
        "vllm.fp8_token_channel",
        _formats(_FP8),
        _of("vllm.fp8_static_token"),
        _of("vllm.fp8_static_token"),
        "sum",
        _VLLM_SCALED,
    ),
    Product(
        "vllm.fp8_token_channel_bias",
        _formats(_FP8),
        _of("vllm.fp8_static_token"),
        _of("vllm.fp8_static_token"),
        "sum",
        f"{_VLLM_SCALED}; a bias in the epilogue, before the one rounding",
        bias="wide",
    ),
    Product(
        "vllm.fp8_block",
        _formats(("float8_e4m3fn",)),
        _of("vllm.fp8_static_group_128"),
        _of("vllm.fp8_block"),
        "stretches",
        "vLLM 0.33.0, layers/quantization/utils/fp8_utils.py:880-900; SGLang 0.5.23, ops/gemm/fp8_kernel.py:113-137",
    ),
    Product(
        "vllm.moe_fp8_channel",
        _formats(_FP8, ("bfloat16", "float16")),
        _of("vllm.fp8_static_token"),
        _of("vllm.fp8_static_token"),
        "sum",
        _VLLM_MOE,
        grouped=True,
    ),
    Product(
        "vllm.moe_fp8_block",
        _formats(("float8_e4m3fn",), ("bfloat16", "float16")),
        _of("vllm.fp8_static_group_128"),
        _of("vllm.fp8_block"),
        "stretches",
        _VLLM_MOE,
        grouped=True,
    ),
)
_INT8_PRODUCTS = (
    Product(
        "vllm.int8_token_channel",
        _formats(("int8",)),
        _of("vllm.int8_static_token"),
        _of("vllm.int8_static_token"),
        "sum",
        _VLLM_SCALED,
    ),
    Product(
        "vllm.int8_azp_tensor",
        _formats(("int8",)),
        _of("vllm.int8_static_azp"),
        _of("vllm.int8_static_token"),
        "sum",
        "vLLM 0.33.0, kernels/linear/scaled_mm/cutlass.py:92-113; csrc, scaled_mm_epilogues_c3x.hpp:267-361",
    ),
    Product(
        "vllm.int8_azp_token",
        _formats(("int8",)),
        _of("vllm.int8_per_token_dynamic_azp"),
        _of("vllm.int8_static_token"),
        "sum",
        "vLLM 0.33.0, kernels/linear/scaled_mm/cutlass.py:92-113; csrc, scaled_mm_epilogues_c3x.hpp:267-361",
    ),
    Product(
        "vllm.int8_azp_token_bias",
        _formats(("int8",)),
        _of("vllm.int8_per_token_dynamic_azp"),
        _of("vllm.int8_static_token"),
        "sum",
        "vLLM 0.33.0, kernels/linear/scaled_mm/cutlass.py:92-113; csrc, scaled_mm_epilogues_c3x.hpp:267-361",
        bias="wide",
    ),
)
_FOUR_BIT_PRODUCTS = (
    *_four_bits(
        "awq.gemm",
        "awq.uint4",
        "awq_4bit",
        "vLLM 0.33.0, layers/quantization/awq_triton.py:160-225",
        "awq_4bit~awq_4bit",
    ),
    *_four_bits(
        "gptq.gemm_symmetric",
        "gptq.uint4_symmetric",
        "gptq_4bit",
        "vLLM 0.33.0, csrc/quantization/gptq/q_gemm.cu:138-139, 251",
    ),
    *_four_bits(
        "gptq.gemm",
        "gptq.uint4_asymmetric",
        "gptq_4bit",
        "vLLM 0.33.0, csrc/quantization/gptq/q_gemm.cu:138-139, 251",
        "gptq_zeros_4bit~gptq_v1_4bit",
    ),
    *_four_bits(
        "gptq.gemm_act_order",
        "gptq.uint4_asymmetric",
        "gptq_4bit",
        "vLLM 0.33.0, csrc/quantization/gptq/q_gemm.cu: g_idx",
        "gptq_zeros_4bit~gptq_v1_4bit",
        indexed=True,
    ),
    *_four_bits(
        "vllm.w4a16_uint4b8",
        "vllm.uint4b8",
        "compressed_tensors_4bit",
        "vLLM 0.33.0, kernels/linear/mixed_precision/triton_w4a16.py:102-156",
    ),
    *_four_bits(
        "vllm.w4a16_zero_point",
        "vllm.uint4_zero_point",
        "compressed_tensors_4bit",
        "vLLM 0.33.0, kernels/linear/mixed_precision/triton_w4a16.py:102-156",
        "gptq_zeros_4bit~gptq_v2_4bit",
    ),
)
_BLOCK_SCALED_PRODUCTS = (
    Product(
        "ocp.mxfp8",
        _formats(("float8_e4m3fn",), ("bfloat16", "float32")),
        _of("ocp.mxfp8_e4m3"),
        _of("ocp.mxfp8_e4m3"),
        "unit",
        "OCP MX 1.0, section 6.2: the dot product of two MX blocks, summed",
        evidence="specification",
    ),
    Product(
        "ocp.mxfp4",
        _formats(("float4_e2m1fn",), ("bfloat16", "float32")),
        _of("ocp.mxfp4", layouts=_NIBBLES),
        _of("ocp.mxfp4", layouts=_NIBBLES),
        "unit",
        "OCP MX 1.0, section 6.2",
        evidence="specification",
    ),
    Product(
        "ocp.mxfp8_mxfp4",
        _formats(("float8_e4m3fn",), ("bfloat16", "float32")),
        _of("ocp.mxfp8_e4m3"),
        _of("ocp.mxfp4", format="float4_e2m1fn", layouts=_NIBBLES),
        "unit",
        "OCP MX 1.0, section 6.2; triton_kernels, matmul_ogs",
        evidence="specification",
    ),
    Product(
        "ocp.mxfp8_to_bf16",
        _formats(("bfloat16",), ("bfloat16", "float32")),
        _PLAIN,
        _of("ocp.mxfp8_e4m3", format="float8_e4m3fn", enters="bfloat16"),
        "operands",
        "vLLM 0.33.0, layers/quantization/utils/mxfp8_utils.py:230-243",
    ),
    Product(
        "ocp.mxfp4_to_bf16",
        _formats(("bfloat16",), ("bfloat16", "float32")),
        _PLAIN,
        _of("ocp.mxfp4", format="float4_e2m1fn", enters="bfloat16", layouts=_NIBBLES),
        "operands",
        "vLLM 0.33.0, third_party/triton_kernels/matmul_ogs_details/_matmul_ogs.py",
    ),
    Product(
        "nvidia.nvfp4",
        _formats(("float4_e2m1fn",), ("bfloat16", "float32")),
        _of("nvidia.nvfp4_divisor", layouts=_NIBBLES),
        _of("nvidia.nvfp4_divisor", layouts=_NIBBLES),
        "unit",
        "vLLM 0.33.0, compressed_tensors_w4a4_nvfp4.py:121-134, kernels/linear/nvfp4/cutlass.py:60-72",
    ),
    Product(
        "vllm.nvfp4_to_bf16",
        _formats(("bfloat16",), ("bfloat16", "float32")),
        _PLAIN,
        _of("vllm.nvfp4", format="float4_e2m1fn", enters="bfloat16", layouts=_NIBBLES),
        "operands",
        "vLLM 0.33.0, layers/quantization/utils/nvfp4_emulation_utils.py:576-627, 750-776",
    ),
)
PRODUCTS: dict[str, Product] = {
    each.name: each
    for each in (
        *_PLAIN_PRODUCTS,
        *_FP8_PRODUCTS,
        *_INT8_PRODUCTS,
        *_FOUR_BIT_PRODUCTS,
        *_BLOCK_SCALED_PRODUCTS,
        *TORCH_PRODUCTS,
    )
}


def resolve(product: str | Product) -> Product:
    """The product of that name, or the one given as data. Raises ``BadInput`` with near names."""
    if isinstance(product, Product):
        return product
    if product not in PRODUCTS:
        raise unknown("product", product, PRODUCTS, "Matmul(...)")
    return PRODUCTS[product]
