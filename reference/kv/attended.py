"""What attention makes of the tokens in a cache: keys and values as exact numbers with their scales apart, since a
kernel may apply a scale to a key, to a score or to the result (reference/kv/attention.py counts each)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Attend
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.dequantized import code_values, multipliers, to_elements
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.arithmetic import F64
from narrowgauge.reference.kv.attention import attend, rounded
from narrowgauge.reference.kv.call import Numbers, key_width, places_of, query_of, rows_of, sizes_of
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.rule import Attention

#: behaviour, call, slots -> what the reader of each part is given
Gather = Callable[[Paged, Coded, Numbers], Mapping[str, tuple[Behaviour, Input]]]
#: numbers [tokens, heads, columns of a head], and what they are multiplied by, [tokens, heads]
Scaled = tuple[F64, F64]


def attended(paged: Paged, x: Coded, gather: Gather) -> Expected:
    """What each sequence's query makes of its tokens, [sequences, query heads × columns of a value head]."""
    assert isinstance(paged.contract, Attend)
    query, heads = query_of(paged, x), sizes_of(given_with(x)).heads
    found = []
    for sequence, places in enumerate(places_of(x)):
        (keys, key_scale), (values, value_scale) = _keys_and_values(gather(paged, x, places), heads)
        if paged.values_by:
            others = replace(paged, parts=paged.values_by)
            _, (values, value_scale) = _keys_and_values(gather(others, x, places), heads)
        rule = _rule(paged.contract, keys.shape[2])
        for change in paged.attention:
            rule = change(rule, x)
        q = decode_values(Coded(query.format, query.data[sequence])).reshape(-1, keys.shape[2])
        found.append([end.reshape(-1) for end in attend(q, keys, values, rule, key_scale, value_scale)])
    columns = _output_columns(query, rows_of(paged, x), heads)
    low, high = (np.array([pair[end] for pair in found]).reshape(len(found), columns) for end in (0, 1))
    return {"output": rounded(low, high, paged.format)}


def _rule(contract: Attend, width: int) -> Attention:
    """What is claimed, and every way there: a kernel may multiply a scale or log2 e into q or k before the sum."""
    scale = softmax_scale(contract, width)
    return Attention(scale, contract.soft_cap, contract.weights, scaled_first=True)


def softmax_scale(contract: Attend, width: int) -> float:
    """What scores are multiplied by, a float32."""
    return contract.scale or float(np.float32(1 / np.sqrt(width)))


def _output_columns(query: Coded, rows: Mapping[str, Coded], heads: int) -> int:
    columns = {name: value.shape[1] for name, value in rows.items()}
    values = columns["v" if "v" in columns else "latent"] // heads
    return query.shape[1] // key_width(columns, heads) * values


def _scaled(behaviour: Behaviour, of_part: Input, heads: int) -> Scaled:
    """A part as exact numbers. Where a head has one scale for each token, or one of all, it stays apart, if it is one
    that a kernel may apply anywhere: positive and finite."""
    for change in behaviour.received:
        of_part = Input(of_part.format, (changed := change(of_part)).data, given_with(changed))
    recipe, (count, columns) = behaviour.recipe, of_part.shape
    shape = (count, heads, columns // heads)
    if recipe is None:
        return decode_values(of_part).reshape(shape), np.ones((count, heads))
    outputs = {"codes": Coded(of_part.format, of_part.data), "scale": of_part.given["scale"]}
    codes = code_values(outputs, recipe, of_part.given)
    scale = to_elements(multipliers(outputs, recipe, of_part.given), recipe.blocks, of_part.shape)
    each = np.broadcast_to(scale, of_part.shape).reshape(shape)
    if (each == each[:, :, :1]).all() and (np.isfinite(each) & (each > 0)).all():
        return codes.reshape(shape), each[:, :, 0]
    with np.errstate(invalid="ignore", over="ignore"):  # a fault may read any scale
        return codes.reshape(shape) * each, np.ones((count, heads))


def _keys_and_values(gathered: Mapping[str, tuple[Behaviour, Input]], heads: int) -> tuple[Scaled, Scaled]:
    """Of MLA a key is latent and rope, and the value is the latent."""
    parts = {name: _scaled(*each, heads) for name, each in gathered.items()}
    if "latent" not in parts:
        return parts["k"], parts["v"]
    latent, rope = parts["latent"], parts["rope"]
    whole = [numbers * scale[:, :, None] for numbers, scale in (latent, rope)]
    return (np.concatenate(whole, axis=2), np.ones_like(latent[1])), latent
