"""Delayed scaling: a tensor's scale comes from the largest magnitudes of the calls before.

Source: NVIDIA Transformer Engine, C API ``nvte_delayed_scaling_recipe_amax_and_scale_update`` (its documentation and
common/recipe/delayed_scaling.cu) and ``_default_sf_compute`` of its PyTorch part. The state goes in and comes out;
nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import to_float32

F32 = npt.NDArray[np.float32]
_LARGEST = np.finfo(np.float32).max

#: How a history [length, tensors] becomes one largest magnitude a tensor. The kernel's fmaxf drops NaN, where torch's
#: max of the unfused path lets it through: then no scale is computed.
REDUCTIONS: dict[str, Callable[[F32], F32]] = {
    "max": lambda history: np.fmax.reduce(history, axis=0),
    "max_or_nan": lambda history: np.maximum.reduce(history, axis=0),
    "most_recent": lambda history: history[0],
}
Reduction = Literal["max", "max_or_nan", "most_recent"]


@dataclass(frozen=True)
class State:
    """Of several tensors: ``history`` float32 [length, tensors] of largest magnitudes; ``scale`` float32 [tensors].

    Entry 0 of the history is this call's, entry 1 the oldest, the last one the call's before. The scale is what x is
    multiplied by, as Transformer Engine keeps it; a reader is handed its reciprocal.
    """

    history: F32
    scale: F32

    def __post_init__(self) -> None:
        length, tensors = self.history.shape if self.history.ndim == 2 else (0, 0)
        if not length or not tensors or self.scale.shape != (tensors,):
            raise BadInput(
                f"delayed scaling: a history {list(self.history.shape)} and scales {list(self.scale.shape)}; "
                "expected [length, tensors] of at least one entry and one tensor, and [tensors]"
            )


def start(length: int, tensors: int = 1) -> State:
    """The state before the first call: nothing was seen, and the scale is 1."""
    return State(np.zeros((max(length, 0), tensors), np.float32), np.ones(tensors, np.float32))


def recorded(state: State, tensor: int, x: Coded) -> State:
    """The state after a call has put ``x``'s largest magnitude into entry 0, where it is larger. NaN counts as nothing.

    An infinity stays in the history, and with "max" keeps the scale from changing until it leaves.
    """
    magnitudes = np.abs(to_float32(x))
    history = state.history.copy()
    history[0, tensor] = np.fmax(history[0, tensor], np.fmax.reduce(magnitudes, axis=None, initial=np.float32(0)))
    return State(history, state.scale)


def updated(state: State, bound: float, margin: int = 0, reduction: Reduction = "max") -> State:
    """The state for the next call: float32 (bound * 2^-margin) / the reduced history, and the history moved on.

    The history is rotated by -1, so entry 0 becomes the last and the oldest is lost, and entry 0 is set to 0. Where the
    reduced magnitude is 0, infinite or NaN, the scale stays; where the quotient is infinite, the scale is the largest
    float32. Raises ``BadInput`` for another reduction, for a bound that is not above 0, for a margin beyond ±100.
    """
    if reduction not in REDUCTIONS:
        raise unknown("reduction", reduction, REDUCTIONS, "delayed scaling")
    if not (0 < bound < float(_LARGEST) and abs(margin) <= 100):
        raise BadInput(
            f"delayed scaling: bound {bound} and margin {margin}; "
            "expected the destination's largest value, such as 448, and a small number of powers of two"
        )
    with np.errstate(all="ignore"):
        amax: Any = REDUCTIONS[reduction](state.history)
        quotient = np.float32(bound) * np.float32(2.0**-margin) / amax
    quotient = np.where(np.isinf(quotient), _LARGEST, quotient)
    scale = np.where(np.isfinite(amax) & (amax > 0), quotient, state.scale)
    history = np.roll(state.history, -1, axis=0)
    history[0] = 0
    return State(history, scale.astype(np.float32))


def given(state: State, tensor: int, recipe: Recipe) -> dict[str, Coded]:
    """What a recipe is given of a state: ``global_scale``, or for a static one ``scale``, its reciprocal in float32.

    Raises ``BadInput`` for a recipe that takes neither alone. A reciprocal of a reciprocal is another number in one
    ulp: a static recipe that takes it again may give other codes than Transformer Engine.
    """
    scale = state.scale[tensor : tensor + 1].reshape(-1, 1)
    of = {"global_scale": scale, "scale": np.float32(1) / scale}
    if len(recipe.inputs) != 1 or recipe.inputs[0] not in of:
        raise BadInput(
            f"delayed scaling: recipe {recipe.name!r} is given {', '.join(recipe.inputs) or 'nothing'} beside x; "
            "expected one that is given a scale alone, as transformer_engine.fp8_delayed or vllm.fp8_static_tensor"
        )
    (name,) = recipe.inputs
    return {name: Coded("float32", np.ascontiguousarray(of[name]).view(np.uint32))}
