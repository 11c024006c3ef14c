"""What a call of an engine is, and the forms in which engines return codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: torch tensor [rows, columns], what is given as torch tensors [1, 1] -> arrays by name; "values" are what codes mean
Run = Callable[[Any, Mapping[str, Any]], Mapping[str, Array]]
WIDE = ("float32", "bfloat16", "float16")
#: devices: of what torch runs; of Triton kernels, emulated. AMD divides exactly; shifts by more than 31 are NVIDIA's
TORCH, OCP, FNUZ, NVIDIA = "cpu", "gfx950", "gfx942", "sm_90"


@dataclass(frozen=True)
class Call:
    """A recipe, and the engine's function that it says it is."""

    recipe: str
    format: str
    device: str  #: TORCH, OCP or FNUZ
    run: Run
    sources: tuple[str, ...] = WIDE
    left_out: str = ""  #: which rows are left out, and why
    kept: Callable[[Array], Array] = lambda numbers: np.ones(len(numbers), np.bool_)  #: the others, of [rows, columns]


def finite(numbers: Array) -> Array:
    """Rows of numbers alone."""
    return np.asarray(np.isfinite(numbers).all(axis=1))


def fixed(function: Callable[..., Mapping[str, Array]], **values: Any) -> Run:
    """A run with further arguments."""
    return lambda x, given: function(x, given, **values)


def raw(tensor: Any) -> Array:
    """A tensor's codes, and float32 as numbers."""
    import torch

    from narrowgauge.devices.torch_gpu import as_they_are

    with as_they_are():
        tensor = tensor.detach().contiguous()
        if tensor.dtype in (torch.float32, torch.int32, torch.int8, torch.uint8):
            return np.array(tensor.numpy())
        return np.array(tensor.view(torch.uint8 if tensor.element_size() == 1 else torch.int16).numpy())


def nibbles(tensor: Any) -> Array:
    """Two codes of a byte, the low one first."""
    packed = raw(tensor)
    return np.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)


def grid(values: Any, rows: int) -> Array:
    """Scales [rows, blocks across], however an engine shapes them."""
    return raw(values).reshape(rows, -1)
