# SPDX-License-Identifier: Apache-2.0
"""What conversions are tried on: every code with every kind of scale; and how two answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Patterns = Mapping[str, Array]

_RANDOM = 20261130
CODES = np.arange(256, dtype=np.uint8)
#: ordinary scales; what float16 rounds, loses and cannot hold; the ends of float32
GOOD = (1.0, 0.0123, 0.3, 3e-3, 2.0**-9, 1e-5, 1.7e-6, 5e-8, 146.2, 147.0, 200.0, 3e4)
ENDS = (2.9e-8, 1e5, 2.0**-126, 2.0**-149, 3 * 2.0**-149, 1.2e-38, 1.8e38, 3.4e38, 0.0, -1.0)
SPECIAL = (np.inf, np.nan)
#: what vLLM leaves in the place of a scale that no file held
UNSET = float(np.finfo(np.float32).min)


def bits(*scales: float) -> npt.NDArray[np.uint32]:
    """[scales, 1] patterns of float32."""
    return np.array(scales, np.float32).view(np.uint32)[:, None]


def ints(*numbers: int) -> npt.NDArray[np.int32]:
    """[numbers, 1]."""
    return np.array(numbers, np.int32)[:, None]


def _rows(n: int) -> npt.NDArray[np.uint8]:
    """[n, 256]: every code in each row."""
    return np.tile(CODES, (n, 1))


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(_RANDOM + seed)


# ---------------- fp8


def fnuz() -> Iterator[Patterns]:
    scale = bits(*GOOD, *ENDS, *SPECIAL)
    yield {"codes": _rows(len(scale)), "scale": scale}
    yield {"codes": _rows(1), "scale": bits(0.0123), "input_scale": bits(0.7)}


def ue8m0() -> Iterator[Patterns]:
    yield {"codes": _rows(256), "scale": CODES[:, None]}


def tensors() -> Iterator[Patterns]:
    """Every code and one scale; numbers alone; nothing but zeros."""
    for scale in (*GOOD, *ENDS, *SPECIAL):
        yield {"codes": _rows(1), "scale": bits(scale)}
    yield {"codes": np.zeros((2, 8), np.uint8), "scale": bits(1.0)}
    yield {"codes": np.array([[0, 1, 0x81, 0x38]], np.uint8), "scale": bits(0.3)}


def shards() -> Iterator[Patterns]:
    """Every pair of scales; ratios that end on ties, which a rounded reciprocal misses; shards of no rows."""
    scales = (*GOOD, *ENDS, *SPECIAL)
    for scale in GOOD:
        yield {"codes": _rows(3), "scale": bits(scale, 2 * scale, 8 * scale), "widths": ints(1, 1, 1)}
    for first in scales:
        for second in scales:
            yield {"codes": _rows(3), "scale": bits(first, second), "widths": ints(1, 2)}
    yield {"codes": _rows(6), "scale": bits(0.3, 0.5, 0.011), "widths": ints(3, 1, 2)}
    yield {"codes": _rows(3), "scale": bits(0.3, 9.0, 0.011), "widths": ints(2, 0, 1)}


def never_loaded() -> Iterator[Patterns]:
    """What an engine meets besides: one scale for all, or a hole."""
    yield {"codes": _rows(3), "scale": bits(0.3, UNSET, UNSET), "widths": ints(1, 1, 1)}
    yield {"codes": _rows(3), "scale": bits(0.3, UNSET, 0.5), "widths": ints(1, 1, 1)}
    yield {"codes": _rows(3), "scale": bits(0.3, 0.5, UNSET), "widths": ints(1, 1, 1)}
    yield {"codes": _rows(3), "scale": bits(0.3, 0.5, -448.0), "widths": ints(1, 1, 1)}
    yield {"codes": _rows(3), "scale": bits(0.3), "widths": ints(3)}


def unset_shards() -> Iterator[Patterns]:
    yield from shards()
    yield from never_loaded()


def _block_codes(shape: tuple[int, int], finite: bool, seed: int) -> npt.NDArray[np.uint8]:
    codes = random(seed).integers(0, 256, shape).astype(np.uint8)
    return np.where(codes & 0x7F == 0x7F, 0x31, codes) if finite else codes


def blocks(finite: bool = False, columns: int = 300) -> Iterator[Patterns]:
    """Blocks of 128 x 128 with ragged ends; amax next to powers of two; blocks of zeros, of few small codes."""
    block, grid = np.array([[128, 128]], np.int32), (2, -(-columns // 128))
    if columns % 32:  # where blocks of 129 would be of another number
        scale = np.full((3, 3), 0.3, np.float32).view(np.uint32) + np.arange(9, dtype=np.uint32).reshape(3, 3) * 4096
        yield {"codes": _block_codes((258, 258), True, 8), "scale": scale, "blocks": block}
    for seed, spread in enumerate((1, 8, 30, 60)):
        scale = np.exp2(random(seed).uniform(-spread, spread, grid)).astype(np.float32).view(np.uint32)
        yield {"codes": _block_codes((200, columns), True, seed), "scale": scale, "blocks": block}
    for at in range(-66, 60, 7):
        scale = (
            np.full(grid, 2.0**at, np.float32).view(np.uint32) + np.arange(-2, 4).reshape(2, 3)[:, : grid[1]]
        ).astype(np.uint32)
        codes = _block_codes((200, columns), True, at + 100)
        codes[::64, ::64] = 0x7E
        yield {"codes": codes, "scale": scale, "blocks": block}
    codes = _block_codes((200, columns), True, 7)
    codes[:128, :128], codes[128:, :128], codes[:, 128:256] = 0, 0x80, codes[:, 128:256] & 0x83
    yield {"codes": codes, "scale": np.full(grid, 0.3, np.float32).view(np.uint32), "blocks": block}
    if not finite:
        for worst in (np.inf, np.nan, 0.0, 3e38, 1e-40):
            scale = np.full(grid, 0.01, np.float32)
            scale[0, 1] = worst
            yield {"codes": _block_codes((200, columns), False, 9), "scale": scale.view(np.uint32), "blocks": block}


def channels() -> Iterator[Patterns]:
    yield {"codes": _rows(len(GOOD)), "scale": bits(*GOOD)}
    yield {"codes": _rows(2) & 0x83, "scale": bits(1e-5, 3e-5)}
    yield {"codes": np.zeros((2, 16), np.uint8), "scale": bits(1.0, 2.0)}
    for worst in (*ENDS, *SPECIAL):
        yield {"codes": _rows(2), "scale": bits(worst, 0.01)}


# ---------------- four bits


def globals_(multipliers: bool) -> Iterator[Patterns]:
    """Every block scale with every code, under equal and unequal globals; blocks whose scale becomes small or zero."""
    codes = np.tile(CODES.reshape(1, 256), (256, 1))  # [256, 512 codes]: 32 blocks of 16
    scale = np.repeat(CODES[:, None] & 0x7F, 32, axis=1)
    for ratios in ((1.0, 1.0), (1.0, 2.0), (1.0, 0.37), (1.0, 1.0000001), (1.0, 1e-3), (1.0, 3e3)):
        g = [(3.27e-5 if multipliers else 30583.0) * ratio for ratio in ratios]
        yield {"codes": codes, "scale": scale, "global_scale": bits(*g), "widths": ints(100, 156)}


def words(k: int = 32, n: int = 24, groups: int = 2) -> Iterator[Patterns]:
    for seed in range(3):
        made = random(seed).integers(-(2**31), 2**31, (k + groups, n // 8)).astype(np.int32)
        scales = random(seed).integers(1, 0x7BFF, (groups, n)).astype(np.uint16)
        yield {"qweight": made[:k], "qzeros": made[k:], "scales": scales}


def zeros() -> Iterator[Patterns]:
    yield from ({"qzeros": given["qzeros"]} for given in words(groups=40))
    yield {"qzeros": np.array([[0, -1, 0x76543210, -0x01234568]], np.int64).astype(np.int32)}


def small_integers() -> Iterator[Patterns]:
    for k in (8, 19, 32, 1):
        yield {"codes": random(k).integers(-8, 8, (5, k)).astype(np.int8).view(np.uint8)}


def integer_words() -> Iterator[Patterns]:
    for k in (8, 19, 32, 1):
        made = random(k).integers(-(2**31), 2**31, (5, -(-k // 8))).astype(np.int32)
        yield {"codes": made, "shape": np.array([[5, k]], np.int32)}


def experts() -> Iterator[Patterns]:
    """Every byte under every scale; several experts."""
    yield {
        "blocks": np.tile(CODES.reshape(1, 1, 16, 16), (1, 256, 1, 1)),
        "scales": np.repeat(CODES[None, :, None], 16, 2),
    }
    made = random().integers(0, 256, (3, 4, 2, 16)).astype(np.uint8)
    yield {"blocks": made, "scales": random(1).integers(110, 130, (3, 4, 2)).astype(np.uint8)}


def byte_scales() -> Iterator[Patterns]:
    for shape in ((130, 5), (128, 4), (1, 1), (257, 9)):
        yield {"scale": random(shape[0]).integers(0, 256, shape).astype(np.uint8)}


def swizzled() -> Iterator[Patterns]:
    for rows, columns in ((130, 5), (128, 4)):
        image = random(rows).integers(0, 256, (1, -(-rows // 128) * 128 * -(-columns // 4) * 4)).astype(np.uint8)
        yield {"scale": image, "shape": np.array([[rows, columns]], np.int32)}


def float_scales() -> Iterator[Patterns]:
    """float32 powers of two and their neighbours, to the subnormals; every bfloat16."""
    near = (np.exp2(np.arange(-149.0, 128.0)).astype(np.float32).view(np.uint32)[:, None] + np.arange(-2, 3)).astype(
        np.uint32
    )
    yield {"scale": near[2:]}
    yield {"scale": bits(0.0, -1.0, *SPECIAL, 3.0)}
    yield {"scale": np.arange(65536, dtype=np.uint16).reshape(256, 256)}


def exponents() -> Iterator[Patterns]:
    yield {"scale": CODES.reshape(16, 16)}


def seventeens() -> Iterator[Patterns]:
    made = random().integers(0, 256, (256, 34)).astype(np.uint8)
    made[:, 0], made[:, 17] = CODES, CODES[::-1]
    yield {"codes": made}


def sixteens() -> Iterator[Patterns]:
    """Every bfloat16, or float16; float32 next to the ends of float16 and bfloat16."""
    yield {"codes": np.arange(65536, dtype=np.uint16).reshape(256, 256)}
    at = [
        65504,
        65519.99,
        65520,
        65536,
        2.0**-24,
        2.0**-25,
        2.0**-26,
        2.0**-133,
        2.0**-134,
        3.39e38,
        3.3961e38,
        0.0,
        np.inf,
        np.nan,
    ]
    near = (np.array([*at, *(-x for x in at)], np.float32).view(np.uint32)[:, None] + np.arange(-2, 3)).astype(
        np.uint32
    )
    yield {"codes": near}


#: what a conversion is tried on, by its name
SETS: Mapping[str, Callable[[], Iterator[Patterns]]] = {
    **dict.fromkeys(("ocp_to_fnuz", "vllm.ocp_to_fnuz", "fnuz_to_ocp"), fnuz),
    **dict.fromkeys(("ue8m0_to_fnuz", "vllm.ue8m0_to_fnuz"), ue8m0),
    **dict.fromkeys(("ocp_to_fnuz_requantized", "fnuz_to_ocp_requantized"), tensors),
    "requantize_to_largest": shards,
    **dict.fromkeys((f"{engine}.requantize_to_largest" for engine in ("vllm", "sglang")), unset_shards),
    "vllm.requantize_to_largest_cpu": unset_shards,
    "requantize_to_largest of FNUZ": shards,
    **dict.fromkeys((f"vllm.requantize_to_largest{on} of FNUZ" for on in ("", "_cpu")), unset_shards),
    **dict.fromkeys(("float16_counted", "bfloat16_counted"), sixteens),
    **dict.fromkeys(("vllm.block_to_ue8m0", "sglang.block_to_ue8m0", "block_to_channel"), blocks),
    **dict.fromkeys(("sglang.block_to_tensor", "sglang.block_to_tensor_torch"), blocks),
    **dict.fromkeys(("sglang.channel_to_tensor", "sglang.channel_to_tensor_torch", "channel_to_block"), channels),
    **dict.fromkeys(("sglang.block_to_mxfp4", "sglang.block_to_mxfp4_rocm"), partial(blocks, True, 288)),
    **dict.fromkeys(("nvfp4_to_divisor", "vllm.modelopt_nvfp4_largest", "nvfp4_one_global"), partial(globals_, True)),
    **dict.fromkeys(("nvfp4_to_multiplier", "vllm.nvfp4_largest"), partial(globals_, False)),
    **dict.fromkeys(("awq_to_gptq", "awq_to_gptq_v2", "vllm.awq_to_standard"), words),
    **dict.fromkeys(("gptq_v1_to_v2", "gptq_v2_to_v1"), zeros),
    "compressed_tensors_int4": small_integers,
    "compressed_tensors_int4_back": integer_words,
    **dict.fromkeys(("gpt_oss", "transformers.gpt_oss"), experts),
    "swizzle_128x4": byte_scales,
    "unswizzle_128x4": swizzled,
    "compressed_tensors.scale_to_e8m0": float_scales,
    "compressed_tensors.e8m0_to_scale": exponents,
    "quark_mx_to_mxfp4": seventeens,
}


# ---------------- comparing

#: conversions whose "codes" have OCP's NaN, which has two signs
_OCP_CODES = (
    "requantize_to_largest", "vllm.requantize_to_largest", "vllm.requantize_to_largest_cpu", "block_to_channel",
    "sglang.requantize_to_largest", "vllm.block_to_ue8m0", "sglang.block_to_ue8m0", "sglang.block_to_tensor",
    "sglang.block_to_tensor_torch", "sglang.channel_to_tensor", "sglang.channel_to_tensor_torch", "channel_to_block",
)  # fmt: skip


def _one_nan(name: str, part: str, array: Array) -> Array:
    """NaN by one pattern: its sign and its payload are nobody's business."""
    if array.dtype == np.uint32:
        return np.where(array & 0x7FFFFFFF > 0x7F800000, 0x7FC00000, array)
    if array.dtype == np.uint16:
        infinity = 0x7C00 if name == "float16_counted" else 0x7F80
        return np.where(array & 0x7FFF > infinity, 0x7FFF, array)
    if part == "codes" and name in _OCP_CODES:
        return np.where(array & 0x7F == 0x7F, 0x7F, array)
    return array


def differences(name: str, got: Patterns, want: Patterns) -> Iterator[str]:
    """Each part that differs, with the first place and how many."""
    for part in got.keys() & want.keys():
        a, b = (_one_nan(name, part, x[part]) for x in (got, want))
        if a.shape != b.shape:
            yield f"{part} is of shape {a.shape}, not {b.shape}"
        elif (a != b).any():
            where = tuple(np.argwhere(a != b)[0].tolist())
            yield f"{part} at {where} is {int(a[where]):#x}, not {int(b[where]):#x}; {int((a != b).sum())} of {a.size}"
