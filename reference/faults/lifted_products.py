"""Faults of readers, layouts, decoders and casts, made in a product: in how it reads operands, or rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.reference.behaviour import Behaviour, behaviour_of
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.product_ways import SIDES, Way, codes_of, in_operands, read_by, reader_of, recipe_of
from narrowgauge.reference.matmul.multiplying import Multiplying

#: codes of faults of how numbers of few bits are decoded: they are made in codes, and in scales of few bits
DECODING = ("DECODE",)
#: codes of faults that are made in weights: of activations they are faults of sums of weights, with names of their own
OF_WEIGHTS = ("ZERO",)
#: what a packed buffer holds
_HELD = {"codes": "codes", "scale": "scales", "zero_point": "zero points"}


def in_product(edit: Edit, code: str, multiplying: Multiplying) -> Iterator[Way]:
    """The product with this mistake: in its operands, in their scales, in its last rounding."""
    sides = ("b",) if code in OF_WEIGHTS else SIDES
    yield from in_operands(lambda m, side: _read_by(m, side, edit), sides)(multiplying)
    for side in SIDES:
        packed = reader_of(multiplying, side).layouts
        for each in packed if len(packed) > 1 else ():
            alone = _read_by(multiplying, side, edit, (each,))
            if alone is not None:
                yield Way(f"in {_HELD[each[0]]} of {side} alone", alone)
    if code in DECODING:
        yield from in_operands(lambda m, side: _decoded_by(m, side, edit))(multiplying)
        for way in in_operands(lambda m, side: _scales_decoded_by(m, side, edit))(multiplying):
            yield replace(way, note=way.note.replace("in ", "in scales of "))
    rounding = edit(multiplying.rounding)
    if rounding is not None:
        yield Way("in the last rounding", replace(multiplying, rounding=rounding))


def _read_by(
    multiplying: Multiplying, side: str, edit: Edit, packed: tuple[tuple[str, str], ...] | None = None
) -> Multiplying | None:
    """An operand is read otherwise: other buffers, or another way from a code to its value. A cast is none.

    ``packed``: as though these buffers alone were packed.
    """
    reader = reader_of(multiplying, side)
    edited = edit(reader if packed is None else replace(reader, layouts=packed))
    if edited is None or (edited.received == reader.received and edited.recipe == reader.recipe):
        return None
    return read_by(multiplying, side, replace(edited, layouts=reader.layouts))


def _decoded_by(multiplying: Multiplying, side: str, edit: Edit) -> Multiplying | None:
    """Codes of an operand are other numbers, which come to its reader in float32."""
    plain = _decoder(codes_of(multiplying, side), edit)
    if plain is None:
        return None

    def received(x: Coded) -> Coded:
        return Input("float32", plain.run(Coded(x.format, x.data))["codes"].data, given_with(x))

    reader = reader_of(multiplying, side)
    return read_by(multiplying, side, replace(reader, received=(*reader.received, received)))


def _scales_decoded_by(multiplying: Multiplying, side: str, edit: Edit) -> Multiplying | None:
    """Scales of few bits are other numbers."""
    reader, recipe = reader_of(multiplying, side), recipe_of(multiplying, side)
    plain = None if recipe is None else _decoder(recipe.scale_format, edit)
    if recipe is None or plain is None:
        return None

    def received(x: Coded) -> Coded:
        given = given_with(x)
        return Input(x.format, x.data, {**given, "scale": plain.run(given["scale"])["codes"]})

    other = replace(reader, recipe=replace(recipe, scale_format="float32"), received=(*reader.received, received))
    return read_by(multiplying, side, other)


def _decoder(format_name: str, edit: Edit) -> Behaviour | None:
    if format_name == "float32" or format_name.startswith(("int", "uint")):
        return None
    return edit(behaviour_of(Claim(Cast("ieee"), format_name, "float32")))
