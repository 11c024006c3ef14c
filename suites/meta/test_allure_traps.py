"""Traps of Allure that ci/allure goes around, each held to what was measured. A test that fails here after an upgrade
says that a trap has gone, and which detour with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.allure import node
from narrowgauge.suites.meta.report_marks import needs_allure, needs_allure_pytest

pytestmark = pytest.mark.meta

CONFIG = """
const named = (id) => ({ labels }) => labels.some((l) => l.name === "env" && l.value === id);
export default {
  output: OUTPUT, historyPath: HISTORY, hideLabels: ["secret"],
  environments: { a: { name: "Name of A", matcher: named("a") }, b: { matcher: named("b") } },
  categories: { rules: [
    { name: "by id", matchers: { message: "^.ID.", environments: ["a"] } },
    { name: "by name", matchers: { message: "^.NAME.", environments: ["Name of A"] } },
    { name: "by a hidden label", matchers: { labels: { secret: "^x$" } } },
  ] },
  resolutions: { rules: [
    { resolution: "accepted", comment: "by id", messageRegexp: "^.ID.", environment: ["a"] },
    { resolution: "accepted", comment: "by name", messageRegexp: "^.NAME.", environment: ["Name of A"] },
  ] },
  plugins: { awesome: { options: {} } },
};
"""


def result(name: str, case: str, environment: str, message: str = "", *labels: tuple[str, str]) -> dict[str, Any]:
    return {
        "uuid": name, "name": name, "fullName": "one.full#name", "testCaseId": case,
        "status": "failed" if message else "passed", "statusDetails": {"message": message}, "start": 1, "stop": 2,
        "parameters": [{"name": "p", "value": "v"}],
        "labels": [{"name": n, "value": v} for n, v in (("env", environment), *labels)],
    }  # fmt: skip


RESULTS = (
    result("id", "1", "a", "[ID] x"),
    result("name", "2", "a", "[NAME] x"),
    result("hidden", "3", "a", "[HIDDEN] x", ("secret", "x")),
    result("here", "4", "a"),
    result("there", "4", "b"),
    result("other", "5", "b"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of ``RESULTS``, as Allure leaves it."""
    made = tmp_path_factory.mktemp("traps")
    results = made / "results"
    results.mkdir()
    for each in RESULTS:
        (results / f"{each['uuid']}-result.json").write_text(json.dumps(each))
    (results / "categories.json").write_text(json.dumps([{"name": "of the results", "matchedStatuses": ["failed"]}]))
    samples = [{"id": str(v), "key": "k", "value": v, "start": 1, "stop": 2} for v in (1, 9)]
    (results / "x-perf.json").write_text(json.dumps(samples))
    config, site, history = made / "allurerc.mjs", made / "site", made / "history.jsonl"
    config.write_text(CONFIG.replace("OUTPUT", json.dumps(str(site))).replace("HISTORY", json.dumps(str(history))))
    command = [str(node.find_node().path), str(node.installed()), "generate", str(results), "--config", str(config)]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def shown(folder: Path) -> dict[str, dict[str, Any]]:
    found = [json.loads(p.read_text()) for p in _site(folder).glob("data/test-results/*.json")]
    return {one["name"]: one for one in found}


def _site(folder: Path) -> Path:
    """Where the report is: below the output where there are several, else the output."""
    below = folder / "site" / "awesome"
    return below if below.exists() else folder / "site"


@needs_allure
def test_known_issues_compare_the_name_of_an_environment(folder: Path) -> None:
    """So names are ids: ci/allure/config.py."""
    found = shown(folder)
    assert found["name"].get("resolution") == "accepted"
    assert found["id"].get("resolution") is None


@needs_allure
def test_categories_compare_names_too_and_only_the_configuration_counts(folder: Path) -> None:
    """A categories.json among the results is ignored, and so are labels that are hidden: HIDDEN in config.py."""
    nodes = json.loads((_site(folder) / "widgets" / "categories.json").read_text())["nodes"].values()
    names = {each["name"] for each in nodes if each["type"] == "category"}
    assert names == {"by name", "Product errors"}


@needs_allure
def test_the_history_knows_no_environment(folder: Path) -> None:
    """So the target is a parameter: ci/allure/identity.py."""
    found = shown(folder)
    assert found["here"]["historyId"] == found["there"]["historyId"]
    assert found["here"]["retryHash"] != found["there"]["retryHash"]


@needs_allure
def test_environments_join_results_by_the_test_case_alone(folder: Path) -> None:
    """So testCaseId is everything but the target."""
    groups = [json.loads(p.read_text()) for p in _site(folder).glob("data/test-env-groups/*.json")]
    assert sorted(sorted(g["testResultsByEnv"]) for g in groups) == [["a"], ["a"], ["a"], ["a", "b"], ["b"]]


@needs_allure
def test_samples_of_one_key_are_averaged(folder: Path) -> None:
    """So a key is one kernel's on one target: ci/allure/metrics.py."""
    (line,) = (folder / "history.jsonl").read_text().splitlines()
    assert json.loads(line)["metrics"]["k"] == 5


@needs_allure
def test_pages_tell_others_who_reads_them(folder: Path) -> None:
    """So node.render takes that out."""
    assert node.TRACKER.search((_site(folder) / "index.html").read_text())


@needs_allure_pytest
def test_allure_pytest_joins_parameters_and_quotes_them(tmp_path: Path) -> None:
    """So plugin/allure_results.py makes identity, name and parameters anew."""
    (tmp_path / "test_x.py").write_text(
        "import pytest\n@pytest.mark.parametrize('p', ['a', 'b'])\ndef test_x(p): pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "--alluredir=out", "-p", "no:cacheprovider", "test_x.py"]
    subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, timeout=120, check=True)
    found = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*-result.json")]
    assert len({one["testCaseId"] for one in found}) == 1
    assert sorted(one["parameters"][0]["value"] for one in found) == ["'a'", "'b'"]
