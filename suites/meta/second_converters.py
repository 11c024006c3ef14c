# SPDX-License-Identifier: Apache-2.0
"""The second derivation under the names of the catalogue of conversions, on buffers as a converter meets them.

What differs is names and packing alone: "codes" of four bits lie one to a byte where no layout is named, "zero_point"
and "scale" are AWQ's qzeros and scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from narrowgauge.suites.meta.second_blocks import Patterns
from narrowgauge.suites.meta.second_codes import FNUZ, Array, nibbles, packed
from narrowgauge.suites.meta.second_conversions import CONVERSIONS, quiet
from narrowgauge.suites.meta.second_fours import swizzle, unswizzle

#: buffers by name, the format of the codes taken, rows and columns of the codes -> buffers by name
Converter = Callable[[Patterns, str, tuple[int, int]], Patterns]
_BLOCKS = np.array([[128, 128]], np.int32)


def alike(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """Nothing differs, but for a second format."""
    other = f"{name} of FNUZ"
    return CONVERSIONS[other if source == FNUZ and other in CONVERSIONS else name](given)


def of_blocks(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    return CONVERSIONS[name]({**given, "blocks": _BLOCKS})


def to_four(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    made = dict(of_blocks(name, given, source, shape))
    return {**made, "codes": nibbles(made["codes"])}


def nvfp4(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    made = dict(CONVERSIONS[name]({**given, "codes": packed(given["codes"])}))
    return {**made, "codes": nibbles(made["codes"])}


def _words(array: Array) -> Array:
    return array.view(np.int32)


def four_in_words(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """AWQ and GPTQ, with their names for buffers; what a conversion does not speak of stays."""
    words = {"qweight": _words(given["codes"]), "qzeros": _words(given["zero_point"]), "scales": given["scale"]}
    made = {**words, **CONVERSIONS[name](words)}
    return {
        "codes": made["qweight"],
        "zero_point": made["qzeros"],
        "scale": made["scales"],
        **({"g_idx": made["g_idx"]} if "g_idx" in made else {}),
    }


def signed_four(given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """int4 codes of four bits, to int8."""
    codes = (given["codes"].astype(np.int8) << 4).astype(np.int8) >> 4
    return CONVERSIONS["compressed_tensors_int4"]({"codes": codes.view(np.uint8)})


def from_words(given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    made = CONVERSIONS["compressed_tensors_int4_back"](
        {"codes": _words(given["codes"]), "shape": np.array([shape], np.int32)}
    )
    return {"codes": made["codes"] & 15}


def renamed(one: str, other: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """weight_scale_inv multiplies, as weight_scale does."""
    return {"codes": given["codes"], other: given[one]}


def tiled(layout: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    return {"codes": swizzle(layout, {"scale": given["codes"]})["scale"]}


def untiled(layout: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    return {"codes": unswizzle(layout, {"scale": given["codes"], "shape": np.array([shape], np.int32)})["scale"]}


def _as_experts(given: Patterns) -> Patterns:
    """One expert of [rows, K/2] bytes and [rows, K/32] scales."""
    rows = len(given["codes"])
    return {"blocks": given["codes"].reshape(1, rows, -1, 16), "scales": given["scale"][None]}


def expert(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    return {"codes": CONVERSIONS[name](_as_experts(given))["values"][0]}


def parted(given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """Gate, the even rows, before up."""
    order = [*range(0, shape[0], 2), *range(1, shape[0], 2)]
    return {name: given[name][order] for name in ("codes", "scale")}


def quark(given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """Scales stand before their 16 bytes of codes."""
    blocks = given["codes"].reshape(len(given["codes"]), -1, 16)
    rows = np.concatenate([given["scale"][..., None].view(np.uint8), blocks], axis=2)
    return CONVERSIONS["quark_mx_to_mxfp4"]({"codes": rows.reshape(len(rows), -1)})


def scales(name: str, given: Patterns, source: str, shape: tuple[int, int]) -> Patterns:
    """Scales that come as the codes."""
    return {"codes": CONVERSIONS[name]({"scale": given["codes"]})["scale"]}


_WAYS = ("scale_to_e8m0", "e8m0_to_scale")
_NAMES = ("weight_scale_inv", "weight_scale")
_GRANULARITIES = ("tensor", "channel", "block")
_TILES = ("scales_128x4", "scales_8x4", "cdna4_mx_scales")
_ALL: Mapping[str, Converter] = {
    **{
        f"{engine}ocp_to_fnuz_{each}": partial(alike, f"{engine}ocp_to_fnuz")
        for engine in ("", "vllm.")
        for each in _GRANULARITIES
    },
    **{
        name: partial(alike, name)
        for name in (
            "fnuz_to_ocp", "ue8m0_to_fnuz", "vllm.ue8m0_to_fnuz", "ocp_to_fnuz_requantized", "fnuz_to_ocp_requantized",
            "requantize_to_largest", "vllm.requantize_to_largest", "vllm.requantize_to_largest_cpu",
            "channel_to_block", "sglang.channel_to_tensor",
        )
    },
    **{
        name: partial(of_blocks, name)
        for name in (
            "block_to_channel", "sglang.block_to_tensor", "sglang.block_to_tensor_torch", "vllm.block_to_ue8m0",
            "sglang.block_to_ue8m0",
        )
    },
    "sglang.block_to_mxfp4": partial(to_four, "sglang.block_to_mxfp4"),
    "sglang.block_to_mxfp4_rne": partial(to_four, "sglang.block_to_mxfp4_rocm"),
    "vllm.nvfp4_largest_divisor": partial(nvfp4, "vllm.nvfp4_largest"),
    "vllm.nvfp4_largest_multiplier": partial(nvfp4, "vllm.modelopt_nvfp4_largest"),
    **{name: partial(nvfp4, name) for name in ("nvfp4_one_global", "nvfp4_to_divisor", "nvfp4_to_multiplier")},
    **{
        name: partial(four_in_words, name)
        for name in ("awq_to_gptq", "awq_to_gptq_v2", "gptq_v1_to_v2", "gptq_v2_to_v1", "vllm.awq_to_standard")
    },
    **{f"{one}_to_{other}": partial(renamed, one, other) for one, other in (_NAMES, _NAMES[::-1])},
    "compressed_tensors.int4_packed": signed_four,
    "compressed_tensors.int4_unpacked": from_words,
    **{f"plain_to_{tile}": partial(tiled, tile) for tile in _TILES},
    **{f"{tile}_to_plain": partial(untiled, tile) for tile in _TILES},
    "gpt_oss_to_bfloat16": partial(expert, "gpt_oss"),
    "transformers.gpt_oss_to_bfloat16": partial(expert, "transformers.gpt_oss"),
    "gpt_oss_parted": parted,
    "quark_mx_to_mxfp4": quark,
    **{f"compressed_tensors.{way}": partial(scales, f"compressed_tensors.{way}") for way in _WAYS},
}  # fmt: skip


def second(name: str, given: Patterns, source: str, to: str, shape: tuple[int, int]) -> Patterns:
    """What a conversion gives, as it stands in memory."""
    if name == "counted":
        return CONVERSIONS[f"{to}_counted"](given)
    return quiet(lambda taken: _ALL[name](taken, source, shape))(given)


#: the conversions that there are
NAMES = (*_ALL, "counted")
