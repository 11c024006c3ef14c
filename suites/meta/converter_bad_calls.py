# SPDX-License-Identifier: Apache-2.0
"""Bad calls of our converters, made in a process of its own; prints what came of each as JSON.

``python -m narrowgauge.suites.meta.converter_bad_calls``. A call is a good one with one thing wrong. Triton kernels run
in Triton's interpreter, torch ones on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from narrowgauge.suites.meta.kv_bad_sets import Call, Change, tell

if TYPE_CHECKING:  # who imports this module is not to load torch
    import torch


def codes(rows: int = 256, columns: int = 256, of: str = "float8_e4m3fn") -> torch.Tensor:
    import torch

    return torch.zeros((rows, columns), dtype=torch.uint8).view(getattr(torch, of))


def scales(rows: int, columns: int, of: str = "float32") -> torch.Tensor:
    import torch

    if of == "float8_e8m0fnu":
        return torch.full((rows, columns), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    return torch.full((rows, columns), 0.5, dtype=getattr(torch, of))


def widths(*rows: int, of: str = "int32") -> torch.Tensor:
    import torch

    return torch.tensor(rows, dtype=getattr(torch, of))[:, None]


def words(rows: int, columns: int, of: str = "int32") -> torch.Tensor:
    import torch

    return torch.zeros((rows, columns), dtype=getattr(torch, of))


def good() -> dict[str, tuple[Callable[..., Any], Call]]:
    """A converter of each kind, and a good call of it."""
    from narrowgauge.kernels_under_test import torch_convert, triton_convert_fp8, triton_convert_packed

    fp8, fnuz = "float8_e4m3fn", "float8_e4m3fnuz"
    block: Call = {"x": codes(), "scale": scales(2, 2)}
    bytewise = {**block, "format": fnuz, "input_scale": scales(1, 1)}
    int4: Call = {"x": words(256, 2), "format": "uint4", "scale": scales(2, 16, "float16"), "zero_point": words(2, 2)}
    shards: Call = {"x": codes(), "format": fp8, "source": fp8, "scale": scales(3, 1), "widths": widths(128, 64, 64)}
    four = codes(of="uint8")
    fp4: Call = {"x": four, "format": "float4_e2m1fn", "scale": scales(256, 16).to(codes().dtype)}
    return {
        "block_to_channel": (triton_convert_fp8.triton_block_to_channel, {**block, "format": fp8, "source": fp8}),
        "to_fnuz": (triton_convert_fp8.triton_ocp_to_fnuz_block, bytewise),
        "torch_to_fnuz": (torch_convert.torch_ocp_to_fnuz_block, bytewise),
        "exponents": (
            triton_convert_fp8.triton_ue8m0_to_fnuz,
            {"x": codes(), "format": fnuz, "scale": scales(256, 8, "float8_e8m0fnu")},
        ),
        "shards": (triton_convert_fp8.triton_requantize_to_largest, shards),
        "one_global": (
            torch_convert.torch_nvfp4_one_global,
            {**fp4, "global_scale": scales(3, 1), "widths": widths(128, 64, 64)},
        ),
        "awq": (triton_convert_packed.triton_awq_to_gptq, int4),
        "gptq": (triton_convert_packed.triton_gptq_v1_to_v2, {**int4, "x": words(32, 16)}),
        "parted": (
            torch_convert.torch_gpt_oss_parted,
            {"x": codes(256, 128, "uint8"), "format": "float4_e2m1fn", "scale": scales(256, 8, "float8_e8m0fnu")},
        ),
        "renamed": (
            torch_convert.torch_without_inv, {"x": codes(), "format": fp8, "weight_scale_inv": scales(2, 2)},
        ),
    }  # fmt: skip


SCALED = ("block_to_channel", "to_fnuz", "torch_to_fnuz")
MATRICES = (*SCALED, "exponents", "shards", "one_global", "awq", "gptq", "parted", "renamed")
MERGED = ("shards", "one_global")
PACKED = ("awq", "gptq")
RIGHT: dict[str, Change] = {"as_it_is": lambda call: {}}
WRONG: dict[str, tuple[Collection[str], Change]] = {
    "three_axes": (MATRICES, lambda call: {"x": call["x"][None]}),
    "scale_of_another_type": (SCALED, lambda call: {"scale": call["scale"].double()}),
    "scale_of_other_blocks": (SCALED, lambda call: {"scale": scales(3, 2)}),
    "scale_without_an_axis": (SCALED, lambda call: {"scale": scales(2, 2)[0]}),
    "input_scale_of_rows": (SCALED[1:], lambda call: {"input_scale": scales(2, 1)}),
    "exponents_of_other_groups": (("exponents",), lambda call: {"scale": scales(256, 4, "float8_e8m0fnu")}),
    "exponents_as_numbers": (("exponents",), lambda call: {"scale": scales(256, 8)}),
    "rows_missing": (MERGED, lambda call: {"widths": widths(128, 64, 32)}),
    "negative_width": (MERGED, lambda call: {"widths": widths(256, -64, 64)}),
    "widths_of_another_type": (MERGED, lambda call: {"widths": widths(128, 64, 64, of="int64")}),
    "scale_of_fewer_shards": (("shards",), lambda call: {"scale": scales(2, 1)}),
    "global_scale_of_fewer_shards": (("one_global",), lambda call: {"global_scale": scales(2, 1)}),
    "rows_in_no_groups": (("awq",), lambda call: {"x": words(250, 2)}),
    "scale_of_other_groups": (PACKED, lambda call: {"scale": scales(1, 16, "float16")}),
    "zeros_of_other_groups": (PACKED, lambda call: {"zero_point": words(1, 2)}),
    "zeros_as_bytes": (PACKED, lambda call: {"zero_point": words(2, 16, "int8")}),
    "odd_rows": (("parted",), lambda call: {"x": call["x"][:255]}),
    "inv_of_other_blocks": (("renamed",), lambda call: {"weight_scale_inv": scales(2, 3)}),
}

if __name__ == "__main__":
    tell(good, RIGHT, WRONG, MATRICES)
