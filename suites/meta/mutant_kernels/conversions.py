# SPDX-License-Identifier: Apache-2.0
"""The wrong conversions as kernels: what each is given and gives is turned into what its claim has; no more."""

from __future__ import annotations

import torch

from narrowgauge import Convert, kernel
from narrowgauge.suites.meta.mutant_kernels import wrong_blocks, wrong_fours
from narrowgauge.suites.meta.mutant_kernels.wrong_conversions import WRONG
from narrowgauge.suites.meta.mutant_kernels.wrong_fours import nibbles, packed

ALL = {**WRONG, **wrong_blocks.WRONG, **wrong_fours.WRONG}
E4M3, FNUZ, FP4 = "float8_e4m3fn", "float8_e4m3fnuz", "float4_e2m1fn"


def plain(run, x, beside):
    """fp8: bytes and scales; blocks are of 128 x 128 where a grid of scales comes."""
    given = {name: value.view(torch.uint8) if value.element_size() == 1 else value for name, value in beside.items()}
    if given["scale"].shape[0] not in (1, x.shape[0]) and "widths" not in given:
        given["blocks"] = torch.tensor([[128, 128]])
    made = dict(run({"codes": x.view(torch.uint8), **given}))
    if "input_scale" in given:
        made.setdefault("input_scale", given["input_scale"] * 2)
    return made


def to_four(run, x, beside):
    made = plain(run, x, {**beside, "blocks": torch.tensor([[128, 128]], dtype=torch.int32)})
    return {**made, "codes": nibbles(made["codes"]).to(torch.uint8)}


def sixteen(run, x, beside):
    return run({"x": x})


def nvfp4(run, x, beside):
    given = {**beside, "codes": packed(x.view(torch.uint8)), "scale": beside["scale"].view(torch.uint8)}
    made = run(given)
    return {name: nibbles(v).to(torch.uint8) if name == "codes" else v for name, v in made.items() if name != "widths"}


def words(run, x, beside):
    made = run({"qweight": x, "qzeros": beside["zero_point"], "scales": beside["scale"]})
    made = {"qweight": x, "scales": beside["scale"], **made}
    names = {"qweight": "codes", "qzeros": "zero_point", "scales": "scale", "g_idx": "g_idx"}
    return {names[name]: value for name, value in made.items()}


def integers(run, x, beside):
    codes = x.view(torch.uint8).to(torch.int8)
    return run({"codes": torch.where(codes > 7, codes - 16, codes).view(torch.uint8)})


def experts(run, x, beside):
    scales = beside["scale"].view(torch.uint8)
    made = run({"blocks": x.reshape(1, len(x), -1, 16), "scales": scales[None]})
    return {"codes": made["values"][0].contiguous()}


def parted(run, x, beside):
    """Gate and up as the mistake has them: a row's number is what is parted."""
    return {"codes": x.clone(), "scale": beside["scale"].clone()}


def tiles(run, x, beside):
    made = run({"scale": x.view(torch.uint8)})["scale"]
    return {"codes": made.reshape(-(-x.shape[0] // 128), -(-x.shape[1] // 4), 32, 16)}


def scale_alone(run, x, beside):
    return {"codes": run({"scale": x})["scale"]}


def seventeens(run, x, beside):
    scale = beside["scale"].view(torch.uint8)
    rows = torch.cat([scale[..., None], x.reshape(len(x), -1, 16)], dim=2)
    return run({"codes": rows.reshape(len(x), -1)})


#: conversion of the second derivation -> that of the claim, its format and source, and how buffers are turned
CLAIMS = {
    "ocp_to_fnuz": ("ocp_to_fnuz_channel", FNUZ, E4M3, plain),
    "ocp_to_fnuz_requantized": ("ocp_to_fnuz_requantized", FNUZ, E4M3, plain),
    "fnuz_to_ocp": ("fnuz_to_ocp", E4M3, FNUZ, plain),
    "ue8m0_to_fnuz": ("ue8m0_to_fnuz", FNUZ, E4M3, plain),
    "requantize_to_largest": ("requantize_to_largest", E4M3, E4M3, plain),
    "vllm.block_to_ue8m0": ("vllm.block_to_ue8m0", E4M3, E4M3, plain),
    "block_to_channel": ("block_to_channel", E4M3, E4M3, plain),
    "float16_counted": ("counted", "float16", "float32", sixteen),
    "bfloat16_counted": ("counted", "bfloat16", "float32", sixteen),
    "nvfp4_to_multiplier": ("nvfp4_to_multiplier", FP4, FP4, nvfp4),
    "nvfp4_one_global": ("nvfp4_one_global", FP4, FP4, nvfp4),
    "awq_to_gptq": ("awq_to_gptq", "uint4", "uint4", words),
    "gptq_v1_to_v2": ("gptq_v1_to_v2", "uint4", "uint4", words),
    "compressed_tensors_int4": ("compressed_tensors.int4_packed", "uint4", "int4", integers),
    "gpt_oss": ("gpt_oss_to_bfloat16", "bfloat16", FP4, experts),
    "swizzle_128x4": ("plain_to_scales_128x4", "float8_e8m0fnu", "float8_e8m0fnu", tiles),
    "compressed_tensors.scale_to_e8m0": (
        "compressed_tensors.scale_to_e8m0", "float8_e8m0fnu", "float32", scale_alone,
    ),
    "quark_mx_to_mxfp4": ("quark_mx_to_mxfp4", FP4, FP4, seventeens),
    "sglang.block_to_mxfp4_rocm": ("sglang.block_to_mxfp4_rne", FP4, E4M3, to_four),
}  # fmt: skip


def _kernel(name, one):
    conversion, format_name, source, turn = CLAIMS[one.of]
    if name == "gate_and_up_as_halves":
        conversion, format_name, turn = "gpt_oss_parted", FP4, parted

    def function(x, format, **beside):
        return turn(one.run, x, beside)

    function.__name__ = f"wrong_{name}"
    return kernel(Convert(conversion), [format_name], [source])(function)


for _name, _one in ALL.items():
    globals()[f"wrong_{_name}"] = _kernel(_name, _one)
