"""Products and accumulators in words."""

from __future__ import annotations

from narrowgauge.contracts.product import Operand, Product
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


def _operand(operand: Operand, axis: str) -> str:
    recipe = recipe_of_operand(operand)
    shape = f"[{axis}, K]" if operand.by_rows else f"[K, {axis}]"
    words = [shape, operand.format or "the claim's source"]
    words += [f"written by {recipe.name}, one scale a {recipe.blocks}"] if recipe else ["plain numbers"]
    words += [f"enters as {operand.enters}"] if operand.enters else []
    words += ["the block of each k by b_group_index"] if operand.indexed else []
    words += [f"{name} as {layout}" for name, layout in operand.layouts]
    return ", ".join(words)


def facts_of(product: Product) -> list[tuple[str, str]]:
    """What there is to say of a product, as pairs: what it is, and the words."""
    source, result = product.formats[0]
    facts = [
        ("formats", ", ".join(f"{one} to {other}" for one, other in product.formats)),
        ("a", _operand(product.a, "M")),
        ("b", _operand(product.b, "E · N" if product.grouped else "N")),
        ("given beside x", ", ".join(f"{n} ({f})" for n, f in inputs_of(product, source, result).items())),
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
