"""The suite's pytest plugin: options, plan, verdicts, ledger. Our pytest.toml loads it; nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.plugin import allure_results, audits, options, replays
from narrowgauge.plugin.cells import Bench, bench_of, has_cell
from narrowgauge.plugin.recording import HANDED, MISUSED, Recorder
from narrowgauge.threads import one_thread

RECORDER = "narrowgauge-recorder"


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    one_thread()
    if getattr(config.option, "allure_report_dir", None):
        config.pluginmanager.register(allure_results, "narrowgauge-allure")
    options.load_hypothesis_profile()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config), RECORDER)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [f"narrowgauge: depth {config.option.narrowgauge_depth}, kernels {options.kernels_text(config)}"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Say what is wrong with the options before any worker starts, in one line, with the exit code for bad input."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    if config.option.narrowgauge_checkpoints:
        audits.parts_of(config)
    if config.option.narrowgauge_recordings is not None:
        replays.recordings_of(config)
    if not options.has_choices(config):
        return
    bench = bench_of(config)
    try:
        bench.run.check()
    except NarrowgaugeError as error:
        bench.run.close()
        raise pytest.UsageError(str(error)) from None
    if options.has_workers(config):
        bench.run.close()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Leave out tests for which the plan has no cell; pytest would make one skipped test of each.

    A worker hands on what it is told to be wrong with the options: xdist would only say that the worker is gone.
    """
    _leave_out_empty(config, items)
    try:
        return (yield)
    except pytest.UsageError as error:
        if hasattr(config, "workeroutput"):
            config.workeroutput[MISUSED] = str(error)
        raise


def _leave_out_empty(config: pytest.Config, items: list[pytest.Item]) -> None:
    empty = [item for item in items if not has_cell(item)]
    if empty:
        config.hook.pytest_deselected(items=empty)
        items[:] = [item for item in items if item not in empty]


@pytest.fixture
def judge_cell(request: pytest.FixtureRequest) -> Any:
    """Run, judge and record one cell of the plan; fails or skips the test by its verdict."""
    return bench_of(request.config).cell(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Hand what the children said of themselves to the controller, and end them."""
    bench: Bench | None = session.config.stash.get(Bench.KEY, None)
    if bench is not None:
        handed = getattr(session.config, "workeroutput", None)
        if handed is not None:
            handed[HANDED] = bench.findings
        else:
            recorder = session.config.pluginmanager.get_plugin(RECORDER)
            if isinstance(recorder, Recorder):
                recorder.take(bench.findings)
        bench.run.close()
    return (yield)
