"""What earlier nights found: of each test the last verdict, since when it is so, and when it last was well.

One file for a repository, JSON, compressed where its name ends in .gz. Only what a whole run says is taken in: tests of
a lost shard keep what was known of them.
"""

from __future__ import annotations

import datetime
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.ci.records import RunRecord
from narrowgauge.ci.shape import check
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole

SCHEMA = "narrowgauge.history/1"
#: nights that are listed; what is known of a test does not depend on it
NIGHTS = 60


@dataclass(frozen=True)
class State:
    """What is known of a test. Nights are told as "2026-11-30 a0a0381c": the date, and the suite's commit."""

    result: str  #: passed, failed, disputed, waived or not_executed
    before: str  #: the one before this one; "" for none
    since: str  #: the first night of those in a row with this result
    nights: int  #: how many they are
    good: str  #: the last night in which it passed; "" for none
    executed: str  #: the last night in which it was executed; "" for none, or after --accept


@dataclass
class Known:
    """What is known of a place."""

    narrowgauge: str = ""
    commit: str = ""
    depth: str = ""
    runs: dict[str, str] = field(default_factory=dict)  #: by shard, "2/3": when the run started that was taken in last
    cells: dict[str, State] = field(default_factory=dict)


@dataclass(frozen=True)
class Past:
    """A night that was judged."""

    night: str
    green: bool
    places: tuple[str, ...]  #: which were there or should have been


@dataclass
class History:
    """All that is known; ``latest`` is the latest date that a night proved."""

    latest: datetime.date = datetime.date.min
    nights: tuple[Past, ...] = ()
    places: dict[str, Known] = field(default_factory=dict)

    @property
    def last_green(self) -> str:
        """The last night without anything red; "" for none."""
        return next((past.night for past in reversed(self.nights) if past.green), "")

    def has(self, run: RunRecord) -> bool:
        """Whether this very run was taken in already: the gate may be asked twice."""
        known = self.places.get(run.place)
        return known is not None and known.runs.get(f"{run.shard}/{run.shards}") == run.started

    def later_than(self, run: RunRecord) -> str:
        """The start of a run that was taken in before, of the same shard, and yet is not older; "" for none.

        Another shard of one night may have started later and be judged sooner. Where a place is cut into another number
        of shards than before, all are asked.
        """
        known = self.places.get(run.place)
        if known is None or self.has(run):
            return ""
        cut = f"/{run.shards}"
        same = [part for part in known.runs if part.endswith(cut)]
        asked = [f"{run.shard}{cut}"] if same else list(known.runs)
        latest = max((known.runs[part] for part in asked if part in known.runs), key=_moment, default="")
        return latest if latest and _moment(latest) >= _moment(run.started) else ""

    def to_json(self) -> dict[str, Any]:
        places = {
            name: {**asdict(known), "cells": {i: list(astuple(state)) for i, state in sorted(known.cells.items())}}
            for name, known in sorted(self.places.items())
        }
        nights = [asdict(past) for past in self.nights[-NIGHTS:]]
        return {"schema": SCHEMA, "latest": self.latest.isoformat(), "nights": nights, "places": places}


def _moment(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found.replace(tzinfo=found.tzinfo or datetime.UTC)


def read(path: Path) -> History | None:
    """The history of a file; None where there is no file yet. Raises ``BadInput`` for one that is damaged."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"cannot read history {path}: {error.strerror}") from error
    try:
        data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, expected {SCHEMA!r}")
        return _made(data)
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadInput(
            f"history {path} is damaged: {error or type(error).__name__}. Put back the copy of the night before; "
            "without one delete the file, and every failure counts as new"
        ) from error


def _made(data: Mapping[str, Any]) -> History:
    nights = tuple(Past(**{**p, "places": tuple(p["places"])}) for p in data["nights"])
    found = History(
        datetime.date.fromisoformat(data["latest"]), nights, {n: _known(k) for n, k in data["places"].items()}
    )
    check(found, "it")
    return found


def _known(data: Mapping[str, Any]) -> Known:
    for started in data["runs"].values():
        _moment(started)
    return Known(**{**data, "cells": {i: State(*values) for i, values in data["cells"].items()}})


def write(path: Path, history: History) -> None:
    """The whole file, or none of it; the same bytes for the same history."""
    raw = (json.dumps(history.to_json(), sort_keys=True, indent=None, separators=(",", ":")) + "\n").encode()
    write_whole(path, gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
