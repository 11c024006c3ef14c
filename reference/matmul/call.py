"""What a product is given, and the checks that make it a call: an error before anything is multiplied.

a is x [M, K] in the claim's source format; beside it ``b`` and, for each operand, what its recipe stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.product import BIAS, EXPERT_COUNT, EXPERTS, GROUP_INDEX, B, Operand, Product
from narrowgauge.contracts.recipe import OF_TENSOR, Recipe
from narrowgauge.reference import recipes
from narrowgauge.reference.fast_codec import decode_values

#: formats of scales that have a NaN of their own, which poisons; in all others one is an error of the caller
NARROW_SCALES = ("float8_e8m0fnu", "float8_e4m3fn")
Shape = tuple[int, int]


def recipe_of_operand(operand: Operand) -> Recipe | None:
    """The recipe that wrote an operand, in the blocks that the engine takes; None for plain numbers."""
    recipe = recipes.resolve(operand.recipe) if operand.recipe else None
    if recipe is None or not operand.whole:
        return recipe
    return replace(recipe, blocks=replace(recipe.blocks, ragged=False))


def beside(operand: Operand, format_name: str) -> dict[str, str]:
    """Names, as the recipe has them, and formats of what is stored beside an operand's codes."""
    recipe = recipe_of_operand(operand)
    return {} if recipe is None else recipe.given_to_reader(format_name)


def inputs_of(product: Product, source: str, format_name: str) -> dict[str, str]:
    """Names and formats of all that a kernel is given beside x."""
    b = product.b.format or source
    given = {f"a_{name}": fmt for name, fmt in beside(product.a, source).items()}
    given |= {B: b} | {f"b_{name}": fmt for name, fmt in beside(product.b, b).items()}
    if product.b.indexed:
        given[f"b_{GROUP_INDEX}"] = "int32"
    if product.bias:
        given[BIAS] = format_name
    return given | ({EXPERTS: "int32", EXPERT_COUNT: "int32"} if product.grouped else {})


def experts_of(product: Product, given: Mapping[str, Coded]) -> int:
    """How many matrices stand below one another in b."""
    if not product.grouped:
        return 1
    count = given.get(EXPERT_COUNT)
    if count is None or count.format != "int32" or count.data.size != 1:
        raise BadInput(f"{product.name}: {EXPERT_COUNT} is {_form(count)}; expected int32 [1, 1]")
    return int(count.data.view(np.int32).ravel()[0])


def columns_of(product: Product, x: Coded) -> int:
    """N: how many columns the result has. Raises ``BadInput`` where b is missing or is no whole number of matrices."""
    b = given_with(x).get(B)
    if b is None or b.data.ndim != 2:
        raise BadInput(f"{product.name}: 'b' is {_form(b)}; expected a matrix beside a's codes")
    rows = b.shape[0 if product.b.by_rows else 1]
    count = experts_of(product, given_with(x))
    if count < 1 or rows % count:
        raise BadInput(f"{product.name}: b has {rows} rows for {count} experts; expected as many for each")
    return rows // count


def check_call(product: Product, source: str, format_name: str, x: Coded) -> None:
    """Raise ``BadInput`` for what is missing, of another format or shape, for a K that differs or that blocks do not
    divide, for scales that are no numbers, and for experts that are not there."""
    if x.data.ndim != 2 or x.format != source:
        raise BadInput(f"{product.name}: a is {x.format} {list(x.shape)}; expected {source} [M, K]")
    _check_codes(product, "a", x)
    given, wanted = given_with(x), inputs_of(product, source, format_name)
    shapes = shapes_of(product, source, x)
    for name, fmt in wanted.items():
        value = given.get(name)
        if value is None or value.format != fmt or value.shape != shapes[name]:
            raise BadInput(
                f"{product.name}: {name} is {_form(value)}; expected {fmt} {list(shapes[name])} for a {list(x.shape)}"
            )
        _check_codes(product, name, value)
        _check_numbers(product, name, value)
    _check_experts(product, given)


def shapes_of(product: Product, source: str, x: Coded) -> dict[str, Shape]:
    """The shape of everything beside x. Raises ``BadInput`` where b's K is another, or blocks do not divide."""
    rows, depth = x.shape[0], x.shape[1]
    columns, given = columns_of(product, x), given_with(x)
    experts = experts_of(product, given)
    b = given[B].shape
    if b[1 if product.b.by_rows else 0] != depth:
        raise BadInput(f"{product.name}: a is {list(x.shape)}, b {list(b)}; expected the same K, which is a's {depth}")
    found = _beside_shapes(product, "a", source, (rows, depth))
    found |= {B: (b[0], b[1])} | _beside_shapes(product, "b", product.b.format or source, (b[0], b[1]))
    recipe = recipe_of_operand(product.b)
    if experts > 1 and recipe is not None and columns % (recipe.blocks.rows or 1):
        raise BadInput(
            f"{product.name}: {columns} columns of each expert are no whole number of blocks of {recipe.blocks.rows}"
        )
    found |= {f"b_{GROUP_INDEX}": (1, depth), BIAS: (experts, columns), EXPERTS: (1, rows), EXPERT_COUNT: (1, 1)}
    return found


def _beside_shapes(product: Product, side: str, format_name: str, shape: Shape) -> dict[str, Shape]:
    operand = product.a if side == "a" else product.b
    recipe = recipe_of_operand(operand)
    if recipe is None:
        return {}
    try:
        grid = recipe.blocks.grid(*shape)
    except BadInput as error:
        raise BadInput(f"{product.name}: {side} {list(shape)}: {error}") from None
    return {f"{side}_{n}": (1, 1) if n in OF_TENSOR else grid for n in recipe.given_to_reader(format_name)}


def _check_codes(product: Product, name: str, value: Coded) -> None:
    if not value.well_formed:
        raise BadInput(f"{product.name}: {name} holds numbers that are no codes of {value.format}")


def _check_numbers(product: Product, name: str, value: Coded) -> None:
    if not name.endswith("scale") or value.format in NARROW_SCALES:
        return
    wrong = np.argwhere(~np.isfinite(decode_values(value)))
    if wrong.size:
        at = [int(i) for i in wrong[0]]
        raise BadInput(
            f"{product.name}: {name}{at} is {decode_values(value)[tuple(at)]}; expected finite scales: "
            "what made them is wrong, and the product would say so too late"
        )


def _check_experts(product: Product, given: Mapping[str, Coded]) -> None:
    if not product.grouped:
        return
    experts, count = given[EXPERTS].data.view(np.int32).ravel(), experts_of(product, given)
    wrong = np.flatnonzero((experts < -1) | (experts >= count))
    if wrong.size:
        at = int(wrong[0])
        raise BadInput(f"{product.name}: experts[0, {at}] is {int(experts[at])}; expected -1 to {count - 1}")


def _form(value: Coded | None) -> str:
    return "missing" if value is None else f"{value.format} {list(value.shape)}"


def input_of_call(x: Coded) -> Input:
    """The call as one that can be changed."""
    return Input(x.format, x.data, given_with(x))
