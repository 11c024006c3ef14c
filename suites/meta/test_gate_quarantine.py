"""The quarantine: strict in form, and about machines alone."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.ci import quarantine
from narrowgauge.ci.findings import KINDS
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.suites.meta.night_sets import DAY, LANES, QUARANTINE, Case, night, red

pytestmark = pytest.mark.meta

TWO = "cuda/sm_90 2"
ONE_DAY = datetime.timedelta(days=1)


#: the lines of an entry that is as it must be
RIGHT = {
    "lane": '"cuda"',
    "target": '"sm_90"',
    "kind": '"missing_shard"',
    "link": '"https://example.org/hosts/7"',
    "reason": '"its cable is loose"',
    "expires": "2026-12-31",
}


def table(**changed: str | None) -> str:
    lines = {name: value for name, value in (RIGHT | changed).items() if value is not None}
    return "\n".join(["[[quarantine]]", *(f"{name} = {value}" for name, value in lines.items())]) + "\n"


def loaded(folder: Path, text: str) -> list[quarantine.Quarantine]:
    (folder / "quarantine.toml").write_text(text)
    return quarantine.load(folder / "quarantine.toml", LANES)


def test_a_right_entry_is_read_as_it_stands(tmp_path: Path) -> None:
    assert loaded(tmp_path, table()) == [QUARANTINE]
    assert loaded(tmp_path, "# all is well\n") == []
    both = loaded(tmp_path, table(target='["sm_90", "sm_80"]', kind='["lost", "stopped"]'))
    assert [(q.target, q.kind) for q in both] == [
        ("sm_90", "lost"), ("sm_90", "stopped"), ("sm_80", "lost"), ("sm_80", "stopped"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        *(({name: None}, f"quarantine 1: {name} missing") for name in RIGHT),
        ({"test": '"*"'}, "unknown field test; fields are expires, kind, lane, link, reason, target"),
        ({"lane": '"cudda"'}, "unknown lane 'cudda' in .*did you mean cuda"),
        ({"target": '"gfx942"'}, "unknown target of lane cuda 'gfx942'"),
        ({"kind": '"missing"'}, "unknown kind of finding 'missing'"),
        ({"kind": '["lost", ""]'}, "kind = ''; expected a text"),
        ({"link": '"ask Ann"'}, "expected an https address or a page in docs/"),
        ({"expires": '"2026-12-31"'}, "expected a date such as"),
        ({"reason": '""'}, "reason = ''; expected a text"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be(changed: dict[str, str | None], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        loaded(tmp_path, table(**changed))


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if k not in ("missing_lane", "missing_shard", "preflight", "lost", "stopped")]
)
def test_only_machines_can_be_quarantined(kind: str, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match="cannot be quarantined; only missing_lane, missing_shard, preflight, lost, stopped"
    ):
        loaded(tmp_path, table(kind=f'"{kind}"'))


def test_the_suites_own_quarantine_can_be_read() -> None:
    quarantine.load(quarantine.OWN, LANES)


def without_two(entry: quarantine.Quarantine) -> Case:
    case = night()
    del case.shards[TWO]
    case.quarantine = [entry]
    return case


def test_a_machine_in_quarantine_is_told_and_does_not_redden(tmp_path: Path) -> None:
    report = without_two(QUARANTINE).judge(tmp_path)
    assert (report.exit, red(report)) == (Exit.OK, [])
    assert [(f.kind, f.quarantined) for f in report.yellow] == [("missing_shard", QUARANTINE.link)]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"target": "sm_80"}, {"missing_shard"}),
        ({"lane": "rocm"}, {"missing_shard"}),
        ({"kind": "lost"}, {"missing_shard"}),
        ({"expires": DAY - ONE_DAY}, {"missing_shard", "expired_quarantine"}),
        ({"expires": DAY}, set()),
    ],
)
def test_an_entry_covers_its_own_place_and_kind_until_its_date(
    change: dict[str, Any], kinds: set[str], tmp_path: Path
) -> None:
    report = without_two(replace(QUARANTINE, **change)).judge(tmp_path)
    assert {kind for kind, _ in red(report)} == kinds
    unused = {"unused_quarantine"} if {"target", "lane", "kind"} & change.keys() else set()
    assert {f.kind for f in report.yellow} - {"missing_shard"} == unused


def test_a_failure_beside_a_machine_in_quarantine_is_red(tmp_path: Path) -> None:
    case = without_two(QUARANTINE)
    three = case.shards["cuda/sm_90 3"]
    three.fail(three.ids[0])
    assert red(case.judge(tmp_path)) == [("new_failure", "cuda/sm_90 3/3")]
