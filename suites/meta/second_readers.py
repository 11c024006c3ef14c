# SPDX-License-Identifier: Apache-2.0
"""What codes stand for, once more, with exact fractions and one rounding for each operation; from the facts on engines.

* Every engine multiplies a code by its scale in float32.
* int8 with a zero point (A.2): the difference of whole numbers, times the scale. int4 weights (D.5): w = (q - z) * s;
  of uint4b8 and of GPTQ's symmetric checkpoints z is 8 (A.2: uint4b8 is the code less 8).
* NVFP4 (A.4): where the global scale is 2688 / amax, as checkpoints of compressed-tensors and vLLM have it, a block's
  scale is divided by it; where it is amax / 2688, as ModelOpt, torchao and KV caches have it, multiplied.
* MXINT8 (A.3): int8 with an implied 2^-6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from narrowgauge.suites.meta.second_derivation import Number, cast, decode
from narrowgauge.suites.meta.second_quantizers import divide, multiply

#: a code as a number, and what is stored beside it, to float32
Reader = Callable[[Number, Mapping[str, Number]], Number]
_IEEE: Mapping[str, object] = {
    "rounding": "nearest_even", "limit": None, "overflow": "special", "infinity": "special",
    "nan": "nan", "negative_zero": "keep", "subnormals": "keep",
}  # fmt: skip
_SIXTY_FOURTH = Number("finite", False, Fraction(1, 64))


def plain(code: Number, beside: Mapping[str, Number]) -> Number:
    return multiply(code, beside["scale"])


def _difference(code: Number, zero: int) -> Number:
    """Of whole numbers, exact."""
    value = (-1 if code.negative else 1) * code.magnitude - zero
    return Number("finite", value < 0, abs(value))


def less_zero_point(code: Number, beside: Mapping[str, Number]) -> Number:
    zero = beside["zero_point"]
    return multiply(_difference(code, int(zero.magnitude) * (-1 if zero.negative else 1)), beside["scale"])


def less_8(code: Number, beside: Mapping[str, Number]) -> Number:
    return multiply(_difference(code, 8), beside["scale"])


def over_global(code: Number, beside: Mapping[str, Number]) -> Number:
    return multiply(code, divide(beside["scale"], beside["global_scale"]))


def times_global(code: Number, beside: Mapping[str, Number]) -> Number:
    return multiply(code, multiply(beside["scale"], beside["global_scale"]))


def sixty_fourths(code: Number, beside: Mapping[str, Number]) -> Number:
    return multiply(multiply(code, _SIXTY_FOURTH), beside["scale"])


#: recipes that are read otherwise than plainly
READERS: dict[str, Reader] = {
    **dict.fromkeys(
        ("vllm.int8_static_azp", "vllm.int8_per_token_dynamic_azp", "torchao.int8_row_asymmetric",
         "compressed_tensors.int8_token_asymmetric", "compressed_tensors.int4_group_asymmetric",
         "vllm.int4_per_token_head", "vllm.uint4_zero_point", "awq.uint4", "gptq.uint4_asymmetric",
         "vllm.uint4_zero_point_bf16", "awq.uint4_bf16", "gptq.uint4_asymmetric_bf16"), less_zero_point,
    ),
    **dict.fromkeys(
        ("vllm.uint4b8", "gptq.uint4_symmetric", "vllm.uint4b8_bf16", "gptq.uint4_symmetric_bf16"), less_8
    ),
    **dict.fromkeys(
        ("nvidia.nvfp4_divisor", "vllm.nvfp4", "vllm.nvfp4_emulated", "vllm.nvfp4_triton", "compressed_tensors.nvfp4"),
        over_global,
    ),
    **dict.fromkeys(
        ("nvidia.nvfp4_multiplier", "vllm.nvfp4_kv", "vllm.nvfp4_kv_over4", "sglang.nvfp4_kv_sm90", "modelopt.nvfp4",
         "torchao.nvfp4_two_levels", "torchao.nvfp4_two_levels_given", "transformer_engine.nvfp4"), times_global,
    ),
    **dict.fromkeys(
        ("ocp.mxint8", "quark.mxint8_even", "quark.mxint8_floor", "quark.mxint8_ceil", "microxcaling.mxint8_nearest",
         "microxcaling.mxint8_even"), sixty_fourths,
    ),
}  # fmt: skip


def read(recipe: str, code: int, format: str, beside: Mapping[str, tuple[int, str]], to: str) -> int:
    """The code of a wide format that a code stands for; ``beside`` are codes and formats of what is stored."""
    values = {name: decode(value, of) for name, (value, of) in beside.items()}
    return cast(READERS.get(recipe, plain)(decode(code, format), values), to, _IEEE)
