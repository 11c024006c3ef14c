"""What a run leaves in its directory, and how it is read again, whole or cut. docs/nightly.md has the fields.

``run.json``      where, when and how it ran, and how it ended; written first as "started", so that a lost machine shows
``plan.json``     every test of the whole lane, and to which shard each belongs
``journal.jsonl`` one line when a test begins and one when it ends, with its ledger row, as they happen
``ledger.json``   the ledger, at the end
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from narrowgauge.ci.ledger import Row
from narrowgauge.ci.shape import check
from narrowgauge.contracts.files import write_whole

RUN, PLAN, JOURNAL, LEDGER = "run.json", "plan.json", "journal.jsonl", "ledger.json"
RUN_SCHEMA, PLAN_SCHEMA = "narrowgauge.run/1", "narrowgauge.plan/1"

#: how a run stands. "started" is what a machine leaves that was lost; "infra": preflight found the machine unfit, and
#: nothing was judged; "stopped": ended from outside or by the watchdog; "finished": pytest came to its own end
State = Literal["started", "infra", "stopped", "finished"]
#: options of the plugin that add tests, or say what is known of them, and take none away; each has a value
ADDING = ("--kernels", "--waivers", "--checkpoint", "--recordings")


@dataclass(frozen=True)
class Check:
    """One check of the preflight."""

    name: str
    ok: bool
    found: str
    expected: str = ""


@dataclass(frozen=True)
class RunRecord:
    """Of one shard of one lane. Times are UTC in ISO 8601; ``seconds`` is from a clock that is never set."""

    lane: str
    target: str  #: the architecture, "sm_90", or "cpu"
    shard: int  #: from 1
    shards: int
    attempt: int  #: which try of this job the CI engine says it is, from 1
    depth: str
    state: State
    started: str
    ended: str = ""
    seconds: float = 0.0
    clock_moved: float = 0.0  #: by how many seconds the wall clock went another way than the steady one
    reason: str = ""  #: why it did not finish
    exit_code: int | None = None  #: pytest's
    preflight: tuple[Check, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    narrowgauge: str = ""
    commit: str = ""
    golden: str = ""  #: sha256 of the golden manifest
    plan: str = ""  #: digest of the plan
    build: str = ""  #: address of the job at the CI engine
    options: tuple[str, ...] = ()  #: what was asked for beyond the lane's own, as pytest was given it
    files: dict[str, str] = field(default_factory=dict)  #: sha256 of the other files, once they are whole

    @property
    def place(self) -> str:
        """The lane and target: what a shard is a shard of."""
        return f"{self.lane}/{self.target}"

    @property
    def name(self) -> str:
        return f"{self.place} {self.shard}/{self.shards}"

    @property
    def narrowed_by(self) -> tuple[str, ...]:
        """Its options but for those that only add: a night with kernels of one's own is a whole night."""
        left, rest = [], iter(self.options)
        for word in rest:
            if word in ADDING:
                next(rest, None)  # its value
            elif word.partition("=")[0] not in ADDING:
                left.append(word)
        return tuple(left)

    def to_json(self) -> dict[str, Any]:
        return {"schema": RUN_SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunRecord:
        if lost := {f.name for f in fields(cls)} - data.keys():  # a record is written with all of them
            raise KeyError(f"{', '.join(sorted(lost))} missing")
        fixed = {name: value for name, value in data.items() if name != "schema"}
        fixed["preflight"] = tuple(Check(**c) for c in data.get("preflight", ()))
        fixed["gpus"], fixed["options"] = (tuple(data.get(name, ())) for name in ("gpus", "options"))
        return cls(**fixed)


@dataclass(frozen=True)
class Cell:
    """One planned test."""

    id: str
    shard: int
    operation: str
    rule: str
    source: str
    format: str
    case: str
    kernel: str
    owner: str
    own: bool
    target: str
    markers: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        return cls(**{**data, "markers": tuple(data["markers"])})


@dataclass(frozen=True)
class Plan:
    """Every test of a lane on a target, at a depth, and in which shard it runs."""

    lane: str
    target: str
    depth: str
    shards: int
    cells: tuple[Cell, ...]

    @property
    def digest(self) -> str:
        """sha256 over the plan; equal for all shards of a lane."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def of_shard(self, shard: int) -> list[Cell]:
        return [cell for cell in self.cells if cell.shard == shard]

    def to_json(self) -> dict[str, Any]:
        names = {"lane": self.lane, "target": self.target, "depth": self.depth, "shards": self.shards}
        return {
            "schema": PLAN_SCHEMA,
            **names,
            "cells": [dict(vars(c)) for c in sorted(self.cells, key=lambda c: c.id)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        cells = tuple(Cell.from_json(c) for c in data["cells"])
        return cls(data["lane"], data["target"], data["depth"], data["shards"], cells)


@dataclass(frozen=True)
class Begin:
    """That a test began."""

    id: str


@dataclass(frozen=True)
class End:
    """How a test ended, as pytest says it, with its verdict where it reached one."""

    id: str
    outcome: Literal["passed", "failed", "skipped", "xfailed", "error"]
    seconds: float
    row: Row | None = None
    message: str = ""  #: of a test that failed without a verdict, how


@dataclass
class Shard:
    """What was found in a directory. ``problems`` says what is missing, cut or changed."""

    directory: Path
    run: RunRecord | None = None
    plan: Plan | None = None
    begun: Counter[str] = field(default_factory=Counter)  #: how often a test began
    ends: dict[str, End] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)  #: ids that ended more than once
    problems: list[str] = field(default_factory=list)

    @property
    def rows(self) -> dict[str, Row]:
        """Verdicts by id."""
        return {end.id: end.row for end in self.ends.values() if end.row is not None}

    @property
    def unended(self) -> list[str]:
        """Ids that began and did not end: what was running when a process was lost."""
        return sorted(i for i in self.begun if i not in self.ends)


def read_shard(directory: Path) -> Shard:
    """A results directory, read as far as it is whole. Damage is a problem of the shard, never an exception."""
    shard = Shard(directory)
    shard.run = _read(shard, RUN, RunRecord.from_json, RUN_SCHEMA)
    shard.plan = _read(shard, PLAN, Plan.from_json, PLAN_SCHEMA)
    for event in _events(shard):
        _take(shard, event)
    if shard.run is not None:
        for name, sha in shard.run.files.items():
            if digest(directory / name) != sha:
                shard.problems.append(f"{name} is not the file that the run wrote: it was cut or changed since")
    return shard


def _read(shard: Shard, name: str, made: Any, schema: str) -> Any:
    path = shard.directory / name
    try:
        data = json.loads(path.read_text())
        if data.get("schema") != schema:
            raise ValueError(f"its schema is {data.get('schema')!r}, expected {schema!r}")
        found = made(data)
        check(found, "it")
        return found
    except FileNotFoundError:
        shard.problems.append(f"{name} is missing")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        shard.problems.append(f"{name} cannot be read: {error}")
    return None


def _events(shard: Shard) -> Iterator[dict[str, Any]]:
    """The lines of the journal. The last one may be cut where the process was killed; any other damage is told."""
    path = shard.directory / JOURNAL
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        if shard.run is None or shard.run.state != "infra":
            shard.problems.append(f"{JOURNAL} is missing" if not path.exists() else f"{JOURNAL}: {error.strerror}")
        return
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = json.loads(line)
            if not isinstance(event, dict):
                raise ValueError("no object")
        except ValueError:
            where = "ends in the middle of a line" if number == len(lines) else f"line {number} cannot be read"
            shard.problems.append(f"{JOURNAL} {where}")
            continue
        yield event


def _take(shard: Shard, event: Mapping[str, Any]) -> None:
    try:
        if event["event"] == "begin":
            check(begin := Begin(event["id"]), "a begin")
            shard.begun[begin.id] += 1
            return
        row = None if event.get("row") is None else Row.from_json(event["row"])
        check(end := End(event["id"], event["outcome"], event["seconds"], row, event.get("message", "")), "an end")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        shard.problems.append(f"{JOURNAL} has an event that cannot be read: {error!r}")
        return
    if end.id in shard.ends:
        shard.twice.append(end.id)
    shard.ends[end.id] = end


def digest(path: Path) -> str:
    """sha256 of a file; "" where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """A JSON file, whole or not at all."""
    write_whole(path, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())
