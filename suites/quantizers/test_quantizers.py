"""Every quantizer kernel on every device: named rows, tails, empty tensors, golden vectors, generated matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import as_codes, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.recipe import TOKEN
from narrowgauge.reference.behaviour import blocks_of
from narrowgauge.reference.inputs import case_named
from narrowgauge.reference.memory import fits
from narrowgauge.suites.common import generate, judge_drawn, test_cell, test_cell_golden
from narrowgauge.suites.planning import Planned

__all__ = ["test_cell", "test_cell_golden"]
#: columns and rows of a generated matrix, as far as blocks let it be no larger; patterns that are drawn for it
WIDEST, TALLEST, FEW = 80, 4, 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    generate(metafunc, "quantize")


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Matrices of a few blocks, which they divide: a few patterns over and over, and any elsewhere in any places."""
    claim = planned.claim
    known = sorted(set(case_named("rows_128").make(claim).data.ravel().tolist()))
    codes = st.one_of(st.sampled_from(known), st.integers(0, format_named(claim.source).code_count - 1))
    places = st.integers(0, (1 << 16) - 1)
    drawn = st.tuples(
        shapes(claim), st.lists(codes, min_size=1, max_size=FEW), st.dictionaries(places, codes, max_size=FEW)
    )
    judge_drawn(planned, request, drawn.map(lambda parts: matrix(claim.source, *parts)))


def shapes(claim: Claim) -> st.SearchStrategy[tuple[int, int]]:
    """Rows and columns that the claim's blocks divide, and for which its layouts have a place."""
    blocks = blocks_of(claim) or TOKEN
    r, c = (1, 1) if blocks.ragged else (blocks.rows or 1, blocks.columns or 1)
    return st.tuples(
        st.integers(1, max(1, TALLEST // r)).map(lambda n: n * r),
        st.integers(1, max(1, WIDEST // c)).map(lambda n: n * c),
    ).map(lambda shape: with_room(claim, shape))


def with_room(claim: Claim, shape: tuple[int, int]) -> tuple[int, int]:
    """The same, or rounded up to what the words of the claim's layouts hold."""
    larger = [tuple(-(-size // each) * each for size in shape) for each in (1, 8, 32, 128)]
    storage = format_named(claim.source).storage
    return next((r, c) for r, c in larger if fits(claim, Coded(claim.source, np.zeros((r, c), storage))))


def matrix(source: str, shape: tuple[int, int], over: list[int], elsewhere: dict[int, int]) -> Coded:
    """A matrix of patterns over and over, with others in some places, counted around."""
    found = np.resize(np.array(over, np.uint64), shape)
    for place, code in elsewhere.items():
        found.flat[place % found.size] = code
    return Coded(source, as_codes(source, found))
