"""OCP codes for FNUZ units and back, in torch: by bytes, the scale doubled or halved."""

from __future__ import annotations

import torch

from narrowgauge import Convert, kernel

OCP, FNUZ = ("float8_e4m3fn",), ("float8_e4m3fnuz",)
NEGATIVE_ZERO, NAN = 0x80, 0x7F


def to_fnuz(conversion):
    return kernel(Convert(conversion), FNUZ, OCP, owner="narrowgauge", backend="torch", conversion="soft")


def bytes_to_fnuz(codes):
    """0x80 becomes 0, and what is NaN stays NaN, which is 0x80 there."""
    bits = codes.view(torch.uint8)
    nan = (bits & 0x7F) == NAN
    zeros = torch.where(bits == NEGATIVE_ZERO, torch.zeros_like(bits), bits)
    return torch.where(nan, torch.full_like(bits, NEGATIVE_ZERO), zeros)


@to_fnuz("ocp_to_fnuz_tensor")
def torch_ocp_to_fnuz(x, format, scale, input_scale):
    return {"codes": bytes_to_fnuz(x), "scale": scale * 2, "input_scale": input_scale * 2}


@to_fnuz("ocp_to_fnuz_channel")
def torch_ocp_to_fnuz_channel(x, format, scale, input_scale):
    return {"codes": bytes_to_fnuz(x), "scale": scale * 2, "input_scale": input_scale * 2}


@to_fnuz("ocp_to_fnuz_block")
def torch_ocp_to_fnuz_block(x, format, scale, input_scale):
    return {"codes": bytes_to_fnuz(x), "scale": scale * 2, "input_scale": input_scale * 2}


@kernel(Convert("fnuz_to_ocp"), OCP, FNUZ, owner="narrowgauge", backend="torch", conversion="soft")
def torch_fnuz_to_ocp(x, format, scale):
    bits = x.view(torch.uint8)
    largest = (bits & 0x7F) == NAN
    bits = torch.where(largest, bits - 1, bits)
    return {
        "codes": torch.where(x.view(torch.uint8) == NEGATIVE_ZERO, torch.full_like(bits, NAN), bits),
        "scale": scale / 2,
    }
