"""Texts as a user reads them: nothing of theirs is markup, and no screen is too narrow for a name or a value."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from narrowgauge import command
from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.command import devices
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.contracts.verdict import Explanation, Mismatch, Verdict
from narrowgauge.devices.device import Device
from narrowgauge.devices.discovery import all_devices
from narrowgauge.devices.targets import TARGETS
from narrowgauge.plugin.allure_results import severity
from narrowgauge.plugin.screen import LONGEST, brief
from narrowgauge.plugin.tables import summary
from narrowgauge.reference.faults.registry import FAULTS, fault_named
from narrowgauge.reference.message import code_of, failure_message
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES

pytestmark = pytest.mark.meta

MARKUP = "expected [/bold] tl.load(x[i], mask) :warning:"
WIDTHS = (80, 120, 160, 200)
LONG = "a_kernel_whose_name_says_everything_about_it[bold]_and_more_than_fits"


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "COLUMNS", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def row(**values: Any) -> Row:
    """A row of a ledger, with an id of its own."""
    plain = Row(
        id="", operation="cast", rule="vllm.fp8_per_token_dynamic", source="float32", format="float8_e4m3fnuz",
        case="edges", kernel="k", owner="o", own=False, target="host", device="host", how="executed",
        backend="torch", result="passed",
    )  # fmt: skip
    made = replace(plain, **values)
    return replace(made, id=f"t[{made.source}-{made.format}-{made.case}-{made.kernel}-{made.target}]")


def ledger(*rows: Row, missing: dict[str, str] | None = None) -> Ledger:
    return Ledger([r.id for r in rows], list(rows), {}, {}, "", missing=missing or {})


def at(width: int, made: Ledger, monkeypatch: pytest.MonkeyPatch) -> str:
    """The tables on a screen of that width."""
    monkeypatch.setenv("COLUMNS", str(width))
    return summary(made, width, colour=False)


def words(text: str) -> str:
    return " ".join(text.split())


# --- what a user gave is printed as it is ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("colour", [False, True])
def test_no_text_of_a_user_is_markup(width: int, colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    portrait = dict.fromkeys(("tie 464", "1000", "inf", "-inf", "nan", "-0"), "[red]1")
    made = ledger(
        row(kernel="[bold]k", result="failed", reason=MARKUP, portrait=portrait, format="float8_e4m3fn"),
        row(kernel="k2", result="not_executed", reason=MARKUP, target="[/]"),
        missing={"my[/mod]": MARKUP},
    )
    made.plan.append("t[/red][x]")
    text = words(re.sub(r"\x1b\[[\d;]*m", "", summary(made, width, colour)))
    assert f" {MARKUP}" in text
    assert "[bold]k " in text
    assert "[red]1" in text
    assert "not executed: 1 on [/]: expected [/bold] tl.load(x[i], mask)" in text
    assert f"not executed: all of my[/mod]: {MARKUP}" in text
    assert "planned and never run: 1, first t[/red][x]" in text


def test_no_name_of_a_device_is_markup(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    device = Device("cuda:0", "sm_90", "executed", {}, note=MARKUP)
    monkeypatch.setattr(devices, "all_devices", lambda: [device])
    assert command.main(["devices"]) == 0
    assert MARKUP in capsys.readouterr().out


# --- widths ----------------------------------------------------------------------------------------------------------


def a_run(kernel: str, targets: int) -> Ledger:
    rows = [
        row(kernel=kernel, target=f"gfx94{n}", result="failed", faults=("cast.double_rounding_bfloat16",),
            differences={"value": 3}, explained=3,
            explanations=(Explanation(("cast.double_rounding_bfloat16",), 3, 0),),
            portrait={"tie 248": "-0.0009765625", "1000": "-0.0009765625", "inf": "nan", "-inf": "nan", "nan": "nan"})
        for n in range(targets)
    ]  # fmt: skip
    return ledger(*rows, row(kernel="other", target="host"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("targets", [1, 4, 12])
@pytest.mark.parametrize("kernel", ["half_away", "triton_native_sglang_per_token", LONG])
def test_no_name_is_cut_or_broken(width: int, targets: int, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = at(width, a_run(kernel, targets), monkeypatch)
    lines = text.splitlines()
    assert "…" not in text
    assert [line for line in lines if len(line) > width] == []
    assert sum(line.startswith(kernel) for line in lines) >= 2
    assert text.count("cast.double_rounding_bfloat16") == 1
    for n in range(targets):
        assert f"gfx94{n}" in text
    assert text.count("1 failed") == targets
    assert text.count("248 -> -0.0009765625") == targets


def test_columns_give_way_to_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ledger(row(kernel="triton_native_sglang_per_token", result="failed", reason="because of this"))
    wide, middle, narrow = (at(width, made, monkeypatch).splitlines() for width in (160, 120, 80))
    assert wide[1].split() == ["kernel", "claims", "format", "host", "why"]
    assert middle[1].split() == ["kernel", "format", "host", "why"]
    assert narrow[1].split() == ["kernel", "format", "host"]
    assert wide[2].endswith("1 failed  because of this")
    assert middle[2].endswith("1 failed  because of this")
    assert narrow[2].endswith("1 failed")
    assert narrow[3] == "    because of this"


def test_a_file_gets_as_many_columns_as_the_tables_take(monkeypatch: pytest.MonkeyPatch) -> None:
    made = a_run("triton_native_sglang_per_token", 2)
    piped = summary(made, 80, colour=False)
    assert piped == at(160, made, monkeypatch)
    assert "claims" in piped


def test_units_have_columns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs of recordings would make every kernel's line too wide."""
    made = ledger(row(target="host"), row(operation="unit", kernel="volta.hmma", target="sm_70"))
    lines = at(160, made, monkeypatch).splitlines()
    place = lines.index("matrix units")
    assert "sm_70" not in " ".join(lines[:place])
    assert lines[place + 1].split()[-1] == "sm_70"
    alone = at(160, ledger(row(operation="unit", target="sm_70")), monkeypatch)
    assert "what was judged" not in alone


def test_a_reason_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an exception can be megabytes."""
    huge = "first line " + "x" * 10**6 + "\nsecond line"
    made = ledger(
        row(result="failed", reason=huge),
        row(kernel="k2", result="not_executed", reason=huge),
        missing={"m": huge},
    )
    for width in WIDTHS:
        text = at(width, made, monkeypatch)
        assert len(text) < 2000
        assert "second" not in text
    assert len(brief(huge)) == LONGEST == 120
    assert brief("one\ntwo") == "one"
    assert brief("\n one\r\ntwo") == "one"
    assert brief("") == ""
    assert brief("x" * 120) == "x" * 120


def test_a_set_of_faults_is_named_by_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(sorted(name for name in FAULTS if name.startswith("cast.")))
    made = ledger(row(result="failed", faults=names, differences={"value": 1}))
    text = words(at(80, made, monkeypatch))
    assert f"{' or '.join(names[:4])} or {len(names) - 4} more" in text


def test_less_than_half_is_no_answer_in_the_table_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(explained: int) -> str:
        best = Explanation(("cast.truncates",), explained, 10 - explained)
        values = {"faults": best.faults, "explanations": (best,), "explained": explained, "left": best.left}
        return at(160, ledger(row(result="failed", differences={"value": 10}, **values)), monkeypatch)

    assert "cast.truncates (in part)" in one(5)
    assert "unexplained: 10 value" in one(4)


@pytest.mark.parametrize("width", WIDTHS)
def test_devices_on_every_screen(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert command.main(["devices"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert [line for line in text.splitlines() if len(line) > width] == []
    for device in all_devices():
        assert re.search(rf"^[* ] {re.escape(device.id)}\s+{re.escape(device.target)}\s+{device.how}\b", text, re.M)
        assert words(device.note)[:20] in words(text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [*FORMATS, *POLICIES, *RECIPES, *FAULTS, *TARGETS, "!!!!", "TIES", "MI300"])
def test_explain_on_every_screen(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert command.main(["explain", name]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert [line for line in text.splitlines() if len(line) > width] == []
    if name in FORMATS and FORMATS[name].bits <= 8:
        table = text.split("value of each code")[1]
        cells = [cell for line in table.splitlines()[2:] for cell in line.split()[1:]]
        assert len(cells) == FORMATS[name].code_count
        assert all(re.fullmatch(r"-?[\d.]+(e[+-]\d+)?|-?inf|nan", cell) for cell in cells)


# --- what explain knows ----------------------------------------------------------------------------------------------


def explained(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert command.main(["explain", name]) == 0
    return words(capsys.readouterr().out)


@pytest.mark.parametrize("code", sorted({fault.code for fault in FAULTS.values()}))
def test_explain_the_word_in_brackets(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (code, f"[{code}]"):
        text = explained(asked, capsys)
        shown = set(re.findall(rf"(\S+) \[{re.escape(code)}\]", text))
        assert shown == {fault.name for fault in FAULTS.values() if fault.code == code}


def test_explain_a_code_in_small_letters_unless_it_is_what_one_sees(capsys: pytest.CaptureFixture[str]) -> None:
    assert explained("ties", capsys).startswith("cast.ties_away [TIES]")
    assert explained("nan", capsys).startswith("the service answers '!!!!'")


@pytest.mark.parametrize(
    ("asked", "target"),
    [
        ("gfx942", "gfx942"),
        ("GFX942", "gfx942"),
        ("sm_90", "sm_90"),
        ("emulated:gfx950", "gfx950"),
        ("emulated-gfx950", "gfx950"),
        ("MI300", "gfx942"),
        ("mi325x", "gfx942"),
        ("H200", "sm_90"),
        ("RTX 5090", "sm_120"),
        ("5090", "sm_120"),
    ],
)
def test_explain_a_target(asked: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = explained(asked, capsys)
    known = TARGETS[target]
    assert (
        f"{target}: a target product: {known.product} backend: {known.backend}, {known.warp} lanes to a warp "
        f"fp8 in hardware: {', '.join(known.hardware)} fp8 in Triton: {', '.join(known.triton)} "
        f"of these in software: {', '.join(known.software) or 'none'} device: " in text
    )


def test_explain_a_recipe_in_steps(capsys: pytest.CaptureFixture[str]) -> None:
    text = explained("vllm.fp8_per_token_dynamic", capsys)
    for part in (
        "minimum: bound, times 512, 1 over it",
        "scale: amax, over bound, at least minimum (NaN: minimum)",
        "element: x, over scale, held to ±bound (NaN: +bound)",
        "float8_e4m3fnuz: bound 224, cast fnuz_saturate",
        "source: vLLM",
    ):
        assert part in text


# --- near names ------------------------------------------------------------------------------------------------------


def test_near_names_are_different_names() -> None:
    with pytest.raises(BadInput, match=r"did you mean float16 or bfloat16.*\?") as caught:
        format_named("floatt16")
    near = str(caught.value).split("did you mean ")[1].rstrip("?").split(" or ")
    assert len(near) == len(set(near))
    assert set(near) <= FORMATS.keys()


def test_an_alias_leads_to_its_name() -> None:
    text = str(unknown("thing", "half_", ["float16"], aliases={"half": "float16", "halff": "float16"}))
    assert text == "unknown thing 'half_'; did you mean float16?"


# --- messages --------------------------------------------------------------------------------------------------------


def verdict(explained: int, left: int, result: Any = "failed") -> Verdict:
    best = Explanation(("cast.truncates",), explained, left)
    return Verdict(result, "a claim", "a document", 100, {"value": 10}, (best,), breaks="a specification")


def test_less_than_half_is_unexplained() -> None:
    found = verdict(4, 6)
    assert failure_message(found, "a kernel").startswith(
        "[UNEXPLAINED] a kernel: wrong, and no known fault accounts for it; nearest: cast.truncates explains 4 of 10\n"
    )
    assert code_of(found) == "UNEXPLAINED"
    assert failure_message(verdict(5, 5), "a kernel").startswith("[ROUND] a kernel: cast.truncates explains 5 of 10")
    assert code_of(verdict(10, 0)) == "ROUND"


def test_no_cause_is_spelled_out_for_a_fault_that_accounts_for_little() -> None:
    cause = fault_named("cast.truncates").cause
    assert cause in failure_message(verdict(5, 5), "a kernel")
    text = failure_message(verdict(4, 6), "a kernel")
    assert cause not in text
    assert "\n  near: cast.truncates explains 4 of 10\n" in text


def test_a_wide_table_has_its_inputs_on_lines_of_their_own() -> None:
    """A report's page breaks long lines: got and want would stand under the input, or anywhere."""

    def table(text: str) -> list[str]:
        shown = Mismatch("codes", (0, 10), "value", text, "1 (0x1)", "2 (0x2)")
        found = Verdict("failed", "claim", "x", 9, {"value": 2}, mismatches=(shown, replace(shown, index=(3,))))
        return failure_message(found, "subject").partition("differing: ")[2].splitlines()[1:5]

    assert table("short")[1] == "  codes[0, 10]  value  short  1 (0x1)  2 (0x2)"
    long = "row 0 of a, column 0: " + "9" * 60
    assert table(long) == [
        "  output        kind   got      want",
        "  codes[0, 10]  value  1 (0x1)  2 (0x2)",
        f"    {long}",
        "  codes[3]      value  1 (0x1)  2 (0x2)",
    ]


def test_a_dispute_blames_nobody() -> None:
    text = failure_message(verdict(10, 0, "disputed"), "a kernel")
    assert "breaks:" not in text
    assert (
        "\ndisputed: the expectation rests on a document, not on hardware or a measurement; nobody is blamed\n" in text
    )
    assert "\nbreaks: a specification\n" in failure_message(verdict(10, 0), "a kernel")


@pytest.mark.parametrize("result", ["passed", "failed", "disputed", "not_executed"])
def test_severity_is_what_is_at_stake(result: Any) -> None:
    assert severity(row(result=result)) == "critical"
    assert severity(row(result="waived", waiver="https://example.org/1")) == "minor"
