"""The choices of a cast, measured from its codes: every policy that a format can express is tried.

So a cast that no named policy describes can still be said exactly. The policies are tried on a witness first, a cut of
every place of the number line weighted by how many inputs it stands for, and the best of them on everything.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy, options
from narrowgauge.reference.codec import WIDEST_TABLE, Values, encode, has_negative_zero, values
from narrowgauge.reference.compare import Difference, Mask, compare
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.landmarks import places
from narrowgauge.reference.policies import check_fits, fitting, resolve
from narrowgauge.reference.witness import spread

#: elements of each place and sign that a witness takes, and policies that are tried on everything where none fits it
PER_PLACE, TRIED = 64, 16


@dataclass(frozen=True)
class Choices:
    """The policies that leave the fewest codes unexplained, choice by choice.

    ``values`` has the choices that the format leaves open. More than one value of a choice: the inputs do not tell.
    """

    values: dict[str, tuple[str | float | None, ...]]
    left: int  #: inputs that these policies do not reproduce; 0: this is exactly the cast

    def __str__(self) -> str:
        return ", ".join(f"{name} {' or '.join(map(str, found))}" for name, found in self.values.items())


def mistaken(right: CastPolicy, choices: Choices) -> str:
    """The choices in which a cast differs from ``right``, in words: "rounding down, limit 240"."""
    wrong = {name: found for name, found in choices.values.items() if getattr(right, name) not in found}
    words = (f"{name} {' or '.join(_word(v) for v in found)}" for name, found in wrong.items())
    return ", ".join(words)


def _word(value: str | float | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def choices_of(x: Coded, got: Coded, difference: Difference) -> Choices | None:
    """The choices of a cast that made ``got`` of ``x`` (1-d). ``difference`` is that from some policy: the places where
    it differs are looked at too. None for a destination that leaves no choice (more than 19 bits)."""
    fmt = format_named(got.format)
    if fmt.bits > WIDEST_TABLE:
        return None
    tried = every_policy(fmt, _limit_of(x, got, fmt), _zero_point_of(x, got, fmt))
    rows, weights = _witness(x, fmt, difference)
    few, value = got.take(rows), decode_values(x.take(rows))
    estimates = np.array([weights[_differs(encode(value, fmt, p), few)].sum() for p in tried])
    best = [tried[i] for i in np.argsort(estimates, kind="stable")]
    fit = int(np.count_nonzero(estimates == 0))
    lefts = {p: int(_differs(cast(x, fmt.name, p).data, got).sum()) for p in best[: fit or TRIED]}
    if fit and min(lefts.values()):  # the witness overlooked something
        lefts |= {p: int(_differs(cast(x, fmt.name, p).data, got).sum()) for p in best[fit : fit + TRIED]}
    least = min(lefts.values())
    found = [p for p in tried if lefts.get(p) == least]
    open_to_choice = [f.name for f in fields(CastPolicy) if len({getattr(p, f.name) for p in tried}) > 1]
    return Choices({name: tuple(dict.fromkeys(getattr(p, name) for p in found)) for name in open_to_choice}, least)


@cache
def every_policy(fmt: Format, limit: float | None = None, zero_point: int = 0) -> tuple[CastPolicy, ...]:
    """Every policy that a format with a named one can express, with that limit or zero point and without."""
    base = resolve(fitting(fmt.name)[0], fmt.name)
    tried: dict[str, tuple[Any, ...]] = {f.name: (f.default,) for f in fields(CastPolicy)} | options()
    tried["rounding"] = tuple(r for r in tried["rounding"] if r != "stochastic")  # that is no function of the value
    tried["limit"] += () if limit is None else (limit,)
    tried["zero_point"] += () if zero_point == 0 else (zero_point,)
    if not has_negative_zero(fmt):
        tried["negative_zero"] = (base.negative_zero,)  # there is none to keep
    fit = {name: [v for v in given if _fits(replace(base, **{name: v}), fmt)] for name, given in tried.items()}
    return tuple(CastPolicy(*chosen) for chosen in product(*fit.values()))


def _fits(policy: CastPolicy, fmt: Format) -> bool:
    try:
        check_fits(policy, fmt)
    except BadInput:
        return False
    return True


def _limit_of(x: Coded, got: Coded, fmt: Format) -> float | None:
    """The largest finite magnitude that was returned, where it is below the format's own and inputs went beyond it."""
    finite = [np.abs(v[np.isfinite(v)]) for v in (_results(got, fmt), values(fmt), decode_values(x))]
    top, own, given = (float(magnitudes.max(initial=0.0)) for magnitudes in finite)
    return top if 0 < top < min(own, given) else None


def _zero_point_of(x: Coded, got: Coded, fmt: Format) -> int:
    """What an integer format gives for zero."""
    if fmt.family != "integer":
        return 0
    return int(_results(got.take(np.flatnonzero(decode_values(x) == 0)[:1]), fmt).sum())


def _results(got: Coded, fmt: Format) -> Values:
    """The values that were returned, without what is no code."""
    found: Values = values(fmt)[got.data[(got.data >= 0) & (got.data < fmt.code_count)]]
    return found


def _differs(codes: npt.NDArray[np.unsignedinteger], got: Coded) -> Mask:
    return compare({"codes": got}, {"codes": Interval.exactly(Coded(got.format, codes))}).mask("codes")


def _witness(x: Coded, fmt: Format, difference: Difference) -> tuple[npt.NDArray[np.intp], Values]:
    """Elements of every place, sign and class of difference, and how many elements each stands for."""
    value = decode_values(x)
    classes = difference.classes["codes"].astype(np.int64)
    strata = (places(value, fmt) * 2 + np.signbit(value)) + 100 * classes
    order = np.argsort(strata, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(strata[order])) + 1)
    chosen = [spread(group, PER_PLACE) for group in groups]
    weights = [np.full(few.size, group.size / few.size) for few, group in zip(chosen, groups, strict=True)]
    return np.concatenate(chosen), np.concatenate(weights)
