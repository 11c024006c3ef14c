"""Recorded answers of real GPUs as cells of the plan: each file is held to the model of the unit that gave it.

A folder of recordings has a manifest.json with, per file, its name and sha256; docs/units.md says where there is one.
A file is called GPU-INSTRUCTION-OPERANDS-RESULT.safetensors.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Mismatch
from narrowgauge.golden.safetensors_file import read
from narrowgauge.golden.units import OPERATION as UNIT
from narrowgauge.reference.compare import compare
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.units.registry import unit_named
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.judging import Judged

NOT_GIVEN = "no recordings; --recordings=DIR names a folder of them (docs/units.md)"
#: a GPU's units are those of this architecture, on this target
GPUS = {
    "v100": ("volta", "sm_70"),
    "a100": ("ampere", "sm_80"),
    "a2": ("ampere", "sm_86"),
    "ada": ("ada", "sm_89"),
    "l40s": ("ada", "sm_89"),
    "h100": ("hopper", "sm_90"),
    "h200": ("hopper", "sm_90"),
    "b200": ("blackwell", "sm_100"),
}
FORMATS = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "f16": "float16", "f32": "float32",
}  # fmt: skip
#: fp8 by mma.sync: Ada alone has an instruction for it
_INSTRUCTIONS = {"wmma": "hmma", "mma": "mma_fp8", "wgmma": "qgmma"}
_QMMA = ("ada", "mma")
_SHOWN = 3


@dataclass(frozen=True)
class Recording:
    """One file; or, without a path, that there is none."""

    case: str
    unit: str
    source: str
    format: str
    target: str
    path: Path | None = None
    sha256: str = ""
    markers: tuple[str, ...] = ("matmul", "silent_failure")

    @property
    def id(self) -> str:
        return f"{self.source}-{self.format}-{self.case}-{self.unit}-{self.target}"

    @property
    def names(self) -> dict[str, Any]:
        """The fields that a plan and a ledger row share."""
        who = {"kernel": self.unit, "owner": "narrowgauge", "own": True, "target": self.target}
        return {
            "operation": UNIT,
            "rule": self.unit,
            "source": self.source,
            "format": self.format,
            "case": self.case,
        } | who


#: what is planned where no folder is named
_NOTHING = Recording("recordings", "matrix_units", "float16", "float32", "host")


def recorded(folder: Path | None) -> list[Recording]:
    """Every file that a folder's manifest lists. Raises ``BadInput`` for what is no folder of recordings."""
    if folder is None:
        return [_NOTHING]
    path = folder / "manifest.json"
    try:
        entries = json.loads(path.read_text())["files"]
        named = [(str(entry["file"]), str(entry["sha256"])) for entry in entries]
    except OSError as error:
        raise BadInput(f"{folder} is no folder of recordings: cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: expected a list 'files' of entries with 'file' and 'sha256'") from error
    if not named:
        raise BadInput(f"{path} lists no file")
    return [_recording(folder, name, sha256) for name, sha256 in named]


def _recording(folder: Path, name: str, sha256: str) -> Recording:
    stem, _, end = name.rpartition(".")
    words = stem.split("-")
    known = len(words) == 4 and words[0] in GPUS and words[1] in _INSTRUCTIONS and {*words[2:]} <= FORMATS.keys()
    if not known or end != "safetensors":
        raise BadInput(f"{folder}: {name!r} names no unit; expected GPU-INSTRUCTION-OPERANDS-RESULT.safetensors")
    gpu, instruction, source, out = words
    architecture, target = GPUS[gpu]
    unit = "qmma" if (architecture, instruction) == _QMMA else _INSTRUCTIONS[instruction]
    ends = ("_tf32" if source == "tf32" else "") + ("_f16" if out == "f16" else "")
    return Recording(stem, f"{architecture}.{unit}{ends}", FORMATS[source], FORMATS[out], target, folder / name, sha256)


def answers(recording: Recording, unit: Unit) -> tuple[Coded, Coded]:
    """What a unit's model gives for a recording, and what was recorded: codes [n]. Raises ``BadInput``."""
    assert recording.path is not None
    try:
        found = hashlib.sha256(recording.path.read_bytes()).hexdigest()
    except OSError as error:
        raise BadInput(f"cannot read {recording.path}: {error.strerror}") from error
    if found != recording.sha256:
        raise BadInput(f"{recording.path} has sha256 {found}; its manifest says {recording.sha256}")
    tensors = read(recording.path).tensors
    if missing := {"a", "b", "c", "d"} - tensors.keys():
        raise BadInput(f"{recording.path} has no tensor {', '.join(sorted(missing))}")
    # a register of tf32 has 13 bits below its code
    shift = np.uint32(13) if recording.source == "tfloat32" else np.uint8(0)
    a, b = (Coded(recording.source, tensors[name].data >> shift) for name in ("a", "b"))
    c, d = (Coded(recording.format, tensors[name].data) for name in ("c", "d"))
    if not all(tensor.well_formed for tensor in (a, b, c, d)):
        raise BadInput(f"{recording.path}: tensors are no codes of {recording.source} and {recording.format}")
    return dot(unit, a, b, c), d


def judged(recording: Recording) -> Judged:
    """The row of a file: failed where the model gives another code than was recorded."""
    if recording.path is None:
        return Judged(_row(recording, result="not_executed", reason=NOT_GIVEN, outcome="not_executed"))
    start = time.perf_counter()
    try:
        got, want = answers(recording, unit_named(recording.unit))
    except BadInput as error:
        return Judged(_row(recording, result="failed", reason=str(error)), f"[NOT-READ] {error}")
    difference = compare({"result": got}, {"result": Interval.exactly(want)})
    places = np.flatnonzero(difference.mask("result"))[:_SHOWN].tolist()
    mismatches = tuple(_mismatch(place, difference.kind("result", (place,)), got, want) for place in places)
    row = _row(
        recording,
        result="failed" if places else "passed",
        elements=got.data.size,
        differences=difference.counts,
        mismatches=mismatches,
        digest=got.digest(),
        seconds=round(time.perf_counter() - start, 4),
    )
    lines = [f"  [{m.index[0]}] {m.kind}: the model gives {m.got}, recorded is {m.want}" for m in mismatches]
    head = f"[UNIT] {recording.unit}, {recording.case}: {difference.total} of {got.data.size} differ"
    return Judged(row, "\n".join([head, *lines]) if places else "")


def _mismatch(place: int, kind: str, got: Coded, want: Coded) -> Mismatch:
    return Mismatch("result", (place,), kind, "", hex(int(got.data[place])), hex(int(want.data[place])))


def _row(recording: Recording, **values: object) -> Row:
    return Row(
        id=recording.id,
        **recording.names,
        device="host",
        how="replayed",
        backend="numpy",
        claim="/".join(recording.names[name] for name in ("operation", "rule", "source", "format")),
        authority="recorded answers of a real GPU (docs/units.md)",
        **values,  # type: ignore[arg-type]
    )
