"""Judging from files: a helpful word for every file that is not what it should be."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from narrowgauge import command
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.meta.offline_program import (
    CAST,
    QUANTIZE,
    Array,
    answers,
    judged,
    load,
    save,
)
from narrowgauge.suites.offline import SCHEMA, judge_files, write_inputs

pytestmark = pytest.mark.meta

# --- files that are not what they should be --------------------------------------------------------------------------


def one_line_error(inputs: Path, outputs: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says; it must be one line, with the exit code for bad input, and no verdict beside it."""
    assert command.main(["judge", str(inputs), str(outputs)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("narrowgauge: ")
    assert said.err.count("\n") == 1
    return said.err


NOT_FILES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read"),
    "empty": (b"", "is not a whole safetensors file (0 bytes)"),
    "seven bytes": (b"\0" * 7, "is not a whole safetensors file (7 bytes)"),
    "random": (random.Random(3).randbytes(5000), "is not a whole safetensors file (5000 bytes)"),
    "text": (b"edges.codes: 1 2 3\n", "is not a whole safetensors file (19 bytes)"),
    "header longer than the file": (struct.pack("<Q", 1000) + b"{}", "is not a whole safetensors file (10 bytes)"),
    "header longer than any file": (struct.pack("<Q", 1 << 63) + b"{}", "is not a whole safetensors file (10 bytes)"),
    "header is a list": (struct.pack("<Q", 2) + b"[]", "is not a whole safetensors file (10 bytes)"),
}


@pytest.mark.parametrize("kind", NOT_FILES)
def test_no_file_of_tensors(kind: str, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = NOT_FILES[kind]
    path = asked.parent / "given.safetensors"
    if content is not None:
        path.write_bytes(content)
    for pair in ((asked, path), (path, asked)):
        said = one_line_error(*pair, capsys)
        assert str(path) in said
        assert words in said


@pytest.mark.parametrize("which", ["inputs", "outputs"])
@pytest.mark.parametrize("left", [100, -1])
def test_a_truncated_file(which: str, left: int, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = save(asked.parent / "out.safetensors", {n: ("U8", a) for n, a in answers(CAST, asked).items()})
    cut = asked if which == "inputs" else out
    cut.write_bytes(cut.read_bytes()[:left])
    assert f"{cut} is not a whole safetensors file" in one_line_error(asked, out, capsys)


@pytest.mark.parametrize("dtype", ["BOOL", "C64"])
def test_outputs_in_a_type_that_is_not_read(dtype: str, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = np.zeros(8, np.uint8)
    array = codes.astype(np.complex64) if dtype == "C64" else codes
    out = save(asked.parent / "out.safetensors", {"edges.codes": (dtype, array)})
    assert f"{out}: tensor 'edges.codes' has dtype {dtype}; this version reads" in one_line_error(asked, out, capsys)


@pytest.mark.parametrize(("dtype", "bits"), [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)])
def test_packed_outputs_are_not_misread(dtype: str, bits: int, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight codes, of which two or four share bytes."""
    header = {"edges.codes": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}
    text, out = json.dumps(header).encode(), asked.parent / "out.safetensors"
    out.write_bytes(struct.pack("<Q", len(text)) + text + bytes(bits))
    said = one_line_error(asked, out, capsys)
    assert f"{out}: tensor 'edges.codes' has dtype {dtype}; packed sub-byte tensors are not read yet" in said
    assert "give codes as U8, one per byte" in said


@pytest.mark.parametrize("dtype", ["F64", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0"])
def test_outputs_of_another_format_that_is_read(dtype: str, asked: Path) -> None:
    """A verdict on their form, where this was once a file that could not be read."""
    codes = answers(CAST, asked)["edges.codes"]
    array = codes.astype(np.float64) if dtype == "F64" else codes
    found = judged(asked, {"edges.codes": (dtype, array)})[0]
    assert found.row.result == "failed"
    name = next(f.name for f in FORMATS.values() if f.safetensors == dtype)
    assert found.row.malformed == (f"codes is {name}, want float8_e4m3fn",)


@pytest.mark.parametrize("dtype", ["I8", "U8"])
def test_codes_of_int8_may_come_as_its_numbers(dtype: str, tmp_path: Path) -> None:
    inputs, claim = tmp_path / "in.safetensors", "cast/integer_nearest/float32/int8"
    write_inputs(Claim.parse(claim), "smoke", inputs)
    right = {
        f"{case}.codes": np.rint(np.nan_to_num(x, nan=0.0).clip(-128, 127)).astype(np.int8).view(np.uint8)
        for case, x in load(inputs).items()
    }
    for flip, result in ((0, "passed"), (1, "failed")):
        rows = judged(inputs, {name: (dtype, codes ^ np.uint8(flip)) for name, codes in right.items()})
        assert {one.row.result for one in rows} == {result}


def test_outputs_under_other_names(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = answers(CAST, asked)["edges.codes"]
    out = save(asked.parent / "out.safetensors", {"edges.codes": ("U8", codes), "edge.codes": ("U8", codes)})
    said = one_line_error(asked, out, capsys)
    assert f"{out} holds edge.codes; expected edges.codes, every_code.codes" in said


def test_inputs_given_as_outputs(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "holds edges.x, every_code.x; expected edges.codes" in one_line_error(asked, asked, capsys)


def test_outputs_given_as_inputs(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without our metadata."""
    out = save(asked.parent / "out.safetensors", {n: ("U8", a) for n, a in answers(CAST, asked).items()})
    assert f"{out} was not written by narrowgauge" in one_line_error(out, asked, capsys)


def no_rows() -> dict[str, Coded]:
    return {"edges.x": Coded("bfloat16", np.zeros(3, np.uint16))}


@pytest.mark.parametrize(
    ("change", "tensors", "words"),
    [
        ({"schema": "narrowgauge.inputs/99"}, no_rows(), "has schema 'narrowgauge.inputs/99'; this version reads"),
        ({"schema": None}, no_rows(), "has schema None"),
        ({"schema": "narrowgauge.golden/1"}, no_rows(), "has schema 'narrowgauge.golden/1'"),
        ({"claim": "cast/ocp_saturat/bfloat16/float8_e4m3fn"}, no_rows(), "did you mean ocp_saturate"),
        ({"claim": None}, no_rows(), "expected operation/rule/source/format"),
        ({"claim": 3}, no_rows(), "expected operation/rule/source/format"),
        ({"claim": "cast/ocp_saturate/float32/float8_e4m3fn"}, no_rows(), "expected codes of float32"),
        ({"claim": QUANTIZE.replace("float32", "bfloat16")}, no_rows(), "has shape [3]; expected [rows, columns]"),
        ({"cases": None}, no_rows(), "its metadata names no cases"),
        ({"cases": "edges"}, no_rows(), "its metadata names no cases"),
        ({"cases": []}, no_rows(), "its metadata names no cases"),
        ({"cases": ["edges", "stratified"]}, no_rows(), "holds no tensor 'stratified.x', which its metadata promises"),
        ({"cases": [["edges"]]}, no_rows(), "holds no tensor"),
        ({}, {"edges.x": Coded("float16", np.zeros(3, np.uint16))}, "came as uint16 of float16; expected codes of bf"),
        ({}, {}, "holds no tensor 'edges.x'"),
        (
            {"claim": QUANTIZE.replace("float32", "bfloat16")},
            {"edges.x": Coded("bfloat16", np.zeros((3, 0), np.uint16))},
            "has shape [3, 0]; expected [rows, columns]",
        ),
    ],
)
def test_an_inputs_file_that_does_not_hold_what_it_says(
    change: dict[str, object],
    tensors: dict[str, Coded],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, out = tmp_path / "in.safetensors", save(tmp_path / "out.safetensors", {})
    metadata = {"schema": SCHEMA, "claim": CAST, "cases": ["edges"]} | change
    write(path, tensors, {k: v for k, v in metadata.items() if v is not None}, typed=True)
    said = one_line_error(path, out, capsys)
    assert words.replace("of bf", "of bfloat16") in said
    assert str(path) in said


def test_inputs_that_came_through_other_hands(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain unsigned integers are taken for codes of the source; signed ones are not."""
    whole = asked.read_bytes()
    asked.write_bytes(whole.replace(b'"BF16"', b'"U16" '))
    assert {one.row.result for one in judged(asked, right_of(whole, asked.parent))} == {"passed"}
    asked.write_bytes(whole.replace(b'"BF16"', b'"I16" '))
    said = one_line_error(asked, asked.parent / "out.safetensors", capsys)
    assert f"{asked}: 'edges.x' came as int16 of bfloat16; expected codes of bfloat16" in said


def right_of(content: bytes, folder: Path) -> dict[str, Array]:
    (folder / "typed").write_bytes(content)
    return answers(CAST, folder / "typed")


@pytest.mark.parametrize("claim", [CAST, QUANTIZE])
def test_no_damaged_file_raises_anything_but_bad_input(claim: str, tmp_path: Path) -> None:
    """500 damaged files for each claim: bytes changed, in the header or anywhere, and files cut off."""
    rng = random.Random(claim)
    whole, inputs, outputs = (tmp_path / name for name in ("whole", "in", "out"))
    parsed = Claim.parse(claim)
    x = next(iter(cases_for(parsed, "smoke").values()))
    few = Coded(x.format, x.data[:60] if x.data.ndim == 1 else x.data[14:20, :9].copy())
    write(whole, {"a.x": few, "b.x": few}, {"schema": SCHEMA, "claim": claim, "cases": ["a", "b"]}, typed=True)
    right = save(outputs, {n: ("U8" if a.itemsize == 1 else "U32", a) for n, a in answers(claim, whole).items()})
    assert [one.row.result for one in judge_files(whole, right, "k", "t")] == ["passed", "passed"]
    valid = whole.read_bytes(), outputs.read_bytes()
    verdicts, refusals = 0, list[str]()
    for number in range(500):
        damaged = bytearray(valid[number % 2])
        if number % 5 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            (header,) = struct.unpack("<Q", damaged[:8])
            reach = 8 + header if number % 5 < 3 else len(damaged)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(reach)] = rng.choice([rng.randrange(256), *b'0123456789",:[]{}UIF/?.abx'])
        inputs.write_bytes(valid[0] if number % 2 else damaged)
        outputs.write_bytes(damaged if number % 2 else valid[1])
        try:
            verdicts += len(judge_files(inputs, outputs, "k", "t"))
        except BadInput as error:
            refusals.append(str(error))
    assert verdicts > 100
    assert len(refusals) > 200
    assert [text for text in refusals if str(tmp_path) not in text or "\n" in text] == []
