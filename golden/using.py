"""Vectors in use: inputs and expected outputs of a claim from a family's tensors, and whether they are in order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, format_named
from narrowgauge.contracts.operations import Claim, KvWrite
from narrowgauge.golden import units
from narrowgauge.golden.called import CALLED
from narrowgauge.golden.families import Family, Tensors, form_of, layout
from narrowgauge.golden.steps import spaced, unfold
from narrowgauge.reference.behaviour import Behaviour, Promised, blocks_of, resolved
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import outputs_of, promised_for
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.form import shaped, takes
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.settling import free_rows

#: what was asked before: it takes seconds for all families, and a check asks several times
_FLAGS: dict[tuple[Family, str], dict[str, int]] = {}


def flags(family: Family, tensors: Tensors) -> dict[str, int]:
    """The faults that a family's vectors show, each with the number of vectors whose outputs it changes.

    Of matrix units, each with the number of vectors that tell it from another.
    """
    if family.operation == "stochastic":
        return {}  # a fault is an edit of a function of x alone
    if family.operation == units.OPERATION:
        return units.flags(family.rule, family.format, tensors)
    key = family, digest(tensors)
    if key not in _FLAGS:
        _FLAGS[key] = _shown(family, tensors)
    return dict(_FLAGS[key])


def _shown(family: Family, tensors: Tensors) -> dict[str, int]:
    shown: dict[str, int] = {}
    for claim in family.claims:
        x, want = as_case(claim, tensors)
        right = promised_for(claim, x)
        for name, fault in FAULTS.items():
            wrong = fault.applied_to(right)
            if wrong is not None and (changed := _changed(wrong, x, want)):
                shown[name] = shown.get(name, 0) + changed
    return shown


def _changed(wrong: Promised, x: Coded, want: Expected) -> int:
    """How many of the outputs are others under a fault. None where it has no answer; and where padding is
    written nobody asks."""
    if isinstance(wrong, Behaviour):
        return compare(wrong.run(x), want).total
    try:
        found = {name: interval.low for name, interval in outputs_of(wrong, x).items()}
    except BadInput:
        return 0
    if isinstance(wrong, Paged) and isinstance(wrong.contract, KvWrite):
        free = free_rows(wrong, x, next(iter(found.values())).shape[0])
        found = {name: _with(value, want[name].low, free) for name, value in found.items()}
    return compare(found, want).total


def _with(value: Coded, other: Coded, rows: npt.NDArray[np.int32]) -> Coded:
    """The same with those rows of another."""
    data = value.data.copy()
    data[rows] = other.data[rows]
    return Coded(value.format, data)


def steps_of(claim: Claim, tensors: Tensors) -> tuple[npt.NDArray[np.int64], Codes]:
    """First patterns and codes of the runs of a claim's stored steps or stairs."""
    if form_of(claim) == "stairs":
        first, code = unfold(stairs_of(claim, tensors))
        return first, code.astype(format_named(claim.format).storage)
    return tensors[f"{claim.source}.first"].codes.astype(np.int64), tensors[f"{claim.source}.code"].codes


def stairs_of(claim: Claim, tensors: Tensors) -> npt.NDArray[np.int64]:
    return np.stack([tensors[name].codes.astype(np.int64) for name in layout(claim)])


def as_case(claim: Claim, tensors: Tensors) -> tuple[Coded, Expected]:
    """Inputs and expected outputs for a claim, from a family's tensors.

    A run gives its first and its last pattern. Of a stair it is the runs at its ends and in its middle: those between
    are like them, and are half a million for tfloat32.
    """
    source, form = format_named(claim.source), form_of(claim)
    if form == "call":
        return CALLED[claim.operation].as_case(claim, tensors)
    if form == "rows":
        outputs = {
            name: Coded(fmt, tensors[f"{source.name}.{name}"].data) for name, fmt in resolved(claim).outputs.items()
        }
        x = tensors[f"{source.name}.x"]
        given = {name: tensors[f"{source.name}.{name}"] for name in resolved(claim).inputs}
        return Input(x.format, x.data, given), {name: Interval.exactly(value) for name, value in outputs.items()}
    if form == "table":
        every = np.arange(source.code_count, dtype=source.storage)
        return Coded(source.name, every), {"codes": Interval.exactly(tensors[f"{source.name}.values"])}
    first, code = steps_of(claim, tensors)
    past = np.append(first[1:], source.code_count)
    if form == "stairs":
        stair_first, stride, count, _, _ = stairs_of(claim, tensors)
        places = [np.clip(place, 0, count - 1) for place in (0, 1, count // 2, count - 2, count - 1)]
        kept = np.isin(first, np.concatenate([stair_first + place * stride for place in places]))
        first, code, past = first[kept], code[kept], past[kept]
    patterns = np.stack([first, past - 1], axis=1).ravel()
    x = Coded(source.name, patterns.astype(source.storage))
    return x, {"codes": Interval.exactly(Coded(claim.format, np.repeat(code, 2)))}


def looked_up(claim: Claim, tensors: Tensors, patterns: npt.NDArray[np.unsignedinteger]) -> Codes:
    """The code that a cast's vectors give for each source pattern, same shape."""
    if form_of(claim) == "table":
        every = tensors[f"{claim.source}.values"].codes
        return np.take(every, patterns)
    first, code = steps_of(claim, tensors)
    return np.take(code, np.searchsorted(first, patterns.astype(np.int64), side="right") - 1)


def expanded(claim: Claim, tensors: Tensors) -> Coded | None:
    """The code of every pattern of a source of at most 16 bits, in order; None for a wider source, a quantizer or a
    cache."""
    source = format_named(claim.source)
    if source.bits > 16 or form_of(claim) in ("rows", "call"):
        return None
    if form_of(claim) == "table":
        return tensors[f"{source.name}.values"]
    first, code = steps_of(claim, tensors)
    return Coded(claim.format, np.repeat(code, np.diff(np.append(first, source.code_count))))


def misshapen(family: Family, tensors: Tensors) -> list[str]:
    """The first tensor of each of a family's claims whose shape or order is not that of its form."""
    if family.operation == units.OPERATION:
        return [name] if (name := units.well_shaped(family.rule, family.format, tensors)) else []
    return [name for claim in family.claims if (name := well_shaped(claim, tensors))]


def well_shaped(claim: Claim, tensors: Tensors) -> str:
    """The first of a claim's tensors whose shape or order is not that of its form; "" if there is none."""
    form, names = form_of(claim), list(layout(claim))
    if form == "call":
        return CALLED[claim.operation].well_shaped(claim, tensors)
    shape = tensors[names[0]].shape
    if form == "rows":
        if not takes(claim, shape):
            return names[0]
        blocks = blocks_of(claim)
        assert blocks is not None
        wanted = {f"{claim.source}.{name}": [interval.low.shape] for name, interval in shaped(claim, shape).items()}
        wanted |= {f"{claim.source}.{name}": [blocks.grid(*shape), (1, 1)] for name in resolved(claim).inputs}
        return next((name for name in names[1:] if tensors[name].shape not in wanted[name]), "")
    for name in names:
        if tensors[name].shape != shape or len(shape) != 1:
            return name
    if form == "table" and shape != (format_named(claim.source).code_count,):
        return names[0]
    if form == "stairs" and not spaced(
        stairs_of(claim, tensors), format_named(claim.source), format_named(claim.format)
    ):
        return names[0]
    first = tensors[names[0]].codes.astype(np.int64)
    if form == "steps" and (first[:1].tolist() != [0] or not (np.diff(first) > 0).all()):
        return names[0]
    return ""
