# SPDX-License-Identifier: Apache-2.0
"""More wrong conversions: of four bits, MX, NVFP4 and swizzles; see wrong_conversions."""

from __future__ import annotations

from typing import Any

import torch

from narrowgauge.suites.meta.mutant_kernels.wrong_conversions import WRONG, Tensors, coded, scale_of, values, wrong

__all__ = ["WRONG"]

_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
_AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def nibbles(packed: Any) -> Any:
    return torch.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1).long()


def packed(codes: Any) -> Any:
    return (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)


def to_e2m1(x: Any) -> Any:
    """Nearest even, by distances."""
    distance = (x.abs().unsqueeze(-1) - _E2M1[:8]).abs()
    even = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1]) * 1e-12
    return distance.double().add(even).argmin(-1) + 8 * torch.signbit(x)


# ---------------- NVFP4


@wrong("nvfp4_to_multiplier", "the reciprocal is not taken", "SCALEALG05 modular#6600, R21")
def global_as_it_is(given: Any) -> Tensors:
    return dict(given)


@wrong("nvfp4_to_multiplier", "the reciprocal, and the block scales multiplied by it too", "SCALEALG01 vllm#48016")
def global_applied_twice(given: Any) -> Tensors:
    one = 1 / given["global_scale"]
    return {**given, "scale": coded(values(given["scale"]) * one[0]), "global_scale": one}


def _own(given: Any) -> Any:
    return given["global_scale"].ravel().repeat_interleave(given["widths"].ravel())[:, None]


@wrong("nvfp4_one_global", "block scales stay as they are: a shard is larger by the ratio", "GRAN01 vllm#54974, R22")
def blocks_not_rescaled(given: Any) -> Tensors:
    return {**given, "global_scale": given["global_scale"].max().reshape(1, 1)}


@wrong("nvfp4_one_global", "block scales are divided by the ratio", "GRAN02 vllm#47972, R22")
def ratio_inverted(given: Any) -> Tensors:
    one = given["global_scale"].max()
    return {**given, "scale": coded(values(given["scale"]) * (one / _own(given))), "global_scale": one.reshape(1, 1)}


@wrong("nvfp4_one_global", "block scales are rounded anew, codes stay", "E8M011 transformers#47030, R20")
def codes_not_requantized(given: Any) -> Tensors:
    one = given["global_scale"].max()
    return {**given, "scale": coded(values(given["scale"]) * (_own(given) / one)), "global_scale": one.reshape(1, 1)}


@wrong("nvfp4_one_global", "the smallest global is taken: blocks are clipped", "GRAN01, R22")
def one_global_smallest(given: Any) -> Tensors:
    one = given["global_scale"].min()
    scale = coded(values(given["scale"]) * (_own(given) / one))
    return {**given, "scale": scale, "global_scale": one.reshape(1, 1)}


# ---------------- four bits in words


def unpacked(words: Any, order: Any = range(8)) -> Any:
    """[R, C] words -> [R, 8 C] codes."""
    codes = torch.empty(*words.shape, 8, dtype=torch.int64)
    for place, column in enumerate(order):
        codes[..., column] = words.long() >> 4 * place & 15
    return codes.reshape(words.shape[0], -1)


def along_columns(codes: Any) -> Any:
    wide = (codes.reshape(codes.shape[0], -1, 8) << torch.arange(0, 32, 4)).sum(-1)
    return wide.to(torch.uint32).view(torch.int32)


def along_rows(codes: Any) -> Any:
    return along_columns(codes.T.contiguous()).T.contiguous()


def _gptq(given: Any, codes: Any, zeros: Any) -> Tensors:
    k = codes.shape[0]
    return {
        "qweight": along_rows(codes),
        "qzeros": zeros if zeros.dtype == torch.int32 else along_columns(zeros),
        "scales": given["scales"],
        "g_idx": (torch.arange(k) // (k // given["qzeros"].shape[0])).to(torch.int32)[:, None],
    }


@wrong("awq_to_gptq", "AWQ's order of nibbles is not undone", "LAYOUT02 kekzl/imp#567, LAYOUT03 triton#5197, R26")
def awq_order_forgotten(given: Any) -> Tensors:
    return _gptq(given, unpacked(given["qweight"]), (unpacked(given["qzeros"]) - 1) & 15)


@wrong("awq_to_gptq", "the order is undone in the other direction", "LAYOUT02, R26")
def awq_order_reversed(given: Any) -> Tensors:
    other = (0, 4, 1, 5, 2, 6, 3, 7)
    return _gptq(given, unpacked(given["qweight"], other), (unpacked(given["qzeros"], other) - 1) & 15)


@wrong("awq_to_gptq", "zero points are stored as they are under v1", "LAYOUT04 vllm#38966, R27")
def awq_zeros_as_they_are(given: Any) -> Tensors:
    return _gptq(given, unpacked(given["qweight"], _AWQ), unpacked(given["qzeros"], _AWQ))


@wrong("awq_to_gptq", "1 is taken from the whole word: a zero borrows from its neighbour", "LAYOUT05 GPTQModel#2350")
def awq_zeros_borrow(given: Any) -> Tensors:
    word = along_columns(unpacked(given["qzeros"], _AWQ)).long() - 0x11111111
    return _gptq(given, unpacked(given["qweight"], _AWQ), (word & 0xFFFFFFFF).to(torch.uint32).view(torch.int32))


@wrong("gptq_v1_to_v2", "1 is added to the whole word: 15 carries into its neighbour", "LAYOUT05, R27")
def zeros_carry(given: Any) -> Tensors:
    return {"qzeros": (given["qzeros"].long() + 0x11111111 & 0xFFFFFFFF).to(torch.uint32).view(torch.int32)}


@wrong("gptq_v1_to_v2", "the tag changes, the zero points do not", "LAYOUT04 vllm#38966, R27")
def zeros_untouched(given: Any) -> Tensors:
    return {"qzeros": given["qzeros"].clone()}


@wrong("gptq_v1_to_v2", "1 is taken away where it is to be added", "LAYOUT04, R27")
def zeros_the_other_way(given: Any) -> Tensors:
    return {"qzeros": along_columns((unpacked(given["qzeros"]) - 1) & 15)}


@wrong("compressed_tensors_int4", "two's complement is packed, not q + 8", "LAYOUT04, engines D.5")
def not_offset(given: Any) -> Tensors:
    codes = given["codes"].view(torch.int8).long() & 15
    full = torch.zeros(codes.shape[0], -(-codes.shape[1] // 8) * 8, dtype=torch.int64)
    full[:, : codes.shape[1]] = codes
    return {"codes": along_columns(full)}


# ---------------- MX, gpt-oss, swizzles


def _experts(given: Any, codes: Any, factor: Any) -> Tensors:
    v = (_E2M1[codes].double() * factor.double()[..., None]).float()
    made = v.reshape(*codes.shape[:2], -1).to(torch.bfloat16).transpose(1, 2)
    return {"values": made, "gate": made[..., 0::2], "up": made[..., 1::2]}


def _exponent(scales: Any) -> Any:
    return torch.where(scales == 255, torch.nan, torch.exp2(scales.double() - 127))


@wrong("gpt_oss", "the high nibble is the first", "LAYOUT02 kekzl/imp#567, LAYOUT03 triton#5197, R26")
def high_nibble_first(given: Any) -> Tensors:
    blocks = given["blocks"]
    return _experts(given, nibbles(blocks >> 4 | blocks << 4), _exponent(given["scales"]))


@wrong("gpt_oss", "the scale is taken for a number", "E8M009 sglang#19948, R19")
def scales_as_numbers(given: Any) -> Tensors:
    return _experts(given, nibbles(given["blocks"]), given["scales"])


@wrong("gpt_oss", "the scale is shifted into place: 0 becomes 0, 255 infinity", "E8M006 triton#11624, E8M007, R11")
def scales_by_shift(given: Any) -> Tensors:
    factor = (given["scales"].to(torch.int32) << 23).view(torch.float32)
    return _experts(given, nibbles(given["blocks"]), factor)


@wrong("gpt_oss", "the rows of gate and up are halves", "checkpoints B5, GRAN01")
def gate_and_up_as_halves(given: Any) -> Tensors:
    right = _experts(given, nibbles(given["blocks"]), _exponent(given["scales"]))
    made = right["values"]
    return {"values": made, "gate": made[..., : made.shape[2] // 2], "up": made[..., made.shape[2] // 2 :]}


@wrong("gpt_oss", "split halves: byte j holds elements j and j + 16", "LAYOUT02 kekzl/imp#567, R26")
def split_nibbles(given: Any) -> Tensors:
    blocks = given["blocks"]
    return _experts(given, torch.cat([blocks & 15, blocks >> 4], -1).long(), _exponent(given["scales"]))


def swizzled(scale: Any, fill: int = 0) -> Any:
    """[M, K] -> [1, bytes] in tiles of 128 x 4."""
    m, k = scale.shape
    full = torch.full((-(-m // 128) * 128, -(-k // 4) * 4), fill, dtype=torch.uint8)
    full[:m, :k] = scale
    tiles = full.view(-1, 4, 32, full.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(1, -1)


@wrong("swizzle_128x4", "it is forgotten: padded and left in rows", "LAYOUT01 vllm#50084, LAYOUT08, R25")
def swizzle_forgotten(given: Any) -> Tensors:
    m, k = given["scale"].shape
    full = torch.zeros(-(-m // 128) * 128, -(-k // 4) * 4, dtype=torch.uint8)
    full[:m, :k] = given["scale"]
    return {"scale": full.reshape(1, -1)}


@wrong("swizzle_128x4", "it is done twice, as when weights are loaded again", "STATE03 sglang#28963, SCALEALG05")
def swizzle_twice(given: Any) -> Tensors:
    m, k = given["scale"].shape
    return {"scale": swizzled(swizzled(given["scale"]).reshape(-(-m // 128) * 128, -(-k // 4) * 4))}


@wrong("swizzle_128x4", "what is padded is left as memory was", "PADTAIL09 TransformerEngine#3070, R29")
def swizzle_pads_unwritten(given: Any) -> Tensors:
    return {"scale": swizzled(given["scale"], 0xFF)}


@wrong("compressed_tensors.scale_to_e8m0", "to the nearest exponent", "E8M005 pytorch/ao#4725, R16")
def exponent_rounded(given: Any) -> Tensors:
    log = torch.log2(given["scale"]).round()
    return {"scale": (127 + log.to(torch.int32)).to(torch.uint8)}


@wrong("quark_mx_to_mxfp4", "the logarithm is taken for a byte with the bias in it", "checkpoints B4, E8M009")
def logarithm_without_bias(given: Any) -> Tensors:
    rows = given["codes"].reshape(given["codes"].shape[0], -1, 17)
    return {"codes": rows[..., 1:].reshape(len(rows), -1), "scale": rows[..., 0].clone()}


# ---------------- fp8 to MXFP4


@wrong("sglang.block_to_mxfp4_rocm", "ties go away from zero", "ROUND04 ROCm/aiter#3992, R10")
def ties_away(given: Any) -> Tensors:
    return _mxfp4(given, lambda y: to_e2m1(y * (1 + 2.0**-20)), 0x200000)


@wrong("sglang.block_to_mxfp4_rocm", "the exponent is that of amax alone: up to 8 where 6 is the most", "E8M001, R14")
def amax_not_rounded(given: Any) -> Tensors:
    return _mxfp4(given, to_e2m1, 0)


def _mxfp4(given: Any, cast: Any, added: int) -> Tensors:
    v = values(given["codes"]) * scale_of(given)
    x = v.reshape(v.shape[0], -1, 32)
    bits = x.abs().amax(-1, keepdim=True).clamp_min(2.0**-126).view(torch.int32) + added & 0x7F800000
    exponent = (torch.log2(bits.view(torch.float32)) - 2).clamp(-127, 127)
    codes = cast((x / torch.exp2(exponent)).clamp(-6, 6))
    codes = torch.where(codes == 8, 0, codes).reshape(v.shape)
    return {"codes": packed(codes), "scale": (exponent[..., 0] + 127).to(torch.uint8)}
