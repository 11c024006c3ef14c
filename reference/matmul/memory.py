"""Between the matrices of a product and the memory images that a kernel is given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.product import B, Product
from narrowgauge.reference.matmul.call import columns_of, inputs_of, shapes_of
from narrowgauge.reference.packings import Packing, packing_named

#: the name of a's codes among what is given: they come as x
X = "x"


def packings(product: Product) -> dict[str, Packing]:
    """How each packed buffer stands in memory, by the name under which a kernel is given it."""
    names = {("a", "codes"): X, ("b", "codes"): B}
    held = ((side, *pair) for side, operand in (("a", product.a), ("b", product.b)) for pair in operand.layouts)
    return {names.get((side, name), f"{side}_{name}"): packing_named(layout) for side, name, layout in held}


def check_packed(product: Product, source: str, format_name: str) -> None:
    """Raise ``BadInput`` for a layout that does not exist, of codes of another width, or of a buffer that is not."""
    formats = {X: source} | inputs_of(product, source, format_name)
    for name, packing in packings(product).items():
        if name not in formats:
            raise BadInput(f"product {product.name!r}: {name!r} has a layout; it is given {', '.join(formats)}")
        packing.check(f"product {product.name!r}", name.removeprefix("a_").removeprefix("b_"), formats[name])


def to_memory(product: Product, x: Coded) -> Input:
    """The call as the kernel is given it."""
    held = packings(product)
    given = {name: held[name].pack(value) if name in held else value for name, value in given_with(x).items()}
    codes = held[X].pack(x) if X in held else x
    return Input(codes.format, codes.data, given)


def sent_formats(product: Product, source: str, format_name: str) -> dict[str, str]:
    """Names and formats of what a kernel is given, x first, as elements of memory."""
    held = packings(product)
    formats = {X: source} | inputs_of(product, source, format_name)
    return {name: held[name].element if name in held else fmt for name, fmt in formats.items()}


def read_memory(
    product: Product, source: str, format_name: str, shape: tuple[int, int], x: Coded, given: Mapping[str, Coded]
) -> Input:
    """The inverse of ``to_memory``, of a call whose a is of that shape.

    Raises ``BadInput`` for a buffer of another size than the layouts give. The width of a packed b is that of its
    image.
    """
    held, buffers = packings(product), {X: x, **given}
    formats = {X: source} | inputs_of(product, source, format_name)
    for name in (X, B):
        if name in held:
            fmt = formats[name]
            per = held[name].layout.element_bytes * 8 // format_named(fmt).bits
            sides = shape if name == X else _shape_of_b(product, shape[1], buffers[B].data.size * per)
            buffers[name] = _unpacked(held[name], name, buffers[name], fmt, sides)
    codes = buffers.pop(X)
    call = Input(codes.format, codes.data, buffers)
    for name, (rows, columns) in shapes_of(product, source, call).items():
        if name in held and name != B:
            buffers[name] = _unpacked(held[name], name, buffers[name], formats[name], (rows, columns))
    return Input(codes.format, codes.data, buffers)


def _shape_of_b(product: Product, depth: int, elements: int) -> tuple[int, int]:
    rows = elements // max(1, depth)
    return (rows, depth) if product.b.by_rows else (depth, rows)


def _unpacked(packing: Packing, name: str, image: Coded, format_name: str, shape: tuple[int, int]) -> Coded:
    like = Coded(format_name, np.zeros(shape, format_named(format_name).storage))
    try:
        matrix, wrong = packing.unpack(image, like)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None
    if wrong:
        raise BadInput(f"{name}: {wrong[0]}")
    return matrix


def shaped_outputs(product: Product, format_name: str, x: Coded) -> dict[str, Coded]:
    """A result of the format and shape that a call gives. Its values mean nothing."""
    shape = (x.shape[0], columns_of(product, x))
    return {"codes": Coded(format_name, np.zeros(shape, format_named(format_name).storage))}
