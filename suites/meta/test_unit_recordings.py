"""Recordings of real GPUs tell wrong units from right ones, as often as the manifest says; and damage to them is seen.

Without ``--recordings`` the first half is skipped: it needs the files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden.safetensors_file import write
from narrowgauge.plugin.replays import recordings_of
from narrowgauge.reference.units.families import Family, Truncating, TwoHalves, products
from narrowgauge.reference.units.families_plain import Chain
from narrowgauge.reference.units.operands import Side
from narrowgauge.reference.units.registry import UNITS, unit_named
from narrowgauge.reference.units.rounding import F64, FLOAT16, FLOAT32, nearest, sum_to_odd
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.recordings import NOT_GIVEN, Recording, answers, judged, recorded

pytestmark = pytest.mark.meta

PACKAGE = Path(narrowgauge.__file__).parent
FILES, RESULTS = 52, 260_000


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path | None = request.config.option.narrowgauge_recordings
    if found is None:
        pytest.skip(NOT_GIVEN)
    return found


# --- wrong units -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Once:
    """The exact sum of all products and the addend, rounded once."""

    length: int
    halves: bool

    def step(self, a: Side, b: Side, c: F64) -> F64:
        total = sum_to_odd([*products(a, b), c])
        return nearest(total, 10, FLOAT16) if self.halves else nearest(total, 23, FLOAT32)


@dataclass(frozen=True)
class Nearest(Truncating):
    """T-FDPA whose result is rounded to nearest even."""

    def _rounded(self, total: F64) -> F64:
        return nearest(total, 23, FLOAT32)


@dataclass(frozen=True)
class Grouped(TwoHalves):
    """Two steps of other positions than k % 4; ``first``: the addend enters the first of them."""

    parts: tuple[tuple[int, ...], ...] = ()
    first: bool = False

    def step(self, a: Side, b: Side, c: F64) -> F64:
        found = c if self.first else np.zeros_like(c)
        for part in self.parts:
            found = self.inner.step(a.take(part), b.take(part), found)
        if self.first:
            return found
        return nearest(found + c, *((10, FLOAT16) if self.inner.stored == 10 else (23, FLOAT32)))


def _where(keep: Callable[[int], bool]) -> tuple[int, ...]:
    return tuple(k for k in range(32) if keep(k))


_RIGHT = (_where(lambda k: k % 4 < 2), _where(lambda k: k % 4 >= 2))
#: by the manifest's name: positions of k of each step
_GROUPS = {
    "halves k<16, k>=16": (_where(lambda k: k < 16), _where(lambda k: k >= 16)),
    "groups in reverse order": _RIGHT[::-1],
    "even k, odd k": (_where(lambda k: k % 2 == 0), _where(lambda k: k % 2 == 1)),
    "one group of 32": (tuple(range(32)),),
}


def _inner(family: Family) -> Truncating:
    inner = family.inner if isinstance(family, TwoHalves) else family
    assert isinstance(inner, Truncating)
    return inner


def wrong(unit: Unit, name: str, size: int) -> Family | None:
    """The manifest's other model of a unit; None for one that is not made here."""
    inner, two = _inner(unit.family), isinstance(unit.family, TwoHalves)

    def changed(**values: int) -> Family:
        other = replace(inner, **values)
        return TwoHalves(other) if two else other

    match name:
        case "F-1" | "F+1":
            return changed(fraction=inner.fraction + int(name[1:]))
        case "zero exponent -200":
            return changed(zero=-200)
        case "zero exponent +10":
            return changed(zero=inner.zero + 10)
        case "exact sum, one RNE":
            return Once(size, unit.out == "float16")
        case "sequential fp32 fma":
            return Chain()
        case "RNE to fp32 at the end" if inner.length >= size:
            return Nearest(inner.length, inner.fraction, inner.stored, inner.zero)
        case "c first instead of last":
            return Grouped(inner, _RIGHT, first=True)
        case "T-FDPA F=25 L=32, c fused":
            return replace(inner, length=32)
        case "T-FDPA F=13 L=32":
            return replace(inner, length=32, fraction=13, stored=10 if inner.stored == 10 else 13)
    if name.startswith("L="):
        return changed(length=int(name[2:]))
    return Grouped(inner, _GROUPS[name]) if name in _GROUPS else None


def manifest(folder: Path) -> Mapping[str, Any]:
    return {Path(e["file"]).stem: e for e in json.loads((folder / "manifest.json").read_text())["files"]}


def test_every_result_is_as_recorded(folder: Path) -> None:
    found = [judged(one) for one in recorded(folder)]
    assert len(found) == FILES
    assert sum(one.row.elements for one in found) == RESULTS
    assert [one.message for one in found if one.row.result != "passed"] == []


def test_a_wrong_unit_parts_as_often_as_the_manifest_says(folder: Path) -> None:
    """The counts were made by two other programs. Where one is 0, the files cannot tell the two apart."""
    entries, made = manifest(folder), 0
    for one in recorded(folder):
        right = unit_named(one.unit)
        for name, count in entries[one.case]["mismatches_of_other_models"].items():
            family = wrong(right, name, entries[one.case]["K"])
            if family is None:
                continue
            # what does not add fp16 products reads fp8 as it is, whose subnormals are less normal
            through = right.through if isinstance(family, TwoHalves) or not isinstance(right.family, TwoHalves) else ""
            got, want = answers(one, replace(right, family=family, through=through))
            assert int((got.data != want.data).sum()) == count, (one.case, name)
            made += 1
    assert made > 400


def test_every_unit_that_is_called_recorded_is_recorded(folder: Path) -> None:
    assert {one.unit for one in recorded(folder)} == {u.name for u in UNITS.values() if u.grade == "recorded"}


# --- bad folders -----------------------------------------------------------------------------------------------------

E4 = "float8_e4m3fn"


@cache
def _tensors() -> dict[str, Coded]:
    """Four results of Hopper's fp8 unit, by its model."""
    unit = unit_named("hopper.qgmma")
    a, b = (Coded(E4, np.arange(first, first + 128, dtype=np.uint8).reshape(4, 32) % 0x7F) for first in (1, 40))
    c = Coded("float32", np.zeros(4, np.uint32))
    return {"a": a, "b": b, "c": c, "d": dot(unit, a, b, c)}


def small(folder: Path, name: str = "h100-wgmma-e4m3-f32.safetensors", **changed: Coded) -> Path:
    """A folder of one recording."""
    write(folder / name, _tensors() | changed, {}, typed=False)
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps({"files": [{"file": name, "sha256": digest}]}))
    return folder


def test_a_difference_is_told(tmp_path: Path) -> None:
    (good,) = recorded(small(tmp_path))
    assert judged(good).row.result == "passed"
    d = _tensors()["d"].data.copy()
    d[2] ^= 1 << 10
    (bad,) = recorded(small(tmp_path, d=Coded("float32", d)))
    found = judged(bad)
    assert (found.row.result, found.row.differences, found.row.elements) == ("failed", {"value": 1}, 4)
    assert f"[2] value: the model gives {d[2] ^ 1 << 10:#x}, recorded is {d[2]:#x}" in found.message


def test_a_damaged_file_is_not_replayed(tmp_path: Path) -> None:
    (one,) = recorded(small(tmp_path))
    assert one.path is not None
    one.path.write_bytes(one.path.read_bytes()[:-1] + b"\0")
    assert "[NOT-READ]" in judged(one).message
    assert "its manifest says" in judged(one).row.reason
    one.path.unlink()
    assert "cannot read" in judged(one).row.reason
    assert judged(one).row.result == "failed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"a": Coded("float32", np.zeros((4, 32), np.uint32))}, "no codes of float8_e4m3fn"),
        ({"c": Coded("float32", np.zeros(3, np.uint32))}, r"addends of float32 \[3\]"),
        ({"b": Coded(E4, np.zeros((4, 31), np.uint8))}, r"expected \[M, K\] and \[N, K\]"),
    ],
)
def test_a_file_of_other_tensors(tmp_path: Path, changed: dict[str, Coded], said: str) -> None:
    (one,) = recorded(small(tmp_path, "h100-wgmma-e4m3-f32.safetensors", **changed))
    with pytest.raises(BadInput, match=said):
        answers(one, unit_named(one.unit))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"files": 3}', '{"files": [{}]}', '{"files": []}'])
def test_a_manifest_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BadInput, match=r"manifest\.json"):
        recorded(tmp_path)


@pytest.mark.parametrize("name", ["x.safetensors", "h100-wgmma-e4m3-f32.txt", "k80-wmma-fp16-f32.safetensors"])
def test_a_file_that_names_no_unit(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="names no unit"):
        recorded(small(tmp_path, name))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on the module of recordings alone, in a folder of its own, under our configuration."""
    module = PACKAGE / "suites" / "units" / "test_recordings.py"
    fixed = ["-c", str(PACKAGE / "pytest.toml"), f"--rootdir={PACKAGE.parent}", "-p", "no:cacheprovider", str(module)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *fixed, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_files_are_tests(tmp_path: Path) -> None:
    """One a file, in the ledger under its unit."""
    done = run(tmp_path, f"--recordings={small(tmp_path)}")
    assert done.returncode == 0, done.stdout
    ledger = json.loads((tmp_path / ".narrowgauge" / "ledger.json").read_text())
    jsonschema.validate(ledger, json.loads((PACKAGE / "ci" / "ledger.schema.json").read_text()))
    (row,) = ledger["rows"]
    assert row["id"].endswith("[float8_e4m3fn-float32-h100-wgmma-e4m3-f32-hopper.qgmma-sm_90]")
    assert (row["operation"], row["result"], row["how"], row["elements"]) == ("unit", "passed", "replayed", 4)


def test_what_is_no_folder_of_recordings() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(narrowgauge_recordings=Path("nowhere")))
    with pytest.raises(pytest.UsageError, match="--recordings: nowhere is no folder of recordings: cannot read"):
        recordings_of(config)


def test_without_a_folder() -> None:
    (one,) = recorded(None)
    assert isinstance(one, Recording)
    found = judged(one).row
    assert (found.result, found.reason) == ("not_executed", NOT_GIVEN)
