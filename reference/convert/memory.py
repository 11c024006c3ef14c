"""Between a conversion's matrices and the memory images in which its buffers stand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.conversion import FIRST, Conversion, Held
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.layout import InMemory
from narrowgauge.reference.convert.work import check_taken, shape_of, shards_of
from narrowgauge.reference.packings import Packing, packing_named


def packed(held: Held) -> Packing | None:
    """How a buffer is packed; None for a plain matrix. Raises ``BadInput`` for a layout that does not exist."""
    return packing_named(held.layout) if held.layout else None


def check_packed(conversion: Conversion, source: str, format_name: str) -> None:
    """Raise ``BadInput`` for a layout of codes of another width than the buffer's."""
    for side, own in ((conversion.takes, source), (conversion.gives, format_name)):
        for held in side:
            if (packing := packed(held)) is not None:
                packing.check(f"conversion {conversion.name!r}", held.name, held.format or own)


def to_memory(conversion: Conversion, x: Coded) -> Input:
    """The call as the kernel is given it."""
    given = dict(given_with(x))
    for held in conversion.takes[1:]:
        if (packing := packed(held)) is not None:
            given[held.name] = packing.pack(given[held.name])
    first = packed(conversion.takes[0])
    codes = Coded(x.format, x.data) if first is None else first.pack(x)
    return Input(codes.format, codes.data, given)


def sent_formats(conversion: Conversion, source: str) -> dict[str, str]:
    """Names and formats of what a kernel is given, x first, as elements of memory."""
    found = {}
    for held in conversion.takes:
        packing = packed(held)
        found["x" if held.name == FIRST else held.name] = packing.element if packing else held.format or source
    return found


def in_memory(conversion: Conversion, format_name: str, x: Coded) -> InMemory:
    """What a device must know of the images that come back."""
    outputs, loose = dict(conversion.outputs(format_name)), []
    for held in conversion.gives:
        if (packing := packed(held)) is not None:
            outputs[held.name] = packing.element
            loose += [held.name] * (packing.layout.padding == "unwritten")
    return InMemory(outputs, x.shape, tuple(loose))


def pack_outputs(conversion: Conversion, outputs: Mapping[str, Coded]) -> dict[str, Coded]:
    """The images of what is given."""
    packings = ((held.name, packed(held)) for held in conversion.gives)
    return {name: outputs[name] if packing is None else packing.pack(outputs[name]) for name, packing in packings}


def shaped_outputs(conversion: Conversion, format_name: str, x: Coded) -> dict[str, Coded]:
    """Outputs of the formats and shapes that a call gives. Their values mean nothing."""
    shape, shards = (x.shape[0], x.shape[1]), shards_of(x)
    formats = conversion.outputs(format_name)
    return {
        held.name: Coded(
            formats[held.name],
            np.zeros(shape_of(held, conversion, shape, shards), format_named(formats[held.name]).storage),
        )
        for held in conversion.gives
    }


def from_memory(
    conversion: Conversion, format_name: str, x: Coded, got: Mapping[str, Coded]
) -> tuple[dict[str, Coded], tuple[str, ...]]:
    """What a kernel returned as matrices, and what is wrong with the images; those are left out."""
    matrices, wrong = dict(got), []
    like = shaped_outputs(conversion, format_name, x)
    for held in conversion.gives:
        packing = packed(held)
        if packing is None or held.name not in matrices:
            continue
        try:
            matrices[held.name], said = packing.unpack(matrices.pop(held.name), like[held.name])
            wrong += [f"{held.name}: {each}" for each in said]
        except BadInput as error:
            wrong.append(f"{held.name}: {error}")
    return matrices, tuple(wrong)


def read_memory(
    conversion: Conversion, source: str, shape: tuple[int, int], x: Coded, given: Mapping[str, Coded]
) -> Input:
    """The inverse of ``to_memory``. Raises ``BadInput`` for a buffer of another size than the layouts give."""
    buffers = {FIRST: x, **given}
    shards = shards_of(Input(x.format, x.data, given))
    for held in conversion.takes:
        if (packing := packed(held)) is not None:
            fmt = held.format or source
            like = np.zeros(shape_of(held, conversion, shape, shards), format_named(fmt).storage)
            buffers[held.name], wrong = packing.unpack(buffers[held.name], Coded(fmt, like))
            if wrong:
                raise BadInput(f"{held.name}: {wrong[0]}")
    codes = buffers.pop(FIRST)
    return Input(codes.format, codes.data, buffers)


def fits(conversion: Conversion, format_name: str, x: Coded) -> bool:
    """Whether blocks divide the codes, and the layouts of both sides have a place for these sizes."""
    try:
        check_taken(conversion, x.format, x)
        to_memory(conversion, x)
        like = shaped_outputs(conversion, format_name, x)
        for held in conversion.gives:
            if (packing := packed(held)) is not None:
                packing.check_shape(like[held.name].shape)
    except BadInput:
        return False
    return True
