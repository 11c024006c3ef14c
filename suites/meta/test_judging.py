"""Comparing, intervals, diagnosis and messages."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Cast, Claim, Quantize, observe
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import behaviour_of, standing_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.interval import Interval
from narrowgauge.reference.judge import judge
from narrowgauge.reference.message import code_of, failure_message
from narrowgauge.reference.noise import noise
from narrowgauge.reference.portrait import portrait
from narrowgauge.suites.meta.killer_policies import MEANT, PLAIN

pytestmark = pytest.mark.meta

E4 = "float8_e4m3fn"
CAST = Claim(Cast("ocp_saturate"), "float32", E4)
VLLM = Claim(Quantize("vllm.fp8_per_token_dynamic"), "float32", E4)
INT8 = Claim(Cast("integer_nearest"), "float32", "int8")
#: claims whose faults are tried one by one
CLAIMS = tuple(
    Claim.parse(text)
    for text in (
        "cast/ocp_saturate/float32/float8_e4m3fn",
        "cast/ocp_nonsaturate/bfloat16/float8_e4m3fn",
        "cast/fnuz_saturate/float32/float8_e4m3fnuz",
        "cast/fnuz_nonsaturate/float16/float8_e4m3fnuz",
        "cast/ocp_nonsaturate/float32/float8_e5m2",
        "cast/ocp_saturate/float64/float8_e4m3fn",
        "cast/ptx_ue8m0_rp_satfinite/float32/float8_e8m0fnu",
        "cast/torch_from_2_13/bfloat16/float8_e8m0fnu",
        "cast/integer_nearest/float32/int8",
        "cast/integer_nearest/float16/uint8",
        "cast/torch_ieee/bfloat16/float16",
        "cast/e8m0_floor/float32/float8_e8m0fnu",
        "cast/ieee/float8_e4m3fn/bfloat16",
        "cast/ieee/float8_e5m2fnuz/float32",
        "cast/ieee/float8_e8m0fnu/float32",
        "quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fn",
        "quantize/vllm.fp8_per_token_dynamic/bfloat16/float8_e4m3fnuz",
        "quantize/sglang.fp8_per_token_cta/float32/float8_e4m3fn",
        "quantize/sglang.fp8_per_token_cta/float16/float8_e4m3fnuz",
    )
)


def float32(*values: float) -> Coded:
    return Coded("float32", np.array(values, np.float32).view(np.uint32))


def e4m3(*codes: int) -> Coded:
    return Coded(E4, np.array(codes, np.uint8))


# --- comparing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("got", "want", "kind"),
    [
        (0x38, 0x39, "value"),
        (0x00, 0x80, "zero_sign"),
        (0x7F, 0x7E, "nan"),
        (0x7E, 0xFF, "nan"),
        (0x7F, 0xFF, None),  # NaN is compared as a class
        (0x38, 0x38, None),
    ],
)
def test_class_of_difference(got: int, want: int, kind: str | None) -> None:
    difference = compare({"codes": e4m3(got)}, {"codes": Interval.exactly(e4m3(want))})
    assert difference.counts == ({kind: 1} if kind else {})
    assert difference.total == (1 if kind else 0)


def test_infinite_scale_is_a_class_of_its_own() -> None:
    difference = compare({"scale": float32(np.inf, 2.0)}, {"scale": Interval.exactly(float32(1.0, 1.0))})
    assert difference.counts == {"infinity": 1, "scale": 1}


def test_numbers_that_are_no_codes() -> None:
    wide = Coded(E4, np.array([0x38, 0x138, -1], np.int64))
    difference = compare({"codes": wide}, {"codes": Interval.exactly(e4m3(0x38, 0x38, 0xFF))})
    assert difference.counts == {"not_a_code": 2}


def test_interval_accepts_what_lies_between_and_nothing_else() -> None:
    want = Interval(e4m3(0x38, 0x38, 0x38, 0xB9), e4m3(0x3A, 0x3A, 0x3A, 0xB8))
    difference = compare({"codes": e4m3(0x39, 0x3B, 0x7F, 0xB9)}, {"codes": want})
    assert difference.classes["codes"].tolist() == [0, 1, 4, 0]
    assert want.open.all()
    assert not want.exact


@pytest.mark.parametrize(
    "claim", [CAST, *(c for c in CLAIMS if c.operation == "quantize" and c.source == "float32")], ids=str
)
def test_interval_of_a_monotone_stage_holds_every_point(claim: Claim) -> None:
    """Whatever the input is inside its interval, the output lies inside the expected one."""
    x = np.ldexp(noise(40 * 32, seed=9).reshape(40, 32), np.arange(40)[:, None] - 20).astype(np.float32)
    width = np.abs(x) * np.float32(2.0**-7)
    ends = [Coded("float32", (x + side * width).astype(np.float32).view(np.uint32)) for side in (-1, 1)]
    want = expected(claim, Interval(*ends))
    assert not want["codes"].exact
    for step in np.linspace(-1, 1, 21, dtype=np.float32):
        inside = Coded("float32", (x + step * width).astype(np.float32).view(np.uint32))
        assert compare(behaviour_of(claim).run(inside), want).total == 0


def test_interval_is_as_narrow_as_its_ends() -> None:
    """An interval that admits everything would pass everything: the bounds are reached."""
    want = expected(CAST, Interval(float32(1.0), float32(1.25)))["codes"]
    assert (want.low.data[0], want.high.data[0]) == (0x38, 0x3A)
    assert compare({"codes": e4m3(0x3B)}, {"codes": want}).total == 1


def test_interval_into_overflow_without_saturation() -> None:
    """From 460 to 470 in e4m3fn: 448, or NaN above 464; and nothing else."""
    claim = Claim.parse("cast/ocp_nonsaturate/float32/float8_e4m3fn")
    want = expected(claim, Interval(float32(460.0, -470.0), float32(470.0, -460.0)))
    assert compare({"codes": e4m3(0x7E, 0xFE)}, want).total == 0
    assert compare({"codes": e4m3(0x7F, 0xFF)}, want).total == 0
    assert compare({"codes": e4m3(0x7D, 0xFD)}, want).total == 2
    with pytest.raises(BadInput, match="from overflow to overflow"):
        expected(claim, Interval(float32(-1000.0), float32(1000.0)))


def test_interval_with_nan_is_refused() -> None:
    x = Interval(Coded("float32", float32(np.nan, 1.0).data[None]), Coded("float32", float32(np.nan, 2.0).data[None]))
    with pytest.raises(BadInput, match="NaN has no order"):
        expected(VLLM, x)


# --- diagnosis -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_right_outputs_pass(claim: Claim) -> None:
    for x in cases_for(claim, "smoke").values():
        assert judge(claim, x, behaviour_of(claim).run(x)).result == "passed"


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.operation == "cast"], ids=str)
def test_every_fault_that_shows_is_named(claim: Claim) -> None:
    """Alone or in a set; and a set is only given for faults that these inputs cannot tell apart.

    test_quantizer_faults.py has the same for quantizers.
    """
    shown = set()
    for x in cases_for(claim, "smoke").values():
        for name, fault in FAULTS.items():
            wrong = fault.applied_to(behaviour_of(claim))
            if wrong is None or compare(wrong.run(x), expected(claim, x)).total == 0:
                continue
            shown.add(name)
            verdict = judge(claim, x, wrong.run(x))
            assert verdict.result == ("disputed" if standing_of(claim).evidence == "document" else "failed")
            best = verdict.explanations[0]
            assert best.complete
            assert name in best.faults
            assert verdict.differing == best.explained
            for other in best.faults:
                same = FAULTS[other].applied_to(behaviour_of(claim))
                assert same is not None
                assert compare(same.run(x), {k: Interval.exactly(v) for k, v in wrong.run(x).items()}).total == 0
            assert (len(best.faults) > 1) == bool(best.separated_by)
    assert len(shown) >= (8 if format_named(claim.source).bits > 8 else 3)


def test_faults_that_cannot_be_told_apart_are_a_set_with_an_input_that_would() -> None:
    """One value beside a tie: rounding twice through either format gives the same wrong code."""
    x = float32(1.0625001)
    verdict = judge(CAST, x, {"codes": e4m3(0x38)})
    best = verdict.explanations[0]
    assert set(best.faults) >= {"cast.double_rounding_float16", "cast.double_rounding_bfloat16"}
    said = re.fullmatch(
        r"(\S+) \((0x\w{8})\), codes\[\d+\] of case '(\w+)': \S+ gives .+, \S+ gives .+", best.separated_by
    )
    assert said, best.separated_by
    assert np.uint32(int(said[2], 16)) in cases_for(CAST, "smoke")[said[3]].data, "the input itself, to try it on"
    assert "told apart by" in failure_message(verdict, "a kernel")


@pytest.mark.parametrize("fault", ["fnuz.ocp_codes_written", "cast.double_rounding_float16"])
def test_faults_of_the_last_cast_are_named_in_quantizers(fault: str) -> None:
    """OCP bytes in an FNUZ buffer is what -m fnuz is for, and most such buffers are written by a quantizer."""
    claim = Claim.parse("quantize/vllm.fp8_per_token_dynamic/float32/float8_e4m3fnuz")
    x = cases_for(claim, "smoke")["rows_131"]
    wrong = FAULTS[fault].applied_to(behaviour_of(claim))
    assert wrong is not None
    assert fault in judge(claim, x, wrong.run(x)).explanations[0].faults


def test_two_faults_together() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    wrong = behaviour_of(CAST)
    policy = replace(wrong.policy, rounding="nearest_away", nan="zero")
    verdict = judge(CAST, x, replace(wrong, policy=policy).run(x))
    assert verdict.explanations[0].faults == ("cast.ties_away + cast.nan_to_zero",)


def test_a_fault_that_explains_only_a_part_says_so() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    fault = FAULTS["cast.truncates"].applied_to(behaviour_of(CAST))
    assert fault is not None
    codes = fault.run(x)["codes"].data.copy()
    codes[100:120] ^= 0x55
    verdict = judge(CAST, x, {"codes": Coded(E4, codes)})
    best = verdict.explanations[0]
    assert best.faults == ("cast.truncates",)
    assert 0 < best.left <= 20
    assert f"explains {best.explained} of {verdict.differing}" in failure_message(verdict, "a kernel")


def test_what_a_fault_would_spoil_is_said() -> None:
    """Codes that go away from zero but at one tie, which is right: to go away there too would spoil it."""
    x = float32(0.5, 2.5, 4.5, -6.5, -8.5)
    verdict = judge(INT8, x, {"codes": Coded("int8", np.array([1, 3, 5, 0xF9, 0xF8], np.uint8))})
    away = next(e for e in verdict.explanations if "cast.ties_away" in e.faults)
    assert (verdict.differing, away.explained, away.left, away.spoils(4)) == (4, 4, 1, 1)
    assert "explains 4 of 4 and would change 1 that is right\n" in failure_message(verdict, "k")
    up = next(e for e in verdict.explanations if "cast.ties_up" in e.faults)
    assert (up.explained, up.left, up.spoils(4)) == (3, 1, 0)


def test_a_cast_of_three_other_choices_is_told_by_them() -> None:
    """No fault, and no two, make it; but it is a policy, which differs from the contract in these."""
    x = cases_for(CAST, "smoke")["edges"]
    other = replace(behaviour_of(CAST), policy=CastPolicy("down", infinity="special", nan="zero"))
    verdict = judge(CAST, x, other.run(x))
    assert verdict.reason == "exactly the contract but for: rounding down, infinity special, nan zero"
    text = failure_message(verdict, "a kernel")
    assert text.startswith(f"[POLICY] a kernel: wrong; {verdict.reason}\n")
    assert code_of(verdict) == "POLICY"
    limited = replace(other, policy=CastPolicy("down", nan="zero", limit=208.0))
    reason = judge(CAST, x, limited.run(x)).reason
    assert reason == "exactly the contract but for: rounding down, nan zero, limit 208"
    one_wrong = other.run(x)["codes"].data.copy()
    one_wrong[500] ^= 0x10
    assert judge(CAST, x, {"codes": Coded(E4, one_wrong)}).reason == ""


def test_unexplained_is_an_answer() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    codes = behaviour_of(CAST).run(x)["codes"].data.copy()
    codes[500] ^= 0x10
    verdict = judge(CAST, x, {"codes": Coded(E4, codes)})
    assert verdict.result == "failed"
    assert verdict.explanations == ()
    assert failure_message(verdict, "a kernel").startswith("[UNEXPLAINED] a kernel")


def test_own_policy_as_data_is_held_to() -> None:
    claim = Claim(Cast(CastPolicy(rounding="toward_zero")), "float32", E4)
    verdict = judge(claim, float32(1.99, 500.0), {"codes": e4m3(0x40, 0x7E)})
    assert verdict.differences == {"value": 1}
    assert verdict.authority == "the kernel's own contract, given as data"


def test_a_document_alone_makes_a_dispute() -> None:
    claim = Claim.parse("cast/triton_amd_fnuz/float32/float8_e4m3fnuz")
    x = float32(np.inf)
    verdict = judge(claim, x, {"codes": Coded("float8_e4m3fnuz", np.array([0x7F], np.uint8))})
    assert verdict.result == "disputed"
    assert "disputed" in failure_message(verdict, "a kernel") or verdict.explanations


# --- form ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        ({}, "codes was not returned"),
        ({"codes": e4m3(0x38)}, "codes misshaped: got [1], want [2]"),
        (
            {"codes": Coded("float8_e4m3fnuz", np.array([1, 2], np.uint8))},
            "codes is float8_e4m3fnuz, want float8_e4m3fn",
        ),
        ({"codes": Coded(E4, np.array([1.0, 2.0]))}, "codes came as float64, want codes (uint8)"),
        ({"codes": e4m3(0x38, 0x38), "scale": float32(1)}, "returned 'scale', which the contract does not have"),
    ],
)
def test_form(outputs: dict[str, Coded], words: str) -> None:
    verdict = judge(CAST, float32(1.0, 1.0), outputs)
    assert verdict.result == "failed"
    assert verdict.malformed == (words,)
    assert failure_message(verdict, "k").startswith(f"[FORM] k: {words}")


# --- observing -------------------------------------------------------------------------------------------------------


def test_observation_names_every_rule_that_fits() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    claim = Claim(observe(Cast), "float32", E4)
    verdict = judge(claim, x, behaviour_of(CAST).run(x))
    assert verdict.result == "passed"
    alike = [name for name, by_format in MEANT.items() if by_format.get(E4) == PLAIN]
    assert sorted(verdict.follows) == sorted(alike)
    assert verdict.reason == f"follows {', '.join(verdict.follows)}"


def test_observation_names_the_nearest_rule_and_where_it_parts() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    away = replace(behaviour_of(CAST), policy=CastPolicy(rounding="nearest_away"))
    verdict = judge(Claim(observe("cast"), "float32", E4), x, away.run(x))
    assert verdict.follows == ()
    assert verdict.reason.startswith("follows no named rule; nearest is ocp_saturate, which parts in 126 value")


def test_observation_of_a_quantizer() -> None:
    x = cases_for(VLLM, "smoke")["rows_128"]
    verdict = judge(Claim(observe(Quantize), "float32", E4), x, behaviour_of(VLLM).run(x))
    assert verdict.follows == ("vllm.fp8_per_token_dynamic",)


def test_a_cast_to_float32_has_a_portrait() -> None:
    """A destination too wide for a table of its values is looked at too."""
    x = Coded("bfloat16", np.array([0x7F80, 0xFF80, 0x7FC0, 0x8000], np.uint16))
    widened = Coded("float32", x.data.astype(np.uint32) << np.uint32(16))
    assert portrait(x, widened) == {"inf": "inf", "-inf": "-inf", "nan": "nan", "-0": "-0"}


# --- messages --------------------------------------------------------------------------------------------------------


def test_message_order() -> None:
    """Fault, class, count, the first few, claim, authority, script: in this order."""
    x = cases_for(CAST, "smoke")["edges"]
    fault = FAULTS["cast.ties_away"].applied_to(behaviour_of(CAST))
    assert fault is not None
    text = failure_message(judge(CAST, x, fault.run(x)), "half_away", "print(1)")
    marks = [
        "[TIES] half_away: cast.ties_away",
        "seen in triton#11753",
        "breaks: a specification",
        "differing: 126 of",
        "codes[",
        "claim: cast/ocp_saturate",
        "authority: ocp_saturate: OCP",
        "see it without narrowgauge",
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_listed_mismatches_are_true() -> None:
    x = cases_for(CAST, "smoke")["edges"]
    fault = FAULTS["cast.ties_away"].applied_to(behaviour_of(CAST))
    assert fault is not None
    got = fault.run(x)
    verdict = judge(CAST, x, got)
    assert len(verdict.mismatches) == 10
    for m in verdict.mismatches:
        value: npt.NDArray[np.float64] = decode_values(Coded("float32", x.data[m.index][None]))
        assert m.input.startswith(f"{value[0]:.9g} (0x")
        assert f"({int(got['codes'].data[m.index]):#04x})" in m.got
