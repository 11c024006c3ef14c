"""narrowgauge explain: every format, policy, recipe, fault and symptom."""

from __future__ import annotations

import json
import re

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.symptom import Symptom
from narrowgauge.reference.symptoms import SYMPTOMS, matching
from narrowgauge.suites.meta import second_derivation as second
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

# --- explain ---------------------------------------------------------------------------------------------------------

ALIASES = [(alias, f.name) for f in FORMATS.values() for alias in (f.name, f.safetensors, *f.aliases) if alias]
IN_ML_DTYPES = [f.name for f in FORMATS.values() if f.family != "integer" and f.name != "tfloat32"]
BITS = {
    "float8_e8m0fnu": "no sign, 8 exponent, no mantissa, bias 127",
    "int8": "8, two's complement", "uint8": "8, unsigned", "int4": "4, two's complement", "uint4": "4, unsigned",
    "int32": "32, two's complement",
}  # fmt: skip


@pytest.mark.parametrize(("alias", "name"), ALIASES)
def test_explain_a_format_under_every_name(alias: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fmt = FORMATS[name]
    for spelling in (alias, alias.upper(), alias.lower()):
        text = said(["explain", spelling], capsys)
        bits = BITS.get(name) or f"1 sign, {fmt.exponent} exponent, {fmt.mantissa} mantissa, bias {fmt.bias}"
        assert text.startswith(f"{name} bits {bits} largest finite ")
        assert fmt.authority in text
        assert ", ".join(fmt.aliases) in text
    assert as_json(["explain", alias], capsys)["name"] == name


def codes_of(text: str) -> list[int]:
    """What "0x7d to 0x7f, 0xff" or "none" says."""
    runs = [[int(end, 16) for end in run.split(" to ")] for run in text.split(", ") if run != "none"]
    return [code for run in runs for code in range(run[0], run[-1] + 1)]


@pytest.mark.parametrize("name", IN_ML_DTYPES)
def test_facts_of_a_format_agree_with_ml_dtypes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, dtype = as_json(["explain", name], capsys), np.dtype(getattr(ml_dtypes, name, None) or name)
    info = ml_dtypes.finfo(dtype)
    top, code = re.fullmatch(r"(\S+) \((0x\w+)\)", data["largest finite"]).groups()  # type: ignore[union-attr]
    assert np.array(float(top)).astype(dtype) == info.max
    assert np.array(int(code, 16), FORMATS[name].storage).view(dtype) == info.max
    assert float(data["smallest normal"]) == pytest.approx(float(info.tiny), rel=1e-8)
    if name == "float8_e8m0fnu":
        assert data["smallest subnormal"] == "none"
    else:
        assert float(data["smallest subnormal"]) == pytest.approx(float(info.smallest_subnormal), rel=1e-8)
    with np.errstate(all="ignore"):
        infinite = np.array([np.inf, -np.inf]).astype(dtype)
        has = bool(np.isinf(infinite.astype(np.float64)).all())
        assert codes_of(data["infinity"]) == (infinite.view(FORMATS[name].storage).tolist() if has else [])
        minus_zero = np.array(-0.0).astype(dtype).astype(np.float64)
    assert (data["negative zero"] == "yes") == bool(np.signbit(minus_zero) and minus_zero == 0)
    if dtype.itemsize == 1:
        values = np.arange(FORMATS[name].code_count, dtype=np.uint8).view(dtype).astype(np.float64)
        np.testing.assert_array_equal([float(v) for v in data["values"]], values)
        assert codes_of(data["NaN"]) == np.flatnonzero(np.isnan(values)).tolist()
    else:
        assert data["values"] is None


@pytest.mark.parametrize("name", [f.name for f in FORMATS.values() if f.bits <= 8 or f.name == "tfloat32"])
def test_facts_of_a_format_agree_with_exact_fractions(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data, layout = as_json(["explain", name], capsys), second.LAYOUTS[name]
    numbers = [second.decode(code, name) for code in range(layout.codes)]
    values = {c: -n.magnitude if n.negative else n.magnitude for c, n in enumerate(numbers) if n.kind == "finite"}
    top, code = re.fullmatch(r"(\S+) \((0x\w+)\)", data["largest finite"]).groups()  # type: ignore[union-attr]
    assert values[int(code, 16)] == max(values.values())
    assert float(top) == pytest.approx(float(max(values.values())), rel=1e-8)
    smallest = {
        "smallest normal": "none" if layout.is_integer else values[0 if layout.first else 1 << layout.mantissa_bits],
        "smallest subnormal": "none" if layout.is_integer or layout.first else values[1],
    }
    for fact, value in smallest.items():
        assert data[fact] == value or float(data[fact]) == pytest.approx(float(value), rel=1e-8)
    assert data["zero"] == ("yes" if 0 in values.values() else "no")
    assert codes_of(data["infinity"]) == [c for c, n in enumerate(numbers) if n.kind == "inf"]
    minus_zero = any(n.kind == "finite" and n.negative and n.magnitude == 0 for n in numbers)
    assert data["negative zero"] == ("yes" if minus_zero else "no")
    if name != "tfloat32":
        assert codes_of(data["NaN"]) == [c for c, n in enumerate(numbers) if n.kind == "nan"]
        assert {c: float(data["values"][c]) for c in values} == values
        assert len(data["values"]) == layout.codes


def test_a_table_that_is_rounded_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    for name, rounded in (("float8_e5m2", True), ("float8_e8m0fnu", True), ("float8_e4m3fn", False), ("int8", False)):
        assert ("value of each code, to 8 digits" in said(["explain", name], capsys)) == rounded


def test_value_table_of_fnuz(capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(["explain", "float8_e4m3fnuz"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.split("value of each code")[1].splitlines()]
    table = {int(cells[0], 16): cells[1:] for cells in lines if cells and cells[0].startswith("0x")}
    assert sorted(table) == list(range(0, 256, 8))
    assert table[0x78][7] == "240"
    assert table[0x80][0] == "nan"
    assert table[0xF8][7] == "-240"
    assert table[0x40][0] == "1"
    assert table[0x00][:2] == ["0", "0.0009765625"]
    assert sum(row.count("nan") for row in table.values()) == 1


@pytest.mark.parametrize("name", POLICIES)
def test_explain_a_policy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    policy, text = POLICIES[name], said(["explain", name], capsys)
    assert text.startswith(f"{name}: a cast policy choice ")
    # A policy of many formats is several tables, one below the other.
    tables = re.findall(r"\bchoice (.*?) rounding (.*?) overflow (.*?) infinity (.*?) nan ", text)
    named, rounding, overflow, infinity = (" ".join(column).split() for column in zip(*tables, strict=True))
    assert named == list(policy.by_format)
    assert rounding == [p.rounding for p in policy.by_format.values()]
    assert overflow == [p.overflow for p in policy.by_format.values()]
    assert infinity == [p.infinity for p in policy.by_format.values()]
    assert f"authority: {' '.join(policy.authority.split())}" in text
    assert f"evidence: {policy.evidence}" in text
    assert policy.applies in text
    data = as_json(["explain", name], capsys)
    assert (data["name"], data["by_format"].keys()) == (name, policy.by_format.keys())


@pytest.mark.parametrize("name", RECIPES)
def test_explain_a_recipe(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, data = said(["explain", name], capsys), as_json(["explain", name], capsys)
    assert text.startswith(f"{name}: a recipe")
    assert RECIPES[name].source in text
    assert data["name"] == name
    assert [d["format"] for d in data["destinations"]] == [d.format for d in RECIPES[name].destinations]
    assert data["steps"] == json.loads(json.dumps(RECIPES[name].steps).replace("Infinity", '"inf"'))


@pytest.mark.parametrize("name", FAULTS)
def test_explain_a_fault(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    fault, text = FAULTS[name], said(["explain", name], capsys)
    assert text.startswith(f"{name} [{fault.code}] one sees: {fault.symptom} cause: {fault.cause} seen in: ")
    assert f"seen in: {', '.join(fault.reports) or 'no public report that we know of'} shows: " in text
    data = as_json(["explain", name], capsys)
    where = data.pop("where")
    assert data == {"name": name, "code": fault.code, "symptom": fault.symptom, "cause": fault.cause,
                    "reports": list(fault.reports)}  # fmt: skip
    for state in ("shows", "equivalent", "not shown"):
        assert (f" {state}: " in text) == any(one["state"] == state for one in where)
    assert any(one["state"] == "shows" for one in where), "a fault that shows nowhere is no fault"


def test_explain_says_where_a_fault_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["explain", "cast.negative_zero_lost"], capsys)
    fnuz = "float8_e4m3fnuz, float8_e5m2fnuz, float8_e4m3b11fnuz"
    assert f"equivalent: bfloat16, float16 to {fnuz} (no input at all shows it)" in text
    assert f"not shown: float64, float32 to {fnuz} (no input of the suite shows it)" in text
    counted = {one["claim"]: one for one in as_json(["explain", "cast.negative_zero_lost"], capsys)["where"]}
    # -0 to -2^-10, the half of the smallest code: the bfloat16 patterns 0x8000 to 0xBA80
    assert counted["cast/ocp_saturate/bfloat16/float8_e4m3fn"] == {
        "claim": "cast/ocp_saturate/bfloat16/float8_e4m3fn", "state": "shows", "changed": 0x3A81, "inputs": 65536,
        "case": "every_code",
    }  # fmt: skip


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda s: s.title)
def test_explain_a_symptom(symptom: Symptom, capsys: pytest.CaptureFixture[str]) -> None:
    """By its title it stands first, with its faults and what causes each."""
    text, data = said(["explain", symptom.title], capsys), as_json(["explain", symptom.title], capsys)
    assert text.startswith(f"{symptom.title} {symptom.why} candidates:")
    for name in symptom.faults:
        assert f"{name}: {FAULTS[name].cause}" in text
    assert f"next: {symptom.look}" in text
    assert data[0]["title"] == symptom.title
    assert data[0]["faults"] == list(symptom.faults)


def test_how_many_codes_are_halved() -> None:
    """The numbers in the text about FNUZ, counted by ml_dtypes."""
    (why,) = (s.why for s in SYMPTOMS if "fnuz.read_as_ocp" in s.faults and s.title.startswith("values are half"))
    told = re.search(r"of the 256 codes of e4m3, (\d+) .* off by exactly two \((\d+) of e5m2\), 0 stays", why)
    assert told is not None
    codes = np.arange(256, dtype=np.uint8)
    for name, count in (("float8_e4m3fn", told[1]), ("float8_e5m2", told[2])):
        fnuz = name.removesuffix("fn") + "fnuz"
        ocp, other = (codes.view(getattr(ml_dtypes, n)).astype(np.float64) for n in (name, fnuz))
        assert np.count_nonzero((ocp == 2 * other) & (ocp != 0)) == int(count)
        assert ocp[0] == other[0] == 0


@pytest.mark.parametrize("asked", ["!!!!", "!!!", "!", "!!!!!!!!!!!!", "  !!!! "])
def test_explain_exclamation_marks(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["explain", asked], capsys)
    assert [s["title"] for s in data] == ["the service answers '!!!!' or nothing at all"]
    assert "cast.overflow_to_nan" in data[0]["faults"]


@pytest.mark.parametrize(
    ("asked", "title"),
    [
        ("nan", "the service answers '!!!!' or nothing at all"),
        ("it says hello!!! and stops", "the service answers '!!!!' or nothing at all"),
        ("our model answers !!!! since the upgrade", "the service answers '!!!!' or nothing at all"),
        ("perplexity is slightly worse", "accuracy drops a little and nothing is obviously wrong"),
        ("everything is off by a factor 2", "values are half or twice what they should be"),
        ("GIBBERISH", "fluent text that is nonsense"),
        ("outliers are clipped", "the largest values are cut off"),
        ("NaN swallowed", "a NaN that went in never came out"),
        ("small values vanish", "small values are gone"),
        ("negative numbers become positive", "negative numbers become positive"),
    ],
)
def test_explain_in_the_user_s_own_words(asked: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(["explain", asked], capsys)[0]["title"] == title


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("float8_e4m3fnu", "did you mean float8_e4m3fnuz or float8_e4m3fn"),
        ("ocp_saturated", "did you mean ocp_saturate"),
        ("vllm.fp8_per_token_dynamik", "did you mean vllm.fp8_per_token_dynamic"),
        ("cast.tie_away", "did you mean cast.ties_away"),
        ("cast.overflow_saturate", "did you mean cast.overflow_saturates"),  # no symptom, though it holds "saturate"
        ("scale.448_for_fnu", "did you mean scale.448_for_fnuz"),
        ("qqq", "known: ada.hmma, ada.hmma_f16, ada.hmma_tf32, "),
        (
            "finance on behalf of a gulp",
            "known: ada.hmma, ada.hmma_f16, ada.hmma_tf32, ",
        ),  # "nan", "half" and "ulp" are in it, but no words
        ("", "known: ada.hmma, ada.hmma_f16, ada.hmma_tf32, "),
    ],
)
def test_explain_what_is_not_known(asked: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(["explain", asked], capsys)
    kinds = "format, policy, recipe, conversion, product, operation, unit, accumulator, fault, target or symptom"
    assert f"unknown {kinds} {asked!r}; " in text
    assert near in text


def test_no_name_means_two_things() -> None:
    """``explain`` and the claims look names up in one table after the other: a second meaning would never be found."""
    aliases = {alias.lower() for alias, _ in ALIASES}
    names = [*POLICIES, *RECIPES, *FAULTS]
    assert len(names) == len(set(names))
    assert aliases & set(names) == set()


def test_symptoms_and_faults_lead_to_each_other() -> None:
    for symptom in SYMPTOMS:
        assert set(symptom.faults) <= FAULTS.keys(), symptom.title
        assert len(symptom.faults) == len(set(symptom.faults)), symptom.title
    reached = {name for symptom in SYMPTOMS for name in symptom.faults}
    assert FAULTS.keys() - reached == set(), "faults that no symptom leads to"


@pytest.mark.parametrize(
    ("symptom", "word"),
    [(s, w) for s in SYMPTOMS for w in s.words],
    ids=lambda value: value if isinstance(value, str) else value.title,
)
def test_every_word_finds_its_symptom(symptom: Symptom, word: str) -> None:
    assert word == word.lower()
    assert symptom in matching(word)
    assert symptom in matching(f"I see {word.upper()} here") or not any(map(str.isalnum, word))
