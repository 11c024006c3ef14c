"""Which shard runs which test: pytest-split's least-duration rule, with stored durations.

    python -m narrowgauge.ci.splitting DIR…        refresh ci/durations/LANE.json from the journals of a night

A kernel is compiled once per process and target, and that is much of what it costs: its cells stay in one shard. Of a
run of 7,656 cells (smoke, CPU: 377 s, 88 s of it first calls) the slowest of four shards takes 86 s that way, and 148 s
where cells are dealt out one by one, since nearly every shard then compiles every kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from narrowgauge.ci.records import Cell, Shard, read_shard, write_json
from narrowgauge.contracts.errors import BadInput, Infrastructure, NarrowgaugeError
from narrowgauge.contracts.verdict import Exit

OWN = Path(__file__).parent / "durations"
SCHEMA = "narrowgauge.durations/1"
#: a kernel's cells stay together while they take at most this part of what one shard has to do. What is dealt out last
#: is at most one such piece, so no shard has more than the mean and a tenth of it
PIECE = 0.1
#: seconds that pytest and Allure add to every test (measured: 10,000 empty tests in 30.8 s); without it all tests that
#: take no time would fall to one shard
OVERHEAD = 0.003
#: stored seconds are rounded to this many digits: finer ones are noise, and make every refresh a large difference
DIGITS = 3


@dataclass(frozen=True)
class _Item:
    """What pytest-split asks of a test."""

    nodeid: str


@dataclass(frozen=True)
class Durations:
    """Mean seconds of one test, by target and ``kernel/operation``.

    By test they would be 1.1 MB in place of 55 KB. That the tests of a kernel differ costs little, as they stay
    together: of a run of 7,605 tests the longest of four shards had 2% more than the mean, of two 0.6%.
    """

    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def of(self, cells: Iterable[Cell]) -> dict[str, float]:
        """Seconds by id, of the cells whose like was measured."""
        found = {cell.id: self.seconds.get(cell.target, {}).get(_key(cell)) for cell in cells}
        return {name: seconds for name, seconds in found.items() if seconds is not None}


def assign(cells: Sequence[Cell], lane: str, shards: int, folder: Path = OWN) -> tuple[Cell, ...]:
    """The cells of a lane's plan, each with its shard (from 1), by the lane's stored durations."""
    together = {cell.id: f"{cell.kernel} {cell.target}" for cell in cells}
    shard = split([cell.id for cell in cells], load(lane, folder).of(cells), shards, together)
    return tuple(replace(cell, shard=shard[cell.id]) for cell in cells)


def split(
    ids: Sequence[str], durations: Mapping[str, float], shards: int, together: Mapping[str, str] | None = None
) -> dict[str, int]:
    """The shard of each id, from 1. Equal for equal arguments, in whatever order the ids come.

    ``durations`` are seconds; an id without gets the average of those that have one. ``together`` names the group of an
    id, which stays whole where that does not unbalance. Where there are fewer ids than shards, some shards are empty.
    """
    if shards < 1:
        raise BadInput(f"{shards} shards; expected at least 1")
    if shards == 1:
        return dict.fromkeys(ids, 1)
    ids = sorted(ids)  # sums of floats depend on their order, and all machines must come to the same plan
    known = [durations[i] for i in ids if i in durations]
    average = sum(known) / len(known) if known else 0.0
    seconds = {i: durations.get(i, average) + OVERHEAD for i in ids}
    pieces = _pieces(seconds, together or {}, shards)
    sums = {name: sum(seconds[i] for i in members) for name, members in pieces.items()}
    placed = _least_duration(sums, shards)
    return {i: placed[name] for name, members in pieces.items() for i in members}


def _pieces(seconds: Mapping[str, float], together: Mapping[str, str], shards: int) -> dict[str, list[str]]:
    """Ids by what is dealt out as one: a group, or an id by itself where its group is too long or it has none."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in seconds:
        groups[together.get(name, name)].append(name)
    limit = PIECE * sum(seconds.values()) / shards
    pieces: dict[str, list[str]] = {}
    for group, members in groups.items():
        whole = sum(seconds[i] for i in members) <= limit
        pieces |= {group: members} if whole else {i: [i] for i in members}
    return pieces


def _least_duration(seconds: Mapping[str, float], shards: int) -> dict[str, int]:
    try:
        from pytest_split.algorithms import Algorithms
    except ImportError as error:
        raise Infrastructure(
            f"{shards} shards need pytest-split, which is not installed: pip install 'narrowgauge[run]'"
        ) from error
    items: list[Any] = [_Item(name) for name in seconds]
    groups = Algorithms.least_duration.value(shards, items, dict(seconds))
    return {item.nodeid: number for number, group in enumerate(groups, 1) for item in group.selected}


def load(lane: str, folder: Path = OWN) -> Durations:
    """What is stored of a lane; nothing where it was never measured. Raises ``BadInput`` for a file that is damaged."""
    path = folder / f"{lane}.json"
    try:
        data = json.loads(path.read_text())
        if data["schema"] != SCHEMA:
            raise ValueError(f"its schema is {data['schema']!r}, expected {SCHEMA!r}")
        return Durations({t: {k: float(s) for k, s in kernels.items()} for t, kernels in data["seconds"].items()})
    except FileNotFoundError:
        return Durations()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"durations {path} cannot be read: {error}. Write them anew: python -m narrowgauge.ci.splitting DIR…"
        ) from error


def refresh(found: Iterable[Shard], folder: Path = OWN) -> dict[str, int]:
    """Store the durations of a night, and say of how many tests, by lane. Targets that did not run keep theirs."""
    taken: dict[str, dict[str, dict[str, list[float]]]] = {}
    for shard in found:
        if shard.run is None or shard.run.state != "finished" or shard.problems:
            raise BadInput(f"{shard.directory} is not of a run that finished: {'; '.join(shard.problems) or shard.run}")
        for end in shard.ends.values():
            if end.row is not None:
                of_target = taken.setdefault(shard.run.lane, {}).setdefault(end.row.target, {})
                of_target.setdefault(f"{end.row.kernel}/{end.row.operation}", []).append(end.seconds)
    for lane, targets in taken.items():
        means = {t: {k: round(sum(s) / len(s), DIGITS) for k, s in kernels.items()} for t, kernels in targets.items()}
        write_json(folder / f"{lane}.json", {"schema": SCHEMA, "seconds": load(lane, folder).seconds | means})
    return {lane: sum(len(s) for kernels in t.values() for s in kernels.values()) for lane, t in taken.items()}


def _key(cell: Cell) -> str:
    return f"{cell.kernel}/{cell.operation}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Refresh the stored durations of lanes from results directories.")
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="what `narrowgauge run --out` wrote")
    parser.add_argument("--out", type=Path, default=OWN, metavar="DIR", help="another folder than ci/durations")
    given = parser.parse_args(arguments)
    try:
        for lane, tests in refresh((read_shard(d) for d in given.directories), given.out).items():
            print(f"{given.out / lane}.json: {tests:,} tests")
    except NarrowgaugeError as error:
        print(f"splitting: {error}", file=sys.stderr)
        return Exit.BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
