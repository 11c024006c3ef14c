# SPDX-License-Identifier: Apache-2.0
"""More wrong conversions: of blocks of fp8, and to 16 bits; see wrong_conversions."""

from __future__ import annotations

from typing import Any

import torch

from narrowgauge.suites.meta.mutant_kernels.wrong_conversions import WRONG, Tensors, coded, scale_of, values, wrong

__all__ = ["WRONG"]

# ---------------- blocks


def power_up(x: Any) -> Any:
    """The next power of two, as vLLM finds it."""
    return torch.exp2(torch.ceil(torch.log2(x)))


def block_amax(v: Any) -> Any:
    n, k = v.shape
    full = torch.zeros(-(-n // 128) * 128, -(-k // 128) * 128)
    full[:n, :k] = v.abs()
    return full.view(-1, 128, full.shape[1] // 128, 128).amax(dim=(1, 3))


def under(v: Any, scale: Any) -> Tensors:
    """Codes of blocks of 128 x 128 under their scales."""
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[: v.shape[0], : v.shape[1]]
    return {"codes": coded(v * (1 / wide)), "scale": scale}


@wrong("vllm.block_to_ue8m0", "the scale goes up to a power of two, the codes stay", "E8M011 transformers#47030, R20")
def powers_without_codes(given: Any) -> Tensors:
    return {"codes": given["codes"].clone(), "scale": power_up(given["scale"])}


@wrong("vllm.block_to_ue8m0", "the exponent is the nearest: half of the blocks are clipped", "E8M002 mlx#4353, R15")
def powers_nearest(given: Any) -> Tensors:
    v = values(given["codes"]) * scale_of(given)
    return under(v, torch.exp2(torch.log2(block_amax(v).clamp(1e-4) / 448).round()))


@wrong("vllm.block_to_ue8m0", "the exponent goes down", "E8M001 vllm#43557, R14")
def powers_down(given: Any) -> Tensors:
    v = values(given["codes"]) * scale_of(given)
    return under(v, torch.exp2(torch.log2(block_amax(v).clamp(1e-4) / 448).floor()))


@wrong("vllm.block_to_ue8m0", "the grid of scales is transposed", "LAYOUT06 vllm#44110, R28")
def grid_transposed(given: Any) -> Tensors:
    grid = given["scale"]
    v = values(given["codes"]) * scale_of({**given, "scale": grid.T.reshape(grid.shape)})
    return under(v, power_up(block_amax(v).clamp(1e-4) / 448))


@wrong("vllm.block_to_ue8m0", "a block is the matrix over the grid, not 128: ragged ends shift", "GRAN03, R29")
def blocks_by_division(given: Any) -> Tensors:
    v = values(given["codes"]) * scale_of({name: given[name] for name in ("codes", "scale")})
    return under(v, power_up(block_amax(v).clamp(1e-4) / 448))


@wrong("vllm.block_to_ue8m0", "values pass through bfloat16", "engines D.4, ROUND05 TensorRT-LLM#14464")
def powers_through_bfloat16(given: Any) -> Tensors:
    v = (values(given["codes"]) * scale_of(given)).to(torch.bfloat16).float()
    return under(v, power_up(block_amax(v).clamp(1e-4) / 448))


@wrong("block_to_channel", "a row takes its largest block scale, the codes stay", "GRAN01, R22")
def largest_of_the_row(given: Any) -> Tensors:
    return {"codes": given["codes"].clone(), "scale": scale_of(given).amax(dim=1, keepdim=True)}


@wrong("block_to_channel", "the first block of a row speaks for it", "GRAN03 sglang#39626, R24")
def first_block_of_the_row(given: Any) -> Tensors:
    v = values(given["codes"]) * scale_of(given)[:, :1]
    scale = v.nan_to_num(0.0, float("inf"), -float("inf")).abs().amax(dim=1, keepdim=True) / 448
    return {"codes": coded(v / torch.where(scale == 0, 1.0, scale)), "scale": torch.where(scale == 0, 1.0, scale)}


# ---------------- 16 bits


def counted(x: Any, codes: Any, over: Any, under: Any) -> Tensors:
    def first(where: Any) -> Any:
        return torch.where(where.any(1), where.int().argmax(1), -1).to(torch.int32)[:, None]

    count = {"overflowed": over, "flushed": under}
    return {
        "codes": codes.view(torch.int16),
        **{name: where.sum(1, keepdim=True).to(torch.int32) for name, where in count.items()},
        **{f"first_{name}": first(where) for name, where in count.items()},
    }


@wrong("float16_counted", "what is too large is held to 65504: nothing overflows", "RANGE1601 transformers#36822, R33")
def held_to_65504(given: Any) -> Tensors:
    x = given["x"].float()
    codes = x.clamp(-65504, 65504).half()
    return counted(x, codes, torch.isinf(codes) & ~torch.isinf(x), (codes == 0) & (x != 0))


@wrong("float16_counted", "subnormals of float16 are flushed", "RANGE1605 llama.cpp#17746, RANGE1606")
def subnormals_flushed(given: Any) -> Tensors:
    x = given["x"].float()
    codes = torch.where(x.abs() < 2.0**-14, torch.copysign(torch.zeros(()), x), x).half()
    return counted(x, codes, torch.isinf(codes) & ~torch.isinf(x), (codes == 0) & (x != 0))


@wrong("float16_counted", "bits are cut off, not rounded", "ROUND03 triton#8322, R9")
def cut_off(given: Any) -> Tensors:
    x = given["x"].float()
    cut = (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    codes = torch.where(torch.isnan(x), x, cut).half()
    return counted(x, codes, torch.isinf(codes) & ~torch.isinf(x), (codes == 0) & (x != 0))


@wrong("float16_counted", "infinity and NaN that were there are counted as overflow", "RANGE1603, checkpoints 0.3")
def old_infinities_counted(given: Any) -> Tensors:
    x = given["x"].float()
    codes = x.half()
    return counted(x, codes, ~torch.isfinite(codes), (codes == 0) & (x != 0))


@wrong("bfloat16_counted", "the low half of a float32 is cut off", "ROUND03 triton#9808, R9")
def low_half_cut_off(given: Any) -> Tensors:
    x = given["x"].float()
    cut = (x.view(torch.int32) & ~0xFFFF).view(torch.float32)
    codes = torch.where(torch.isnan(x), x, cut).to(torch.bfloat16)
    return counted(x, codes, torch.isinf(codes) & ~torch.isinf(x), (codes == 0) & (x != 0))
