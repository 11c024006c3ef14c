"""Identity, gathering and configuration of Allure reports, on nights that are made here: nothing is run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import waivers
from narrowgauge.ci.allure import config, metrics
from narrowgauge.ci.allure.gather import RESULTS, gather, write
from narrowgauge.ci.allure.identity import Identity, environment_of
from narrowgauge.ci.allure.results import fault_of
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import JOURNAL, PLAN, RUN, Cell, Check, Plan, RunRecord, write_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.failures import FAILURES
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.faults.families import FAMILIES
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.message import code_in

pytestmark = pytest.mark.meta

TEST = "narrowgauge/suites/casts/test_casts.py::test_cell"


def cell(case: str = "edges", target: str = "sm_90", shard: int = 1, **values: Any) -> Cell:
    who = {"kernel": "k", "owner": "o", "own": False, "rule": "ocp_saturate", "operation": "cast"}
    made = Cell(
        "", shard, **{**who, **values}, source="float32", format="float8_e4m3fn", case=case, target=target,
        markers=("cast",),
    )  # fmt: skip
    return replace(made, id=f"{TEST}[float32-float8_e4m3fn-{case}-{made.kernel}-{target}]")


def row(of: Cell, **values: Any) -> Row:
    taken = {n: getattr(of, n) for n in ("id", "operation", "rule", "source", "format", "case", "kernel", "owner")}
    fixed = {"own": False, "device": "cuda:0", "how": "executed", "backend": "torch", "result": "passed"}
    return Row(**{**taken, **fixed, "target": of.target, **values})


RUNS = RunRecord(
    lane="cuda", target="sm_90", shard=1, shards=2, attempt=1, depth="smoke", state="finished",
    started="2026-11-30T20:00:00+00:00", golden="a" * 64, gpus=("H100", "H100"), versions={"torch": "2.13.0"},
)  # fmt: skip


def night(
    folder: Path,
    cells: tuple[Cell, ...],
    ends: Mapping[str, Row | str | None],
    files: Mapping[str, str] | None = None,
    **run: Any,
) -> Path:
    """A results directory. ``ends``: by id a row, a message of a test without one, or None for one that only began.
    ``files``: statuses by id, of result files; by default one for each row, by what it says."""
    folder.mkdir()
    made = replace(RUNS, **run)
    write_json(folder / RUN, made.to_json())
    write_json(folder / PLAN, Plan(made.lane, made.target, "smoke", made.shards, cells).to_json())
    lines: list[dict[str, Any]] = []
    for name, end in ends.items():
        lines.append({"event": "begin", "id": name})
        if end is not None:
            row_of, said = (end.to_json(), "") if isinstance(end, Row) else (None, end)
            outcome = "error" if row_of is None else "passed"
            lines.append(
                {"event": "end", "id": name, "outcome": outcome, "seconds": 1.0, "row": row_of, "message": said}
            )
    (folder / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / RESULTS).mkdir()
    if files is None:
        files = {name: end.result for name, end in ends.items() if isinstance(end, Row)}
    for number, (name, status) in enumerate(files.items()):
        (folder / RESULTS / f"{number}-result.json").write_text(json.dumps(result(name, status)))
    return folder


def result(name: str, word: str) -> dict[str, Any]:
    """A result file as allure-pytest writes it: what is waived is skipped."""
    labels = [{"name": "cell", "value": name}, {"name": "result", "value": word}]
    status = "skipped" if word in ("waived", "disputed", "not_executed") else word
    return {"name": name, "status": status, "labels": labels, "statusDetails": {"message": "[TIES] x"}}


def message(results: Mapping[str, Any], name: str) -> str:
    return str(results[name]["statusDetails"]["message"])


# --- identity --------------------------------------------------------------------------------------------------------


def test_the_target_parts_histories_and_joins_tests() -> None:
    """By the definition: md5 of the full name and of the parameters by name, with and without the target."""
    one, other = Identity(cell(target="sm_90")), Identity(cell(target="gfx942"))
    text = "narrowgauge.suites.casts.test_casts#test_cell\ncase=edges\nformat=float8_e4m3fn\nkernel=k\nsource=float32"
    assert one.test_case_id == other.test_case_id == hashlib.md5(text.encode()).hexdigest()
    assert one.history_id == hashlib.md5(f"{text}\ntarget=sm_90".encode()).hexdigest()
    assert one.history_id != other.history_id
    excluded = {p["name"] for p in one.parameters if p.get("excluded")}
    assert {p["name"] for p in one.parameters} - excluded == {"source", "format", "case", "kernel", "target"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"owner": "p"}, True), ({"rule": "other"}, True), ({"shard": 2}, True), ({"own": True}, True),
        ({"kernel": "l"}, False), ({"case": "golden"}, False),
    ],
)  # fmt: skip
def test_what_is_told_makes_no_difference(change: dict[str, Any], same: bool) -> None:
    assert (Identity(cell(**change)).history_id == Identity(cell()).history_id) is same


@pytest.mark.parametrize(
    ("target", "operation", "name"),
    [
        ("sm_90", "cast", "nvidia-sm_90"), ("gfx942", "cast", "amd-gfx942"), ("host", "cast", "cpu-host"),
        ("emulated-sm_90", "cast", "emulated-sm_90"), ("interpreter", "cast", "cpu-interpreter"),
        ("sm_90", "unit", "recorded-sm_90"),
    ],
)  # fmt: skip
def test_environments(target: str, operation: str, name: str) -> None:
    assert environment_of(target, operation) == name


def test_every_target_has_an_environment_of_its_own_that_allure_takes() -> None:
    names = [environment_of(t) for bare in TARGETS for t in (bare, f"emulated-{bare}")]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in names)


# --- categories ------------------------------------------------------------------------------------------------------


def test_every_word_in_brackets_has_a_category() -> None:
    assert {fault.code for fault in FAULTS.values()} == FAMILIES.keys()
    assert not FAMILIES.keys() & FAILURES.keys()
    words = {**FAMILIES, **FAILURES}
    assert len(set(words.values())) == len(words)  # two of one name would be one category


def test_every_word_that_a_message_begins_with_is_declared() -> None:
    """Those that stand in the sources; what is made of an outcome's kind is known by its kinds."""
    import narrowgauge

    package = Path(narrowgauge.__file__).parent
    files = [*(package / "suites").glob("*.py"), *(package / "reference").glob("*.py")]
    found = {word for path in files for word in re.findall(r'f?"\[([A-Z][A-Z-]+)\] ', path.read_text())}
    assert {"FORM", "NOT-A-CODE", "POLICY", "UNEXPLAINED", "STALE-WAIVER", "NOT-READ", "UNIT", "AUDIT"} <= found
    assert found | {"CRASHED", "HUNG", "RAISED", "FAILED"} <= FAILURES.keys()


def test_a_message_falls_into_its_category_in_both_allures() -> None:
    """Allure 3 searches, Allure 2 must match the whole message, over its lines."""
    said = "[TIES] k on sm_90: cast.ties_away\n  more\nbreaks: its claim"
    rules = config.categories({"ROUND": "r", "TIES": "t"})
    hits = [r["name"] for r in rules if re.search(r["matchers"].get("message", "never"), said)]
    assert hits == ["TIES: t"]
    assert rules[0]["matchers"] == {"labels": {"result": "^waived$"}}  # Allure takes the first that matches
    old = json.loads(config.categories_json({"ROUND": "r", "TIES": "t"}))
    assert [r["name"] for r in old if re.fullmatch(r["messageRegex"], said)] == ["TIES: t"]
    for text, name in (
        (f"{said}\nwaived: known (docs/x.md)", "waived: known failures"),
        ("not executed: no GPU", "not executed"),
    ):
        first = next(r["name"] for r in old if re.fullmatch(r["messageRegex"], text))
        assert first == name


# --- gathering -------------------------------------------------------------------------------------------------------


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
    stub = gather([night(tmp_path / "n", (one,), {})]).results[one.id]
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
    with pytest.raises(BadInput, match="is no results directory"):
        gather([tmp_path])


def test_faults_that_cannot_be_told_apart_are_one_label() -> None:
    """Measured of Allure 3.18: of two labels a category groups by the last, and "rounds_down" would be blamed."""
    several = row(cell(), result="failed", faults=("cast.ties_away", "cast.rounds_down"))
    assert fault_of(several) == [("fault", "cast.ties_away or cast.rounds_down")]
    assert fault_of(row(cell())) == []


def test_a_machine_that_left_nothing_takes_no_report_from_the_others(tmp_path: Path) -> None:
    """ci/shard.sh packs an empty directory where the container was never made."""
    one = cell("a")
    (tmp_path / "night" / "gfx942-1").mkdir(parents=True)
    night(tmp_path / "night" / "sm_90-1", (one,), {one.id: row(one)})
    found = gather([tmp_path / "night"])
    assert [shard.directory.name for shard in found.shards] == ["sm_90-1"]
    assert [note.split(": ")[0] for note in found.notes if "gfx942-1" in note] == [
        f"{tmp_path / 'night' / 'gfx942-1'} is no results directory"
    ]


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


# --- known issues, environments, metrics -----------------------------------------------------------------------------


def test_exactly_the_waived_cells_are_accepted(tmp_path: Path) -> None:
    """Where they were waived: the same cell fails elsewhere and stays a failure. Allure accepts failures alone."""
    one, other = cell("a"), cell("a", target="gfx942")
    waiver = waivers.load([waivers.OWN])[0]
    known = {"result": "waived", "waiver": waiver.link, "reason": waiver.reason}
    first = night(tmp_path / "1", (one,), {one.id: row(one, **known)})
    second = night(tmp_path / "2", (other,), {other.id: row(other, result="failed")}, lane="rocm", target="gfx942")
    found = gather([first, second])
    assert found.results[one.id]["status"] == "failed"
    (rule,) = config.resolutions(found.rows.values(), found.cells, [waiver])
    assert rule == {
        "resolution": "accepted",
        "comment": f"waived, until {waiver.expires}: {waiver.reason} ({waiver.link})",
        "testCaseId": [Identity(one).test_case_id],
        "environment": ["nvidia-sm_90"],
    }


def test_an_environment_says_what_it_ran_on(tmp_path: Path) -> None:
    """Shards that part are both told."""
    one, two = cell("a"), cell("b", shard=2)
    first = night(tmp_path / "1", (one, two), {one.id: row(one)})
    second = night(tmp_path / "2", (one, two), {two.id: row(two)}, shard=2, versions={"torch": "2.14.0"})
    found = gather([first, second])
    said = config.variables(found, "nvidia-sm_90")
    assert said["GPU"] == "H100"
    assert said["torch"] == "2.13.0, 2.14.0"
    assert said["golden manifest"] == "a" * 16
    assert config.variables(found, "amd-gfx942") == {}


@pytest.mark.parametrize(("kernels", "drawn"), [(24, True), (25, False)])
def test_a_chart_with_a_column_for_each_kernel_is_left_out_of_many(kernels: int, drawn: bool, tmp_path: Path) -> None:
    cells = tuple(cell(kernel=f"k{number}") for number in range(kernels))
    types = {chart["type"] for chart in config.charts(gather([night(tmp_path / "n", cells, {})]))}
    assert ("problemsDistribution" in types) is drawn
    assert "statusTransitions" in types


def test_figures_are_one_for_each_kernel_and_environment() -> None:
    """Sums and the worst, by hand; what was drawn, or not executed, has none."""
    rows = [
        row(cell("a"), differences={"value": 3, "nan": 1}, figures={"ulp": 2, "saturated": 5}, result="failed"),
        row(cell("b"), differences={"value": 1}, figures={"ulp": 7, "saturated": 1}, result="failed"),
        row(cell("property"), differences={"value": 90}, result="failed"),
        row(cell("c"), result="not_executed", outcome="not_executed"),
        row(cell("a", target="gfx942"), figures={"saturated": 4}),
    ]
    found = {each["key"]: each["value"] for each in metrics.samples(rows, 0)}
    assert found == {
        "mismatching.nvidia-sm_90.k": 5, "ulp.nvidia-sm_90.k": 7, "saturated.nvidia-sm_90.k": 6,
        "mismatching.amd-gfx942.k": 0, "ulp.amd-gfx942.k": 0, "saturated.amd-gfx942.k": 4,
    }  # fmt: skip
    described = metrics.described(rows)["metrics"]
    assert described.keys() == found.keys()
    assert len({(d["title"], d["group"]) for d in described.values()}) == len(found)
