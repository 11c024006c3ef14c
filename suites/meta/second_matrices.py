# SPDX-License-Identifier: Apache-2.0
"""Matrices on which recipes are held to their second derivation: small, with everything at which recipes part."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_catalogue import SHAPES, Given, Shape, derive
from narrowgauge.suites.meta.second_derivation import decode

Array = npt.NDArray[Any]
KINDS = (
    "special", "powers", "random", "ties", "outlier", "zeros", "nan", "huge", "tiny", "faint", "halves",
    "barely", "straddling",
)  # fmt: skip
#: what is given for the first block; other blocks have others. By kind where one has something of its own: scales and
#: global scales whose reciprocals are no normal numbers
_GIVEN = {"scale": 0.0371, "upper_bound": 3.0, "global_scale": 37.3, "zero_point": 5}
_GIVEN_OF = {
    ("ties", "scale"): 1.0, ("halves", "scale"): 1.0,
    ("outlier", "scale"): 3e-39, ("special", "scale"): 3e-39, ("huge", "scale"): 1.3e38,
    ("ties", "global_scale"): 0.7, ("outlier", "global_scale"): 3e-39, ("special", "global_scale"): 2.0**118,
    ("huge", "global_scale"): 1.5e38,
}  # fmt: skip
#: of which a source says nothing where a row holds NaN alone: of nothing there is no least and no largest
OF_SOME_NUMBER = (
    "vllm.int8_per_token_dynamic_azp",
    *(f"{name}{on}" for name in ("vllm.uint4b8", "vllm.uint4_zero_point", "awq.uint4") for on in ("", "_bf16")),
)


def numbers(kind: str, whole: bool = False) -> Array:
    """float32 values [4, 128] of one kind, or [6, 128]; a row has four blocks of 32. ``whole``: all share one scale."""
    base = np.asarray(np.random.default_rng(5).standard_normal((4, 128)), np.float32)
    each = np.arange(128, dtype=np.float32)
    if kind == "ties":  # amax is a power of two times the largest value of a format, elements on its ties
        base = np.asarray(np.resize(np.arange(-28, 29) / 4.0, (4, 128)), np.float32)
        base[:, ::32] = np.asarray([[448.0], [6.0], [7.5], [28.0]], np.float32)
    elif kind == "special":
        base[0], base[3] = np.float32(2.0**-128) * each, np.float32(2.0**-140) * each
        base[0, 5] = -0.0
        base[1, 7] = np.nan
        base[2, 40] = np.inf
    elif kind == "outlier":
        base[:, 17] = 600.0
        base[3] = 3e38
        base[2] *= np.float32(1e-9)
    elif kind == "zeros":
        base[:] = 0
    elif kind == "barely":  # other than zero: no element above it; amax that is zero over 127
        base[:] = 0
        base[2, 4::9], base[3] = -1, np.float32(2.0**-149) * (each % 4)
    elif kind == "nan":  # alone in its block, and among others
        base[0] = np.nan
        base[1:, 1::33] = np.nan
    elif kind == "huge":
        base *= np.float32(2.0**125)
    elif kind == "tiny":  # reciprocals of scales are about the largest float32
        exponents = np.array([-120] if whole else [-115, -120, -122, -126, -132, -137])
        base = np.asarray(base[np.arange(exponents.size) % 4] * 2.0 ** exponents[:, None], np.float32)
    elif kind == "faint":  # below the least amax of each engine
        base *= np.asarray([[1e-11], [1e-13], [1e-31], [1e-5]], np.float32)
    elif kind == "halves":  # of a scale of 1 in int8 by 127, 127.5 and 255
        base[:] = np.clip(each - 63.5, -60, 60)
        base[:3, 0], base[2, 1] = (127, 127.5, 128), -127
        # of which min / scale, taken from -128, is rounded twice, and the whole number depends on where
        base[3] = np.linspace(31056.076, 35139.242, 128, dtype=np.float32)
        base = base[:2] if whole else base
    return base


def powers(width: int) -> Array:
    """Blocks of so many columns, two a row: amax one ulp below a power of two or qmax * 2**k, on it, and one above."""
    tops = np.asarray([2.0**-5, 1.0, 448 * 2.0**-9, 6 * 2.0**-3, 28.0, 7.5, 2.0**-20, 127.0], np.float32)
    tops = np.stack([np.nextafter(tops, np.float32(0)), tops, np.nextafter(tops, np.float32(np.inf))])
    tops *= np.asarray([[-1], [1], [-1]], np.float32)
    blocks = np.zeros((tops.size, width), np.float32)
    blocks[:, :16] = numbers("random").ravel()[: tops.size * 16].reshape(-1, 16) * np.abs(tops).reshape(-1, 1) / 8
    blocks[:, 3] = tops.ravel()
    return blocks.reshape(-1, 2 * width)


def straddling(width: int, g: float, first: float) -> Array:
    """amax for which two roundings in another order make another E4M3 scale: x * g / 6 on its ties, and beside them.

    ``first`` is the first number, which is the tensor's largest.
    """
    values = [float(decode(c, "float8_e4m3fn").magnitude) for c in range(0x20, 0x60)]
    ties = np.array([(a + b) / 2 for a, b in pairwise(values)])
    on = np.asarray(ties * 6 / g, np.float32)
    steps = np.arange(-3, 4, dtype=np.int32)[:, None]
    tops = (on.view(np.int32) + steps).view(np.float32).ravel()
    blocks = np.zeros((2 * (tops.size // 2 + 1), width), np.float32)
    blocks[1 : tops.size + 1, 3], blocks[0, 0] = tops, first
    return blocks.reshape(-1, 2 * width)


def coded(x: Array, source: str) -> Array:
    """float32 values as codes; as bfloat16 cut, since any bfloat16 will do."""
    with np.errstate(over="ignore"):
        half = np.asarray(x, np.float16) if source == "float16" else x
    bits = np.ascontiguousarray(half).view(f"<u{half.itemsize}")
    return (bits >> 16).astype(np.uint16) if source == "bfloat16" else bits


def source_of(name: str, kind: str) -> str:
    """The sources of a recipe take turns."""
    sources = SHAPES[name].sources
    return sources[KINDS.index(kind) % len(sources)]


@cache
def matrix(name: str, kind: str) -> Array:
    """Codes of x for a recipe: at least two blocks each way, those of the last column and row smaller where they may.

    A matrix of one block has all numbers of its kind.
    """
    return coded(_values(SHAPES[name], kind, name in OF_SOME_NUMBER), source_of(name, kind))


def _values(shape: Shape, kind: str, some: bool) -> Array:
    width = shape.columns or 128
    if kind == "straddling":  # only NVFP4 has two levels
        return straddling(width, 35.84 if "global_scale" not in shape.given else _GIVEN["global_scale"], 75.0)
    if kind == "powers" and shape.rows == 1:
        return powers(width).reshape(-1, 2 * width if shape.columns else width)
    base = numbers("random" if kind == "powers" else kind, shape.rows == shape.columns == 0)
    if some and kind == "nan":
        base[0, 9] = 0.5
    if shape.columns == 1 and shape.rows > 1:  # groups run down the columns, the last of them smaller
        return np.concatenate([base.T, base.T[8:12]])
    if shape.ragged and shape.rows > 1:  # mostly zeros, which cost little to derive
        if kind == "powers":
            base = base * np.float32(2.0**-12)
            base[2, 7] = np.nextafter(np.float32(448 * 2.0**-9), np.float32(np.inf))
        x = np.zeros((129, 130), np.float32)
        x[:4, :128], x[3:7, 128:], x[128] = base, base[:, 62:64], np.resize(base[:, 30:41], 130)
        return x
    if shape.columns == 0:  # which blocks of 128 do not divide
        return np.concatenate([base, base[:, 1:5]], axis=1)
    if shape.ragged:
        return np.concatenate([base, base[::-1, 38:40]], axis=1)
    return base.reshape(-1, 2 * shape.columns) if shape.columns > 64 else base


@cache
def given(name: str, kind: str) -> Given:
    """What a recipe is given: another scale for each block, one value of the tensor."""
    shape, found = SHAPES[name], {}
    for what in shape.given:
        value = _GIVEN_OF.get((kind, what), _GIVEN[what])
        grid = shape.grid(*matrix(name, kind).shape) if what in ("scale", "zero_point") else (1, 1)
        places = np.arange(grid[0] * grid[1]).reshape(grid)
        if what == "zero_point":
            found[what] = (np.asarray(value - 3 * places, np.int32)).view(np.uint32)
        else:
            found[what] = np.asarray(value * (1 + places / (7 * places.size)), np.float32).view(np.uint32)
    return found


def kinds_of(name: str) -> list[str]:
    """The kinds of numbers that say something of a recipe: the last of two levels alone; few where they are dear."""
    if SHAPES[name].rows > 1 and SHAPES[name].columns > 1:
        return ["special", "powers", "faint", "nan"]
    return [k for k in KINDS if k != "straddling" or SHAPES[name].scale == "float8_e4m3fn"]


@cache
def derived(name: str, format: str, kind: str) -> dict[str, Array]:
    """The second derivation's answer for ``matrix`` and ``given``. Nobody changes it."""
    return derive(name, matrix(name, kind), source_of(name, kind), format, given(name, kind))
