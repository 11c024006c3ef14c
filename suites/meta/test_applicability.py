"""Where a fault can be seen, by exhaustion."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.compare import compare
from narrowgauge.reference.expected import expected
from narrowgauge.reference.faults.applicability import applicability, equivalent, survey
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import judge
from narrowgauge.suites.meta.fault_places import load, places_of

pytestmark = pytest.mark.meta

#: what docs/faults says of every fault
PLACES = load()

#: how many of all bfloat16 and of all float16 inputs a wrong e4m3fn cast changes; counted in a trial with codecs of its
#: own, before this suite existed. None: the fault cannot exist.
COUNTED: dict[str, tuple[int | None, int | None]] = {
    "cast.ties_away": (126, 126),
    "cast.ties_toward_zero": (126, 126),
    "cast.truncates": (2402, 20098),
    "cast.subnormals_flushed": (990, 7934),
    "cast.negative_zero_lost": (14977, 5121),
    "cast.overflow_to_nan": (30512 - 2, 14720 - 2),  # the trial's made NaN of infinity too
    "cast.infinity_to_nan": (2, 2),
    "cast.nan_to_max": (254, 2046),
    "cast.double_rounding_bfloat16": (None, 1008),
    "cast.subnormals_lose_sticky_bits": (0, 0),
}


@pytest.mark.parametrize("fault", COUNTED)
def test_counts_agree_with_a_trial_of_others(fault: str) -> None:
    for source, count in zip(("bfloat16", "float16"), COUNTED[fault], strict=True):
        found = applicability(fault, Claim.parse(f"cast/ocp_saturate/{source}/float8_e4m3fn"))
        assert (None if found is None else found.changed) == count
        if found is not None:
            assert (found.state, found.inputs, found.case) == ("shows" if count else "equivalent", 65536, "every_code")


#: how many of all bfloat16 inputs these change in a cast to e4m3fn, by arithmetic on their codes
BY_ARITHMETIC = {
    "cast.exact_negative_zero_lost": 1,
    "cast.sign_lost": 0x7F81,  # -0 to -infinity: 0x8000 to 0xFF80
    "cast.ties_up": 126,  # every second tie of each sign, as for ties away and ties toward zero
    # Both signs of what lies above 2^-10, the tie of zero and the smallest code, and below 2^-6: 0x3A81 to 0x3C7F.
    "cast.subnormals_flushed_before_rounding": 2 * (0x3C7F - 0x3A81 + 1),
    # The same, and what underflows to -0, -0 to -2^-10: 0x8000 to 0xBA80.
    "cast.subnormals_flushed_without_sign": 2 * (0x3C7F - 0x3A81 + 1) + 0x3A81,
    # Both signs from the tie of 240 and 256, which is 248 (0x4378) and whose even code is that of 256, to infinity.
    "cast.clamped_to_240": 2 * (0x7F80 - 0x4378 + 1),
}


@pytest.mark.parametrize("fault", BY_ARITHMETIC)
def test_counts_agree_with_arithmetic(fault: str) -> None:
    found = applicability(fault, Claim.parse("cast/ocp_saturate/bfloat16/float8_e4m3fn"))
    assert found is not None
    assert found.changed == BY_ARITHMETIC[fault]


@pytest.mark.parametrize(
    ("fault", "claim", "state"),
    [
        # There is no negative zero to lose.
        ("cast.negative_zero_lost", "cast/fnuz_saturate/bfloat16/float8_e4m3fnuz", "equivalent"),
        ("cast.negative_zero_lost", "cast/fnuz_saturate/float16/float8_e5m2fnuz", "equivalent"),
        ("cast.negative_zero_lost", "cast/fnuz_saturate/float32/float8_e4m3fnuz", "not shown"),
        # A value of 8 significant bits and float16's range is not rounded on its way through float16.
        ("cast.double_rounding_float16", "cast/ocp_saturate/bfloat16/float8_e4m3fn", "equivalent"),
        ("cast.double_rounding_float16", "cast/ocp_saturate/float32/float8_e4m3fn", "shows"),
        ("cast.double_rounding_float16", "cast/ocp_saturate/float16/float8_e4m3fn", None),
        ("cast.double_rounding_float32", "cast/ocp_saturate/float32/float8_e4m3fn", None),
        ("cast.double_rounding_float32", "cast/ocp_saturate/float64/float8_e4m3fn", "shows"),
        # float16 does not reach down to where a shift count wraps; float32 does.
        ("cast.shift_modulo_64", "cast/ocp_saturate/float16/float8_e5m2", "equivalent"),
        ("cast.shift_modulo_64", "cast/ocp_saturate/bfloat16/float8_e5m2", "shows"),
        ("fnuz.ocp_codes_written", "cast/ocp_saturate/float32/float8_e4m3fn", None),
        ("fnuz.ocp_codes_written", "cast/fnuz_saturate/bfloat16/float8_e5m2fnuz", "shows"),
        # A clamp at or above the largest value is none.
        ("cast.clamped_to_240", "cast/fnuz_saturate/bfloat16/float8_e4m3fnuz", None),
        ("cast.clamped_to_224", "cast/fnuz_saturate/bfloat16/float8_e4m3fnuz", "shows"),
        ("cast.clamped_to_448", "cast/ocp_saturate/bfloat16/float8_e4m3fn", None),
        ("cast.clamped_to_448", "cast/ocp_saturate/bfloat16/float8_e5m2", "shows"),
        # log2 of a value of 8 significant bits lies too far from a whole number to be rounded to it.
        ("e8m0.log2_in_float32", "cast/e8m0_floor/bfloat16/float8_e8m0fnu", "equivalent"),
        ("e8m0.log2_in_float32", "cast/e8m0_ceil/float32/float8_e8m0fnu", "shows"),
        ("e8m0.log2_in_float32", "cast/e8m0_nearest/float32/float8_e8m0fnu", None),
        ("e8m0.rounded_log2", "cast/e8m0_nearest/bfloat16/float8_e8m0fnu", "shows"),
        ("scale.448_for_fnuz", "quantize/sglang.fp8_per_token_cta/float32/float8_e4m3fnuz", "shows"),
        ("scale.448_for_fnuz", "cast/fnuz_saturate/float32/float8_e4m3fnuz", None),
    ],
)
def test_state(fault: str, claim: str, state: str | None) -> None:
    found = applicability(fault, Claim.parse(claim))
    assert (None if found is None else found.state) == state


def test_unknown_fault() -> None:
    with pytest.raises(BadInput, match=r"did you mean cast\.ties_away"):
        applicability("cast.tie_away", Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn"))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_shows_and_each_pair_of_formats_stands_once(fault: str) -> None:
    found = survey(fault)
    assert places_of(found) == PLACES[fault], "run python -m narrowgauge.suites.meta.fault_places, and fault_pages"
    assert any(one.state == "shows" for one in found)
    claims = [Claim.parse(one.claim) for one in found]
    pairs = [("" if c.operation == "cast" else f"{c.operation} {c.rule}", c.source, c.format) for c in claims]
    assert len(pairs) == len(set(pairs))
    for claim, one in zip(claims, found, strict=True):
        assert (one.changed > 0) == (one.state == "shows")
        assert one.changed <= one.inputs
        if claim.operation == "cast" and format_named(claim.source).bits <= 16:
            assert (one.case, one.inputs) == ("every_code", format_named(claim.source).code_count)
        else:
            assert one.state != "equivalent", "no proof"


@pytest.mark.parametrize(
    "claim",
    [
        Claim.parse("cast/fnuz_saturate/bfloat16/float8_e4m3fnuz"),
        Claim.parse("cast/ocp_saturate/bfloat16/float8_e4m3fn"),
        Claim.parse("cast/ieee/float8_e4m3fn/bfloat16"),
    ],
    ids=str,
)
def test_diagnosis_offers_no_equivalent_fault(claim: Claim) -> None:
    """Not alone, not in a set, not in a pair, not in part."""
    never = equivalent(claim)
    assert len(never) >= 2
    x = cases_for(claim, "smoke")["every_code"]
    right, offered = behaviour_of(claim), set()
    outputs = [wrong.run(x) for fault in FAULTS.values() if (wrong := fault.applied_to(right)) is not None]
    damaged = right.run(x)["codes"].data.copy()
    damaged[::7] ^= 0x11
    outputs.append({"codes": Coded(claim.format, np.ascontiguousarray(damaged))})
    for got in outputs:
        if compare(got, expected(claim, x)).total:
            for explanation in judge(claim, x, got).explanations:
                offered |= {name for names in explanation.faults for name in names.split(" + ")}
    assert len(offered) >= 4
    assert offered & never == set()
