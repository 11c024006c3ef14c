"""What nobody decides about a cache after a write: the slot of padding, and which of the tokens of one slot is kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.call import Numbers, slots_of
from narrowgauge.reference.kv.outputs import received, stored_rows
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.slots import is_padding


def free_rows(paged: Paged, x: Coded, count: int) -> Numbers:
    """Slots of which nobody may ask what stands there after a write: where padding is written."""
    padding = is_padding(paged.slots, slots_of(paged, x, count))
    return np.zeros(1, np.int32) if paged.slots.written and padding.any() else np.zeros(0, np.int32)


def shared_slots(paged: Paged, x: Coded, count: int) -> Mapping[int, Numbers]:
    """Slots that several tokens are written to, and those tokens in their order."""
    slots = slots_of(paged, x, count)
    real = np.flatnonzero(~is_padding(paged.slots, slots))
    numbers, counts = np.unique(slots[real], return_counts=True)
    return {int(n): real[slots[real] == n].astype(np.int32) for n in numbers[counts > 1]}


def settled(paged: Paged, x: Coded, found: Mapping[str, Coded], want: Expected, free: Numbers) -> dict[str, Coded]:
    """The matrices that were found, with what nobody decides as it is in ``want``, the outputs of ``paged``.

    That is what stands in the slots ``free``, and each part of a slot with several tokens that is of one of them,
    all of it.
    """
    count = next(iter(found.values())).shape[0]
    taken = received(paged, x)
    shared = shared_slots(paged, taken, count)
    if not free.size and not shared:
        return dict(found)
    tokens = stored_rows(paged, taken) if shared else {}
    result = {name: Coded(value.format, value.data.copy()) for name, value in found.items()}
    for name, value in result.items():
        value.data[free] = want[name].low.data[free]
    for part, _ in paged.parts:
        names = [name for name in result if name == part or name.startswith(f"{part}_")]
        for slot, of in shared.items():
            if any(all(_is(tokens, result, name, token, slot) for name in names) for token in of):
                for name in names:
                    result[name].data[slot] = want[name].low.data[slot]
    return result


def _is(tokens: Expected, found: Mapping[str, Coded], name: str, token: int, slot: int) -> bool:
    """Whether a slot holds what would be kept of a token."""
    return np.array_equal(tokens[name].low.data[token], found[name].data[slot])
