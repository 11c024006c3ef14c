"""What is compared: results directories, or ledgers, each a side; the shards of one place and night are one side."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.ci import records
from narrowgauge.ci.ledger import SCHEMA, Row
from narrowgauge.contracts.errors import BadInput

#: shards of a place that began within so many hours of each other are of one night
ONE_NIGHT = 12
EMULATED = "emulated-"
#: where the minutes of a time in ISO 8601 end
LAST_OF_MINUTES = 16
#: versions of the surroundings beside those of packages, by their place in what a child says of itself
_BESIDE = ("triton_default_fp_fusion", "python", "system")


@dataclass(frozen=True)
class Planned:
    """A cell of a plan."""

    operation: str
    source: str
    format: str
    case: str
    kernel: str
    target: str

    @property
    def key(self) -> tuple[str, ...]:
        """The same on every target, in a run and in an offline judgement."""
        return (self.operation, self.kernel, self.format, self.source, self.case)


@dataclass
class Side:
    """One run, whole or as much of it as there is."""

    name: str
    paths: list[Path]
    rows: dict[str, Row] = field(default_factory=dict)
    planned: dict[str, Planned] = field(default_factory=dict)  #: by id, those without a row too
    target: str = ""  #: of a results directory, what the run was for
    golden: str = ""
    narrowgauge: str = ""
    depth: str = ""
    written: str = ""
    versions: dict[str, dict[str, str]] = field(default_factory=dict)  #: by target
    problems: list[str] = field(default_factory=list)
    lost: str = ""  #: why nothing was judged
    reasons: dict[str, str] = field(default_factory=dict)  #: by id, why a test that began has no verdict
    place: tuple[str, ...] = ()  #: equal for shards of one run
    plan: str = ""  #: digest of its plan; "" for a run that came to none
    shards: set[int] = field(default_factory=set)
    of: int = 1  #: how many shards there should be

    def targets(self, but_for: Sequence[str] = ()) -> list[str]:
        """Targets of all operations but those; of a side that judged nothing, what it was for."""
        found = {p.target for p in self.planned.values() if p.operation not in but_for}
        return sorted(found) or ([self.target or "unknown"] if not self.planned else [])

    def why_unrun(self, test: str = "") -> str:
        """Why a planned test has no row."""
        if self.lost or test in self.reasons:
            return self.lost or self.reasons[test]
        missing = sorted(set(range(1, self.of + 1)) - self.shards) if self.shards else []
        if missing:
            return f"shard {', '.join(f'{n}/{self.of}' for n in missing)} is not here, or the process ended before"
        return "planned and never run: the process ended before"


def read_sides(paths: Sequence[Path]) -> list[Side]:
    """Every side, in the order in which it was named. Raises ``BadInput`` for what is neither directory nor ledger."""
    sides: list[Side] = []
    for path in paths:
        side = _of_directory(path) if path.is_dir() else _of_ledger(path)
        same = next((s for s in reversed(sides) if _is_one_run(s, side)), None)
        if same is None:
            sides.append(side)
        else:
            _join(same, side)
    _name_apart(sides)
    return sides


def planned_in(test: str) -> Planned | None:
    """What an id says of its cell: ``path::test[source-format-case-kernel-target]``; None for one of another form."""
    path, _, inside = test.removesuffix("]").partition("[")
    words = inside.split("-")
    target = "-".join(words[-2:] if words[-2:-1] == [EMULATED.removesuffix("-")] else words[-1:])
    rest = inside.removesuffix(f"-{target}").split("-")
    if len(rest) < 4:
        return None
    folder = path.split("::")[0].removesuffix(".py").rpartition("/")[2].removeprefix("test_")
    return Planned(folder, rest[0], rest[1], "-".join(rest[2:-1]), rest[-1], target)


def planned_of(row: Row) -> Planned:
    """The cell of a row."""
    return Planned(row.operation, row.source, row.format, row.case, row.kernel, row.target)


def _name_apart(sides: Sequence[Side]) -> None:
    """Of runs of one place and day the time at which each began; behind a name that an earlier side has, a number."""
    names = Counter(side.name for side in sides)
    for side in sides:
        if names[side.name] > 1 and side.name.endswith(side.written[:10]) and len(side.written) > LAST_OF_MINUTES:
            side.name += f" {side.written[11:LAST_OF_MINUTES]}"
    seen: dict[str, int] = {}
    for side in sides:
        seen[side.name] = seen.get(side.name, 0) + 1
        if seen[side.name] > 1:
            side.name += f" ({seen[side.name]})"


# --- results directories ---------------------------------------------------------------------------------------------


def _of_directory(path: Path) -> Side:
    if not any((path / name).exists() for name in (records.RUN, records.PLAN, records.JOURNAL)):
        return _of_ledger(path / records.LEDGER)
    shard = records.read_shard(path)
    run = shard.run
    side = Side(_named(path), [path], problems=[f"{path}: {p}" for p in shard.problems])
    if (path / records.LEDGER).exists():
        _take_ledger(side, path / records.LEDGER)
    side.rows |= shard.rows
    side.reasons = dict.fromkeys(shard.unended, "it began, and the process was lost before it ended")
    side.reasons |= {e.id: f"{e.outcome} without a verdict: {e.message}" for e in shard.ends.values() if e.row is None}
    _plan(side, [] if shard.plan is None else shard.plan.cells)
    if run is not None:
        side.name, side.target = f"{run.place} {run.started[:10]}".strip(), run.target
        side.place = (run.lane, run.target, run.depth, run.golden, run.narrowgauge)
        side.plan = run.plan or ("" if shard.plan is None else shard.plan.digest)  # a lost run could not name its plan
        side.shards, side.of = {run.shard}, run.shards
        side.golden, side.narrowgauge, side.depth, side.written = run.golden, run.narrowgauge, run.depth, run.started
        if run.narrowing:
            side.problems.append(f"{side.name} was narrowed: {' '.join(run.narrowing)}")
        side.lost = f"{run.state}: {run.reason}" if run.state in ("infra", "started") and not side.rows else ""
        for target in side.targets():
            side.versions[target] = side.versions.get(target, {}) | dict(run.versions)
    elif not side.rows and not side.planned:
        side.lost = "; ".join(shard.problems)
    return side


def _plan(side: Side, cells: Iterable[records.Cell]) -> None:
    for cell in cells:
        side.planned[cell.id] = Planned(cell.operation, cell.source, cell.format, cell.case, cell.kernel, cell.target)
    side.planned |= {row.id: planned_of(row) for row in side.rows.values() if row.id not in side.planned}


def _is_one_run(one: Side, other: Side) -> bool:
    """Whether two are shards of one place and night: others of one plan, if they have one, begun at about one time."""
    if not one.place or one.place != other.place or one.shards & other.shards:
        return False
    if one.plan and other.plan and one.plan != other.plan:
        return False
    first, second = _time(one.written), _time(other.written)
    if first is None or second is None:
        return False
    return abs(first - second) < datetime.timedelta(hours=ONE_NIGHT)


def _time(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _join(one: Side, shard: Side) -> None:
    one.paths += shard.paths
    one.rows |= shard.rows
    one.planned |= shard.planned
    one.versions |= shard.versions
    one.problems += shard.problems
    one.problems += [f"{path}: {shard.lost}" for path in shard.paths if shard.lost]
    one.reasons |= shard.reasons
    one.shards |= shard.shards
    one.plan = one.plan or shard.plan
    one.lost = one.lost and shard.lost


# --- ledgers ---------------------------------------------------------------------------------------------------------


def _of_ledger(path: Path) -> Side:
    side = Side(_named(path.parent if path.name == records.LEDGER else path), [path])
    _take_ledger(side, path)
    return side


def _take_ledger(side: Side, path: Path) -> None:
    """Raises ``BadInput`` for a file that is no ledger, or one of another schema."""
    data = _json(path)
    try:
        rows = [Row.from_json(row) for row in data["rows"]]
        side.rows |= {row.id: row for row in rows}
        side.golden, side.narrowgauge = str(data["golden_manifest_sha256"]), str(data["narrowgauge"])
        side.written, side.depth = str(data["written"]), str(data["options"].get("depth", ""))
        side.versions |= {target: _versions(said) for target, said in data["devices"].items()}
        plan = [str(test) for test in data["plan"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(
            f"{path}: not a ledger that this version reads: {error!r}; docs/ledger.md has its form"
        ) from None
    operations = {row.id.split("::")[0]: row.operation for row in rows}
    side.planned |= {row.id: planned_of(row) for row in rows}
    for test in plan:
        if test not in side.planned and (cell := planned_in(test)) is not None:
            known = operations.get(test.split("::")[0], cell.operation)
            side.planned[test] = Planned(known, cell.source, cell.format, cell.case, cell.kernel, cell.target)


def _json(path: Path) -> Mapping[str, Any]:
    what = "expected a results directory, a ledger.json, or what 'narrowgauge judge --ledger' wrote"
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}; {what}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); {what}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise BadInput(f"{path}: its schema is {found!r}, expected {SCHEMA!r}; {what}")
    return data


def _versions(said: Mapping[str, Any]) -> dict[str, str]:
    """Everything of a machine that may change codes, in one flat table."""
    found = {str(name): str(value) for name, value in said.get("versions", {}).items()}
    found |= {f"torch {name}": str(value) for name, value in (said.get("torch") or {}).items() if name != "version"}
    found |= {str(name): str(value) for name, value in (said.get("switches") or {}).items()}
    found |= {name: str(said[name]) for name in _BESIDE if said.get(name)}
    for name in ("name", "driver"):  # two GPUs of one target are one column
        if values := {str(gpu[name]) for gpu in said.get("gpus") or () if gpu.get(name)}:
            found[f"gpu {name}"] = ", ".join(sorted(values))
    return found


def _named(path: Path) -> str:
    whole = path.resolve()
    named = whole.parent if whole.name.startswith(".") else whole
    return named.name.removesuffix(".json") or str(path)
