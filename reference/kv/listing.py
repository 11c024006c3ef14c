"""Where an element of a cache, or of what was read from one, came from, in words."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, given_with
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.reference.behaviour import paged_behaviour
from narrowgauge.reference.kv.call import HELD, heads_of, numbers, places_of, rows_of, sizes_of
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.showing import show


def token_of(claim: Claim, x: Coded, output: str, index: tuple[int, ...]) -> str:
    """The token and the number that an element of an output came from, and the scale that is given for it."""
    paged = paged_behaviour(claim)
    if isinstance(claim.contract, Attend):
        return f"sequence {index[0]}, {int(numbers(given_with(x), 'lengths').ravel()[index[0]])} tokens"
    part = output.split("_")[0]
    if isinstance(claim.contract, KvWrite):
        return _written(paged, x, output, part, index)
    places = places_of(x)
    slot = int(np.concatenate(places)[index[0]])
    sequence = int(np.searchsorted(np.cumsum([p.size for p in places]), index[0], side="right"))
    return f"sequence {sequence}, {_slot(x, slot)}, {_element(paged, x, part, (slot, index[1]))}"


def _slot(x: Coded, slot: int) -> str:
    block = sizes_of(given_with(x)).block
    return f"slot {slot} (page {slot // block}, place {slot % block})"


def _written(paged: Paged, x: Coded, output: str, part: str, index: tuple[int, ...]) -> str:
    given, (slot, column) = given_with(x), index
    tokens = np.flatnonzero(numbers(given, "slots").ravel() == slot)
    if not tokens.size:
        held = given[HELD + output]
        return f"{_slot(x, slot)}, of no token: it held {show(Coded(held.format, held.data[index]))}"
    token = int(tokens[-1])
    if output == part:
        return f"{_slot(x, slot)}, token {token}, {_element(paged, x, part, (token, column))}"
    return f"{_slot(x, slot)}, token {token}, block {column} of {part}"


def _element(paged: Paged, x: Coded, part: str, index: tuple[int, int]) -> str:
    given, rows = given_with(x), rows_of(paged, x)[part]
    heads = heads_of(paged.cache.part(part), sizes_of(given))
    width = rows.shape[1] // heads
    words = [f"head {index[1] // width}, {show(Coded(rows.format, rows.data[index]))}"]
    for name, value in given.items():
        if name.startswith(f"{part}_"):
            row = index[0] if value.shape[0] == rows.shape[0] else 0
            there = (row, index[1] * value.shape[1] // rows.shape[1])
            words.append(f"{name} {show(Coded(value.format, value.data[there]))}")
    return ", ".join(words)
