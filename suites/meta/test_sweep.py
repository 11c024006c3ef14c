"""Sweeps: every pattern once, differences as ranges, records that can be taken up, faults named."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices.device import Device
from narrowgauge.reference.compare import compare
from narrowgauge.reference.interval import Interval
from narrowgauge.suites import sweep_record
from narrowgauge.suites.meta import second_derivation
from narrowgauge.suites.meta.command_sets import as_json, ends, refused
from narrowgauge.suites.meta.killer_policies import PLAIN
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.sweep import Steps, sweep, verdict
from narrowgauge.suites.sweep_record import Record, Span, Stretch, blocks, joined, share

pytestmark = [pytest.mark.meta, needs_torch]

HALF = Claim.parse("cast/ocp_saturate/bfloat16/float8_e4m3fn")
FULL = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
WHOLE: Span = (0, (1 << 16) - 1)
KERNELS = """
import os
import torch
from narrowgauge import Cast, kernel

def marked(function):
    return kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], ["float32", "bfloat16"])(function)

@marked
def right(x, format):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn)

@marked
def overflows(x, format):
    codes = right(x, format).view(torch.uint8)
    return torch.where(x.abs() > 464, torch.full_like(codes, 0x7F), codes)

@marked
def one_wrong(x, format):
    codes = right(x, format).view(torch.uint8)
    return torch.where(x == 1.0, torch.full_like(codes, 0x39), codes)

@marked
def crashes_above_one(x, format):
    if (x == 1.0).any():
        os.abort()
    return right(x, format)

@marked
def too_wide(x, format):
    return right(x, format).view(torch.uint8).to(torch.int32) + 256 * (x == 2.0)

@marked
def half_as_many(x, format):
    return right(x, format)[::2]
"""


@pytest.fixture(scope="module")
def plug(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sweep") / "plug.py"
    path.write_text(KERNELS)
    return str(path)


# --- what is expected ------------------------------------------------------------------------------------------------


def test_a_filled_block_is_what_exact_fractions_give() -> None:
    """The whole of bfloat16, in blocks of odd sizes."""
    want = second_derivation.cast_codes(np.arange(1 << 16), "bfloat16", "float8_e4m3fn", PLAIN)
    steps = Steps(HALF)
    got = np.concatenate([steps.filled(first, min(977, (1 << 16) - first)) for first in range(0, 1 << 16, 977)])
    nan = steps.nan[got] & steps.nan[want]
    assert (got[~nan] == want[~nan]).all()
    assert nan.sum() == 2 * 127


@given(st.integers(0, (1 << 32) - 5000), st.integers(1, 5000))
def test_a_filled_block_is_each_pattern_alone(first: int, count: int) -> None:
    steps = Steps(FULL)
    assert (steps.filled(first, count) == steps.at(np.arange(first, first + count))).all()


@given(st.integers(0, (1 << 16) - 400), st.data())
def test_ranges_are_the_elements_that_differ(first: int, data: st.DataObject) -> None:
    """Against the judge's own comparison: any codes, NaN of either sign among them."""
    steps = Steps(HALF)
    want = steps.filled(first, 300)
    changes = data.draw(st.dictionaries(st.integers(0, 299), st.integers(0, 255)))
    got = want.copy()
    got[list(changes)] = list(changes.values())
    expected = {"codes": Interval.exactly(Coded("float8_e4m3fn", want))}
    differs = compare({"codes": Coded("float8_e4m3fn", got)}, expected).mask("codes")
    ranges = steps.apart(first, got)
    marked = np.zeros(300, np.bool_)
    for r in ranges:
        part = slice(r.first - first, r.last - first + 1)
        assert (got[part] == r.got).all()
        assert (want[part] == r.want).all()
        marked[part] = True
    assert (marked == differs).all()


@pytest.mark.parametrize("claim", ["quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fn"])
def test_a_quantizer_is_refused(claim: str) -> None:
    with pytest.raises(BadInput, match="only a cast"):
        Steps(Claim.parse(claim))


def test_a_source_of_64_bits_is_refused() -> None:
    with pytest.raises(BadInput, match="at most 32 bits"):
        Steps(Claim.parse("cast/ocp_saturate/float64/float8_e4m3fn"))


# --- spans -----------------------------------------------------------------------------------------------------------

SPAN = st.tuples(st.integers(0, 10_000), st.integers(0, 3_000)).map(lambda s: (s[0], s[0] + s[1]))


@given(SPAN, st.integers(1, 50))
def test_shards_are_the_whole(span: Span, of: int) -> None:
    parts = [share(span, number, of) for number in range(1, of + 1)]
    assert [p for first, last in parts for p in range(first, last + 1)] == list(range(span[0], span[1] + 1))


@given(SPAN, st.lists(SPAN))
def test_what_is_left_is_what_is_not_done(span: Span, done: list[Span]) -> None:
    record = Record({}, joined(done))
    left = [p for first, last in record.left(span) for p in range(first, last + 1)]
    assert left == [p for p in range(span[0], span[1] + 1) if not any(a <= p <= b for a, b in done)]


def test_blocks_are_the_same_however_a_sweep_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_record, "BLOCK", 100)
    assert blocks([(50, 250)]) == [(50, 99), (100, 199), (200, 250)]
    assert blocks([(100, 199), (300, 300)]) == [(100, 199), (300, 300)]


# --- running ---------------------------------------------------------------------------------------------------------


def swept(host: Device, plug: str, kernel: str, span: Span = WHOLE, claim: Claim = HALF, workers: int = 1) -> Record:
    (plugged,) = (p for p in host.describe(plug) if p.kernel.name == kernel)
    record, steps = Record({"kernel": kernel, "device": "host"}), Steps(claim)
    sweep(plugged, steps, host, [span], record, workers=workers)
    return record


@pytest.mark.parametrize("workers", [1, 2])
def test_a_right_kernel_is_equal(host: Device, plug: str, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_record, "BLOCK", 5000)
    record = swept(host, plug, "right", workers=workers)
    assert (record.done, record.differing, record.stopped) == ([WHOLE], 0, "")
    assert verdict(record, Steps(HALF)).result == "passed"


def test_ranges_and_the_fault_that_explains_them(host: Device, plug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """464 is 0x43e8 in bfloat16; the next one up overflows, to the largest finite; then infinity."""
    monkeypatch.setattr(sweep_record, "BLOCK", 4096)  # so that blocks cut the ranges
    record = swept(host, plug, "overflows", workers=2)
    assert record.ranges == [Stretch(0x43E9, 0x7F80, 0x7F, 0x7E), Stretch(0xC3E9, 0xFF80, 0x7F, 0xFE)]
    (best,) = verdict(record, Steps(HALF)).explanations
    assert best.faults == ("cast.overflow_to_nan + cast.infinity_to_nan",)
    assert best.complete


def test_one_wrong_pattern_of_many_is_found(host: Device, plug: str) -> None:
    record = swept(host, plug, "one_wrong", (0x3F000000, 0x3FFFFFFF), FULL)
    assert record.ranges == [Stretch(0x3F800000, 0x3F800000, 0x39, 0x38)]
    assert verdict(record, Steps(FULL)).result == "failed"


def test_a_crash_stops_the_sweep_and_is_not_done(host: Device, plug: str) -> None:
    record = swept(host, plug, "crashes_above_one", (0x3F000000, 0x3FFFFFFF), FULL)
    assert record.done == [(0x3F000000, 0x3F7FFFFF)]
    assert record.stopped == "patterns 0x3f800000 to 0x3fbfffff: crashed: signal SIGABRT"


def test_numbers_that_are_no_codes(host: Device, plug: str) -> None:
    record = swept(host, plug, "too_wide")
    assert record.ranges == [Stretch(0x4000, 0x4000, 0x140, 0x40)]
    assert verdict(record, Steps(HALF)).differences == {"not_a_code": 1}


def test_a_wrong_shape(host: Device, plug: str) -> None:
    assert "misshaped" in swept(host, plug, "half_as_many").stopped


def test_more_ranges_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_record, "MOST_RANGES", 3)
    record = Record({})
    record.add((0, 9), [Stretch(k, k + 1, 1, 0) for k in (0, 4, 8)][:2])
    record.add((10, 19), [Stretch(k, k + 1, 1, 0) for k in (10, 14, 18)])
    assert (len(record.ranges), record.dropped, record.differing) == (3, {10: 4}, 10)


@given(SPAN, st.lists(SPAN), st.lists(SPAN))
def test_what_is_within_a_span(span: Span, done: list[Span], found: list[Span]) -> None:
    """A record of many spans says of one what a record of that one would."""
    record = Record({}, joined(done), [Stretch(a, b, 1, 0) for a, b in joined(found)], {5: 7})
    part, inside = record.within(span), set(range(span[0], span[1] + 1))
    assert {p for a, b in part.done for p in range(a, b + 1)} == inside & {p for a, b in done for p in range(a, b + 1)}
    of_ranges = {p for r in part.found for p in range(r.first, r.last + 1)}
    assert of_ranges == inside & {p for a, b in found for p in range(a, b + 1)}
    assert part.dropped == ({5: 7} if 5 in inside else {})


# --- the command -----------------------------------------------------------------------------------------------------

SWEEP = ["sweep", "--format=e4m3fn", "--source=bfloat16", "--device=host", "--workers=1"]


def test_equal(plug: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends([*SWEEP, "--kernels", plug, "--kernel", "right"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("equal: right (bfloat16 to float8_e4m3fn) on host, all 65,536 patterns from 0x0 to 0xffff\n")


def test_a_library_is_held_to_another_policy(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json([*SWEEP, "--kernel", "torch", "--policy", "ocp_nonsaturate"], capsys, code=1)
    assert data["kernel"] == "torch_eager"
    assert data["differing"] == 2 * (0x7F80 - 0x43E8)
    assert data["faults"][0] == {"left": 0, "names": ["cast.overflow_saturates + cast.infinity_saturates"]}
    assert not data["equal"]


def test_differences_are_printed_with_cause(plug: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends([*SWEEP, "--kernels", plug, "--kernel", "one_wrong"]) == 1
    out = capsys.readouterr().out
    assert "[UNEXPLAINED] one_wrong (bfloat16 to float8_e4m3fn) on host" in out
    assert "1 of 65,536 patterns differ, in ranges: 1" in out
    assert "0x3f80    1       1      1.125 (0x39)  1 (0x38)" in out


def test_shards_and_a_record_make_the_whole(plug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three shards of one record are what one sweep finds; the fourth run has nothing left to do."""
    state = tmp_path / "state.json"
    command = [*SWEEP, "--kernels", plug, "--kernel", "overflows"]
    sizes = {}
    for number in (3, 1, 2):
        data = as_json([*command, "--state", str(state), "--shard", f"{number}/3"], capsys, code=1)
        assert data["done"] == [data["range"]]
        sizes[number] = data["differing"]
    assert sum(sizes.values()) == (0x7F80 - 0x43E8) * 2
    assert sizes[1] == 0x5555 - 0x43E9, "each speaks of its own third"
    whole = as_json([*command, "--state", str(state)], capsys, code=1)
    assert whole["done"] == [[0, 0xFFFF]]
    assert whole["ranges"] == as_json(command, capsys, code=1)["ranges"]
    assert "overflow" in whole["faults"][0]["names"][0]


def test_a_stopped_sweep_is_taken_up(plug: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What came before the crash is kept; the pattern that crashes is tried again."""
    state = str(tmp_path / "state.json")
    command = [*SWEEP, "--kernels", plug, "--kernel", "crashes_above_one", "--state", state]
    assert as_json([*command, "--range", "0:0x3f7f"], capsys)["equal"]
    data = as_json(command, capsys, code=1)
    assert data["done"] == [[0, 0x3F7F]]
    assert data["left"] == [[0x3F80, 0xFFFF]]
    assert "crashed" in data["stopped"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no record of a sweep"),
        ("[]", "is no record of a sweep"),
        ('{"schema": "other"}', "has schema 'other'"),
        ('{"schema": "narrowgauge.sweep/1"}', "is no record of a sweep"),
        (
            '{"schema": "narrowgauge.sweep/1", "identity": {"kernel": "left"}, "done": [], "ranges": [], '
            '"dropped": []}',
            "is the record of another sweep (kernel 'left', now 'right')",
        ),
    ],
    ids=["empty", "list", "schema", "nothing", "another"],
)
def test_a_record_that_is_none_is_refused(content: str, message: str, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(content)
    with pytest.raises(BadInput, match=re.escape(message)):
        Record.read(state, {"kernel": "right"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kernel", "torch", "--range", "5:1"], "go from 0x0 to 0xffff, upward"),
        (["--kernel", "torch", "--range", "all"], "expected FIRST:LAST"),
        (["--kernel", "torch", "--range", "0:0x10000"], "go from 0x0 to 0xffff"),
        (["--kernel", "torch", "--shard", "0/4"], "K from 1 to N"),
        (["--kernel", "torch", "--shard", "half"], "expected K/N"),
        (["--kernel", "torch", "--workers", "0"], "expected 1 or more"),
        (["--kernel", "torch", "--format", "e4m3x"], "format 'e4m3x'"),
        (["--kernel", "torhc"], "did you mean"),
        (["--kernel", "torch", "--policy", "fnuz_saturate"], "does not fit float8_e4m3fn"),
        (["--kernel", "torch", "--source", "float8_e5m2"], "makes no claim for float8_e5m2 to float8_e4m3fn"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, list) else "",
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused([*SWEEP, *arguments], capsys)


def test_progress_goes_to_stderr(
    plug: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_record, "BLOCK", 4096)
    assert ends([*SWEEP, "--kernels", plug, "--kernel", "right", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["equal"]
    assert captured.err.count(" of 65,536 patterns, 0 differ") == 8
