"""Parametrize tests by the plan, run one cell, and pass its ledger row on with the test's report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import NarrowgaugeError
from narrowgauge.plugin import allure_report
from narrowgauge.plugin.options import run_of
from narrowgauge.reference.interval import Expected
from narrowgauge.suites.auditing import Audited
from narrowgauge.suites.judging import Judged, not_run, run_cell, waived
from narrowgauge.suites.planning import Planned
from narrowgauge.suites.run import Run

#: runs and judges a cell on inputs, against the reference or against what is given third
Judge = Callable[..., None]
#: the name under which a ledger row travels with a report
ROW = "narrowgauge_row"


def stable(nodeid: str) -> str:
    """The id of a test of ours, the same from a checkout's suites/, through the package, and from a wheel."""
    return "narrowgauge/" + nodeid[nodeid.find("suites/") :]


def has_cell(item: pytest.Item) -> bool:
    """False for what pytest makes of a test whose parameters are an empty set."""
    call = getattr(item, "callspec", None)
    params = {} if call is None else call.params
    cells = {"planned": Planned, "part": Audited}
    return all(isinstance(params[name], kind) for name, kind in cells.items() if name in params)


class Bench:
    """A run, for one pytest process."""

    KEY: ClassVar[pytest.StashKey[Any]] = pytest.StashKey()

    def __init__(self, run: Run) -> None:
        self.run = run
        self.hung: dict[tuple[str, str], str] = {}  #: kernel and target of a call that never ended, and its case
        self.whole: set[str] = set()  #: ``test[cell]`` of everything that was planned before anything was deselected

    @property
    def findings(self) -> dict[str, Any]:
        """What the process that owns the run needs to know at its end, as JSON can hold it."""
        return {"devices": self.run.known_facts, "whole": sorted(self.whole)}

    def cell(self, item: pytest.Item) -> Judge:
        """The function that a test calls with its cell and inputs."""

        def judge(planned: Planned, x: Coded, want: Expected | None = None) -> None:
            conclude(item, self.judged(planned, x, want))

        return judge

    def judged(self, planned: Planned, x: Coded, want: Expected | None = None, explained: bool = True) -> Judged:
        """Run and judge a cell, after waivers."""
        place = (planned.plugged.kernel.name, planned.device.target)
        if place in self.hung:
            return not_run(planned, f"not tried again: it hung in case {self.hung[place]}")
        judged = run_cell(planned, x, want, self.run.timeout, explained)
        if judged.row.outcome == "hung":
            self.hung[place] = planned.case
        if judged.row.result == "not_executed":
            return judged
        own = planned.plugged.distribution  # of the library that is judged, or of the owner's package
        versions = self.run.facts(planned.device)["versions"] | {own.get("name", ""): own.get("version", "")}
        return waived(judged, self.run.waivers, versions)


def bench_of(config: pytest.Config) -> Bench:
    """This process's bench. A plug-in that does not load is a usage error, not a traceback."""
    bench: Bench | None = config.stash.get(Bench.KEY, None)
    if bench is None:
        bench = config.stash[Bench.KEY] = Bench(run_of(config))
    return bench


#: the marker of the suite's tests of itself
META = "meta"


def parametrize(metafunc: pytest.Metafunc, cells: Callable[[Run], Sequence[Planned]]) -> None:
    """Make one test of each cell, under the cell's id and markers."""
    if "planned" not in metafunc.fixturenames:
        return
    try:
        # no cell is a test of the suite itself, and a plan costs seconds in each worker
        planned = [] if metafunc.config.option.markexpr == META else cells(bench_of(metafunc.config).run)
    except NarrowgaugeError as error:
        raise pytest.UsageError(str(error)) from None
    make_tests(metafunc, "planned", planned)


class _Named(Protocol):
    """What becomes a test: it has an id and names of markers."""

    @property
    def id(self) -> str: ...

    @property
    def markers(self) -> tuple[str, ...]: ...


def make_tests(metafunc: pytest.Metafunc, argument: str, found: Sequence[_Named]) -> None:
    """One test of each, under its id and markers, all of them in the plan."""
    bench_of(metafunc.config).whole |= {f"{metafunc.function.__name__}[{one.id}]" for one in found}
    params = [pytest.param(one, id=one.id, marks=[getattr(pytest.mark, m) for m in one.markers]) for one in found]
    metafunc.parametrize(argument, params)


def record(item: pytest.Item, judged: Judged) -> None:
    """Attach the row to the test's report, under the test's own id, and to Allure if it is there."""
    data = judged.row.to_json() | {"id": stable(item.nodeid)}
    item.user_properties.append((ROW, json.dumps(data)))
    allure_report.attach(item, judged)


def conclude(item: pytest.Item, judged: Judged) -> None:
    """Record a cell and end its test by the verdict."""
    record(item, judged)
    match judged.row.result:
        case "failed":
            pytest.fail(judged.message or judged.row.reason, pytrace=False)
        case "not_executed":
            pytest.skip(f"not executed: {judged.row.reason}")
        case "waived":
            pytest.xfail(f"waived: {judged.row.reason} ({judged.row.waiver})")
        case "disputed":
            pytest.xfail(f"disputed: {judged.message}")
