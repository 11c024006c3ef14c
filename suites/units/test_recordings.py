"""What GPUs answered, against the models of their matrix units: one test for each recorded file."""

from __future__ import annotations

import pytest

from narrowgauge.plugin.replays import conclude_recording, parametrize_recordings
from narrowgauge.suites.recordings import Recording


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_recordings(metafunc)


def test_cell_recording(request: pytest.FixtureRequest, recording: Recording) -> None:
    conclude_recording(request.node, recording)
