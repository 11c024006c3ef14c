"""Faults of scales of caches: ``kv_scale.*``. Those of all parts at once are faults of quantizers and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.faults import elements, levels, reading
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.faults.kv_edits import PagedEdit
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.call import sizes_of
from narrowgauge.reference.kv.cases import SCALES
from narrowgauge.reference.kv.paged import Paged

_EDITS = {fault.name: fault.edit for family in (elements, levels, reading) for fault in family.FAULTS}
K, V = 0, 1


def _scaled_alike(paged: Paged) -> bool:
    """Whether there are two parts, each with a scale of its own."""
    return len(kv.scaled_parts(paged)) == 2


def _given(paged: Paged) -> bool:
    """Whether the caller gives scales."""
    return any(b.recipe is not None and {"scale", "global_scale"} & set(b.recipe.inputs) for _, b in paged.parts)


def _in_one(writer: str, reader: str, of_all: str, part: int) -> PagedEdit:
    """A fault of quantizers, or of readers, in one part of two: in the scale that is given, if it is that of all."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        two_levels = behaviour.recipe is not None and "global_scale" in behaviour.recipe.inputs
        names = _OF_ALL[of_all] if two_levels else (writer, reader)
        edited: Behaviour | None = _EDITS[names[behaviour.reads]](behaviour)
        return edited

    return kv.where(_scaled_alike, kv.parts(edit, part))


#: the same mistakes with the scale of a whole tensor: of a quantizer, of a reader
_OF_ALL = {
    "ignored": ("global.left_out", "read.global_ignored"),
    "twice": ("global.applied_twice", "read.global_twice"),
    "inverted": ("global.inverted", "read.global_inverted"),
}


def _exchanged(new: Callable[[Coded, Coded], tuple[Coded, Coded]]) -> PagedEdit:
    """Other scales for keys and values, of those that are given, or else of those that are stored."""

    def pairs(paged: Paged, names: Iterable[str]) -> list[tuple[str, str]]:
        one, other = (f"{name}_" for name in kv.scaled_parts(paged))
        return [(n, other + n.removeprefix(one)) for n in names if n.startswith(one)]

    def taken(paged: Paged, x: Input) -> Coded:
        changed: dict[str, Coded] = {}
        for pair in pairs(paged, kv.given_scales(paged, x) or filter(kv.is_scale, kv.kept(paged))):
            changed.update(zip(pair, new(*(x.given[n] for n in pair)), strict=True))
        return kv.with_given(x, changed)

    def stored(paged: Paged, outputs: Expected, x: Input) -> Expected:
        changed: Expected = {}
        for pair in pairs(paged, filter(kv.is_scale, kv.kept(paged))):
            low, high = (new(*(getattr(outputs[n], end) for n in pair)) for end in ("low", "high"))
            changed.update({n: Interval(*ends) for n, *ends in zip(pair, low, high, strict=True)})
        return changed

    return kv.where(
        _scaled_alike,
        kv.either(
            kv.where(lambda p: kv.reads(p) or _given(p), kv.taking(taken)),
            kv.where(kv.has_stored_scales, kv.leaving(stored)),
        ),
    )


def _given_scales(change: Callable[[str, Coded, Input], Coded], fits: kv.Fits) -> PagedEdit:
    """Other numbers for the scales that come with a call."""

    def taken(paged: Paged, x: Input) -> Coded:
        names = kv.given_scales(paged, x) or tuple(filter(kv.is_scale, kv.kept(paged)))
        return kv.with_given(x, {n: change(n, x.given[n], x) for n in names})

    return kv.where(fits, kv.taking(taken))


def _last_head(name: str, value: Coded, x: Input) -> Coded:
    heads = sizes_of(x.given).heads
    if value.shape[1] % heads:
        return value
    by_head = value.data.reshape(value.shape[0], heads, -1)
    return Coded(value.format, np.broadcast_to(by_head[:, -1:], by_head.shape).reshape(value.shape).copy())


def _of_the_first_call(name: str, value: Coded, x: Input) -> Coded:
    numbers = SCALES[name.split("_")[0]]
    chosen = np.resize(np.array(numbers, np.float32), value.data.size).reshape(value.shape)
    return Coded(value.format, chosen.view(np.uint32))


def _times(factor: float) -> Callable[[str, Coded, Input], Coded]:
    return lambda name, value, x: Coded(
        value.format, (value.data.view(np.float32) * np.float32(factor)).view(np.uint32)
    )


def _fnuz(paged: Paged) -> bool:
    formats = (b.source if b.reads else b.format for _, b in paged.parts if b.recipe is not None)
    return _given(paged) and any(format_named(name).family == "fnuz" for name in formats)


def _of_the_slot(step: int) -> PagedEdit:
    """The scale that stands in a neighbouring slot."""

    def taken(paged: Paged, x: Input) -> Coded:
        names = [n for n in kv.kept(paged) if kv.is_scale(n)]
        rolled = {n: Coded(x.given[n].format, np.roll(x.given[n].data, -step, axis=0)) for n in names}
        return kv.with_given(x, rolled)

    reader = kv.where(lambda p: kv.reads(p) and kv.has_stored_scales(p), kv.taking(taken))
    writer = kv.of_outputs(kv.real(lambda slots, s: slots + step), kv.is_scale)
    return kv.either(reader, kv.where(kv.writes, writer))


def _not_stored() -> PagedEdit:
    return kv.of_outputs(kv.real(lambda slots, s: np.full_like(slots, kv.NOWHERE)), kv.is_scale)


FAULTS = (
    *(
        PagedFault(
            f"kv_scale.{letter}_{what}",
            "SCALE",
            _in_one(writer, reader, what, part),
            f"{noun} are off by {how}, the others right; nothing to see where the scale is 1",
            cause.format(noun=noun, letter=letter),
            reports if letter == "k" else (),
        )
        for letter, noun, part in (("k", "keys", K), ("v", "values", V))
        for what, writer, reader, how, cause, reports in (
            (
                "ignored",
                "element.not_scaled",
                "read.scale_ignored",
                "their scale",
                "the scale of {noun} alone does not arrive: a checkpoint's {letter}_scale was dropped, and 1 is used",
                (),
            ),
            (
                "twice",
                "element.scaled_twice",
                "read.scale_twice",
                "their scale",
                "the scale of {noun} is applied, and once more by another layer (to the query, or folded into softmax)",
                (),
            ),
            (
                "inverted",
                "element.multiplied_for_divided",
                "read.scale_inverted",
                "the square of their scale",
                "the scale of {noun} and its reciprocal are taken for each other",
                (),
            ),
        )
    ),
    PagedFault(
        "kv_scale.k_for_both",
        "SCALE",
        _exchanged(lambda k, v: (k, k)),
        "values are off by the ratio of the two scales",
        "the scale of keys is used for values too",
        (),
    ),
    PagedFault(
        "kv_scale.v_for_both",
        "SCALE",
        _exchanged(lambda k, v: (v, v)),
        "keys are off by the ratio of the two scales",
        "the scale of values is used for keys too",
        (),
    ),
    PagedFault(
        "kv_scale.exchanged",
        "SCALE",
        _exchanged(lambda k, v: (v, k)),
        "keys and values are off by the ratio of the two scales",
        "the two scales stand in each other's place among the arguments",
        (),
    ),
    PagedFault(
        "kv_scale.last_head_for_all",
        "GRANULARITY",
        _given_scales(
            _last_head, lambda p: any(part.per_head for part in p.cache.parts) and (kv.reads(p) or _given(p))
        ),
        "right in the last head alone",
        "the scales of heads are written to one place, and the last one stays",
        (),
    ),
    PagedFault(
        "kv_scale.of_the_first_call",
        "STATE",
        _given_scales(_of_the_first_call, _given),
        "right until scales change: after new weights, calibration, or in the next layer, all is off by a ratio",
        "the scale is frozen into a captured graph or a compiled kernel, or is the one from before a reload",
        (),
    ),
    PagedFault(
        "kv_scale.doubled",
        "FNUZ",
        _given_scales(_times(2.0), _fnuz),
        "codes are half, or values twice, what they should be",
        "the scale is doubled for FNUZ by the loader, and once more by the kernel",
        (),
    ),
    PagedFault(
        "kv_scale.halved",
        "FNUZ",
        _given_scales(_times(0.5), _fnuz),
        "codes are twice, or values half, what they should be; what is large clips",
        "a checkpoint's scale, which is for OCP, is used for FNUZ without being doubled",
        (),
    ),
    PagedFault(
        "kv_scale.of_the_slot_after",
        "SCALE",
        _of_the_slot(1),
        "each token is read with another token's scale; nothing to see where tokens are alike",
        "scales are written to, or read from, the slot after that of their codes",
        (),
    ),
    PagedFault(
        "kv_scale.of_the_slot_before",
        "SCALE",
        _of_the_slot(-1),
        "each token is read with another token's scale; nothing to see where tokens are alike",
        "scales are written to, or read from, the slot before that of their codes",
        (),
    ),
    PagedFault(
        "kv_scale.not_stored",
        "SCALE",
        _not_stored(),
        "tokens are read with the scale of who had the slot before: noise, or NaN",
        "codes are written and their scales are not: left out of a copy, an offload or a transfer",
        ("sglang#29913",),
    ),
)
