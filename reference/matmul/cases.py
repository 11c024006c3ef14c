"""Calls of products that show mistakes: sums that every order makes exactly, odd shapes, scales of each block its own.

No two rows, columns or blocks are alike, nothing is square, and every place of K is used by some row. In an exact call
each row of a is given elements as long as the sum of its magnitudes stays below what the accumulator holds: whatever
the order, no partial sum is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.product import BIAS, EXPERT_COUNT, EXPERTS, GROUP_INDEX, B, Product
from narrowgauge.contracts.recipe import OF_TENSOR, Blocks
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.codec import values
from narrowgauge.reference.given import around, coded_as
from narrowgauge.reference.kv.arithmetic import grid
from narrowgauge.reference.matmul.call import inputs_of, recipe_of_operand
from narrowgauge.reference.matmul.memory import packings, to_memory
from narrowgauge.reference.matmul.multiplying import F64, Multiplying
from narrowgauge.reference.matmul.reading import terms_by_expert
from narrowgauge.reference.matmul.run import multiplied, prescaled
from narrowgauge.reference.noise import noise, scrambled

#: ``exact``: below 2^14 quanta, under scales with several bits; ``full``: as far as the accumulator goes, under powers
#: of two; ``noise``: any finite numbers, judged within bounds; ``specials``: exact, with NaN and infinity in few places
Kind = Literal["exact", "full", "noise", "specials"]
#: what most accumulators hold exactly, and what float32 holds beside a scale of two bits
_FEW, _MANY = 14, 22
_SHARE = 0.98
#: scales of few bits, none of them 1; powers of two; and what checkpoints have
_ODD = (1.5, 0.625, 3.0, 0.875, 1.25, 2.5, 1.75)
_POWERS = (0.5, 4.0, 2.0, 0.25, 8.0)
_USUAL = (0.0123, 0.37, 0.0078125, 0.0021, 1.7, 0.11, 0.25)
_ZEROS = (3.0, -7.0, 12.0, -20.0, 0.0, 1.0, -1.0)
_BIAS = (0.5, -3.0, 1.5, 2.0, -0.25, 7.0, 100.0)
_WIDE_DEPTH = 277
#: scales of whole tensors, of a and of b: powers of two, but for noise
_TENSOR = {"exact": (4.0, 0.5), "full": (8.0, 0.25), "noise": (0.37, 1234.5), "specials": (4.0, 0.5)}


@dataclass(frozen=True)
class Shape:
    """What a call looks like. Columns grow to a whole number of blocks, or of words of packed codes."""

    kind: Kind
    rows: int = 23
    columns: int = 40
    blocks: int = 3  #: how many blocks along K; where there are none, K is ``depth``
    depth: int = _WIDE_DEPTH
    experts: int = 3
    seed: int = 0


def call(shape: Shape) -> Callable[[Claim], Coded]:
    """The input of a claim."""
    return lambda claim: call_of(multiplying_of(claim), shape)


def suits(shape: Shape) -> Callable[[Claim], bool]:
    """Whether a claim can have such a call."""

    def suited(claim: Claim) -> bool:
        multiplying = multiplying_of(claim)
        if shape.kind == "specials" and not (shape.rows and _specials_in(multiplying.source)):
            return False
        if shape.kind == "full" and multiplying.accumulator.exact_bits <= _FEW:
            return False
        try:
            to_memory(multiplying.product, call_of(multiplying, shape))
        except BadInput:
            return False
        return True

    return suited


@lru_cache(maxsize=64)
def call_of(multiplying: Multiplying, shape: Shape) -> Input:
    """A call of that kind. What is called exact is checked to be so before it is given away."""
    product = multiplying.product
    sizes = _sizes(multiplying, shape)
    x = _drawn(multiplying, shape, sizes)
    if shape.kind != "noise":
        x = _within_budget(multiplying, x, shape)
        result = multiplied(multiplying, x)["codes"]
        if not result.exact:
            raise AssertionError(f"{product.name}: a call that was to be exact leaves {result.open.sum()} open")
    return _with_specials(multiplying, x) if shape.kind == "specials" else x


@dataclass(frozen=True)
class _Sizes:
    rows: int
    columns: int
    depth: int


def _sizes(multiplying: Multiplying, shape: Shape) -> _Sizes:
    """Odd sizes that blocks divide, where they must."""
    product = multiplying.product
    along, across = [1], [1]
    for operand in (product.a, product.b):
        recipe = recipe_of_operand(operand)
        blocks = Blocks(1, 1) if recipe is None else recipe.blocks
        of_k, of_rows = (blocks.columns, blocks.rows) if operand.by_rows else (blocks.rows, blocks.columns)
        along.append(1 if blocks.ragged else of_k or 1)
        if operand is product.b and not (blocks.ragged and not product.grouped):
            across.append(of_rows or 1)
    word = 8 if packings(product) else 1
    unit, each = lcm(*along), lcm(*across, word)
    depth = shape.depth if unit == 1 else unit * max(shape.blocks, 96 // unit)
    depth = -(-depth // word) * word
    columns = -(-max(shape.columns, 1) // each) * each
    ragged = _has_ragged_rows(product) and not product.grouped
    return _Sizes(shape.rows, max(columns, 200) if ragged else columns, depth)


def _has_ragged_rows(product: Product) -> bool:
    """Whether b's blocks hold several rows: two of them then, the second not whole."""
    recipe = recipe_of_operand(product.b)
    return recipe is not None and recipe.blocks.ragged and product.b.by_rows and recipe.blocks.rows > 1


def _drawn(multiplying: Multiplying, shape: Shape, sizes: _Sizes) -> Input:
    """Codes, scales and what else a call has, before anything is left out for the sake of exactness."""
    product, source = multiplying.product, multiplying.source
    experts = shape.experts if product.grouped else 1
    b_shape = (experts * sizes.columns, sizes.depth)
    b_shape = b_shape if product.b.by_rows else (b_shape[1], b_shape[0])
    given: dict[str, Coded] = {}
    for name, fmt in inputs_of(product, source, multiplying.format).items():
        given[name] = _beside(multiplying, shape, sizes, name, fmt, b_shape)
    a = _codes(source, (sizes.rows, sizes.depth), shape, 2 * shape.seed, given.get("a_zero_point"), product.a.enters)
    b_format = product.b.format or source
    b = _codes(b_format, b_shape, shape, 2 * shape.seed + 1, None, product.b.enters)
    given[B] = Coded(b_format, b)
    return Input(source, a, given)


def _beside(
    multiplying: Multiplying, shape: Shape, sizes: _Sizes, name: str, fmt: str, b_shape: tuple[int, int]
) -> Coded:
    product = multiplying.product
    experts = shape.experts if product.grouped else 1
    if name == EXPERT_COUNT:
        return coded_as(np.full((1, 1), float(experts)), "int32")
    if name == EXPERTS:  # one expert has no rows, some rows have no expert
        return coded_as((np.arange(sizes.rows)[None] * 2 % (experts + 1) - 1.0).clip(-1, experts - 2), "int32")
    if name == BIAS:
        return coded_as(around((experts, sizes.columns), _BIAS), fmt)
    if name == B:
        return Coded(fmt, np.zeros(b_shape, format_named(fmt).storage))
    side, _, stored = name.partition("_")
    operand = product.a if side == "a" else product.b
    recipe = recipe_of_operand(operand)
    assert recipe is not None
    grid_of = recipe.blocks.grid(*((sizes.rows, sizes.depth) if side == "a" else b_shape))
    if stored == GROUP_INDEX:
        groups = np.arange(sizes.depth) * 5 % grid_of[0]
        return coded_as(groups[None].astype(np.float64), "int32")
    if stored == "zero_point":
        return coded_as(around(grid_of, _zeros_of(operand.recipe)), "int32")
    of_b = int(side == "b")
    if stored in OF_TENSOR:
        return coded_as(np.full((1, 1), _TENSOR[shape.kind][of_b]), fmt)
    return coded_as(around(grid_of, _scales(shape.kind, fmt), of_b), fmt)


def _zeros_of(recipe: str) -> tuple[float, ...]:
    """Zero points of four bits unsigned, or of int8."""
    return tuple(float(1 + 7 * place % 15) for place in range(15)) if "uint4" in recipe else _ZEROS


def _scales(kind: Kind, fmt: str) -> tuple[float, ...]:
    if fmt == "float8_e8m0fnu" or kind == "full":
        return _POWERS
    return _USUAL if kind == "noise" and fmt != "float8_e4m3fn" else _ODD


def _codes(
    fmt: str, shape: tuple[int, int], call_shape: Shape, seed: int, zeros: Coded | None, enters: str
) -> npt.NDArray[np.unsignedinteger]:
    """Codes without pattern: whole numbers where sums are to be exact, anything of usual size for noise."""
    count = shape[0] * shape[1]
    storage = format_named(fmt).storage
    if call_shape.kind == "noise":
        if format_named(fmt).family == "integer":
            return (
                (scrambled(count, 100 + seed) % np.uint64(format_named(fmt).code_count)).astype(storage).reshape(shape)
            )
        return coded_as((noise(count, 100 + seed) * 2).reshape(shape), fmt).data
    pool = _whole_codes(fmt, call_shape.kind == "full", bool(enters))
    found = pool[(scrambled(count, 200 + seed) % np.uint64(len(pool))).astype(np.intp)].astype(storage).reshape(shape)
    if zeros is None:
        return found
    moved = found.view(np.int8).astype(np.int64) // 2 + zeros.data.view(np.int32)
    return moved.astype(np.int8).view(np.uint8)


@lru_cache
def _whole_codes(fmt: str, many: bool, entering: bool) -> npt.NDArray[np.uint64]:
    """Codes of whole numbers, or of whole multiples of the least number of small formats, both signs, no -0.

    ``many``: as large as products with few others in float32 allow.
    """
    declared = format_named(fmt)
    if declared.bits > 16:  # float32 and tfloat32 by the codes of float16's whole numbers
        numbers = np.arange(1, (64 if many else 12) + 1, dtype=np.float64)
        return coded_as(np.concatenate([numbers, -numbers]), fmt).data.astype(np.uint64)
    value = values(declared)
    unit = (
        {2: 0.5, 3: 0.0625 if declared.mantissa == 2 else 0.125}.get(declared.exponent, 1.0)
        if declared.bits < 8
        else 1.0
    )
    with np.errstate(invalid="ignore"):
        size = np.abs(value) / unit
        most = 64.0 if declared.bits < 8 or many else 12.0
        wanted = np.isfinite(value) & (size == np.floor(size)) & (size > 0) & (size <= most)
    if declared.family == "integer" and not declared.signed:
        wanted = np.ones(declared.code_count, np.bool_)  # less a zero point, all of them are needed
    return np.flatnonzero(wanted).astype(np.uint64)


def _within_budget(multiplying: Multiplying, x: Input, shape: Shape) -> Input:
    """The same with zeros in a where the sums of magnitudes would pass what is exact in any order."""
    product, data = multiplying.product, x.data.copy()
    cap = _FEW if shape.kind != "full" else 17 if product.scaled == "stretches" else _MANY
    bits = min(multiplying.accumulator.exact_bits, cap)
    zero = _zero_codes(multiplying, x)
    for rows, terms in terms_by_expert(multiplying, x):
        numbers = prescaled(terms) if product.scaled == "unit" else terms
        quantum = grid(numbers.a.reshape(1, -1))[0] * grid(numbers.b.reshape(1, -1))[0]
        weight = np.abs(numbers.b).max(axis=0, initial=0.0)
        kept = _kept(np.abs(numbers.a) * weight, _SHARE * 2.0**bits * quantum, rows)
        data[rows] = np.where(kept, data[rows], zero[rows])
    return replace(x, data=data)


def _kept(sizes: F64, limit: float, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Which elements of each row stay: in strides over all of K, each row beginning elsewhere, while there is room."""
    count, depth = sizes.shape
    stride = next((s for s in range(int(depth * 0.381966) | 1, 4 * depth + 3, 2) if np.gcd(s, depth) == 1), 1)
    order = (rows[:, None] * 29 + np.arange(depth) * stride) % max(1, depth)
    inside = np.cumsum(np.take_along_axis(sizes, order, 1), axis=1) <= limit
    kept = np.zeros((count, depth), np.bool_)
    np.put_along_axis(kept, order, inside, 1)
    return kept


def _zero_codes(multiplying: Multiplying, x: Input) -> npt.NDArray[np.unsignedinteger]:
    """The code that stands for 0 in each row of a."""
    zeros = x.given.get("a_zero_point")
    if zeros is None:
        return np.zeros((len(x.data), 1), x.data.dtype)
    column = np.broadcast_to(zeros.data.view(np.int32), (len(x.data), 1))
    return column.astype(np.int8).view(np.uint8)


def _specials_in(source: str) -> dict[str, int]:
    """A code of NaN and one of infinity, of a format that has them."""
    if format_named(source).family == "integer" or format_named(source).bits > 16:
        return {}
    value = values(format_named(source))
    found = {"nan": np.flatnonzero(np.isnan(value)), "infinity": np.flatnonzero(np.isposinf(value))}
    return {name: int(places[0]) for name, places in found.items() if places.size}


def _with_specials(multiplying: Multiplying, x: Input) -> Input:
    """NaN in one row of a, infinity in another and where b has 0; NaN in one row of b, where it has any."""
    data, given = x.data.copy(), dict(x.given)
    codes = _specials_in(multiplying.source)
    rows, depth = data.shape
    data[rows // 2, depth // 3] = codes.get("nan", 0)
    if "infinity" in codes:
        data[rows // 3, depth // 2] = codes["infinity"]
    b = given[B]
    of_b = _specials_in(b.format)
    if "nan" in of_b:
        matrix = b.data.copy()
        by_rows = multiplying.product.b.by_rows
        row = min(7, b.shape[0 if by_rows else 1] - 1)
        matrix[(row, depth - 1) if by_rows else (depth - 1, row)] = of_b["nan"]
        given[B] = Coded(b.format, matrix)
    return Input(x.format, data, given)
