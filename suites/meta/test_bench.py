"""The benchmarks run and say what they measured; what they measure is no test."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.benchmarks import casts, census, emulator, kv, quantize, units
from narrowgauge.benchmarks.paired import Benchmark, Measured, measure
from narrowgauge.command import bench
from narrowgauge.contracts.coded import Coded
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.marks import needs_torch, needs_triton

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

CASES, CALLS, CENSUSES, MODELS = quantize.CASES, kv.CASES, census.CASES, units.CASES


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(casts, "COUNT", 1000)
    monkeypatch.setattr(census, "CASES", ())
    monkeypatch.setattr(census, "SIZE", 1 << 14)
    monkeypatch.setattr(census, "DRAWN", 1 << 11)
    monkeypatch.setattr(emulator, "COUNT", 1000)
    monkeypatch.setattr(emulator, "KERNELS", ())
    monkeypatch.setattr(kv, "TOKENS", 32)
    monkeypatch.setattr(kv, "CASES", ())
    monkeypatch.setattr(quantize, "SIDE", 64)
    monkeypatch.setattr(quantize, "CASES", ())
    monkeypatch.setattr(units, "CASES", ())


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


@needs_triton
def test_the_emulator_is_measured_against_the_interpreter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "KERNELS", (("triton_native_fnuz", "float8_e4m3fnuz", ("gfx942",)),))
    (data,) = as_json(["bench", "--rounds", "1", "-k", "every bfloat16"], capsys)
    assert data["name"] == "every bfloat16 to float8_e4m3fnuz, triton_native_fnuz on gfx942"
    assert (data["peer"], data["goal"]) == ("Triton's interpreter", 1.0)
    assert min(data["ratio"], data["rate"]) > 0


@needs_torch
def test_quantizers_are_measured_against_eager_torch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of torchao and torch is here; every case of the peer runs."""
    monkeypatch.setattr(quantize, "CASES", CASES)
    data = as_json(["bench", "--rounds", "1", "-k", "64 x 64"], capsys)
    assert [m["name"].partition(",")[0] for m in data] == [name for _, name in CASES]
    for m in data:
        assert m["peer"].startswith(("torchao ", "torch "))
        assert min(m["ratio"], m["rate"]) > 0


@needs_torch
def test_a_census_is_measured_against_amax(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case of the peer, cold and warm, and two processes against one."""
    monkeypatch.setattr(census, "CASES", CENSUSES)
    monkeypatch.setattr(census, "WORKERS", 1)  # a process takes its time to start
    data = as_json(["bench", "--rounds", "1", "-k", "census"], capsys)
    alone = [m for m in data if m["peer"] == "one process"]
    assert len(data) == len(CENSUSES) + len(alone) == 8
    assert {m["goal"] for m in alone} == {1.7}
    assert all(m["peer"].startswith("torch ") for m in data if m not in alone)
    assert all(min(m["ratio"], m["rate"], m["moved"]) > 0 for m in data)


@needs_torch
def test_caches_are_measured_against_index_put_and_gather(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes: of a copied element two are read and two written; of one in fp8 one is as much as half."""
    monkeypatch.setattr(kv, "CASES", CALLS)
    data = as_json(["bench", "--rounds", "1", "-k", "kv "], capsys)
    assert [m["goal"] for m in data] == [0, 0.3, 0, 0.5, 0, 0]
    moved = ("put", 4), ("put", 3), ("gather", 4), ("gather", 3), ("put", 3), ("gather", 3)
    for m, (operation, size) in zip(data, moved, strict=True):
        assert m["name"].startswith("kv ")
        assert m["name"].endswith(", 32 tokens")
        assert m["peer"].startswith("torch ")
        assert m["peer"].endswith(operation)
        assert m["moved"] == pytest.approx(size * m["rate"])
        assert m["ratio"] > 0


def test_bytes_a_second_are_said() -> None:
    measured = [Measured("a", "b", 2.0, 1e6, goal, None, moved) for goal, moved in ((0.3, 1.5e9), (0.0, None))]
    first, second = [line.plain for line in bench._table(measured).texts(160)][-2:]
    assert " 0.3 " in first
    assert " 1.5 " in first
    assert "2.00" in second
    assert " 0 " not in second


@pytest.mark.parametrize(("held", "times"), [(1.0, 2.0), (9.0, 10.0)])
def test_memory_is_the_input_and_the_most_that_is_held(held: float, times: float) -> None:
    """Work that holds so many arrays of the input's size at once, and another that it lets go before."""
    x = Coded("float32", np.zeros((256, 1024), np.uint32))

    def work() -> None:
        np.empty(x.data.nbytes // 2, np.uint8)
        np.empty(int(held * x.data.nbytes), np.uint8)

    assert quantize.peak(work, x) == pytest.approx(times, abs=0.01)


def test_memory_is_said() -> None:
    measured = [Measured("a", "b", 2.0, 1e6, 1.0, peak) for peak in (None, 1.5, 6.0)]
    text = " ".join(line.plain for line in bench._table(measured).texts(160))
    assert "1.5 × input " in text
    assert "6.0 × input above" in text


def test_the_smoke_leg_is_one_number(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "smoke", lambda: 12.4)
    assert said(["bench", "--smoke"], capsys).strip() == "emulated cells of a default run, two workers: 12 s (goal: 90)"
    assert as_json(["bench", "--smoke"], capsys)["seconds"] == 12.4


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no benchmark has that in its name" in refused(["bench", "-k", "fp7"], capsys)
    assert "expected 1 or more" in refused(["bench", "--rounds", "0"], capsys)


def test_models_of_units_are_held_to_mmasim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed there is nothing to measure; where it is, each case asks it for the same product."""
    asked: list[str] = []

    class Peer:
        def __init__(self, *given: object) -> None:
            asked.append(f"made {given}")

        def ask(self, word: str) -> str:
            asked.append(word)
            return "mmasim 0"

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(units, "CASES", MODELS)
    monkeypatch.setattr(units, "Peer", Peer)
    monkeypatch.setattr(units, "ROWS", 3)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with units.benchmarks() as found:
        assert found == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("shutil.which", lambda name: name)
    with units.benchmarks() as found:
        measured = measure(found[0], 1)
        assert [b.name.split(",")[0] for b in found] == ["hopper.qgmma", "cdna3.mfma_fp8", "ampere.hmma"]
    assert (measured.peer, found[0].elements) == ("mmasim 0", 3 * 128 * 512)
    assert asked[-3:] == ["run hopper", "run hopper", "closed"]
