"""Recordings of real GPUs: ``--recordings`` makes a test of each file. Without it one says that there were none."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.plugin.cells import bench_of, conclude, make_tests
from narrowgauge.suites.judging import waived
from narrowgauge.suites.recordings import Recording, judged, recorded


def recordings_of(config: pytest.Config) -> list[Recording]:
    """The files of the folder that was named. One that is none of recordings is a usage error."""
    folder: Path | None = config.option.narrowgauge_recordings
    try:
        return recorded(folder)
    except NarrowgaugeError as error:
        raise pytest.UsageError(f"--recordings: {error}") from None


def parametrize_recordings(metafunc: pytest.Metafunc) -> None:
    """Make one test of each file, under its id and markers."""
    make_tests(metafunc, "recording", recordings_of(metafunc.config))


def conclude_recording(item: pytest.Item, recording: Recording) -> None:
    """Replay a file, after waivers, and end its test by what comes of it."""
    conclude(item, waived(judged(recording), bench_of(item.config).run.waivers, {}))
