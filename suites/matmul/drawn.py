"""Calls of products that hypothesis draws, and shrinks: sizes, kinds of numbers, and any codes in any places."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.expected import expected
from narrowgauge.reference.matmul.cases import Shape, call, suits
from narrowgauge.reference.matmul.kinds import Name

#: sizes below, at and above tiles, and odd ones
ROWS, COLUMNS, DEPTHS, FEW = (0, 1, 2, 15, 16, 17, 33), (1, 8, 40, 64, 65), (1, 8, 64, 72, 129), 4
_KINDS: tuple[Name, ...] = ("exact", "full", "noise", "specials")
_PLACES = st.integers(0, (1 << 16) - 1)


def calls(claim: Claim) -> st.SearchStrategy[Coded]:
    """A call of a drawn shape, with other codes of a in some places, of which a result is derived."""
    shapes = st.builds(
        Shape,
        kind=st.sampled_from(_KINDS),
        rows=st.sampled_from(ROWS),
        columns=st.sampled_from(COLUMNS),
        depth=st.sampled_from(DEPTHS),
        blocks=st.integers(1, 3),
        seed=st.integers(0, 99),
    ).filter(lambda shape: suits(shape)(claim))
    changes = st.dictionaries(_PLACES, _PLACES, max_size=FEW)
    return st.tuples(shapes, changes).map(lambda parts: changed(claim, *parts)).filter(lambda x: _derived(claim, x))


def _derived(claim: Claim, x: Coded) -> bool:
    try:
        expected(claim, x)
    except BadInput:
        return False
    return True


def changed(claim: Claim, shape: Shape, codes: dict[int, int]) -> Coded:
    """The call of a shape with codes in some places, which count around."""
    x = call(shape)(claim)
    assert isinstance(x, Input)
    data, count = x.data.copy().ravel(), format_named(multiplying_of(claim).source).code_count
    for place, code in codes.items():
        if data.size:
            data[place % data.size] = code * max(1, count >> 16) % count
    return Input(x.format, np.ascontiguousarray(data.reshape(x.shape)), x.given)
