"""The gate: what came of a night, held to what was planned and to the nights before. docs/nightly.md has its findings.

Pure: directories are read by ``narrowgauge.ci.records``, and the day is given.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from narrowgauge.ci.findings import KINDS, Finding
from narrowgauge.ci.gate import cells, changes, clocks, places, waiving
from narrowgauge.ci.gate.cells import Told
from narrowgauge.ci.gate.changes import Changes
from narrowgauge.ci.gate.night import Expect, Night, night_of
from narrowgauge.ci.gate.waiving import Excuse
from narrowgauge.ci.history import History
from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.quarantine import Quarantine
from narrowgauge.ci.records import Shard
from narrowgauge.ci.waivers import Waiver
from narrowgauge.contracts.verdict import Exit


@dataclass(frozen=True)
class Rules:
    """What a night is held to, besides its plan."""

    lanes: Mapping[str, Lane]
    expects: tuple[Expect, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    remembers: bool = False  #: a history is kept, even if there is none yet
    accept: bool = False  #: what is not executed any more, and what is gone, is taken as it is


@dataclass(frozen=True)
class Report:
    """The judgement of a night."""

    day: datetime.date  #: that expiry was judged by
    night: Night
    tests: tuple[Told, ...]
    changes: Changes
    excuses: tuple[Excuse, ...]  #: waivers that were needed
    findings: tuple[Finding, ...]
    history: History  #: after this night

    @property
    def red(self) -> list[Finding]:
        return [f for f in self.findings if f.red]

    @property
    def yellow(self) -> list[Finding]:
        return [f for f in self.findings if not f.red]

    @property
    def exit(self) -> Exit:
        """What was judged weighs more than the machines: a red night is 3 only where they alone are at fault."""
        if not self.red:
            return Exit.OK
        return Exit.INFRASTRUCTURE if all(KINDS[f.kind].infrastructure for f in self.red) else Exit.FAILED

    @property
    def counts(self) -> Counter[str]:
        """How many tests came out in which way."""
        return Counter(test.result for test in self.tests)


def gate(shards: Sequence[Shard], rules: Rules, history: History | None, today: datetime.date) -> Report:
    """Judge a night. ``history`` is None where there is none yet; ``today`` is what the gate's own clock says."""
    night = night_of(shards, _expected(rules, history), rules.lanes)
    night.expected = bool(rules.expects)
    day = clocks.day(night, history, today)
    tests = cells.told(night)
    found = changes.changes(night, tests, history, day, rules.waivers)
    raw = [
        *places.findings(night),
        *_of_history(night, rules, history),
        *clocks.findings(night, history, today),
        *cells.findings(night, tests),
        *waiving.findings(night, tests, rules.waivers, day),
        *changes.findings(found, rules.accept),
    ]
    told = tuple(_quarantined(raw, rules.quarantine, day))
    needed = [e for e in waiving.excuses(rules.waivers, tests)[0] if e.tests]
    after = changes.recorded(found, night, history, day, told, rules.accept)
    return Report(day, night, tuple(tests), found, tuple(needed), told, after)


def _expected(rules: Rules, history: History | None) -> Sequence[Expect]:
    """What was named; if nothing was, the places of the last night."""
    if rules.expects or history is None or not history.nights:
        return rules.expects
    parts = [place.partition("/") for place in history.nights[-1].places]
    return [Expect(lane, target) for lane, _, target in parts]


def _of_history(night: Night, rules: Rules, history: History | None) -> list[Finding]:
    """Whether there is one, and what the last night had that this one is not to have."""
    if history is None:
        return [Finding("no_history", "this is the first night that is kept")] if rules.remembers else []
    last = history.nights[-1].places if rules.expects and history.nights else ()
    dropped = [place for place in last if place not in night.places]
    return [
        Finding("place_dropped", "the last night had it, and --expect does not name it", place) for place in dropped
    ]


def _quarantined(found: Sequence[Finding], entries: Sequence[Quarantine], day: datetime.date) -> list[Finding]:
    """The findings with the quarantine over them, and what is to be said of the quarantine itself."""
    good = [q for q in entries if not q.expired(day)]
    told = []
    for finding in found:
        link = next((q.link for q in good if q.covers(finding)), "")
        told.append(replace(finding, quarantined=link) if link else finding)
    for entry in entries:
        what = f"{entry.kind} ({entry.link})"
        if entry.expired(day):
            said = f"the quarantine of {what} was good until {entry.expires}; today is {day}"
            told.append(Finding("expired_quarantine", said, entry.place))
        elif not any(entry.covers(finding) for finding in found):
            told.append(Finding("unused_quarantine", f"nothing is quarantined by the entry of {what}", entry.place))
    return told
