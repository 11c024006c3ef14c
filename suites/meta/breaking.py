"""A plugin of pytest (``-p narrowgauge.suites.meta.breaking``) that breaks a run on purpose, as NARROWGAUGE_BREAK says.

It also makes runs small: the plan has casts of plugged kernels alone, and one case of each.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.records import JOURNAL
from narrowgauge.devices.device import Device
from narrowgauge.suites import run

BREAK, OUT = "NARROWGAUGE_BREAK", "NARROWGAUGE_BREAK_OUT"
#: bytes that still fit into the journal: less than a line
LITTLE = 40


def pytest_configure() -> None:
    """Only where it is loaded as a plugin: our tests import this file too."""
    vars(run)["MODULES"] = {}
    Device.facts = _no_facts  # type: ignore[method-assign]


def _no_facts(self: Device) -> dict[str, Any]:
    """What a child would say that has no torch to import."""
    return {"versions": {}}


def broken() -> str:
    return os.environ.get(BREAK, "")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if collection_path.name.startswith("test_") and collection_path.name != "test_casts.py" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if "-edges-" in item.name]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if "fills" in item.name:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def pytest_runtest_call(item: pytest.Item) -> None:
    """Around a kernel: what no child can be blamed for. The worker does it, or the only process."""
    if "stalls" in item.name:
        time.sleep(3600)
    if broken() == "the clock goes back":
        _set_back()


def _set_back() -> None:
    now: Callable[[], float] = time.time
    time.time = lambda: now() - 3600


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the controller, when the first phase of the first test is over."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if broken() == "exit 0 in the middle":
        os._exit(0)
    if broken() == "the journal does not fit":
        _limit_files(_out() / JOURNAL)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    if broken() == "the ledger does not fit" and "PYTEST_XDIST_WORKER" not in os.environ:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _out() -> Path:
    return Path(os.environ[OUT])


def _limit_files(path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + LITTLE, resource.RLIM_INFINITY))
