"""What a sweep has done and found so far: spans of patterns, and ranges that differ. It can be written and taken up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole

SCHEMA = "narrowgauge.sweep/1"
#: patterns that a kernel is given at once: 16 MiB of float32
BLOCK = 1 << 22
#: ranges of difference that are kept; of a kernel that is wrong everywhere in ever new ways the rest is counted
MOST_RANGES = 100_000

Span = tuple[int, int]  #: first and last pattern


@dataclass(frozen=True, order=True)
class Stretch:
    """A range of consecutive patterns that all gave one wrong code where one other was expected."""

    first: int
    last: int
    got: int
    want: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass
class Record:
    """What has been swept and found; it can be written to a file and taken up again."""

    identity: dict[str, Any]  #: what must be the same for a record to be taken up: claim, kernel, its distribution
    done: list[Span] = field(default_factory=list)
    found: list[Stretch] = field(default_factory=list)  #: as blocks cut them, in no order
    #: differing patterns of ranges beyond MOST_RANGES, by the first pattern of their block
    dropped: dict[int, int] = field(default_factory=dict)
    #: why a block has no codes: crashed, hung, raised, not executed, or malformed
    stopped: str = ""

    @property
    def patterns(self) -> int:
        return sum(last - first + 1 for first, last in self.done)

    @property
    def differing(self) -> int:
        return sum(r.count for r in self.found) + sum(self.dropped.values())

    @property
    def ranges(self) -> list[Stretch]:
        """The differing ranges in order, those that a block's end had cut as one."""
        out: list[Stretch] = []
        for r in sorted(self.found):
            before = out[-1] if out else None
            if before and (before.last + 1, before.got, before.want) == (r.first, r.got, r.want):
                out[-1] = replace(before, last=r.last)
            else:
                out.append(r)
        return out

    def add(self, span: Span, found: Sequence[Stretch]) -> None:
        """A block is done."""
        room = max(MOST_RANGES - len(self.found), 0)
        self.found += found[:room]
        if found[room:]:
            self.dropped[span[0]] = sum(r.count for r in found[room:])
        self.done = joined([*self.done, span])

    def within(self, span: Span) -> Record:
        """What of a record is about a span. A record may be of several, swept one after the other."""
        first, last = span

        def cut(begin: int, end: int) -> Span:
            return max(begin, first), min(end, last)

        done = [c for s in self.done if (c := cut(*s))[0] <= c[1]]
        found = [Stretch(*c, r.got, r.want) for r in self.found if (c := cut(r.first, r.last))[0] <= c[1]]
        dropped = {block: count for block, count in self.dropped.items() if first <= block <= last}
        return Record(self.identity, done, found, dropped, self.stopped)

    def left(self, span: Span) -> list[Span]:
        """What of a span is still to do."""
        todo, first = [], span[0]
        for begin, end in self.done:
            if begin > first:
                todo.append((first, min(begin - 1, span[1])))
            first = max(first, end + 1)
        return [s for s in [*todo, (first, span[1])] if s[0] <= s[1]]

    def write(self, path: Path) -> None:
        data = {"schema": SCHEMA, "identity": self.identity, "done": self.done, "dropped": [*self.dropped.items()]}
        data["ranges"] = [[r.first, r.last, r.got, r.want] for r in self.ranges]
        write_whole(path, json.dumps(data).encode())

    @classmethod
    def read(cls, path: Path, identity: dict[str, Any]) -> Record:
        """The record of a file, or a new one where there is none. Raises ``BadInput`` for one of something else."""
        if not path.exists():
            return cls(identity)
        try:
            data = json.loads(path.read_text())
            if data["schema"] != SCHEMA:
                raise BadInput(f"{path} has schema {data['schema']!r}; this version reads {SCHEMA!r}")
            record = cls(
                data["identity"],
                [(int(a), int(b)) for a, b in data["done"]],
                [Stretch(*map(int, r)) for r in data["ranges"]],
                {int(block): int(count) for block, count in data["dropped"]},
            )
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadInput(f"{path} is no record of a sweep: {error!r}") from error
        if other := [k for k in identity if record.identity.get(k) != identity[k]]:
            was = ", ".join(f"{k} {record.identity.get(k)!r}, now {identity[k]!r}" for k in other)
            raise BadInput(f"{path} is the record of another sweep ({was}); name another file, or remove it")
        return record


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that touch as one."""
    out: list[Span] = []
    for first, last in sorted(spans):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def blocks(spans: Iterable[Span]) -> list[Span]:
    """Spans cut at multiples of ``BLOCK``, so that blocks are the same however a sweep is cut up."""
    cut = []
    for first, last in spans:
        while first <= last:
            end = min(last, (first // BLOCK + 1) * BLOCK - 1)
            cut.append((first, end))
            first = end + 1
    return cut


def share(span: Span, number: int, of: int) -> Span:
    """The number-th (from 1) of so many nearly equal parts of a span."""
    first, size = span[0], span[1] - span[0] + 1
    return first + size * (number - 1) // of, first + size * number // of - 1
