"""Wrong attention over caches: the right result but for a mistake that a kernel could make."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.call import places_of
from narrowgauge.reference.kv.contents import nearest
from narrowgauge.suites.meta.wrong_cache_calls import F64, Buffers, Call, right_outputs


def _scores(call: Call) -> list[F64]:
    """Of each sequence, [heads, queries of each, tokens]; of a static scale."""
    k_scale = float(call.x.given["k_scale"].data.view(np.float32).ravel()[0])
    query, found = decode_values(call.x.given["query"]), []
    for sequence, used in enumerate(places_of(call.x)):
        keys = decode_values(Coded(call.x.format, call.x.data[used])) * k_scale
        width = keys.shape[1] // call.heads
        q, k = query[sequence].reshape(call.heads, -1, width), keys.reshape(-1, call.heads, width)
        found.append(np.einsum("hgd,thd->hgt", q, k) / width**0.5)
    return found


def overflows(call: Call) -> None:
    """exp without the largest score subtracted."""
    for sequence, scores in enumerate(_scores(call)):
        if (scores > 88.7).any():
            call.spoil([sequence])


def _weighed(call: Call, change: Callable[[F64], F64], least: float = 0.0) -> None:
    """Attention in float64, with scores changed, and no weights below ``least``."""
    v_scale = float(call.x.given["v_scale"].data.view(np.float32).ravel()[0])
    v = call.x.given["v"]
    for sequence, (scores, used) in enumerate(zip(_scores(call), places_of(call.x), strict=True)):
        if used.size:
            scores = change(scores)
            weight = np.exp(scores - scores.max(axis=2, keepdims=True))
            weight = np.where(weight < least, 0, weight) / weight.sum(axis=2, keepdims=True)
            values = decode_values(Coded(v.format, v.data[used])).reshape(used.size, call.heads, -1) * v_scale
            row = np.einsum("hgt,thd->hgd", weight, values).ravel()
            call.out["output"][sequence] = nearest(row, format_named(call.claim.format))


def small_weights_lost(call: Call) -> None:
    """Weights are held in float16, and its subnormals are flushed."""
    _weighed(call, lambda scores: scores, 2.0**-14)


def straight_cap(call: Call) -> None:
    """The cap's tanh is right up to 1, and stays there."""
    _weighed(call, lambda scores: 30 * np.tanh(np.clip(scores / 30, -1, 1)))


def no_query(call: Call) -> None:
    """A row whose largest score is 0 is taken for one without keys."""
    for sequence in range(len(call.lengths)):
        if not (decode_values(call.x.given["query"])[sequence] != 0).any():
            call.out["output"][sequence] = 0


def _nan_to_zero(call: Call) -> dict[str, Coded]:
    """NaN is cleaned out of the whole cache."""
    found = {}
    for name in ("k", "v"):
        value = call.x if name == "k" else call.x.given[name]
        found[name] = Coded(value.format, np.where(np.isnan(decode_values(value)), 0, value.data).astype(np.uint8))
    return found


def cleaned(claim: Claim, x: Input) -> Buffers:
    other = _nan_to_zero(Call(claim, x, {}))
    made = right_outputs(claim, Input(x.format, other.pop("k").data, {**x.given, **other}))
    return {name: value.low for name, value in made.items()}


def masked_by_key(call: Call) -> None:
    """A slot behind the end is left out where its key is NaN; otherwise its value is multiplied by 0."""
    for sequence, used in enumerate(places_of(call.x)):
        if used.size and (used[-1] + 1) % call.block:
            behind = used[-1] + 1
            key = decode_values(Coded(call.x.format, call.x.data[behind : behind + 1]))
            value = call.x.given["v"]
            if not np.isnan(key).any() and np.isnan(decode_values(Coded(value.format, value.data[behind]))).any():
                call.spoil([sequence])


def nothing_returned(claim: Claim, x: Input) -> Buffers:
    """Nothing is returned where nothing is asked for."""
    right = {name: value.low for name, value in right_outputs(claim, x).items()}
    return right if given_with(x)["lengths"].data.size else {}
