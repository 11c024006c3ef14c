# SPDX-License-Identifier: Apache-2.0
"""Matrices on which recipes are held to their second derivation: small, with everything at which recipes part."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.suites.meta.second_catalogue import SHAPES, Given, derive

Array = npt.NDArray[Any]
KINDS = ("special", "powers", "random", "ties", "outlier")
#: what is given for a block, by kind where one kind has something of its own; blocks after the first have others
_GIVEN = {"scale": 0.0371, "upper_bound": 3.0, "global_scale": 37.3, "zero_point": 5}
_GIVEN_OF = {("ties", "scale"): 1.0, ("outlier", "scale"): 3e-39, ("ties", "global_scale"): 0.7}


def numbers(kind: str) -> Array:
    """float32 values [4, 128] of one kind; a row has four blocks of 32."""
    base = np.asarray(np.random.default_rng(5).standard_normal((4, 128)), np.float32)
    if kind == "ties":  # amax is a power of two times the largest value of a format, elements on its ties
        base = np.asarray(np.resize(np.arange(-28, 29) / 4.0, (4, 128)), np.float32)
        base[:, ::32] = np.asarray([[448.0], [6.0], [7.5], [28.0]], np.float32)
    elif kind == "powers":  # amax on a power of two, one ulp below, one above, and on qmax * 2**k
        tops = np.asarray([2.0**-5, 1.0, 448 * 2.0**-9, 6 * 2.0**-3, 28.0, 7.5, 2.0**-20, 127.0], np.float32)
        tops = np.concatenate([np.nextafter(tops, np.float32(0)), tops, np.nextafter(tops, np.float32(np.inf))])
        base = np.asarray(base / 8, np.float32)
        base = np.asarray(base.reshape(16, 32) * tops[:16, None] / 4, np.float32)
        base[:, 3] = tops[8:24]
        base = base.reshape(4, 128)
    elif kind == "special":
        base[0] = 0
        base[0, 5] = -0.0
        base[1, 7] = np.nan
        base[2, 40] = np.inf
        base[3] = np.float32(2.0**-140) * np.arange(128, dtype=np.float32)
    elif kind == "outlier":
        base[:, 17] = 600.0
        base[3] = 3e38
        base[2] *= np.float32(1e-9)
    return base


def coded(x: Array, source: str) -> Array:
    """float32 values as codes; as bfloat16 cut, since any bfloat16 will do."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return bits if source == "float32" else (bits >> 16).astype(np.uint16)


@cache
def matrix(name: str, kind: str) -> Array:
    """Codes of x for a recipe: at least two blocks each way, those of the last column and row smaller where they may.

    A matrix of one block has all numbers of its kind.
    """
    shape, base = SHAPES[name], numbers(kind)
    if shape.ragged and shape.rows > 1:  # mostly zeros, which cost nothing to derive
        x = np.zeros((129, 130), np.float32)
        x[:4, :128], x[3:7, 128:], x[128] = base, base[:, 62:64], np.resize(base[:, 30:41], 130)
    elif shape.ragged:
        x = np.concatenate([base, base[::-1, 38:40]], axis=1)
    else:
        x = base.reshape(-1, 2 * shape.columns) if shape.columns > 64 else base
    return coded(x, shape.source)


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
            found[what] = np.asarray(value * (1 + places / 7), np.float32).view(np.uint32)
    return found


@cache
def derived(name: str, format: str, kind: str) -> dict[str, Array]:
    """The second derivation's answer for ``matrix`` and ``given``. Nobody changes it."""
    return derive(name, matrix(name, kind), SHAPES[name].source, format, given(name, kind))
