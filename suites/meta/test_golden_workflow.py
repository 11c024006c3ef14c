"""ci/github/golden.yml: its form, and its steps, run in a repository of their own with a stand-in for the suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import narrowgauge
from narrowgauge.command import Parser, golden

pytestmark = pytest.mark.meta

FILE = Path(narrowgauge.__file__).parent / "ci" / "github" / "golden.yml"
#: writes down how it was called, and does what the real one would: a table, an exit code, other vectors
STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps([pathlib.Path(sys.argv[0]).name, *words]), file=calls)
for name in ("--markdown", "--html"):
    if name in words and os.environ["RC"] in "01":
        pathlib.Path(words[words.index(name) + 1]).write_text("the table\\n" * 9000)
if "regenerate" in words and os.environ["RC"] == "1":
    pathlib.Path("golden/vectors/new.safetensors").write_text("new")
    pathlib.Path("golden/vectors/old.safetensors").unlink()
sys.exit(int(os.environ["RC"]) if words[:2] == ["golden", "diff"] else 0)
"""


@pytest.fixture(scope="module")
def workflow() -> dict[Any, Any]:
    loaded = yaml.safe_load(FILE.read_text())
    assert isinstance(loaded, dict)
    return loaded


class Sandbox:
    """A clone with vectors, an origin, and stand-ins on the path."""

    def __init__(self, folder: Path, workflow: dict[Any, Any], rc: int) -> None:
        self.clone, self.calls_file, self.summary = folder / "clone", folder / "calls", folder / "summary"
        tools = folder / "tools"
        tools.mkdir()
        for name in ("narrowgauge", "gh"):
            (tools / name).write_text(STAND_IN)
            (tools / name).chmod(0o755)
        self.environment = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1",
            "CALLS": str(self.calls_file), "RC": str(rc), "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_RUN_ID": "42", "BASE": "0123456", "GH_TOKEN": "none",
        }  # fmt: skip
        self.workflow = workflow
        (self.clone / "golden" / "vectors").mkdir(parents=True)
        (self.clone / "golden" / "vectors" / "old.safetensors").write_text("old")
        self.git("init", "--quiet", "--bare", str(folder / "origin"))
        self.git("init", "--quiet")
        self.git("remote", "add", "origin", str(folder / "origin"))
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.clone, env=self.environment, check=True, capture_output=True, text=True
        )
        return done.stdout

    def step(self, job: str, name: str) -> int:
        """Run a step as GitHub does: bash with -e and pipefail."""
        (found,) = (step for step in self.workflow["jobs"][job]["steps"] if step.get("name") == name)
        script = self.clone.parent / "step.sh"
        script.write_text(found["run"])
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(command, cwd=self.clone, env=self.environment, capture_output=True).returncode

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]


def known_to_the_command(words: list[str]) -> None:
    """Options that a stand-in takes are those of the real command."""
    parser = Parser()
    golden.register(parser.add_subparsers())
    parser.parse_args(words)


@pytest.mark.parametrize("rc", [0, 1, 4])
def test_the_table_is_shown_and_its_code_is_the_steps(workflow: dict[Any, Any], rc: int, tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, workflow, rc)
    assert sandbox.step("table", "Compare with the base") == rc
    assert sandbox.step("table", "The vectors of this commit are what it generates") == rc
    assert sandbox.summary.exists() == (rc != 4)
    first, second = sandbox.calls()
    assert first[:5] == ["narrowgauge", "golden", "diff", "--git", "0123456"]
    assert "--explained" in first
    assert second == ["narrowgauge", "golden", "diff"]
    for call in (first, second):
        known_to_the_command(call[1:])


@pytest.mark.parametrize("rc", [0, 1])
def test_a_pull_request_has_the_vectors_and_the_table(workflow: dict[Any, Any], rc: int, tmp_path: Path) -> None:
    """Where nothing changed there is none."""
    sandbox = Sandbox(tmp_path, workflow, rc)
    assert sandbox.step("propose", "Regenerate") == 0
    assert sandbox.step("propose", "Open a pull request") == 0
    calls = sandbox.calls()
    for call in calls[:2]:
        known_to_the_command(call[1:])
    branches = sandbox.git("ls-remote", "origin").split()
    if rc == 0:
        assert len(calls) == 2
        assert branches == []
        return
    assert calls[2][:5] == ["gh", "pr", "create", "--head", "golden-42"]
    assert branches[1:] == ["refs/heads/golden-42"]
    changed = sandbox.git("show", "--name-status", "--no-renames", "--format=", branches[0]).split()
    assert changed == ["A", "golden/vectors/new.safetensors", "D", "golden/vectors/old.safetensors"]
    assert (sandbox.clone / "body.md").stat().st_size == 60_000


def test_a_set_that_cannot_be_compared_is_not_regenerated(workflow: dict[Any, Any], tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, workflow, 4)
    assert sandbox.step("propose", "Regenerate") != 0
    assert len(sandbox.calls()) == 1


def test_nothing_may_more_than_it_needs(workflow: dict[Any, Any]) -> None:
    """Only the job that is asked for by hand may write; every job ends; actions are GitHub's own."""
    assert workflow["permissions"] == {"contents": "read"}
    table, propose = workflow["jobs"]["table"], workflow["jobs"]["propose"]
    assert "permissions" not in table
    assert propose["permissions"] == {"contents": "write", "pull-requests": "write"}
    assert propose["if"] == "${{ github.event_name == 'workflow_dispatch' && inputs.commit }}"
    for job in (table, propose):
        assert job["timeout-minutes"] <= 30
        assert all("continue-on-error" not in step for step in job["steps"])
        used = [step["uses"] for step in job["steps"] if "uses" in step]
        assert all(name.startswith("actions/") and name.rpartition("@v")[2].isdigit() for name in used)
    # what is put into a shell comes by the environment: an expression in its text would be code
    assert all("${{" not in step.get("run", "") for job in (table, propose) for step in job["steps"])


def test_it_runs_where_expectations_can_change(workflow: dict[Any, Any]) -> None:
    # YAML 1.1 reads the key "on" as true
    paths = workflow[True]["pull_request"]["paths"]
    root = FILE.resolve().parents[2]
    assert paths == ["reference/**", "golden/**", "narrowgauge/contracts/**"]
    assert all((root / path.removesuffix("/**")).is_dir() for path in paths)
    assert set(workflow[True]["workflow_dispatch"]["inputs"]) == {"base", "commit"}
