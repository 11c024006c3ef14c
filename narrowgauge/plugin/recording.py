"""Collect ledger rows in the process that owns the run, write the ledger, and print what it says."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.manifest import NAME
from narrowgauge.plugin import options
from narrowgauge.plugin.cells import ROW, stable
from narrowgauge.plugin.porting import port_verdict
from narrowgauge.plugin.tables import summary

#: test functions of this name prefix hold cells of the plan; the suite's tests of itself have none
CELL = "test_cell"
#: the name under which a worker hands on what it found
HANDED = "narrowgauge_findings"
#: and that under which it says what is wrong with the options
MISUSED = "narrowgauge_misused"


def is_cell(nodeid: str) -> bool:
    """Whether a test judges a cell of the plan, by the name of its function."""
    return nodeid.split("[")[0].rpartition("::")[2].startswith(CELL)


class Recorder:
    """Lives in the controller under xdist, in the only process without it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.plan: set[str] = set()
        self.rows: dict[str, Row] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self.whole: set[str] = set()

    # --- the plan ---

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.plan |= {stable(item.nodeid) for item in session.items if is_cell(item.nodeid)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self.plan |= {stable(i) for i in ids if is_cell(i)}

    # --- results ---

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == ROW:
                row = Row.from_json(json.loads(str(value)))
                self.rows[row.id] = row

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        output = getattr(node, "workeroutput", {})
        self.take(output.get(HANDED, {}))
        if MISUSED in output:
            raise pytest.UsageError(output[MISUSED])

    def take(self, findings: Mapping[str, Any]) -> None:
        """What a process that judged found out besides its rows."""
        self.devices |= findings.get("devices", {})
        self.whole |= set(findings.get("whole", ()))

    # --- the end ---

    @property
    def ledger(self) -> Ledger:
        option = self.config.option
        manifest = option.narrowgauge_golden / NAME
        return Ledger(
            plan=sorted(self.plan),
            rows=list(self.rows.values()),
            devices=self.devices,
            options={
                "kernels": option.narrowgauge_kernels,
                "devices": option.narrowgauge_devices,
                "depth": option.narrowgauge_depth,
                "markers": option.markexpr,
                "keyword": option.keyword,
            },
            golden=hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest.exists() else "",
            unselected=sorted(self.whole - {i.rpartition("::")[2] for i in self.plan}),
            missing=options.run_of(self.config).missing,
        )

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.plan or self.config.option.collectonly:
            return
        self.ledger.write(self.config.option.narrowgauge_out / "ledger.json")
        asked = options.asks_for_fnuz(self.config) and self.config.option.narrowgauge_require_verified
        if asked and session.exitstatus == Exit.OK and port_verdict(self.ledger).state != "READY":
            session.exitstatus = Exit.UNKNOWN

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.plan or self.config.option.collectonly:
            return
        ledger = self.ledger
        terminalreporter.section("narrowgauge")
        width = terminalreporter._tw.fullwidth
        terminalreporter.write(summary(ledger, width, colour=terminalreporter.hasmarkup))
        if options.asks_for_fnuz(self.config):
            terminalreporter.write_line(port_verdict(ledger).text, bold=True)
        for waiver in options.run_of(self.config).waivers:
            if waiver.expired(datetime.date.today()):
                where = f"{waiver.kernel} on {waiver.target}"
                terminalreporter.write_line(f"past its date ({waiver.expires}): the waiver for {where}, {waiver.link}")
        terminalreporter.write_line(f"ledger: {self.config.option.narrowgauge_out / 'ledger.json'}")
