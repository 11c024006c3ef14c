"""Faults of readers, layouts, decoders and casts, made in a product: in how it reads operands, or rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.reference.behaviour import Behaviour, behaviour_of
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.product_ways import Way, codes_of, in_operands, recipe_of
from narrowgauge.reference.matmul.multiplying import Multiplying

#: codes of faults of how numbers of few bits are decoded: they are made in codes, and in scales of few bits
DECODING = ("DECODE",)


def in_product(edit: Edit, code: str, multiplying: Multiplying) -> Iterator[Way]:
    """The product with this mistake: in its operands, in their scales, in its last rounding."""
    yield from in_operands(lambda m, side: _read_by(m, side, edit))(multiplying)
    if code in DECODING:
        yield from in_operands(lambda m, side: _decoded_by(m, side, edit))(multiplying)
        for way in in_operands(lambda m, side: _scales_decoded_by(m, side, edit))(multiplying):
            yield replace(way, note=way.note.replace("in ", "in scales of "))
    rounding = edit(multiplying.rounding)
    if rounding is not None:
        yield Way("in the last rounding", replace(multiplying, rounding=rounding))


def _read_by(multiplying: Multiplying, side: str, edit: Edit) -> Multiplying | None:
    """An operand is read otherwise: other buffers, or another way from a code to its value. A cast is none."""
    reader: Behaviour = getattr(multiplying, side)
    edited = edit(reader)
    if edited is None or (edited.received == reader.received and edited.recipe == reader.recipe):
        return None
    return replace(multiplying, **{side: edited})


def _decoded_by(multiplying: Multiplying, side: str, edit: Edit) -> Multiplying | None:
    """Codes of an operand are other numbers, which come to its reader in float32."""
    plain = _decoder(codes_of(multiplying, side), edit)
    if plain is None:
        return None

    def received(x: Coded) -> Coded:
        return Input("float32", plain.run(Coded(x.format, x.data))["codes"].data, given_with(x))

    reader: Behaviour = getattr(multiplying, side)
    return replace(multiplying, **{side: replace(reader, received=(*reader.received, received))})


def _scales_decoded_by(multiplying: Multiplying, side: str, edit: Edit) -> Multiplying | None:
    """Scales of few bits are other numbers."""
    reader, recipe = getattr(multiplying, side), recipe_of(multiplying, side)
    plain = None if recipe is None else _decoder(recipe.scale_format, edit)
    if recipe is None or plain is None:
        return None

    def received(x: Coded) -> Coded:
        given = given_with(x)
        return Input(x.format, x.data, {**given, "scale": plain.run(given["scale"])["codes"]})

    other = replace(reader, recipe=replace(recipe, scale_format="float32"), received=(*reader.received, received))
    return replace(multiplying, **{side: other})


def _decoder(format_name: str, edit: Edit) -> Behaviour | None:
    if format_name == "float32" or format_name.startswith(("int", "uint")):
        return None
    return edit(behaviour_of(Claim(Cast("ieee"), format_name, "float32")))
