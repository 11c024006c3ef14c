"""Small lanes, kernels and runs for the tests of ``narrowgauge run``, and the gate's answer to what they leave."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from narrowgauge import command
from narrowgauge.ci.lanes import Lane, lane_named
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, Cell, Plan, read_shard, write_json
from narrowgauge.suites.lane_run import LaneRun
from narrowgauge.suites.meta.injected import FAULTS
from narrowgauge.suites.preflight import Fitness

#: the cpu lane, made small
LANE = replace(
    lane_named("cpu"), devices=("host",), depth="smoke", shards=1, workers=1, minutes=10, patience=300, paths=("cast",)
)
Ran = TypeVar("Ran", bound=LaneRun)
PLUGIN = ("-p", "narrowgauge.suites.meta.breaking")

KERNELS = """
import os, signal, time
from pathlib import Path
from narrowgauge import kernel, Cast

CAST = {"formats": ["float8_e4m3fn"], "backend": "numpy"}

def cast(x):
    import ml_dtypes
    return x.astype(ml_dtypes.float8_e4m3fn)

@kernel(Cast(policy="ml_dtypes"), **CAST)
def right(x, format):
    return cast(x)
"""
MORE = {
    "kills": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def kills(x, format):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)
''',
    "hangs": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def hangs(x, format):
    (Path(__file__).parent / "child").write_text(str(os.getpid()))
    while True:
        pass
''',
    "stalls": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def stalls(x, format):
    return cast(x)
''',
    "fills": '''
@kernel(Cast(policy="ml_dtypes"), **CAST)
def fills(x, format):
    return cast(x)
''',
}  # fmt: skip


def kernels(folder: Path, *more: str) -> str:
    """The option that plugs in ``right``, and others by name."""
    path = folder / "kernels_of_a_run.py"
    path.write_text(KERNELS + "".join(MORE[name] for name in more))
    return f"--kernels={path}"


def without_torch(folder: Path) -> str:
    """A value of PYTHONPATH under which torch cannot be imported: kernels of numpy need none, and it takes long."""
    (folder / "hidden").mkdir(exist_ok=True)
    (folder / "hidden" / "torch.py").write_text("raise ImportError('hidden')\n")
    return os.pathsep.join(filter(None, (str(folder / "hidden"), os.environ.get("PYTHONPATH"))))


def lanes_file(folder: Path, lane: Lane = LANE) -> str:
    """A file with one lane, as JSON and TOML both write its values."""
    path = folder / "lanes.toml"
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(lane).items() if name != "name"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join([f"[lane.{lane.name}]", *lines]) + "\n")
    return str(path)


def lane_run(out: Path, *options: str) -> LaneRun:
    """A run on the host, past its preflight."""
    return _past_preflight(LaneRun(LANE, "cpu", 1, 1, out, "smoke", 1, (*PLUGIN, *options)))


def _past_preflight(ran: Ran) -> Ran:
    ran.out.mkdir(parents=True, exist_ok=True)
    ran._write(ran.record)
    ran.fitness = Fitness(devices=["host"])
    return ran


# --- runs without pytest ---------------------------------------------------------------------------------------------

#: ids of what a stub's plan has
IDS = tuple(f"narrowgauge/suites/casts/test_casts.py::test_cell[float32-float8_e4m3fn-{n}-right-host]" for n in "abc")


@dataclass
class Files:
    """What a stub of pytest leaves, and how it ends. A verdict of None is of a test that began and never ended."""

    verdicts: Mapping[str, str | None] = field(default_factory=lambda: dict.fromkeys(IDS, "passed"))
    planned: Sequence[str] = IDS
    shards: Mapping[str, int] = field(default_factory=dict)  #: 1 where nothing is said
    of: int = 1
    code: int = 0
    without: Sequence[str] = ()
    tail: str = ""  #: of the journal
    after: str = ""  #: a line of shell before the end

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        cells = tuple(Cell(i, self.shards.get(i, 1), **_names(i), own=False) for i in self.planned)
        write_json(folder / PLAN, Plan("cpu", "cpu", "smoke", self.of, cells).to_json())
        write_json(folder / LEDGER, {})
        (folder / JOURNAL).write_text("".join(self.lines()) + self.tail)
        for name in self.without:
            (folder / name).unlink()

    def lines(self) -> list[str]:
        found = []
        for i, verdict in self.verdicts.items():
            found.append(json.dumps({"event": "begin", "id": i}) + "\n")
            if verdict is not None:
                row = Row(i, **_names(i), own=False, device="host", how="executed", backend="numpy", result=verdict)  # type: ignore[arg-type]
                end = {"event": "end", "id": i, "outcome": verdict, "seconds": 0.5, "row": row.to_json(), "message": ""}
                found.append(json.dumps(end) + "\n")
        return found


def _names(nodeid: str) -> dict[str, Any]:
    source, fmt, case, kernel, target = nodeid.partition("[")[2].rstrip("]").split("-")
    names = {"operation": "cast", "rule": "ml_dtypes", "source": source, "format": fmt, "case": case}
    return {**names, "kernel": kernel, "owner": "mine", "target": target}


@dataclass
class Stubbed(LaneRun):
    """A run whose pytest only puts files into the directory."""

    files: Files = field(default_factory=Files)

    def _command(self) -> list[str]:
        prepared = self.out.parent / f"prepared-{self.out.name}"
        self.files.write(prepared)
        copy = f'cp "{prepared}"/* "{self.out}"/'
        return ["sh", "-c", "\n".join([copy, self.files.after, f"exit {self.files.code}"])]


def stubbed(out: Path, files: Files | None = None, lane: Lane = LANE, shard: int = 1, shards: int = 1) -> Stubbed:
    """A run of a stub, past its preflight."""
    return _past_preflight(Stubbed(lane, "cpu", shard, shards, out, "smoke", 1, files=files or Files()))


def ran(out: Path, files: Files | None = None, **values: Any) -> int:
    """The exit code of a run whose pytest leaves these files."""
    run = stubbed(out, files, **values)
    run.judge(quiet=True)
    return run.exit_code


# --- the gate --------------------------------------------------------------------------------------------------------


def gate(*directories: Path, lane: Lane = LANE, expect: str = "cpu/cpu") -> tuple[int, set[str], set[str]]:
    """The command's exit code, and the kinds of its red and yellow findings."""
    folder = directories[0].parent
    (folder / "quarantine.toml").touch()
    words = [*map(str, directories), f"--expect={expect}", f"--lanes={lanes_file(folder, lane)}"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = command.main(["gate", *words, f"--quarantine={folder / 'quarantine.toml'}", "--json"])
    found = json.loads(said.getvalue())["findings"]
    red, yellow = ({f["kind"] for f in found if f["level"] == level} for level in ("red", "yellow"))
    return code, red, yellow


def holds(name: str, run_exit: int | None, *directories: Path, lane: Lane = LANE, expect: str = "cpu/cpu") -> None:
    """Hold a run and the gate to what docs/nightly.md says of a fault."""
    fault = FAULTS[name]
    assert run_exit == fault.run
    record = read_shard(directories[-1]).run
    assert (record.state if record is not None else "") == fault.state, record
    code, red, yellow = gate(*directories, lane=lane, expect=expect)
    assert (code, red) == (fault.gate, set(fault.red))
    assert yellow >= set(fault.yellow)
