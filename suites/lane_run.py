"""One shard of a lane: the preflight, pytest under a watchdog, and the record of how it went."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import narrowgauge
from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.records import (
    JOURNAL,
    LEDGER,
    PLAN,
    RUN,
    Check,
    End,
    RunRecord,
    Shard,
    digest,
    read_shard,
    write_json,
)
from narrowgauge.contracts.errors import BadInput, Infrastructure
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
#: where pytest looks for more options
ADDED = "PYTEST_ADDOPTS"


@contextlib.contextmanager
def prepared(out: Path) -> Iterator[None]:
    """A directory for results, for one run at a time: made, or emptied of an earlier run's.

    Raises ``BadInput`` for one that has other things in it, or that another run is writing to.
    """
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; expected a directory")
    with contextlib.ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_alone(out))
            found = sorted(out.iterdir())
            strangers = [path.name for path in found if not _is_left(path.name)]
            if strangers:
                raise BadInput(
                    f"--out {out} has {', '.join(strangers[:3])} in it, which no run wrote; name a directory of its own"
                )
            for path in found:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError as error:
            raise BadInput(f"cannot prepare --out {out}: {error.strerror}") from error
        yield


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two runs in one directory would mix their results."""
    handle = os.open(out, os.O_RDONLY)
    try:
        _lock(handle, out)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, out: Path) -> None:
    with contextlib.suppress(OSError):  # where the file system has no locks, nothing is said
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"another run is writing to --out {out}; each shard has a directory of its own") from None


def _is_left(name: str) -> bool:
    """Whether a run wrote a file of this name, or was writing it (a dot before, letters behind) when it was killed."""
    return name in LEFT or any(name.startswith(f".{whole}.") for whole in LEFT)


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
        try:
            self.fitness = preflight(self.lane, self.target, self.out)
        except Exception as error:  # whatever it stumbles over, nothing was judged, and no kernel is at fault
            traceback.print_exc()
            self.fitness = Fitness([Check("preflight", False, f"{type(error).__name__}: {error}", "that it ends")])
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
        # Those words are among the options; and whoever is a worker of another pytest starts one that is none.
        left_out = (ADDED, "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT")
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        environment["PYTHONUNBUFFERED"] = "1"
        ended = supervise(self._command(), environment, self.out / LOG, limits, quiet)
        found = read_shard(self.out)
        reason = ended.why or doubt(ended, found, self.shard) or ended.log
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
        try:
            write_json(self.out / RUN, record.to_json())
        except BadInput as error:  # the directory was ours a moment ago: the disk is full, or gone
            raise Infrastructure(f"{error}: {record.name} has no record of how it went") from error

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
            command += [f"--ignore={PACKAGE / 'suites' / 'units'}"]
        if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":  # other examples each night, the same for whoever asks
            command += [f"--hypothesis-seed={self.record.started[:10].replace('-', '')}"]
        return [*command, *self.options]


def doubt(ended: Ended, found: Shard, shard: int) -> str:
    """Why a run that came to an end by itself did not come to the right one, or "". An exit code alone may lie."""
    if found.plan is None:
        return "there is no plan: pytest ended before it had collected its tests (pytest.log says why)"
    if lost := [cell.id for cell in found.plan.of_shard(shard) if cell.id not in found.ends]:
        running = f"; running were {', '.join(found.unended[:3])}" if found.unended else ""
        return f"{len(lost)} planned tests never ended, first {lost[0]}{running}; pytest ended with {ended.code}"
    if twice := sorted(i for i, count in found.begun.items() if count > 1 or i in found.twice):
        return f"{len(twice)} tests ran twice, first {twice[0]}: nothing may rerun them"
    damage = [p for p in found.problems if not p.startswith(RUN)]
    if damage:
        return f"results are damaged: {'; '.join(damage[:3])}"
    failed = sum(_is_bad(end) for end in found.ends.values())
    expected = Exit.FAILED if failed else Exit.OK if found.ends else Exit.NOTHING
    if ended.code != expected:
        return (
            f"pytest ended with {ended.code}, its results say {expected.value}: {failed} tests failed ({LOG} says why)"
        )
    if found.rows and not (found.directory / LEDGER).exists():
        return f"{LEDGER} could not be written ({LOG} says why)"
    return ""


def _exit_code(ended: Ended, found: Shard, reason: str) -> int:
    if ended.code == Exit.BAD_INPUT and not found.begun and not ended.why:
        return Exit.BAD_INPUT
    return Exit.INFRASTRUCTURE if reason else ended.code


def _is_bad(end: End) -> bool:
    return end.outcome in ("failed", "error")


def _now() -> str:
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat(timespec="seconds")


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
    """The suite's commit, "+changed" where files differ from it; "" outside a checkout. A container is told it."""

    def git(*arguments: str) -> str:
        try:
            command = ["git", "-C", str(PACKAGE), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    if told := os.environ.get("NARROWGAUGE_COMMIT", ""):
        return told
    commit = git("rev-parse", "HEAD")
    return f"{commit}+changed" if commit and git("status", "--porcelain", "--untracked-files=no") else commit
