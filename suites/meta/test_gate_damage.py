"""Whatever is taken from a clean night, cut off it, or there twice: the gate is never green, and never falls over."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from narrowgauge.ci.gate import Rules, gate
from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN, read_shard
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, night

pytestmark = pytest.mark.meta

SHARDS = ("cuda-sm_90 1", "cuda-sm_90 2", "cuda-sm_90 3", "cpu-cpu 1")
SEALED = (PLAN, JOURNAL, LEDGER)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rules]:
    """A clean night on the disk, and the rules by which it is green."""
    folder = tmp_path_factory.mktemp("clean")
    case = night()
    for name, files in case.shards.items():
        files.write(folder / name.replace("/", "-"))
    assert judged(folder, case.rules) == Exit.OK
    return folder, case.rules


def judged(folder: Path, rules: Rules) -> Exit:
    return gate([read_shard(p) for p in sorted(folder.iterdir()) if p.is_dir()], rules, None, DAY).exit


def put(path: Path, content: bytes) -> None:
    """A new file in place of the one that is linked there."""
    path.unlink()
    path.write_bytes(content)


def _damaged(draw: st.DrawFn, folder: Path) -> str:
    """Do one thing to the files, and say which."""
    shard = folder / draw(st.sampled_from(SHARDS))
    name = draw(st.sampled_from((RUN, *SEALED)))
    path = shard / name
    raw = path.read_bytes()
    what = draw(st.sampled_from(("remove", "cut", "empty", "double", "shard", "again", "swap", "byte", "line", "key")))
    if what == "remove":
        path.unlink()
    elif what == "cut":
        put(path, raw[: draw(st.integers(0, len(raw) - 1))])
    elif what == "empty":
        put(path, b"")
    elif what == "double":
        put(path, raw + raw)
    elif what == "shard":
        shutil.rmtree(shard)
    elif what == "again":
        shutil.copytree(shard, folder / "again", copy_function=os.link)
    elif what == "swap":
        other = folder / draw(st.sampled_from([s for s in SHARDS if s != shard.name]))
        put(other / RUN, (shard / RUN).read_bytes())
    elif what == "byte":  # run.json has no sum of itself
        path = shard / draw(st.sampled_from(SEALED))
        raw = path.read_bytes()
        place = draw(st.integers(0, len(raw) - 1))
        put(path, raw[:place] + bytes([raw[place] ^ draw(st.integers(1, 255))]) + raw[place + 1 :])
    elif what == "line":
        path = shard / JOURNAL
        lines = path.read_bytes().splitlines(keepends=True)
        place = draw(st.integers(0, len(lines) - 1))
        put(path, b"".join(lines[:place] + lines[place:][draw(st.integers(0, 1)) :] + lines[place : place + 1]))
        if path.read_bytes() == b"".join(lines):  # the last line, taken out and put at the end
            put(path, b"".join(lines[:-1]))
    else:
        data = json.loads((shard / RUN).read_text())
        del data[draw(st.sampled_from(sorted(data)))]
        put(shard / RUN, json.dumps(data).encode())
    return f"{what} {shard.name} {path.name}"


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_night_is_never_green(clean: tuple[Path, Rules], data: st.DataObject) -> None:
    folder, rules = clean
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "night"
        shutil.copytree(folder, copy, copy_function=os.link)
        said = data.draw(st.composite(_damaged)(copy))
        assert judged(copy, rules) in (Exit.FAILED, Exit.INFRASTRUCTURE), said


#: what stands in a file that some other program wrote, or that was written by hand
STRANGE: dict[str, Any] = {"nothing": None, "number": 3, "list": [], "object": {}, "text": "x", "deep": [[{"id": []}]]}


@pytest.mark.parametrize("name", [RUN, PLAN, JOURNAL])
@pytest.mark.parametrize("value", STRANGE)
def test_strange_json_is_damage_and_no_traceback(
    clean: tuple[Path, Rules], tmp_path: Path, name: str, value: str
) -> None:
    folder, rules = clean
    shutil.copytree(folder, tmp_path / "night")
    (tmp_path / "night" / SHARDS[1] / name).write_text(json.dumps(STRANGE[value]))
    assert judged(tmp_path / "night", rules) in (Exit.FAILED, Exit.INFRASTRUCTURE)


def test_a_field_that_is_gone_or_of_another_type_is_damage(clean: tuple[Path, Rules], tmp_path: Path) -> None:
    """Each field of the record, of an event and of its row in turn; the sums are made to agree with the files."""
    folder, rules = clean
    shard = tmp_path / "night" / SHARDS[1]
    shutil.copytree(folder, tmp_path / "night")
    record = json.loads((shard / RUN).read_text())
    for name in record:
        (shard / RUN).write_text(json.dumps({n: value for n, value in record.items() if n != name}))
        assert read_shard(shard).run is None, name
        (shard / RUN).write_text(json.dumps(record | {name: [{}]}))
        assert read_shard(shard).run is None, name
        assert judged(tmp_path / "night", rules) == Exit.INFRASTRUCTURE, name
    (shard / RUN).write_text(json.dumps(record))
    assert read_shard(shard).problems == []
    lines = [json.loads(line) for line in (shard / JOURNAL).read_text().splitlines()]
    for name in lines[1]["row"]:
        changed = lines[1] | {"row": lines[1]["row"] | {name: [{}]}}
        (shard / JOURNAL).write_text("\n".join(json.dumps(e) for e in [lines[0], changed, *lines[2:]]) + "\n")
        assert any(p.startswith(f"{JOURNAL} has an event") for p in read_shard(shard).problems), name
