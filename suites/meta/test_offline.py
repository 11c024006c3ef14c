"""Judging from files: the verdicts of a live run, and a helpful word for every file that is not what it should be."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from narrowgauge import command
from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import Outcome
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import Judged, run_cell
from narrowgauge.suites.offline import SCHEMA, judge_files, read_inputs, write_inputs
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
Tensors = dict[str, tuple[str, Array]]
DTYPE = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
CAST = "cast/ocp_saturate/bfloat16/float8_e4m3fn"
QUANTIZE = "quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fn"


# --- a program that knows nothing of us ------------------------------------------------------------------------------


def load(path: Path) -> dict[str, Array]:
    """The float32 values of the tensors of an inputs file, by a reader of a dozen lines."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    values: dict[str, Array] = {}
    for name, entry in json.loads(content[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        dtype = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[entry["dtype"]]
        array = np.frombuffer(content[8 + length :][start:end], dtype).reshape(entry["shape"])
        with np.errstate(invalid="ignore"):
            values[name.removesuffix(".x")] = array.astype(np.float32)
    return values


def save(path: Path, tensors: Tensors) -> Path:
    """Write a file with any dtype names."""
    header: dict[str, Any] = {}
    body = b""
    for name, (dtype, array) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + array.nbytes],
        }
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def to_fp8(values: Array, format_name: str) -> Array:
    """float32 to codes, by ml_dtypes."""
    with np.errstate(all="ignore"):
        codes: Array = values.astype(getattr(ml_dtypes, format_name)).view(np.uint8)
    return codes


def saturating_cast(values: Array, format_name: str) -> Array:
    largest = float(ml_dtypes.finfo(getattr(ml_dtypes, format_name)).max)
    return to_fp8(np.clip(values, -largest, largest), format_name)


def ties_away_cast(values: Array, format_name: str) -> Array:
    """Half of a step is added to the magnitude before what is below it is cut, in the normal range."""
    bits = np.clip(values, -448.0, 448.0).view(np.uint32)
    away = ((bits + np.uint32(0x00080000)) & np.uint32(0xFFF00000)).view(np.float32)
    normal = (np.abs(values) >= 2.0**-6) & ~np.isnan(values)
    return to_fp8(np.where(normal, np.clip(away, -448.0, 448.0), values.clip(-448.0, 448.0)), format_name)


def vllm(values: Array, format_name: str, minimum: bool = True) -> dict[str, Array]:
    """vLLM's per-token quantizer in numpy."""
    bound = np.float32(448.0 if format_name == "float8_e4m3fn" else 224.0)
    with np.errstate(all="ignore"):
        amax = np.fmax.reduce(np.abs(values), axis=1, keepdims=True, initial=np.float32(0))
        scale = amax / bound
        if minimum:
            scale = np.fmax(scale, np.float32(1) / (bound * np.float32(512)))
        clamped = np.fmax(np.fmin(values / scale, bound), -bound)
    return {"codes": to_fp8(clamped, format_name), "scale": scale.view(np.uint32)}


def answers(claim: str, inputs: Path) -> dict[str, Array]:
    """Right outputs for an inputs file, as unsigned integers."""
    _, rule, _, format_name = claim.split("/")
    outputs: dict[str, Array] = {}
    for case, values in load(inputs).items():
        if rule.startswith("vllm"):
            outputs |= {f"{case}.{name}": array for name, array in vllm(values, format_name).items()}
        elif "nonsaturate" in rule or rule == "?":
            outputs[f"{case}.codes"] = to_fp8(values, format_name)
        else:
            outputs[f"{case}.codes"] = saturating_cast(values, format_name)
    return outputs


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """An inputs file of a cast from bfloat16: cases "edges" and "every_code"."""
    path = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(CAST), "smoke", path)
    return path


def judged(inputs: Path, tensors: Tensors | Mapping[str, Array]) -> list[Judged]:
    """Verdicts on outputs, after a way through a file."""
    path = inputs.parent / "out.safetensors"
    plain = {n: t if isinstance(t, tuple) else ({1: "U8", 4: "U32"}[t.itemsize], t) for n, t in tensors.items()}
    save(path, plain)
    return judge_files(inputs, path, "theirs", "gfx942")


# --- right and wrong outputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claim",
    [
        CAST,
        "cast/ocp_saturate/float32/float8_e4m3fn",
        "cast/ocp_nonsaturate/float16/float8_e4m3fn",
        "cast/fnuz_saturate/float16/float8_e4m3fnuz",
        "cast/fnuz_nonsaturate/bfloat16/float8_e4m3fnuz",
        QUANTIZE,
        "quantize/vllm.fp8_per_token_dynamic/bfloat16/float8_e4m3fnuz",
    ],
)
def test_right_outputs_pass(claim: str, tmp_path: Path) -> None:
    inputs = tmp_path / "in.safetensors"
    shapes = write_inputs(Claim.parse(claim), "smoke", inputs)
    assert {name: array.shape for name, array in load(inputs).items()} == shapes
    found = judged(inputs, answers(claim, inputs))
    assert [one.row.case for one in found] == list(shapes)
    assert {one.row.result for one in found} == {"passed"}
    assert {one.row.how for one in found} == {"replayed"}
    assert {one.message for one in found} == {""}
    assert len({one.row.id for one in found}) == len(shapes)
    for one in found:
        row = one.row
        assert (row.claim, row.kernel, row.target, row.device) == (claim, "theirs", "gfx942", "file")
        assert bool(row.portrait) == claim.startswith("cast")
        assert row.own is False
        assert row.authority.startswith(claim.split("/")[1])


def test_inputs_hold_what_a_live_run_is_given(asked: Path) -> None:
    claim, cases = read_inputs(asked)
    assert str(claim) == CAST
    live = cases_for(claim, "smoke")
    assert cases.keys() == live.keys()
    for name, x in cases.items():
        assert x.digest() == live[name].digest()


def test_plain_numpy_can_make_the_outputs(asked: Path) -> None:
    """What a user of the safetensors library does."""
    out = asked.parent / "out.safetensors"
    safetensors.numpy.save_file(answers(CAST, asked), out)
    assert {one.row.result for one in judge_files(asked, out, "k", "t")} == {"passed"}


@pytest.mark.parametrize(
    ("dtype", "change"),
    [
        ("U8", np.asarray),
        ("F8_E4M3", np.asarray),
        ("I32", lambda a: a.astype(np.int32)),
        ("U16", lambda a: a.astype(np.uint16)),
        ("I64", lambda a: a.astype(np.int64)),
    ],
)
def test_codes_may_come_in_any_integer_type_or_their_own(
    asked: Path, dtype: str, change: Callable[[Array], Array]
) -> None:
    right = answers(CAST, asked)
    found = judged(asked, {name: (dtype, change(array)) for name, array in right.items()})
    assert {one.row.result for one in found} == {"passed"}
    wrong = {name: (dtype, change(array ^ 1)) for name, array in right.items()}
    assert {one.row.result for one in judged(asked, wrong)} == {"failed"}


def test_scales_may_come_typed_or_as_their_bits(tmp_path: Path) -> None:
    inputs = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(QUANTIZE), "smoke", inputs)
    right = answers(QUANTIZE, inputs)
    for dtype in ("F32", "U32"):
        outputs = {n: (dtype if n.endswith("scale") else "F8_E4M3", a) for n, a in right.items()}
        assert {one.row.result for one in judged(inputs, outputs)} == {"passed"}


def test_a_wrong_cast_is_named(asked: Path) -> None:
    right = {f"{case}.codes": ties_away_cast(v, "float8_e4m3fn") for case, v in load(asked).items()}
    for one in judged(asked, right):
        assert one.row.result == "failed"
        assert one.row.faults == ("cast.ties_away",)
        assert one.row.explanations[0].faults == ("cast.ties_away",)
        assert one.message.startswith(f"[TIES] theirs (bfloat16 to float8_e4m3fn) on gfx942, case {one.row.case}: cast")
        assert set(one.row.differences) == {"value"}
        assert one.row.breaks == "a specification that it claims"


def test_a_wrong_quantizer_is_named(tmp_path: Path) -> None:
    inputs = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(QUANTIZE), "smoke", inputs)
    outputs = {
        f"{case}.{name}": array
        for case, values in load(inputs).items()
        for name, array in vllm(values, "float8_e4m3fn", minimum=False).items()
    }
    found = {one.row.case: one for one in judged(inputs, outputs)}
    assert found.pop("no_rows").row.result == "passed"
    for one in found.values():
        assert one.row.faults == ("scale.minimum_missing",)
        assert one.message.startswith("[SCALE] theirs")


class Replaying:
    """A device that answers with what is given to it."""

    id, target, how, emulates = "replay", "gfx942", "executed", ""

    def __init__(self, outputs: dict[str, Coded]) -> None:
        self.outputs = outputs

    def run(self, *_: object) -> Outcome:
        return Outcome("returned", self.outputs)


def live(claim: Claim, case: str, x: Coded, outputs: dict[str, Coded]) -> Row:
    """The row of a live run of a kernel that returns those outputs."""
    kernel = Kernel("theirs", claim.contract, (claim.format,), (claim.source,), "unowned", "torch", "soft", "", "",
                    canary=False)  # fmt: skip
    planned = Planned(Plugged(kernel, "theirs.py", {}), claim, case, cast(Any, Replaying(outputs)))
    return run_cell(planned, x).row


@pytest.mark.parametrize(
    "spoil",
    [
        lambda codes: codes,
        lambda codes: codes ^ 1,
        lambda codes: codes & 0x7F,
        lambda codes: np.where(codes & 0x7F == 0x7F, 0, codes),
        lambda codes: codes[:-1],
        lambda codes: codes.astype(np.int32) + 256,
    ],
    ids=["right", "lowest bit", "no sign", "nan to zero", "too short", "not a code"],
)
@pytest.mark.parametrize("claim", [CAST, "cast/?/bfloat16/float8_e4m3fn"])
def test_the_same_verdict_as_a_live_run(claim: str, spoil: Callable[[Array], Array], tmp_path: Path) -> None:
    """Result, differences, faults, reasons, first mismatches, portrait, digest: everything but place and time."""
    parsed, inputs = Claim.parse(claim), tmp_path / "in.safetensors"
    write_inputs(parsed, "smoke", inputs)
    values = load(inputs)["edges"]
    codes = spoil(saturating_cast(values, "float8_e4m3fn"))
    dtype = "U8" if codes.dtype == np.uint8 else "I32"
    replayed = judged(inputs, {"edges.codes": (dtype, codes)})[0].row
    executed = live(parsed, "edges", read_inputs(inputs)[1]["edges"], {"codes": Coded(parsed.format, codes)})
    apart = {name: getattr(replayed, name) for name in ("id", "device", "how", "backend", "seconds")}
    assert replace(executed, **apart) == replayed
    assert (replayed.how, executed.how) == ("replayed", "executed")


def test_what_was_not_answered_was_not_executed(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = answers(CAST, asked)
    del outputs["every_code.codes"]
    found = {one.row.case: one.row for one in judged(asked, outputs)}
    assert found["edges"].result == "passed"
    assert found["every_code"].result == "not_executed"
    assert found["every_code"].outcome == "not_executed"
    assert found["every_code"].reason == "the outputs file holds no tensor of case 'every_code'"
    assert command.main(["judge", str(asked), str(asked.parent / "out.safetensors")]) == 6
    assert "1 passed, 1 not run" in capsys.readouterr().out


def test_half_an_answer_is_a_failure_of_form(tmp_path: Path) -> None:
    inputs = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(QUANTIZE), "smoke", inputs)
    outputs = {n: a for n, a in answers(QUANTIZE, inputs).items() if n != "rows_128.scale"}
    found = {one.row.case: one for one in judged(inputs, outputs)}
    assert found["rows_128"].row.malformed == ("scale was not returned",)
    assert found["rows_128"].message.startswith("[FORM] theirs")
    assert found["rows_131"].row.result == "passed"


@pytest.mark.parametrize(
    ("dtype", "change", "words"),
    [
        ("U8", lambda a: a.reshape(-1, 1), "codes misshaped: got [{n}, 1], want [{n}]"),
        ("U8", lambda a: a[:-1], "codes misshaped: got [{m}], want [{n}]"),
        ("F8_E4M3FNUZ", np.asarray, "codes is float8_e4m3fnuz, want float8_e4m3fn"),
        ("F32", lambda a: a.astype(np.float32), "codes is float32, want float8_e4m3fn"),
        ("BF16", lambda a: a.astype(np.uint16), "codes is bfloat16, want float8_e4m3fn"),
    ],
)
def test_an_answer_of_the_wrong_form_is_a_verdict(
    asked: Path, dtype: str, change: Callable[[Array], Array], words: str
) -> None:
    right = answers(CAST, asked)["edges.codes"]
    found = judged(asked, {"edges.codes": (dtype, change(right))})[0]
    assert found.row.result == "failed"
    assert found.row.malformed == (words.format(n=right.size, m=right.size - 1),)
    assert found.row.portrait == {}
    assert found.message.startswith("[FORM] theirs (bfloat16 to float8_e4m3fn) on gfx942, case edges: codes")


def test_numbers_that_are_no_codes(asked: Path) -> None:
    right = answers(CAST, asked)["edges.codes"]
    for strange in (-1, 256, 70_000):
        codes = right.astype(np.int32)
        codes[3] = strange
        found = judged(asked, {"edges.codes": ("I32", codes)})[0]
        assert found.row.differences == {"not_a_code": 1}
        assert found.row.mismatches[0].got == f"{strange:#x}, no code"


# --- observing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "saturate", "follows"),
    [
        ("cast/?/float32/float8_e4m3fn", True, {"ocp_saturate", "torch_from_2_13"}),
        ("cast/?/float32/float8_e4m3fn", False, {"ocp_nonsaturate", "torch_until_2_12", "ml_dtypes"}),
        ("cast/?/float16/float8_e4m3fnuz", True, {"fnuz_saturate"}),
    ],
)
def test_an_observation_says_what_is_followed(claim: str, saturate: bool, follows: set[str], tmp_path: Path) -> None:
    inputs, format_name = tmp_path / "in.safetensors", claim.split("/")[-1]
    write_inputs(Claim.parse(claim), "smoke", inputs)
    make = saturating_cast if saturate else to_fp8
    found = judged(inputs, {f"{case}.codes": make(v, format_name) for case, v in load(inputs).items()})
    for one in found:
        assert one.row.result == "passed"
        assert one.row.rule == "?"
        assert set(one.row.reason.removeprefix("follows ").split(", ")) == follows


def test_an_observation_of_what_follows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(Claim.parse("cast/?/bfloat16/float8_e4m3fn"), "smoke", inputs)
    outputs = {f"{case}.codes": ties_away_cast(v, "float8_e4m3fn") for case, v in load(inputs).items()}
    for one in judged(inputs, outputs):
        assert one.row.reason.startswith("follows no named rule; nearest is ocp_saturate, which parts in ")
    assert command.main(["judge", str(inputs), str(out)]) == Exit.OK
    assert "follows no named rule; nearest is ocp_saturate" in capsys.readouterr().out.replace("\n", " ")


def test_an_observation_of_a_quantizer(tmp_path: Path) -> None:
    inputs = tmp_path / "in.safetensors"
    write_inputs(Claim.parse("quantize/?/float32/float8_e4m3fn"), "smoke", inputs)
    rows = {one.row.case: one.row for one in judged(inputs, answers(QUANTIZE, inputs))}
    assert rows["rows_128"].reason == "follows vllm.fp8_per_token_dynamic"


# --- claims that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("cast/ocp_saturat/float32/float8_e4m3fn", "unknown cast policy 'ocp_saturat'; did you mean ocp_saturate"),
        ("cats/ocp_saturate/float32/float8_e4m3fn", "unknown operation 'cats' in claim"),
        ("cats/ocp_saturate/float32/float8_e4m3fn", "did you mean cast?"),
        ("cast/ocp_saturate/float33/float8_e4m3fn", "unknown format 'float33'; did you mean float32"),
        ("cast/ocp_saturate/float32/float8_e4m3", "unknown format 'float8_e4m3'; did you mean float8_e4m3fn"),
        ("quantize/vllm.fp8_per_token/float32/float8_e4m3fn", "did you mean vllm.fp8_per_token_dynamic"),
        ("cast/ocp_saturate/float32/float8_e4m3fnuz", "does not fit float8_e4m3fnuz: it is defined for float8_e4m3fn"),
        ("cast/ocp_saturate/float32/float8_e4m3fnuz", "for float8_e4m3fnuz there are fnuz_saturate"),
        ("quantize/vllm.fp8_per_token_dynamic/float32/float16", "has no destination 'float16'; it has float8_e4m3fn"),
        ("cast/?/float32/float16", "no named rule has destination float16"),
        ("cast/ocp_saturate", "expected operation/rule/source/format, for example"),
        ("cast/ocp_saturate/float32/", "expected operation/rule/source/format, for example"),
        ("", "expected operation/rule/source/format, for example"),
    ],
)
def test_a_claim_that_cannot_be_is_explained(
    claim: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.safetensors"
    assert command.main(["inputs", claim, "-o", str(path)]) == Exit.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("narrowgauge: ")
    assert said.err.count("\n") == 1
    assert words in said.err
    assert not path.exists()


def test_formats_may_be_given_by_an_alias(tmp_path: Path) -> None:
    path = tmp_path / "in.safetensors"
    assert command.main(["inputs", "cast/ocp_saturate/bf16/fp8e4nv", "-o", str(path)]) == Exit.OK
    assert str(read_inputs(path)[0]) == CAST


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


@pytest.mark.parametrize("dtype", ["BOOL", "F64", "F8_E5M2"])
def test_outputs_in_a_type_that_is_not_read(dtype: str, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = np.zeros(8, np.uint8)
    array = codes.astype(np.float64) if dtype == "F64" else codes
    out = save(asked.parent / "out.safetensors", {"edges.codes": (dtype, array)})
    assert f"{out}: tensor 'edges.codes' has dtype {dtype}; this version reads" in one_line_error(asked, out, capsys)


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


# --- the ledger ------------------------------------------------------------------------------------------------------


def test_the_ledger_of_a_judgement(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = {f"{case}.codes": ties_away_cast(v, "float8_e4m3fn") for case, v in load(asked).items()}
    out = save(asked.parent / "mine.safetensors", {n: ("U8", a) for n, a in outputs.items()})
    path = asked.parent / "deep" / "ledger.json"
    arguments = ["judge", str(asked), str(out), "--target", "gfx942", "--ledger", str(path), "--json"]
    assert command.main(arguments) == 1
    printed, written = json.loads(capsys.readouterr().out), json.loads(path.read_text())
    assert printed | {"written": ""} == written | {"written": ""}
    rows = [Row.from_json(row) for row in written["rows"]]
    assert {row.how for row in rows} == {"replayed"}
    assert {row.kernel for row in rows} == {"mine"}, "the file's name, where none is given"
    assert {row.faults for row in rows} == {("cast.ties_away",)}
    assert sorted(row.id for row in rows) == written["plan"]
    assert written["not_run"] == []
    again = Ledger(written["plan"], rows, {}, written["options"], golden="").to_json()
    assert json.loads(json.dumps(again["rows"])) == written["rows"]


def test_text_of_a_judgement(asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = save(asked.parent / "out.safetensors", {n: ("U8", a) for n, a in answers(CAST, asked).items()})
    assert command.main(["judge", str(asked), str(out), "--kernel", "mine", "--target", "gfx942"]) == Exit.OK
    said = capsys.readouterr().out
    assert "2 passed" in said
    assert "mine" in said
    assert "gfx942" in said
    assert "[" not in said.split("what was judged")[0], "no failure message stands before the table"
