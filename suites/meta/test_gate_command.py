"""The command ``gate``, and its page: what it prints and writes, its exit codes, and what it refuses."""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import history, lanes, quarantine, waivers
from narrowgauge.command import gate_words, main
from narrowgauge.command.gate import judged
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.gate_pages import BEGIN, END, PAGE, between
from narrowgauge.suites.meta.night_sets import DAY, WAIVER, Case, night

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"
EXPECT = ("--expect", "cuda/sm_90x3", "--expect", "cpu/cpu")
TODAY = ("--today", str(DAY))


def clean() -> Case:
    """Nothing is waived: the command knows no waiver of these kernels."""
    case = night()
    files = case.shards["cpu/cpu 1"]
    for nodeid in files.ids:
        files.end(nodeid, "passed", "passed", waiver="", reason="")
    return case


def written(folder: Path, case: Case) -> Path:
    for name, files in case.shards.items():
        files.write(folder / name.replace("/", "-"))
    return folder


def test_the_page_is_as_it_would_be_written_now() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.split(BEGIN)[1].split(END)[0] == between(), "run python -m narrowgauge.suites.meta.gate_pages"


def test_a_green_night(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = written(tmp_path / "results", clean())
    assert main(["gate", str(results), *EXPECT, *TODAY]) == Exit.OK
    said = capsys.readouterr().out
    assert said.startswith(f"GREEN: 40 passed\nnight {DAY} cccccccc, judged as of {DAY}; no history\n")
    assert main(["gate", *map(str, sorted(results.iterdir())), *EXPECT, *TODAY]) == Exit.OK, "or each by itself"


def test_the_lost_shard_and_the_new_failure_are_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = clean()
    del case.shards[TWO]
    three = case.shards["cuda/sm_90 3"]
    three.fail(three.ids[0])
    results = written(tmp_path / "results", case)
    summary = tmp_path / "summary.md"
    assert main(["gate", str(results), *EXPECT, *TODAY, "--summary", str(summary)]) == Exit.FAILED
    first = "RED: a shard left nothing (cuda/sm_90 2/3); a test fails since this night (1)"
    assert capsys.readouterr().out.splitlines()[0] == first
    text = summary.read_text()
    assert text.startswith("## 🔴 narrowgauge: RED: a shard left nothing (cuda/sm\\_90 2/3); a test fails")
    row = next(line for line in text.splitlines() if "cast.ties" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")][:6] == [
        "ours", "owner-of-ours", "sm\\_90", "1", f"{DAY} cccccccc", "never",
    ]  # fmt: skip


def test_machines_alone_are_another_exit_code(tmp_path: Path) -> None:
    case = clean()
    del case.shards[TWO]
    assert main(["gate", str(written(tmp_path / "results", case)), *EXPECT, *TODAY]) == Exit.INFRASTRUCTURE
    assert main(["gate", str(tmp_path / "nowhere"), *EXPECT, *TODAY]) == Exit.INFRASTRUCTURE
    (tmp_path / "empty").mkdir()
    assert main(["gate", str(tmp_path / "empty"), *EXPECT, *TODAY]) == Exit.INFRASTRUCTURE
    assert main(["gate", *EXPECT, *TODAY]) == Exit.INFRASTRUCTURE, "a night of which nothing came"


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = clean()
    case.shards[TWO].fail(case.shards[TWO].ids[0])
    results = written(tmp_path / "results", case)
    assert main(["gate", str(results), *EXPECT, *TODAY, "--json"]) == Exit.FAILED
    data = json.loads(capsys.readouterr().out)
    assert (data["exit"], data["counts"]) == (1, {"passed": 39, "failed": 1})
    (finding,) = data["findings"]
    assert {n: finding[n] for n in ("kind", "level", "infrastructure", "place", "shard", "kernel", "owner")} == {
        "kind": "new_failure", "level": "red", "infrastructure": False, "place": "cuda/sm_90", "shard": "2/3",
        "kernel": "ours", "owner": "owner-of-ours",
    }  # fmt: skip
    (failing,) = data["failing"]
    assert failing["id"] == case.shards[TWO].ids[0]
    assert (failing["faults"], failing["new"], failing["nights"]) == (["cast.ties_away"], True, 1)


def test_nights_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "nights.json.gz"
    case = clean()
    case.shards[TWO].fail(case.shards[TWO].ids[0])
    for number in range(2):  # the night itself, and once more
        results = written(tmp_path / f"results-{number}", case)
        main(["gate", str(results), *EXPECT, *TODAY, "--history", str(kept)])
        assert "new failures" in capsys.readouterr().out
    past = history.read(kept)
    assert past is not None
    assert past.places["cuda/sm_90"].cells[case.shards[TWO].ids[0]].nights == 1
    kept.write_bytes(kept.read_bytes()[:-20])
    before = kept.read_bytes()
    assert main(["gate", str(results), *EXPECT, *TODAY, "--history", str(kept)]) == Exit.BAD_INPUT
    assert kept.read_bytes() == before
    assert "Put back the copy of the night before" in capsys.readouterr().err


HOSTILE = 'x|y</td><script>alert(1)</script>\x1b[31m\n# head "q" `c` [l](http://e) *b* @me ~~s~~ $x$'


def test_a_strangers_text_is_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = clean()
    case.shards[TWO].fail(case.shards[TWO].ids[0], faults=[], reason=HOSTILE)
    case.shards[TWO].run = replace(case.shards[TWO].run, options=(HOSTILE,))
    case.shards["cpu/cpu 1"].run = replace(case.shards["cpu/cpu 1"].run, versions={"torch": HOSTILE})
    case.shards["cuda/sm_90 1"].run = replace(case.shards["cuda/sm_90 1"].run, commit="\x1b[31m")
    results = written(tmp_path / "results", case)
    summary = tmp_path / "summary.md"
    main(["gate", str(results), *EXPECT, *TODAY, "--summary", str(summary)])
    shown = capsys.readouterr().out
    assert "alert(1)" in shown
    assert "\x1b" not in shown
    assert r"\~\~s\~\~ \$x\$" in summary.read_text()
    text = summary.read_text()
    assert "alert(1)" in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\n# head" not in text
    assert "x\\|y" in text
    assert "](http" not in text.replace("\\]", "")


@pytest.mark.parametrize(("top", "words"), [(40, ""), (39, "and 1 more lines: --json has all")])
def test_a_section_has_an_end(
    top: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of forty failures has a mistake of its own here, so that none share a line."""
    monkeypatch.setattr(gate_words, "TOP", top)
    case = clean()
    for files in case.shards.values():
        for nodeid in files.ids:
            files.fail(nodeid, faults=[f"fault.{nodeid}"])
    summary = tmp_path / "summary.md"
    main(["gate", str(written(tmp_path / "results", case)), *EXPECT, *TODAY, "--summary", str(summary)])
    for said in (capsys.readouterr().out, summary.read_text()):
        assert said.count("fault.narrowgauge") == top
        assert ("--json has all" in said) == bool(words)
        assert words in said


def test_findings_of_one_kernel_share_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = clean()
    files = case.shards["cpu/cpu 1"]
    ours = [nodeid for nodeid in files.ids if "-ours-" in nodeid]
    for nodeid in ours:
        files.end(nodeid, "xfailed", "disputed", models={"cvt": True})
    for shard in ("cuda/sm_90 1", "cuda/sm_90 2", "cuda/sm_90 3"):
        for nodeid in case.shards[shard].ids:
            if "-attend_" in nodeid or "-wide_" in nodeid:
                case.shards[shard].end(nodeid, "skipped", "not_executed", reason="no GPU")
    main(["gate", str(written(tmp_path / "results", case)), *EXPECT, *TODAY])
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"a test is disputed: float32-float8_e4m3fn-attend_0-ours-host: open: cvt (and {len(ours) - 1} more)." in said
    )
    assert "of a whole operation nothing was executed: attend: no GPU; wide: no GPU. Rows say" in said


def test_waivers_near_their_date_the_mended_and_the_slowest(tmp_path: Path) -> None:
    first, case = night(), night(DAY + datetime.timedelta(days=1))
    first.shards[TWO].fail(first.shards[TWO].ids[0])
    case.history = first.judge(tmp_path / "first").history
    for days, until in ((31, "2027-01-01"), (30, "2026-12-31, 30 days"), (0, "2026-12-01, 0 days")):
        case.waivers = [replace(WAIVER, expires=case.today + datetime.timedelta(days=days))]
        found = {section.title: section.rows for section in gate_words.sections(case.judge(tmp_path / str(days)))}
        assert found["waived"] == [("theirs", "host", "1", until, f"{WAIVER.reason} ({WAIVER.link})")]
        assert [row[:4] for row in found["mended"]] == [("ours", "owner-of-ours", "sm_90", "1")]
        shards = ["cuda/sm_90 3/3", "cuda/sm_90 2/3", "cuda/sm_90 1/3", "cpu/cpu 1/1"]
        assert [row[0] for row in found["slowest shards"]] == shards


def no_file(folder: Path) -> str:
    (folder / "results.tgz").write_bytes(b"x")
    return str(folder / "results.tgz")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (lambda folder: [no_file(folder)], "is a file; expected a directory of results"),
        (lambda folder: [], "nothing to judge"),
        (lambda folder: [str(folder), "--today", "yesterday"], "--today 'yesterday'; expected a date"),
        (lambda folder: [str(folder), "--expect", "cuda"], "expected LANE/TARGET"),
        (lambda folder: [str(folder), "--expect", "cudda/sm_90"], "did you mean cuda"),
        (lambda folder: [str(folder), *EXPECT, "--expect", "cpu/cpux2"], "--expect names cpu/cpu twice"),
        (lambda folder: [str(folder), "--waivers", str(folder / "no.toml")], "cannot read waivers"),
        (lambda folder: [str(folder), "--quarantine", str(folder / "no.toml")], "cannot read quarantines"),
        (lambda folder: [str(folder), "--lanes", str(folder / "no.toml")], "cannot read lanes"),
        (lambda folder: [str(folder), "--history", str(folder)], "cannot read history"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: Callable[[Path], list[str]], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    given: list[Any] = arguments(tmp_path)
    assert main(["gate", *given, "--summary", str(summary)]) == Exit.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not summary.exists()


def test_a_night_that_cannot_be_told_is_not_taken_in(tmp_path: Path) -> None:
    results = written(tmp_path / "results", clean())
    (tmp_path / "folder").mkdir()
    kept = tmp_path / "nights.json"
    wrong = ["gate", str(results), *EXPECT, *TODAY, "--history", str(kept), "--summary", str(tmp_path / "folder")]
    assert main(wrong) == Exit.BAD_INPUT
    assert not kept.exists()


def test_a_crash_is_told_with_its_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = clean()
    two = case.shards[TWO]
    two.end(two.ids[0], "error", None)
    two.event("end", two.ids[0])["message"] = "worker 'gw0' crashed"
    two.run = replace(two.run, exit_code=1)
    summary = tmp_path / "summary.md"
    results = written(tmp_path / "results", case)
    assert main(["gate", str(results), *EXPECT, *TODAY, "--summary", str(summary)]) == Exit.FAILED
    for text in (capsys.readouterr().out, summary.read_text().replace("\\", "")):
        assert f"{two.ids[0].partition('[')[2].removesuffix(']')}: worker 'gw0' crashed" in " ".join(text.split())


def test_waivers_that_are_given_come_beside_the_suites_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    form = '[[waiver]]\nkernel = "{}"\ntarget = "host"\ntest = "*"\nversions = {{ torch = ">=1" }}\n'
    form += 'link = "docs/a.md"\nreason = "r"\nexpires = 2026-11-29\n'
    for name in ("own", "mine"):
        (tmp_path / f"{name}.toml").write_text(form.format(name))
    monkeypatch.setattr(waivers, "OWN", tmp_path / "own.toml")
    results = written(tmp_path / "results", clean())
    given = ["--waivers", str(tmp_path / "mine.toml")]
    assert main(["gate", str(results), *EXPECT, *TODAY, *given, "--json"]) == Exit.FAILED
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {f["kernel"] for f in found if f["kind"] == "expired_waiver"} == {"own", "mine"}


def test_a_history_that_was_lost_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, kept = written(tmp_path / "results", clean()), tmp_path / "nights.json.gz"
    for told in (["no_history"], []):
        assert main(["gate", str(results), *EXPECT, *TODAY, "--history", str(kept), "--json"]) == Exit.OK
        assert [f["kind"] for f in json.loads(capsys.readouterr().out)["findings"]] == told


def test_a_directory_that_has_results_of_its_own_is_no_directory_of_directories(tmp_path: Path) -> None:
    """One whose run.json is gone, with folders in it: what is in those is not looked for."""
    case = clean()
    results = written(tmp_path / "results", case)
    lost = results / "cpu-cpu 1"
    (lost / "run.json").unlink()
    (lost / "allure-results").mkdir()
    arguments = argparse.Namespace(
        directories=[lost], expect=["cpu/cpu"], waivers=[], lanes=lanes.OWN, quarantine=quarantine.OWN,
        history=None, accept=False, today=str(DAY),
    )  # fmt: skip
    said = [f.said for f in judged(arguments).findings if f.kind == "damaged"]
    assert said == [f"{lost}: run.json is missing"]
