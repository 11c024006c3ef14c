"""Caches in words: the axes of a buffer, its elements, its padding."""

from __future__ import annotations

from narrowgauge.contracts.cache import Buffer, Cache, Field, Slots
from narrowgauge.reference.recipes import RECIPES

#: names of sizes in a declaration, as people say them, and of digits that take what is left
_SIZES = {"block": "block", "width": "width", "vector": "x"}
_LEFT = {"b": "pages", "s": "slots", "h": "heads"}


def _digit(field: Field, name: str) -> str:
    """How large a digit is: ``block``, ``width/x``, ``16``, ``heads``."""
    for part in (*field.rows.split(), *field.columns.split()):
        digit, colon, size = part.partition(":")
        if digit == name:
            return "/".join(_SIZES.get(word, word) for word in size.split("/")) if colon else _LEFT[name]
    raise AssertionError(f"{field.of}: no digit {name}")


def axes(cache: Cache, field: Field) -> str:
    """The axes of a field in memory, outermost first."""
    found, one = [], bool(cache.part(field.of.split("_")[0]).columns)  # a part without heads has no such axis
    for axis in field.storage:
        sizes = [_digit(field, name) for name in axis.split() if not (one and name == "h")]
        if not sizes:
            continue
        found.append("·".join(size.replace("width", _width(cache, field)) for size in sizes))
    return ", ".join(found)


def _width(cache: Cache, field: Field) -> str:
    """Columns of a head of this matrix: of codes the head's; of scales how many a head has."""
    name, _, other = field.of.partition("_")
    part = cache.part(name)
    whole = str(part.columns) if part.columns else "width"
    if not other:
        return whole
    recipe = RECIPES[part.recipe]
    each = recipe.blocks.columns
    return str(part.columns // each) if part.columns else f"{whole}/{each}"


def element(cache: Cache, buffer: Buffer) -> str:
    """The format of an element."""
    if buffer.element:
        return buffer.element
    formats = {_format(cache, field) for field in buffer.fields}
    return "uint8" if any(field.slots for field in buffer.fields) or len(formats) > 1 else formats.pop()


def _format(cache: Cache, field: Field) -> str:
    name, _, other = field.of.partition("_")
    part = cache.part(name)
    if not other:
        return part.keeps or "codes"
    return RECIPES[part.recipe].outputs(RECIPES[part.recipe].destinations[0].format)[other]


def padding(rule: Slots) -> tuple[str, str]:
    """Which slot numbers stand for padding, and what becomes of it."""
    which = "any negative slot" if rule.padding == "negative" else "slot 0"
    return which, "written to slot 0, which is nobody's" if rule.written else "written nowhere"
