# SPDX-License-Identifier: Apache-2.0
"""Bad calls of our products, made in a process of its own; prints what came of each as JSON.

``python -m narrowgauge.suites.meta.product_bad_calls``. A call is a good one with one thing wrong. Kernels run in
Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from narrowgauge.suites.meta.kv_bad_sets import Call, Change, tell

if TYPE_CHECKING:  # who imports this module is not to load torch
    import torch

M, N, K = 5, 24, 256
FP8 = "float8_e4m3fn"


def zeros(*shape: int, of: str = FP8) -> torch.Tensor:
    import torch

    return torch.zeros(shape, dtype=torch.uint8).view(getattr(torch, of))


def numbers(*shape: int, of: str = "float32", value: float = 1.0) -> torch.Tensor:
    import torch

    return torch.full(shape, value, dtype=getattr(torch, of))


def with_one(value: float, *shape: int, of: str = "float32") -> torch.Tensor:
    """Ones, and another number as the last of them."""
    found = numbers(*shape, of=of)
    found.view(-1)[-1] = value
    return found


def good() -> dict[str, tuple[Callable[..., Any], Call]]:
    """A product of each kind, and a good call of it."""
    from narrowgauge.kernels_under_test import (
        triton_gemm_fp8,
        triton_gemm_int8,
        triton_gemm_moe,
        triton_gemm_mx,
        triton_gemm_wide,
    )

    fp8: Call = {"x": zeros(M, K), "format": "bfloat16", "b": zeros(N, K), "source": FP8}
    rows = {"a_scale": numbers(M, 1), "b_scale": numbers(N, 1)}
    half: Call = {"x": numbers(M, K, of="float16"), "format": "float16", "source": "float16"}
    weight = {"b_scale": numbers(2, N, of="float16"), "b_zero_point": numbers(2, N // 8, of="int32", value=0)}
    words = numbers(K // 8, N, of="int32", value=0)
    indexed = {"b_group_index": numbers(1, K, of="int32", value=0)}
    mx: Call = {"x": zeros(M, K), "format": "float32", "b": zeros(N, K // 2, of="uint8")}
    nv: Call = {"x": zeros(M, K // 2, of="uint8"), "format": "float32", "b": zeros(N, K // 2, of="uint8")}
    whole = {"a_global_scale": numbers(1, 1), "b_global_scale": numbers(1, 1)}
    grouped: Call = {**fp8, "b": zeros(2 * 128, K), "a_scale": numbers(M, 2), "b_scale": numbers(2, 2)}
    experts = {"experts": numbers(1, M, of="int32", value=-1), "expert_count": numbers(1, 1, of="int32", value=2)}
    bytes_: Call = {"x": zeros(M, K, of="int8"), "format": "float32", "b": zeros(N, K, of="int8")}
    return {
        "tensor": (
            triton_gemm_fp8.triton_soft_fp8_tensor, {**fp8, "a_scale": numbers(1, 1), "b_scale": numbers(1, 1)},
        ),
        "bias": (
            triton_gemm_fp8.triton_soft_fp8_token_channel_bias,
            {**fp8, **rows, "bias": numbers(1, N, of="bfloat16")},
        ),
        "block": (triton_gemm_fp8.triton_soft_fp8_block, {**fp8, "a_scale": numbers(M, 2), "b_scale": numbers(1, 2)}),
        "int8": (
            triton_gemm_int8.triton_soft_int8_azp_token,
            {**bytes_, **rows, "a_zero_point": numbers(M, 1, of="int32", value=3)},
        ),
        "gptq": (triton_gemm_wide.triton_soft_gptq_act_order_float16, {**half, "b": words, **weight, **indexed}),
        "awq": (
            triton_gemm_wide.triton_soft_awq_float16, {**half, "b": numbers(K, N // 8, of="int32", value=0), **weight},
        ),
        "mixed": (
            triton_gemm_mx.triton_soft_mxfp8_mxfp4,
            {**mx, "a_scale": zeros(M, 8, of="float8_e8m0fnu"), "b_scale": zeros(N, 8, of="float8_e8m0fnu")},
        ),
        "nvfp4": (triton_gemm_mx.triton_soft_nvfp4, {**nv, "a_scale": zeros(M, 16), "b_scale": zeros(N, 16), **whole}),
        "grouped": (triton_gemm_moe.triton_soft_moe_fp8_block, {**grouped, **experts}),
    }  # fmt: skip


SCALED = ("tensor", "bias", "block", "int8", "grouped")
EVERY = (*SCALED, "gptq", "awq", "mixed", "nvfp4")
RIGHT: dict[str, Change] = {
    "as_it_is": lambda call: {},
    "nothing_of_k": lambda call: {"x": call["x"][:, :0], "b": call["b"][:, :0]} if _whole_scales(call) else {},
}
WRONG: dict[str, tuple[Collection[str], Change]] = {
    "three_axes": (EVERY, lambda call: {"x": call["x"][None]}),
    "other_depth": (EVERY, lambda call: {"x": call["x"][:, :-8]}),
    "part_of_a_group": (("mixed",), lambda call: {"x": call["x"][:, :-8], "b": call["b"][:, :-4]}),
    "other_type": (("tensor", "block", "grouped"), lambda call: {"b": call["b"].float()}),
    "no_such_format": (EVERY, lambda call: {"format": "float8_e5m2"}),
    "scale_of_fewer_rows": (("bias", "int8"), lambda call: {"a_scale": call["a_scale"][:-1]}),
    "scale_turned": (("bias", "int8"), lambda call: {"b_scale": call["b_scale"].t()}),
    "scale_of_other_blocks": (("block", "grouped"), lambda call: {"b_scale": numbers(2, 3)}),
    "scale_as_float64": (SCALED, lambda call: {"a_scale": call["a_scale"].double()}),
    "scale_of_exponents": (("mixed",), lambda call: {"b_scale": numbers(N, 8)}),
    "infinite_scale": (SCALED, lambda call: {"a_scale": with_one(float("inf"), *call["a_scale"].shape)}),
    "scale_that_is_nan": (SCALED, lambda call: {"b_scale": with_one(float("nan"), *call["b_scale"].shape)}),
    "global_scale_that_is_nan": (("nvfp4",), lambda call: {"b_global_scale": numbers(1, 1, value=float("nan"))}),
    "global_scale_of_rows": (("nvfp4",), lambda call: {"a_global_scale": numbers(M, 1)}),
    "zero_point_of_columns": (("int8",), lambda call: {"a_zero_point": numbers(N, 1, of="int32")}),
    "bias_of_rows": (("bias",), lambda call: {"bias": numbers(1, M, of="bfloat16")}),
    "bias_as_float32": (("bias",), lambda call: {"bias": numbers(1, N)}),
    "zeros_of_other_groups": (("gptq", "awq"), lambda call: {"b_zero_point": numbers(1, N // 8, of="int32")}),
    "group_that_is_not": (("gptq",), lambda call: {"b_group_index": with_one(2, 1, K, of="int32")}),
    "expert_that_is_not": (("grouped",), lambda call: {"experts": with_one(2, 1, M, of="int32")}),
    "experts_of_fewer_rows": (("grouped",), lambda call: {"experts": numbers(1, M - 1, of="int32")}),
    "experts_that_do_not_divide": (
        ("grouped",), lambda call: {"expert_count": numbers(1, 1, of="int32", value=3)},
    ),
}  # fmt: skip


def _whole_scales(call: Call) -> bool:
    """Whether no scale belongs to a part of K."""
    return "a_scale" in call and call["a_scale"].shape[1] == 1


if __name__ == "__main__":
    tell(good, RIGHT, WRONG, EVERY)
