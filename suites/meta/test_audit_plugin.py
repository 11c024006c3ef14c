"""pytest --checkpoint: an audit's parts as tests beside the kernels, and nothing of it without the option."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import narrowgauge
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.ci.ledger import Ledger
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import OPERATIONS
from narrowgauge.plugin.porting import port_verdict
from narrowgauge.suites.auditing import audited, judged
from narrowgauge.suites.meta.small_bytes import bf16, write_safetensors
from narrowgauge.suites.meta.small_checkpoints import write

pytestmark = pytest.mark.meta

PACKAGE = Path(narrowgauge.__file__).parent
MODULE = PACKAGE / "suites" / "checkpoints" / "test_audit.py"
SCHEMA = PACKAGE / "ci" / "ledger.schema.json"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest on the module of audits alone, in a folder of its own, under our configuration."""
    fixed = ["-c", str(PACKAGE / "pytest.toml"), f"--rootdir={PACKAGE.parent}", "-p", "no:cacheprovider", str(MODULE)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *fixed, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def ledger(folder: Path) -> Any:
    return json.loads((folder / ".narrowgauge" / "ledger.json").read_text())


def test_parts_of_an_audit_are_tests(tmp_path: Path) -> None:
    """A part fails with the text of what is wrong in it, JUnit and the ledger have it, the others pass."""
    write("ct_FP8_DYNAMIC", tmp_path / "wrong", flaw="scale negative")
    write("bf16", tmp_path / "right")
    named = ["--checkpoint", "wrong", "--checkpoint", "right"]
    done = run(tmp_path, *named, "--junitxml=j.xml")
    assert done.returncode == 1, done.stdout
    data = ledger(tmp_path)
    jsonschema.validate(data, json.loads(SCHEMA.read_text()))
    failed = [row for row in data["rows"] if row["result"] == "failed"]
    assert [row["kernel"] for row in failed] == ["wrong"]
    assert failed[0]["reason"] == "scale negative"
    assert failed[0]["id"].endswith(f"test_cell_audit[{failed[0]['id'].partition('[')[2]}")
    cases = {row["case"] for row in data["rows"] if row["kernel"] == "right"}
    assert {"headers", "model.layers.*.mlp.up_proj.weight", "lm_head.weight"} <= cases
    assert {row["result"] for row in data["rows"] if row["kernel"] == "right"} == {"passed"}
    assert data["not_run"] == []
    assert "as it is: scale negative: " in done.stdout
    assert KINDS["scale negative"].remedy in done.stdout
    tests = ElementTree.parse(tmp_path / "j.xml").getroot().iter("testcase")
    assert len([t for t in tests if t.find("failure") is not None]) == 1


def test_for_mi300(tmp_path: Path) -> None:
    """-m fnuz asks what becomes of it there, and the answer to porting is about the checkpoint too."""
    write("deepseek", tmp_path / "m", flaw="block scales missing")
    done = run(tmp_path, "-m", "fnuz", "--checkpoint=m")
    assert done.returncode == 1, done.stdout
    assert "porting to FNUZ: NOT READY: m failed" in done.stdout
    rows = ledger(tmp_path)["rows"]
    assert {row["format"] for row in rows} == {"float8_e4m3fnuz"}
    assert {row["rule"] for row in rows} == {"fnuz"}
    parts = audited([write("bf16", tmp_path / "plain").folder], to_fnuz=True)
    well = [judged(part).row for part in parts]
    assert port_verdict(Ledger([row.id for row in well], well, {}, {}, "")).state == "READY"
    assert {"fnuz", "checkpoint"} <= set(parts[0].markers)
    rows = [judged(part).row for part in audited([write("ct_FP8", tmp_path / "ocp").folder], to_fnuz=True)]
    notes = {row.case: " ".join(row.notes) for row in rows}
    assert "on gfx942: converted for the target" in notes["headers"]
    assert "to fnuz: OCP bytes for FNUZ" in notes["model.layers.*.mlp.up_proj"]


def test_without_the_option_nothing_changes(tmp_path: Path) -> None:
    """There is no test, no ledger, no line of it."""
    done = run(tmp_path)
    assert done.returncode == 5
    assert "1 deselected" in done.stdout
    assert not (tmp_path / ".narrowgauge").exists()


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    done = run(tmp_path, "--checkpoint=nowhere")
    assert done.returncode == 4
    assert "ERROR: --checkpoint: " in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_two_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write("bf16", tmp_path / folder / "m")
    with pytest.raises(BadInput, match="both called 'm'"):
        audited([tmp_path / "a" / "m", tmp_path / "b" / "m"], to_fnuz=False)


def test_names_of_strangers_are_words_of_ids(tmp_path: Path) -> None:
    """Two names that become the same word stay two tests; a file that ends while it is read is a failure of a part."""
    tensors = {"a[1]::b.weight": bf16(np.ones((2, 2))), "a(1)::b.weight": bf16(np.ones((2, 2)))}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    parts = audited([tmp_path], to_fnuz=False)
    assert [part.case for part in parts] == ["headers", "a_1___b.weight", "a_1___b.weight~2"]
    assert not set("[]:()") & set("".join(part.id for part in parts))
    assert [judged(part).row.result for part in parts] == ["passed"] * 3
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[:-3])
    failed = [part for part in map(judged, parts) if part.row.result == "failed"]
    assert len(failed) == 1
    assert failed[0].message.startswith("[NOT-READ] ")


def test_the_schema_knows_every_operation() -> None:
    rows = json.loads(SCHEMA.read_text())["properties"]["rows"]["items"]["properties"]
    assert set(rows["operation"]["enum"]) == {*OPERATIONS, "audit", "unit"}
