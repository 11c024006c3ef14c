"""narrowgauge identify: what codes follow, where they part from the nearest policy, and the choices behind them.

Codes are made by the second derivation, by ml_dtypes, or by hand; what is expected of them by arithmetic.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge import Cast, CastPolicy, Quantize, observe
from narrowgauge.command import identify as command_module
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.choices import every_policy
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.identify import Identity, Seen, identify
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.policies import POLICIES
from narrowgauge.suites import run as runs
from narrowgauge.suites.identifying import Found, identify_kernel
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.offline import write_inputs
from narrowgauge.suites.run import Run

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
SATURATE = {"ocp_saturate", "onnx_saturate", "ptx_satfinite", "torch_from_2_13", "triton_amd_ocp"}
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
    assert set(identity.follows) == SATURATE
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
    assert identity.choices.left == 0
    (group,) = identity.apart
    assert group.inputs == "|x| >= 233 (0x4369)"  # 232, the tie of 224 and 240, goes to the even code of 224
    assert (group.got, group.want) == ("±224 (0x7e)", "±240 (0x7f)")


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
    assert identity.choices.left == 1
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
    """vLLM's without its minimum lies nearer to SGLang's, which has none, and still is vLLM's without its minimum."""
    claim = Claim(Quantize("vllm.fp8_per_token_dynamic"), "float32", E4)
    seen = []
    for case in ("rows_128", "rows_131"):
        x = cases_for(claim, "smoke")[case]
        right, wrong = behaviour_of(claim), FAULTS["scale.minimum_missing"].applied_to(behaviour_of(claim))
        assert wrong is not None
        seen.append(Seen(x, wrong.run(x)))
    observed = Claim(observe(Quantize), "float32", E4)
    identity = identify(observed, seen)
    assert identity.follows == ()
    assert identity.choices is None
    assert identity.spoilt == "vllm.fp8_per_token_dynamic"
    assert identity.spoilt_by[0].faults == ("scale.minimum_missing",)
    assert identity.differing == sum(group.differing for group in identity.apart) > 0
    good = [Seen(one.x, right.run(one.x)) for one in seen]
    assert identify(observed, good).follows == ("vllm.fp8_per_token_dynamic",)


# --- kernels ---------------------------------------------------------------------------------------------------------

KERNELS = """
    import os, time
    import numpy as np
    import ml_dtypes
    from narrowgauge import Cast, kernel, observe

    half = kernel(Cast("ocp_saturate"), ["float8_e4m3fn"], ["float16"], backend="numpy")

    def right(x):
        return np.clip(x.astype(np.float32), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)

    @kernel(Cast("ocp_nonsaturate"), ["float8_e4m3fn"], ["float16", "bfloat16"], backend="numpy")
    def not_what_it_claims(x, format):
        return right(x)

    @half
    def all_but_one(x, format):
        codes = right(x)
        codes[x == 1] = 0x39
        return codes

    @half
    def nothing(x, format):
        return (x.view(np.uint16) * 7 >> 3).astype(np.uint8)

    @half
    def crashes(x, format):
        if x.size < 60000:
            os.abort()
        return right(x)

    @half
    def hangs(x, format):
        time.sleep(1000)

    @half
    def short(x, format):
        return right(x)[:-1]
"""


class Kept(Run):
    """A run whose children live from test to test."""

    def close(self) -> None:
        """Left to the fixture."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """The kernels above, without the suite's own, which need torch."""
    path = tmp_path_factory.mktemp("kernels") / "my_kernels.py"
    path.write_text(textwrap.dedent(KERNELS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "MODULES", {})
        made = Kept([str(path)], ["host"], timeout=1.0)
        assert made.kernels
    yield made
    Run.close(made)


@pytest.fixture
def here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command works with that run, whatever kernels and devices it is given."""
    monkeypatch.setattr(command_module, "Run", lambda *arguments, **options: run)


def test_what_a_kernel_claims_plays_no_part(run: Run) -> None:
    both = list(identify_kernel(run, "not_what_it_claims", [], []))
    assert [str(one.claim) for one in both] == [f"cast/?/{source}/{E4}" for source in ("float16", "bfloat16")]
    assert all(set(one.follows) == SATURATE for one in both)
    assert both[0].cases == ("edges", "every_code")
    assert both[0].identity is not None
    assert both[0].identity.elements == 1 << 16, "each input counts once"
    (one,) = identify_kernel(run, "not_what_it_claims", ["e4m3fn"], ["bf16"])
    assert str(one.claim) == f"cast/?/bfloat16/{E4}"


def test_kernels_without_an_answer(run: Run) -> None:
    def only(name: str) -> Found:
        (one,) = identify_kernel(run, name, [], [])
        return one

    hung = only("hangs")
    assert hung.problems == ("case edges: hung: no answer in 1 s",)
    assert hung.unrun == ("not tried: it hung in case edges",)
    short = only("short")
    assert "codes misshaped: got [1573], want [1574]" in short.problems[0]
    for one in (hung, short):
        assert one.identity is None
        assert one.follows == ()
        assert one.executed
    crashed = only("crashes")
    assert crashed.problems == ("case edges: crashed: signal SIGABRT",)
    assert crashed.cases == ("every_code",)
    assert crashed.identity is not None
    assert set(crashed.identity.follows) == SATURATE
    assert crashed.follows == (), "a kernel that crashes follows nothing"


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_on_one_that_follows(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user calls it, but for the suite's own kernels."""
    monkeypatch.setattr(runs, "MODULES", {})
    arguments = ["identify", "not_what_it_claims", "--kernels", run.origins[0], "--device", "host"]
    text = said(arguments, capsys)
    assert text.count("not_what_it_claims on host: cast of float16, bfloat16 to float8_e4m3fn") == 1
    assert "follows ocp_saturate, torch_from_2_13, ptx_satfinite, onnx_saturate, triton_amd_ocp" in text


@pytest.mark.usefixtures("here")
def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["identify", "not_what_it_claims"], capsys)
    assert [set(one["follows"]) for one in data] == [SATURATE, SATURATE]
    assert data[0]["identity"]["choices"] == {
        "left": 0,
        "values": {
            "rounding": ["nearest_even"], "overflow": ["max"], "infinity": ["max"], "nan": ["nan"],
            "negative_zero": ["keep"], "subnormals": ["keep"],
        },
    }  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("columns", [80, 160])
def test_the_command_on_one_that_does_not(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert ends(["identify", "all_but_one"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    text = " ".join(out.split())
    for words in (
        "follows no named policy",
        "but for 1 rounding nearest_even, overflow max,",
        "nearest ocp_saturate, torch_from_2_13,",
        "differs in 1 of 65,536 inputs (1 value)",
        "fault no known fault accounts for any of it",
        "values of the format x = 1 (0x3c00) 1 1.125 (0x39) 1 (0x38)",
    ):
        assert words in text


@pytest.mark.usefixtures("here")
def test_the_command_on_what_is_no_cast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert ends(["identify", "nothing"]) == 1
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "follows     no named policy" in out
    assert "exactly" not in out
    assert "but for" not in out


@pytest.mark.usefixtures("here")
def test_the_command_on_a_kernel_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["identify", "short"], capsys, code=1)
    assert "no answer case edges: codes misshaped: got [1573], want [1574]" in text
    assert "tried" not in text


@pytest.mark.usefixtures("here")
def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown kernel 'all_but_on'; did you mean all_but_one" in refused(["identify", "all_but_on"], capsys)
    text = refused(["identify", "short", "--format", "e5m2"], capsys)
    assert "kernel 'short' does not name format 'float8_e5m2'; it names float8_e4m3fn" in text
    text = refused(["identify", "short", "--source", "float32"], capsys)
    assert "does not name source 'float32'; it names float16" in text
    assert "unknown format 'e9m9'" in refused(["identify", "short", "--format", "e9m9"], capsys)
    assert "--kernels is for a kernel that is run" in refused(["identify", "in", "out", "--kernels", "k.py"], capsys)
    assert "no_such" in refused(["identify", str(tmp_path / "no_such"), str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("rule", ["?", "ocp_nonsaturate"])
def test_files(rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """identify reads outputs of any program, whatever the inputs file claims; judge says the same of an observation."""
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(Claim.parse(f"cast/{rule}/float32/{E4}"), "smoke", inputs)
    answers = {}
    for case, x in F32.items():
        with np.errstate(invalid="ignore"):
            clamped = np.clip(x.data.view(np.float32), -448, 448)
            codes = clamped.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).copy()
        codes[np.abs(x.data.view(np.float32)) > 464] = 0x00
        answers[f"{case}.codes"] = Coded(E4, codes)
    write(outputs, answers, {}, typed=False)
    text = said(["identify", str(inputs), str(outputs), "--target", "gfx942"], capsys, code=1)
    assert "out on gfx942: cast of float32 to float8_e4m3fn" in text
    assert "|x| >= 464.000031 (0x43e80001)" in text
    if rule == "?":
        judged = said(["judge", str(inputs), str(outputs), "--target", "gfx942"], capsys)
        assert judged.startswith(text)


def test_files_without_an_answer_are_not_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, outputs = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    write_inputs(Claim.parse(f"cast/?/float16/{E4}"), "smoke", inputs)
    write(outputs, {}, {}, typed=False)
    text = said(["identify", str(inputs), str(outputs)], capsys, code=6)
    assert "not executed on unknown: the outputs file holds no tensor of case 'edges'" in text
