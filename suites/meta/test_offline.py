"""Judging from files: the verdicts of a live run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.numpy

from narrowgauge import command
from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.kernels import Kernel, Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.outcome import Outcome
from narrowgauge.contracts.verdict import Exit
from narrowgauge.reference.inputs import cases_for
from narrowgauge.suites.judging import run_cell
from narrowgauge.suites.meta.offline_program import (
    CAST,
    QUANTIZE,
    Array,
    answers,
    judged,
    load,
    saturating_cast,
    save,
    ties_away_cast,
    to_fp8,
    vllm,
)
from narrowgauge.suites.offline import judge_files, read_inputs, write_inputs
from narrowgauge.suites.planning import Planned

pytestmark = pytest.mark.meta

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

    def run(self, *_: object, **__: object) -> Outcome:
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

#: who gives 448 for all that lies beyond it in e4m3fn, and who gives NaN
SATURATE = {
    "ocp_saturate", "onnx_saturate", "onnx_saturate_until_23", "ptx_satfinite", "torch_from_2_13", "triton_amd_ocp",
    "triton_nvidia", "gfloat_saturate",
}  # fmt: skip
NONSATURATE = {
    "ocp_nonsaturate", "onnx_nonsaturate", "amd_native", "torch_until_2_12", "ml_dtypes", "ml_dtypes_0_5_0",
    "gfloat_nonsaturate",
}  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "saturate", "follows"),
    [
        ("cast/?/float32/float8_e4m3fn", True, SATURATE),
        ("cast/?/float32/float8_e4m3fn", False, NONSATURATE),
        ("cast/?/float16/float8_e4m3fnuz", True, {"fnuz_saturate", "onnx_saturate", "gfloat_saturate"}),
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
        ("cast/ocp_saturate/float32/float8_e4m3fm", "unknown format 'float8_e4m3fm'; did you mean float8_e4m3fn"),
        ("cast/ocp_saturate/float32/float8_e4m3", "does not fit float8_e4m3: it is defined for float8_e4m3fn"),
        ("cast/ocp_saturate/tfloat32/float8_e4m3fn", "'edges.x' is tfloat32, which has no safetensors dtype"),
        ("quantize/vllm.fp8_per_token_dynamik/float32/float8_e4m3fn", "did you mean vllm.fp8_per_token_dynamic"),
        ("cast/ocp_saturate/float32/float8_e4m3fnuz", "does not fit float8_e4m3fnuz: it is defined for float8_e4m3fn"),
        ("cast/ocp_saturate/float32/float8_e4m3fnuz", "for float8_e4m3fnuz there are fnuz_saturate"),
        ("quantize/vllm.fp8_per_token_dynamic/float32/float16", "has no destination 'float16'; it has float8_e4m3fn"),
        ("cast/?/float32/float64", "no named rule has destination float64"),
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
