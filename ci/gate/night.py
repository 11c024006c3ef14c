"""What a night is made of: places, each a lane on a target, with the shards that came and those that should have."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.records import MOST_SHARDS, RUN, Cell, Plan, RunRecord, Shard
from narrowgauge.contracts.errors import BadInput, unknown


@dataclass(frozen=True)
class Expect:
    """A place that must be there; of how many shards, or None for as many as its runs say."""

    lane: str
    target: str
    shards: int | None = None

    @property
    def place(self) -> str:
        return f"{self.lane}/{self.target}"

    @classmethod
    def parse(cls, text: str, lanes: Mapping[str, Lane]) -> Expect:
        """``cuda/sm_90`` or ``cuda/sm_90x3``. Raises ``BadInput``."""
        lane, slash, rest = text.partition("/")
        if not slash or not rest:
            raise BadInput(f"--expect {text!r}; expected LANE/TARGET or LANE/TARGETxN, for example cuda/sm_90x2")
        if lane not in lanes:
            raise unknown("lane", lane, lanes, f"--expect {text}")
        targets = lanes[lane].targets
        counted = re.fullmatch(r"(.+)x([1-9]\d{0,8})", rest)
        if counted is not None and counted[1] in targets and rest not in targets:  # gfx942 is no "gf" of 942 shards
            if int(counted[2]) > MOST_SHARDS:
                raise BadInput(f"--expect {text!r}; expected at most {MOST_SHARDS} shards")
            return cls(lane, counted[1], int(counted[2]))
        if rest not in targets:
            raise unknown(f"target of lane {lane}", rest, targets, f"--expect {text}")
        return cls(lane, rest)


@dataclass
class Place:
    """A lane on a target, and what came of it."""

    name: str
    lane: Lane | None
    shards: list[Shard]  #: each has a run record
    expected: bool = False  #: --expect names it
    asked: int | None = None  #: and how many shards it says

    @cached_property
    def runs(self) -> list[RunRecord]:
        return [shard.run for shard in self.shards if shard.run is not None]

    @cached_property
    def count(self) -> int:
        """How many shards there must be: as asked, else as the runs say, else as the lane does."""
        if self.asked is not None:
            return self.asked
        return max((run.shards for run in self.runs), default=self.lane.shards if self.lane else 1)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan of the whole place: of a shard whose file is the one that its run wrote, before any other."""
        have = [(shard.plan, run) for shard, run in zip(self.shards, self.runs, strict=True) if shard.plan is not None]
        return next((plan for plan, run in have if plan.digest == run.plan), have[0][0] if have else None)

    @cached_property
    def missing(self) -> list[int]:
        have = {run.shard for run in self.runs}
        return [k for k in range(1, self.count + 1) if k not in have]

    @cached_property
    def cells(self) -> dict[str, Cell]:
        return {cell.id: cell for cell in self.plan.cells} if self.plan is not None else {}


@dataclass
class Night:
    """All that the gate is given about one night, and how its day is told."""

    places: dict[str, Place]
    strays: list[Shard] = field(default_factory=list)  #: directories that do not say of which shard they are
    expected: bool = False  #: places were named with --expect

    @property
    def shards(self) -> list[Shard]:
        return [shard for place in self.places.values() for shard in place.shards]

    @property
    def runs(self) -> list[RunRecord]:
        return [run for place in self.places.values() for run in place.runs]


def night_of(shards: Sequence[Shard], expects: Sequence[Expect], lanes: Mapping[str, Lane]) -> Night:
    """The shards, sorted into places; a place that was expected is there even if nothing came of it."""
    asked = {expect.place: expect for expect in expects}
    places = {name: Place(name, lanes.get(e.lane), [], True, e.shards) for name, e in asked.items()}
    strays = []
    for shard in shards:
        run = _trusted(shard)
        if run is None:
            strays.append(shard)
            continue
        places.setdefault(run.place, Place(run.place, lanes.get(run.lane), [])).shards.append(shard)
    for place in places.values():
        place.shards.sort(key=lambda s: (s.run.shard if s.run else 0, str(s.directory)))
    return Night(places, strays, bool(expects))


def _trusted(shard: Shard) -> RunRecord | None:
    """The run record, if its times and numbers can be what they say."""
    run = shard.run
    if run is None:
        return None
    wrong = [name for name in ("started", "ended") if _untimely(name, getattr(run, name))]
    if not 1 <= run.shard <= run.shards <= MOST_SHARDS:
        wrong.append("shard")
    if not wrong:
        return run
    shard.problems.append(f"{RUN} cannot be read: {', '.join(wrong)} is not as it must be")
    shard.run = None
    return None


def _untimely(name: str, text: str) -> bool:
    """Whether it is no time; one that has not ended yet has no time of its end."""
    return (bool(text) or name == "started") and moment(text) is None


def moment(text: str) -> datetime.datetime | None:
    """A time in ISO 8601, UTC where it does not say; None for anything else."""
    try:
        found = datetime.datetime.fromisoformat(text)
        return found.replace(tzinfo=found.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    except (ValueError, OverflowError):  # the first and the last day of all have no neighbour in another time zone
        return None
