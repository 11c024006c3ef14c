"""``narrowgauge compare``: what it reads, exit codes, the page, Markdown, JSON."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import records
from narrowgauge.ci.comparison.sides import planned_in, read_sides
from narrowgauge.command import main
from narrowgauge.suites.meta.compare_sets import E4M3, failed, ledger, results, row, unexecuted

pytestmark = pytest.mark.meta

Capture = pytest.CaptureFixture[str]
#: a name that would be read as HTML, Markdown, rich's markup or a terminal's control sequence
HOSTILE = "<script>alert(1)</script>|`*[red]\x1b[31m"


def compared(capsys: Capture, *arguments: object) -> tuple[int, dict[str, Any]]:
    code = main(["compare", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


# --- what is read ----------------------------------------------------------------------------------------------------


def test_shards_of_one_night_are_one_side(tmp_path: Path) -> None:
    shards = [[row("sm_90")], [row("sm_90", case="stratified")]]
    one = results(tmp_path / "1", shards[0], shards=shards)
    two = results(tmp_path / "2", shards[1], shards=shards, shard=2, started="2026-11-30T04:00:00+00:00")
    (side,) = read_sides([one, two])
    assert sorted(r.case for r in side.rows.values()) == ["edges", "stratified"]
    assert side.name == "cuda/sm_90 2026-11-30"
    assert side.paths == [one, two]


@pytest.mark.parametrize(
    "change",
    [
        {"shard": 1},
        {"started": "2026-12-01T02:00:00+00:00"},
        {"golden": "1" * 64},
        {"lane": "other"},
        {"started": "?"},
        {"plan": "1" * 64},
    ],
)
def test_what_is_no_shard_of_one_night_is_another_side(tmp_path: Path, change: dict[str, Any]) -> None:
    """The same shard again; the next night; other vectors; another lane; a time that cannot be read; another plan."""
    shards = [[row("sm_90")], [row("sm_90", case="stratified")]]
    one = results(tmp_path / "1", shards[0], shards=shards)
    two = results(tmp_path / "2", shards[1], shards=shards, **{"shard": 2, **change})
    sides = read_sides([one, two])
    assert len(sides) == 2
    assert len({side.name for side in sides}) == 2


@pytest.mark.parametrize("came_so_far", ["half", "a plan", "nothing"])
@pytest.mark.parametrize("first", [True, False])
def test_a_shard_whose_machine_was_lost_is_of_its_night(came_so_far: str, first: bool, tmp_path: Path) -> None:
    """Its run.json names no plan, as it never came to an end; it is no other night."""
    shards = [[row("sm_90")], [row("sm_90", case="stratified"), row("sm_90", case="ties")]]
    one = results(tmp_path / "1", shards[0], shards=shards)
    rows = shards[1][:1] if came_so_far == "half" else []
    state = "infra" if came_so_far == "nothing" else "started"
    two = results(tmp_path / "2", rows, shards=shards, shard=2, plan="", state=state)
    if came_so_far == "nothing":
        (two / "plan.json").unlink()
        (two / "journal.jsonl").unlink()
    (side,) = read_sides([two, one] if first else [one, two])
    assert (side.shards, len(side.planned), side.lost) == ({1, 2}, 3, "")
    assert {r.case for r in side.rows.values()} == {"edges", *(r.case for r in rows)}
    assert side.why_unrun(shards[1][1].id) == "planned and never run: the process ended before"


def test_the_journal_is_believed_before_the_ledger(tmp_path: Path) -> None:
    """It is what the gate believes."""
    path = results(tmp_path / "1", [row("sm_90")])
    ledger(path / "ledger.json", [row("sm_90", "of the ledger"), row("sm_90", case="ties")])
    (side,) = read_sides([path])
    assert {r.case: r.digest for r in side.rows.values()} == {"edges": "d1", "ties": "d1"}


def test_a_directory_of_results_stands_for_all_in_it(tmp_path: Path, capsys: Capture) -> None:
    """As for the gate and the report."""
    for target in ("sm_90", "gfx942"):
        results(tmp_path / "night" / target, [row(target)])
    code, found = compared(capsys, tmp_path / "night")
    assert code == 0
    assert [side["paths"] for side in found["sides"]] == [[str(tmp_path / "night" / t)] for t in ("gfx942", "sm_90")]


def test_a_lost_shard_is_not_executed_and_named(tmp_path: Path, capsys: Capture) -> None:
    shards = [[row("sm_90")], [row("sm_90", case="stratified")]]
    one = results(tmp_path / "1", shards[0], shards=shards)
    other = ledger(tmp_path / "a.json", [row("gfx942"), row("gfx942", case="stratified")])
    code, found = compared(capsys, one, other)
    assert code == 0
    (missing,) = [f for f in found["findings"] if f["kind"] == "unexecuted"]
    assert missing["cases"] == ["float32 stratified"]
    assert "shard 2/2" in missing["words"][missing["classes"].index(["sm_90"])]
    assert compared(capsys, one, other, "--require-executed")[0] == 6
    assert compared(capsys, one, other, "--require-executed", "--only", "agree")[0] == 6


def test_a_machine_that_judged_nothing_has_executed_nothing(tmp_path: Path, capsys: Capture) -> None:
    infra = results(tmp_path / "1", [], target="gfx942", state="infra", reason="no GPU is seen")
    code, found = compared(capsys, infra, ledger(tmp_path / "a.json", [row("sm_90")]))
    assert code == 5
    assert [c["label"] for c in found["columns"]] == ["gfx942", "sm_90"]
    assert any("no GPU is seen" in note for note in found["notes"])
    assert found["matrix"][0]["tallies"]["gfx942"]["unexecuted"] == 1


def test_a_cut_journal_is_a_note(tmp_path: Path, capsys: Capture) -> None:
    path = results(tmp_path / "1", [row("sm_90"), row("sm_90", case="stratified")])
    journal = path / records.JOURNAL
    journal.write_bytes(journal.read_bytes()[:-20])
    rows = [row("gfx942"), row("gfx942", case="stratified")]
    code, found = compared(capsys, path, ledger(tmp_path / "a.json", rows))
    assert (code, [f["kind"] for f in found["findings"]]) == (0, ["unexecuted", "agree"])
    assert any("middle of a line" in note for note in found["notes"])


def test_a_test_that_ended_without_a_verdict_is_not_executed_and_says_why(tmp_path: Path, capsys: Capture) -> None:
    rows = [row("sm_90", case=case) for case in ("a", "b", "c")]
    path = results(tmp_path / "1", rows, options=("-k", "k"))
    ends: list[dict[str, object]] = [{"event": "begin", "id": r.id, "worker": "main"} for r in rows]
    ends.append({"event": "end", "id": rows[0].id, "outcome": "error", "seconds": 1, "row": None, "message": "no GPU"})
    ends.append({"event": "end", "id": rows[1].id, "outcome": "passed", "seconds": 1, "row": rows[1].to_json()})
    (path / records.JOURNAL).write_text("".join(json.dumps(event) + "\n" for event in ends))
    other = [row("gfx942", case=case) for case in ("a", "b", "c")]
    _, found = compared(capsys, path, ledger(tmp_path / "a.json", other))
    said = {word for f in found["findings"] if f["kind"] == "unexecuted" for word in f["words"]} - {"executed"}
    assert said == {"error without a verdict: no GPU", "it began, and the process was lost before it ended"}
    assert found["notes"] == ["cuda/sm_90 2026-11-30 was narrowed: -k k", *found["notes"][1:]]


def test_a_plan_without_a_row_is_not_executed(tmp_path: Path, capsys: Capture) -> None:
    lost = row("emulated-sm_90")
    path = ledger(tmp_path / "ledger.json", [row("gfx942"), row("gfx942", case="stratified")], plan=[lost.id])
    code, found = compared(capsys, tmp_path)  # a directory with a ledger alone
    assert (code, path.name) == (5, "ledger.json")
    assert [(f["kind"], f["cases"]) for f in found["findings"]] == [("unexecuted", ["float32 edges"])]


def test_a_hidden_folder_is_named_by_where_it_stands(tmp_path: Path) -> None:
    """.narrowgauge is where every run leaves its ledger."""
    (side,) = read_sides([ledger(tmp_path / "mine" / ".narrowgauge" / "ledger.json", [row("sm_90")])])
    assert side.name == "mine"


def test_an_id_says_what_its_cell_is() -> None:
    head = "narrowgauge/suites/casts/test_casts.py::test_cell"
    found = planned_in(f"{head}[bfloat16-{E4M3}-a-case-kernel-emulated-sm_90]")
    assert found is not None
    assert (found.source, found.format, found.case, found.kernel) == ("bfloat16", E4M3, "a-case", "kernel")
    assert (found.target, found.operation) == ("emulated-sm_90", "casts")
    assert planned_in(f"{head}[something]") is None


BAD = {
    "missing": (None, "cannot read"),
    "empty": ("", "is not JSON"),
    "cut": ('{"schema": "narrowgauge.ledger/1", "ro', "is not JSON"),
    "a list": ("[]", "schema is 'list'"),
    "of another schema": ('{"schema": "narrowgauge.ledger/9"}', "narrowgauge.ledger/9"),
    "without rows": ('{"schema": "narrowgauge.ledger/1"}', "'rows'"),
    "with a wrong row": ('{"schema": "narrowgauge.ledger/1", "rows": [{"newer": 1}]}', "newer"),
    "with rows of no form": ('{"schema": "narrowgauge.ledger/1", "rows": [3]}', "not a ledger"),
    "too deep": ("[" * 200_000, "is not JSON"),
    "not a text": (b"\xff\xfe\x00", "is not JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_ledger_is_one_line(tmp_path: Path, capsys: Capture, name: str) -> None:
    content, said = BAD[name]
    path, page = tmp_path / "x.json", tmp_path / "x.html"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["compare", str(path), "--html", str(page)]) == 4
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error
    assert "Traceback" not in error
    assert not page.exists()


def test_wrong_arguments_are_said(tmp_path: Path, capsys: Capture) -> None:
    path = ledger(tmp_path / "a.json", [row("sm_90"), row("gfx942")])
    assert main(["compare", str(path), "--kernel", "kk"]) == 4
    assert "did you mean k?" in capsys.readouterr().err
    assert main(["compare", str(path), "--html", str(tmp_path / "x.txt")]) == 4
    with pytest.raises(SystemExit, match="4"):
        main(["compare", str(path), "--only", "differences"])


# --- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "options", "code"),
    [
        ([row("sm_90"), row("gfx942")], [], 0),
        ([row("sm_90"), row("gfx942", "d9")], [], 1),
        ([row("sm_90"), row("gfx942", "d9")], ["--only", "parts"], 1),
        ([row("sm_90"), row("gfx942", "d9")], ["--only", "codes", "--only", "verdicts"], 0),
        ([row("sm_90"), failed("gfx942")], ["--only", "verdicts"], 1),
        ([row("sm_90"), failed("gfx942")], ["--kernel", "k"], 1),
        ([row("sm_90")], [], 5),
        ([row("sm_90"), row("gfx942", kernel="other")], [], 5),
        ([row("sm_90", case="property"), row("gfx942", case="property")], [], 5),
        ([row("sm_90"), row("gfx942"), unexecuted("host")], [], 0),
        ([row("sm_90"), row("gfx942"), unexecuted("host")], ["--require-executed"], 6),
        ([row("sm_90"), failed("gfx942"), unexecuted("host")], ["--require-executed"], 1),
    ],
)
def test_exit_codes(tmp_path: Path, capsys: Capture, rows: list[Any], options: list[str], code: int) -> None:
    path = ledger(tmp_path / "a.json", rows)
    assert main(["compare", str(path), *options]) == code
    assert capsys.readouterr().err == ""
    assert compared(capsys, path, *options)[0] == code


# --- reports ---------------------------------------------------------------------------------------------------------


def test_the_screen_has_the_words(tmp_path: Path, capsys: Capture) -> None:
    rows = [row("sm_90"), row("emulated-sm_90", "d9"), failed("gfx942"), unexecuted("host", "no torch")]
    main(["compare", str(ledger(tmp_path / "a.json", rows))])
    text = capsys.readouterr().out
    for words in (
        "emulated against hardware of the same architecture", "sm_90  |  emulated-sm_90", "across targets",
        "gfx942: failed  |  sm_90: passed", "cast.infinity_to_nan", "host: no torch", "1 not executed",
        "1 of 1 part from gfx942",
    ):  # fmt: skip
        assert words in text


def test_findings_of_one_explanation_are_told_once_and_others_apart(tmp_path: Path, capsys: Capture) -> None:
    """Two kernels that fail by one fault are one finding, a third with another fault is another."""
    rows = [row("sm_90", kernel=kernel) for kernel in "abc"]
    rows += [
        failed("gfx942", kernel="a"),
        failed("gfx942", kernel="b"),
        failed("gfx942", kernel="c", faults=("cast.ties_away",)),
    ]
    main(["compare", str(ledger(tmp_path / "a.json", rows))])
    text = capsys.readouterr().out
    assert text.count("gfx942: failed  |  sm_90: passed  (2 cells)") == 1
    assert text.count("gfx942: failed  |  sm_90: passed  (1 cell)") == 1


class Page(HTMLParser):
    """Texts and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_fetches_nothing_and_escapes_strangers(tmp_path: Path, capsys: Capture) -> None:
    rows = [row("sm_90", kernel=HOSTILE), failed("gfx942", kernel=HOSTILE, reason=HOSTILE), unexecuted("host", HOSTILE)]
    html, markdown = tmp_path / "x.html", tmp_path / "x.md"
    path = ledger(tmp_path / "a.json", rows)
    assert main(["compare", str(path), "--html", str(html), "--markdown", str(markdown)]) == 1
    page = Page(html.read_text())
    assert page.tags.count("script") == 1
    assert page.links == ["#matrix"]
    assert "<script>alert(1)</script>|`*[red]\\x1b[31m" in page.text
    assert "\x1b" not in html.read_text() + markdown.read_text() + capsys.readouterr().out
    assert "gfx942: failed" in page.text
    assert "default-src 'none'" in html.read_text()


def test_markdown_is_tables_that_a_name_cannot_break(tmp_path: Path, capsys: Capture) -> None:
    rows = [row("sm_90", kernel=HOSTILE), row("gfx942", "d9", kernel=HOSTILE), unexecuted("host", kernel=HOSTILE)]
    markdown = tmp_path / "x.md"
    main(["compare", str(ledger(tmp_path / "a.json", rows)), "--markdown", str(markdown)])
    text = markdown.read_text()
    assert "<script" not in text
    (matrix,) = re.findall(r"## Matrix\n\n(.*)", text, re.DOTALL)
    lines = matrix.strip().splitlines()
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    assert columns == [7, 7, 7]  # kernel, path, format and three targets
    assert "1 not executed" in lines[2]


def test_json_has_everything_but_rows(tmp_path: Path, capsys: Capture) -> None:
    _, found = compared(capsys, ledger(tmp_path / "a.json", [row("sm_90"), row("gfx942", "d9")]))
    (finding,) = found["findings"]
    assert (finding["kind"], finding["classes"], finding["cases"]) == (
        "nan",
        [["gfx942"], ["sm_90"]],
        ["float32 edges"],
    )
    assert finding["why"][0][0] == "left open"
    assert found["counts"]["nan"] == 1
    assert found["sides"][0]["planned"] == 2


def test_a_row_of_which_a_target_executed_nothing_is_shown(tmp_path: Path, capsys: Capture) -> None:
    """Everything passed, but not everywhere."""
    path = ledger(tmp_path / "a.json", [row("sm_90"), unexecuted("gfx942")])
    assert main(["compare", str(path)]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert "k cast float8_e4m3fn 1 not executed 1 passed" in said
    assert "rows that passed everywhere, with the same codes: 0;" in said
