"""What comes of a call on a cache: its matrices after a write, the values that are read, what attention gives."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, KvWrite
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.attended import attended
from narrowgauge.reference.kv.call import (
    HELD,
    Numbers,
    is_undone,
    part_input,
    places_of,
    rows_of,
    sizes_of,
    slots_of,
    turned_back,
)
from narrowgauge.reference.kv.known import known_outputs
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.pages import Sizes, storable
from narrowgauge.reference.kv.slots import is_padding


def paged_outputs(paged: Paged, x: Coded | Interval) -> Expected:
    """The outputs that a behaviour may give, right or wrong. Raises ``BadInput`` for a call that is none."""
    if not isinstance(x, Coded):
        raise BadInput("a call on a cache is known exactly; an interval of inputs came")
    taken = received(paged, x)
    if isinstance(paged.contract, KvWrite):
        outputs = written(paged, taken)
    else:
        outputs = attended(paged, taken, gathered) if isinstance(paged.contract, Attend) else read(paged, taken)
    for finish in paged.after:
        outputs = finish(outputs, x)
    return outputs


def received(paged: Paged, x: Coded) -> Input:
    """The call as a behaviour takes it."""
    taken = Input(x.format, x.data, given_with(x))
    for change in paged.received:
        taken = change(taken)
    return taken


def stored_rows(paged: Paged, x: Coded) -> Expected:
    """What would be kept of each token: matrices [tokens, …] by name."""
    found = {}
    for name, rows in rows_of(paged, x).items():
        behaviour, of_part = part_input(paged, name, rows, given_with(x))
        for other, value in known_outputs(behaviour, of_part).items():
            named = name if other == "codes" else f"{name}_{other}"
            found[named] = _kept(paged, named, value)
    return found


def _kept(paged: Paged, name: str, value: Interval) -> Interval:
    low = storable(paged.cache, name, value.low)
    return Interval(low, low if value.low is value.high else storable(paged.cache, name, value.high))


def written(paged: Paged, x: Coded) -> Expected:
    """The matrices of the cache after a write. Of tokens with one slot the last one stays."""
    given, result = given_with(x), {}
    rows = stored_rows(paged, x)
    for name, value in rows.items():
        held = given.get(HELD + name)
        if held is None or held.format != value.format or held.data.ndim != 2 or held.shape[1] != value.low.shape[1]:
            came = "nothing" if held is None else f"{held.format} {list(held.shape)}"
            raise BadInput(f"{HELD}{name}: {came} came; expected {value.format} [slots, {value.low.shape[1]}]")
        slots = slots_of(paged, x, held.shape[0])
        kept = ~is_padding(paged.slots, slots) | paged.slots.written
        low, high = held.data.copy(), held.data.copy()
        for end, of in ((low, value.low), (high, value.high)):
            for token in np.flatnonzero(kept):  # one after the other: the last one stays
                end[slots[token]] = of.data[token]
        one = Coded(held.format, low)
        result[name] = Interval(one, one if value.low is value.high else Coded(held.format, high))
    return result


def gathered(paged: Paged, x: Coded, places: Numbers) -> dict[str, tuple[Behaviour, Input]]:
    """What the reader of each part is given for the tokens in these slots."""
    given = given_with(x)
    found = {}
    for name, rows in rows_of(paged, x).items():
        there = {
            other: Coded(value.format, value.data[places])
            for other, value in given.items()
            if other.startswith(f"{name}_") and value.shape[0] == x.shape[0] and value.shape[0] > 1
        }
        found[name] = part_input(paged, name, Coded(rows.format, rows.data[places]), {**given, **there})
    return found


def read(paged: Paged, x: Coded) -> Expected:
    """The values of all sequences, one after the other."""
    places = places_of(x)
    parts = gathered(paged, x, np.concatenate(places) if places else np.zeros(0, np.int32))
    return {name: _values(paged, name, *each, sizes_of(given_with(x))) for name, each in parts.items()}


def _values(paged: Paged, name: str, behaviour: Behaviour, of_part: Input, sizes: Sizes) -> Interval:
    """A part's values; what a writer did first is turned back in float32, where readers do that."""
    part = paged.cache.part(name)
    if not is_undone(part):
        return known_outputs(behaviour, of_part)["codes"]
    back = turned_back(part, behaviour, of_part, sizes)
    return Interval.exactly(behaviour.finished({"codes": behaviour.last_cast(back)})["codes"])
