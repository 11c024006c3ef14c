"""Findings about waivers: past their date, naming nothing, or known to the run alone; and which of them are in use."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from narrowgauge.ci.findings import Finding
from narrowgauge.ci.gate.cells import Told
from narrowgauge.ci.gate.night import Night, Place
from narrowgauge.ci.waivers import Waiver

#: the depth that leaves cases out, so that a waiver may rightly name none of them
SHALLOW = "smoke"


@dataclass
class Excuse:
    """The waivers of one kernel, target and link that stand for one thing: patterns of tests, and those they excuse."""

    kernel: str
    target: str
    link: str
    reason: str
    expires: datetime.date
    waivers: list[Waiver] = field(default_factory=list)
    tests: list[Told] = field(default_factory=list)

    def names(self, bracket: str, kernel: str, target: str) -> bool:
        return any(waiver.names(bracket, kernel, target) for waiver in self.waivers)


def bracket(nodeid: str) -> str:
    """What stands in the brackets of a test's id, which is what patterns of waivers are about."""
    return nodeid.partition("[")[2].removesuffix("]") or nodeid


def excuses(waivers: Sequence[Waiver], tests: Sequence[Told]) -> tuple[list[Excuse], list[Told]]:
    """The waivers with the tests that they excuse, and the tests that are waived by none that is known."""
    found: dict[tuple[object, ...], Excuse] = {}
    for waiver in waivers:
        same = (waiver.kernel, waiver.target, waiver.link, waiver.reason, waiver.expires)
        found.setdefault(same, Excuse(*same)).waivers.append(waiver)
    strangers = []
    for test in tests:
        if test.result != "waived" or test.row is None:
            continue
        link, cell = test.row.waiver, test.cell
        mine = [e for e in found.values() if e.link == link and e.names(bracket(cell.id), cell.kernel, cell.target)]
        strangers += [] if mine else [test]
        for excuse in mine[:1]:
            excuse.tests.append(test)
    return list(found.values()), strangers


def findings(night: Night, tests: Sequence[Told], waivers: Sequence[Waiver], today: datetime.date) -> Iterator[Finding]:
    known, strangers = excuses(waivers, tests)
    for test in strangers:
        said = (
            f"it is waived by {test.row.waiver if test.row else ''}, which is in no file of waivers that the gate has"
        )
        yield test.finding("unknown_waiver", said)
    yield from _expired(known, today)
    for place in night.places.values():
        for excuse in known:
            if excuse.waivers and _names_nothing(excuse, place, tests):
                said = f"the waiver for {excuse.kernel} on {excuse.target} ({excuse.link}) names no test of the plan"
                yield Finding("stale_waiver", said, place.name, kernel=excuse.kernel)


def _expired(known: Sequence[Excuse], today: datetime.date) -> Iterator[Finding]:
    """One finding for what is one table in the file, however many targets it has."""
    targets: dict[tuple[str, str, datetime.date], list[str]] = {}
    for excuse in known:
        if any(waiver.expired(today) for waiver in excuse.waivers):
            targets.setdefault((excuse.kernel, excuse.link, excuse.expires), []).append(excuse.target)
    for (kernel, link, expires), where in targets.items():
        said = f"the waiver for {kernel} on {', '.join(dict.fromkeys(where))} ({link}) was good until {expires}"
        yield Finding("expired_waiver", f"{said}; today is {today}", kernel=kernel)


def _names_nothing(excuse: Excuse, place: Place, tests: Sequence[Told]) -> bool:
    """Whether its kernel is planned on its target, with versions that it is for, and no test is what it names."""
    if place.plan is None or place.plan.depth == SHALLOW or any(run.narrowed_by for run in place.runs):
        return False
    cells = [c for c in place.cells.values() if (c.kernel, c.target) == (excuse.kernel, excuse.target)]
    if not cells or any(excuse.names(bracket(cell.id), cell.kernel, cell.target) for cell in cells):
        return False
    versions = {name: version for run in place.runs for name, version in run.versions.items()}
    for test in tests:
        if test.row is not None and test.row.kernel == excuse.kernel and test.place == place.name:
            own = test.row.distribution
            versions |= {own.get("name", ""): own.get("version", "")}
    return any(waiver.within(versions) for waiver in excuse.waivers)
