"""Small nights for the tests of the gate: two lanes, four shards, and every operation of a lane twice in each place.

What a run leaves is made here field by field, not by the code that runs nights.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from narrowgauge.ci.gate import Report, Rules, gate
from narrowgauge.ci.gate.night import Expect
from narrowgauge.ci.history import History
from narrowgauge.ci.lanes import load
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.quarantine import Quarantine
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, Cell, Plan, RunRecord, Shard, read_shard
from narrowgauge.ci.waivers import Waiver

LANES = load()
DAY = datetime.date(2026, 11, 30)
TEST = "narrowgauge/suites/casts/test_casts.py::test_cell"
#: places, and how many shards each has
PLACES = {"cuda/sm_90": 3, "cpu/cpu": 1}
WAIVER = Waiver(
    kernel="theirs", target="host", test="float32-float8_e4m3fn-matmul_0-*", versions={"torch": ">=2.13,<2.14"},
    link="https://example.org/issues/1", reason="ties go away from zero", expires=datetime.date(2027, 6, 30),
)  # fmt: skip
QUARANTINE = Quarantine(
    "cuda", "sm_90", "missing_shard", "https://example.org/hosts/7", "its cable is loose", datetime.date(2026, 12, 31)
)


@dataclass
class Files:
    """What one shard leaves. Events are changed in place; ``seal``: whether run.json has the sums of what is there."""

    run: RunRecord
    plan: Plan | None
    events: list[dict[str, Any]]
    seal: bool = True

    @property
    def ids(self) -> list[str]:
        return [cell.id for cell in self.plan.of_shard(self.run.shard)] if self.plan is not None else []

    def event(self, event: str, nodeid: str) -> dict[str, Any]:
        return next(e for e in self.events if (e["event"], e["id"]) == (event, nodeid))

    def drop(self, nodeid: str, *events: str) -> None:
        """Take begins and ends of a test out of the journal."""
        self.events = [e for e in self.events if e["id"] != nodeid or e["event"] not in events]

    def end(self, nodeid: str, outcome: str, result: str | None, **row: Any) -> None:
        """Let a test end so, with that verdict, or with none."""
        event = self.event("end", nodeid)
        event["outcome"] = outcome
        event["row"] = None if result is None else {**event["row"], "result": result, **row}

    def fail(self, nodeid: str, **row: Any) -> None:
        told = {"faults": ["cast.ties_away"], "differences": {"value": 3}, "breaks": "its own claim"}
        self.end(nodeid, "failed", "failed", **(told | row))
        self.run = replace(self.run, exit_code=1)

    @property
    def texts(self) -> dict[str, str]:
        """The files, by name."""
        found = {LEDGER: "{}\n", JOURNAL: "".join(json.dumps(e) + "\n" for e in self.events)}
        if self.plan is not None:
            found[PLAN] = json.dumps(self.plan.to_json())
        run = self.run
        if self.seal:
            run = replace(run, files={n: hashlib.sha256(t.encode()).hexdigest() for n, t in found.items()})
        return {**found, RUN: json.dumps(run.to_json())}

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        for name, text in self.texts.items():
            (directory / name).write_text(text)
        return directory

    def read(self, directory: Path) -> Shard:
        """What is read of it. Files of the same texts are written and read once: most shards are clean ones."""
        key = tuple(self.texts.items())
        if key not in READ:
            READ[key] = read_shard(self.write(directory))
        return replace(READ[key], directory=directory, problems=[*READ[key].problems])


#: shards that were read, by the texts of their files
READ: dict[tuple[tuple[str, str], ...], Shard] = {}


@dataclass
class Case:
    """A night before it is judged, and what it is judged by. Everything may be changed."""

    shards: dict[str, Files]
    expects: list[Expect] = field(default_factory=lambda: [Expect.parse(f"{p}x{n}", LANES) for p, n in PLACES.items()])
    waivers: list[Waiver] = field(default_factory=lambda: [WAIVER])
    quarantine: list[Quarantine] = field(default_factory=list)
    history: History | None = None
    today: datetime.date = DAY
    accept: bool = False
    remembers: bool = False
    spoil: Callable[[Path], None] | None = None  #: done to the files once they are written

    def judge(self, folder: Path) -> Report:
        return gate(self.read(folder), self.rules, self.history, self.today)

    @property
    def rules(self) -> Rules:
        return Rules(
            LANES, tuple(self.expects), tuple(self.waivers), tuple(self.quarantine), self.remembers, self.accept
        )

    def read(self, folder: Path) -> list[Shard]:
        named = [(folder / name.replace("/", "-"), files) for name, files in sorted(self.shards.items())]
        if self.spoil is None:
            return [files.read(directory) for directory, files in named]
        for directory, files in named:
            files.write(directory)
        self.spoil(folder)
        return [read_shard(directory) for directory, _ in named]


def cells_of(lane: str, shards: int) -> tuple[Cell, ...]:
    """Each operation of the lane twice, in shards by turns."""
    target = "host" if lane == "cpu" else "sm_90"
    found = []
    for number, (operation, case) in enumerate((o, c) for o in LANES[lane].paths for c in range(2)):
        kernel = "theirs" if operation == "matmul" else "ours"
        inside = f"float32-float8_e4m3fn-{operation}_{case}-{kernel}-{target}"
        found.append(
            Cell(
                id=f"{TEST}[{inside}]", shard=1 + number % shards, operation=operation, rule="ocp_saturate",
                source="float32", format="float8_e4m3fn", case=f"{operation}_{case}", kernel=kernel,
                owner=f"owner-of-{kernel}", own=kernel == "ours", target=target,
            )
        )  # fmt: skip
    return tuple(found)


def row_of(cell: Cell) -> dict[str, Any]:
    """The row of a test that passed."""
    same = {name: value for name, value in vars(cell).items() if name not in ("shard", "markers")}
    return Row(**same, device=cell.target, how="executed", backend="torch", result="passed", elements=100).to_json()


def files_of(place: str, shard: int, shards: int, day: datetime.date = DAY, commit: str = "c" * 40) -> Files:
    """A shard that ran well: every test began, ended and passed."""
    lane, _, target = place.partition("/")
    plan = Plan(lane, target, "standard", shards, cells_of(lane, shards))
    events: list[dict[str, Any]] = []
    for cell in plan.of_shard(shard):
        events.append({"event": "begin", "id": cell.id})
        events.append({"event": "end", "id": cell.id, "outcome": "passed", "seconds": 0.5, "row": row_of(cell)})
    run = RunRecord(
        lane=lane, target=target, shard=shard, shards=shards, attempt=1, depth="standard", state="finished",
        started=f"{day}T02:0{shard}:00+00:00", ended=f"{day}T02:30:00+00:00", seconds=1700.0 + shard, exit_code=0,
        versions={"torch": "2.13.0", "triton": "3.9.0"}, narrowgauge="0.1.0", commit=commit, golden="g" * 64,
        plan=plan.digest,
    )  # fmt: skip
    return Files(run, plan, events)


def night(day: datetime.date = DAY, commit: str = "c" * 40, places: Sequence[str] = tuple(PLACES)) -> Case:
    """A clean night: all passed but one test, which is waived."""
    shards = {
        f"{place} {k}": files_of(place, k, PLACES[place], day, commit)
        for place in places
        for k in range(1, PLACES[place] + 1)
    }
    case = Case(shards, today=day)
    if "cpu/cpu" in places:
        waived(shards["cpu/cpu 1"])
    return case


def waived(files: Files) -> None:
    """Let the test that ``WAIVER`` names fail, and be waived."""
    files.end(waived_id(files), "xfailed", "waived", waiver=WAIVER.link, reason=WAIVER.reason)


def waived_id(files: Files) -> str:
    return next(i for i in files.ids if "matmul_0" in i)


def red(report: Report) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in report.red]


def said(report: Report, kind: str) -> str:
    (found,) = [finding.said for finding in report.findings if finding.kind == kind]
    return found
