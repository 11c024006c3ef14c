"""Slot numbers: which stand for padding, and what becomes of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.cache import Slots
from narrowgauge.contracts.errors import BadInput, unknown

Numbers = npt.NDArray[np.int32]
_VLLM, _SGLANG = "vLLM 0.33.0", "SGLang 0.5.23"

SLOTS: dict[str, Slots] = {
    rule.name: rule
    for rule in (
        Slots("negative_skipped", "negative", False, f"{_VLLM}, csrc/cache_kernels.cu:265-421: slot_idx < 0 returns"),
        Slots("zero_written", "zero", True, f"{_SGLANG}, memory_pool.py: slot 0 takes what padding tokens write"),
        Slots("zero_skipped", "zero", False, f"{_SGLANG}, reserved_skip_index of the MLA store; the MXFP8 store"),
    )
}


def slots_named(name: str) -> Slots:
    """The rule of that name. Raises ``BadInput`` with near names."""
    if name not in SLOTS:
        raise unknown("rule of slots", name, SLOTS)
    return SLOTS[name]


def is_padding(rule: Slots, slots: Numbers) -> npt.NDArray[np.bool_]:
    """Which tokens are padding, [tokens]."""
    return np.asarray(slots < 0 if rule.padding == "negative" else slots == 0)


def check_slots(rule: Slots, slots: Numbers, count: int) -> None:
    """Raise ``BadInput`` for a number that is neither padding nor a slot of a cache of ``count`` slots."""
    wrong = ~is_padding(rule, slots) & ((slots < 0) | (slots >= count))
    if wrong.any():
        token = int(np.flatnonzero(wrong)[0])
        padding = "any negative number" if rule.padding == "negative" else "slot 0"
        raise BadInput(
            f"slot_mapping[{token}] is {int(slots[token])}; expected a slot from 0 to {count - 1}, or for padding "
            f"{padding}"
        )
