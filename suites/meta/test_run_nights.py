"""What becomes of a run's files afterwards, and of nights of several shards: the gate must not pass it.

docs/nightly.md has the faults.
"""

from __future__ import annotations

import datetime
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowgauge.ci.gate import Rules
from narrowgauge.ci.gate import gate as judged
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, read_shard
from narrowgauge.golden.manifest import NAME
from narrowgauge.suites import lane_run
from narrowgauge.suites.meta.break_sets import IDS, LANE, Files, holds, ran
from narrowgauge.suites.meta.injected import FAULTS, PAGE, page

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("quick_runs")]


def test_every_fault_is_injected() -> None:
    sources = "".join(p.read_text() for p in Path(__file__).parent.glob("test_run_*.py"))
    assert [name for name in FAULTS if f'"{name}"' not in sources] == []


@pytest.mark.skipif(not PAGE.exists(), reason="docs/ is not installed with the package")
def test_the_page_is_written_from_the_faults() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "python -m narrowgauge.suites.meta.injected"


# --- files, afterwards -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a whole run left. Copy it before you change it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert ran(out) == 0
    return out


@pytest.mark.parametrize(("name", "fault"), [(JOURNAL, "cut"), (PLAN, "cut"), (LEDGER, "cut"), (RUN, "no record")])
def test_a_file_that_is_gone(whole: Path, tmp_path: Path, name: str, fault: str) -> None:
    shutil.copytree(whole, tmp_path / "out")
    (tmp_path / "out" / name).unlink()
    holds(fault, None, tmp_path / "out")


@pytest.mark.parametrize("name", [JOURNAL, PLAN, LEDGER])
def test_a_record_that_does_not_seal_a_file(whole: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(whole, tmp_path / "out")
    record = json.loads((tmp_path / "out" / RUN).read_text())
    del record["files"][name]
    (tmp_path / "out" / RUN).write_text(json.dumps(record))
    holds("cut", None, tmp_path / "out")


RULES, TODAY = Rules({LANE.name: LANE}), datetime.datetime.now(datetime.UTC).date()


@given(st.data())
@settings(max_examples=150)
def test_no_cut_and_no_other_byte_is_passed(whole: Path, data: st.DataObject) -> None:
    """Of sealed files any byte counts. Of run.json, which seals them, a cut does."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        shutil.copytree(whole, out)
        name = data.draw(st.sampled_from([JOURNAL, PLAN, LEDGER, RUN]))
        content = (out / name).read_bytes()
        place = data.draw(st.integers(0, len(content.rstrip()) - 1))
        changed = content[:place]
        if name != RUN and data.draw(st.booleans()):
            changed += bytes([content[place] ^ data.draw(st.integers(1, 255))]) + content[place + 1 :]
        (out / name).write_bytes(changed)
        assert read_shard(out).problems
        report = judged([read_shard(out)], RULES, None, TODAY)
        assert "damaged" in {finding.kind for finding in report.red}


# --- nights of several shards ----------------------------------------------------------------------------------------

THREE = replace(LANE, shards=3)
#: of three shards, which has which test
DEALT = {i: k for k, i in enumerate(IDS, 1)}


def night(folder: Path, *files: Files | None) -> list[Path]:
    """Runs of three shards, of one test each."""
    for k, left in enumerate(files, 1):
        shard(folder / str(k), k, left or Files({IDS[k - 1]: "passed"}, shards=DEALT))
    return [folder / str(k) for k in range(1, len(files) + 1)]


def shard(out: Path, k: int, files: Files) -> None:
    assert ran(out, replace(files, of=3), lane=THREE, shard=k, shards=3) == 0


def test_three_shards(tmp_path: Path) -> None:
    holds("three shards", 0, *night(tmp_path, None, None, None), lane=THREE)


def test_a_shard_that_is_lost(tmp_path: Path) -> None:
    outs = night(tmp_path, None, None, None)
    shutil.rmtree(outs.pop(1))
    holds("shard lost", None, *outs, lane=THREE)


def test_shards_with_different_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outs = night(tmp_path, None, None)
    (tmp_path / NAME).write_text("{}")
    monkeypatch.setattr(lane_run, "VECTORS", tmp_path)
    shard(tmp_path / "3", 3, Files({IDS[2]: "passed"}, shards=DEALT))
    holds("other vectors", None, *outs, tmp_path / "3", lane=THREE)


def test_a_test_that_two_shards_have_in_their_plans(tmp_path: Path) -> None:
    twice = Files({IDS[1]: "passed", IDS[2]: "passed"}, shards={**DEALT, IDS[1]: 3})
    holds("duplicate ids", None, *night(tmp_path, None, None, twice), lane=THREE)


def test_a_test_of_another_shard(tmp_path: Path) -> None:
    foreign = Files({IDS[1]: "passed", IDS[2]: "passed"}, shards=DEALT)
    holds("foreign id", None, *night(tmp_path, None, None, foreign), lane=THREE)


def test_a_shard_that_is_given_twice(tmp_path: Path) -> None:
    outs = night(tmp_path, None, None, None)
    shutil.copytree(outs[1], tmp_path / "again")
    holds("shard twice", None, tmp_path / "again", *outs, lane=THREE)
