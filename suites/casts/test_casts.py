"""Every cast kernel on every device: structured inputs, golden vectors, and inputs that hypothesis looks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import as_codes, format_named
from narrowgauge.golden.manifest import stored_case
from narrowgauge.plugin.cells import Judge, bench_of, conclude, parametrize
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.planning import Planned, has_vectors, plan_cases, plan_one
from narrowgauge.suites.run import Run
from narrowgauge.suites.searching import assert_answers, assert_well, search, worst

GOLDEN, PROPERTY = "golden", "property"
BATCH = 64  #: elements of one generated input


def cells(run: Run, test: str) -> list[Planned]:
    if test == "test_cell":
        return plan_cases(run.kernels, run.devices, "cast", run.depth)
    if test == "test_cell_golden":
        return [p for p in plan_one(run.kernels, run.devices, "cast", GOLDEN) if has_vectors(p)]
    # Only a deterministic case can be waived, so a claim that fails by a waiver is not searched for more.
    return [p for p in plan_one(run.kernels, run.devices, "cast", PROPERTY) if not run.is_waived(p)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, lambda run: cells(run, metafunc.function.__name__))


def test_cell(planned: Planned, judge_cell: Judge) -> None:
    """Every tie, boundary and special; the whole space of 16-bit sources."""
    judge_cell(planned, case_named(planned.case).make(planned.claim))


def test_cell_golden(planned: Planned, judge_cell: Judge, request: pytest.FixtureRequest) -> None:
    """The stored vectors: expected codes come from the file, not from the reference."""
    judge_cell(planned, *stored_case(planned.claim, bench_of(request.config).run.golden))


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Codes that hypothesis draws, and shrinks when it finds a wrong one."""
    bench, source = bench_of(request.config), planned.claim.source
    judged: list[Judged] = []
    # Half of what is drawn lies at a tie, a boundary or a special: elsewhere a wrong cast is right.
    edges = st.sampled_from(case_named("edges").make(planned.claim).data.tolist())
    codes = st.one_of(edges, st.integers(0, format_named(source).code_count - 1))

    @given(st.lists(codes, min_size=1, max_size=BATCH))
    def hold(drawn: list[int]) -> None:
        assert_answers(judged)
        judged.append(bench.judged(planned, Coded(source, as_codes(source, drawn))))
        assert_well(judged)

    search(hold, judged)
    conclude(request.node, worst(judged))
