"""What the tests of caches share: cells for scale responses, and drawn calls."""

from __future__ import annotations

import pytest

from narrowgauge.plugin.cells import bench_of, conclude, parametrize
from narrowgauge.suites.common import generate, is_asked_elsewhere, judge_drawn
from narrowgauge.suites.kv.drawn import calls
from narrowgauge.suites.kv.responses import responds, response_of
from narrowgauge.suites.planning import Planned, plan_one
from narrowgauge.suites.run import Run

RESPONSE = "test_cell_scale_response"


def generate_kv(metafunc: pytest.Metafunc, operation: str) -> None:
    """Make a test of each cell of an operation on caches."""
    if metafunc.function.__name__ == RESPONSE:
        parametrize(metafunc, lambda run: _responding(run, operation))
    else:
        generate(metafunc, operation)


def _responding(run: Run, operation: str) -> list[Planned]:
    cells = plan_one(run.kernels, run.devices, operation, "scale_response", run.depth)
    return [p for p in cells if not (run.is_waived(p) or is_asked_elsewhere(p, run.depth)) and responds(p.claim)]


def test_cell_property(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Calls of a few tokens or sequences: any slots, pages and codes."""
    judge_drawn(planned, request, calls(planned.claim))


def test_cell_scale_response(planned: Planned, request: pytest.FixtureRequest) -> None:
    """Scales that are 2^n times as large: the kernel is held to its own answer under the others, not to an expected
    one."""
    bench, response = bench_of(request.config), response_of(planned.claim)
    judged = bench.judged(planned, response.first)
    if judged.outputs is not None and not judged.row.malformed:
        judged = bench.judged(planned, response.second, response.expected(judged.outputs))
    conclude(request.node, judged)
