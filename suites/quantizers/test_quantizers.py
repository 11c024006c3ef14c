"""Every quantizer kernel on every device: named rows, tails, empty tensors, golden vectors."""

from __future__ import annotations

import pytest

from narrowgauge.golden.manifest import stored_case
from narrowgauge.plugin.cells import Judge, bench_of, parametrize
from narrowgauge.reference.inputs import case_named
from narrowgauge.suites.planning import Planned, has_vectors, plan_cases, plan_one
from narrowgauge.suites.run import Run


def cells(run: Run, test: str) -> list[Planned]:
    if test == "test_cell":
        return plan_cases(run.kernels, run.devices, "quantize", run.depth)
    return [p for p in plan_one(run.kernels, run.devices, "quantize", "golden") if has_vectors(p)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, lambda run: cells(run, metafunc.function.__name__))


def test_cell(planned: Planned, judge_cell: Judge) -> None:
    """Rows that are zero, NaN, infinite, tied, tiny; widths with a tail."""
    judge_cell(planned, case_named(planned.case).make(planned.claim))


def test_cell_golden(planned: Planned, judge_cell: Judge, request: pytest.FixtureRequest) -> None:
    """The stored vectors: expected codes and scales come from the file, not from the reference."""
    judge_cell(planned, *stored_case(planned.claim, bench_of(request.config).run.golden))
