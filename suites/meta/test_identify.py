"""narrowgauge identify: what codes follow, where they part from the nearest policy, and the choices behind them.

Codes are made by the second derivation, by ml_dtypes, or by hand; what is expected of them by arithmetic.
"""

from __future__ import annotations

from dataclasses import asdict

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge import Cast, CastPolicy, Quantize, observe
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.choices import every_policy
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.identify import Identity, Seen, identify
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.policies import POLICIES
from narrowgauge.suites.meta import second_derivation as second

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
#: to nearest even, 448 for all that lies beyond it, NaN for NaN: who says so
SATURATE = {name for name, named in POLICIES.items() if named.by_format.get(E4) == CastPolicy()}
F32 = cases_for(Claim(observe(Cast), "float32", E4), "smoke")
X32 = np.unique(np.concatenate([x.data for x in F32.values()]))
#: the same as values; NaN are left out of comparisons by being NaN
V32 = decode_values(Coded("float32", X32))


def found(codes: npt.NDArray[np.integer], source: str = "float32", fmt: str = E4, x: Coded | None = None) -> Identity:
    """The identity of a cast that gave these codes of ``x``, or of all of the suite's float32 inputs."""
    x = x or Coded(source, X32)
    return identify(Claim(observe(Cast), source, fmt), [Seen(x, {"codes": Coded(fmt, codes)})])


def saturating() -> npt.NDArray[np.uint8]:
    """ml_dtypes' codes after a clamp to 448, which keeps NaN."""
    with np.errstate(invalid="ignore"):
        clamped = np.clip(X32.view(np.float32), -448, 448)
        return np.asarray(clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8))


def edges(fmt: str) -> Coded:
    """bfloat16 inputs at every value and tie of a format, with specials."""
    return cases_for(Claim(observe(Cast), "bfloat16", fmt), "smoke")["edges"]


# --- what is followed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [f.name for f in FORMATS.values() if f.bits <= 8])
def test_every_named_policy_is_recognized(fmt: str) -> None:
    """By the codes of the second derivation; so are all others of the same choices, and only rules that give them."""
    x = edges(fmt)
    groups: dict[CastPolicy, list[str]] = {}
    for name, named in POLICIES.items():
        if fmt in named.by_format:
            groups.setdefault(named.by_format[fmt], []).append(name)
    for policy, names in groups.items():
        codes = second.cast_codes(x.data, x.format, fmt, asdict(policy))
        identity = found(codes.astype(FORMATS[fmt].storage), x.format, fmt, x)
        assert list(identity.follows) == names
        assert identity.choices is not None
        assert identity.choices.left == 0
        for choice, values in identity.choices.values.items():
            assert getattr(policy, choice) in values


def test_a_policy_that_is_followed_has_nothing_more_to_say() -> None:
    identity = found(saturating())
    assert set(identity.follows) == SATURATE >= {"ocp_saturate", "onnx_saturate", "ptx_satfinite", "torch_from_2_13"}
    assert (identity.nearest, identity.differing, identity.apart, identity.explanations) == ((), 0, (), ())
    assert str(identity.choices) == (
        "rounding nearest_even, overflow max, infinity max, nan nan, negative_zero keep, subnormals keep"
    )


@pytest.mark.parametrize("fmt", [E4, FNUZ, "float8_e5m2", "float4_e2m1fn", "float8_e8m0fnu", "int8", "uint4"])
def test_choices_are_measured_where_no_policy_is_named(fmt: str) -> None:
    """A sample of all policies that the format can express, by the second derivation: the choices are found again."""
    x, policies = edges(fmt), every_policy(FORMATS[fmt])
    assert len(policies) > 10
    for policy in policies[:: max(1, len(policies) // 6)]:
        codes = second.cast_codes(x.data, x.format, fmt, asdict(policy))
        choices = found(codes.astype(FORMATS[fmt].storage), x.format, fmt, x).choices
        assert choices is not None
        assert choices.left == 0, policy
        for choice, values in choices.values.items():
            assert getattr(policy, choice) in values, policy
            hidden = {"overflow", "infinity", "negative", "negative_zero", "subnormals"}
            hidden |= set() if FORMATS[fmt].signed else {"rounding"}  # down is toward zero
            assert len(values) == 1 or choice in hidden, "an input for every choice but those that another one hides"


def test_a_limit_is_measured() -> None:
    """224 on FNUZ, as some engines clamp: nothing beyond is ever returned."""
    x = edges(FNUZ)
    policy = CastPolicy(limit=224.0)
    codes = second.cast_codes(x.data, x.format, FNUZ, asdict(policy)).astype(np.uint8)
    identity = found(codes, x.format, FNUZ, x)
    assert identity.choices is not None
    assert identity.choices.values["limit"] == (224.0,)
    assert identity.mistaken == "limit 224"
    assert identity.choices.left == 0
    (group,) = identity.apart
    assert group.inputs == "|x| >= 233 (0x4369)"  # 232, the tie of 224 and 240, goes to the even code of 224
    assert (group.got, group.want) == ("±224 (0x7e)", "±240 (0x7f)")


@pytest.mark.parametrize("policy", [CastPolicy(nan="zero", zero_point=5), CastPolicy("up", nan="max", limit=127.0)])
def test_numbers_of_integers_are_measured(policy: CastPolicy) -> None:
    """A zero point, and a range that is symmetric."""
    x = edges("int8")
    codes = second.cast_codes(x.data, x.format, "int8", asdict(policy)).astype(np.uint8)
    choices = found(codes, x.format, "int8", x).choices
    assert choices is not None
    assert choices.left == 0
    assert choices.values["rounding"] == (policy.rounding,)
    for name in ("limit", "zero_point"):
        assert choices.values.get(name, (getattr(CastPolicy(), name),)) == (getattr(policy, name),)


# --- where they part -------------------------------------------------------------------------------------------------


def test_overflow_is_a_range() -> None:
    """NaN from somewhere beyond 448 to infinity, where a saturating policy gives 448."""
    codes = saturating()
    beyond = V32 > 2.0**40
    codes[beyond] = 0x7F
    identity = found(codes)
    assert identity.follows == ()
    assert set(identity.nearest) == SATURATE
    assert identity.differences == {"nan": int(np.count_nonzero(beyond))}
    (group,) = identity.apart
    first = np.flatnonzero(beyond)[0]
    assert group.inputs == f"x >= {V32[first]:.9g} ({X32[first]:#010x})"
    assert group.where == "beyond the largest, infinity"
    assert group.differing == group.of == identity.differing
    assert (group.got, group.want) == ("nan (0x7f)", "448 (0x7e)")


def test_both_signs_are_told_once() -> None:
    """-0 lost is of one sign; a value of both signs that becomes zero is one group, whatever sign the zero has."""
    with np.errstate(invalid="ignore"):
        codes = X32.view(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8).copy()
    assert "torch_until_2_12" in found(codes).follows
    codes[codes == 0x80] = 0x00
    identity = found(codes)
    (group,) = identity.apart
    assert group.inputs == "-0.0009765625 (0xba800000) <= x <= -0 (0x80000000)"
    assert group.where == "zero, below the smallest, ties"
    assert (group.got, group.want) == ("0 (0x00)", "-0 (0x80)")
    assert identity.explanations[0].faults == ("cast.negative_zero_lost",)
    codes[np.abs(V32) == 2**-9] = 0x00
    group = found(codes).apart[0]
    assert (group.inputs, group.differing) == ("|x| = 0.001953125 (0x3b000000)", 2)
    assert (group.got, group.want) == ("0 (0x00)", "±0.001953125 (0x01)")


def test_ties_are_a_place() -> None:
    """Half away from zero parts at every second tie: 63 of 126 of each sign."""
    codes = second.cast_codes(F32["edges"].data, "float32", E4, asdict(CastPolicy("nearest_away"))).astype(np.uint8)
    identity = found(codes, x=F32["edges"])
    (group,) = identity.apart
    assert (group.where, group.differing, group.of) == ("ties", 126, 252)
    assert group.inputs == "0.0009765625 (0x3a800000) <= |x| <= 400 (0x43c80000)"
    assert identity.explanations[0].faults == ("cast.ties_away",)
    assert identity.choices is not None
    assert identity.choices.values["rounding"] == ("nearest_away",)


def test_the_nearest_policy_is_that_of_the_fewest_other_choices() -> None:
    """x >> 16, the cut to bfloat16, keeps infinity: it is IEEE but for the rounding, though what lies beyond the
    largest value is cut to it, and a policy that saturates leaves fewer codes."""
    x = cases_for(Claim(observe(Cast), "float32", "bfloat16"), "smoke")["edges"]
    identity = found((x.data >> np.uint32(16)).astype(np.uint16), fmt="bfloat16", x=x)
    assert "ieee" in identity.nearest
    assert "gfloat_saturate" not in identity.nearest
    assert identity.explanations[0].faults == ("cast.truncates + cast.nan_by_its_bits",)


SOUND = Claim(Cast("ocp_saturate"), "float32", E4)


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.applied_to(behaviour_of(SOUND))])
def test_every_difference_is_in_one_group(name: str) -> None:
    wrong = FAULTS[name].applied_to(behaviour_of(SOUND))
    assert wrong is not None
    x = F32["edges"]
    identity = found(wrong.run(x)["codes"].data, x=x)
    assert sum(group.differing for group in identity.apart) == identity.differing
    assert all(0 < group.differing <= group.of for group in identity.apart)
    assert bool(identity.follows) == (identity.differing == 0)


def test_nan_inputs_by_their_patterns() -> None:
    """Signalling NaN of both signs become zero, quiet ones stay NaN."""
    codes = saturating()
    pattern = X32 & np.uint32(0x7FFFFFFF)
    signalling = (pattern > 0x7F800000) & (pattern < 0x7FC00000)
    codes[signalling] = 0
    identity = found(codes)
    assert identity.differences == {"nan": int(np.count_nonzero(signalling))}
    for group in identity.apart:
        assert group.where == "NaN"
        assert "nan (0x7f8" in group.inputs or "nan (0xff8" in group.inputs


def test_one_wrong_code_in_65536() -> None:
    """A policy but for one code is not that policy: the input is named, and the choices are said to leave it."""
    x = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        codes = x.view(np.float16).astype(ml_dtypes.float8_e4m3fn).view(np.uint8).copy()
    right = found(codes, "float16", x=Coded("float16", x))
    assert "ml_dtypes" in right.follows
    codes[0x3C00] = 0x39
    identity = found(codes, "float16", x=Coded("float16", x))
    assert identity.follows == ()
    assert identity.nearest == right.follows
    (group,) = identity.apart
    assert (group.inputs, group.got, group.want) == ("x = 1 (0x3c00)", "1.125 (0x39)", "1 (0x38)")
    assert identity.choices is not None
    assert (identity.choices.left, identity.mistaken) == (1, "")
    assert identity.explanations == ()


def test_a_code_that_depends_on_its_place_is_no_cast() -> None:
    x = np.array([0x3C00, 0x4000, 0x3C00], np.uint16)
    claim = Claim(observe(Cast), "float16", E4)
    codes = np.array([0x38, 0x40, 0x39], np.uint8)
    seen = [Seen(Coded("float16", x), {"codes": Coded(E4, codes)})]
    assert identify(claim, seen).unsteady == 1
    assert identify(claim, seen).follows == ()
    two_cases = [Seen(Coded("float16", x[i : i + 1]), {"codes": Coded(E4, codes[i : i + 1])}) for i in (0, 2)]
    assert identify(claim, two_cases).unsteady == 1


def test_numbers_that_are_no_codes_are_shown_as_they_are() -> None:
    codes = saturating().astype(np.int32)
    codes[V32 == 1.0] = 0x138
    codes[V32 == 2.0] = -3
    identity = found(codes)
    assert identity.differences == {"not_a_code": 2}
    assert [group.got for group in identity.apart] == ["0x138, no code", "-0x3, no code"]


def test_a_quantizer_that_lacks_a_step_is_another_one_spoilt() -> None:
    """vLLM's with a lower floor lies nearer to SGLang's, which has none, and still is vLLM's with a lower floor."""
    claim = Claim(Quantize("vllm.fp8_per_token_dynamic"), "float32", E4)
    seen = []
    for case in ("rows_128", "rows_131"):
        x = cases_for(claim, "smoke")[case]
        right, wrong = behaviour_of(claim), FAULTS["scale.minimum_too_small"].applied_to(behaviour_of(claim))
        assert wrong is not None
        seen.append(Seen(x, wrong.run(x)))
    observed = Claim(observe(Quantize), "float32", E4)
    identity = identify(observed, seen)
    assert identity.follows == ()
    assert identity.choices is None
    assert identity.spoilt == "vllm.fp8_per_token_dynamic"
    assert identity.spoilt_by[0].faults == ("scale.minimum_too_small",)
    assert identity.differing == sum(group.differing for group in identity.apart) > 0
    good = [Seen(one.x, right.run(one.x)) for one in seen]
    assert identify(observed, good).follows == ("vllm.fp8_per_token_dynamic",)
