"""Golden dot products of matrix units: for each unit its answer to the vectors that tell units apart.

A file holds, for one format of operands and one of results, ``a`` and ``b`` [n, 64], ``c`` [n], scales where the units
take any, and under each unit's name its results [n]. The manifest names the vectors in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden.unit_vectors import SIZE, VECTORS, Vector
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit

OPERATION = "unit"
#: parts the formats of operands and of scales in a rule
_AND = "."
_EXACT = CastPolicy(overflow="special", infinity="special")


def families() -> Iterator[tuple[str, str]]:
    """Operands (and scales, behind a dot) and result of each file."""
    yield from dict.fromkeys((_rule(v, f), v.out) for v in VECTORS for f in v.formats)


def _rule(vector: Vector, format_name: str) -> str:
    return f"{format_name}{_AND}{vector.scale}" if vector.scale else format_name


def vectors_of(rule: str, out: str) -> list[Vector]:
    """The vectors of a file, in order."""
    return [v for v in VECTORS if v.out == out and rule in [_rule(v, f) for f in v.formats]]


def units_of(rule: str, out: str) -> list[Unit]:
    """The units that take such operands."""
    fmt, _, scale = rule.partition(_AND)
    taking = [unit for unit in UNITS.values() if unit.out == out and unit.takes(fmt, fmt)]
    return [unit for unit in taking if (scale in unit.scales if scale else not unit.scales)]


def layout(rule: str, out: str) -> dict[str, str]:
    """The tensors of a file: name and format of each."""
    fmt, _, scale = rule.partition(_AND)
    scales = {"a_scale": scale, "b_scale": scale} if scale else {}
    return {"a": fmt, "b": fmt, "c": out} | scales | {unit.name: out for unit in units_of(rule, out)}


def tensors_of(rule: str, out: str) -> dict[str, Coded]:
    """The tensors themselves."""
    given = inputs_of(rule, out)
    return given | {unit.name: answer(unit, given) for unit in units_of(rule, out)}


def answer(unit: Unit, given: Mapping[str, Coded]) -> Coded:
    """A unit's results [n]."""
    return dot(unit, given["a"], given["b"], given["c"], **scales_for(unit, given))


def scales_for(unit: Unit, given: Mapping[str, Coded]) -> dict[str, Coded]:
    """The scales that a unit is given: of those stored for smaller blocks, the first of each of its own."""
    names = ("a_scale", "b_scale") if unit.scales else ()
    each = {name: unit.block * given[name].shape[1] // SIZE for name in names}
    return {name: Coded(given[name].format, given[name].data[:, :: each[name]]) for name in names}


def inputs_of(rule: str, out: str) -> dict[str, Coded]:
    """Operands, addends and scales of a file's vectors."""
    fmt, _, scale = rule.partition(_AND)
    chosen = vectors_of(rule, out)
    a, b = np.zeros((len(chosen), SIZE)), np.zeros((len(chosen), SIZE))
    for row, vector in enumerate(chosen):
        for k, x, y in vector.terms:
            a[row, k], b[row, k] = x, y
    found = {"a": _coded(a, fmt), "b": _coded(b, fmt), "c": _coded(np.array([v.c for v in chosen]), out)}
    if scale:
        count = SIZE // min(unit.block for unit in units_of(rule, out))
        for name, sides in (("a_scale", [v.a_scales for v in chosen]), ("b_scale", [v.b_scales for v in chosen])):
            found[name] = _coded(np.array([[*each, *[1.0] * (count - len(each))] for each in sides]), scale)
    return found


def _coded(values: npt.NDArray[np.float64], format_name: str) -> Coded:
    """Codes of values, all of which the format holds."""
    if format_name == "int32":
        return Coded(format_name, values.astype(np.int32).view(np.uint32))
    found = cast(Coded("float64", values.view(np.uint64)), format_name, _EXACT)
    np.testing.assert_array_equal(decode_values(found), values)
    return found


def well_shaped(rule: str, out: str, tensors: Mapping[str, Coded]) -> str:
    """The first tensor that has not the shape it should have; "" if all have."""
    count, units = len(vectors_of(rule, out)), units_of(rule, out)
    shapes = dict.fromkeys(layout(rule, out), (count,)) | dict.fromkeys(("a", "b"), (count, SIZE))
    for name in ("a_scale", "b_scale") if units[0].scales else ():
        shapes[name] = (count, SIZE // min(unit.block for unit in units))
    return next((name for name, shape in shapes.items() if tensors[name].shape != shape), "")


def flags(rule: str, out: str, tensors: Mapping[str, Coded]) -> dict[str, int]:
    """Of each unit the number of vectors on which another unit of the file answers differently."""
    names = [unit.name for unit in units_of(rule, out)]
    answers = np.stack([tensors[name].data for name in names])
    shown = (answers != answers[:, None]).any(axis=0).sum(axis=1)
    return {name: int(count) for name, count in zip(names, shown, strict=True) if count}


def authority(rule: str, out: str) -> str:
    """On whose word the answers rest."""
    grades: dict[str, list[str]] = {}
    for unit in units_of(rule, out):
        grades.setdefault(unit.grade, []).append(unit.name)
    told = "; ".join(f"{grade}: {', '.join(names)}" for grade, names in grades.items())
    return f"models of matrix units for {rule} (reference/units; docs/units.md): {told}"
