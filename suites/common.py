"""What the tests of every operation share: the plan of each test, structured inputs, vectors, and generated inputs.

A test module of an operation imports ``test_cell`` and ``test_cell_golden`` from here, and brings its own
``pytest_generate_tests`` (by ``generate``) and property.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Cast, Convert, Matmul, OfCache, WideOp
from narrowgauge.golden.called import CALLED
from narrowgauge.golden.manifest import stored_case
from narrowgauge.plugin.cells import Judge, bench_of, conclude, parametrize
from narrowgauge.plugin.options import EXAMPLES, profile
from narrowgauge.reference.given import with_given
from narrowgauge.reference.inputs import DEPTHS, Depth, case_named
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.planning import Planned, has_vectors, plan_cases, plan_one
from narrowgauge.suites.run import Run

#: results that a property is content with
WELL = ("passed", "not_executed")


def generate(metafunc: pytest.Metafunc, operation: str) -> None:
    """Make a test of each cell of an operation that the test function is for."""
    parametrize(metafunc, lambda run: _cells(run, operation, metafunc.function.__name__))


def _cells(run: Run, operation: str, test: str) -> list[Planned]:
    if test == "test_cell":
        return plan_cases(run.kernels, run.devices, operation, run.depth)
    if test == "test_cell_golden":
        planned = plan_one(run.kernels, run.devices, operation, "golden", run.depth)
        # of whole calls emulated targets have the structured cases, and they are slow
        called = operation in CALLED
        return [p for p in planned if not (called and is_asked_elsewhere(p, run.depth)) and has_vectors(p)]
    # Only a deterministic case can be waived, so a claim that fails by a waiver is not searched for more.
    drawn = plan_one(run.kernels, run.devices, operation, "property", run.depth)
    return [p for p in drawn if not (run.is_waived(p) or is_asked_elsewhere(p, run.depth) or _costs_much(p, run.depth))]


def is_asked_elsewhere(planned: Planned, depth: Depth) -> bool:
    """A smoke run tries what needs several calls of our own kernels where it costs least: casts apart, not on emulated
    targets."""
    ours = planned.plugged.own and planned.claim.operation != Cast.operation and depth == DEPTHS[0]
    return ours and bool(planned.device.emulates)


def _costs_much(planned: Planned, depth: Depth) -> bool:
    """Drawn calls on caches, of converters and products cost more: a smoke run has them for our own on the host
    alone."""
    ours = (
        planned.plugged.own
        and isinstance(planned.claim.contract, OfCache | Convert | Matmul | WideOp)
        and depth == DEPTHS[0]
    )
    return ours and planned.device.how == "interpreted"


def test_cell(planned: Planned, judge_cell: Judge) -> None:
    """A structured case: every tie, boundary and special; a whole 16-bit space; rows of every kind."""
    judge_cell(planned, case_named(planned.case, planned.claim.operation).inputs(planned.claim))


def test_cell_golden(planned: Planned, judge_cell: Judge, request: pytest.FixtureRequest) -> None:
    """The stored vectors: what is expected comes from the file, not from the reference."""
    judge_cell(planned, *stored_case(planned.claim, bench_of(request.config).run.golden))


def judge_drawn(planned: Planned, request: pytest.FixtureRequest, inputs: st.SearchStrategy[Coded]) -> None:
    """Judge inputs that hypothesis draws, shrinks when one is judged wrong, and conclude the test by the worst."""
    bench = bench_of(request.config)
    judged: list[Judged] = []

    @settings(max_examples=EXAMPLES[profile()][planned.device.how])
    @given(inputs)
    def hold(x: Coded) -> None:
        # A kernel that ends its process is not asked again, for 25 inputs and then for a smaller one.
        assert not judged or judged[-1].row.outcome not in ("crashed", "hung")
        judged.append(bench.judged(planned, with_given(planned.claim, x), explained=False))
        assert judged[-1].row.result in WELL

    _search(hold, judged)
    found = worst(judged)
    if found.row.result not in WELL and found.row.outcome == "returned" and found.x is not None:
        judged.append(bench.judged(planned, found.x))  # one input is explained, and not all that led to it
    conclude(request.node, worst(judged))


def _search(hold: Callable[[], None], judged: Sequence[Judged]) -> None:
    """Run a property to its end. Its judgements say more than its assertion, so that is taken for said."""
    try:
        hold()
    except (AssertionError, Flaky):
        if not judged:
            raise


def worst(judged: Sequence[Judged]) -> Judged:
    """The last judgement that is not well, which is that of the shrunk input; else the last.

    A kernel that failed and then passed on the same input is not well: what it did is said with that.
    """
    wrong = [j for j in judged if j.row.result not in WELL]
    if not wrong:
        return judged[-1]
    found = wrong[-1]
    again = judged[-1]
    same = again.x is not None and found.x is not None and again.x.digest() == found.x.digest()
    if again.row.result in WELL and same:
        note = "not deterministic: it passed on the same input afterwards"
        return replace(found, row=replace(found.row, reason=note), message=f"{found.message}\n{note}")
    return found
