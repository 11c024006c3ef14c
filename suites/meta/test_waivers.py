"""Waivers: strict in form, exact in what they cover, and an error once what they excuse is mended."""

from __future__ import annotations

import datetime
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import pytest

from narrowgauge.ci.ledger import Row
from narrowgauge.ci.waivers import OWN, Waiver, load
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Result
from narrowgauge.kernels_under_test import MODULES
from narrowgauge.suites.judging import Judged, waived

pytestmark = pytest.mark.meta

#: the lines of a waiver that is as it must be
RIGHT = {
    "kernel": '"theirs"',
    "target": '"gfx942"',
    "test": '"*"',
    "versions": '{ triton = ">=3.0,<3.10" }',
    "link": '"https://github.com/triton-lang/triton/issues/1"',
    "reason": '"ties go away from zero"',
    "expires": "2027-06-30",
}
WAIVER = Waiver(
    kernel="theirs",
    target="gfx942",
    test="*",
    versions={"triton": ">=3.0,<3.10"},
    link="https://github.com/triton-lang/triton/issues/1",
    reason="ties go away from zero",
    expires=datetime.date(2027, 6, 30),
)
TEST = "suites/casts/test_casts.py::test_it[float32-float8_e4m3fn-edges-theirs-gfx942]"
VERSIONS = {"triton": "3.9.0", "torch": "2.13.0"}


def table(**changed: str | None) -> str:
    """A [[waiver]] with lines replaced, added, or left out (None)."""
    lines = {name: value for name, value in (RIGHT | changed).items() if value is not None}
    return "\n".join(["[[waiver]]", *(f"{name} = {value}" for name, value in lines.items())]) + "\n"


def loaded(folder: Path, text: str | bytes) -> list[Waiver]:
    path = folder / "waivers.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load([path])


# --- form ------------------------------------------------------------------------------------------------------------


def test_a_right_waiver_is_read_as_it_stands(tmp_path: Path) -> None:
    assert loaded(tmp_path, table()) == [WAIVER]
    assert RIGHT.keys() == {f.name for f in fields(Waiver)}


def test_several_files_and_several_waivers(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(table() + table(kernel='"ours"', link='"docs/known.md"'))
    two.write_text("# nothing is known to fail here\n")
    assert [w.kernel for w in load([one, two, one])] == ["theirs", "ours", "theirs", "ours"]
    assert load([]) == []


def test_lists_of_targets_and_tests_are_a_waiver_for_each_pair(tmp_path: Path) -> None:
    text = table(target='["gfx942", "gfx90a"]', test='["*-edges-*", "*-property-*"]') + table(kernel='"ours"')
    found = loaded(tmp_path, text)
    assert [(w.kernel, w.target, w.test) for w in found] == [
        ("theirs", "gfx942", "*-edges-*"), ("theirs", "gfx942", "*-property-*"),
        ("theirs", "gfx90a", "*-edges-*"), ("theirs", "gfx90a", "*-property-*"), ("ours", "gfx942", "*"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_missing_field(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"waivers.toml, waiver 2: {name} missing"):
        loaded(tmp_path, table() + table(**{name: None}))


def test_every_missing_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="waiver 1: expires, link missing"):
        loaded(tmp_path, table(link=None, expires=None))


def test_an_unknown_field(tmp_path: Path) -> None:
    """A typing error would otherwise widen a waiver."""
    with pytest.raises(BadInput, match="waiver 1: unknown field device; fields are expires, kernel, link, reason"):
        loaded(tmp_path, table(device='"cuda:0"'))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *((name, '""', f"{name} = ''; expected a text") for name in ("kernel", "target", "test", "link", "reason")),
        ("kernel", "3", "kernel = 3; expected a text"),
        ("target", '["gfx942", 950]', "target = 950; expected a text"),
        ("target", "[]", "target = []; expected a text"),
        ("test", "true", "test = True; expected a text"),
        ("test", '["*", ""]', "test = ''; expected a text"),
        ("kernel", '["theirs", "ours"]', "kernel = ['theirs', 'ours']; expected a text"),
        ("link", '"http://example.org/1"', "expected an https address or a page in docs/"),
        ("link", '"triton#8322"', "expected an https address or a page in docs/"),
        ("link", '"see https://example.org"', "expected an https address or a page in docs/"),
        ("expires", '"2027-06-30"', "expires = '2027-06-30'; expected a date such as 2027-06-30"),
        ("expires", "2027", "expected a date such as"),
        ("expires", "2027-06-30T12:00:00", "expected a date such as"),
        ("expires", "2027-06-30T12:00:00Z", "expected a date such as"),
        ("versions", '">=3.0"', "versions = '>=3.0'; expected a table such as { triton = '<3.10' }"),
        ("versions", "{}", "versions = {}; expected a table such as"),
        ("versions", '["triton<3.10"]', "expected a table such as"),
        ("versions", '{ triton = "3.9" }', "versions.triton = '3.9'; expected a range such as '>=3.0,<3.10'"),
        ("versions", '{ triton = "<3.10", torch = "new" }', "versions.torch = 'new'; expected a range"),
        ("versions", '{ triton = "" }', "versions.triton = ''; expected a range"),
        ("versions", '{ triton = " " }', "versions.triton = ' '; expected a range"),
        ("versions", "{ triton = 3 }", "versions.triton = 3; expected a range"),
        ("versions", "{ triton = true }", "versions.triton = True; expected a range"),
        ("versions", '{ triton = ["<3.10"] }', "versions.triton = ['<3.10']; expected a range"),
        ("versions", "{ triton = {} }", "versions.triton = {}; expected a range"),
    ],
)
def test_a_value_that_is_not_as_it_must_be(name: str, value: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        loaded(tmp_path, table(**{name: value}))
    assert str(raised.value).startswith(f"{tmp_path / 'waivers.toml'}, waiver 1: {name}")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[waiver]\n", "are not TOML"),
        (table(expires="2027-06-31"), "are not TOML"),
        (table() + 'kernel = "twice"\n', "are not TOML"),
        (b"\xff\xfe\x00", "are not TOML"),
        ("[[waivers]]\n", r"unknown table \['waivers'\]; expected \[\[waiver\]\]"),
        (table() + "[other]\nx = 1\n", r"unknown table \['other'\]"),
        (table().replace("[[waiver]]", "[waiver]"), r"'waiver' is no list of tables; expected \[\[waiver\]\]"),
        ("waiver = 3\n", "'waiver' is no list of tables"),
        ('waiver = ["*"]\n', "'waiver' is no list of tables"),
    ],
)
def test_a_file_that_is_no_list_of_waivers(text: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words) as raised:
        loaded(tmp_path, text)
    assert str(raised.value).startswith(f"waivers {tmp_path / 'waivers.toml'}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadInput, match=f"cannot read waivers {path}: {why}"):
            load([path])


# --- what is covered -------------------------------------------------------------------------------------------------


def covers(waiver: Waiver, **changed: str) -> bool:
    about = {"test": TEST, "kernel": "theirs", "target": "gfx942"} | changed
    return waiver.covers(**about, versions=VERSIONS)


def test_kernel_and_target_are_names_and_no_patterns() -> None:
    assert covers(WAIVER)
    for other in ("their", "theirs2", "Theirs", "*", ""):
        assert not covers(WAIVER, kernel=other)
    for other in ("gfx950", "emulated-gfx942", "gfx94", ""):
        assert not covers(WAIVER, target=other)
    assert not covers(replace(WAIVER, kernel="*"))
    assert not covers(replace(WAIVER, target="gfx9*"))


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("*", True),
        (TEST, True),  # brackets stand for themselves: an id copied from a report is a pattern of that test
        ("*[float32-float8_e4m3fn-edges-*", True),
        ("*[float32-*]", True),
        ("suites/casts/*", True),
        ("*-edges-*", True),
        ("*-edges-????rs-*", True),
        ("*[float16-*]", False),
        ("*-stratified-*", False),
        ("*-Edges-*", False),
        ("edges", False),
        ("suites/casts/", False),
        (TEST[:-1], False),
        (TEST.replace("[float32", "f"), False),  # what the bracket would mean, read as a set of characters
    ],
)
def test_the_pattern_of_tests(pattern: str, covered: bool) -> None:
    assert covers(replace(WAIVER, test=pattern)) == covered
    assert covers(replace(WAIVER, test=pattern), test=TEST.upper()) == (pattern == "*"), "case matters"


@pytest.mark.parametrize(
    ("version", "specifier", "covered"),
    [
        ("3.9.0", ">=3.0,<3.10", True),
        ("3.10.0", ">=3.0,<3.10", False),  # 3.10 is later than 3.9
        ("3.10", ">=3.0,<3.10", False),
        ("2.9.1", ">=3.0,<3.10", False),
        ("3.0.0", ">=3.0,<3.10", True),
        # A build for some machine is the version itself,
        ("3.9.0+cpu", ">=3.0,<3.10", True),
        ("3.9.0+cpu", "==3.9.0", True),
        ("3.9.0+git1b2c3d", "<=3.9.0", True),
        ("3.10.0+rocm7.2", "<3.10", False),
        # and one before a release is that release: what is mended there is mended before it comes out.
        ("3.9.0a1", "<3.10", True),
        ("3.9.0a1", ">=3.9", True),
        ("3.10.0a1", "<3.10", False),
        ("3.10.0rc2", ">=3.10", True),
        ("3.10.0.dev20260101+cu128", "<3.10", False),
        ("3.9.0.post1", "==3.9.0", True),
        ("3.9.0", "!=3.9.0", False),
        ("3.9.1", "~=3.9.0", True),
        ("3.9.1", "==3.9.*", True),
        ("", ">=0", False),
        ("unknown", ">=0", False),
    ],
)
def test_the_range_of_versions(version: str, specifier: str, covered: bool) -> None:
    waiver = replace(WAIVER, versions={"triton": specifier})
    assert waiver.covers(TEST, "theirs", "gfx942", {"triton": version}) == covered


def test_every_version_must_be_in_its_range() -> None:
    waiver = replace(WAIVER, versions={"triton": "<3.10", "torch": "<2.13"})
    assert waiver.covers(TEST, "theirs", "gfx942", {"triton": "3.9.0", "torch": "2.12.1"})
    assert not waiver.covers(TEST, "theirs", "gfx942", {"triton": "3.9.0", "torch": "2.13.0"})
    assert not waiver.covers(TEST, "theirs", "gfx942", {"triton": "3.9.0"})
    assert not waiver.covers(TEST, "theirs", "gfx942", {})


def test_a_waiver_holds_through_the_day_on_which_it_expires() -> None:
    day = datetime.timedelta(days=1)
    assert not WAIVER.expired(WAIVER.expires - day)
    assert not WAIVER.expired(WAIVER.expires)
    assert WAIVER.expired(WAIVER.expires + day)


# --- what it does ----------------------------------------------------------------------------------------------------


def judged(result: Result) -> Judged:
    row = Row(
        id=TEST, operation="cast", rule="ocp_saturate", source="float32", format="float8_e4m3fn", case="edges",
        kernel="theirs", owner="they", own=False, target="gfx942", device="cuda:0", how="executed", backend="triton",
        result=result, reason="as it was", differences={"value": 126}, faults=("cast.ties_away",),
    )  # fmt: skip
    return Judged(row, "[TIES] as it was")


def test_a_covered_failure_is_waived_with_link_and_reason() -> None:
    found = waived(judged("failed"), [WAIVER], VERSIONS)
    row = found.row
    assert (row.result, row.waiver, row.reason) == ("waived", WAIVER.link, WAIVER.reason)
    assert replace(row, result="failed", waiver="", reason="as it was") == judged("failed").row, "nothing else changes"
    assert found.message == "[TIES] as it was"


def test_a_covered_success_is_an_error() -> None:
    found = waived(judged("passed"), [WAIVER], VERSIONS)
    assert found.row.result == "failed"
    assert found.message.startswith("[STALE-WAIVER] the waiver for theirs on gfx942 (https://github.com/")
    assert found.message.endswith(found.row.reason)
    assert "this case passes now" in found.row.reason
    assert found.row.waiver == ""


@pytest.mark.parametrize("result", ["passed", "failed"])
def test_what_is_not_covered_stays_as_it_is(result: Result) -> None:
    others = [replace(WAIVER, kernel="other"), replace(WAIVER, versions={"triton": "<3.9"}), replace(WAIVER, test="x")]
    assert waived(judged(result), others, VERSIONS) == judged(result)
    assert waived(judged(result), [], VERSIONS) == judged(result)


def test_the_first_waiver_that_covers_decides() -> None:
    second = replace(WAIVER, link="docs/second.md")
    found = waived(judged("failed"), [replace(WAIVER, target="sm_90"), WAIVER, second], VERSIONS)
    assert found.row.waiver == WAIVER.link


# --- ours ------------------------------------------------------------------------------------------------------------


def test_our_own_waivers_load() -> None:
    waivers = load([OWN])
    assert len(waivers) >= len(tomllib.loads(OWN.read_text())["waiver"]) >= 1
    assert {f.name for f in fields(Waiver)} <= set(OWN.read_text().replace(",", " ").replace("(", " ").split())


def test_our_own_waivers_are_about_kernels_that_exist() -> None:
    """One for a kernel that was renamed would excuse nothing, and never be found stale."""
    folder = OWN.parent.parent / "kernels_under_test"
    source = "\n".join((folder / f"{module.rsplit('.', 1)[1]}.py").read_text() for module in MODULES)
    for waiver in load([OWN]):
        assert f"def {waiver.kernel}(" in source
