"""Who runs what: shards are even, a kernel stays in one, and every machine makes the same plan."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrowgauge.ci import lanes, splitting
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import JOURNAL, PLAN, RUN, Cell, Plan, RunRecord, State, write_json
from narrowgauge.contracts.errors import BadInput

pytestmark = pytest.mark.meta

SECONDS = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0, 100), min_size=1)


def loads(shard: dict[str, int], seconds: dict[str, float]) -> dict[int, float]:
    """Seconds by shard."""
    found: dict[int, float] = defaultdict(float)
    for name, number in shard.items():
        found[number] += seconds[name]
    return found


def cell(kernel: str, number: int, target: str = "sm_90", operation: str = "cast") -> Cell:
    name = f"t.py::test_cell[{number}-{kernel}-{target}]"
    return Cell(name, 0, operation, "ieee", "float32", "float16", "edges", kernel, "me", True, target)


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_the_longest_goes_first_to_the_shard_that_has_least() -> None:
    # 5 to the first, 4 to the second, 3 to the second (it has less), the other 3 to the first.
    assert splitting.split("abcd", {"a": 5, "b": 4, "c": 3, "d": 3}, 2) == {"a": 1, "b": 2, "c": 2, "d": 1}


def test_an_id_that_was_never_measured_counts_as_the_average() -> None:
    # The average of 6 and 2 is 4: 6 to the first, both fours to the second, 2 to the first. Were they taken for
    # nothing, 2 would go to the second.
    assert splitting.split("abcd", {"a": 6, "b": 2, "elsewhere": 600}, 2) == {"a": 1, "c": 2, "d": 2, "b": 1}


def test_tests_that_take_no_time_are_spread() -> None:
    ids = [f"t{n}" for n in range(10)]
    assert Counter(splitting.split(ids, dict.fromkeys(ids, 0.0), 2).values()) == {1: 5, 2: 5}


def test_one_shard_has_all() -> None:
    assert splitting.split("ab", {}, 1) == {"a": 1, "b": 1}


def test_no_shards_are_refused() -> None:
    with pytest.raises(BadInput, match="0 shards; expected at least 1"):
        splitting.split("ab", {}, 0)


# --- over everything -------------------------------------------------------------------------------------------------


@given(SECONDS, st.integers(2, 5))
def test_no_shard_has_more_than_the_mean_and_the_longest(seconds: dict[str, float], shards: int) -> None:
    """What is dealt out last goes to the shard that has least, so at most the mean; it is at most the longest."""
    shard = splitting.split(list(seconds), seconds, shards)
    assert set(shard) == set(seconds)
    assert set(shard.values()) <= set(range(1, shards + 1))
    whole = {name: s + splitting.OVERHEAD for name, s in seconds.items()}
    # 1e-9: sums of at most 39 doubles below 101 are off by less than 39 * 39 * 101 * 2^-53
    assert max(loads(shard, whole).values()) <= sum(whole.values()) / shards + max(whole.values()) + 1e-9


@given(SECONDS, st.integers(2, 5), st.randoms())
def test_every_machine_makes_the_same_plan(seconds: dict[str, float], shards: int, random: Random) -> None:
    shuffled = list(seconds)
    random.shuffle(shuffled)
    together = {name: name[0] for name in seconds}
    first = splitting.split(sorted(seconds), seconds, shards, together)
    assert splitting.split(shuffled, {n: seconds[n] for n in shuffled}, shards, together) == first


# --- kernels stay together -------------------------------------------------------------------------------------------


def test_a_kernel_is_compiled_on_one_machine(tmp_path: Path) -> None:
    cells = [cell(f"k{k}", n, target) for k in range(20) for n in range(5) for target in ("sm_90", "sm_100")]
    placed = splitting.assign(cells, "cuda", 3, tmp_path)
    assert [c.id for c in placed] == [c.id for c in cells]
    machines = defaultdict(set)
    for c in placed:
        machines[c.kernel, c.target].add(c.shard)
    assert {len(m) for m in machines.values()} == {1}
    # 40 pieces of five tests to three shards: 14, 13 and 13 pieces.
    assert sorted(Counter(c.shard for c in placed).values()) == [65, 65, 70]


def test_a_kernel_that_is_too_long_for_one_is_dealt_out(tmp_path: Path) -> None:
    placed = splitting.assign([cell("only", n) for n in range(9)], "cuda", 3, tmp_path)
    assert Counter(c.shard for c in placed) == {1: 3, 2: 3, 3: 3}


def test_what_was_measured_is_of_the_target_kernel_and_operation(tmp_path: Path) -> None:
    cells = [cell("slow", 0), cell("slow", 0, "sm_100"), cell("slow", 1, operation="quantize"), cell("fast", 0)]
    known = splitting.Durations({"sm_90": {"slow/cast": 7.0, "fast/cast": 1.0}})
    assert known.of(cells) == {cells[0].id: 7.0, cells[3].id: 1.0}


# --- stored durations ------------------------------------------------------------------------------------------------


def results(folder: Path, rows: dict[str, tuple[str, float]], target: str = "sm_90", state: State = "finished") -> Path:
    """A results directory: by id the kernel, and seconds."""
    folder.mkdir()
    record = RunRecord("cuda", target, 1, 1, 1, "smoke", state, "2026-11-30T01:00:00+00:00")
    write_json(folder / RUN, record.to_json())
    write_json(folder / PLAN, Plan("cuda", target, "smoke", 1, ()).to_json())
    events = []
    for name, (kernel, seconds) in rows.items():
        row = Row(
            name, "cast", "ieee", "float32", "float16", "edges", kernel, "me", True, target, "cuda:0", "executed",
            "torch", "passed",
        )  # fmt: skip
        events.append({"event": "end", "id": name, "outcome": "passed", "seconds": seconds, "row": row.to_json()})
    (folder / JOURNAL).write_text("".join(json.dumps(e) + "\n" for e in events))
    return folder


def test_durations_are_means_of_a_night_and_other_targets_keep_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = f"--out={tmp_path}"
    first = results(tmp_path / "a", {"1": ("k", 1.0), "2": ("k", 2.0), "3": ("other", 0.12345)})
    second = results(tmp_path / "b", {"4": ("k", 6.0)})
    third = results(tmp_path / "c", {"5": ("k", 5.0)}, target="sm_100")
    assert splitting.main([str(third), out]) == 0
    assert splitting.main([str(first), str(second), out]) == 0
    assert "4 tests" in capsys.readouterr().out
    # (1 + 2 + 6) / 3 over both shards
    assert splitting.load("cuda", tmp_path).seconds == {
        "sm_90": {"k/cast": 3.0, "other/cast": 0.123},
        "sm_100": {"k/cast": 5.0},
    }


def test_a_run_that_did_not_finish_says_nothing_of_durations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = results(tmp_path / "a", {"1": ("k", 1.0)}, state="started")
    assert splitting.main([str(lost), f"--out={tmp_path}"]) == 4
    assert "is not of a run that finished" in capsys.readouterr().err


def test_a_damaged_journal_says_nothing_of_durations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = results(tmp_path / "a", {"1": ("k", 1.0)})
    with (damaged / JOURNAL).open("a") as file:
        file.write('{"event": "end"')
    assert splitting.main([str(damaged), f"--out={tmp_path}"]) == 4
    assert "ends in the middle of a line" in capsys.readouterr().err
    assert not (tmp_path / "cuda.json").exists()


def test_a_lane_that_was_never_measured_has_no_durations(tmp_path: Path) -> None:
    assert splitting.load("cuda", tmp_path).seconds == {}


@pytest.mark.parametrize(
    "text", ["{", "[" * 200_000, "[]", '{"schema": "other"}', '{"schema": "narrowgauge.durations/1", "seconds": 1}']
)
def test_damaged_durations_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cuda.json").write_text(text)
    with pytest.raises(BadInput, match="cannot be read"):
        splitting.load("cuda", tmp_path)


def test_stored_durations_are_of_lanes_and_small() -> None:
    known = lanes.load()
    for path in splitting.OWN.glob("*.json"):
        assert path.stem in known
        assert splitting.load(path.stem).seconds
        assert path.stat().st_size < 200_000, "durations are kept by kernel, not by test"
