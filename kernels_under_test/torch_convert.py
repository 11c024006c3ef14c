"""Converters by torch's own operations: those of a few lines, and those that need float64."""

from __future__ import annotations

import torch

from narrowgauge import Convert, kernel
from narrowgauge.kernels_under_test.claiming import BFLOAT16, E4M3, FNUZ, FP4
from narrowgauge.kernels_under_test.convert_checks import check_codes, check_scale, grid_of, of_rows

E8M0 = ("float8_e8m0fnu",)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NEGATIVE_ZERO, NAN = 0x80, 0x7F


def converter(conversion, formats, sources):
    return kernel(Convert(conversion), formats, sources, owner="narrowgauge", backend="torch", conversion="soft")


# --- OCP and FNUZ ----------------------------------------------------------------------------------------------------


def bytes_to_fnuz(codes):
    """0x80 becomes 0, and what is NaN stays NaN, which is 0x80 there."""
    bits = codes.view(torch.uint8)
    zeros = torch.where(bits == NEGATIVE_ZERO, torch.zeros_like(bits), bits)
    return torch.where((bits & 0x7F) == NAN, torch.full_like(bits, NEGATIVE_ZERO), zeros)


def to_fnuz(x, scale, input_scale, rows, columns):
    check_codes(x)
    check_scale("scale", scale, grid_of(x, rows, columns))
    check_scale("input_scale", input_scale, (1, 1))
    return {"codes": bytes_to_fnuz(x), "scale": scale * 2, "input_scale": input_scale * 2}


@converter("ocp_to_fnuz_tensor", FNUZ, E4M3)
def torch_ocp_to_fnuz(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 0, 0)


@converter("ocp_to_fnuz_channel", FNUZ, E4M3)
def torch_ocp_to_fnuz_channel(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 1, 0)


@converter("ocp_to_fnuz_block", FNUZ, E4M3)
def torch_ocp_to_fnuz_block(x, format, scale, input_scale):
    return to_fnuz(x, scale, input_scale, 128, 128)


@converter("fnuz_to_ocp", E4M3, FNUZ)
def torch_fnuz_to_ocp(x, format, scale):
    check_codes(x)
    check_scale("scale", scale, (1, 1))
    bits = x.view(torch.uint8)
    nearest = torch.where((bits & 0x7F) == NAN, bits - 1, bits)
    return {"codes": torch.where(bits == NEGATIVE_ZERO, torch.full_like(bits, NAN), nearest), "scale": scale / 2}


# --- fused shards ----------------------------------------------------------------------------------------------------


@converter("vllm.nvfp4_largest_divisor", FP4, FP4)
def torch_nvfp4_largest_divisor(x, format, scale, global_scale, widths):
    of_rows("global_scale", global_scale, widths, x)
    return {"codes": x, "scale": scale, "global_scale": (1.0 / global_scale.max()).reshape(1, 1)}


@converter("vllm.nvfp4_largest_multiplier", FP4, FP4)
def torch_nvfp4_largest_multiplier(x, format, scale, global_scale, widths):
    of_rows("global_scale", global_scale, widths, x)
    return {"codes": x, "scale": scale, "global_scale": global_scale.max().reshape(1, 1)}


@converter("nvfp4_one_global", FP4, FP4)
def torch_nvfp4_one_global(x, format, scale, global_scale, widths):
    """In float64, where all products are exact and a quotient rounds to the right code."""
    own = of_rows("global_scale", global_scale, widths, x).double()
    common, old = own.new_tensor(global_scale.max().double()), scale.double()
    stored = nearest_e4m3(old * own / common)
    kept = (old == 0) | old.isnan()
    new = stored.double() * common
    code, spread = _e2m1(x), [v.repeat_interleave(16, 1)[:, : x.shape[1]] for v in (old * own, new, kept)]
    ratio = code * spread[0] / spread[1]
    codes = torch.where(spread[1] == 0, x.view(torch.uint8) & 8, nearest_e2m1(ratio, code))
    return {
        "codes": torch.where(spread[2], x.view(torch.uint8), codes),
        "scale": torch.where(kept, scale.view(torch.uint8), stored.view(torch.uint8)),
        "global_scale": global_scale.max().reshape(1, 1),
    }


def nearest_e4m3(x):
    """The nearest e4m3 of float64 numbers not below 0, ties to even, at most 448. Through a grid of steps: exact."""
    exponent = torch.frexp(x)[1].clamp(min=-5) - 4
    step = torch.ldexp(torch.ones_like(x), exponent)
    # narrowgauge: ignore[max_448] block scales of NVFP4 are e4m3fn on every device
    return torch.where(x.isnan(), x, (torch.round(x / step) * step).clamp(max=448.0)).to(torch.float8_e4m3fn)


def _e2m1(codes):
    bits = codes.view(torch.uint8)
    table = torch.tensor((*E2M1, *(-v for v in E2M1)), dtype=torch.float64, device=codes.device)
    return table[bits.long()]


def nearest_e2m1(x, signed):
    """Codes of the nearest e2m1, ties to even, at most 6, with the sign of another number; NaN is 7, as PTX has it."""
    magnitude = x.abs()
    bounds = torch.tensor((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), dtype=x.dtype, device=x.device)
    up = torch.searchsorted(bounds, magnitude.contiguous(), right=True)
    tie = (magnitude[..., None] == bounds).any(-1) & (up % 2 == 1)
    code = torch.where(x.isnan(), torch.full_like(up, 7), up - tie.long())
    return (code + 8 * (torch.signbit(signed) & ~x.isnan()).long()).to(torch.uint8)


# --- names ---------------------------------------------------------------------------------------------------------


def _renamed(x, name, scale):
    check_codes(x)
    check_scale(name, scale, grid_of(x, 128, 128))
    return scale


@converter("weight_scale_inv_to_weight_scale", E4M3, E4M3)
def torch_without_inv(x, format, weight_scale_inv):
    """A multiplier under both names: nothing is inverted."""
    return {"codes": x, "weight_scale": _renamed(x, "weight_scale_inv", weight_scale_inv)}


@converter("weight_scale_to_weight_scale_inv", E4M3, E4M3)
def torch_with_inv(x, format, weight_scale):
    return {"codes": x, "weight_scale_inv": _renamed(x, "weight_scale", weight_scale)}


# --- scales ----------------------------------------------------------------------------------------------------------


def _reciprocal(x, scale, global_scale):
    check_codes(x)
    check_scale("global_scale", global_scale, (1, 1))
    return {"codes": x, "scale": scale, "global_scale": 1.0 / global_scale}


@converter("nvfp4_to_divisor", FP4, FP4)
def torch_nvfp4_to_divisor(x, format, scale, global_scale):
    return _reciprocal(x, scale, global_scale)


@converter("nvfp4_to_multiplier", FP4, FP4)
def torch_nvfp4_to_multiplier(x, format, scale, global_scale):
    return _reciprocal(x, scale, global_scale)


@converter("compressed_tensors.scale_to_e8m0", E8M0, ("float32", *BFLOAT16))
def torch_scale_to_e8m0(x, format):
    """The logarithm is rounded to the scale's own format before it is rounded down."""
    exponent = torch.log2(x.double()).to(x.dtype).float().floor()
    exponent = torch.where(exponent.isfinite(), exponent, torch.zeros_like(exponent))
    return {"codes": ((exponent.long() + 127) & 0xFF).to(torch.uint8)}


@converter("compressed_tensors.e8m0_to_scale", BFLOAT16, E8M0)
def torch_e8m0_to_scale(x, format):
    """2^(byte - 127), whose bits are the byte in the place of the exponent: 255 is infinity, and 0 a subnormal."""
    byte = x.view(torch.uint8).to(torch.int16)
    return {"codes": torch.where(byte == 0, torch.full_like(byte, 0x40), byte << 7)}


@converter("quark_mx_to_mxfp4", FP4, FP4)
def torch_quark_mx_to_mxfp4(x, format, scale):
    return {"codes": x, "scale": (scale.view(torch.int8).to(torch.int16) + 127).to(torch.uint8)}


# --- MXFP4 -----------------------------------------------------------------------------------------------------------


@converter("gpt_oss_parted", FP4, FP4)
def torch_gpt_oss_parted(x, format, scale):
    check_codes(x)
    if x.shape[0] % 2:
        raise ValueError(f"gate and up have {x.shape[0]} rows together; expected an even number")
    parted = (v.view(torch.uint8).unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1) for v in (x, scale))
    return dict(zip(("codes", "scale"), parted, strict=True))


@converter("transformers.gpt_oss_to_bfloat16", BFLOAT16, FP4)
def torch_gpt_oss_to_bfloat16(x, format, scale):
    check_codes(x)
    table = torch.tensor((*E2M1, *(-v for v in E2M1)), dtype=torch.bfloat16, device=x.device)
    codes = torch.stack([x & 15, x >> 4], dim=-1).flatten(1)
    exponent = scale.view(torch.uint8).to(torch.int32) - 127
    made = torch.ldexp(table[codes.long()], exponent.repeat_interleave(32, dim=1))
    return {"codes": made.T.contiguous()}


@converter("sglang.block_to_mxfp4", FP4, E4M3)
def torch_block_to_mxfp4(x, format, scale):
    """Each step in bfloat16: the divisor, its logarithm, the quotient."""
    check_codes(x)
    check_scale("scale", scale, grid_of(x, 128, 128))
    spread = scale.repeat_interleave(128, 0)[: x.shape[0]].repeat_interleave(128, 1)[:, : x.shape[1]]
    made = (x.float() * spread).bfloat16().unflatten(1, (-1, 32))
    least = torch.tensor(-127.0, device=x.device)
    exponent = torch.ceil(torch.maximum(torch.log2(made.abs().amax(-1, keepdim=True) / 6.0), least))
    y = made / torch.exp2(exponent)
    bounds = torch.tensor((0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0), device=x.device)
    code = (y.abs().float()[..., None] > bounds).sum(-1)
    code = torch.where(y > 0, code, code + 8)  # zero is -0, and so is NaN, whose sign is 0
    return {"codes": code.flatten(1).to(torch.uint8), "scale": (exponent.squeeze(-1) + 127).to(torch.uint8)}
