"""What an audit found, as data: the schema of ``narrowgauge audit --json``, which docs/audit.md describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from narrowgauge.checkpoints.against import Compared
from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.bytes import Weighed
from narrowgauge.checkpoints.configured import Configuration
from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.findings import Finding, Level
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.model import Checkpoint, Role, Stored
from narrowgauge.checkpoints.online import OfWeight
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.ranges import Range, allowed
from narrowgauge.contracts.formats import FORMATS

#: the version of the schema; a field that is added changes nothing, one that goes or changes its meaning does
SCHEMA = 1
LEVELS: tuple[Level, ...] = ("wrong", "doubt", "note")
#: what findings are about that no option asks for
AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Found:
    """A finding, which question it answers, and what the tensor is for."""

    about: str
    finding: Finding
    role: Role = "model"

    @property
    def level(self) -> Level:
        return KINDS[self.finding.kind].level

    @property
    def decides(self) -> bool:
        """Whether it counts for the verdict: what an optimizer keeps is not loaded by an engine."""
        return self.level == "wrong" and self.role == "model"

    @property
    def meaning(self) -> str:
        return KINDS[self.finding.kind].meaning

    @property
    def remedy(self) -> str:
        return self.finding.remedy or KINDS[self.finding.kind].remedy

    def to_json(self) -> dict[str, Any]:
        f = self.finding
        return {
            "kind": f.kind, "level": self.level, "about": self.about, "tensor": f.tensor, "role": self.role,
            "said": f.said, "count": f.count, "meaning": self.meaning, "remedy": self.remedy,
            "places": [{"index": list(p.index), "value": p.value} for p in f.places], "decides": self.decides,
        }  # fmt: skip


@dataclass(frozen=True)
class Progress:
    """How far the work is."""

    step: str
    done: int  #: bytes
    total: int
    tensor: str = ""


@dataclass(frozen=True)
class Answer:
    """The verdict on one question."""

    about: str
    survives: bool
    said: str

    def to_json(self) -> dict[str, Any]:
        return {"about": self.about, "survives": self.survives, "said": self.said}


@dataclass
class Report:
    """Everything, filled as the work goes on."""

    asked: Asked
    checkpoint: Checkpoint
    found: list[Found] = field(default_factory=list)
    chosen: list[Stored] = field(default_factory=list)  #: the tensors that ``--only`` lets through
    configuration: Configuration = field(default_factory=Configuration)
    passports: list[Passport] = field(default_factory=list)
    weighed: Weighed = field(default_factory=lambda: Weighed(0, 0, 0, 0))
    paths: dict[str, str] = field(default_factory=dict)  #: of a passport's module: how the target computes with it
    censuses: dict[str, Census] = field(default_factory=dict)  #: by tensor
    online: list[OfWeight] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)  #: matrices that engines leave as they are, under a recipe

    @property
    def served(self) -> str:
        """Engine, flag and target, as one question; "" where none was named."""
        asked = self.asked
        flag = f"--kv-cache-dtype {asked.kv_cache_dtype}" if asked.kv_cache_dtype else ""
        return " ".join(filter(None, (asked.engine, flag, f"on {asked.target}" if asked.target else "")))

    @property
    def questions(self) -> list[str]:
        """What there is a verdict on: the checkpoint as it is, then what was asked, in that order."""
        asked = self.asked
        return [
            AS_IT_IS, *(f"to {d.name}" for d in asked.to), *([self.served] if self.served else []),
            *([f"against {asked.against}"] if asked.against else []), *([f"log {asked.log}"] if asked.log else []),
        ]  # fmt: skip

    @property
    def taken(self) -> list[Passport]:
        """The quantized weights of which a tensor was chosen."""
        chosen = {tensor.name for tensor in self.chosen}
        return [p for p in self.passports if any(tensor.name in chosen for tensor in p.tensors.values())]

    @property
    def ranges(self) -> list[Range]:
        """Of the model's tensors: of floats what is in them, of quantized weights what codes and scales allow."""
        beside = {tensor.name for p in self.taken for tensor in p.tensors.values()}
        weights = {p.weight.name: p for p in self.taken}
        found = []
        for tensor in self.chosen:
            census = self.censuses.get(tensor.name)
            if census is None or tensor.role != "model":
                continue
            if _is_wide(census) and census.amax and (tensor.name in weights or tensor.name not in beside):
                found.append(Range(tensor.name, float(census.amax), float(census.least)))
            elif tensor.name in weights and (one := allowed(weights[tensor.name], self.censuses)):
                found.append(one)
        return found

    @property
    def wrong(self) -> bool:
        return any(found.decides for found in self.found)

    @property
    def answers(self) -> list[Answer]:
        """One for each question, in the order in which they were asked."""
        return [_answer(about, [f for f in self.found if f.about == about]) for about in self.questions]

    def to_json(self) -> dict[str, Any]:
        c, w = self.checkpoint, self.weighed
        roles = Counter(t.role for t in c.tensors.values())
        return {
            "schema": SCHEMA, "asked": self.asked.to_json(),
            "survives": not self.wrong, "answers": [answer.to_json() for answer in self.answers],
            "findings": [found.to_json() for found in self.found],
            "checkpoint": {
                "path": str(c.path), "kind": c.kind, "files": sorted({str(t.path) for t in c.tensors.values()}),
                "tensors": {role: roles[role] for role in get_args(Role)},
                "bytes": sum(t.size for t in c.tensors.values()),
                "unread": list(c.unread),
            },
            "quantization": {
                "method": self.configuration.method, "where": self.configuration.where,
                "producer": self.configuration.producer, "ignore": list(self.configuration.ignore),
            },
            "size": {
                "parameters": w.parameters, "quantized": w.quantized, "bytes": w.size, "bytes_per_parameter": w.each,
                "bytes_per_quantized": w.each_quantized, "decode_floor_s": w.floor(self.asked.bandwidth),
            },
            "passports": [{**p.to_json(), "compute_path": self.paths.get(p.module, "")} for p in self.taken],
            "tensors": [self._tensor(tensor) for tensor in self.chosen],
            "online": [one.to_json() for one in self.online], "left_as_they_are": self.spared,
            "against": [one.to_json() for one in self.compared],
        }  # fmt: skip

    def _tensor(self, tensor: Stored) -> dict[str, Any]:
        return {
            "name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": tensor.size,
            "role": tensor.role, "file": str(tensor.path), "format": tensor.format,
            "numbers": census.to_json() if (census := self.censuses.get(tensor.name)) else None,
        }  # fmt: skip


def _is_wide(census: Census) -> bool:
    fmt = FORMATS.get(census.format)
    return fmt is not None and fmt.bits >= 16 and fmt.family == "ieee"


def _answer(about: str, found: Sequence[Found]) -> Answer:
    wrong = [f for f in found if f.decides]
    doubts = [f for f in found if f.level == "doubt" and f.role == "model"]
    said = _kinds(wrong) if wrong else "nothing is wrong"
    if doubts:
        said += f"; in doubt: {_kinds(doubts)}"
    return Answer(about, not wrong, said)


def _kinds(found: Sequence[Found]) -> str:
    """Kinds of findings, each with the number of tensors that have it, and of elements where they are more."""
    kinds: dict[str, list[Found]] = {}
    for one in found:
        kinds.setdefault(one.finding.kind, []).append(one)
    return ", ".join(f"{kind}{_many(members)}" for kind, members in kinds.items())


def _many(members: Sequence[Found]) -> str:
    tensors = {one.finding.tensor for one in members} - {""}
    count = sum(one.finding.count for one in members)
    if not tensors:
        return ""
    return f" ({len(tensors):,}; {count:,} elements)" if count > len(tensors) else f" ({len(tensors):,})"


@dataclass(frozen=True)
class Group:
    """Findings of one kind and question, those of the most elements first."""

    kind: str
    about: str
    pattern: str  #: names with ``*`` for numbers; "" where they have none in common
    members: tuple[Found, ...]

    @property
    def first(self) -> Found:
        return self.members[0]

    @property
    def count(self) -> int:
        """Elements of all of them."""
        return sum(found.finding.count for found in self.members)


def grouped(report: Report) -> list[Group]:
    """Findings of one kind that answer one question together: by level, then by question, then as they came."""
    kinds: dict[tuple[str, str, Role], list[Found]] = {}
    for one in report.found:
        kinds.setdefault((one.finding.kind, one.about, one.role), []).append(one)
    groups = []
    for (kind, about, _), members in kinds.items():
        patterns = {pattern_of(one.finding.tensor) for one in members}
        ranked = sorted(members, key=lambda one: -one.finding.count)
        groups.append(Group(kind, about, patterns.pop() if len(patterns) == 1 else "", tuple(ranked)))
    place = {about: n for n, about in enumerate(report.questions)}
    return sorted(groups, key=lambda g: (not g.first.decides, LEVELS.index(g.first.level), place[g.about]))


def pattern_of(name: str) -> str:
    """A tensor's name with ``*`` for the numbers between its dots: of layers and experts."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))
