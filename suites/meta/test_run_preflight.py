"""The preflight of ``narrowgauge run``: what it must find, on stand-ins for machines that are not here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge import command
from narrowgauge.ci.lanes import Lane, lane_named
from narrowgauge.ci.records import JOURNAL, PLAN, RunRecord
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.devices.device import Device
from narrowgauge.kernels_under_test import MODULES
from narrowgauge.suites import lane_run, preflight
from narrowgauge.suites.lane_run import LaneRun
from narrowgauge.suites.meta.break_sets import LANE, holds, without_torch
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.run import _shared_out

pytestmark = pytest.mark.meta

CUDA, HIP = {"version": "2.13.0", "cuda": "12.8", "hip": None}, {"version": "2.13.0", "cuda": None, "hip": "7.2"}
BOTH = {"version": "2.13.0", "cuda": None, "hip": None}
Machine = Callable[[Sequence[str], dict[str, Any] | None], None]
#: a smoke kernel that needs no torch
SMOKE = """
from narrowgauge import kernel, Cast

@kernel(Cast(policy="ieee"), formats=["float32"], sources=["int8"], backend="numpy")
def smoke(x, format):
    {body}
"""
RIGHT = "return x.astype('float32')"
FACTS = {"python": "3.12", "versions": {"torch": "2.13.0"}, "gpus": [{"driver": "570.1"}]}


def run_of(lane: Lane, target: str, out: Path) -> LaneRun:
    out.mkdir(parents=True, exist_ok=True)
    return LaneRun(lane, target, 1, 1, out, "smoke", lane.workers)


def failed(record: RunRecord) -> list[str]:
    return [check.name for check in record.preflight if not check.ok]


@pytest.fixture
def smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts another smoke kernel in the place of ours, and spares a child that imports torch."""
    describe = Device.describe
    monkeypatch.setenv("PYTHONPATH", without_torch(tmp_path))

    def so(body: str) -> None:
        path = tmp_path / "smoke.py"
        path.write_text(SMOKE.format(body=body))
        monkeypatch.setattr(Device, "describe", lambda self, origin: describe(self, str(path)))
        monkeypatch.setattr(Device, "facts", lambda self: {**FACTS, "torch": BOTH})

    return so


@pytest.fixture
def machine(smoke: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this machine one with these GPUs, whose torch is this build; all its kernels run on the CPU."""

    def so(targets: Sequence[str], torch: dict[str, Any] | None) -> None:
        smoke(RIGHT)
        found = tuple(Device(f"cuda:{n}", target, "executed", note="GPU") for n, target in enumerate(targets))
        monkeypatch.setattr(preflight, "gpus", lambda: found)
        monkeypatch.setattr(Device, "facts", lambda self: {**FACTS, "torch": torch})

    return so


def test_a_kernel_of_the_suite_that_cannot_be_loaded_is_no_shorter_plan(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(["sm_90"], CUDA)
    more = {**MODULES, "narrowgauge.kernels_under_test.other": ("no_such_package",)}
    monkeypatch.setattr("narrowgauge.suites.run.MODULES", more)
    record = run_of(lane_named("cuda"), "sm_90", tmp_path / "out").preflight()
    assert (record.state, failed(record)) == ("infra", ["the suite's kernels"])
    assert "other: no_such_package not installed" in record.reason


def test_equal_gpus_of_the_lane_are_fit(machine: Machine, tmp_path: Path) -> None:
    machine(["sm_90", "sm_90"], CUDA)
    run = run_of(lane_named("cuda"), "sm_90", tmp_path / "out")
    record = run.preflight()
    assert (record.state, failed(record), record.gpus) == ("started", [], ("cuda:0 sm_90 GPU", "cuda:1 sm_90 GPU"))
    assert record.versions == {"python": "3.12", "torch": "2.13.0", "driver": "570.1"}
    words = run._command()
    assert [w for w in words if w.startswith("--device")] == ["--device=cuda:0", "--device=cuda:1"]
    assert {"faulthandler_timeout=600", "faulthandler_exit_on_timeout=true", "-n=2"} <= set(words)
    assert any(w.startswith("--ignore=") and w.endswith("units") for w in words), "recordings are the cpu lane's"
    assert not any(w.startswith("--ignore=") for w in run_of(LANE, "cpu", tmp_path / "out")._command())


@pytest.mark.parametrize(
    ("lane", "target", "seen", "torch", "wrong"),
    [
        ("cuda", "sm_90", [], CUDA, ["architecture"]),
        ("cuda", "sm_90", ["sm_80"], CUDA, ["architecture"]),
        ("cuda", "sm_90", ["sm_90", "sm_100"], CUDA, ["architecture"]),
        ("cuda", "sm_90", ["sm_90"], BOTH, ["torch"]),
        ("cuda", "sm_90", ["sm_90"], HIP, ["torch"]),
        ("rocm", "gfx942", ["gfx942"], CUDA, ["torch"]),
        ("rocm", "gfx942", ["gfx942"], None, ["torch"]),
    ],
)
def test_another_machine_is_not(
    machine: Machine,
    tmp_path: Path,
    lane: str,
    target: str,
    seen: list[str],
    torch: dict[str, Any] | None,
    wrong: list[str],
) -> None:
    machine(seen, torch)
    one = replace(lane_named(lane), shards=1)
    run = run_of(one, target, tmp_path / "out")
    record = run.preflight()
    assert failed(record) == wrong
    assert f"the machine is not fit: {wrong[0]}: " in record.reason
    holds("unfit", run.exit_code, tmp_path / "out", lane=one, expect=f"{lane}/{target}")


def test_a_gpu_that_does_not_answer(
    tmp_path: Path, smoke: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    smoke(RIGHT)

    def gone() -> None:
        raise Infrastructure("device discovery does not start: crashed, signal SIGSEGV")

    monkeypatch.setattr(preflight, "gpus", gone)
    record = run_of(lane_named("rocm"), "gfx942", tmp_path / "out").preflight()
    assert "architecture: device discovery does not start: crashed, signal SIGSEGV; expected gfx942" in record.reason
    assert record.state == "infra"


@needs_torch
def test_the_command_judges_nothing_on_such_a_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "gpus", lambda: ())
    out = tmp_path / "out"
    code = command.main(["run", "--lane=rocm", "--arch=gfx950", f"--out={out}"])
    assert "UNFIT" in capsys.readouterr().out
    holds("unfit", code, out, lane=lane_named("rocm"), expect="rocm/gfx950")
    assert not (out / PLAN).exists()
    assert not (out / JOURNAL).exists()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return (x + 1).astype('float32')", "differing: 256 of 256"),
        ("import os; os._exit(7)", "[CRASHED]"),
        ("raise RuntimeError('no driver')", "no driver"),
        ("return x\nraise RuntimeError('no library')", "no library"),
    ],
)
def test_a_smoke_kernel_that_is_wrong(tmp_path: Path, smoke: Callable[[str], None], body: str, words: str) -> None:
    smoke(body)
    run = run_of(LANE, "cpu", tmp_path / "out")
    record = run.preflight()
    assert failed(record) == ["smoke kernel on host"]
    assert words in record.reason
    holds("unfit", run.exit_code, tmp_path / "out")


def test_what_else_makes_a_machine_unfit(
    tmp_path: Path, smoke: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    smoke(RIGHT)
    next(folder.glob("*.safetensors")).unlink()
    monkeypatch.setattr(preflight, "VECTORS", folder)
    monkeypatch.setattr(preflight, "ROOM", shutil.disk_usage(tmp_path).total + 1)
    lane = replace(LANE, devices=("host", "emulated:sm_91"))
    record = run_of(lane, "cpu", tmp_path / "out").preflight()
    assert failed(record) == ["room on the disk", "golden vectors", "device emulated:sm_91"]
    assert record.state == "infra"


def test_a_preflight_that_stumbles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_run, "preflight", lambda *_: 1 // 0)
    run = run_of(LANE, "cpu", tmp_path / "out")
    assert "preflight: ZeroDivisionError" in run.preflight().reason
    holds("stumble", run.exit_code, tmp_path / "out")


# --- several GPUs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worker", "first"),
    [("", "012h"), ("gw0", "012h"), ("gw1", "102h"), ("gw2", "012h"), ("gw13", "102h"), ("x", "012h")],
)
def test_workers_share_equal_gpus_out(worker: str, first: str) -> None:
    """Two of one kind, one of another: who is first of its target changes, and where a target stands does not."""
    gpus = [Device(str(n), target, "executed") for n, target in enumerate(("gfx942", "gfx942", "gfx950"))]
    devices = [*gpus, Device("h", "host", "executed")]
    found = _shared_out(devices, worker)
    assert "".join(d.id for d in found) == first
    assert [d.target for d in found] == ["gfx942", "gfx942", "gfx950", "host"]
