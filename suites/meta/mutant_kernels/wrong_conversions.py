# SPDX-License-Identifier: Apache-2.0
"""Conversions of fp8 and of 16 bits, each with a mistake that public reports tell of; written before our faults were
seen.

Plain functions of torch, for a process that may import it. Each takes tensors by name and gives tensors by name, as the
conversions of second_conversions do: codes as uint8, scales as float32, E8M0 as uint8, words as int32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

Tensors = Mapping[str, Any]
Convert = Callable[[Any], Tensors]


@dataclass(frozen=True)
class Wrong:
    """A mistake: of which conversion, what it imitates, and where it was reported (facts on public bugs)."""

    of: str
    imitates: str
    reports: str
    run: Convert


WRONG: dict[str, Wrong] = {}


def wrong(of: str, imitates: str, reports: str) -> Callable[[Convert], Convert]:
    """Listed by the name of the function."""

    def listed(run: Convert) -> Convert:
        WRONG[run.__name__] = Wrong(of, imitates, reports, run)
        return run

    return listed


def values(codes: Any, kind: Any = torch.float8_e4m3fn) -> Any:
    """uint8 codes as float32."""
    return codes.view(kind).to(torch.float32)


def coded(x: Any, kind: Any = torch.float8_e4m3fn) -> Any:
    """float32 to uint8 codes; FNUZ is held to 240 first, since torch does not."""
    limit = 448.0 if kind == torch.float8_e4m3fn else 240.0
    return x.clamp(-limit, limit).to(kind).view(torch.uint8)


def scale_of(given: Any, inverse: bool = False) -> Any:
    """The scale of each element, by the block that is said or that the shapes say."""
    (n, k), scale = given["codes"].shape, given["scale"]
    block = (
        given["blocks"].ravel().tolist() if "blocks" in given else (-(-n // scale.shape[0]), -(-k // scale.shape[1]))
    )
    wide = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:n, :k]
    return 1 / wide if inverse else wide


def fnuz_codes(codes: Any) -> Any:
    """The right ones: -0 becomes 0, NaN stays."""
    codes = torch.where(codes == 0x80, 0, codes)
    return torch.where(codes & 0x7F == 0x7F, 0x80, codes).to(torch.uint8)


# ---------------- OCP to FNUZ


@wrong("ocp_to_fnuz", "the scale is not doubled: all is half as much", "FMT01 vllm#45562, FMT03 vllm#45681, R1")
def scale_not_doubled(given: Any) -> Tensors:
    return {"codes": fnuz_codes(given["codes"]), "scale": given["scale"].clone()}


@wrong("ocp_to_fnuz", "the scale is halved: the direction is mistaken", "FMT01, FMT02 vllm#33179, R1")
def scale_halved(given: Any) -> Tensors:
    return {"codes": fnuz_codes(given["codes"]), "scale": given["scale"] / 2}


@wrong("ocp_to_fnuz", "the scale is doubled again when weights are loaded again", "STATE03 sglang#28963, R40")
def scale_doubled_twice(given: Any) -> Tensors:
    return {"codes": fnuz_codes(given["codes"]), "scale": given["scale"] * 4}


@wrong("ocp_to_fnuz", "-0 keeps its byte, which is NaN in FNUZ", "CAST03 onnxruntime#18473, R2")
def minus_zero_kept(given: Any) -> Tensors:
    codes = given["codes"]
    return {"codes": torch.where(codes & 0x7F == 0x7F, 0x80, codes).to(torch.uint8), "scale": given["scale"] * 2}


@wrong("ocp_to_fnuz", "NaN keeps its byte, which is 240 in FNUZ", "facts 1.7, R2; engines D.2")
def nan_lost(given: Any) -> Tensors:
    codes = given["codes"]
    return {"codes": torch.where(codes == 0x80, 0, codes).to(torch.uint8), "scale": given["scale"] * 2}


@wrong("ocp_to_fnuz", "only the NaN without a sign is known", "NANPOL03 flashinfer#3035, CAST02")
def negative_nan_lost(given: Any) -> Tensors:
    codes = torch.where(given["codes"] == 0x80, 0, given["codes"])
    return {"codes": torch.where(codes == 0x7F, 0x80, codes).to(torch.uint8), "scale": given["scale"] * 2}


@wrong("ocp_to_fnuz", "NaN is cleaned away to 0", "CAST07 transformers#42746")
def nan_to_zero(given: Any) -> Tensors:
    codes = torch.where((given["codes"] & 0x7F == 0x7F) | (given["codes"] == 0x80), 0, given["codes"])
    return {"codes": codes.to(torch.uint8), "scale": given["scale"] * 2}


@wrong("ocp_to_fnuz", "values are cast under the scale that is there: what is above 240 is lost", "FMT05, R3")
def cast_under_the_old_scale(given: Any) -> Tensors:
    return {"codes": coded(values(given["codes"]), torch.float8_e4m3fnuz), "scale": given["scale"].clone()}


@wrong("ocp_to_fnuz_requantized", "448 is taken for the largest of FNUZ", "FMT05 ROCm/TransformerEngine#485, R3")
def fnuz_to_448(given: Any) -> Tensors:
    return _requantized(given, 448.0)


@wrong("ocp_to_fnuz_requantized", "224 is taken for the largest of FNUZ", "FMT06 vllm#30360")
def fnuz_to_224(given: Any) -> Tensors:
    return _requantized(given, 224.0)


def _requantized(given: Any, largest: float) -> Tensors:
    v = values(given["codes"]) * scale_of(given)
    amax = v.nan_to_num(0.0, float("inf"), -float("inf")).abs().amax()
    scale = torch.where(amax == 0, 1.0, amax / largest)
    return {"codes": coded(v / scale, torch.float8_e4m3fnuz), "scale": scale.reshape(1, 1)}


@wrong("fnuz_to_ocp", "240 keeps its byte, which is NaN in OCP", "R2, CAST04")
def largest_becomes_nan(given: Any) -> Tensors:
    return {
        "codes": torch.where(given["codes"] == 0x80, 0x7F, given["codes"]).to(torch.uint8),
        "scale": given["scale"] / 2,
    }


@wrong("fnuz_to_ocp", "NaN keeps its byte, which is -0 in OCP", "CAST01 triton#10745, R2")
def nan_becomes_minus_zero(given: Any) -> Tensors:
    codes = given["codes"]
    return {"codes": torch.where(codes & 0x7F == 0x7F, codes - 1, codes), "scale": given["scale"] / 2}


@wrong("ue8m0_to_fnuz", "255 goes round to 0", "E8M007 TransformerEngine#3262, R11")
def exponent_goes_round(given: Any) -> Tensors:
    return {"codes": fnuz_codes(given["codes"]), "scale": given["scale"] + 1}


@wrong("ue8m0_to_fnuz", "the byte is doubled as though it were a number", "E8M009 sglang#19948, R19")
def exponent_as_number(given: Any) -> Tensors:
    return {"codes": fnuz_codes(given["codes"]), "scale": (given["scale"].int() * 2).clamp(max=255).to(torch.uint8)}


# ---------------- fused shards


def fused(given: Any, one: Any, own: Any, off: int = 0, middle: Any = torch.float32) -> Tensors:
    """Requantized by shards: to one scale, from each shard's own."""
    codes, start = given["codes"].clone(), 0
    for i, width in enumerate(given["widths"].ravel().tolist()):
        rows = slice(max(start + off * (i > 0), 0), start + width + off)
        v = (values(codes[rows]).to(middle) * own[i].to(middle)).to(torch.float32)
        codes[rows] = coded(v / one)
        start += width
    return {"codes": codes, "scale": one.reshape(1, 1)}


@wrong("requantize_to_largest", "min instead of max: the other shards are clipped", "GRAN01 vllm#54974, GRAN06")
def to_the_smallest(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.min(), scale)


@wrong("requantize_to_largest", "to the last shard's scale", "GRAN06 sglang#4594, GRAN07 vllm#26135")
def to_the_last(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale[-1], scale)


@wrong("requantize_to_largest", "the scale is the largest, the codes are kept", "GRAN01 vllm#54974, R22")
def codes_kept(given: Any) -> Tensors:
    return {"codes": given["codes"].clone(), "scale": given["scale"].max().reshape(1, 1)}


@wrong("requantize_to_largest", "each shard is read by its neighbour's scale", "GRAN02, R23")
def neighbours_scale(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.max(), scale.roll(1))


@wrong("requantize_to_largest", "every shard is read by the first one's scale", "GRAN06 vllm#4332, R23")
def first_scale_for_all(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.max(), scale[:1].expand(len(scale)))


@wrong("requantize_to_largest", "shards begin one row too late", "IDX03, R32")
def shards_off_by_one(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.max(), scale, off=1)


@wrong("requantize_to_largest", "values pass through float16", "engines D.3, RANGE1603 vllm#55346")
def through_half(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.max(), scale, middle=torch.float16)


@wrong("requantize_to_largest", "a code is divided by its scale: the name weight_scale_inv at its word", "SCALEALG05")
def scale_inverted(given: Any) -> Tensors:
    scale = given["scale"].ravel()
    return fused(given, scale.max(), 1 / scale)
