"""``narrowgauge cast``: one value, every policy, whose word."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.actual import Actual, actual
from narrowgauge.reference.codec import RandomBits, encode
from narrowgauge.reference.deviations import DEVIATIONS, Deviation
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.judge import check_claim
from narrowgauge.reference.policies import POLICIES, fitting, resolve
from narrowgauge.reference.typed import typed
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta import versions
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.killer_policies import MEANT

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


def test_the_two_answers_to_500(capsys: pytest.CaptureFixture[str]) -> None:
    """torch's changed with 2.13; OCP has both as modes."""
    data = as_json(["cast", "500", "e4m3fn"], capsys)
    answers = {a["code"]: set(a["policies"]) for a in data["answers"]}
    assert (data["source"], data["pattern"], data["format"]) == ("float32", 0x43FA0000, "float8_e4m3fn")
    assert answers.keys() == {0x7E, 0x7F}
    assert {"ocp_saturate", "torch_from_2_13"} <= answers[0x7E]
    assert {"ocp_nonsaturate", "torch_until_2_12", "ml_dtypes"} <= answers[0x7F]
    assert set().union(*answers.values()) == set(fitting("float8_e4m3fn"))
    assert (data["rounded_from"], data["left_out"]) == (None, [])


def test_the_text_names_who_gives_it_and_on_request_on_whose_word(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["cast", "500", "e4m3fn"], capsys)
    assert text.startswith("500 (0x43fa0000) of float32 to float8_e4m3fn 448 (0x7e) ocp_saturate, torch_from_2_13, ")
    assert "nan (0x7f) ocp_nonsaturate, torch_until_2_12, " in text
    assert "OCP OFP8" not in text
    for option in ("-v", "--verbose", "--policy=torch_until_2_12"):
        assert f"torch_until_2_12: {POLICIES['torch_until_2_12'].authority}" in said(
            ["cast", "500", "e4m3fn", option], capsys
        )


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.bits <= 8])
def test_agrees_with_exact_fractions(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """1.625 in float32, 0x3fd00000, is a tie in some formats and a value in others."""
    data = as_json(["cast", "1.625", name], capsys)
    got = {policy: a["code"] for a in data["answers"] for policy in a["policies"]}
    number = second.decode(0x3FD00000, "float32")
    assert got == {p: second.cast(number, name, by[name]) for p, by in MEANT.items() if name in by}


@pytest.mark.parametrize(
    ("value", "options", "told"),
    [
        ("0x80", ["--source=float8_e4m3fnuz"], "nan (0x80) of float8_e4m3fnuz to float32"),
        ("0x7e", ["--source=e4m3fnuz"], "224 (0x7e) of float8_e4m3fnuz to float32 224 (0x43600000)"),
        ("0x1.8p1", ["--source=bf16"], "3 (0x4040) of bfloat16"),
        ("0.1", ["--source=f16"], "0.0999755859 (0x2e66) of float16"),
        ("inf", ["--source=float64"], "inf (0x7ff0000000000000) of float64 to float32 inf (0x7f800000)"),
        ("-3", ["--source=int8"], "-3 (0xfd) of int8 to float32 -3 (0xc0400000)"),
        ("1e40", [], "inf (0x7f800000) of float32 to float32 (1e40 is no float32: rounded to inf; --source float64 k"),
        ("500", ["--source=e4m3"], "nan (0x7f) of float8_e4m3fn to float32 (500 is no float8_e4m3fn: rounded to nan;"),
        # The tie of two float32, and a little more: by way of a float64, which has no room for that, it would go down.
        ("1.000000059604644775390625000001", [], "1.00000012 (0x3f800001) of float32"),
        ("1.000000059604644775390625", [], "1 (0x3f800000) of float32"),
        ("0.999999970197677612304687499999", [], "0.99999994 (0x3f7fffff) of float32"),
        ("7", ["--source=fp4"], "6 (0x7) of float4_e2m1fn"),
    ],
)
def test_what_is_read(value: str, options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(["cast", *options, "--", value, "float32"], capsys).startswith(told)


def test_one_policy(capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["cast", "500", "e4m3fn", "--policy", "ml_dtypes"], capsys)
    assert [list(a["policies"]) for a in data["answers"]] == [["ml_dtypes"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["many", "e4m3fn"], "value 'many'; expected a number"),
        (["0x1g", "e4m3fn"], "expected a number or a code of float32 in hexadecimal"),
        (["0x1ff", "float32", "--source", "e4m3fn"], "float8_e4m3fn has codes 0 to 0xff"),
        (["0x10000000000000000000", "e4m3fn"], "expected a number or a code"),
        (["nan", "float32", "--source", "int8"], "int8 has no nan"),
        (["inf", "float32", "--source", "fp4"], "float4_e2m1fn has no inf"),
        (["1", "e4m3x"], "format 'e4m3x'"),
        (["1", "e4m3fn", "--policy", "fnuz_saturate"], "does not fit float8_e4m3fn"),
        (["1", "float64"], "no named policy has destination float64"),
        (["1e999999999999999999999", "e4m3fn"], "expected an exponent of at most 18 digits"),
        (
            ["1", "e4m3fn", "--policy", "torch_from_2_13", "--source", "float64"],
            "torch_from_2_13 is measured from float32, bfloat16, float16; not from float64",
        ),
        (
            ["1", "e4m3fn", "--policy", "ptx_satfinite", "--source", "int8"],
            "ptx_satfinite is documented from ",
        ),
        (
            ["1", "e4m3fn", "--choose", "roundings=up"],
            "unknown choice 'roundings' in a cast policy; did you",
        ),
        (["1", "e4m3fn", "--choose", "rounding"], "choice 'rounding'; expected choice=value"),
        (["1", "e4m3fn", "--choose", "nan=max,nan=min"], "choice 'nan=min'; expected choice=value, each once"),
        (["1", "e4m3fn", "--choose", "rounding=nearest"], "rounding='nearest'; expected one of nearest_even, "),
        (["1", "e4m3fn", "--choose", "limit=241"], "limit=241.0 is not a value of float8_e4m3fn"),
        (["1", "e5m2", "--choose", "limit=inf"], "limit=inf; expected a positive, finite number"),
        (["1", "e5m2", "--choose", "limit=much"], "limit='much'; expected a number or none"),
        (["1", "e4m3fn", "--choose", "zero_point=3"], "zero_point=3 does not fit float8_e4m3fn (fn)"),
        (["1", "int8", "--choose", "zero_point=0.5"], "zero_point='0.5'; expected a whole number"),
        (["1", "int8", "--choose", f"zero_point={10**400}"], "expected a whole number below 2147483648"),
        (["1", "e4m3fn", "--choose", "rounding=stochastic"], "--random not given; --choose rounding=stochastic and"),
        (["1", "e4m3fn", "--random", "1/8"], "rounding=nearest_even, --random 1/8; --choose rounding=stochastic and"),
        (["1", "e4m3fn", "--choose", "rounding=stochastic", "--random", "256/8"], "integers from 0 to below 2^width"),
        (["1", "e4m3fn", "--choose", "rounding=stochastic", "--random", "-1/8"], "integers from 0 to below 2^width"),
        (["1", "e4m3fn", "--choose", "rounding=stochastic", "--random", "0.5/8"], "'0.5/8'; expected BITS/WIDTH"),
        (["1", "e4m3fn", "--choose", "rounding=stochastic", "--random", "5"], "'5'; expected BITS/WIDTH"),
        (["1", "int8", "--choose", "rounding=stochastic", "--random", "5/8"], "does not fit int8"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(["cast", *arguments], capsys)


@pytest.mark.parametrize(
    ("value", "source", "note"),
    [
        ("464.00001", "float32", "464.00001 is no float32: rounded to 464; --source float64 keeps more of it"),
        ("464.0000001192092896", "float32", "rounded to 464; --source float64 keeps more of it"),
        ("465", "e4m3fn", "465 is no float8_e4m3fn: rounded to nan; --source float64 keeps it"),
        ("7", "fp4", "7 is no float4_e2m1fn: rounded to 6; --source float64 keeps it"),
        ("1e400", "bf16", "1e400 is no bfloat16: rounded to inf"),
        ("1e400", "fp4", "1e400 is no float4_e2m1fn: rounded to 6; --source float64 keeps more"),
        ("1e400", "float64", "1e400 is no float64: rounded to inf"),
        ("inf", "e4m3fn", "inf is no float8_e4m3fn: rounded to nan; --source float64 keeps it"),
        ("-inf", "e8m0", "-inf is no float8_e8m0fnu: rounded to 5.87747175e-39; --source float64 keeps it"),
        ("1e39", "float32", "1e39 is no float32: rounded to inf; --source float64 keeps more of it"),
        ("1e-10", "float16", "1e-10 is no float16: rounded to 0; --source float64 keeps more of it"),
        ("-0.0", "e4m3fnuz", "-0.0 is no float8_e4m3fnuz: rounded to 0; --source float64 keeps it"),
        ("0x1.000001p0", "float32", "0x1.000001p0 is no float32: rounded to 1; --source float64 keeps it"),
    ],
)
def test_a_number_that_the_source_does_not_hold_is_told(
    value: str, source: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["cast", value, "float32", "--source", source]
    assert note in said(command, capsys)
    assert as_json(command, capsys)["rounded_from"] == value


@pytest.mark.parametrize(
    ("value", "source"),
    [("464", "float32"), ("7.34683969e-39", "float32"), ("0.1", "float64"), ("1.0625000000009095", "float64"),
     ("inf", "float32"), ("-nan", "float16"), ("-0.0", "float32"), ("0x7f", "e4m3fn"), ("1_000", "float32")],
)  # fmt: skip
def test_of_a_number_that_it_holds_nothing_is_told(value: str, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor of nine digits that are how a float32 is shown."""
    assert " is no " not in said(["cast", value, "float32", "--source", source], capsys)
    assert as_json(["cast", value, "float32", "--source", source], capsys)["rounded_from"] is None


@pytest.mark.parametrize(
    ("value", "pattern"),
    [("-nan", 0xFFC00000), ("-NaN", 0xFFC00000), ("-inf", 0xFF800000), ("-Infinity", 0xFF800000), ("-1e-3", 0xBA83126F),
     ("-.5", 0xBF000000), ("-0x1.8p1", 0xC0400000), ("-0", 0x80000000)],
)  # fmt: skip
def test_a_sign_makes_no_option(value: str, pattern: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(["cast", value, "float32", "--policy=ieee"], capsys)["pattern"] == pattern
    assert f"({pattern:#010x}) of float32" in said(["cast", "--", value, "float32"], capsys)


# --- what is known to be otherwise, and what is not known ------------------------------------------------------------


def given(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, int | None]:
    """The code of each policy."""
    return {p: a["code"] for a in as_json(["cast", *arguments], capsys)["answers"] for p in a["policies"]}


def test_the_lowest_binade_is_what_torch_and_ml_dtypes_make_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """0x00500000 is 1.25 x 2^-127; the end of the span, 0x00600000, is the tie, and no deviation but of 0.5.0."""
    found = given(["0x00500000", "e8m0"], capsys)
    assert (found["torch_from_2_13"], found["ml_dtypes"], found["ml_dtypes_0_5_0"], found["e8m0_even"]) == (1, 1, 1, 0)
    assert "torch_until_2_12, torch_from_2_13, ml_dtypes, ml_dtypes_0_5_0 (known deviation: rounds a subnormal" in said(
        ["cast", "0x00500000", "e8m0"], capsys
    )
    for code, parting in (
        ("0x00500000", {"torch_until_2_12", "torch_from_2_13", "ml_dtypes", "ml_dtypes_0_5_0"}),
        ("0x80500000", {"torch_until_2_12", "torch_from_2_13", "gfloat_saturate", "gfloat_nonsaturate"}),
        ("0x00600000", {"ml_dtypes_0_5_0"}),
        ("0x00400000", set()),
        ("0x7fc00000", set()),
    ):
        answers = as_json(["cast", code, "e8m0"], capsys)["answers"]
        assert set().union(*(a["deviations"] for a in answers)) == parting


def test_a_number_that_is_no_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert given(["-1", "e8m0"], capsys)["gfloat_saturate"] is None
    assert "no code gfloat_nonsaturate (known deviation: encode_ndarray does not look at the sign" in " ".join(
        said(["cast", "-1", "e8m0"], capsys).replace("gfloat_saturate, ", "").replace("; ", " ").split()
    )


@pytest.mark.parametrize(
    ("value", "source", "code"),
    [("464", "float16", 0x7E), ("464.25", "float16", 0x7F), ("-479.75", "float16", 0x7F), ("480", "float16", 0x7E),
     ("470", "float32", 0x7E)],
)  # fmt: skip
def test_amd_s_software_conversion_of_float16(
    value: str, source: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert given([value, "e4m3fn", "--source", source, "--policy", "triton_amd_ocp"], capsys) == {
        "triton_amd_ocp": code
    }


def test_a_source_that_was_not_measured_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """torch and ml_dtypes give 0x38: they round a float64 twice."""
    command = ["cast", "1.0625000000009095", "e4m3fn", "--source", "float64"]
    data = as_json(command, capsys)
    assert {a["code"] for a in data["answers"]} == {0x39}
    assert {"torch_from_2_13", "ml_dtypes", "ptx_satfinite"} < set(data["left_out"])
    assert {"ocp_saturate", "onnx_saturate"} <= set(data["answers"][0]["policies"])
    assert "not known from float64: torch_until_2_12, torch_from_2_13, ml_dtypes," in said(command, capsys)
    assert "torch_ieee" in as_json(["cast", "1.00390625000090949", "bf16", "--source", "float64"], capsys)["left_out"]


def test_nothing_is_said_of_a_source_that_is_not_known() -> None:
    with pytest.raises(BadInput, match="ml_dtypes is measured from float32, bfloat16, float16; not from float64"):
        actual("ml_dtypes", typed("1", FORMATS["float64"]).value, "float8_e4m3fn")


@pytest.mark.parametrize("deviation", DEVIATIONS, ids=lambda d: f"{d.library}-{d.where}")
def test_a_deviation_belongs_to_policies_of_its_library(deviation: Deviation) -> None:
    """And is one: its policies say another code of the example, in a source that is known."""
    mine = [p for p in POLICIES.values() if deviation in p.exceptions]
    assert mine
    for named in mine:
        assert named.applies.split(" ")[0] == deviation.library
        source = (deviation.sources or named.sources)[0]
        assert source in named.sources
        x = typed(f"{deviation.example!r}", FORMATS[source]).value
        assert actual(named.name, x, deviation.format) == Actual(deviation.gives, deviation)
        assert int(cast(x, deviation.format, resolve(named.name, deviation.format)).data) != deviation.gives


def test_what_is_measured_says_from_which_sources() -> None:
    """Those of versions.json, for some destination."""
    recorded = versions.load()
    for named in (p for p in POLICIES.values() if p.evidence == "measured"):
        library = named.applies.split(" ")[0]
        kernels = versions.KERNELS[library]
        found = {
            a.source
            for a in recorded.answers
            for v in a.versions
            if a.kernel in kernels and versions.policy_of(a.kernel, v, a.format) == named.name
        }
        assert found == set(named.sources)


# --- one's own choices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["300", "e4m3fn", "--choose", "limit=240"], 0x77),
        (["300", "e4m3fn", "--choose=limit=240,overflow=special"], 0x7F),
        (["1.01", "e4m3fn", "--choose", "rounding=up"], 0x39),
        (["1.01", "e4m3fn", "--choose", "rounding = up, limit=none"], 0x39),
        (["500", "e4m3fn", "--choose", "rounding=down", "--policy", "ocp_nonsaturate"], 0x7F),
        (["-2.5", "int8", "--choose", "rounding=down,limit=100,zero_point=3"], 0x00),
        (["-300", "int8", "--choose", "limit=100,zero_point=-0x10"], 0x9C),
        (["nan", "fp4", "--choose", "rounding=up"], 0x0),
        (["nan", "e4m3fn", "--choose", "nan=signed_max"], 0x7E),
        # 1.03 is 0.24 of the way from 1 to 1.125, 61 of 256: up from 195 of 256 on
        (["1.03", "e4m3fn", "--choose", "rounding=stochastic", "--random", "194/8"], 0x38),
        (["1.03", "e4m3fn", "--choose", "rounding=stochastic", "--random", "0xc3/8"], 0x39),
        (["1.03", "e4m3fn", "--choose", "rounding=stochastic", "--random", "200/8"], 0x39),
        (["1.03", "e4m3fn", "--choose", "rounding=stochastic", "--random", "0/0"], 0x38),
    ],
)
def test_own_choices(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert given(arguments, capsys) == {"--choose": code}
    assert "--choose: rounding " in said(["cast", *arguments], capsys)


@pytest.mark.parametrize("choices", [{}, {"rounding": "up", "overflow": "special"}, {"negative_zero": "drop"}])
def test_random_bits_of_another_shape_are_refused(choices: dict[str, Any]) -> None:
    fmt, x = FORMATS["float8_e4m3fn"], np.ones((2, 3), np.float32)
    policy = CastPolicy(**{**choices, "rounding": "stochastic"})
    for shape in ((), (2, 3)):
        assert encode(x, fmt, policy, RandomBits(np.zeros(shape, np.uint8), 4)).shape == (2, 3)
    for wrong in ((3,), (1, 3), (3, 2)):
        with pytest.raises(BadInput, match="random bits of shape"):
            encode(x, fmt, policy, RandomBits(np.zeros(wrong, np.uint8), 4))


@pytest.mark.parametrize("bits", [np.array([0.5]), np.array([-1]), np.array([16]), np.array([True])])
def test_random_bits_are_integers_of_their_width(bits: npt.NDArray[Any]) -> None:
    with pytest.raises(BadInput, match="random bits of"):
        RandomBits(bits, 4)


def test_a_kernel_cannot_claim_random_bits() -> None:
    with pytest.raises(BadInput, match="a stochastic cast cannot be judged: nobody hands a kernel the random bits"):
        check_claim(Claim(Cast(CastPolicy(rounding="stochastic")), "float32", "float8_e4m3fn"))
