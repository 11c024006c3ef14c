"""Gathering of Allure results, on nights that are made here: nothing that was planned is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.allure.gather import RESULTS, gather, without_well, write
from narrowgauge.ci.allure.identity import Identity
from narrowgauge.ci.allure.results import fault_of
from narrowgauge.ci.records import PLAN, Check
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.message import code_in
from narrowgauge.suites.meta.allure_nights import cell, message, night, result, row

pytestmark = pytest.mark.meta


def test_nothing_that_was_planned_vanishes(tmp_path: Path) -> None:
    """A passed cell, one that began and never ended, one whose worker died, one that never began, one whose file is
    gone, and a shard of which nothing is left."""
    a, b, c, d, e = (cell(case) for case in "abcde")
    other = cell("f", shard=2)
    ends = {a.id: row(a), b.id: None, c.id: "worker 'gw0' crashed", e.id: row(e, result="failed", faults=("cast.x",))}
    folder = night(tmp_path / "n", (a, b, c, d, e, other), ends, files={a.id: "passed"}, reason="out of time")
    found = gather([folder])
    assert {name: found.results[name]["status"] for name in found.results} == {
        a.id: "passed", b.id: "broken", c.id: "broken", d.id: "broken", e.id: "failed", other.id: "broken",
    }  # fmt: skip
    codes = {name: code_in(message(found.results, name)) for name in (b.id, c.id, d.id, e.id, other.id)}
    assert codes == {
        b.id: "LOST", c.id: "LOST", d.id: "NOT-BEGUN", e.id: "NO-RESULT", other.id: "NOT-BEGUN",
    }  # fmt: skip
    assert "out of time" in message(found.results, b.id)
    assert "worker 'gw0' crashed" in message(found.results, c.id)
    assert "cast.x" in message(found.results, e.id)
    assert "shard cuda/sm_90 2/2 left nothing" in message(found.results, other.id)
    assert sorted(found.stubs) == sorted([b.id, c.id, d.id, e.id, other.id])


def test_a_stub_is_who_the_cell_would_have_been(tmp_path: Path) -> None:
    one = cell("a")
    stub = gather([night(tmp_path / "n", (one,), {}, state="started")]).results[one.id]
    assert stub["statusDetails"]["message"].endswith("planned and never begun; its run never came to an end")
    identity = Identity(one)
    assert (stub["testCaseId"], stub["historyId"]) == (identity.test_case_id, identity.history_id)
    assert stub["parameters"] == identity.parameters
    assert ("environment", "nvidia-sm_90") in [(each["name"], each["value"]) for each in stub["labels"]]


def test_a_cut_result_file_is_told_and_replaced(tmp_path: Path) -> None:
    one = cell("a")
    folder = night(tmp_path / "n", (one,), {one.id: row(one)}, files={})
    (folder / RESULTS / "x-result.json").write_text(json.dumps(result(one.id, "passed"))[:30])
    found = gather([folder])
    assert code_in(message(found.results, one.id)) == "NO-RESULT"
    assert found.results[one.id]["status"] == "passed"
    assert any("x-result.json is cut" in note for note in found.notes)


def test_the_worse_of_two_results_is_kept(tmp_path: Path) -> None:
    """A pass beside a failure is no repair, in whichever order they come."""
    one = cell("a")
    for number, words in enumerate((("passed", "failed"), ("failed", "passed"))):
        folder = night(tmp_path / str(number), (one,), {one.id: row(one)}, files={})
        for place, word in enumerate(words):
            (folder / RESULTS / f"{place}-result.json").write_text(json.dumps(result(one.id, word)))
        found = gather([folder])
        assert found.results[one.id]["status"] == "failed"
        assert any("more than one result" in note for note in found.notes)


@pytest.mark.parametrize(
    ("end", "file", "status"),
    [
        ({"result": "failed", "faults": ("cast.ties_away",)}, "passed", "failed"),
        ({"result": "waived"}, "passed", "failed"),
        ({"result": "not_executed"}, "passed", "skipped"),
        ("teardown failed", "passed", "broken"),
        ({}, "failed", "failed"),
    ],
)
def test_no_result_file_says_better_than_the_journal(
    end: dict[str, Any] | str, file: str, status: str, tmp_path: Path
) -> None:
    """A file of another night, or one that was changed. Of a file that says worse nothing is taken away."""
    one = cell("a")
    ended = end if isinstance(end, str) else row(one, **end)
    found = gather([night(tmp_path / "n", (one,), {one.id: ended}, files={one.id: file})])
    assert found.results[one.id]["status"] == status
    told = file != status
    assert found.notes == ([f"{one.id}: its result file says {file}, and the journal {status}"] if told else [])
    assert (code_in(message(found.results, one.id)) == "NO-RESULT") is told


@pytest.mark.parametrize(
    "odd", [{"labels": ["x"]}, {"labels": 3}, {"steps": [1]}, {"attachments": [[]]}, {"steps": [{"steps": 1}]}]
)
def test_a_result_of_another_form_is_told(odd: dict[str, Any], tmp_path: Path) -> None:
    one = cell("a")
    folder = night(tmp_path / "n", (one,), {one.id: row(one)}, files={})
    (folder / RESULTS / "x-result.json").write_text(json.dumps(result(one.id, "passed") | odd))
    found = gather([folder])
    assert found.notes == ["n: x-result.json is cut or no result"]
    assert code_in(message(found.results, one.id)) == "NO-RESULT"


def test_lost_attachments_are_told(tmp_path: Path) -> None:
    one = cell("a")
    folder = night(tmp_path / "n", (one,), {one.id: row(one)}, files={})
    made = {**result(one.id, "passed"), "attachments": [{"source": "gone.csv"}, {"source": ""}, {"source": ".."}]}
    (folder / RESULTS / "1-result.json").write_text(json.dumps(made))
    found = gather([folder])
    assert found.notes == ["n: 2 attachments are missing, first gone.csv"]
    (tmp_path / "out").mkdir()
    write(found, tmp_path / "out")


def test_a_later_try_of_a_shard_replaces_the_earlier(tmp_path: Path) -> None:
    one = cell("a")
    first = night(tmp_path / "1", (one,), {one.id: row(one, result="failed")})
    again = night(tmp_path / "2", (one,), {one.id: row(one)}, attempt=2)
    for order in ([first, again], [again, first]):
        found = gather(order)
        assert found.results[one.id]["status"] == "passed"
        assert found.notes == ["1 is left out: 2 is a later try of cuda/sm_90 1/2"]


def test_an_unfit_machine_is_a_result(tmp_path: Path) -> None:
    check = Check("architecture", False, "sm_80", "sm_90")
    folder = night(tmp_path / "n", (), {}, state="infra", preflight=(check,), reason="the machine is not fit")
    (only,) = gather([folder]).results.values()
    assert only["status"] == "broken"
    assert "[INFRA]" in only["statusDetails"]["message"]
    assert "architecture: sm_80; expected sm_90" in only["statusDetails"]["message"]


def test_a_run_without_a_plan_is_a_result(tmp_path: Path) -> None:
    """Nothing of it can be missing by name, and an empty report would look well."""
    folder = night(tmp_path / "n", (), {}, state="stopped", reason="ended by the watchdog")
    (folder / PLAN).write_text("{")
    (only,) = gather([folder]).results.values()
    assert only["status"] == "broken"
    assert only["statusDetails"]["message"].startswith("[NO-PLAN] cuda/sm_90 1/2: ")
    assert "plan.json cannot be read" in only["statusDetails"]["message"]
    assert "ended by the watchdog" in only["statusDetails"]["message"]


def test_what_no_run_wrote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no results in"):
        gather([tmp_path])


def test_a_directory_of_which_nothing_is_left_is_a_result(tmp_path: Path) -> None:
    """As a damaged archive leaves it, beside one that is whole."""
    one = cell("a")
    whole = night(tmp_path / "whole", (one,), {one.id: row(one)}, shards=1)
    (tmp_path / "empty").mkdir()
    found = gather([whole, tmp_path / "empty"])
    assert found.results[one.id]["status"] == "passed"
    assert "[NO-PLAN] empty: " in message(found.results, "run of empty")


def test_results_and_what_they_refer_to_are_written(tmp_path: Path) -> None:
    """A name with a path in it is nobody's attachment."""
    one = cell("a")
    folder = night(tmp_path / "n", (one,), {one.id: row(one)}, files={})
    sources = [{"source": "p.png"}, {"source": "../secret"}, {"source": "gone.csv"}]
    made = {**result(one.id, "failed"), "attachments": sources}
    (folder / RESULTS / "1-result.json").write_text(json.dumps(made))
    (folder / RESULTS / "p.png").write_bytes(b"picture")
    (folder / "secret").write_text("s")
    (tmp_path / "out").mkdir()
    write(gather([folder]), tmp_path / "out")
    assert (tmp_path / "out" / "p.png").read_bytes() == b"picture"
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert not (tmp_path / "secret").exists()


def test_faults_that_cannot_be_told_apart_are_one_label() -> None:
    """Measured of Allure 3.18: of two labels a category groups by the last, and "rounds_down" would be blamed."""
    several = row(cell(), result="failed", faults=("cast.ties_away", "cast.rounds_down"))
    assert fault_of(several) == [("fault", "cast.ties_away or cast.rounds_down")]
    assert fault_of(row(cell())) == []


def test_one_page_leaves_out_what_passed_wherever_it_ran(tmp_path: Path) -> None:
    """What passed on one target stays beside its failure on another; so does what was not executed."""
    well, parts, unrun = (cell(case) for case in ("well", "parts", "unrun"))
    other = cell("parts", target="gfx942")
    ends = {well.id: row(well), parts.id: row(parts), unrun.id: row(unrun, result="not_executed")}
    one = night(tmp_path / "1", (well, parts, unrun), ends, files={})
    two = night(tmp_path / "2", (other,), {other.id: row(other, result="failed")}, {}, lane="rocm", target="gfx942")
    found = gather([one, two])
    assert without_well(found) == 1
    assert set(found.results) == {parts.id, unrun.id, other.id}
