"""Kernels whose contract claims a portrait: what probes find of their accumulator is what they say."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Matmul
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.plugin.cells import bench_of, conclude, parametrize
from narrowgauge.reference.probes.claimed import differences
from narrowgauge.suites.judging import Judged, judged_by, not_run
from narrowgauge.suites.planning import Planned, plan_one
from narrowgauge.suites.probing import probe_kernel
from narrowgauge.suites.run import Run


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, _cells)


def _cells(run: Run) -> list[Planned]:
    cells = plan_one(run.kernels, run.devices, Matmul.operation, "portrait", run.depth)
    return [p for p in cells if _claimed(p) and not run.is_waived(p)]


def _claimed(planned: Planned) -> dict[str, str]:
    contract = planned.claim.contract
    return dict(contract.portrait) if isinstance(contract, Matmul) else {}


def test_cell_portrait(planned: Planned, request: pytest.FixtureRequest) -> None:
    """A few dozen launches, and every finding that the contract names."""
    conclude(request.node, judged(planned, bench_of(request.config).run.timeout))


def judged(planned: Planned, timeout: float) -> Judged:
    """The verdict on one kernel; ``timeout`` in seconds for one launch."""
    authority = "the portrait in the kernel's own contract"
    try:
        probed = probe_kernel(planned.plugged, planned.claim, planned.device, timeout=timeout)
        wrong = differences(_claimed(planned), probed.portrait)
    except NotExecuted as reason:
        return not_run(planned, str(reason))
    except BadInput as error:
        wrong = [str(error)]
    breaks = "its own claim" if wrong else ""
    verdict = Verdict("failed" if wrong else "passed", str(planned.claim), authority, breaks=breaks)
    return judged_by(planned, verdict, "; ".join(wrong))
