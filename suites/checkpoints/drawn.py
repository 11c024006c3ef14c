"""Calls of converters that hypothesis draws, and shrinks: sizes, kinds of scales, and any codes in any places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import converting_of
from narrowgauge.reference.convert.cases import Shape, call, suits

#: sizes that blocks of 32 and 128, groups and words divide, and others
ROWS, COLUMNS, FEW = (0, 1, 2, 7, 32, 64, 128, 130), (8, 16, 32, 96, 128, 136), 4
_PLACES = st.integers(0, (1 << 16) - 1)


def calls(claim: Claim) -> st.SearchStrategy[Coded]:
    """A call of a drawn shape, with other codes in some places."""
    flags = {name: st.booleans() for name in ("hard", "finite", "empty_shard")}
    drawn = st.builds(Shape, rows=st.sampled_from(ROWS), columns=st.sampled_from(COLUMNS), **flags)
    shapes = drawn.map(lambda shape: _possible(claim, shape)).filter(lambda shape: suits(shape)(claim))
    return st.tuples(shapes, st.dictionaries(_PLACES, _PLACES, max_size=FEW)).map(lambda parts: changed(claim, *parts))


def _possible(claim: Claim, shape: Shape) -> Shape:
    """The same without what a conversion does not have, and with as many rows as its groups need."""
    conversion = converting_of(claim).conversion
    merges = any(held.name == "widths" for held in conversion.takes)
    group = conversion.blocks.rows if conversion.blocks.columns == 1 else 1
    return replace(shape, rows=-(-shape.rows // group) * group, empty_shard=shape.empty_shard and merges)


def changed(claim: Claim, shape: Shape, codes: dict[int, int]) -> Coded:
    """The call of a shape with codes in some places, which count around."""
    x = call(shape)(claim)
    assert isinstance(x, Input)
    data, count = x.data.copy().ravel(), format_named(x.format).code_count
    for place, code in codes.items():
        if data.size:
            data[place % data.size] = code * max(1, count >> 16) % count
    return Input(x.format, np.ascontiguousarray(data.reshape(x.shape)), x.given)
