"""Faults of attention over a cache: ``kv_attention.*``. Those of how keys and values are read are readers' faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults import reading
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.faults.kv_edits import PagedEdit, Paging, gathering, paging
from narrowgauge.reference.interval import Expected, Interval, tensor_outputs
from narrowgauge.reference.kv.call import Numbers, key_width, rows_of, sizes_of
from narrowgauge.reference.kv.outputs import gathered
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.rule import Attention

_IGNORED = next(fault.edit for fault in reading.FAULTS if fault.name == "read.scale_ignored")
_LN2 = float(np.log(2))


def _rule(change: Callable[[Attention, Paged, Coded], Attention]) -> PagedEdit:
    """Another rule of the arithmetic."""

    def edit(paged: Paged) -> Paged:
        return replace(paged, attention=(*paged.attention, lambda rule, x: change(rule, paged, x)))

    return kv.where(kv.attends, edit)


def _scale(new: Callable[[float, Paged, Coded], float]) -> PagedEdit:
    """Another number to multiply scores with."""
    return _rule(lambda rule, paged, x: replace(rule, scale=float(np.float32(new(rule.scale, paged, x)))))


def _value_width(scale: float, paged: Paged, x: Coded) -> float:
    rows = rows_of(paged, x)
    name = "latent" if "latent" in rows else "v"
    heads = paged.cache.part(name).heads or sizes_of(kv.with_given(x, {}).given).heads
    return float(1 / np.sqrt(rows[name].shape[1] // heads))


def _key_width_alone(scale: float, paged: Paged, x: Coded) -> float:
    return float(1 / np.sqrt(_key_width(paged, kv.with_given(x, {}))))


def _has_scale(paged: Paged) -> bool:
    return kv.attends(paged) and getattr(paged.contract, "scale", 0.0) > 0


def _no_cap(paged: Paged) -> bool:
    return kv.attends(paged) and getattr(paged.contract, "soft_cap", 0.0) > 0


def _exact_weights(paged: Paged) -> bool:
    return kv.attends(paged) and getattr(paged.contract, "weights", "") == "float32"


def _is_mla(paged: Paged) -> bool:
    return kv.attends(paged) and any(name == "latent" for name, _ in paged.parts)


def _without_scale(paged: Paged) -> Paged | None:
    return paged.with_parts(_IGNORED)


def _values_ignored(paged: Paged) -> Paged | None:
    wrong = _without_scale(paged)
    return None if wrong is None else replace(paged, values_by=wrong.parts)


def _keys_ignored(paged: Paged) -> Paged | None:
    wrong = _without_scale(paged)
    return None if wrong is None else replace(wrong, values_by=paged.parts)


def _tokens(change: Callable[[Paging, int, Numbers], Numbers]) -> PagedEdit:
    return gathering(change, kv.attends)


def _until(given: Paging, sequence: int, slots: Numbers, count: int) -> Numbers:
    """The slots of the first ``count`` tokens, as though the sequence had so many."""
    token = np.arange(count)
    return np.asarray(given.table[sequence][token // given.block] * given.block + token % given.block)


def _one_more(given: Paging, sequence: int, slots: Numbers) -> Numbers:
    return _until(given, sequence, slots, slots.size + bool(slots.size % given.block))


def _to_the_end(given: Paging, sequence: int, slots: Numbers) -> Numbers:
    return _until(given, sequence, slots, -(-slots.size // given.block) * given.block)


def _stale(paged: Paged, outputs: Expected, x: Input) -> Expected:
    """NaN where a value behind the last token, in its page, is not finite: its weight of 0 times it is NaN."""
    given, (output,) = paging(x), outputs.values()
    low, high = output.low.data.copy(), output.high.data.copy()
    heads = sizes_of(x.given).heads
    for sequence, length in enumerate(given.lengths):
        token = np.arange(length, -(-length // given.block) * given.block)
        slots = given.table[sequence][token // given.block] * given.block + token % given.block
        poisoned = _not_finite(paged, x, slots.astype(np.int32))
        per_head = poisoned.reshape(heads, -1)
        queries = low.shape[1] // per_head.shape[1]
        mask = np.repeat(per_head, queries // heads, axis=0).ravel()
        low[sequence, mask] = high[sequence, mask] = _NAN[output.format]
    return {name: Interval(Coded(output.format, low), Coded(output.format, high)) for name in outputs}


#: a NaN of each format of an output
_NAN = {"float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00}


def _not_finite(paged: Paged, x: Input, slots: Numbers) -> npt.NDArray[np.bool_]:
    """Of each column of values: whether one in these slots is not finite."""
    parts = gathered(paged, x, slots)
    values = decode_values(tensor_outputs(*parts["latent" if "latent" in parts else "v"])["codes"].low)
    return np.asarray((~np.isfinite(values)).any(axis=0))


def _heads_in_turn(columns: int, x: Input, width: int) -> npt.NDArray[np.intp]:
    """Query heads in the order in which they are dealt to key heads in turn, as columns."""
    heads, queries = sizes_of(x.given).heads, columns // width
    order = np.argsort(np.arange(queries) % heads, kind="stable")
    return np.asarray((order[:, None] * width + np.arange(width)).ravel())


def _key_width(paged: Paged, x: Input) -> int:
    heads = sizes_of(x.given).heads
    return key_width({name: value.shape[1] for name, value in rows_of(paged, x).items()}, heads)


def _dealt(paged: Paged, x: Input) -> Coded:
    query = x.given["query"]
    order = _heads_in_turn(query.shape[1], x, _key_width(paged, x))
    return kv.with_given(x, {"query": Coded(query.format, query.data[:, order])})


def _undealt(paged: Paged, outputs: Expected, x: Input) -> Expected:
    (name, output), *_ = outputs.items()
    queries = x.given["query"].shape[1] // _key_width(paged, x)
    order = _heads_in_turn(output.low.shape[1], x, output.low.shape[1] // queries)
    back = np.argsort(order)
    return {name: Interval(*(Coded(end.format, end.data[:, back]) for end in (output.low, output.high)))}


def _in_turn(paged: Paged) -> Paged | None:
    first = kv.taking(_dealt)(paged)
    return None if first is None else kv.leaving(_undealt)(first)


def _first_head(paged: Paged, x: Input) -> Coded:
    """Keys and values of the first head in all."""
    heads = sizes_of(x.given).heads

    def first(value: Coded) -> Coded:
        if value.shape[1] % heads:
            return value
        by_head = value.data.reshape(value.shape[0], heads, -1)
        return Coded(value.format, np.broadcast_to(by_head[:, :1], by_head.shape).reshape(value.shape).copy())

    names = [n for n in x.given if n.split("_")[0] in dict(paged.parts)]
    return Input(x.format, first(x).data, {**x.given, **{n: first(x.given[n]) for n in names}})


FAULTS = (
    PagedFault(
        "kv_attention.soft_cap_missing",
        "ATTENTION",
        kv.where(_no_cap, _rule(lambda rule, paged, x: replace(rule, soft_cap=0.0))),
        "long prompts derail: large scores are not bent, and attention is too sharp",
        "the soft cap of the scores is not applied",
        (),
    ),
    PagedFault(
        "kv_attention.softmax_scale_missing",
        "ATTENTION",
        _scale(lambda scale, paged, x: 1.0),
        "attention is too sharp: a few tokens, often the wrong ones, take everything",
        "scores are not divided by the root of the head's width",
        (),
    ),
    PagedFault(
        "kv_attention.softmax_scale_twice",
        "ATTENTION",
        _scale(lambda scale, paged, x: scale * scale),
        "attention is too flat: all tokens count alike",
        "scores are divided by the head's width, and not by its root: it is in the query already, say",
        (),
    ),
    PagedFault(
        "kv_attention.softmax_scale_of_values",
        "ATTENTION",
        kv.where(lambda p: not _has_scale(p), _scale(_value_width)),
        "attention is a little too sharp or too flat",
        "the root of the width of values is taken, of MLA that of the latent part, where that of keys is right",
        (),
    ),
    PagedFault(
        "kv_attention.softmax_scale_of_width_alone",
        "ATTENTION",
        kv.where(_has_scale, _scale(_key_width_alone)),
        "attention is too sharp or too flat by a constant: long prompts suffer",
        "the root of the width is taken, where the model has another scale: a factor of the rotation (YaRN) is missing",
        ("TensorRT-LLM#3675",),
    ),
    PagedFault(
        "kv_attention.factor_of_base_2",
        "ATTENTION",
        _scale(lambda scale, paged, x: scale * _LN2),
        "attention is too flat",
        "2 is raised to scores that were not multiplied by log2(e)",
        (),
    ),
    PagedFault(
        "kv_attention.weights_in_bfloat16",
        "ATTENTION",
        kv.where(_exact_weights, _rule(lambda rule, paged, x: replace(rule, weights="bfloat16"))),
        "one part in 256 is lost",
        "weights are rounded to bfloat16 before they meet values, where float32 is claimed",
        (),
    ),
    PagedFault(
        "kv_attention.values_not_descaled",
        "SCALE",
        kv.where(_is_mla, _values_ignored),
        "outputs are off by the scale, and the right tokens are attended to",
        "the latent part is multiplied by its scale as a key, and not as a value",
        (),
    ),
    PagedFault(
        "kv_attention.keys_not_descaled",
        "SCALE",
        kv.where(_is_mla, _keys_ignored),
        "the wrong tokens are attended to",
        "the latent part is multiplied by its scale as a value, and not as a key",
        (),
    ),
    PagedFault(
        "kv_attention.masked_token_counted",
        "PADTAIL",
        _tokens(_one_more),
        "what stands behind the last token is attended to",
        "<= stands in the mask for <",
        (),
    ),
    PagedFault(
        "kv_attention.rest_of_page_counted",
        "PADTAIL",
        _tokens(_to_the_end),
        "what stands behind the last token of a page, of other requests, is attended to",
        "the last page is read to its end",
        (),
    ),
    PagedFault(
        "kv_attention.last_token_dropped",
        "PADTAIL",
        _tokens(lambda given, sequence, slots: slots[:-1] if slots.size > 1 else slots),
        "the newest token does not see itself",
        "the length is that before the token was written",
        (),
    ),
    PagedFault(
        "kv_attention.first_token_dropped",
        "PADTAIL",
        _tokens(lambda given, sequence, slots: slots[1:] if slots.size > 1 else slots),
        "the start of the prompt, where much of attention rests, is not seen",
        "the loop begins at 1",
        (),
    ),
    PagedFault(
        "kv_attention.stale_values",
        "PADTAIL",
        kv.where(kv.attends, kv.leaving(_stale)),
        "NaN now and then, by what stood in the cache before",
        "values behind the last token are loaded and weighed with 0: 0 times NaN is NaN",
        ("vllm#641", "flash-attention#1745"),
    ),
    PagedFault(
        "kv_attention.heads_dealt_in_turn",
        "ATTENTION",
        kv.where(kv.attends, _in_turn),
        "fluent nonsense with grouped queries; right with as many key heads as query heads, or one",
        "query head h reads key head h % heads, and not h // (queries in a group)",
        (),
    ),
    PagedFault(
        "kv_attention.first_head_for_all",
        "ATTENTION",
        kv.where(kv.attends, kv.taking(_first_head)),
        "fluent nonsense with several key heads; right with one",
        "the stride between heads is left out",
        (),
    ),
)
