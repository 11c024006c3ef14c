"""The vocabulary in which faults of how operands enter a product are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.product import B
from narrowgauge.contracts.recipe import Reader
from narrowgauge.reference.faults import product_models as models
from narrowgauge.reference.faults.product_ways import (
    Way,
    Ways,
    enters,
    in_operands,
    one,
    other_terms,
    taking,
    with_given,
    with_terms,
)
from narrowgauge.reference.matmul.multiplying import Multiplying, Terms
from narrowgauge.reference.policies import resolve
from narrowgauge.reference.units.rounding import FLOAT32, toward_zero


def operands_rounded(format_name: str) -> Ways:
    """Operands are rounded to a narrower format before the product; to tfloat32 also by cutting."""
    fmt = format_named(format_name)
    nearest = models.rounding_to(format_name)
    cut = [lambda v: toward_zero(v, fmt.mantissa, FLOAT32)] if format_name == "tfloat32" else []

    def edit(rounded: models.Rounding) -> Callable[[Multiplying, str], Multiplying | None]:
        def edited(multiplying: Multiplying, side: str) -> Multiplying | None:
            from_ = enters(multiplying, side)
            if from_.bits < 16 or (from_.mantissa <= fmt.mantissa and from_.exponent <= fmt.exponent):
                return None
            return with_terms(multiplying, lambda terms: other_terms(terms, {side: rounded(getattr(terms, side))}))

        return edited

    def ways(multiplying: Multiplying) -> Iterator[Way]:
        for number, rounded in enumerate((nearest, *cut)):
            for way in in_operands(edit(rounded))(multiplying):
                yield replace(way, note=f"{way.note}, cut" if number else way.note)

    return ways


def _flushed(multiplying: Multiplying, side: str) -> Multiplying | None:
    fmt = enters(multiplying, side)
    if fmt.bits != 16:
        return None
    least = 2.0 ** (1 - fmt.bias)

    def change(terms: Terms) -> Terms:
        number = getattr(terms, side)
        return other_terms(terms, {side: np.where(np.abs(number) < least, 0.0, number)})

    return with_terms(multiplying, change)


subnormals_flushed = in_operands(_flushed)


def _bits_multiplied(multiplying: Multiplying) -> Multiplying | None:
    """The codes of both operands are multiplied as integers."""
    if multiplying.source != "bfloat16" or multiplying.product.b.recipe or multiplying.product.b.format:
        return None

    def as_numbers(value: Coded) -> Coded:
        return Coded("float32", np.ascontiguousarray(value.data.astype(np.float32)).view(np.uint32))

    def taken(x: Input) -> Input:
        return with_given(Input("float32", as_numbers(x).data, x.given), {B: as_numbers(x.given[B])})

    return taking(multiplying, taken)


bit_patterns = one(_bits_multiplied)


def _other_weights(multiplying: Multiplying) -> Multiplying | None:
    """A weight of four bits is made wide in the other 16-bit type."""
    reader = multiplying.b
    if reader.recipe is None or reader.format not in _OTHER or multiplying.product.scaled != "operands":
        return None
    other = _OTHER[reader.format]
    recipe = replace(reader.recipe, reader=_in_type(reader.recipe.reader, other))
    return replace(multiplying, b=replace(reader, format=other, policy=resolve("ieee", other), recipe=recipe))


#: 16-bit types that are taken for each other
_OTHER = {"float16": "bfloat16", "bfloat16": "float16"}


def _in_type(reader: Reader, format_name: str) -> Reader:
    """The scale is rounded to a type before anything else."""
    narrow = ("narrow", ("stored", ("round", format_name)))
    element = tuple(("mul", "narrow") if step == ("mul", "stored") else step for step in reader.element)
    return replace(reader, blocks=(*reader.blocks, narrow), element=element)


weights_in_the_other_type = one(_other_weights)
