# SPDX-License-Identifier: Apache-2.0
"""The sets of conversion_sets as calls of the catalogue's conversions: codes, and what stands beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.suites.meta import conversion_sets as sets
from narrowgauge.suites.meta.conversion_sets import CODES, Array, Patterns, bits
from narrowgauge.suites.meta.second_codes import nibbles

#: some of many: the first, and one in so many
_EVERY = 13


def some(make: Callable[[], Iterator[Patterns]]) -> Iterator[Patterns]:
    return islice(make(), 0, None, _EVERY)


def with_input_scale(make: Callable[[], Iterator[Patterns]]) -> Iterator[Patterns]:
    for given in make():
        yield {"input_scale": bits(0.7), **given}


def fnuz_channels() -> Iterator[Patterns]:
    yield next(sets.fnuz())


def under(name: str) -> Iterator[Patterns]:
    """Blocks whose scale has another name."""
    for given in some(sets.blocks):
        yield {"codes": given["codes"], name: given["scale"]}


def exponents_of_32() -> Iterator[Patterns]:
    for given in sets.ue8m0():
        yield {**given, "scale": np.repeat(given["scale"], 8, axis=1)}


def nvfp4(multipliers: bool, shards: bool) -> Iterator[Patterns]:
    for given in sets.globals_(multipliers):
        made = {**given, "codes": nibbles(given["codes"])}
        yield made if shards else {n: made[n] for n in ("codes", "scale")} | {"global_scale": made["global_scale"][1:]}


def four_bits(lowest: int, highest: int) -> Iterator[Patterns]:
    """Groups of 128; every scale pattern; zero points that both conventions have."""
    for seed in range(2):
        random = sets.random(seed)
        yield {
            "codes": random.integers(0, 16, (256, 64)),
            "scale": random.integers(0, 0x7C00, (2, 64)),
            "zero_point": random.integers(lowest, highest + 1, (2, 64)),
        }


def rows_of_codes(bits_of: int) -> Iterator[Patterns]:
    for rows, columns in ((5, 8), (3, 19), (16, 32)):
        yield {"codes": sets.random(columns).integers(0, 1 << bits_of, (rows, columns))}


def scale_bytes(rows: int, columns: int) -> Iterator[Patterns]:
    yield {"codes": np.resize(CODES, (rows, columns))}


def mxfp4() -> Iterator[Patterns]:
    """Every byte under every scale."""
    codes = nibbles(np.tile(CODES, (256, 1)))
    yield {"codes": codes, "scale": np.repeat(CODES[:, None], 16, axis=1)}


def of_width(width: int, make: Callable[[], Iterator[Patterns]], name: str) -> Iterator[Patterns]:
    """Those whose patterns have that many bits, as codes."""
    for given in make():
        if given[name].dtype.itemsize * 8 == width:
            yield {"codes": given[name]}


_BLOCKS = partial(some, sets.blocks)
_FP4 = partial(some, partial(sets.blocks, True, 288))
#: conversion -> its calls, before they have formats
MADE: Mapping[str, Callable[[], Iterator[Patterns]]] = {
    **{f"{e}ocp_to_fnuz_tensor": partial(with_input_scale, sets.tensors) for e in ("", "vllm.")},
    **{f"{e}ocp_to_fnuz_channel": partial(with_input_scale, fnuz_channels) for e in ("", "vllm.")},
    **{f"{e}ocp_to_fnuz_block": partial(with_input_scale, _BLOCKS) for e in ("", "vllm.")},
    **dict.fromkeys(("fnuz_to_ocp", "ocp_to_fnuz_requantized", "fnuz_to_ocp_requantized"), sets.tensors),
    **dict.fromkeys(("ue8m0_to_fnuz", "vllm.ue8m0_to_fnuz"), exponents_of_32),
    "requantize_to_largest": partial(some, sets.shards),
    **dict.fromkeys((f"vllm.requantize_to_largest{on}" for on in ("", "_cpu")), partial(some, sets.unset_shards)),
    "vllm.nvfp4_largest_divisor": partial(nvfp4, False, True),
    **dict.fromkeys(("vllm.nvfp4_largest_multiplier", "nvfp4_one_global"), partial(nvfp4, True, True)),
    **dict.fromkeys(("nvfp4_to_divisor", "nvfp4_to_multiplier"), partial(nvfp4, True, False)),
    **dict.fromkeys(
        ("block_to_channel", "sglang.block_to_tensor", "sglang.block_to_tensor_torch", "vllm.block_to_ue8m0",
         "sglang.block_to_ue8m0"), _BLOCKS,
    ),
    **{
        f"{one}_to_{other}": partial(under, one)
        for one, other in (("weight_scale_inv", "weight_scale"), ("weight_scale", "weight_scale_inv"))
    },
    **dict.fromkeys(("channel_to_block", "sglang.channel_to_tensor"), sets.channels),
    **dict.fromkeys(("sglang.block_to_mxfp4", "sglang.block_to_mxfp4_rne"), _FP4),
    **dict.fromkeys(("awq_to_gptq_v2", "vllm.awq_to_standard"), partial(four_bits, 0, 15)),
    **dict.fromkeys(("awq_to_gptq", "gptq_v1_to_v2", "gptq_v2_to_v1"), partial(four_bits, 1, 15)),
    "compressed_tensors.int4_packed": partial(rows_of_codes, 4),
    "compressed_tensors.int4_unpacked": partial(rows_of_codes, 4),
    **{f"plain_to_{tile}": partial(scale_bytes, 160, 8) for tile in ("scales_128x4", "scales_8x4", "cdna4_mx_scales")},
    **{f"{tile}_to_plain": partial(scale_bytes, 160, 8) for tile in ("scales_128x4", "scales_8x4", "cdna4_mx_scales")},
    **dict.fromkeys(
        ("gpt_oss_to_bfloat16", "transformers.gpt_oss_to_bfloat16", "quark_mx_to_mxfp4", "gpt_oss_parted"), mxfp4
    ),
}  # fmt: skip
#: those of several widths
_WIDE: Mapping[str, Callable[[int], Iterator[Patterns]]] = {
    "counted": lambda width: of_width(width, sets.sixteens, "codes"),
    "compressed_tensors.scale_to_e8m0": lambda width: of_width(width, sets.float_scales, "scale"),
    "compressed_tensors.e8m0_to_scale": lambda width: of_width(width, sets.exponents, "scale"),
}


def _coded(array: Array, format_name: str) -> Coded:
    storage = format_named(format_name).storage
    return Coded(format_name, np.ascontiguousarray(array).astype(storage, copy=False).view(storage))


def calls(name: str, source: str) -> Iterator[Input]:
    """Calls of a conversion from a format."""
    conversion = CONVERSIONS[name]
    made = _WIDE[name](format_named(source).bits) if name in _WIDE else MADE[name]()
    for given in made:
        beside = {held.name: _coded(given[held.name], held.format or source) for held in conversion.takes[1:]}
        codes = _coded(given["codes"], source)
        yield Input(source, codes.data, beside)
