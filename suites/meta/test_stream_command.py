"""The command's streams: ``judge --stream`` and ``inputs --stream``."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from narrowgauge import command as narrowgauge_command
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.command_sets import ends, refused, said
from narrowgauge.suites.meta.offline_program import CAST, QUANTIZE
from narrowgauge.suites.meta.test_stream import FEW, LINES, integers, program

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


def test_a_program_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ledger.json"
    options = ["--target", "gfx942", "--kernel", "mine", "--ledger", str(path)]
    assert ends(["judge", "--stream", FEW, *options, "--json", "--", *program(LINES)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data | {"written": ""} == json.loads(path.read_text()) | {"written": ""}
    assert data["options"] == {"stream": FEW, "depth": "smoke", "outputs": program(LINES)}
    assert {(row["kernel"], row["target"], row["how"]) for row in data["rows"]} == {("mine", "gfx942", "replayed")}
    assert sorted(row["id"] for row in data["rows"]) == data["plan"]


def test_what_follows_two_dashes_is_the_program_s(capsys: pytest.CaptureFixture[str]) -> None:
    """Options of ours and further dashes among them."""
    body = f"assert sys.argv[1:] == ['--json', '--', '-k', '--stream'], sys.argv\n{LINES}"
    text = said(["judge", "--stream", FEW, "--", *program(body), "--json", "--", "-k", "--stream"], capsys)
    assert "2 passed" in text
    assert Path(sys.executable).stem in text, "named after the program"


@pytest.mark.parametrize("place", ["file", "standard input"])
def test_answers_that_are_there_already(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, answers = tmp_path / "cases.txt", tmp_path / "mine.txt"
    assert said(["inputs", FEW, "--stream", "-o", str(questions)], capsys) == ""
    patterns = np.array([int(line, 16) for line in questions.read_text().split()])
    answers.write_bytes(b"".join(b"%x\n" % code for code in integers(patterns).tolist()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answers.read_bytes())))
    text = said(["judge", FEW, "--stream", str(answers) if place == "file" else "-"], capsys)
    assert "2 passed" in text
    assert ("mine" if place == "file" else "stdin") in text


def test_a_pipeline() -> None:
    """As TestFloat has it: what makes the cases, the program, what judges, each a process of its own."""
    ours = f"{sys.executable} -m narrowgauge"
    claim, upper = "cast/ieee/float8_e5m2/float16", "sed 's/$/00/'"
    line = f"{ours} inputs {claim} --stream | {upper} | {ours} judge {claim} --stream --json -"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)["rows"]
    assert {(row["case"], row["result"], row["kernel"]) for row in rows} == {("every_code", "passed", "stdin")}


@pytest.mark.parametrize(
    ("claim", "reader", "seen"), [(CAST, "head -n 1", "0000\n"), (FEW, ":", "")], ids=["one", "none"]
)
def test_a_reader_that_has_seen_enough(claim: str, reader: str, seen: str) -> None:
    """The long stream breaks while it is written, the short one in the last flush, and then in the interpreter's.

    The code is that of a program that SIGPIPE ended, as shells say it: not all was said, so it is no verdict.
    """
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    line = f"{sys.executable} -m narrowgauge inputs {claim} --stream | {reader}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=True, env=buffered)
    assert (done.stdout, done.stderr) == (f"{seen}141\n", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["judge", "--stream", QUANTIZE, "-"], "a stream carries single values, so it is for casts alone"),
        (["inputs", "--stream", QUANTIZE], "a stream carries single values, so it is for casts alone"),
        (["judge", "--stream", "cast/ocp_saturat/float32/float8_e4m3fn", "-"], "did you mean ocp_saturate"),
        (["judge", "--stream", "in.safetensors", "out.safetensors"], "expected operation/rule/source/format"),
        (["judge", "--stream", FEW, "no/such/file"], "cannot read no/such/file: No such file or directory"),
        (["judge", "in", "--", "./program"], "a command after --, and --binary, go with --stream"),
        (["judge", "in", "out", "--binary"], "a command after --, and --binary, go with --stream"),
        (["inputs", FEW, "-o", "x", "--binary"], "--binary goes with --stream"),
        (["inputs", FEW, "--stream", "--json"], "--json and the stream would both go to standard output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_asked(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["judge", "--stream", FEW], "the following arguments are required: OUT"),
        (["judge", "--stram", FEW, "--", "x"], "unrecognized arguments: --stram"),
        (["devices", "--", "x", "y"], "unrecognized arguments: -- x y"),
        (["judge", "--stream", FEW, "-", "x"], "unrecognized arguments: x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(arguments) == Exit.BAD_INPUT
    assert words in capsys.readouterr().err


def test_a_failed_stream_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert narrowgauge_command.main(["judge", "--stream", FEW, "--", *program("sys.exit(3)")]) == Exit.FAILED
    assert "crashed: exited with code 3" in " ".join(capsys.readouterr().out.split())
