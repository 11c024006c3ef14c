"""The steps that recipes are made of: float32 in, float32 out, one IEEE operation each.

Whether NaN is dropped or kept is in a step's nature and stated in its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.recipe import Chain

F32 = npt.NDArray[np.float32]


def _f32(value: Any) -> Any:
    return np.float32(value)


STEPS: dict[str, Callable[..., Any]] = {
    "div": lambda x, c: x / _f32(c),
    "mul": lambda x, c: x * _f32(c),
    "recip": lambda x: _f32(1) / x,
    "at_least": lambda x, c: np.fmax(x, _f32(c)),  # NaN becomes c
}

#: How an element is brought within the bound. The order of the two operations decides what NaN becomes.
CLAMPS: dict[str, Callable[[F32, np.float32], F32]] = {
    "fmin_first": lambda x, c: np.fmax(np.fmin(x, c), -c),  # NaN becomes +bound
    "fmax_first": lambda x, c: np.fmin(np.fmax(x, -c), c),  # NaN becomes -bound
    "keep_nan": lambda x, c: np.minimum(np.maximum(x, -c), c),
    "none": lambda x, c: x,
}


def run_chain(chain: Chain, context: Mapping[str, Any]) -> Any:
    """Apply a chain's steps to the value of the context it starts from. Operands may be names of the context."""
    value = context[str(chain[0])]
    for step in chain[1:]:
        name, operands = (step, ()) if isinstance(step, str) else (step[0], step[1:])
        if name not in STEPS:
            raise unknown("step", name, STEPS, f"recipe chain {chain!r}")
        value = STEPS[name](value, *(context[o] if isinstance(o, str) else o for o in operands))
    return value
