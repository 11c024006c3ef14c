"""The generated files for CI engines: as lanes.toml has it, and as the engines would read them."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import lanes, templates
from narrowgauge.suites.meta.engine_files import (
    BUILDKITE,
    CI,
    GITHUB,
    evaluated,
    interpolated,
    jobs,
    parsed,
    steps,
    wrong_expressions,
)

pytestmark = pytest.mark.meta

LANES: dict[str, dict[str, Any]] = tomllib.loads((CI / "lanes.toml").read_text())["lane"]
#: what the file says, read without the code under test: (lane, architecture, shard, shards)
ALL = [(n, t, k, e["shards"]) for n, e in LANES.items() for t in e["targets"] for k in range(1, e["shards"] + 1)]
#: the label of every architecture that is not hosted
LABELS = {f"{t.upper()}_RUNNER": f"pool-{t}" for e in LANES.values() if not e["hosted"] for t in e["targets"]}
#: what the owner of an H100 and an MI300 sets
TWO = {"SM_90_RUNNER": "nvidia-h100", "GFX942_RUNNER": "mi300"}
#: keys that are used; another one is a typing error until it is listed here
JOB_KEYS = {"name", "if", "needs", "runs-on", "timeout-minutes", "strategy", "env", "steps"}
STEP_KEYS = {"name", "if", "uses", "with", "run", "timeout-minutes"}
#: inputs that are given to each action, all of them documented by it; it takes another one for nothing
INPUTS = {
    "actions/checkout": set(),
    "actions/setup-python": {"python-version"},
    "actions/upload-artifact": {"name", "path", "if-no-files-found", "retention-days", "overwrite"},
    "actions/download-artifact": {"pattern", "merge-multiple"},
    "actions/cache/restore": {"path", "key", "restore-keys"},
    "actions/cache/save": {"path", "key"},
}
BUILDKITE_KEYS = {
    "label", "key", "if", "command", "agents", "env", "parallelism", "timeout_in_minutes", "artifact_paths", "retry",
}  # fmt: skip


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    return parsed(GITHUB)


@pytest.fixture(scope="module")
def pipeline() -> dict[str, Any]:
    return parsed(BUILDKITE)


# --- generation ------------------------------------------------------------------------------------------------------


def test_committed_files_are_as_the_lanes_have_it() -> None:
    assert templates.differing() == [], "run: python -m narrowgauge.ci.templates"


def test_check_says_which_file_is_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = f"--out={tmp_path}"
    assert templates.main([out]) == 0
    assert templates.main(["--check", out]) == 0
    capsys.readouterr()
    changed = tmp_path / "containers" / "rocm.sh"
    changed.write_text(changed.read_text() + "# mine\n")
    assert templates.main(["--check", out]) == 1
    assert capsys.readouterr().out.split()[0] == str(changed)
    assert changed.read_text().endswith("# mine\n")


def test_a_lane_more_is_a_job_more(tmp_path: Path) -> None:
    text = (CI / "lanes.toml").read_text() + (CI / "lanes.toml").read_text().split("[lane.rocm]")[1].join(
        ["\n[lane.mine]", ""]
    ).replace('["gfx90a", "gfx942", "gfx950", "gfx1201"]', '["gfx1100"]')
    (tmp_path / "lanes.toml").write_text(text)
    files = templates.rendered(tmp_path / "lanes.toml")
    assert set(files) == set(templates.rendered()) | {"containers/mine.sh"}
    assert "GFX1100_RUNNER" in files["github/nightly.yml"]
    assert "narrowgauge run --lane mine" in files["containers/mine.sh"]


def test_wrong_lanes_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lanes.toml").write_text("[lane.cpu]\nvendor = 1\n")
    assert templates.main([f"--out={tmp_path / 'out'}", f"--lanes={tmp_path / 'lanes.toml'}"]) == 4
    assert "lane cpu" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# --- GitHub ----------------------------------------------------------------------------------------------------------


def github_shards(workflow: dict[str, Any], labels: dict[str, str]) -> Iterator[tuple[str, str, int, int]]:
    """(lane, architecture, shard, shards) of the jobs that run."""
    for job, seen in jobs(workflow, labels):
        command = next(s["run"] for s in job["steps"] if s.get("name") == "Run")
        lane = re.search(r"(?:--lane |containers/)(\w+)", command)
        k, n = evaluated(job["env"]["SHARD"], seen).split("/")
        assert lane is not None
        yield lane[1], evaluated(job["env"]["ARCH"], seen), int(k), int(n)


def test_every_shard_is_in_the_workflow_once(workflow: dict[str, Any]) -> None:
    assert Counter(github_shards(workflow, LABELS)) == Counter(ALL)


def test_two_labels_are_two_machines_and_what_the_gate_expects(workflow: dict[str, Any]) -> None:
    ran = list(github_shards(workflow, TWO))
    assert sorted(ran) == sorted(s for s in ALL if s[1] in ("cpu", "sm_90", "gfx942"))
    expected = evaluated(workflow["jobs"]["gate"]["env"]["EXPECT"], {f"vars.{n}": v for n, v in TWO.items()}).split()
    assert sorted(expected) == sorted({f"{lane}/{arch}" for lane, arch, _, _ in ran})


def test_no_label_is_the_cpu_alone(workflow: dict[str, Any]) -> None:
    assert {s[:2] for s in github_shards(workflow, {})} == {("cpu", "cpu")}
    assert evaluated(workflow["jobs"]["gate"]["env"]["EXPECT"], {}).split() == ["cpu/cpu"]


def test_a_job_runs_on_the_machine_of_its_label(workflow: dict[str, Any]) -> None:
    for job, seen in jobs(workflow, LABELS):
        arch = evaluated(job["env"]["ARCH"], seen)
        hosted = next(e["hosted"] for e in LANES.values() if arch in e["targets"])
        assert evaluated(job["runs-on"], seen) == (hosted or f"pool-{arch}")


def test_results_are_kept_whatever_became_of_the_run(workflow: dict[str, Any]) -> None:
    names = []
    for job, seen in jobs(workflow, LABELS):
        last = job["steps"][-1]
        assert last["uses"].startswith("actions/upload-artifact@")
        assert last["if"] == "${{ always() }}"
        assert last["with"]["if-no-files-found"] == "error"
        # One file, not the tens of thousands of allure-results: ci/shard.sh makes it, and this is its name.
        assert last["with"]["path"] == "results-*.tgz"
        names.append(evaluated(last["with"]["name"], seen))
    assert len(set(names)) == len(names) == len(ALL), "an artifact of one job would replace another's"
    assert all(re.fullmatch(r"results-[a-z0-9_]+-\d+", name) for name in names)


def test_a_run_ends_itself_before_the_engine_ends_it(workflow: dict[str, Any], pipeline: dict[str, Any]) -> None:
    """The engine's limits are there for what hangs outside `narrowgauge run`; the upload has time after them."""
    for job, seen in jobs(workflow, LABELS):
        minutes = next(e["minutes"] for e in LANES.values() if evaluated(job["env"]["ARCH"], seen) in e["targets"])
        run = next(s for s in job["steps"] if s.get("name") == "Run")
        assert minutes < run["timeout-minutes"] < job["timeout-minutes"] < 360  # GitHub's own limit
    for step in steps(pipeline, LABELS):
        minutes = next(e["minutes"] for e in LANES.values() if step["key"] in e["targets"])
        assert minutes < step["timeout_in_minutes"]


def test_one_lost_machine_stops_no_other_and_is_never_overlooked(workflow: dict[str, Any]) -> None:
    gate = workflow["jobs"]["gate"]
    assert gate["if"] == "${{ always() }}"
    assert sorted(gate["needs"]) == sorted(set(workflow["jobs"]) - {"gate"})
    for job, _ in jobs(workflow, LABELS):
        assert job["strategy"]["fail-fast"] is False
    assert "continue-on-error" not in GITHUB.read_text()
    assert "soft_fail" not in BUILDKITE.read_text()


def test_the_workflow_may_read_and_nothing_else(workflow: dict[str, Any]) -> None:
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in GITHUB.read_text()
    assert workflow["concurrency"] == {"group": "nightly", "cancel-in-progress": False}
    assert workflow["env"] == {"HYPOTHESIS_PROFILE": "nightly"}
    assert set(workflow["on"]) == {"schedule", "workflow_dispatch"}


def test_the_history_of_the_last_night_is_found_and_this_one_is_kept(workflow: dict[str, Any]) -> None:
    of = {s["uses"].split("@")[0]: s for s in workflow["jobs"]["gate"]["steps"] if "uses" in s}
    restore, save = of["actions/cache/restore"]["with"], of["actions/cache/save"]["with"]
    assert restore["key"].startswith(restore["restore-keys"])
    assert (save["key"], save["path"]) == (restore["key"], restore["path"])
    # A key that is there is never written again: it must be another one for every run, and for every try of one.
    assert {"${{ github.run_id }}", "${{ github.run_attempt }}"} <= set(re.findall(r"\$\{\{.*?\}\}", save["key"]))
    assert of["actions/cache/save"]["if"].startswith("${{ always() && hashFiles('history/nights.json.gz')")


def test_keys_and_expressions_are_such_as_github_knows(workflow: dict[str, Any]) -> None:
    assert wrong_expressions(GITHUB.read_text()) == []
    for job in workflow["jobs"].values():
        assert set(job) <= JOB_KEYS
        for step in job["steps"]:
            assert set(step) <= STEP_KEYS
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:
                action, version = step["uses"].split("@")
                assert re.fullmatch(r"v\d+", version)
                assert set(step.get("with", {})) == INPUTS[action]


# --- Buildkite -------------------------------------------------------------------------------------------------------


def buildkite_shards(pipeline: dict[str, Any], labels: dict[str, str]) -> Iterator[tuple[str, str, int, int]]:
    for step in steps(pipeline, labels):
        lane = re.search(r"(?:--lane |containers/)(\w+)", step["command"])
        assert lane is not None
        for k in range(step["parallelism"]):
            yield lane[1], step["env"]["ARCH"], k + 1, step["parallelism"]


def test_every_shard_is_in_the_pipeline_once(pipeline: dict[str, Any]) -> None:
    assert Counter(buildkite_shards(pipeline, LABELS)) == Counter(ALL)


def test_two_queues_are_two_machines_and_what_the_gate_expects(pipeline: dict[str, Any]) -> None:
    ran = list(buildkite_shards(pipeline, TWO))
    assert sorted(ran) == sorted(s for s in ALL if s[1] in ("cpu", "sm_90", "gfx942"))
    command = interpolated(pipeline["steps"][-1]["command"], {}).replace("bash ci/gate.sh", 'echo "$EXPECT"')
    said = subprocess.run(["bash", "-euc", command], env=TWO, capture_output=True, text=True, check=True).stdout
    assert sorted(said.split()) == sorted({f"{lane}/{arch}" for lane, arch, _, _ in ran})


def test_a_step_runs_in_the_queue_of_its_label(pipeline: dict[str, Any]) -> None:
    for step in steps(pipeline, LABELS):
        hosted = next(e["hosted"] for e in LANES.values() if step["key"] in e["targets"])
        queue = interpolated(step["agents"]["queue"], LABELS)
        assert queue == ("default" if hosted else f"pool-{step['key']}")


def test_only_lost_agents_are_tried_again(pipeline: dict[str, Any]) -> None:
    for step in steps(pipeline, LABELS):
        assert step["retry"] == {"automatic": [{"exit_status": -1, "limit": 1}, {"exit_status": -10, "limit": 1}]}
        assert step["artifact_paths"] == "results-*.tgz"


def test_the_gate_waits_for_all_and_runs_whatever_became_of_them(pipeline: dict[str, Any]) -> None:
    *_, wait, gate = pipeline["steps"]
    assert wait == {"wait": None, "continue_on_failure": True}
    assert gate["key"] == "gate"
    assert "retry" not in gate


def test_keys_are_such_as_buildkite_knows(pipeline: dict[str, Any]) -> None:
    assert set(pipeline) == {"env", "steps"}
    for step in pipeline["steps"]:
        assert set(step) <= BUILDKITE_KEYS or set(step) == {"wait", "continue_on_failure"}
    keys = [s["key"] for s in pipeline["steps"] if "key" in s]
    assert len(set(keys)) == len(keys)


# --- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [GITHUB, BUILDKITE], ids=["github", "buildkite"])
def test_the_labels_to_set_stand_at_the_top(path: Path) -> None:
    head = path.read_text().split("\nenv:" if path == BUILDKITE else "\nname:")[0]
    assert re.findall(r"^#   (\w+_RUNNER) ", head, re.MULTILINE) == list(LABELS)


@pytest.mark.parametrize("path", [GITHUB, BUILDKITE], ids=["github", "buildkite"])
def test_what_the_files_run_is_there(path: Path) -> None:
    called = set(re.findall(r"bash (ci/[\w/.]+\.sh)", path.read_text()))
    assert called == {"ci/shard.sh", "ci/gate.sh"} | {f"ci/containers/{n}.sh" for n, e in LANES.items() if e["image"]}
    assert all((CI.parent / script).is_file() for script in called)


@pytest.mark.parametrize("path", [GITHUB, BUILDKITE], ids=["github", "buildkite"])
def test_tox_has_the_environments_that_the_files_name(path: Path) -> None:
    tox = CI.parent / "tox.ini"
    named = set(re.findall(r"tox -q -e (\w+)", path.read_text() + (CI / "gate.sh").read_text()))
    assert named == {"night", "gate"}
    assert all(f"[testenv:{name}]" in tox.read_text() for name in named)


def test_images_are_pinned_and_each_lane_has_its_vendors() -> None:
    for lane in lanes.load().values():
        if lane.image:
            repository, tag = lane.image.split(":")
            assert tag != "latest"
            assert re.search(r"\d+\.\d+\.\d+", tag), "an image is named by its version"
            assert ("rocm" in repository) == (lane.vendor == "hip")


SCRIPTS = sorted(CI.rglob("*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_scripts_are_such_as_bash_reads(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert "set -euo pipefail" in script.read_text()


@pytest.mark.parametrize(
    ("linter", "files"),
    [("shellcheck", SCRIPTS), ("hadolint", [CI / "containers" / "Dockerfile"]), ("actionlint", [GITHUB])],
    ids=["shellcheck", "hadolint", "actionlint"],
)
def test_linters_have_nothing_to_say(linter: str, files: list[Path]) -> None:
    if shutil.which(linter) is None:
        pytest.skip(f"not executed: {linter} is not on the path")
    found = subprocess.run([linter, *files], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")
