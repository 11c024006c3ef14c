"""Checkpoints beside kernels: ``--checkpoint`` makes tests of an audit's parts. Without it there are none of these."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.plugin.cells import bench_of, conclude, make_tests
from narrowgauge.plugin.options import asks_for_fnuz
from narrowgauge.suites.auditing import Audited, audited, judged
from narrowgauge.suites.judging import waived

_PARTS: pytest.StashKey[list[Audited]] = pytest.StashKey()


def parts_of(config: pytest.Config) -> list[Audited]:
    """The parts of every checkpoint that was named, read once. A folder that is none is a usage error."""
    if _PARTS not in config.stash:
        try:
            config.stash[_PARTS] = audited(config.option.narrowgauge_checkpoints, asks_for_fnuz(config))
        except NarrowgaugeError as error:
            raise pytest.UsageError(f"--checkpoint: {error}") from None
    return config.stash[_PARTS]


def parametrize_audits(metafunc: pytest.Metafunc) -> None:
    """Make one test of each part, under its id and markers."""
    make_tests(metafunc, "part", parts_of(metafunc.config))


def conclude_audit(item: pytest.Item, part: Audited) -> None:
    """Audit a part, after waivers, and end its test by what is found."""
    conclude(item, waived(judged(part), bench_of(item.config).run.waivers, {}))
