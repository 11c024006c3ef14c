"""Between a claim on a product of matrices and what probes need: its setting, and each sheet as a call."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.product import BIAS, EXPERT_COUNT, EXPERTS, GROUP_INDEX, B, Operand, Product
from narrowgauge.contracts.recipe import OF_TENSOR, Recipe
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.matmul.call import beside, inputs_of, recipe_of_operand
from narrowgauge.reference.probes.portrait import LENGTH
from narrowgauge.reference.probes.rows import Sheet
from narrowgauge.reference.probes.setting import F64, Setting, Side

#: the zero point that is given where one is asked for, by the format of the codes; else 0
ZERO_POINTS = {"uint4": 8.0, "uint8": 128.0}


def setting_of(claim: Claim, k: int = LENGTH) -> Setting:
    """What probes ask of a kernel with that claim. Raises ``BadInput`` for one on something else, or a wrong one."""
    product = product_of(claim)
    a = _side(product.a, claim.source)
    b = _side(product.b, product.b.format or claim.source)
    return Setting(a, b, claim.format, k, product.scaled)


def product_of(claim: Claim) -> Product:
    """The product of a claim as data. Raises ``BadInput`` as ``setting_of`` does."""
    if not isinstance(claim.contract, Matmul):
        raise BadInput(f"{claim}: probes ask products of matrices; expected matmul/PRODUCT/SOURCE/FORMAT")
    return multiplying_of(claim).product


def _side(operand: Operand, codes: str) -> Side:
    recipe = recipe_of_operand(operand)
    if recipe is None:
        return Side(codes, enters=operand.enters)
    zero, unit = _reader(recipe, codes)
    down, along = recipe.blocks.rows, recipe.blocks.columns
    down, along = (down, along) if operand.by_rows else (along, down)
    scales = beside(operand, codes)["scale"]
    return Side(codes, zero, unit, down, along, scales, operand.enters)


def _reader(recipe: Recipe, codes: str) -> tuple[float, float]:
    """The number that stands for 0, and that of a step."""
    zero, unit = 0.0, 1.0
    for step in recipe.reader.element[1:]:
        name, *operands = (step,) if isinstance(step, str) else step
        operand = ZERO_POINTS.get(codes, 0.0) if operands == ["zero_point"] else operands[0] if operands else 0.0
        if name == "sub" and isinstance(operand, float):
            zero = operand
        elif name == "mul" and isinstance(operand, float):
            unit = operand
    return zero, unit


def call_of(claim: Claim, sheet: Sheet) -> Input:
    """A sheet as what a kernel of that claim is given, in matrices."""
    product = product_of(claim)
    x, b = sheet.codes()
    rows, k = x.shape
    given: dict[str, Coded] = {}
    for name, fmt in inputs_of(product, claim.source, claim.format).items():
        if name == B:
            given[name] = b if product.b.by_rows else _turned(b)
        elif name in (BIAS, EXPERTS):
            given[name] = _whole(np.zeros((1, rows)), fmt)
        elif name == EXPERT_COUNT:
            given[name] = _whole(np.ones((1, 1)), fmt)
        elif name == f"b_{GROUP_INDEX}":
            given[name] = _whole(np.arange(k, dtype=np.float64)[None, :] // (sheet.setting.b.along or k), fmt)
        else:
            given[name] = _stored(product, sheet, name, fmt)
    return Input(x.format, x.data, given)


def _stored(product: Product, sheet: Sheet, name: str, fmt: str) -> Coded:
    """What stands beside the codes of an operand: scales as the rows ask, one zero point, no scale of a tensor."""
    side, _, stored = name.partition("_")
    operand, of, grid = (
        (product.a, sheet.setting.a, sheet.a_scale) if side == "a" else (product.b, sheet.setting.b, sheet.b_scale)
    )
    assert grid is not None
    if stored in OF_TENSOR:
        return _whole(np.ones((1, 1)), fmt)
    values = np.full(grid.shape, of.zero) if stored == "zero_point" else grid
    found = _whole(values, fmt)
    return found if operand.by_rows else _turned(found)


def _turned(x: Coded) -> Coded:
    return Coded(x.format, np.ascontiguousarray(x.data.T))


def _whole(values: F64, fmt: str) -> Coded:
    """Numbers that a format holds, as its codes."""
    if fmt == "int32":
        return Coded(fmt, values.astype(np.int32).view(np.uint32))
    return Side(fmt).codes(values)
