"""The benchmarks run and say what they measured; what they measure is no test."""

from __future__ import annotations

import pytest

from narrowgauge.benchmarks import casts, emulator
from narrowgauge.benchmarks.paired import Benchmark, measure
from narrowgauge.devices import discovery
from narrowgauge.suites.meta.command_sets import as_json, refused, said

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casts, "COUNT", 1000)
    monkeypatch.setattr(emulator, "COUNT", 1000)
    monkeypatch.setattr(emulator, "KERNELS", ())


def test_ratio_is_theirs_by_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle one of the rounds' ratios, the first round apart, by a clock of our own."""
    clock = iter([0, 9, 9, 10, *(t for start in (100, 200, 300) for t in (start, start + 2, start + 2, start + 12))])
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    measured = measure(Benchmark("a", "b", 40, lambda: None, lambda: None, 4), rounds=3)
    assert (measured.ratio, measured.rate) == (5.0, 20.0)


def test_every_narrow_format_is_measured_three_ways(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["bench", "--rounds", "1"], capsys)
    names = {m["name"] for m in data}
    assert {"float32 to float8_e4m3fn", "bfloat16 to float4_e2m1fn", "float8_e5m2fnuz to float32"} <= names
    assert len(names) == len(data) == 33
    assert all(m["ratio"] > 0 and m["rate"] > 0 for m in data)


def test_below_the_goal_is_said_and_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(casts, "BETWEEN_FLOAT32_AND_8_BITS", 1e9)
    assert " below " in said(["bench", "--rounds", "1", "-k", "float32 to float8_e4m3fn"], capsys)


@pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: nothing compiles for a target")
def test_the_emulator_is_measured_against_the_interpreter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "KERNELS", (("triton_native_fnuz", "float8_e4m3fnuz", ("gfx942",)),))
    (data,) = as_json(["bench", "--rounds", "1", "-k", "every bfloat16"], capsys)
    assert data["name"] == "every bfloat16 to float8_e4m3fnuz, triton_native_fnuz on gfx942"
    assert (data["peer"], data["goal"]) == ("Triton's interpreter", 1.0)
    assert min(data["ratio"], data["rate"]) > 0


def test_the_smoke_leg_is_one_number(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "smoke", lambda: 12.4)
    assert said(["bench", "--smoke"], capsys).strip() == "emulated cells of a default run, two workers: 12 s (goal: 90)"
    assert as_json(["bench", "--smoke"], capsys)["seconds"] == 12.4


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no benchmark has that in its name" in refused(["bench", "-k", "fp7"], capsys)
    assert "expected 1 or more" in refused(["bench", "--rounds", "0"], capsys)
