"""A lane's run: the plan of all its shards before any test, this shard's tests, and a journal of what happens.

Every process that collects makes the same plan; the first one writes it. Under xdist the journal is the controller's.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

import pytest

from narrowgauge.ci.records import JOURNAL, PLAN, Cell, Plan, write_json
from narrowgauge.ci.splitting import assign
from narrowgauge.contracts.errors import BadInput, NarrowgaugeError
from narrowgauge.contracts.processes import end_with_parent
from narrowgauge.plugin.cells import ROW, stable
from narrowgauge.suites.planning import Planned

#: what xdist calls its first worker
FIRST = "gw0"
#: how xdist's report of a test whose worker died calls its phase
LOST = "???"
#: a test function's parameters that hold a cell
CELLS = ("planned", "part", "recording")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`narrowgauge run` loads this plugin and gives its options."""
    group = parser.getgroup("narrowgauge-run", "narrowgauge run: one shard of a lane")
    group.addoption(
        "--lane", default="", metavar="LANE/TARGET", dest="narrowgauge_lane", help="make the plan of a lane"
    )
    group.addoption(
        "--shard", default="1/1", metavar="K/N", dest="narrowgauge_shard", help="with --lane: run this part of it"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.narrowgauge_lane:
        return
    end_with_parent()  # what is killed takes its pytest and its workers with it
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Journal(config), "narrowgauge-journal")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """After -k and -m: make the plan, write it down, and keep this shard's tests.

    Of what could not be collected whole there is no plan: it would lack tests, and nobody would miss them.
    """
    option = config.option
    if not option.narrowgauge_lane or session.testsfailed:
        return
    lane, _, target = option.narrowgauge_lane.partition("/")
    shard, shards = map(int, option.narrowgauge_shard.split("/"))
    by_id = {stable(item.nodeid): item for item in items}
    try:
        if len(by_id) < len(items):
            raise BadInput("two tests have one id: a lane runs the suite alone, no files of others")
        cells = assign([cell_of(i, item) for i, item in by_id.items()], lane, shards)
    except NarrowgaugeError as error:
        raise pytest.UsageError(str(error)) from None
    plan = Plan(lane, target, option.narrowgauge_depth, shards, cells)
    if getattr(config, "workerinput", {}).get("workerid", FIRST) == FIRST:
        write_json(option.narrowgauge_out / PLAN, plan.to_json())
    elsewhere = [by_id[cell.id] for cell in cells if cell.shard != shard]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [by_id[cell.id] for cell in cells if cell.shard == shard]


def cell_of(nodeid: str, item: pytest.Item) -> Cell:
    """A planned test, not yet given to a shard."""
    call = getattr(item, "callspec", None)
    params = {} if call is None else call.params
    one: Any = next((params[name] for name in CELLS if name in params), None)
    if isinstance(one, Planned):
        kernel, claim = one.plugged.kernel, one.claim
        who: dict[str, Any] = {
            "kernel": kernel.name,
            "owner": kernel.owner,
            "own": one.plugged.own,
            "target": one.device.target,
        }
        what: dict[str, Any] = {
            "operation": claim.operation,
            "rule": claim.rule,
            "source": claim.source,
            "format": claim.format,
        }
        return Cell(nodeid, 0, **what, case=one.case, **who, markers=one.markers)
    if one is None:
        raise BadInput(f"{nodeid} judges no kernel: a lane runs the suite alone, no files of others")
    return Cell(nodeid, 0, **one.names, markers=one.markers)


@dataclass
class _Running:
    """A test between its begin and its end."""

    outcome: str = "passed"
    seconds: float = 0.0
    row: dict[str, Any] | None = None
    message: str = ""


@dataclass
class Journal:
    """Writes a line when a test begins and when it ends, and keeps none of them back."""

    config: pytest.Config
    running: dict[str, _Running] = field(default_factory=dict)
    file: IO[str] | None = None
    start: float = field(default_factory=time.monotonic)
    LONGEST: ClassVar[int] = 2000  #: letters of a message

    def pytest_sessionstart(self) -> None:
        out = self.config.option.narrowgauge_out
        out.mkdir(parents=True, exist_ok=True)
        self.file = (out / JOURNAL).open("w", encoding="utf-8")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.running[stable(nodeid)] = _Running()
        self.write(event="begin", id=stable(nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        one = self.running.setdefault(stable(report.nodeid), _Running())
        one.seconds += report.duration
        one.row = next((json.loads(str(value)) for name, value in report.user_properties if name == ROW), one.row)
        if report.when == LOST:
            one.outcome, one.message = "error", str(report.longrepr)[: self.LONGEST]
        elif report.failed:
            one.outcome = "failed" if report.when == "call" else "error"
            one.message = report.longreprtext[: self.LONGEST]
        elif report.skipped and one.outcome == "passed":
            one.outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        if report.when in ("teardown", LOST):
            self.end(stable(report.nodeid))

    def end(self, nodeid: str) -> None:
        """Write how a test ended."""
        one = self.running.pop(nodeid)
        message = "" if one.row is not None and one.outcome != "error" else one.message
        self.write(
            event="end", id=nodeid, outcome=one.outcome, seconds=round(one.seconds, 4), row=one.row, message=message
        )

    def write(self, **event: Any) -> None:
        assert self.file is not None
        self.file.write(json.dumps({"at": round(time.monotonic() - self.start, 3), **event}) + "\n")
        self.file.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.file is not None:
            self.file.close()
