"""Operands of a product as numbers: codes less their zero points, and the scales of stretches of K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.product import BIAS, EXPERTS, GROUP_INDEX, B, Operand
from narrowgauge.contracts.recipe import Blocks, Recipe
from narrowgauge.reference.dequantize import reader_values
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.matmul.bounds import least_normal
from narrowgauge.reference.matmul.call import columns_of, experts_of
from narrowgauge.reference.matmul.multiplying import F64, Multiplying, Terms
from narrowgauge.reference.steps import STEPS, run_chain

if TYPE_CHECKING:
    from narrowgauge.reference.behaviour import Behaviour

#: the code of 1 in formats of scales
_ONE = {"float8_e8m0fnu": 127, "float8_e4m3fn": 0x38, "float16": 0x3C00, "bfloat16": 0x3F80, "float32": 0x3F800000}
_WHOLE = "global_scale"
#: operands that enter a unit so are cut, or rounded, by the unit
_TF32 = "tfloat32"
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class _Side:
    """An operand [rows, K], and its scales [rows, blocks along K], each of ``each`` places."""

    numbers: F64
    scales: F64
    each: int
    open: F64 | None = None  #: how far each number may be off
    factors: tuple[float, ...] = ()
    divisors: tuple[float, ...] = ()


def terms_by_expert(multiplying: Multiplying, x: Input) -> list[tuple[Rows, Terms]]:
    """Rows of a, and what they are multiplied by: of a grouped product once for each expert that has rows."""
    product, given = multiplying.product, given_with(x)
    a, b = _read(multiplying, "a", Coded(x.format, x.data), given), _read(multiplying, "b", given[B], given)
    depth = a.numbers.shape[1]
    ends = tuple(sorted({*range(a.each, depth, a.each), *range(b.each, depth, b.each), depth} - {0}))
    last = np.array(ends, np.intp) - 1
    a_scale, b_scale = a.scales[:, last // a.each], b.scales[:, last // b.each]
    bias = decode_values(given[BIAS]) if product.bias else None
    least = tuple(least_normal(name) for name in multiplying.entering)
    whole = (a.factors + b.factors, a.divisors + b.divisors)
    if not product.grouped:
        every = np.arange(len(a.numbers))
        of_all = None if bias is None else bias[0]
        return [(every, Terms(a.numbers, b.numbers, a_scale, b_scale, ends, *whole, of_all, a.open, b.open, *least))]
    experts, columns, found = given[EXPERTS].data.view(np.int32).ravel(), columns_of(product, x), []
    for expert in range(experts_of(product, given)):
        rows = np.flatnonzero(experts == expert)
        own = slice(expert * columns, (expert + 1) * columns)
        of_expert = None if bias is None else bias[expert]
        if rows.size:
            matrices = (a.numbers[rows], b.numbers[own], a_scale[rows], b_scale[own])
            found.append((rows, Terms(*matrices, ends, *whole, of_expert, None, None, *least)))
    return found


def _read(multiplying: Multiplying, side: str, codes: Coded, given: Mapping[str, Coded]) -> _Side:
    operand: Operand = getattr(multiplying.product, side)
    reader: Behaviour = getattr(multiplying, side)
    own = {n.removeprefix(f"{side}_"): v for n, v in given.items() if n.startswith(f"{side}_")}
    if operand.indexed:
        own, reader = _by_index(multiplying.product.name, own, reader)
    call = Input(codes.format, codes.data, own)
    for change in reader.received:  # what a fault of readers does to the codes, and to what is stored beside them
        changed = change(call)
        call = Input(changed.format, changed.data, given_with(changed))
    reader, recipe = replace(reader, received=()), reader.recipe
    if operand.enters == _TF32:
        side_of = _truncated(decode_values(Coded(call.format, call.data)))
    elif multiplying.product.scaled == "operands" or recipe is None:
        side_of = _Side(decode_values(reader.run(call)["codes"]), np.ones((1, 1)), 0)
    else:
        side_of = _apart(reader, recipe, call)
    turned = (lambda matrix: matrix) if operand.by_rows else np.transpose
    numbers, scales = np.ascontiguousarray(turned(side_of.numbers)), turned(side_of.scales)
    down, along = (0, 0) if recipe is None else (recipe.blocks.rows, recipe.blocks.columns)
    down, along = (down, along) if operand.by_rows else (along, down)
    if scales.shape != (1, 1):
        scales = scales[np.arange(len(numbers)) // (down or max(1, len(numbers)))]
        each = along or numbers.shape[1]
    else:
        scales, each = np.broadcast_to(scales, (len(numbers), 1)), numbers.shape[1]
    return replace(side_of, numbers=numbers, scales=scales, each=max(1, each))


def _truncated(numbers: F64) -> _Side:
    """Numbers of which a unit keeps 10 bits of fraction: by less than one of the last, whatever it does with the
    rest."""
    kept = np.ldexp(np.trunc(np.ldexp(numbers, 10 - (exponents := np.frexp(numbers)[1] - 1))), exponents - 10)
    reach = np.where(np.isfinite(numbers) & (kept != numbers), np.abs(numbers) * 2.0**-10, 0.0)
    return _Side(numbers, np.ones((1, 1)), 0, reach)


def _by_index(product: str, own: dict[str, Coded], reader: Behaviour) -> tuple[dict[str, Coded], Behaviour]:
    """What is stored beside an operand [K, N] for each k by itself, where an index says to which block each belongs.

    Raises ``BadInput`` for a block that is not there.
    """
    groups, count = own[GROUP_INDEX].data.view(np.int32).ravel(), own["scale"].shape[0]
    wrong = np.flatnonzero((groups < 0) | (groups >= count))
    if wrong.size:
        at = int(wrong[0])
        raise BadInput(f"{product}: b_{GROUP_INDEX}[0, {at}] is {int(groups[at])}; expected 0 to {count - 1}")
    each = {name: value.take(groups.astype(np.intp)) for name, value in own.items() if name != GROUP_INDEX}
    assert reader.recipe is not None
    return each, replace(reader, recipe=replace(reader.recipe, blocks=Blocks(1, 1)))


def _apart(reader: Behaviour, recipe: Recipe, call: Input) -> _Side:
    """Numbers and scales apart: what the codes are under scales of 1, and what the reader makes of the number 1."""
    ones = {name: _ones(value) if name.endswith("scale") else value for name, value in call.given.items()}
    numbers = decode_values(reader.run(Input(call.format, call.data, ones))["codes"])
    plain = {name: _zeros(value) if name == "zero_point" else value for name, value in call.given.items()}
    whole = {name: value for name, value in ones.items() if name == _WHOLE}
    code = Coded(call.format, call.data)
    with np.errstate(all="ignore"):
        scales = _of_one(recipe, code, plain | whole) / _of_one(recipe, code, ones | _only(plain, "zero_point"))
    steps = [step for chain in recipe.reader.chains for step in chain if not isinstance(step, str)]
    whole_scale = [float(v) for v in decode_values(call.given[_WHOLE]).ravel()] if _WHOLE in call.given else []
    factors, divisors = (tuple(whole_scale * steps.count((name, _WHOLE))) for name in ("mul", "div"))
    return _Side(numbers, scales, 0, None, factors, divisors)


def _only(given: Mapping[str, Coded], name: str) -> dict[str, Coded]:
    return {name: given[name]} if name in given else {}


def _of_one(recipe: Recipe, code: Coded, given: Mapping[str, Coded]) -> F64:
    """What the number 1 is under each scale."""
    values = reader_values(code, recipe, given)
    found = run_chain(recipe.reader.element, values | {"x": np.float32(1)}, STEPS)
    return np.atleast_2d(np.asarray(found, np.float64))


def _ones(value: Coded) -> Coded:
    return Coded(value.format, np.full(value.shape, _ONE[value.format], value.data.dtype))


def _zeros(value: Coded) -> Coded:
    return Coded(value.format, np.zeros_like(value.data))
