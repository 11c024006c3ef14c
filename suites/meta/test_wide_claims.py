# SPDX-License-Identifier: Apache-2.0
"""Claims on wide operations: what fits, what is refused and in which words, what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim, WideOp
from narrowgauge.contracts.serial import contract_from_json, contract_to_json
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.expected import expected
from narrowgauge.reference.form import shaped
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import check_claim, judge
from narrowgauge.reference.kv.arithmetic import coded
from narrowgauge.reference.wide.cases import CASES, call
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.reference.wide.choosing import Choice, chosen_of
from narrowgauge.reference.wide.ends import Ends, exactly
from narrowgauge.reference.wide.words import facts_of
from narrowgauge.suites.offline import judge_files, read_inputs, write_inputs

pytestmark = pytest.mark.meta

ROOT = Path(narrowgauge.__file__).resolve().parent.parent
ROUTER, NORM = Claim.parse("wide/router_sigmoid/float32/float32"), Claim.parse("wide/rms_norm/float32/float32")


@pytest.mark.parametrize("name", WIDE)
def test_a_claim_is_its_text_and_its_data(name: str) -> None:
    wide = WIDE[name]
    claim = Claim(WideOp(name), "bfloat16", wide.outputs[0].format or "float32")
    check_claim(claim)
    assert Claim.parse(str(claim)) == claim
    whole = resolved(claim).contract
    assert contract_from_json(json.loads(json.dumps(contract_to_json(whole)))) == whole == WideOp(wide)
    x = call("noise", wide, "bfloat16")
    want = expected(claim, x)
    assert {n: i.low.shape for n, i in want.items()} == {n: i.low.shape for n, i in shaped(claim, x.shape).items()}
    assert {n: i.format for n, i in want.items()} == wide.gives(claim.format)
    assert f"| `{name}` | {wide.about} |" in (ROOT / "docs" / "wide.md").read_text()
    assert dict(facts_of(wide))["does"] == wide.about


@pytest.mark.parametrize(("text", "words"), [
    ("wide/rms_nrm/float32/float32", "unknown operation 'rms_nrm' in claim wide/.*did you mean rms_norm"),
    ("wide/rms_norm/float8_e4m3fn/float32", "rms_norm does not make float32 of float8_e4m3fn; it makes float32 or"),
    ("wide/greedy/float32/float32", "greedy does not make float32 of float32; it makes int32 of float32, bfloat16"),
    ("then/greedy+vllm.fp8_group/float32/float8_e4m3fn", "greedy gives token; a quantizer takes one matrix, as of"),
    ("then/add_rms_norm+vllm.fp8_group/float32/float8_e4m3fn", "add_rms_norm gives y, residual; a quantizer takes"),
])  # fmt: skip
def test_a_claim_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_claim(Claim.parse(text))


@pytest.mark.parametrize("name", [name for name, wide in WIDE.items() if wide.quantizable])
def test_an_operation_that_gives_one_matrix_stands_before_a_quantizer(name: str) -> None:
    claim = Claim.parse(f"then/{name}+vllm.fp8_group/bfloat16/float8_e4m3fn")
    check_claim(claim)
    for x in cases_for(claim, "smoke").values():
        assert set(expected(claim, x)) == {"codes", "scale"}


def _noise(name: str) -> Input:
    return call("noise", WIDE[name], "float32")


def _given(x: Input, **others: Coded) -> Input:
    return replace(x, given={**x.given, **others})


def _ints(*values: int) -> Coded:
    return Coded("int32", np.array(values, np.int32).view(np.uint32)[:, None])


def _like(x: Input, name: str, number: float) -> Input:
    return _given(x, **{name: coded(np.full(x.given[name].shape, number), x.given[name].format)})


@pytest.mark.parametrize(("name", "x", "words"), [
    ("rms_norm", coded(np.ones(4), "float32"), r"rms_norm: x has shape \[4\]; expected \[rows, 1 · columns\]"),
    ("rms_norm", coded(np.ones((2, 4)), "float32"), r"rms_norm: weight is nothing; expected float32 \[1, 4\]"),
    ("rms_norm", _like(_noise("rms_norm"), "weight", np.nan), "weight has elements that are not finite or above 2"),
    ("add_rms_norm", _given(_noise("add_rms_norm"), residual=coded(np.ones((11, 3)), "float32")),
     r"residual is float32 \[11, 3\]; expected float32 \[11, 96\]"),
    ("rms_norm", _given(_noise("rms_norm"), weight=coded(np.ones((1, 96)), "bfloat16")), "weight is bfloat16"),
    ("rope_neox", coded(np.ones((2, 5)), "float32"), "rope_neox: 5 columns; expected an even number"),
    ("router_softmax", coded(np.ones((2, 3)), "float32"), "router_softmax: 3 columns; expected at least 4"),
    ("silu_mul", coded(np.ones((2, 3)), "float32"), r"silu_mul: x has shape \[2, 3\]; expected \[rows, 2 · columns\]"),
    ("softmax", coded(np.full((1, 4), 2.0**41), "float32"), "x has elements that are not finite or above 2"),
    ("sample", _like(_noise("sample"), "temperature", 0.0), "temperature has elements below 2.-40; expected positive"),
    ("sample", _like(_noise("sample"), "noise", -1.0), "noise has elements below"),
    ("capped_softmax", _given(_noise("capped_softmax"), lengths=_ints(*[0] * 11)), "lengths must be between 1 and 96"),
    ("router_sigmoid", replace(_noise("router_sigmoid"), data=np.full((11, 96), 0x7FC00000, np.uint32)),
     "x has NaN among what is chosen from; whether it is chosen differs between engines"),
])  # fmt: skip
def test_a_call_that_cannot_be_is_refused(name: str, x: Coded, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        expected(Claim(WideOp(name), x.format, WIDE[name].outputs[0].format or "float32"), x)


def test_a_wrong_form_is_told() -> None:
    x = _noise("router_sigmoid")
    right = {name: value.low for name, value in expected(ROUTER, x).items()}
    assert judge(ROUTER, x, right).result == "passed"
    assert judge(ROUTER, x, {"weights": right["weights"]}).malformed == ("experts was not returned",)
    narrow = coded(np.ones((11, 4)), "bfloat16")
    assert judge(ROUTER, x, {**right, "weights": narrow}).malformed == ("weights is bfloat16, want float32",)


@pytest.mark.parametrize("text", ["wide/add_rms_norm_float32/bfloat16/bfloat16", "wide/router_sigmoid/float32/float32"])
def test_a_claim_is_judged_from_files(text: str, tmp_path: Path) -> None:
    """Another program's outputs: those of the reference pass, and without the residual's lower bits they fail."""
    claim, inputs, outputs = Claim.parse(text), tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(claim, "smoke", inputs)
    _, cases = read_inputs(inputs)
    answers = {f"{case}.{name}": value.low for case, x in cases.items() for name, value in expected(claim, x).items()}
    write(outputs, answers, {}, typed=True)
    assert {judged.row.result for judged in judge_files(inputs, outputs, "mine", "host")} == {"passed"}
    name = "noise.residual" if "residual" in text or "add" in text else "noise.weights"
    answers[name] = Coded("float32", answers[name].data & np.uint32(0xFFFF0000))
    write(outputs, answers, {}, typed=True)
    found = {judged.row.case: judged.row.result for judged in judge_files(inputs, outputs, "mine", "host")}
    assert found.pop("noise") == "failed"
    assert set(found.values()) == {"passed"}


def test_a_mismatch_says_where_it_came_from() -> None:
    x = call("specials", WIDE["rms_norm"], "float32")
    right = {name: value.low for name, value in expected(NORM, x).items()}
    data = right["y"].data.copy()
    data[1, 2] = 0
    verdict = judge(NORM, x, {"y": Coded("float32", data)}, explained=False)
    assert verdict.differing == 1
    assert "row 1 of 96 elements" in verdict.mismatches[0].input
    assert "1 not finite" in verdict.mismatches[0].input
    assert "nan" in verdict.mismatches[0].want.lower()


def test_every_operation_has_cases_and_each_case_an_operation() -> None:
    assert all(sum(rows.suits(wide) for rows in CASES.values()) >= 3 for wide in WIDE.values())
    assert all(any(rows.suits(wide) for wide in WIDE.values()) for rows in CASES.values())


# --- a choice among intervals ----------------------------------------------------------------------------------------


def test_columns_that_may_stand_at_each_place() -> None:
    """3 certainly first; 0 and 2 overlap; 1 last."""
    ends = Ends(np.array([[1.0, 0.0, 1.5, 9.0]]), np.array([[2.0, 0.5, 2.5, 9.0]]))
    alike = (np.array([[1.0, 2.0, 3.0, 4.0]]),)
    where, values = chosen_of(Choice(ends, 3, "lowest", alike), ends)
    assert where.low.tolist() == [[3, 0, 0]]
    assert where.high.tolist() == [[3, 2, 2]]
    assert values.low.tolist() == [[9.0, 1.0, 1.0]]
    assert values.high.tolist() == [[9.0, 2.5, 2.5]]


@pytest.mark.parametrize(("ties", "want"), [
    ("lowest", ([1, 3], [1, 3])), ("highest", ([3, 1], [3, 1])), ("any", ([1, 1], [3, 3])),
])  # fmt: skip
def test_equal_numbers_stand_as_the_rule_of_ties_says(ties: str, want: tuple[list[int], list[int]]) -> None:
    """Those that are exactly known, and those of which only the same x is known."""
    exact = exactly(np.array([[0.0, 7.0, 1.0, 7.0]]))
    wide = Ends(exact.low - np.array([[0, 1, 0, 1.0]]), exact.high)
    for ends in (exact, wide):
        found, _ = chosen_of(Choice(ends, 2, ties, (exact.low,)), ends)
        assert (found.low[0].tolist(), found.high[0].tolist()) == want
    found, _ = chosen_of(Choice(exact, 2, ties, (np.array([[1.0, 2.0, 3.0, 4.0]]),)), exact)
    assert (found.low[0].tolist(), found.high[0].tolist()) == want, "equal numbers of unlike elements"
    with pytest.raises(BadInput, match="unknown rule of ties 'first'"):
        chosen_of(Choice(exact, 2, "first", (exact.low,)), exact)


def test_overlapping_numbers_of_other_elements_are_open() -> None:
    ends = Ends(np.array([[1.0, 1.0]]), np.array([[2.0, 2.0]]))
    found, _ = chosen_of(Choice(ends, 1, "lowest", (np.array([[5.0, 6.0]]),)), ends)
    assert (found.low[0].tolist(), found.high[0].tolist()) == ([0], [1])
