# SPDX-License-Identifier: Apache-2.0
"""What the tests of functions around recipes share: numbers in and out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.noise import noise
from narrowgauge.suites.meta.second_derivation import Number, decode

F32 = npt.NDArray[np.float32]


def f32(values: Any) -> F32:
    return np.array(values, np.float32)


def coded(values: Any) -> Coded:
    return Coded("float32", np.ascontiguousarray(values, np.float32).view(np.uint32))


def as_bfloat16(values: F32) -> Coded:
    """Cut, which any bfloat16 may be."""
    return Coded("bfloat16", (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16))


def numbers(values: Any) -> list[Number]:
    return [decode(int(b), "float32") for b in np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()]


def bits(values: Any) -> list[int]:
    return [int(b) for b in np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()]


def random(*shape: int, seed: int = 1) -> F32:
    return noise(int(np.prod(shape)), seed).reshape(shape).astype(np.float32)
