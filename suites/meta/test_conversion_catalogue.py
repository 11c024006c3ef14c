"""Every conversion as data: it is read back from JSON, is said in words, and keeps what it says it keeps."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.conversion import Conversion, Held
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Convert
from narrowgauge.contracts.serial import contract_from_json, contract_to_json
from narrowgauge.golden.conversions import small_call
from narrowgauge.reference.behaviour import converting_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.convert.run import converted
from narrowgauge.reference.convert.steps import STEPS
from narrowgauge.reference.convert.words import facts_of
from narrowgauge.reference.expected import expected
from narrowgauge.reference.faults.applicability import survey
from narrowgauge.reference.faults.fault import ConversionFault
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import case_named, cases_for
from narrowgauge.reference.judge import check_claim, judge

pytestmark = pytest.mark.meta

CLAIMS = [Claim(Convert(name), *pair) for name, conversion in CONVERSIONS.items() for pair in conversion.formats]
FLOAT = npt.NDArray[np.float64]
#: what codes of the formats in exact conversions stand for, written out here
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _fp8(code: int, bias: int, nans: tuple[int, ...]) -> float:
    sign, field, fraction = -1 if code & 0x80 else 1, code >> 3 & 15, code & 7
    if code in nans:
        return float("nan")
    return sign * (fraction / 8 * 2.0 ** (1 - bias) if field == 0 else (1 + fraction / 8) * 2.0 ** (field - bias))


TABLES: dict[str, FLOAT] = {
    "float8_e4m3fn": np.array([_fp8(c, 7, (0x7F, 0xFF)) for c in range(256)]),
    "float8_e4m3fnuz": np.array([_fp8(c, 8, (0x80,)) for c in range(256)]),
    "float4_e2m1fn": np.array([*E2M1, *(-v for v in E2M1)]),
    "uint4": np.arange(16.0),
    "int4": np.array([*range(8), *range(-8, 0)], np.float64),
    "float8_e8m0fnu": np.array([*(2.0 ** (c - 127) for c in range(255)), np.nan]),
}


@pytest.mark.parametrize("conversion", CONVERSIONS.values(), ids=lambda c: c.name)
def test_a_conversion_is_said_and_travels(conversion: Conversion) -> None:
    assert all(words for _, words in facts_of(conversion))
    assert {str(step[0]) for step in conversion.steps} <= STEPS.keys()
    assert conversion.evidence != "document", "a wrong converter would be disputed, and the command end with 0"
    contract = Convert(conversion)
    assert contract_from_json(json.loads(json.dumps(contract_to_json(contract)))) == contract


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_claim_is_sound_and_has_several_cases(claim: Claim) -> None:
    check_claim(claim)
    assert Claim.parse(str(claim)) == claim
    cases = cases_for(claim, "smoke")
    assert {"square", "no_rows"} <= cases.keys()
    assert len(cases) >= 4
    for x in cases.values():
        outputs = expected(claim, x)
        assert {name: value.format for name, value in outputs.items()} == converting_of(claim).conversion.outputs(
            claim.format
        )
        got = {name: value.low for name, value in outputs.items()}
        assert judge(claim, x, got).result == "passed"


def _numbers(claim_format: str, codes: Coded, beside: dict[str, Coded], blocks: tuple[int, int], offset: bool) -> FLOAT:
    """What codes stand for, with the plainest of readers; offset: 8 stands for 0."""
    value: FLOAT = TABLES[claim_format][codes.data] - (8 if offset else 0)
    scale = next((beside[n] for n in ("scale", "weight_scale", "weight_scale_inv") if n in beside), None)
    if scale is None:
        return value
    if scale.format == "float32":
        numbers = scale.data.view(np.float32).astype(np.float64)
    elif scale.format == "float16":
        numbers = scale.data.view(np.float16).astype(np.float64)
    elif scale.format == "int8":
        numbers = 2.0 ** scale.data.view(np.int8).astype(np.float64)
    else:
        numbers = TABLES[scale.format][scale.data]
    rows, columns = (size or max(1, of) for size, of in zip(blocks, value.shape, strict=True))
    spread = np.repeat(np.repeat(numbers, rows, 0)[: value.shape[0]], columns, 1)[:, : value.shape[1]]
    if "zero_point" in beside:
        zero = beside["zero_point"].data.view(np.int32)
        value = value - np.repeat(zero, rows, 0)[: value.shape[0]]
    with np.errstate(invalid="ignore"):
        return np.asarray(value * spread, np.float64)


#: codes that are numbers of 16 bits are compared in test_conversions.py
EXACT = [c for c in CLAIMS if converting_of(c).conversion.exact and c.format in TABLES]


@pytest.mark.parametrize("claim", EXACT, ids=str)
def test_what_is_exact_keeps_every_number(claim: Claim) -> None:
    """No code is lost: each stands for the number that it stood for. What the other format does not have is named."""
    conversion, x = converting_of(claim).conversion, case_named("square", "convert").inputs(claim)
    old, new = conversion.blocks, conversion.new_blocks
    new = new if any(held.per == "new block" for held in conversion.gives) else old
    made = {name: value.low for name, value in expected(claim, x).items()}
    offset = {end: end == "uint4" and "int4" in conversion.name for end in (claim.source, claim.format)}
    before = _numbers(claim.source, x, dict(given_with(x)), (old.rows, old.columns), offset[claim.source])
    after = _numbers(claim.format, made["codes"], made, (new.rows, new.columns), offset[claim.format])
    if claim.rule == "gpt_oss_parted":
        before = np.concatenate([before[0::2], before[1::2]])
    differs = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    beyond = {"fnuz_to_ocp": (0x7F, 0xFF)}.get(claim.rule, ())
    assert np.array_equal(differs, np.isin(x.data, beyond))


THERE_AND_BACK = (
    ("ocp_to_fnuz_tensor", "fnuz_to_ocp"),
    ("gptq_v1_to_v2", "gptq_v2_to_v1"),
    ("compressed_tensors.int4_packed", "compressed_tensors.int4_unpacked"),
    ("plain_to_scales_128x4", "scales_128x4_to_plain"),
    ("plain_to_scales_8x4", "scales_8x4_to_plain"),
    ("plain_to_cdna4_mx_scales", "cdna4_mx_scales_to_plain"),
    ("weight_scale_inv_to_weight_scale", "weight_scale_to_weight_scale_inv"),
)


@pytest.mark.parametrize(("there", "back"), THERE_AND_BACK)
def test_there_and_back_is_where_it_was(there: str, back: str) -> None:
    """NaNs as a class; of OCP's two zeros -0 does not come back from FNUZ."""
    for source, to in CONVERSIONS[there].formats:
        claim = Claim(Convert(there), source, to)
        x = case_named("square", "convert").inputs(claim)
        made = {name: value.low for name, value in expected(claim, x).items()}
        beside = {n: v for n, v in made.items() if n in {held.name for held in CONVERSIONS[back].takes[1:]}}
        again = expected(Claim(Convert(back), to, source), Input(to, made["codes"].data, beside))
        want = np.where(x.data == 0x80, 0, x.data) if there == "ocp_to_fnuz_tensor" else x.data
        kept = ~np.isin(x.data, (0x7F, 0xFF)) | (source != "float8_e4m3fn") | (there != "ocp_to_fnuz_tensor")
        assert np.array_equal(again["codes"].low.data[kept], want[kept])
        for name, value in beside.items():
            if name in again:
                assert np.array_equal(again[name].low.data, given_with(x)[name].data), (name, value.format)


# --- faults ----------------------------------------------------------------------------------------------------------

OF_CONVERTERS = [fault for fault in FAULTS.values() if isinstance(fault, ConversionFault)]


@pytest.mark.parametrize("fault", OF_CONVERTERS, ids=lambda f: f.name)
def test_a_fault_is_found_by_what_it_does(fault: ConversionFault) -> None:
    """The outputs that it makes are explained by it, or by a set in which it is."""
    shown = next(one for one in survey(fault.name) if one.state == "shows")
    claim = Claim.parse(shown.claim)
    wrong = fault.applied_to(converting_of(claim))
    x: Coded = small_call(claim)
    got = converted(wrong, x)
    if not compare(got, expected(claim, x)).total:
        x = case_named(shown.case, "convert").inputs(claim)
        got = converted(wrong, x)
    verdict = judge(claim, x, got)
    assert verdict.result == "failed"
    assert any(fault.name in e.faults and e.left == 0 for e in verdict.explanations), verdict.explanations


# --- bad input -------------------------------------------------------------------------------------------------------


def _call(rule: str) -> tuple[Claim, Input]:
    conversion = CONVERSIONS[rule]
    claim = Claim(Convert(rule), *conversion.formats[0])
    x = case_named("square", "convert").inputs(claim)
    assert isinstance(x, Input)
    return claim, x


def _with(x: Input, **other: Coded) -> Input:
    return Input(x.format, x.data, {**x.given, **other})


def _scale(format_name: str, rows: int, columns: int) -> Coded:
    return Coded(format_name, np.zeros((rows, columns), format_named(format_name).storage))


def _int32(*values: int) -> Coded:
    return Coded("int32", np.array(values, np.int32)[:, None].view(np.uint32))


@pytest.mark.parametrize(
    ("rule", "spoil", "says"),
    [
        ("ocp_to_fnuz_block", lambda x: Input(x.format, x.data[0], x.given), "codes are float8_e4m3fn"),
        ("ocp_to_fnuz_block", lambda x: Input(x.format, x.data, {}), "'scale' comes beside the codes"),
        ("ocp_to_fnuz_block", lambda x: _with(x, scale=_scale("float16", 2, 2)), "scale is float16"),
        ("ocp_to_fnuz_block", lambda x: _with(x, scale=_scale("float32", 3, 2)), "one for each"),
        ("requantize_to_largest", lambda x: _with(x, widths=_int32(128, 32, 64, 31)), "expected 256 rows in all"),
        ("requantize_to_largest", lambda x: _with(x, widths=_int32(300, -44, 0, 0)), r"-44, 0, 0\]; expected 256"),
        ("requantize_to_largest", lambda x: _with(x, widths=_int32(256)), "one for each shard"),
        ("awq_to_gptq", lambda x: _with(x, scale=_scale("float16", 1, 256)), "one for each block"),
        ("gpt_oss_parted", lambda x: Input(x.format, x.data[:255], {}), "255 rows; expected a multiple of 2"),
    ],
)  # fmt: skip
def test_a_call_that_is_none_is_refused(rule: str, spoil, says: str) -> None:  # type: ignore[no-untyped-def]
    claim, x = _call(rule)
    with pytest.raises(BadInput, match=says):
        expected(claim, spoil(x))


def test_a_declaration_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadInput, match="must begin with 'codes'"):
        Conversion("own", (("uint4", "uint4"),), (Held("scale"),), (Held("codes"),), (), "")
    with pytest.raises(BadInput, match="each must be there once"):
        Conversion("own", (("uint4", "uint4"),), (Held("codes"), Held("codes")), (Held("codes"),), (), "")
    with pytest.raises(BadInput, match="expected their own names"):
        Conversion("own", (("e4m3", "uint4"),), (Held("codes"),), (Held("codes"),), (), "")
    with pytest.raises(BadInput, match="does not go from uint4 to int4"):
        check_claim(Claim(Convert("awq_to_gptq"), "uint4", "int4"))
    with pytest.raises(BadInput, match="did you mean awq_to_gptq"):
        check_claim(Claim(Convert("awq_to_gtpq"), "uint4", "uint4"))


def test_a_conversion_of_ones_own_is_judged() -> None:
    own = Conversion(
        "own", (("float8_e4m3fn", "float8_e4m3fn"),), (Held("codes"), Held("scale", "tensor", "float32")),
        (Held("codes"), Held("scale", "tensor", "float32")), (("times", "scale", 4.0),), "a test",
    )  # fmt: skip
    claim = Claim(Convert(own), "float8_e4m3fn", "float8_e4m3fn")
    x = case_named("square", "convert").inputs(claim)
    want = expected(claim, x)
    four = given_with(x)["scale"].data.view(np.float32) * np.float32(4)
    assert np.array_equal(want["scale"].low.data.view(np.float32), four)
    assert not compare({"codes": Coded(x.format, x.data), "scale": want["scale"].low}, want).total
