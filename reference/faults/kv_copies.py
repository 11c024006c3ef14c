"""The fault of caches that keep 16 bits: a scale that is not theirs. ``kv_scale.on_a_copy``"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.reference.policies import resolve
from narrowgauge.reference.steps import F32


def _has_copies(paged: Paged) -> bool:
    return any(part.unused_scale for part in paged.cache.parts)


def _scaled(value: Coded, scale: Coded, by: Callable[[F32, F32], F32]) -> Coded:
    """Values times a scale, or divided by it, in float32, rounded to their own format."""
    with np.errstate(all="ignore"):
        number = by(to_float32(value), to_float32(scale)).astype(np.float32)
    return cast(Coded("float32", number.view(np.uint32)), value.format, resolve("ieee", value.format))


def _divided(paged: Paged, x: Input) -> Coded:
    """Rows over the scales that are given for another kind of cache."""
    given = {**x.given}
    first = paged.parts[0][0]
    for name in (n for n, _ in paged.parts if n != first and f"{n}_scale" in x.given):
        given[name] = _scaled(x.given[name], x.given[f"{name}_scale"], np.divide)
    return Input(x.format, _scaled(x, x.given[f"{first}_scale"], np.divide).data, given)


def _multiplied(paged: Paged, outputs: Expected, x: Input) -> Expected:
    return {
        name: Interval.exactly(_scaled(value.low, x.given[f"{name}_scale"], np.multiply))
        for name, value in outputs.items()
        if f"{name}_scale" in x.given
    }


def _with_softmax(paged: Paged) -> Paged:
    """The scale of keys is folded into that of softmax."""

    def change(rule: Attention, x: Coded) -> Attention:
        (scale,) = to_float32(given_with(x)[f"{paged.parts[0][0]}_scale"]).ravel()
        return replace(rule, scale=float(np.float32(rule.scale) * scale))

    return replace(paged, attention=(*paged.attention, change))


FAULTS = (
    PagedFault(
        "kv_scale.on_a_copy",
        "SCALE",
        kv.where(
            _has_copies,
            kv.either(
                kv.where(kv.writes, kv.taking(_divided)),
                kv.where(kv.attends, _with_softmax),
                kv.leaving(_multiplied),
            ),
        ),
        "scores are off by a checkpoint's scale, 16 times too small in one report: repetition",
        "the scale of an fp8 cache is applied to one of 16 bits: that a checkpoint has it decides, not the cache",
        ("sglang#18396",),
    ),
)
