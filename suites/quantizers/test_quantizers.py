"""Every quantizer kernel on every device: named rows, tails, empty tensors, golden vectors."""

from __future__ import annotations

import numpy as np
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

WIDEST = 40  #: columns of a generated matrix


def cells(run: Run, test: str) -> list[Planned]:
    if test == "test_cell":
        return plan_cases(run.kernels, run.devices, "quantize", run.depth)
    if test == "test_cell_golden":
        return [p for p in plan_one(run.kernels, run.devices, "quantize", "golden") if has_vectors(p)]
    return [p for p in plan_one(run.kernels, run.devices, "quantize", "property") if not run.is_waived(p)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, lambda run: cells(run, metafunc.function.__name__))


def test_cell(planned: Planned, judge_cell: Judge) -> None:
    """Rows that are zero, NaN, infinite, tied, tiny; widths with a tail."""
    judge_cell(planned, case_named(planned.case).make(planned.claim))


def test_cell_golden(planned: Planned, judge_cell: Judge, request: pytest.FixtureRequest) -> None:
    """The stored vectors: expected codes and scales come from the file, not from the reference."""
    judge_cell(planned, *stored_case(planned.claim, bench_of(request.config).run.golden))


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Matrices of a few rows, of any patterns of the source and of magnitudes that a row may have."""
    bench, source = bench_of(request.config), format_named(planned.claim.source)
    judged: list[Judged] = []
    known = sorted(set(case_named("rows_128").make(planned.claim).data.ravel().tolist()))
    codes = st.one_of(st.sampled_from(known), st.integers(0, source.code_count - 1))
    matrices = st.integers(1, WIDEST).flatmap(
        lambda columns: st.lists(st.lists(codes, min_size=columns, max_size=columns), min_size=1, max_size=4)
    )

    @given(matrices)
    def hold(drawn: list[list[int]]) -> None:
        assert_answers(judged)
        judged.append(bench.judged(planned, Coded(source.name, as_codes(source.name, np.array(drawn, np.int64)))))
        assert_well(judged)

    search(hold, judged)
    conclude(request.node, worst(judged))
