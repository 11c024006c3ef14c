"""The gate on shards: which is lost, which is damaged, what they must have in common."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.gate.night import Expect
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, State
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, LANES, Case, files_of, night, red, said

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_the_lost_shard_is_named(lost: int, tmp_path: Path) -> None:
    case = night()
    gone = case.shards.pop(f"cuda/sm_90 {lost}")
    report = case.judge(tmp_path)
    assert red(report) == [("missing_shard", f"cuda/sm_90 {lost}/3")]
    assert (
        said(report, "missing_shard") == f"shard {lost} of 3 left nothing: {len(gone.ids)} planned tests have no result"
    )


def test_the_runs_say_how_many_shards_there_are(tmp_path: Path) -> None:
    """lanes.toml has two for cuda; --expect without a number, and no --expect, take the runs' word."""
    for number, expects in enumerate(([Expect("cuda", "sm_90"), Expect("cpu", "cpu")], [])):
        case = night()
        case.expects = expects
        assert case.judge(tmp_path / f"whole-{number}").exit == Exit.OK
        case = night()
        case.expects = expects
        del case.shards["cuda/sm_90 3"]
        assert red(case.judge(tmp_path / f"lost-{number}")) == [("missing_shard", "cuda/sm_90 3/3")]


def test_a_place_of_which_nothing_came_has_as_many_shards_as_its_lane(tmp_path: Path) -> None:
    case = night(places=["cpu/cpu"])
    case.expects[0] = Expect("cuda", "sm_90")
    assert said(case.judge(tmp_path), "missing_lane") == (
        f"nothing came of cuda/sm_90: {LANES['cuda'].shards} shards were expected"
    )


def test_other_shards_than_were_asked_for(tmp_path: Path) -> None:
    case = night()
    case.expects[0] = Expect("cuda", "sm_90", 2)
    assert ("mixed", "cuda/sm_90") in red(case.judge(tmp_path))


def test_no_results_at_all(tmp_path: Path) -> None:
    case = Case({}, expects=[])
    assert [k for k, _ in red(case.judge(tmp_path))] == ["zero_tests"]
    case = night(places=[])
    assert [k for k, _ in red(case.judge(tmp_path))] == ["missing_lane", "missing_lane"]


@pytest.mark.parametrize("name", ["depth", "plan", "golden", "narrowgauge", "commit", "torch", "triton"])
def test_shards_of_a_place_must_have_that_in_common(name: str, tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    if name in files.run.versions:
        files.run = replace(files.run, versions=files.run.versions | {name: "1.0"})
    elif name == "depth" and files.plan is not None:
        files.plan = replace(files.plan, depth="exhaustive")
        files.run = replace(files.run, depth="exhaustive", plan=files.plan.digest)
    elif name == "plan" and files.plan is not None:
        files.plan = replace(files.plan, cells=(*files.plan.cells[:-1], replace(files.plan.cells[-1], rule="other")))
        files.run = replace(files.run, plan=files.plan.digest)
    else:
        change: dict[str, Any] = {name: "other"}
        files.run = replace(files.run, **change)
    report = case.judge(tmp_path)
    assert {kind for kind, _ in red(report)} == {"mixed"}
    assert any(f"{name} differs" in f.said and "2/3" in f.said for f in report.red)


def test_a_lost_torch_is_a_difference_too(tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, versions={"python": "3.12"})
    assert sorted(f.said for f in case.judge(tmp_path).red) == [
        "torch differs: 2.13.0 in 1/3, none in 2/3, 2.13.0 in 3/3",
        "triton differs: 3.9.0 in 1/3, none in 2/3, 3.9.0 in 3/3",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lane": "rocm"}, "is of another lane than run.json"),
        ({"target": "sm_89"}, "is of another target than run.json"),
        ({"depth": "smoke"}, "is of another depth than run.json"),
        ({"shards": 4}, "is of another shards than run.json"),
    ],
)
def test_a_plan_of_another_run(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    case = night()
    files = case.shards["cpu/cpu 1"]
    assert files.plan is not None
    files.plan = replace(files.plan, **change)
    files.run = replace(files.run, plan=files.plan.digest)
    assert words in said(case.judge(tmp_path), "damaged")


def test_a_plan_that_is_not_the_one_that_the_run_names(tmp_path: Path) -> None:
    case = night()
    case.shards["cpu/cpu 1"].run = replace(case.shards["cpu/cpu 1"].run, plan="0" * 64)
    assert f"{PLAN} is not the plan that run.json names" in said(case.judge(tmp_path), "damaged")


@pytest.mark.parametrize("shard", [0, 2])
def test_a_test_that_no_shard_has(shard: int, tmp_path: Path) -> None:
    case = night()
    files = case.shards["cpu/cpu 1"]
    assert files.plan is not None
    files.plan = replace(files.plan, cells=(*files.plan.cells[:-1], replace(files.plan.cells[-1], shard=shard)))
    files.drop(files.plan.cells[-1].id, "begin", "end")
    files.run = replace(files.run, plan=files.plan.digest)
    assert "gives 1 tests to shards that are none" in said(case.judge(tmp_path), "damaged")


def test_runs_that_do_not_agree_how_many_there_are(tmp_path: Path) -> None:
    """The most that one says: what might be missing is told."""
    case = night(places=["cuda/sm_90"])
    case.shards = {"one": files_of("cuda/sm_90", 1, 3), "two": files_of("cuda/sm_90", 2, 2)}
    case.expects, case.waivers = [Expect("cuda", "sm_90")], []
    assert ("missing_shard", "cuda/sm_90 3/3") in red(case.judge(tmp_path))


def test_a_changed_plan_is_not_what_the_place_is_held_to(tmp_path: Path) -> None:
    """Of the first shard a test of another one is taken out of the file; nothing is gone for that."""
    first, second = night(), night(DAY + datetime.timedelta(days=1))
    second.history = first.judge(tmp_path / "1").history

    def spoil(folder: Path) -> None:
        path = folder / "cuda-sm_90 1" / PLAN
        data = json.loads(path.read_text())
        data["cells"] = [cell for cell in data["cells"] if cell["shard"] != 2]
        path.write_text(json.dumps(data))

    second.spoil = spoil
    assert red(second.judge(tmp_path / "2")) == [("damaged", "cuda/sm_90 1/3")]


def test_files_that_a_finished_run_did_not_seal(tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].seal = False
    assert said(case.judge(tmp_path), "damaged").count("is not sealed") == 3


@pytest.mark.parametrize("lost", [[JOURNAL], [JOURNAL, LEDGER, PLAN], [PLAN], [LEDGER]])
def test_what_follows_of_a_lost_file_is_not_told_apart(lost: list[str], tmp_path: Path) -> None:
    case = night()

    def spoil(folder: Path) -> None:
        for name in lost:
            (folder / TWO.replace("/", "-") / name).unlink()

    case.spoil = spoil
    report = case.judge(tmp_path)
    assert red(report) == [("damaged", "cuda/sm_90 2/3")]
    assert ("7 of 7 planned tests have no result" in said(report, "damaged")) == (lost == [JOURNAL])


@pytest.mark.parametrize(
    "change",
    [
        {"shard": 0},
        {"shard": 4},
        {"started": "noon"},
        {"ended": "noon"},
        {"started": ""},
        {"shard": 2, "shards": 10_000},
    ],
)
def test_a_record_that_cannot_be_belongs_to_no_place(change: dict[str, Any], tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, **change)
    report = case.judge(tmp_path)
    assert {kind for kind, _ in red(report)} == {"damaged", "missing_shard"}
    assert f"{next(iter(change))} is not as it must be" in said(report, "damaged")


@pytest.mark.parametrize(("state", "kind"), [("stopped", "stopped"), ("started", "lost")])
def test_what_was_running_is_named(state: State, kind: str, tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    running, never = files.ids[-2:]
    files.drop(running, "end")
    files.drop(never, "begin", "end")
    files.run = replace(files.run, state=state, reason="no test began or ended for 600 s")
    report = case.judge(tmp_path)
    assert red(report) == [(kind, "cuda/sm_90 2/3")]
    words = (
        f"no test began or ended for 600 s; 2 of {len(files.ids)} planned tests have no result; running were {running}"
    )
    assert said(report, kind) == words


def test_a_failure_in_a_run_that_was_lost_is_told_as_well(tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    files.fail(files.ids[0])
    files.drop(files.ids[-1], "end")
    files.run = replace(files.run, state="started", exit_code=None)
    report = case.judge(tmp_path)
    assert [kind for kind, _ in red(report)] == ["lost", "new_failure"]
    assert report.exit == Exit.FAILED


def test_an_expectation_is_read() -> None:
    for lane in LANES.values():
        for target in lane.targets:
            assert Expect.parse(f"{lane.name}/{target}", LANES) == Expect(lane.name, target, None)
            assert Expect.parse(f"{lane.name}/{target}x12", LANES) == Expect(lane.name, target, 12)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cuda",
        "cuda/",
        "/sm_90",
        "cudda/sm_90",
        "cuda/gfx942",
        "rocm/gfx9",
        "cuda/sm_90x0",
        "cuda/sm_90x",
        "cuda/sm_90x10000",
        "cuda/sm_90x9999999999",
    ],
)
def test_an_expectation_that_names_no_place(text: str) -> None:
    with pytest.raises(BadInput):
        Expect.parse(text, LANES)
