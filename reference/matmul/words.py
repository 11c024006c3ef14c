"""Products and accumulators in words."""

from __future__ import annotations

from narrowgauge.contracts.product import BIAS, EXPERT_COUNT, EXPERTS, GROUP_INDEX, B, Product
from narrowgauge.contracts.recipe import OF_TENSOR, Chain, Recipe
from narrowgauge.reference.matmul.accumulators import Accumulator
from narrowgauge.reference.matmul.call import inputs_of, recipe_of_operand

_SCALED = {
    "sum": "both scales meet the sum over all of K, in float32",
    "stretches": "both scales meet the sum of each stretch of K that they share; these are added in float32",
    "unit": "inside the unit, exactly",
    "operands": "operands are made wide first, and rounded to the format in which they enter",
}
_ADDED = {
    "wide": "added in float32, before the one rounding",
    "narrow": "added to the rounded result, which is rounded again",
}
_SIGNS = {"sub": "-", "mul": "·", "div": "/"}


def _axes(product: Product, side: str) -> tuple[str, str]:
    """Rows and columns of an operand's matrix: ("M", "K")."""
    if side == "a":
        return "M", "K"
    axis = "E · N" if product.grouped else "N"
    return (axis, "K") if product.b.by_rows else ("K", axis)


def _in_blocks(axis: str, each: int, ragged: bool) -> str:
    """How many blocks there are along an axis."""
    if each < 2:
        return axis if each else "1"
    return f"ceil({axis} / {each})" if ragged else f"{axis} / {each}"


def _grid(recipe: Recipe, axes: tuple[str, str]) -> str:
    blocks = recipe.blocks
    each = zip(axes, (blocks.rows, blocks.columns), strict=True)
    return f"[{', '.join(_in_blocks(axis, size, blocks.ragged) for axis, size in each)}]"


def _shape(product: Product, name: str) -> str:
    """The shape of what a kernel is given under a name."""
    if name == B:
        return f"[{', '.join(_axes(product, 'b'))}]"
    of_call = {
        f"b_{GROUP_INDEX}": "[1, K]",
        BIAS: "[E, N]" if product.grouped else "[1, N]",
        EXPERTS: "[1, M]",
        EXPERT_COUNT: "[1, 1]",
    }
    if name in of_call:
        return of_call[name]
    side, _, stored = name.partition("_")
    recipe = recipe_of_operand(product.a if side == "a" else product.b)
    assert recipe is not None
    return "[1, 1]" if stored in OF_TENSOR else _grid(recipe, _axes(product, side))


def _given(product: Product) -> str:
    """Names, shapes and formats of what a kernel is given beside x."""
    source, result = product.formats[0]
    packed = {B if name == "codes" else f"b_{name}" for name, _ in product.b.layouts}
    packed |= {f"a_{name}" for name, _ in product.a.layouts}
    words = []
    for name, fmt in inputs_of(product, source, result).items():
        told = "as x" if name == B and not product.b.format else "as the result" if name == BIAS else fmt
        words.append(f"{name} {_shape(product, name)} {told}{', packed' if name in packed else ''}")
    return "; ".join(words)


def _chain(chain: Chain, known: dict[str, str]) -> str:
    """A computation of few steps as a formula."""
    first, *steps = chain
    words = known.get(str(first), str(first))
    for at, step in enumerate(steps):
        assert not isinstance(step, str)
        sign, value = step
        right = known.get(str(value), f"{value:g}" if isinstance(value, float) else str(value))
        words = f"{words} {_SIGNS[str(sign)]} {right}"
        if sign == "sub" and at + 1 < len(steps):
            words = f"({words})"
    return words


def _stands_for(recipe: Recipe) -> str:
    """What a code stands for: "(code - zero_point) · scale"."""
    known = {"x": "code", "stored": "scale"}
    for name, chain in recipe.reader.blocks:
        known[name] = f"({_chain(chain, known)})"
    return _chain(recipe.reader.element, known)


def _operand(product: Product, side: str) -> str:
    operand = product.a if side == "a" else product.b
    recipe = recipe_of_operand(operand)
    words = [f"[{', '.join(_axes(product, side))}]", operand.format or "the claim's source"]
    words += [f"stands for {_stands_for(recipe)}"] if recipe else []
    words += [f"written by {recipe.name}, one scale a {recipe.blocks}"] if recipe else ["plain numbers"]
    words += [f"enters as {operand.enters}"] if operand.enters else []
    words += ["the block of each k by b_group_index"] if operand.indexed else []
    words += [f"{name} as {layout}" for name, layout in operand.layouts]
    return ", ".join(words)


def facts_of(product: Product) -> list[tuple[str, str]]:
    """What there is to say of a product, as pairs: what it is, and the words."""
    facts = [
        ("formats", ", ".join(f"{one} to {other}" for one, other in product.formats)),
        ("a", _operand(product, "a")),
        ("b", _operand(product, "b")),
        ("given beside x", _given(product)),
        ("scales", _SCALED[product.scaled] if product.a.recipe or product.b.recipe else "none"),
    ]
    facts += [("bias", _ADDED[product.bias])] if product.bias else []
    facts += [("rows", "belong to experts; those of expert -1 are zeros")] if product.grouped else []
    facts += [("sums are kept in", product.accumulator)] if product.accumulator else []
    return [*facts, ("source", product.source), ("evidence", product.evidence)]


def facts_of_accumulator(accumulator: Accumulator) -> list[tuple[str, str]]:
    """The same of an accumulator."""
    one_sign = ", of one sign" if accumulator.one_sign else ""
    facts = [
        ("what", accumulator.about),
        ("exact in any order", f"integers whose magnitudes sum to less than 2^{accumulator.exact_bits}{one_sign}"),
    ]
    facts += [("float32 additions", f"every {accumulator.promote_every} products")] if accumulator.promote_every else []
    facts += [("source", accumulator.source)] if accumulator.source else []
    return [*facts, ("evidence", accumulator.grade)]
