"""All shards of a night as one folder of Allure results, in which nothing that was planned is missing.

The plan is what is believed: a cell whose result file is not there becomes a result that says why, so that a crashed
worker, a lost machine and a full disk are seen in the report.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from narrowgauge.ci.allure.identity import environment_of
from narrowgauge.ci.allure.results import (
    Json,
    attachments,
    from_end,
    held,
    id_of,
    mended,
    of_a_run,
    read_result,
    stub,
    worse,
)
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import PLAN, RUN, Cell, End, RunRecord, Shard, read_shard
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole

#: where a run has its Allure results
RESULTS = "allure-results"
#: Allure's word for a test that is well
PASSED = "passed"


@dataclass
class Gathered:
    """What a folder of results holds."""

    shards: list[Shard]
    results: dict[str, Json] = field(default_factory=dict)  #: by cell; of what is none of ours, by its file's name
    stubs: list[str] = field(default_factory=list)  #: cells of which no result file was there
    notes: list[str] = field(default_factory=list)  #: what a reader must know beside the results
    files: dict[str, Path] = field(default_factory=dict)  #: attachments, and where they are

    @property
    def rows(self) -> dict[str, Row]:
        """Verdicts by id."""
        return {name: row for shard in self.shards for name, row in shard.rows.items()}

    @property
    def cells(self) -> dict[str, Cell]:
        """Everything that was planned, whichever shard was to run it."""
        return {cell.id: cell for shard in self.shards if shard.plan is not None for cell in shard.plan.cells}

    @property
    def environments(self) -> list[str]:
        """Those of the plan, in order."""
        return sorted({environment_of(cell.target, cell.operation) for cell in self.cells.values()})


def gather(directories: Sequence[Path]) -> Gathered:
    """Read results directories. Damage is told, and raises nothing; ``BadInput`` where no run wrote any of them."""
    if not any((directory / name).exists() for directory in directories for name in (RUN, PLAN)):
        named = ", ".join(map(str, directories))
        raise BadInput(f"no results in {named}: neither {RUN} nor {PLAN}; expected what 'narrowgauge run --out' left")
    found = Gathered([])
    found.shards = _current([read_shard(directory) for directory in directories], found.notes)
    for shard in found.shards:
        found.notes += [f"{shard.directory.name}: {problem}" for problem in shard.problems]
        _take(shard, found)
    _fill(found)
    for shard in found.shards:
        _tell_of_the_run(shard, found)
    return found


def _current(shards: Iterable[Shard], notes: list[str]) -> list[Shard]:
    """Of several tries of one shard the last: Allure would take the others for retries of it."""
    last: dict[str, Shard] = {}
    for shard in shards:
        name = str(shard.directory) if shard.run is None else shard.run.name
        before = last.get(name)
        if before is None:
            last[name] = shard
            continue
        kept, left = sorted((before, shard), key=_when, reverse=True)
        notes.append(f"{left.directory.name} is left out: {kept.directory.name} is a later try of {name}")
        last[name] = kept
    return list(last.values())


def _when(shard: Shard) -> tuple[int, str]:
    return (shard.run.attempt, shard.run.started) if shard.run is not None else (0, "")


def _take(shard: Shard, found: Gathered) -> None:
    """The result files of a shard, the worst of each cell, with what they refer to."""
    folder = shard.directory / RESULTS
    lost: list[str] = []
    for path in sorted(folder.glob("*-result.json")):
        result = read_result(path)
        if result is None:
            found.notes.append(f"{shard.directory.name}: {path.name} is cut or no result")
            continue
        result = mended(result)
        key = id_of(result) or path.name
        other = found.results.get(key)
        if other is not None:
            found.notes.append(f"{key} has more than one result; the worst is shown")
        found.results[key] = result if other is None else worse(other, result)
        names = [name for name in attachments(result) if name and name == Path(name).name]
        found.files.update({name: folder / name for name in names if (folder / name).is_file()})
        lost += [name for name in names if name not in found.files]
    if lost:
        found.notes.append(f"{shard.directory.name}: {len(lost)} attachments are missing, first {lost[0]}")


def _ending(run: RunRecord | None) -> str:
    """Why a run did not do what it had to, as far as it could say."""
    if run is None:
        return ""
    return run.reason or ("its run never came to an end" if run.state == "started" else "")


def _tell_of_the_run(shard: Shard, found: Gathered) -> None:
    """A result of the run itself, where it judged nothing that a plan could say."""
    run = shard.run
    name = shard.directory.name if run is None else run.name
    if run is not None and run.state == "infra":
        wrong = [f"{check.name}: {check.found}; expected {check.expected}" for check in run.preflight if not check.ok]
        found.results[f"run of {name}"] = of_a_run(name, "INFRA", [run.reason, *wrong], run)
    elif shard.plan is None:
        found.results[f"run of {name}"] = of_a_run(name, "NO-PLAN", [*shard.problems, _ending(run)], run)


def _fill(found: Gathered) -> None:
    """A result for every planned cell that has none."""
    ends = {name: end for shard in found.shards for name, end in shard.ends.items()}
    owners = {(s.plan.lane, s.plan.target, s.run.shard): s for s in found.shards if s.plan and s.run}
    for shard in found.shards:
        if shard.plan is None:
            continue
        for cell in shard.plan.cells:
            if cell.id in found.results:
                _hold(found, cell.id, ends)
                continue
            found.stubs.append(cell.id)
            owner = owners.get((shard.plan.lane, shard.plan.target, cell.shard))
            run = owner.run if owner is not None else None
            if cell.id in ends:
                found.results[cell.id] = from_end(cell, ends[cell.id], run)
            elif owner is None:
                name = f"{shard.plan.lane}/{shard.plan.target} {cell.shard}/{shard.plan.shards}"
                found.results[cell.id] = stub(cell, "NOT-BEGUN", f"shard {name} left nothing with a plan", shard.run)
            else:
                code = "LOST" if owner.begun[cell.id] else "NOT-BEGUN"
                found.results[cell.id] = stub(cell, code, _ending(run), run)


def _hold(found: Gathered, name: str, ends: Mapping[str, End]) -> None:
    """Let no result file say better of a cell than the journal does."""
    result = found.results[name]
    now = held(result, ends[name]) if name in ends else result
    if now is not result:
        found.notes.append(f"{name}: its result file says {result['status']}, and the journal {now['status']}")
        found.results[name] = now


def without_well(found: Gathered) -> int:
    """Leave out what passed wherever it ran, and say how much that was: one page that holds a whole night is too large
    to open. What passed on one target stays beside its failure on another."""
    telling = {result.get("testCaseId") for result in found.results.values() if result["status"] != PASSED}
    well = [
        key
        for key, result in found.results.items()
        if result["status"] == PASSED and result.get("testCaseId") not in telling
    ]
    for key in well:
        del found.results[key]
    return len(well)


def write(found: Gathered, folder: Path) -> None:
    """Put results and attachments into an empty folder. Raises ``BadInput`` where that cannot be."""
    for key, result in found.results.items():
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        write_whole(folder / f"{name}-result.json", json.dumps({"uuid": name, **result}).encode())
    wanted = {name for result in found.results.values() for name in attachments(result)}
    for name, path in found.files.items():
        if name in wanted and path.exists():
            _link(path, folder / name)


def _link(source: Path, target: Path) -> None:
    """A second name of a file where the file system can, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError as error:
            raise BadInput(f"cannot write {target}: {error.strerror}") from error
