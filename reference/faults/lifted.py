"""Faults of quantizers and layouts, made in a converter: in what quantizes there, or in how buffers stand in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import Held
from narrowgauge.reference import policies
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.convert.converting import Buffers, Converting
from narrowgauge.reference.convert.run import converted
from narrowgauge.reference.faults.edits import Edit


def in_conversion(edit: Edit, converting: Converting) -> Converting | None:
    """The converter with this mistake; None where it can exist in no part of it."""
    if converting.quantizer is not None and (edited := edit(converting.quantizer)) is not None:
        return replace(converting, quantizer=edited)
    given = edit(_images(converting.conversion.gives, converting.format, reads=False))
    taken = edit(_images(converting.conversion.takes, converting.source, reads=True))
    finish, receive = () if given is None else given.after, () if taken is None else taken.received
    if not finish and not receive:
        return None

    def spoilt(outputs: Buffers, x: Input) -> Buffers:
        """What is given in a wrong image; where that shows nothing, what comes of images that were read wrongly."""
        found = outputs
        for change in finish:
            found = change(found)
        if any(not np.array_equal(found[name].data, value.data) for name, value in outputs.items()):
            return found
        misread: Coded = x
        for each in receive:
            misread = each(misread)
        return converted(replace(converting, received=()), misread)

    return replace(converting, after=(*converting.after, spoilt))


def _images(held: tuple[Held, ...], format_name: str, reads: bool) -> Behaviour:
    """Nothing but buffers and how they stand in memory, which is all that a fault of layouts looks at."""
    layouts = tuple((each.name, each.layout) for each in held if each.layout)
    policy = policies.resolve("ieee", "float32")
    return Behaviour(format_name, format_name, policy, reads=reads, layouts=layouts)
