"""``narrowgauge cast``: one value, every policy, whose word."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.policies import POLICIES, fitting
from narrowgauge.suites.meta import second_derivation as second
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
    text = said(["cast", "500", "e4m3fn"], capsys)
    assert text.startswith("500 (0x43fa0000) of float32 to float8_e4m3fn 448 (0x7e) ocp_saturate: OCP OFP8 1.0")
    assert POLICIES["torch_until_2_12"].authority in text


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
        ("1e40", [], "inf (0x7f800000) of float32"),
        ("500", ["--source=e4m3"], "nan (0x7f) of float8_e4m3fn"),
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
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(["cast", *arguments], capsys)
