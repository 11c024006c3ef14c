"""Every product on every device: NaN and infinity stay in their row, or their column."""

from __future__ import annotations

import pytest

from narrowgauge.plugin.cells import bench_of, conclude, parametrize
from narrowgauge.suites.common import is_asked_elsewhere
from narrowgauge.suites.matmul.poison import can_be_poisoned, poisoned
from narrowgauge.suites.planning import Planned, plan_one
from narrowgauge.suites.run import Run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, _cells)


def _cells(run: Run) -> list[Planned]:
    cells = plan_one(run.kernels, run.devices, "matmul", "poison", run.depth)
    return [p for p in cells if can_be_poisoned(p.claim) and not (run.is_waived(p) or is_asked_elsewhere(p, run.depth))]


def test_cell_poison(planned: Planned, request: pytest.FixtureRequest) -> None:
    """The kernel is held to its own answer without the poison."""
    bench, pair = bench_of(request.config), poisoned(planned.claim)
    judged = bench.judged(planned, pair.clean)
    if judged.outputs is not None and judged.row.result == "passed":
        judged = bench.judged(planned, pair.call, pair.expected(planned.claim, judged.outputs))
    conclude(request.node, judged)
