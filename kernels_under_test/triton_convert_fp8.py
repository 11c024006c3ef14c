"""Converters of float8 weights: to another granularity, to one scale for fused shards, to powers of two, to FNUZ."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from narrowgauge import Convert, kernel
from narrowgauge.kernels_under_test.claiming import E4M3, FNUZ, FP4
from narrowgauge.kernels_under_test.convert_checks import check_codes, check_scale, grid_of, of_rows
from narrowgauge.kernels_under_test.triton_codec import block_of, encode
from narrowgauge.kernels_under_test.triton_dequantize import read
from narrowgauge.kernels_under_test.triton_quantize import input_to_float8, times_inverse
from narrowgauge.kernels_under_test.triton_quantize_given import divided, vllm
from narrowgauge.kernels_under_test.triton_quantize_groups import sglang_weight_block_power, vllm_weight_block_power
from narrowgauge.kernels_under_test.triton_steps import bits, even_power, over, stored_power_down, zero_to
from narrowgauge.kernels_under_test.triton_targets import OWN_BOUNDS
from narrowgauge.kernels_under_test.triton_tiling import amax_by_blocks, by_blocks, by_groups, by_tensor, by_tiles

WIDE = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def converter(conversion, formats=E4M3, sources=E4M3):
    return kernel(Convert(conversion), formats, sources, owner="narrowgauge", conversion="soft")


def values(x, source, scale, rows, columns, through="float32"):
    """What codes stand for, in a wide format."""
    check_codes(x)
    check_scale("scale", scale, grid_of(x, rows, columns))
    return read(x, through, source, scale, rows, columns).view(WIDE[through])


# --- another granularity ---------------------------------------------------------------------------------------------


@triton.jit
def plain(x, amax, bound):
    scale = zero_to(over(amax, bound), 1.0)
    return scale, over(x, scale)


@triton.jit
def sglang_even(x, amax, bound):
    """amax counts from 1.75 of a power on as the next one; NaN and infinity have the largest. The bits of a NaN stay as
    they are: those that a maximum would give it may carry into the sign."""
    normal = tl.where(amax < 1.1754943508222875e-38, 1.1754943508222875e-38, amax)
    power = tl.minimum(even_power(normal) * 0.25, 1.7014118346046923e38)
    code, stored = stored_power_down(power)  # of the smallest amax another one: no code stands for 2^-128
    return code, over(x, stored)


@triton.jit
def to_e2m1_nan_zero(value):
    return encode(bits(value), 1, 1, 7, 8, 7, 7, 0, 0, False)


def _scaled(codes, scale):
    return {"codes": codes, "scale": scale}


@converter("block_to_channel")
def triton_block_to_channel(x, format, source, scale):
    return _scaled(*by_groups(values(x, source, scale, 128, 128), plain, format))


@converter("channel_to_block")
def triton_channel_to_block(x, format, source, scale):
    made = values(x, source, scale, 1, 0)
    return _scaled(*by_blocks(made, amax_by_blocks(made, 128, 128), plain, format, 128, 128, stored=torch.float32))


@converter("sglang.block_to_tensor")
def triton_block_to_tensor(x, format, source, scale):
    return _scaled(*by_tensor(values(x, source, scale, 128, 128), times_inverse, format))


@converter("sglang.block_to_tensor_torch")
def triton_block_to_tensor_as_torch(x, format, source, scale):
    made = values(x, source, scale, 128, 128)
    return _scaled(*by_tensor(made, input_to_float8, format, nan="keep", bound=OWN_BOUNDS[format]))


@converter("sglang.channel_to_tensor")
def triton_channel_to_tensor(x, format, source, scale):
    return _scaled(*by_tensor(values(x, source, scale, 1, 0), times_inverse, format))


@converter("vllm.block_to_ue8m0")
def triton_vllm_block_to_ue8m0(x, format, source, scale):
    return _scaled(*by_tiles(values(x, source, scale, 128, 128), vllm_weight_block_power, format))


@converter("sglang.block_to_ue8m0")
def triton_sglang_block_to_ue8m0(x, format, source, scale):
    return _scaled(*by_tiles(values(x, source, scale, 128, 128, "bfloat16"), sglang_weight_block_power, format))


@converter("sglang.block_to_mxfp4_rne", FP4)
def triton_block_to_mxfp4(x, format, source, scale):
    made = values(x, source, scale, 128, 128)
    return _scaled(*by_groups(made, sglang_even, format, 32, nan="keep", stored=torch.uint8, code=to_e2m1_nan_zero))


@converter("ocp_to_fnuz_requantized", FNUZ)
def triton_ocp_to_fnuz_requantized(x, format, source, scale):
    return _scaled(*by_tensor(values(x, source, scale, 0, 0), plain, format, bound=OWN_BOUNDS[format]))


@converter("fnuz_to_ocp_requantized", E4M3, FNUZ)
def triton_fnuz_to_ocp_requantized(x, format, source, scale):
    return _scaled(*by_tensor(values(x, source, scale, 0, 0), plain, format, bound=OWN_BOUNDS[format]))


# --- fused shards ----------------------------------------------------------------------------------------------------


def merged(x, source, format, own, scale, through, recipe, bound=None):
    largest = scale.max().reshape(1, 1)
    made = read(x, through, source, own, 1, 0).view(WIDE[through])
    return {"codes": by_blocks(made, largest, recipe, format, 0, 0, bound=bound), "scale": largest}


def unless_loaded_once(x, scale, found):
    """The codes as they came where the last shard's scale was never loaded."""
    # narrowgauge: ignore[max_448] what vLLM compares with, whatever the flavour
    loaded = scale[-1] > -448.0
    return {**found, "codes": torch.where(loaded, found["codes"], x.view(torch.uint8))}


@converter("requantize_to_largest")
def triton_requantize_to_largest(x, format, source, scale, widths):
    own = of_rows("scale", scale, widths, x)
    return merged(x, source, format, own, scale, "float32", divided)


@converter("requantize_to_largest", FNUZ, FNUZ)
def triton_requantize_to_largest_fnuz(x, format, source, scale, widths):
    own = of_rows("scale", scale, widths, x)
    return merged(x, source, format, own, scale, "float32", divided, OWN_BOUNDS[format])


@converter("vllm.requantize_to_largest")
def triton_vllm_requantize_to_largest(x, format, source, scale, widths):
    own = of_rows("scale", scale, widths, x).half().float()
    return unless_loaded_once(x, scale, merged(x, source, format, own, scale, "float16", vllm))


@converter("vllm.requantize_to_largest_cpu")
def triton_vllm_requantize_to_largest_cpu(x, format, source, scale, widths):
    own = of_rows("scale", scale, widths, x)
    return unless_loaded_once(x, scale, merged(x, source, format, own, scale, "float16", vllm))


# --- by bytes --------------------------------------------------------------------------------------------------------


@triton.jit
def ocp_to_fnuz(code):
    """-0 is 0, and NaN is 0x80."""
    return tl.where((code & 0x7F) == 0x7F, 0x80, tl.where(code == 0x80, 0, code))


@triton.jit
def vllm_ocp_to_fnuz(code):
    return tl.where(code == 0x80, 0, code)


@triton.jit
def fnuz_to_ocp(code):
    """NaN is 0x7F; what is beyond the largest is the largest."""
    return tl.where(code == 0x80, 0x7F, tl.where((code & 0x7F) == 0x7F, code - 1, code))


@triton.jit
def one_more(code):
    return tl.minimum(code + 1, 255)


@triton.jit
def vllm_one_more(code):
    return tl.minimum(code + 1, 254)


@triton.jit
def each_byte(x, out, count, MAP: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(x + place, place < count, other=0).to(tl.int32)
    tl.store(out + place, MAP(code).to(tl.uint8), place < count)


def mapped(x, map):
    """Each byte by a function of bytes."""
    codes = x.contiguous().view(torch.uint8)
    out = torch.empty_like(codes)
    if out.numel():
        block = block_of(out.numel())
        each_byte[(triton.cdiv(out.numel(), block),)](codes, out, out.numel(), map, block)
    return out


def to_fnuz(x, scale, input_scale, rows, columns, map=ocp_to_fnuz):
    check_codes(x)
    check_scale("scale", scale, grid_of(x, rows, columns))
    check_scale("input_scale", input_scale, (1, 1))
    return {"codes": mapped(x, map), "scale": scale * 2, "input_scale": input_scale * 2}


@converter("ocp_to_fnuz_tensor", FNUZ)
def triton_ocp_to_fnuz_tensor(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 0, 0)


@converter("ocp_to_fnuz_channel", FNUZ)
def triton_ocp_to_fnuz_channel(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 1, 0)


@converter("ocp_to_fnuz_block", FNUZ)
def triton_ocp_to_fnuz_block(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 128, 128)


@converter("vllm.ocp_to_fnuz_tensor", FNUZ)
def triton_vllm_ocp_to_fnuz_tensor(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 0, 0, vllm_ocp_to_fnuz)


@converter("vllm.ocp_to_fnuz_channel", FNUZ)
def triton_vllm_ocp_to_fnuz_channel(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 1, 0, vllm_ocp_to_fnuz)


@converter("vllm.ocp_to_fnuz_block", FNUZ)
def triton_vllm_ocp_to_fnuz_block(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 128, 128, vllm_ocp_to_fnuz)


@converter("fnuz_to_ocp", E4M3, FNUZ)
def triton_fnuz_to_ocp(x, format, scale):
    check_codes(x)
    check_scale("scale", scale, (1, 1))
    return {"codes": mapped(x, fnuz_to_ocp), "scale": scale / 2}


@converter("ue8m0_to_fnuz", FNUZ)
def triton_ue8m0_to_fnuz(x, format, scale):
    check_codes(x)
    check_scale("scale", scale, grid_of(x, 1, 32), torch.float8_e8m0fnu)
    return {"codes": mapped(x, ocp_to_fnuz), "scale": mapped(scale, one_more)}


@converter("vllm.ue8m0_to_fnuz", FNUZ)
def triton_vllm_ue8m0_to_fnuz(x, format, scale):
    check_codes(x)
    check_scale("scale", scale, grid_of(x, 1, 32), torch.float8_e8m0fnu)
    return {"codes": mapped(x, vllm_ocp_to_fnuz), "scale": mapped(scale, vllm_one_more)}
