"""Allure's results and report of a small night that really ran: as files, and in a real browser."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrowgauge import command
from narrowgauge.ci.allure import node
from narrowgauge.ci.allure.gather import RESULTS
from narrowgauge.ci.records import Shard, read_shard
from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta import report_night
from narrowgauge.suites.meta.marks import needs_matplotlib, needs_torch, needs_triton
from narrowgauge.suites.meta.report_browser import by_id, chromium, opened
from narrowgauge.suites.meta.report_marks import needs_allure, needs_allure_pytest, needs_browser
from narrowgauge.suites.offline import judge_files

pytestmark = [pytest.mark.meta, needs_torch, needs_triton, needs_allure_pytest]

WRONG = "half_away, float32 to float8_e4m3fn: edges"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_night.make(tmp_path_factory.mktemp("night"))


@pytest.fixture(scope="module")
def shard(night: Path) -> Shard:
    found = read_shard(night)
    assert found.problems == []
    return found


@pytest.fixture(scope="module")
def results(night: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (night / RESULTS).glob("*-result.json")]


def labels(result: dict[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label in result["labels"]:
        found.setdefault(label["name"], []).append(label["value"])
    return found


def of_kernel(results: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found = [r for r in results if labels(r)["feature"] == [name]]
    assert found
    return found


def attached(night: Path, result: dict[str, Any]) -> dict[str, Path]:
    return {a["name"]: night / RESULTS / a["source"] for a in result.get("attachments", ())}


# --- results ---------------------------------------------------------------------------------------------------------


def test_every_cell_has_a_result_of_its_own(results: list[dict[str, Any]], shard: Shard) -> None:
    assert shard.plan is not None
    assert sorted(labels(r)["cell"][0] for r in results) == sorted(cell.id for cell in shard.plan.cells)


def test_identity_is_that_of_the_cell_and_of_nothing_else(results: list[dict[str, Any]], shard: Shard) -> None:
    """By the definition, from the plan: no host, no worker, no quotes and no addresses."""
    assert shard.plan is not None
    cells = {cell.id: cell for cell in shard.plan.cells}
    for result in results:
        cell = cells[labels(result)["cell"][0]]
        asked = {name: getattr(cell, name) for name in ("case", "format", "kernel", "source", "target")}
        told = {p["name"]: p["value"] for p in result["parameters"] if not p.get("excluded")}
        assert told == asked
        path, _, test = cell.id.partition("::")
        full = f"{path[:-3].replace('/', '.')}#{test.partition('[')[0]}"
        text = "\n".join([full, *(f"{n}={v}" for n, v in sorted(asked.items()))])
        assert (result["fullName"], result["historyId"]) == (full, hashlib.md5(text.encode()).hexdigest())
    ids = [r["historyId"] for r in results]
    assert len(set(ids)) == len(ids)


def test_one_test_has_a_result_on_each_target(results: list[dict[str, Any]]) -> None:
    both = of_kernel(results, "triton_ties_away")
    assert {labels(r)["environment"][0] for r in both} == {"cpu-interpreter", "emulated-sm_90"}
    assert len({r["testCaseId"] for r in both}) == 1
    assert len({r["testCaseId"] for r in results}) == len(results) - 1


def test_labels_say_whose_it_is_and_what_is_wrong(results: list[dict[str, Any]]) -> None:
    (wrong,) = of_kernel(results, "half_away")
    said = labels(wrong)
    assert said["owner"] == ["cast-team"]
    assert said["severity"] == ["critical"]
    assert (said["epic"], said["story"]) == (["cast"], ["float32 to float8_e4m3fn, ocp_saturate"])
    assert (said["family"], said["fault"], said["result"]) == (["TIES"], ["cast.ties_away"], ["failed"])
    assert {"cast", "ocp", "silent_failure"} <= set(said["tag"])
    first = wrong["statusDetails"]["message"].splitlines()[0]
    assert first == "[TIES] half_away (float32 to float8_e4m3fn) on host, case edges: cast.ties_away"
    assert "see it without narrowgauge" not in wrong["statusDetails"]["message"]
    links = {link["name"]: link["url"] for link in wrong["links"]}
    assert links["triton#8322"] == "https://github.com/triton-lang/triton/issues/8322"
    (known,) = of_kernel(results, "torch_eager")
    assert (labels(known)["result"], labels(known)["severity"]) == (["waived"], ["minor"])
    assert known["statusDetails"]["message"].splitlines()[-1].startswith("waived: ")


def test_a_cell_that_passed_carries_nothing(results: list[dict[str, Any]]) -> None:
    assert all("attachments" not in r for r in of_kernel(results, "ml_dtypes_astype"))


@needs_matplotlib
@pytest.mark.parametrize("kernel", ["half_away", "scale_of_the_first", "triton_ties_away", "torch_eager"])
def test_a_mismatch_has_what_shows_it(kernel: str, night: Path, results: list[dict[str, Any]], shard: Shard) -> None:
    """The page has the ledger's elements; the files, judged by themselves, give the same count."""
    for result in of_kernel(results, kernel):
        files, row = attached(night, result), shard.rows[labels(result)["cell"][0]]
        assert files["picture"].read_bytes()[:4] == b"\x89PNG"
        text = files["mismatches"].read_text()
        assert all(m.got in text and m.want in text and m.input in text for m in row.mismatches)
        total = sum(row.differences.values())
        assert len(files["differing elements"].read_text().splitlines()) == 1 + min(total, 1000)
        assert "import" in files["standalone script"].read_text()
        (again,) = judge_files(files["inputs.safetensors"], files["outputs.safetensors"], row.kernel, row.target)
        assert again.row.differences == row.differences
        assert again.row.digest == row.digest


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lost(night: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_night.lose(night, tmp_path_factory.mktemp("lost") / "shard")


def test_the_command_says_what_is_missing(lost: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    assert command.main(["report", str(lost), "--out", str(site), "--no-render", "--json"]) == Exit.OK
    said = json.loads(capsys.readouterr().out)
    assert said["environments"]["cpu-host"] == {"passed": 2, "failed": 2, "waived": 1, "broken": 1}
    (missing,) = said["without_a_result_of_their_own"]
    assert missing.endswith(report_night.LOST)
    assert {p.name for p in site.iterdir()} == {"results"}
    assert command.main(["report", str(lost), "--out", str(site), "--no-render"]) == Exit.OK  # over its own
    assert "1 planned tests left no result" in capsys.readouterr().out


def test_without_node_the_results_are_there(
    night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_candidates", lambda: iter([Path("/nowhere/node")]))
    assert command.main(["report", str(night), "--out", str(tmp_path / "site")]) == Exit.INFRASTRUCTURE
    said = capsys.readouterr().err
    assert "Node 22 or later" in said
    assert "/nowhere/node is no Node" in said
    assert "narrowgauge report --install" in said
    assert len(list((tmp_path / "site" / "results").glob("*-result.json"))) == 8


def test_another_allure_is_refused(
    night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "home" / "node_modules" / "allure"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "3.17.0"}')
    monkeypatch.setenv(node.HOME, str(tmp_path / "home"))
    monkeypatch.setattr(node, "find_node", lambda: node.Node(Path("node"), "22.0.0"))
    assert command.main(["report", str(night), "--out", str(tmp_path / "site")]) == Exit.INFRASTRUCTURE
    assert "is Allure 3.17.0, and reports are made with 3.18.0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{n}"], "expected results directories and --out SITE"),
        (["{n}", "--out", "{n}"], "which no report left"),
        (["{t}", "--out", "{t}/s"], "no results in"),
        (["{n}", "--out", "{t}/s", "--history", "h.json"], "expected a file that ends in .jsonl"),
    ],
)
def test_bad_arguments(
    arguments: list[str], words: str, night: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(n=night, t=tmp_path) for word in arguments]
    assert command.main(["report", *given]) == Exit.BAD_INPUT
    assert words in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_allure_that_says_all_is_well_and_makes_nothing_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "find_node", lambda: node.Node(Path("node"), "22.0.0"))
    monkeypatch.setattr(node, "installed", lambda: Path("cli.js"))
    monkeypatch.setattr(node, "_run", lambda command, *rest: subprocess.CompletedProcess(command, 0, "done", ""))
    with pytest.raises(Infrastructure, match="made no report of"):
        node.render(tmp_path, tmp_path / "allurerc.mjs", tmp_path / "site")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").touch()
    assert node.render(tmp_path, tmp_path / "allurerc.mjs", tmp_path / "site") == "done"


def test_the_lock_names_no_registry() -> None:
    """And pins what package.json asks for, with the sha of every package."""
    lock = json.loads((node.HERE / "package-lock.json").read_text())
    packages = {name: p for name, p in lock["packages"].items() if name}
    assert packages["node_modules/allure"]["version"] == node.pinned() == "3.18.0"
    assert all("resolved" not in p and p["integrity"].startswith("sha512-") for p in packages.values())


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(night: Path, lost: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two nights, the second with a cell lost."""
    folder = tmp_path_factory.mktemp("site")
    for number, directory in enumerate((night, lost)):
        where = ["--out", str(folder / str(number)), "--history", str(folder / "history.jsonl")]
        assert command.main(["report", str(directory), *where]) == Exit.OK
    return folder / "1" / "report"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(site: Path, browser: Any) -> Iterator[Any]:
    with opened(browser, site) as found:
        yield found


@needs_allure
@needs_browser
@needs_matplotlib
def test_a_failure_has_its_message_picture_table_and_script(page: Any) -> None:
    page.get_by_text(WRONG).first.click()
    said = by_id(page, "test-result-error-message").inner_text()
    assert "[TIES] half_away (float32 to float8_e4m3fn) on host, case edges: cast.ties_away" in said
    assert "codes[283]" in said
    assert by_id(page, "test-result-info-title").inner_text().strip() == WRONG
    by_id(page, "test-result-tab-attachments").click()
    every = by_id(page, "test-result-attachment")
    names = every.all_inner_texts()
    for name in ("picture", "mismatches", "standalone script", "differing elements", "inputs.safetensors"):
        assert any(name in text for text in names)
    every.filter(has_text="picture").locator("[data-testid=test-result-attachment-header]").click()
    picture = every.filter(has_text="picture").locator("img").first
    picture.wait_for()
    page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=picture.element_handle())
    assert picture.evaluate("image => image.naturalWidth") == 1200
    assert picture.bounding_box()["width"] > 700  # so wide that its smallest letters can be read
    for name, words in (("mismatches", "0.0009765625 (0x3a800000)"), ("standalone script", "import numpy")):
        one = every.filter(has_text=name).first
        one.locator("[data-testid=test-result-attachment-header]").click()
        shown = one.frame_locator("iframe").locator("body") if name == "mismatches" else one
        shown.get_by_text(words).first.wait_for()


@needs_allure
@needs_browser
def test_targets_stand_side_by_side(page: Any) -> None:
    page.get_by_text("triton_ties_away, float32 to float8_e4m3fn: edges").first.click()
    by_id(page, "test-result-tab-environments").click()
    for name in ("emulated-sm_90", "cpu-interpreter"):
        page.get_by_text(name, exact=True).first.wait_for()
    assert by_id(page, "test-result-tab-environments").inner_text().split() == ["Environments", "2"]


@needs_allure
@needs_browser
def test_the_environment_is_switched(page: Any) -> None:
    leaves = by_id(page, "tree-leaf-title")
    page.get_by_text(WRONG).first.wait_for()
    assert by_id(page, "metadata-item-total").inner_text().split()[-1] == "8"
    by_id(page, "environment-picker-button").click()
    page.get_by_text("emulated-sm_90", exact=True).last.click()
    page.get_by_text(WRONG).first.wait_for(state="detached")
    assert "emulated-sm_90" in by_id(page, "environment-picker-button").inner_text()
    assert leaves.all_inner_texts() == ["triton_ties_away, float32 to float8_e4m3fn: edges"]
    said = by_id(page, "metadata-list").inner_text().split("\n")
    assert {"golden manifest", "0123456789abcdef", "torch", "2.13.0", "cpu/cpu 1/1"} <= {word.strip() for word in said}


@needs_allure
@needs_browser
def test_figures_are_followed_from_night_to_night(page: Any, shard: Shard) -> None:
    page.get_by_text("Report", exact=True).first.click()
    page.get_by_text("Metrics", exact=True).first.click()
    page.get_by_text("codes that differ").first.wait_for()
    count = sum(row.differences.get("value", 0) for row in shard.rows.values() if row.kernel == "half_away")
    line = page.get_by_text("half_away on cpu-host").first.locator("xpath=ancestor::tr")
    assert f"{count} codes" in line.inner_text()
    assert "0 codes" in line.inner_text()  # what has changed since the night before


@needs_allure
@needs_browser
def test_categories_and_known_issues_are_named(page: Any) -> None:
    by_id(page, "nav-tab-categories").click()
    page.get_by_text("TIES: values between two codes go the wrong way").wait_for()
    page.get_by_text("LOST: began and never ended: the process that ran it was lost").wait_for()
    page.get_by_text("waived: known failures").wait_for()
    by_id(page, "nav-tab-resolutionCategories").click()
    page.get_by_text("e8m0-lowest-binade.md").first.wait_for()
    assert by_id(page, "nav-tab-resolutionCategories").inner_text().split()[-1] == "1"


@needs_allure
@needs_browser
def test_a_lost_cell_is_there_and_broken(page: Any) -> None:
    by_id(page, "tab-broken").click()
    page.get_by_text("ml_dtypes_astype, bfloat16 to float8_e4m3fn: edges").click()
    said = by_id(page, "test-result-error-message").inner_text()
    assert said.startswith("[LOST] ml_dtypes_astype, bfloat16 to float8_e4m3fn: edges, on host: began and never ended")
    by_id(page, "test-result-tab-history").click()
    assert by_id(page, "test-result-tab-history").inner_text().split()[-1] == "1"  # it is the same test as last night's


@needs_allure
def test_the_first_pages_cards_lead_to_pages_without_a_server_too(site: Path) -> None:
    cards = re.findall(r'"href":"([^"]*)"', (site / "index.html").read_text().partition("reportSummaries = ")[2])
    assert sorted(cards) == ["awesome/index.html", "dashboard/index.html"]
    assert all((site / card).exists() for card in cards)
