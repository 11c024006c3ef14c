"""The codes, scales, zero points and experts of which a call of a product is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.product import BIAS, EXPERT_COUNT, EXPERTS, GROUP_INDEX, B, Operand, Product
from narrowgauge.contracts.recipe import OF_TENSOR
from narrowgauge.reference.codec import values
from narrowgauge.reference.given import around, coded_as
from narrowgauge.reference.matmul.accumulators import accumulator_named
from narrowgauge.reference.matmul.adversarial import adversarial_case
from narrowgauge.reference.matmul.bounds import least_normal
from narrowgauge.reference.matmul.call import NARROW_SCALES, inputs_of, recipe_of_operand
from narrowgauge.reference.matmul.exact import exact_case
from narrowgauge.reference.matmul.kinds import Kind
from narrowgauge.reference.matmul.memory import packings
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.matmul.whole_numbers import encoded, whole_numbers
from narrowgauge.reference.noise import noise, scrambled

Numbers = npt.NDArray[np.int64]
_ZEROS = (3.0, -7.0, 12.0, -20.0, 0.0, 1.0, -1.0)
_BIAS = (0.5, -3.0, 1.5, 2.0, -0.25, 7.0, 100.0)
#: the accumulator that fails past its limit, and what it is called beside those that hold more
_NARROWER = "tensor_core_13"


@dataclass(frozen=True)
class Sizes:
    """M, N, K, and how many matrices b is."""

    rows: int
    columns: int
    depth: int
    experts: int

    def of_b(self, product: Product) -> tuple[int, int]:
        """The shape of b's codes."""
        shape = (self.experts * self.columns, self.depth)
        return shape if product.b.by_rows else (shape[1], shape[0])


def drawn(multiplying: Multiplying, kind: Kind, sizes: Sizes, seed: int) -> Input:
    """Codes, scales and what else a call has, before anything is left out for the sake of exactness."""
    product, source = multiplying.product, multiplying.source
    given = {
        name: _beside(multiplying, kind, sizes, name, fmt)
        for name, fmt in inputs_of(product, source, multiplying.format).items()
        if name != B
    }
    if kind.drawn:
        a, given[B] = _by_others(multiplying, kind, sizes, seed)
        return Input(source, a.data, given)
    shapes = (sizes.rows, sizes.depth), sizes.of_b(product)
    b_format = product.b.format or source
    a = _codes(source, shapes[0], kind, 2 * seed, given.get("a_zero_point"))
    given[B] = _codes(b_format, shapes[1], kind, 2 * seed + 1, None)
    return Input(source, a.data, given)


def whole_parts(multiplying: Multiplying) -> tuple[str, str]:
    """Formats of operands whose codes are the numbers that are multiplied.

    Raises ``BadInput`` where there is a zero point, where rows belong to experts, or operands are made wide first.
    """
    product = multiplying.product
    recipes = [recipe for each in (product.a, product.b) if (recipe := recipe_of_operand(each)) is not None]
    plain = all(recipe.reader.element == ("x", ("mul", "stored")) for recipe in recipes)
    if product.grouped or not plain or product.scaled == "operands" or not product.b.by_rows:
        raise BadInput(f"{product.name}: its codes are not the numbers that are multiplied")
    return multiplying.source, product.b.format or multiplying.source


def _by_others(multiplying: Multiplying, kind: Kind, sizes: Sizes, seed: int) -> tuple[Coded, Coded]:
    """Codes to the limit of the accumulator, past that of a narrower one, or such as that one loses."""
    formats, shape = whole_parts(multiplying), (sizes.rows, sizes.columns, sizes.depth)
    if kind.drawn == "lost":
        return adversarial_case(*formats, *shape, accumulator_named(_NARROWER))
    beyond = kind.drawn == "beyond"
    kept_in = accumulator_named(_NARROWER) if beyond else multiplying.accumulator
    case = exact_case(*formats, *shape, kept_in, seed, beyond=beyond)
    return case.a, case.b


def _beside(multiplying: Multiplying, kind: Kind, sizes: Sizes, name: str, fmt: str) -> Coded:
    """What comes beside both matrices, under the name that a kernel has for it."""
    product, experts = multiplying.product, sizes.experts
    if name == EXPERT_COUNT:
        return coded_as(np.full((1, 1), float(experts)), "int32")
    if name == EXPERTS:  # in no order; the last expert has no rows, some rows have no expert
        place = np.arange(sizes.rows)
        return coded_as(((place * 2 + 1 + place // 4) % experts - 1)[None].astype(np.float64), "int32")
    if name == BIAS:
        return coded_as(around((experts, sizes.columns), _BIAS), fmt)
    side, _, stored = name.partition("_")
    operand = product.a if side == "a" else product.b
    recipe = recipe_of_operand(operand)
    assert recipe is not None
    grid = recipe.blocks.grid(*((sizes.rows, sizes.depth) if side == "a" else sizes.of_b(product)))
    of_b = int(side == "b")
    if stored == GROUP_INDEX:
        return coded_as((np.arange(sizes.depth) * 5 % grid[0])[None].astype(np.float64), "int32")
    if stored == "zero_point":
        return coded_as(around(grid, _zeros(product, operand, name)), "int32")
    if stored in OF_TENSOR:
        return coded_as(np.full((1, 1), kind.tensor[of_b]), fmt)
    return coded_as(around(grid, _in_format(kind.scales[of_b], fmt), of_b), fmt)


def _zeros(product: Product, operand: Operand, name: str) -> tuple[float, ...]:
    """Zero points: of those that are packed all that the convention has a place for, neighbours far apart."""
    packing = packings(product).get(name)
    if packing is not None and packing.zeros is not None:
        low, count = packing.zeros.lowest, packing.zeros.highest - packing.zeros.lowest + 1
        return tuple(float(low + 7 * place % count) for place in range(count))
    return tuple(float(7 * place % 16) for place in range(16)) if "uint4" in operand.recipe else _ZEROS


def _in_format(scales: tuple[float, ...], fmt: str) -> tuple[float, ...]:
    """Scales that a narrow format holds: of E8M0 powers of two, of e4m3 what is above its least."""
    if fmt == "float8_e8m0fnu":
        return tuple(2.0 ** np.floor(np.log2(scale)) for scale in scales)
    return tuple(max(scale, 0.25) for scale in scales) if fmt == "float8_e4m3fn" else scales


def _codes(fmt: str, shape: tuple[int, int], kind: Kind, seed: int, zeros: Coded | None) -> Coded:
    """Codes without pattern: whole numbers where sums are to be exact, anything of usual size for noise."""
    count, declared = shape[0] * shape[1], format_named(fmt)
    random = scrambled(count, 200 + seed)
    if not kind.most and not kind.exact and declared.family != "integer":
        numbers = (noise(count, 100 + seed) * 2).reshape(shape)
        return coded_as(np.abs(numbers) if kind.name == "positive" else numbers, fmt)
    if kind.name == "noise" or (declared.family == "integer" and not declared.signed):
        # of unsigned codes, which have zero points, all are needed
        return Coded(fmt, (random % np.uint64(declared.code_count)).astype(declared.storage).reshape(shape))
    if kind.name == "positive" and declared.family == "integer":
        return Coded(fmt, (random % np.uint64(declared.sign_bit)).astype(declared.storage).reshape(shape))
    pool = _pool(fmt, kind)
    found = pool[(random % np.uint64(len(pool))).astype(np.intp)].reshape(shape)
    if kind.name == "subnormal":  # in every other row, beside whole numbers
        whole = _whole(fmt, kind.most or 12, both=True)
        found[1::2] = whole[(random % np.uint64(len(whole))).astype(np.intp)].reshape(shape)[1::2]
        return Coded(fmt, found.astype(declared.storage))
    if zeros is not None:
        found = found + zeros.data.view(np.int32)
        return Coded(fmt, found.astype(np.int8).view(np.uint8))
    return encoded(whole_numbers(fmt), found, 0)


@lru_cache
def _pool(fmt: str, kind: Kind) -> Numbers:
    """What is drawn from: whole numbers; of subnormal numbers the codes."""
    if kind.name != "subnormal":
        return _numbers(fmt, kind.most, both=kind.name != "promoted")
    declared = format_named(fmt)
    if declared.bits > 16 or not least_normal(fmt):
        raise BadInput(f"{fmt} has no subnormal numbers that could be drawn")
    with np.errstate(invalid="ignore"):
        value = np.abs(values(declared))
        return np.flatnonzero((value > 0) & (value < least_normal(fmt))).astype(np.int64)


def _numbers(fmt: str, most: int, both: bool) -> Numbers:
    whole = whole_numbers(fmt)
    magnitudes = whole.of_sign(False, max(most, 12 if whole.unit < 1 else 0))
    return np.concatenate([magnitudes, -magnitudes]) if both else magnitudes


def _whole(fmt: str, most: int, both: bool) -> Numbers:
    """The codes of whole numbers."""
    return encoded(whole_numbers(fmt), _numbers(fmt, most, both), 0).data.astype(np.int64)


def zero_codes(multiplying: Multiplying, x: Input) -> npt.NDArray[np.unsignedinteger]:
    """The code that stands for 0 in each row of a."""
    zeros = x.given.get("a_zero_point")
    if zeros is None:
        return np.zeros((len(x.data), 1), x.data.dtype)
    column = np.broadcast_to(zeros.data.view(np.int32), (len(x.data), 1))
    return column.astype(np.int8).view(np.uint8)


def _special_codes(fmt: str) -> dict[str, int]:
    """A code of NaN and one of infinity, of a format that has them."""
    if format_named(fmt).family == "integer" or format_named(fmt).bits > 16:
        return {}
    value = values(format_named(fmt))
    found = {"nan": np.flatnonzero(np.isnan(value)), "infinity": np.flatnonzero(np.isposinf(value))}
    return {name: int(places[0]) for name, places in found.items() if places.size}


def with_specials(multiplying: Multiplying, x: Input) -> Input:
    """NaN at the beginning of a row of a, infinity within another, NaN at both ends of rows of b, and a scale that is
    NaN, each where the format has it. Raises ``BadInput`` where none has."""
    data, given, changed = x.data.copy(), dict(x.given), False
    rows, depth = data.shape
    codes, by_rows = _special_codes(multiplying.source), multiplying.product.b.by_rows
    for name, place in (("nan", (rows // 2, 0)), ("infinity", (rows // 3, depth // 2))):
        if name in codes:
            data[place], changed = codes[name], True
    if "nan" in (of_b := _special_codes(given[B].format)):
        matrix = given[B].data.copy()
        count = matrix.shape[0 if by_rows else 1]
        for row, k in ((min(7, count - 1), depth - 1), (count // 2, 0)):
            matrix[(row, k) if by_rows else (k, row)] = of_b["nan"]
        given[B], changed = Coded(given[B].format, matrix), True
    scale = given.get("a_scale")
    if scale is not None and scale.format in NARROW_SCALES:
        scales = scale.data.copy()
        scales[-1, -1], changed = _special_codes(scale.format)["nan"], True
        given["a_scale"] = Coded(scale.format, scales)
    if not changed:
        raise BadInput(f"{multiplying.product.name}: neither operand has a NaN or an infinity")
    return Input(x.format, data, given)
