# SPDX-License-Identifier: Apache-2.0
"""The second derivation of whole matrices: of each recipe its rule, and what shares a scale, stated once more.

A new recipe has a rule in one of the files of rules, and its name in a line of ``SHAPES``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, decode
from narrowgauge.suites.meta.second_engines import ENGINES
from narrowgauge.suites.meta.second_levels import LEVELS
from narrowgauge.suites.meta.second_levels import OF_TENSOR as OF_ENGINES
from narrowgauge.suites.meta.second_libraries import LIBRARIES, OF_LIBRARIES
from narrowgauge.suites.meta.second_recipes import SECOND as ONE_LEVEL
from narrowgauge.suites.meta.second_recipes import Rule, float32_bits

Array = npt.NDArray[Any]
#: every rule, by the name of its recipe
SECOND: Mapping[str, Rule] = {**ONE_LEVEL, **LEVELS, **ENGINES, **LIBRARIES}
OF_TENSOR = {**OF_ENGINES, **OF_LIBRARIES}
_E4M3, _E8M0 = ("float8_e4m3fn",), "float8_e8m0fnu"
_BOTH = ("float8_e4m3fn", "float8_e4m3fnuz")


#: the largest value of each destination; of FNUZ the half of OCP's; of int4 half of the range of codes
BOUNDS = {
    "float8_e4m3fn": 448, "float8_e4m3fnuz": 224, "float8_e5m2": 57344, "float6_e2m3fn": 7.5, "float6_e3m2fn": 28,
    "float8_e5m2fnuz": 57344, "float4_e2m1fn": 6, "int8": 127, "int4": 7.5, "uint4": 15,
}  # fmt: skip


#: of which every engine uses the largest value
_ALIKE = ("float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz")


@dataclass(frozen=True)
class Shape:
    """So many rows and columns share a scale; 0 is all of them. ``formats``: the destinations that the engine has."""

    rows: int
    columns: int
    formats: tuple[str, ...]
    given: tuple[str, ...] = ()
    scale: str = "float32"
    ragged: bool = False
    sources: tuple[str, ...] = ("float32",)  #: formats of x, where the engine takes no float32
    bound: float = 0.0  #: what the engine divides by and holds to, where it is not that of ``BOUNDS``

    def bound_of(self, format: str) -> float:
        return (
            self.bound
            if self.bound and format not in ("float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz")
            else BOUNDS[format]
        )

    def blocks(self, rows: int, columns: int) -> list[tuple[slice, slice]]:
        """The blocks of a matrix, row by row of the grid."""
        each = self.rows or max(rows, 1), self.columns or max(columns, 1)
        down, across = range(0, rows, each[0]), range(0, columns, each[1])
        return [(slice(r, r + each[0]), slice(c, c + each[1])) for r in down for c in across]

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        return -(-rows // (self.rows or max(rows, 1))), -(-columns // (self.columns or max(columns, 1)))


_GROUPS_OF_VLLM = "vllm.fp8_group vllm.fp8_group_ue8m0 vllm.fp8_group_triton vllm.fp8_group_triton_ue8m0"
_NATIVE = "vllm.fp8_native_group"
_GROUPS_OF_SGLANG = (
    "sglang.fp8_group_triton_column_major_ue8m0 sglang.fp8_group_triton_row_major sglang.fp8_group_triton_column_major"
)
_S: tuple[str, ...] = ("scale",)
_HALVES = ("bfloat16", "float16")
_ANY = ("float32", *_HALVES)
_CUDA, _UINT4 = ("float8_e4m3fn", "float8_e5m2"), ("uint4",)
_WEIGHTS_BF16 = "vllm.uint4b8_bf16 vllm.uint4_zero_point_bf16"
_TABLE: tuple[tuple[Shape, str], ...] = (
    (Shape(0, 0, _BOTH, _S), "vllm.fp8_static_tensor vllm.fp8_native_static_tensor sglang.fp8_native_static_tensor"),
    (Shape(1, 0, _BOTH, _S), "vllm.fp8_static_token vllm.fp8_native_static_token sglang.fp8_native_static_token"),
    (Shape(0, 1, _BOTH, _S), "vllm.fp8_static_channel vllm.fp8_native_static_channel"),
    (Shape(1, 128, _BOTH, _S), "vllm.fp8_static_group_128 vllm.fp8_native_static_group_128"),
    (Shape(0, 0, _BOTH), "vllm.fp8_per_tensor_dynamic vllm.fp8_native_tensor sglang.fp8_per_tensor_dynamic"),
    (Shape(0, 0, _BOTH), "vllm.fp8_native_tensor_gpu"),
    (Shape(0, 0, _BOTH, sources=_ANY), "sglang.fp8_native_tensor sglang.fp8_native_tensor_gpu"),
    (Shape(1, 0, _BOTH, sources=_ANY), "sglang.fp8_native_token sglang.fp8_native_token_gpu"),
    (Shape(0, 0, _BOTH, sources=_HALVES, bound=240), "vllm.input_to_float8"),
    (Shape(1, 0, _BOTH), "vllm.fp8_per_token_dynamic vllm.fp8_native_token vllm.fp8_native_token_gpu"),
    (Shape(1, 0, _BOTH), "sglang.fp8_per_token_warp sglang.fp8_per_token_cta"),
    (Shape(1, 0, _BOTH, bound=240), "aiter.fp8_triton aiter.fp8_hip_token aiter.fp8_hip_smooth"),
    (Shape(1, 128, _BOTH, bound=240), "aiter.fp8_hip_group"),
    (Shape(0, 0, _BOTH, bound=240), "aiter.fp8_triton_tensor"),
    (Shape(0, 0, _BOTH, _S, bound=240), "aiter.fp8_triton_static"),
    (Shape(0, 0, ("int8",)), "aiter.int8_triton_tensor"),
    (Shape(0, 0, ("int8",), _S), "aiter.int8_triton_static"),
    (Shape(0, 0, _CUDA, _S), "vllm.kv_fp8_tensor"),
    (Shape(0, 128, _CUDA, _S), "vllm.kv_fp8_head"),
    (Shape(0, 0, (*_BOTH, "float8_e5m2", "float8_e5m2fnuz"), _S, bound=240), "plain.kv_fp8_tensor"),
    (Shape(0, 128, (*_BOTH, "float8_e5m2", "float8_e5m2fnuz"), _S, bound=240), "plain.kv_fp8_head"),
    (Shape(0, 0, _BOTH, _S, bound=240), "vllm.kv_fp8_tensor_rocm vllm.kv_fp8_tensor_triton"),
    (Shape(0, 128, _BOTH, _S, bound=240), "vllm.kv_fp8_head_rocm"),
    (Shape(0, 0, _BOTH, _S, bound=240, sources=_HALVES[1:]), "vllm.kv_fp8_tensor_rocm_float16"),
    (Shape(0, 128, _BOTH, _S, bound=240, sources=_HALVES[1:]), "vllm.kv_fp8_head_rocm_float16"),
    (Shape(0, 0, (*_BOTH, "float8_e5m2"), _S, bound=240, sources=_ANY), "sglang.kv_fp8 sglang.kv_fp8_number"),
    (Shape(0, 0, _BOTH, _S, bound=240, sources=_ANY), "sglang.kv_fp8_commit sglang.kv_fp8_commit_number"),
    (Shape(1, 128, _BOTH), "vllm.kv_fp8_token_head vllm.fp8_ds_mla vllm.fp8_indexer vllm.fp8_indexer_ue8m0"),
    (Shape(1, 128, ("int8",)), "vllm.kv_int8_token_head sglang.int8_group sglang.int8_group_triton"),
    (Shape(1, 128, _E4M3), "sglang.fp8_dsa"),
    (Shape(1, 16, ("float4_e2m1fn",), scale=_E4M3[0]), "vllm.nvfp4_ds_mla"),
    (Shape(1, 16, ("float4_e2m1fn",)), "aiter.nvfp4_triton"),
    (Shape(1, 16, ("float4_e2m1fn",), scale=_E8M0, sources=_ANY), "sglang.fp4_kv_block16_eager"),
    (Shape(1, 16, ("float4_e2m1fn",), scale=_E8M0), "sglang.fp4_kv_block16"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0, sources=_ANY), "sglang.mxfp4_util"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0), "sglang.mxfp4_rne aiter.mxfp4_triton aiter.mxfp4_hip"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0), "triton_kernels.mxfp4 triton_kernels.mxfp4_down"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0), "vllm.triton_kernels_mxfp4 vllm.triton_kernels_mxfp4_down"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0), "vllm.mxfp4_triton"),
    (Shape(1, 32, _CUDA, scale=_E8M0), "triton_kernels.mxfp8 triton_kernels.mxfp8_down"),
    (Shape(1, 32, _BOTH, scale=_E8M0, bound=240), "aiter.mxfp8_hip"),
    (Shape(1, 128, _E4M3, scale=_E8M0, sources=_HALVES[:1]), "sglang.fp8_group_ue8m0_bfloat16"),
    (Shape(1, 128, _E4M3, scale=_E8M0, sources=_HALVES[1:]), "sglang.fp8_group_ue8m0_float16"),
    (Shape(128, 1, _UINT4, scale="float16", ragged=True, sources=_HALVES[1:]), "vllm.uint4b8 vllm.uint4_zero_point"),
    (Shape(128, 1, _UINT4, scale="float16", ragged=True, sources=_HALVES[1:]), "awq.uint4"),
    (Shape(128, 1, _UINT4, scale="float16", ragged=True), "gptq.uint4_symmetric gptq.uint4_asymmetric"),
    (Shape(128, 1, _UINT4, scale="bfloat16", ragged=True, sources=_HALVES[:1]), f"{_WEIGHTS_BF16} awq.uint4_bf16"),
    (
        Shape(128, 1, _UINT4, scale="bfloat16", ragged=True),
        "gptq.uint4_symmetric_bf16 gptq.uint4_asymmetric_bf16",
    ),
    (
        Shape(1, 0, _BOTH, ("upper_bound",)),
        "vllm.fp8_per_token_dynamic_bounded vllm.fp8_native_token_bounded vllm.fp8_native_token_bounded_gpu",
    ),
    (Shape(1, 128, _BOTH, ragged=True), f"{_NATIVE} {_NATIVE}_ue8m0 {_NATIVE}_gpu {_NATIVE}_ue8m0_gpu"),
    (Shape(1, 128, _BOTH), f"{_GROUPS_OF_VLLM} {_GROUPS_OF_SGLANG} vllm.fp8_group_ue8m0_packed"),
    (Shape(1, 128, _BOTH, sources=_HALVES), "vllm.fp8_group_ue8m0_registers"),
    (Shape(1, 128, _E4M3, sources=_HALVES[:1]), "vllm.fp8_group_ue8m0_packed_bf16"),
    (Shape(1, 128, _E4M3), "sglang.fp8_group"),
    (
        Shape(128, 128, _E4M3, ragged=True),
        "vllm.fp8_block vllm.fp8_block_ue8m0 vllm.fp8_block_gpu vllm.fp8_block_ue8m0_gpu sglang.fp8_block_ue8m0 "
        "sglang.fp8_block_ue8m0_gpu",
    ),
    (Shape(0, 0, ("float8_e4m3fn", "float8_e5m2"), ("global_scale",)), "transformer_engine.fp8_delayed"),
    (Shape(1, 0, _UINT4), "vllm.int4_per_token_head"),
    (Shape(0, 0, ("int8",), _S), "vllm.int8_static_tensor"),
    (Shape(1, 0, ("int8",), _S), "vllm.int8_static_token"),
    (Shape(0, 0, ("int8",), ("scale", "zero_point")), "vllm.int8_static_azp"),
    (Shape(1, 0, ("int8",)), "aiter.int8_triton vllm.int8_per_token_dynamic vllm.int8_per_token_dynamic_azp"),
    (Shape(1, 0, ("int8",)), "sglang.int8_per_token vllm.int8_per_token_triton vllm.int8_rms_norm_token"),
    (Shape(1, 128, ("int8",)), "vllm.int8_group vllm.int8_group_triton"),
    (Shape(1, 32, _E4M3, scale=_E8M0), "ocp.mxfp8_e4m3 nvidia.mxfp8_e4m3"),
    (Shape(1, 32, _E4M3, scale=_E8M0), "vllm.mxfp8_torch vllm.mxfp8_triton sglang.mxfp8_kv"),
    (Shape(1, 32, ("float8_e5m2",), scale=_E8M0), "ocp.mxfp8_e5m2 nvidia.mxfp8_e5m2"),
    (Shape(1, 32, ("float6_e2m3fn",), scale=_E8M0), "ocp.mxfp6_e2m3"),
    (Shape(1, 32, ("float6_e3m2fn",), scale=_E8M0), "ocp.mxfp6_e3m2"),
    (Shape(1, 32, ("float4_e2m1fn",), scale=_E8M0), "ocp.mxfp4 vllm.mxfp4_cuda"),
    (Shape(1, 32, ("int8",), scale=_E8M0), "ocp.mxint8"),
    (Shape(1, 16, ("float4_e2m1fn",), scale="float8_e4m3fn"), "nvidia.nvfp4_divisor nvidia.nvfp4_multiplier"),
    (
        Shape(1, 16, ("float4_e2m1fn",), ("global_scale",), scale="float8_e4m3fn"),
        "vllm.nvfp4 vllm.nvfp4_emulated vllm.nvfp4_triton vllm.nvfp4_kv vllm.nvfp4_kv_over4 sglang.nvfp4_kv_sm90",
    ),
)
_FP4 = ("float4_e2m1fn",)
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_MX = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", *_FP4)
_BY_MANTISSA = {1: _FP4, 2: ("float8_e5m2", "float6_e3m2fn"), 3: ("float8_e4m3fn", "float6_e2m3fn")}
_FIRST = ("float32", "bfloat16")
_LIBRARIES: tuple[tuple[Shape, str], ...] = (
    (Shape(1, 32, _MX, scale=_E8M0), "torchao.mx_floor torchao.mx_ceil torchao.mx_rceil"),
    *((Shape(1, 32, to, scale=_E8M0), f"torchao.mx_even_{bits}") for bits, to in _BY_MANTISSA.items()),
    (Shape(1, 16, _FP4, scale=_E4M3[0]), "torchao.nvfp4 torchao.nvfp4_two_levels transformer_engine.nvfp4"),
    (Shape(1, 16, _FP4, ("global_scale",), scale=_E4M3[0]), "torchao.nvfp4_two_levels_given"),
    (Shape(1, 16, _FP4, scale=_E4M3[0], sources=_ANY), "compressed_tensors.nvfp4"),
    (Shape(1, 16, _FP4, scale=_E4M3[0]), "modelopt.nvfp4"),
    (Shape(1, 0, _FLOAT8, bound=240, sources=_ANY), "torchao.float8_row"),
    (Shape(0, 0, _FLOAT8, bound=240, sources=_ANY), "torchao.float8_tensor"),
    (Shape(1, 0, ("int8",), bound=127.5, sources=_ANY), "torchao.int8_row compressed_tensors.int8_channel"),
    (Shape(0, 0, ("int8",), bound=127.5, sources=_ANY), "compressed_tensors.int8_tensor"),
    (Shape(1, 0, ("int8",), sources=_ANY), "torchao.int8_row_asymmetric compressed_tensors.int8_token_asymmetric"),
    (Shape(1, 32, ("int4",), sources=_ANY), "torchao.int4_group"),
    (Shape(1, 128, ("int4",), sources=_ANY), "compressed_tensors.int4_group"),
    (Shape(1, 0, ("int4",), sources=_ANY), "compressed_tensors.int4_channel"),
    (Shape(1, 128, ("int4",), bound=7, sources=_ANY), "compressed_tensors.int4_group_asymmetric"),
    (Shape(0, 0, _E4M3, sources=_ANY), "compressed_tensors.fp8_tensor modelopt.fp8_tensor"),
    (Shape(1, 0, _E4M3, sources=_ANY), "compressed_tensors.fp8_token modelopt.fp8_channel"),
    (Shape(1, 128, _E4M3, sources=_ANY), "compressed_tensors.fp8_group_128"),
    (
        Shape(128, 128, _E4M3, ragged=True, sources=_ANY),
        "compressed_tensors.fp8_block modelopt.fp8_block",
    ),
    (Shape(0, 0, _E4M3, _S), "compressed_tensors.fp8_static_tensor"),
    (Shape(1, 0, _E4M3, _S), "compressed_tensors.fp8_static_channel"),
    (Shape(1, 32, _E4M3, scale=_E8M0, sources=_ANY), "compressed_tensors.mxfp8"),
    (Shape(1, 32, ("float6_e2m3fn",), scale=_E8M0, sources=_ANY), "compressed_tensors.mxfp6"),
    (Shape(1, 32, _FP4, scale=_E8M0, sources=_ANY), "compressed_tensors.mxfp4"),
    (Shape(1, 32, _E4M3, scale=_E8M0, ragged=True), "modelopt.mxfp8"),
    (Shape(1, 32, _FP4, scale=_E8M0), "modelopt.mxfp4 quark.mxfp4_even"),
    *((Shape(1, 32, _BY_MANTISSA[bits], scale=_E8M0), f"quark.mx_even_{bits}") for bits in (2, 3)),
    (Shape(1, 32, _MX, scale=_E8M0, sources=_FIRST), "quark.mx_floor quark.mx_ceil"),
    (Shape(1, 32, _MX, scale=_E8M0), "microxcaling.mx_nearest microxcaling.mx_even"),
    (Shape(1, 32, ("int8",), scale=_E8M0, sources=_FIRST), "quark.mxint8_even quark.mxint8_floor quark.mxint8_ceil"),
    (Shape(1, 32, ("int8",), scale=_E8M0), "microxcaling.mxint8_nearest microxcaling.mxint8_even"),
    (Shape(0, 0, _FLOAT8[:2]), "transformer_engine.fp8_current transformer_engine.fp8_current_power_of_two"),
    (Shape(1, 128, _FLOAT8[:2], ragged=True), "transformer_engine.fp8_block_1x128"),
    (Shape(128, 128, _FLOAT8[:2], ragged=True), "transformer_engine.fp8_block_128x128"),
)
SHAPES: Mapping[str, Shape] = {name: shape for shape, names in (*_TABLE, *_LIBRARIES) for name in names.split()}

#: what is given beside x, as codes: a grid of one for each block, or [1, 1]
Given = Mapping[str, Array]
FORMAT_OF = {"zero_point": "int32", "global_scale": "float32", "upper_bound": "float32"}


def derive(name: str, x: Array, source: str, format: str, given: Given, rule: Rule | None = None) -> dict[str, Array]:
    """All that a recipe returns for a matrix of ``source`` codes, as codes. ``rule`` replaces the recipe's own."""
    shape, rule = SHAPES[name], rule or SECOND[name]
    rows, columns = x.shape
    codes, places = np.zeros((rows, columns), np.uint32), shape.blocks(rows, columns)
    answers = []
    whole: dict[str, Number] = {}
    if name in OF_TENSOR:
        whole = OF_TENSOR[name]([decode(int(c), source) for c in x.ravel()], source)
    for i, (down, across) in enumerate(places):
        numbers = whole | {n: decode(_of_block(v, i), FORMAT_OF.get(n, "float32")) for n, v in given.items()}
        part = x[down, across]
        answers.append(rule([decode(int(c), source) for c in part.ravel()], source, format, numbers))
        codes[down, across] = np.array(answers[-1].codes, np.uint32).reshape(part.shape)
    grid = shape.grid(rows, columns)
    outputs = {"codes": codes}
    if whole:
        outputs["global_scale"] = np.full((1, 1), float32_bits(whole["global_scale"]), np.uint32)
    if "scale" not in shape.given:
        outputs["scale"] = np.array([a.scale for a in answers], np.uint32).reshape(grid)
    if answers and answers[0].zero_point is not None:
        outputs["zero_point"] = np.array([a.zero_point for a in answers], np.uint32).reshape(grid)
    return outputs


def _of_block(value: Array, block: int) -> int:
    return int(value.ravel()[block if value.size > 1 else 0])


def formats_of(name: str, format: str) -> dict[str, str]:
    """The formats of what ``derive`` gives."""
    return {"codes": format, "scale": SHAPES[name].scale, "global_scale": "float32", "zero_point": "int32"}


@cache
def _nans(format: str) -> Array:
    return np.array([decode(c, format).kind == "nan" for c in range(LAYOUTS[format].codes)])


def differ(got: Array, want: Array, format: str) -> npt.NDArray[np.bool_]:
    """Where two arrays of codes differ. NaN is a class: its sign and payload are no part of a recipe."""
    unequal: npt.NDArray[np.bool_] = got != want
    if not unequal.any() or LAYOUTS[format].is_integer:
        return unequal
    if LAYOUTS[format].codes > 256:
        magnitudes = (np.asarray(a, np.uint32) & np.uint32(LAYOUTS[format].sign_bit - 1) for a in (got, want))
        both = np.logical_and(*(m > np.uint32(LAYOUTS[format].infinity or 0) for m in magnitudes))
    else:
        last = LAYOUTS[format].codes - 1
        both = np.logical_and(*(_nans(format)[np.minimum(a, last)] & (a <= last) for a in (got, want)))
    return unequal & ~both


def unlike(got: Mapping[str, tuple[str, Array]], want: Mapping[str, Array], formats: Mapping[str, str]) -> list[str]:
    """The outputs, formats with codes, that are missing, of another shape or format, or differ somewhere."""
    found = [name for name in {**got, **want} if name not in got or name not in want]
    for name in sorted(got.keys() & want.keys()):
        format, codes = got[name]
        same_form = format == formats[name] and codes.shape == want[name].shape
        if not same_form or differ(codes, want[name], format).any():
            found.append(name)
    return found


def names_of(shape_names: Sequence[str]) -> list[tuple[str, str]]:
    """Each recipe with each of its destinations."""
    return [(name, format) for name in shape_names for format in SHAPES[name].formats]
