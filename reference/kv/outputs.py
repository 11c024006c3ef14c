"""What comes of a call on a cache: its matrices after a write, the values that are read, what attention gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, KvWrite
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected, Interval, tensor_outputs
from narrowgauge.reference.kv.arithmetic import F64
from narrowgauge.reference.kv.attention import Attention, attend, rounded
from narrowgauge.reference.kv.call import HELD, Numbers, part_input, places_of, query_of, rows_of, sizes_of, slots_of
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.slots import is_padding


def paged_outputs(paged: Paged, x: Coded | Interval) -> Expected:
    """The outputs that a behaviour may give, right or wrong. Raises ``BadInput`` for a call that is none."""
    if not isinstance(x, Coded):
        raise BadInput("a call on a cache is known exactly; an interval of inputs came")
    taken = received(paged, x)
    if isinstance(paged.contract, KvWrite):
        outputs = written(paged, taken)
    else:
        outputs = attended(paged, taken) if isinstance(paged.contract, Attend) else read(paged, taken)
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
        for other, value in tensor_outputs(behaviour, of_part).items():
            found[name if other == "codes" else f"{name}_{other}"] = value
    return found


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


def gathered(paged: Paged, x: Coded, places: Numbers) -> Expected:
    """The values of the tokens in these slots, of each part."""
    given, result = given_with(x), {}
    for name, rows in rows_of(paged, x).items():
        there = {
            other: Coded(value.format, value.data[places])
            for other, value in given.items()
            if other.startswith(f"{name}_") and value.shape[0] == x.shape[0] and value.shape[0] > 1
        }
        behaviour, of_part = part_input(paged, name, Coded(rows.format, rows.data[places]), {**given, **there})
        result[name] = tensor_outputs(behaviour, of_part)["codes"]
    return result


def read(paged: Paged, x: Coded) -> Expected:
    """The values of all sequences, one after the other."""
    places = places_of(x)
    return gathered(paged, x, np.concatenate(places) if places else np.zeros(0, np.int32))


def attended(paged: Paged, x: Coded) -> Expected:
    """What each sequence's query makes of its tokens, [sequences, query heads × columns of a value head]."""
    assert isinstance(paged.contract, Attend)
    query, heads = query_of(paged, x), sizes_of(given_with(x)).heads
    found = []
    for sequence, places in enumerate(places_of(x)):
        keys, values = _keys_and_values(gathered(paged, x, places), heads)
        if paged.values_by:
            _, values = _keys_and_values(gathered(replace(paged, parts=paged.values_by), x, places), heads)
        q = decode_values(Coded(query.format, query.data[sequence])).reshape(-1, keys.shape[2])
        rule = Attention(softmax_scale(paged.contract, keys.shape[2]), paged.contract.soft_cap, paged.contract.weights)
        for change in paged.attention:
            rule = change(rule, x)
        found.append([end.reshape(-1) for end in attend(q, keys, values, rule)])
    columns = found[0][0].size if found else query.shape[1]
    low, high = (np.array([pair[end] for pair in found]).reshape(len(found), columns) for end in (0, 1))
    return {"output": rounded(low, high, paged.format)}


def softmax_scale(contract: Attend, width: int) -> float:
    """What scores are multiplied by, a float32."""
    return contract.scale or float(np.float32(1 / np.sqrt(width)))


def _keys_and_values(parts: Expected, heads: int) -> tuple[F64, F64]:
    """[tokens, heads, columns] of each. Of MLA a key is latent and rope, and the value is the latent."""
    each = {name: _by_heads(value, heads) for name, value in parts.items()}
    if "latent" in each:
        return np.concatenate([each["latent"], each["rope"]], axis=2), each["latent"]
    return each["k"], each["v"]


def _by_heads(value: Interval, heads: int) -> F64:
    if not value.exact:
        raise BadInput("attention: what a reader leaves open is not derived")
    count, columns = value.low.shape
    return decode_values(value.low).reshape(count, heads, columns // heads)
