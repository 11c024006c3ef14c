"""Checkpoints that --checkpoint names, audited: one test for the headers, and one for tensors of one name each."""

from __future__ import annotations

import pytest

from narrowgauge.plugin.audits import conclude_audit, parametrize_audits
from narrowgauge.suites.auditing import Audited


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_audits(metafunc)


def test_cell_audit(part: Audited, request: pytest.FixtureRequest) -> None:
    conclude_audit(request.node, part)
