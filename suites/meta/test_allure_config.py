"""Identity and configuration of Allure reports: who a result is, categories, known issues, environments, figures."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import waivers
from narrowgauge.ci.allure import config, metrics, node
from narrowgauge.ci.allure.gather import gather
from narrowgauge.ci.allure.identity import Identity, environment_of
from narrowgauge.contracts.failures import FAILURES
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.faults.families import FAMILIES
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.suites.meta.allure_nights import cell, night, row

pytestmark = pytest.mark.meta


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


def test_allure_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """npm would take everything away, and fetch it again."""
    asked: list[list[str]] = []

    def npm(command: list[str], of: node.Node, folder: Path, seconds: float) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        package = folder / "node_modules" / "allure"
        package.mkdir(parents=True, exist_ok=True)
        (package / "package.json").write_text(json.dumps({"version": node.pinned()}))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("NARROWGAUGE_ALLURE", str(tmp_path))
    monkeypatch.setattr(node, "find_node", lambda: node.Node(tmp_path / "bin" / "node", "22.0.0"))
    monkeypatch.setattr(node, "_npm", lambda of: ["npm"])
    monkeypatch.setattr(node, "_run", npm)
    assert node.install() == node.install() == tmp_path / "node_modules" / "allure" / "cli.js"
    assert [command[:2] for command in asked] == [["npm", "ci"]]
    (tmp_path / "node_modules" / "allure" / "package.json").write_text('{"version": "3.0.0"}')
    node.install()
    assert len(asked) == 2
