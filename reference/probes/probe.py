"""What a probe is: a question, rows that ask it, and how answers are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from narrowgauge.reference.probes.rows import Key, Row, Rows
from narrowgauge.reference.probes.setting import Setting

#: what came back, by key: numbers; a row that could not be asked has none
Answers = Mapping[Key, float]


@dataclass(frozen=True)
class Finding:
    """One property of a kernel. ``value`` is what a contract may claim; "" where nothing is said, and ``words`` why."""

    name: str
    value: str
    words: str
    seen: Mapping[str, Any] = field(default_factory=dict)  #: what it was read from

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"value": self.value, "words": self.words, "seen": dict(self.seen)}


Findings = Mapping[str, Finding]
#: how the answers of a probe are read, given what the probes before it found
Read = Callable[[Setting, Answers, Findings], Sequence[Finding]]


@dataclass(frozen=True)
class Probe:
    """One question to a kernel."""

    name: str
    asks: str
    finds: tuple[str, ...]  #: names of its findings
    rows: Callable[[Setting], Rows]
    read: Read
    of: str = "unit"  #: what it is about: "unit", "schedule", "scales", "output"


@lru_cache(maxsize=128)
def rows_of(probe: Probe, setting: Setting) -> Rows:
    """The rows of a probe."""
    return probe.rows(setting)


def kept(rows: Mapping[Key, Row | None]) -> dict[Key, Row]:
    """Those rows that the operands can hold."""
    return {key: each for key, each in rows.items() if each is not None}


def unsaid(name: str, why: str) -> Finding:
    """A finding that there is none."""
    return Finding(name, "", why)
