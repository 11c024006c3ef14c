"""Results that no run of ours writes, made to agree with their sums: told, and never a traceback."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, read_shard
from narrowgauge.suites.meta.night_sets import night, red, said
from narrowgauge.suites.meta.night_spoiled import TWO

pytestmark = pytest.mark.meta

DIRECTORY = TWO.replace("/", "-")
#: deeper than Python's reader of JSON goes
DEEP = 200_000


@pytest.mark.parametrize("name", [RUN, PLAN, JOURNAL])
@pytest.mark.parametrize("opens", ["[", '{"a":'])
def test_json_that_is_too_deep(name: str, opens: str, tmp_path: Path) -> None:
    case = night()
    case.spoil = lambda folder: _written(folder / DIRECTORY / name, opens * DEEP)
    assert "damaged" in [kind for kind, _ in red(case.judge(tmp_path))]


def _written(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 5000, "../" * 40 + "nowhere"])
def test_a_sum_of_a_file_that_cannot_be(name: str, tmp_path: Path) -> None:
    case = night()
    case.spoil = lambda folder: _sealed(folder / DIRECTORY / RUN, {name: "0" * 64})
    assert red(case.judge(tmp_path)) == [("damaged", TWO + "/3")]


def test_the_sum_of_what_could_not_be_read_is_no_seal(tmp_path: Path) -> None:
    """A ledger that the run could not read when it sealed its files, and that is not there now."""
    case = night()

    def spoil(folder: Path) -> None:
        _sealed(folder / DIRECTORY / RUN, {LEDGER: ""})
        (folder / DIRECTORY / LEDGER).unlink()

    case.spoil = spoil
    assert f"{LEDGER} is not the file that the run wrote" in said(case.judge(tmp_path), "damaged")


def _sealed(path: Path, sums: dict[str, str]) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"files": data["files"] | sums}))


@pytest.mark.parametrize("started", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_is_none_in_utc(started: str, tmp_path: Path) -> None:
    case = night()
    case.shards[TWO].run = replace(case.shards[TWO].run, started=started)
    assert {kind for kind, _ in red(case.judge(tmp_path))} == {"damaged", "missing_shard"}


@pytest.mark.parametrize(
    "other", [{"kernel": "another"}, {"target": "gfx942"}, {"format": "float8_e5m2"}, {"operation": "wide"}]
)
def test_a_verdict_on_something_else_under_the_right_id(other: dict[str, Any], tmp_path: Path) -> None:
    case = night()
    files = case.shards[TWO]
    files.end(files.ids[0], "passed", "passed", **other)
    report = case.judge(tmp_path)
    assert red(report) == [("foreign_id", TWO + "/3")]
    ((name, value),) = other.items()
    assert said(report, "foreign_id") == f"{files.ids[0]} has the verdict of another {name}, {value}"


def test_text_that_no_encoding_has_is_told(tmp_path: Path) -> None:
    """A lone surrogate, as an exception of a kernel can hold it."""
    case = night()
    files = case.shards[TWO]
    files.event("end", files.ids[0]).update(row=None, outcome="error", message="\ud800")
    files.run = replace(files.run, exit_code=1)
    assert red(case.judge(tmp_path)) == [("crashed", TWO + "/3")]
    assert read_shard(tmp_path / DIRECTORY).problems == []


def test_a_line_that_cannot_be_read_in_a_run_that_was_lost(tmp_path: Path) -> None:
    """Such a run has no sums: its journal may end in the middle of a line, and nowhere else be damaged."""
    case = night()
    files = case.shards[TWO]
    files.run, files.seal = replace(files.run, state="started", exit_code=None, ended=""), False

    def spoil(folder: Path) -> None:
        lines = (folder / DIRECTORY / JOURNAL).read_text().splitlines(keepends=True)
        (folder / DIRECTORY / JOURNAL).write_text("".join([lines[0], "{\n", *lines[1:], '{"event": "beg']))

    case.spoil = spoil
    report = case.judge(tmp_path)
    assert red(report) == [("damaged", TWO + "/3"), ("lost", TWO + "/3")]
    assert said(report, "damaged").endswith(f"{JOURNAL} line 2 cannot be read")


def test_a_journal_that_a_finished_run_did_not_leave(tmp_path: Path) -> None:
    case = night()
    case.spoil = lambda folder: (folder / DIRECTORY / JOURNAL).unlink()
    assert f"{JOURNAL} is missing; " in said(case.judge(tmp_path), "damaged")


@pytest.mark.parametrize("change", [{"owner": 3}, {"shard": True}, {"markers": [1]}])
def test_one_cell_of_many_that_is_not_as_it_must_be(change: dict[str, Any], tmp_path: Path) -> None:
    case = night()

    def spoil(folder: Path) -> None:
        data = json.loads((folder / DIRECTORY / PLAN).read_text())
        data["cells"][-1] |= change
        (folder / DIRECTORY / PLAN).write_text(json.dumps(data))

    case.spoil = spoil
    assert f"{PLAN} cannot be read: it has a cells that is not as it must be" in said(case.judge(tmp_path), "damaged")
