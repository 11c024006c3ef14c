"""Every product on every device: NaN and infinity stay in their row, or their column."""

from __future__ import annotations

import pytest

from narrowgauge.plugin.cells import bench_of, conclude, parametrize
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.common import is_asked_elsewhere
from narrowgauge.suites.matmul.poison import can_be_poisoned, poisoned
from narrowgauge.suites.planning import Planned, plan_one
from narrowgauge.suites.run import Run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, _cells)


def _cells(run: Run) -> list[Planned]:
    cells = plan_one(run.kernels, run.devices, "matmul", "poison", run.depth)
    asked = [p for p in cells if can_be_poisoned(p.claim) and not is_asked_elsewhere(p, run.depth)]
    if run.depth == DEPTHS[0]:  # one format of the result for each of a's: poison is poison in all
        first = {(p.plugged.kernel.name, p.claim.source, p.device.target): p for p in reversed(asked)}
        asked = [p for p in asked if p in first.values()]
    return [p for p in asked if not run.is_waived(p)]


def test_cell_poison(planned: Planned, request: pytest.FixtureRequest) -> None:
    """The kernel is held to its own answer without the poison."""
    bench, pair = bench_of(request.config), poisoned(planned.claim)
    judged = bench.judged(planned, pair.clean)
    if judged.outputs is not None and judged.row.result == "passed":
        judged = bench.judged(planned, pair.call, pair.expected(planned.claim, judged.outputs))
    conclude(request.node, judged)
