"""One shard of a lane: the preflight, pytest under a watchdog, and the record of how it went."""

from __future__ import annotations

import datetime
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import narrowgauge
from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, RunRecord, Shard, digest, read_shard, write_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.manifest import NAME, VECTORS
from narrowgauge.suites.preflight import Fitness, preflight
from narrowgauge.suites.supervising import Ended, Limits, supervise
from narrowgauge.version import __version__

PACKAGE = Path(narrowgauge.__file__).parent
JUNIT, LOG, ALLURE = "junit.xml", "pytest.log", "allure-results"
#: everything that a run leaves, and the only things that the next one in the same directory removes
LEFT = (RUN, PLAN, JOURNAL, LEDGER, JUNIT, LOG, ALLURE)
#: files whose sha256 the record keeps
SEALED = (PLAN, JOURNAL, LEDGER)
#: pytest's own worker dies with a test that takes longer than the lane's patience; the run with that many of them
WHOLE_RUN = 2
#: workers that may die: each costs one test, and the rest goes on
RESTARTS = 100


def prepared(out: Path) -> Path:
    """A directory for results: made, or emptied of an earlier run's. Raises ``BadInput`` for one with other things."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; expected a directory")
    strangers = sorted(p.name for p in out.iterdir() if p.name not in LEFT) if out.exists() else []
    if strangers:
        raise BadInput(
            f"--out {out} has {', '.join(strangers[:3])} in it, which no run wrote; name a directory of its own"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in LEFT:
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"cannot prepare --out {out}: {error.strerror}") from error
    return out


@dataclass
class LaneRun:
    """A shard on its way. ``options`` go to pytest as they are."""

    lane: Lane
    target: str
    shard: int
    shards: int
    out: Path
    depth: str
    workers: int
    options: tuple[str, ...] = ()
    exit_code: int = Exit.INFRASTRUCTURE
    fitness: Fitness = field(default_factory=Fitness)
    steady: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)
    record: RunRecord = field(init=False)

    def __post_init__(self) -> None:
        self.record = self._record()

    def preflight(self) -> RunRecord:
        """Look at the machine. The record says "started" on disk from the first moment: a machine may be lost here."""
        record = self.record
        self._write(record)
        self.fitness = preflight(self.lane, self.target, self.out)
        wrong = [f"{c.name}: {c.found}; expected {c.expected}" for c in self.fitness.wrong]
        record = replace(
            record,
            preflight=tuple(self.fitness.checks),
            versions=self.fitness.versions,
            gpus=self.fitness.gpus,
            state="infra" if wrong else "started",
            reason=f"the machine is not fit: {'; '.join(wrong)}" if wrong else "",
        )
        self.record = self._ended(record) if wrong else record
        self._write(self.record)
        return self.record

    def judge(self, quiet: bool = False) -> RunRecord:
        """Run this shard's tests, and write down how that went."""
        limits = Limits(60.0 * self.lane.minutes, WHOLE_RUN * self.lane.patience, self.out / JOURNAL)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        ended = supervise(self._command(), environment, self.out / LOG, limits, quiet)
        found = read_shard(self.out)
        reason = ended.why or _unended(found, self.shard)
        self.exit_code = _exit_code(ended, found, reason)
        self.record = self._ended(
            replace(
                self.record,
                state="stopped" if reason else "finished",
                reason=reason,
                exit_code=ended.code,
                plan=found.plan.digest if found.plan is not None else "",
                files={name: digest(self.out / name) for name in SEALED if (self.out / name).exists()},
            )
        )
        self._write(self.record)
        return self.record

    def _record(self) -> RunRecord:
        return RunRecord(
            lane=self.lane.name,
            target=self.target,
            shard=self.shard,
            shards=self.shards,
            attempt=_attempt(),
            depth=self.depth,
            state="started",
            started=_now(),
            narrowgauge=__version__,
            commit=_commit(),
            golden=digest(VECTORS / NAME),
            build=_build(),
            options=self.options,
        )

    def _ended(self, record: RunRecord) -> RunRecord:
        seconds = time.monotonic() - self.steady
        moved = (time.time() - self.wall) - seconds
        return replace(record, ended=_now(), seconds=round(seconds, 3), clock_moved=round(moved, 3))

    def _write(self, record: RunRecord) -> None:
        write_json(self.out / RUN, record.to_json())

    def _command(self) -> list[str]:
        out = self.out
        command = [sys.executable, "-P", "-m", "narrowgauge", "test", "-p", "narrowgauge.plugin.nightly"]
        command += [f"--lane={self.lane.name}/{self.target}", f"--shard={self.shard}/{self.shards}", f"--out={out}"]
        command += [f"--depth={self.depth}", f"-n={self.workers}", f"--max-worker-restart={RESTARTS}"]
        command += ["-o", f"faulthandler_timeout={self.lane.patience}", "-o", "faulthandler_exit_on_timeout=true"]
        command += [f"--junitxml={out / JUNIT}", "-o", f"junit_suite_name={self.record.place}"]
        command += [f"--device={name}" for name in self.fitness.devices]
        if importlib.util.find_spec("allure_pytest") is not None:
            command += [f"--alluredir={out / ALLURE}"]
        if self.lane.vendor != "none":  # recordings are replayed, and checkpoints are read, by the cpu lane alone
            command += [f"--ignore={PACKAGE / 'suites' / name}" for name in ("units",)]
        if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":  # other examples each night, the same for whoever asks
            command += [f"--hypothesis-seed={self.record.started[:10].replace('-', '')}"]
        return [*command, *self.options]


def _unended(found: Shard, shard: int) -> str:
    """Which planned tests never ended; pytest's own exit code may say that all is well."""
    if found.plan is None:
        return "there is no plan: pytest ended before it had collected its tests (pytest.log says why)"
    lost = [cell.id for cell in found.plan.of_shard(shard) if cell.id not in found.ends]
    if not lost:
        return ""
    running = f"; running were {', '.join(found.unended[:3])}" if found.unended else ""
    return f"{len(lost)} planned tests never ended, first {lost[0]}{running}"


def _exit_code(ended: Ended, found: Shard, reason: str) -> int:
    if ended.code in (Exit.BAD_INPUT, Exit.NOTHING):
        return ended.code
    if reason:
        return Exit.INFRASTRUCTURE
    bad = any(end.outcome in ("failed", "error") for end in found.ends.values())
    return Exit.FAILED if bad or ended.code == Exit.FAILED else Exit.OK


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _attempt() -> int:
    """Which try of the job it is: GitHub counts from 1, Buildkite from 0."""
    if (github := os.environ.get("GITHUB_RUN_ATTEMPT", "")).isdigit():
        return int(github)
    buildkite = os.environ.get("BUILDKITE_RETRY_COUNT", "")
    return 1 + int(buildkite) if buildkite.isdigit() else 1


def _build() -> str:
    """The address of the job, where an engine says it."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, number = (os.environ.get(name, "") for name in names)
    return f"{server}/{repository}/actions/runs/{number}" if number else os.environ.get("BUILDKITE_BUILD_URL", "")


def _commit() -> str:
    """The suite's commit, "+changed" where files differ from it; "" outside a checkout."""

    def git(*arguments: str) -> str:
        try:
            command = ["git", "-C", str(PACKAGE), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    commit = git("rev-parse", "HEAD")
    return f"{commit}+changed" if commit and git("status", "--porcelain", "--untracked-files=no") else commit
