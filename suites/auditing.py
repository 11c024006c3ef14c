"""Parts of an audit as cells of the plan: a checkpoint beside the kernels that are judged."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.asked import FNUZ, Asked, destinations
from narrowgauge.checkpoints.checks import Part, parts
from narrowgauge.checkpoints.report import Found
from narrowgauge.ci.ledger import Row
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.judging import Judged

#: where a model that is to be served on MI300 goes, and the format of its fp8 there
TARGET, FORMAT = "gfx942", "float8_e4m3fnuz"
#: letters of a part's name in an id
LONGEST = 120


@dataclass(frozen=True, eq=False)
class Audited:
    """One part of the audit of one checkpoint."""

    checkpoint: str
    case: str
    part: Part
    to_fnuz: bool

    @property
    def id(self) -> str:
        return f"{self.source}-{self.format}-{self.case}-{self.checkpoint}-host"

    @property
    def source(self) -> str:
        return _word(self.part.dtype or "any")

    @property
    def format(self) -> str:
        return FORMAT if self.to_fnuz else self.source

    @property
    def markers(self) -> tuple[str, ...]:
        return ("checkpoint", "silent_failure", *((FNUZ,) if self.to_fnuz else ()))

    @property
    def names(self) -> dict[str, Any]:
        """The fields that a plan and a ledger row share."""
        rule = FNUZ if self.to_fnuz else "as_it_is"
        who = {"kernel": self.checkpoint, "owner": "", "own": False, "target": "host"}
        return {
            "operation": "audit",
            "rule": rule,
            "source": self.source,
            "format": self.format,
            "case": self.case,
        } | who


def audited(folders: Sequence[Path], to_fnuz: bool) -> list[Audited]:
    """Every part of several checkpoints: as they are and, where that is asked, as bound for MI300.

    Raises ``BadInput`` for what is no checkpoint, and for two of one name.
    """
    found: list[Audited] = []
    names: dict[str, Path] = {}
    for folder in folders:
        name = _word(folder.resolve().name)
        if name in names:
            raise BadInput(f"--checkpoint {names[name]} and {folder} are both called {name!r}; audit them one by one")
        names[name] = folder
        asked = Asked(folder, destinations([FNUZ]), TARGET) if to_fnuz else Asked(folder)
        cases: dict[str, int] = {}
        for part in parts(asked):
            case = _word(part.name)
            cases[case] = cases.get(case, 0) + 1
            unique = case if cases[case] == 1 else f"{case}~{cases[case]}"
            found.append(Audited(name, unique, part, to_fnuz))
    return found


def judged(one: Audited) -> Judged:
    """The row of a part: failed where something is wrong, with every finding that says so."""
    start = time.perf_counter()
    try:
        found = one.part.found()
    except BadInput as error:
        return Judged(_row(one, "failed", str(error)), f"[NOT-READ] {error}")
    wrong = [f for f in found if f.decides]
    seconds = round(time.perf_counter() - start, 4)
    doubts = tuple(_line(f) for f in found if f.level == "doubt")
    kinds = ", ".join(dict.fromkeys(f.finding.kind for f in wrong))
    row = _row(one, "failed" if wrong else "passed", kinds, notes=doubts, seconds=seconds)
    return Judged(row, "\n".join(_lines(one, wrong)) if wrong else "")


def _row(one: Audited, result: str, reason: str, notes: tuple[str, ...] = (), seconds: float = 0.0) -> Row:
    return Row(
        id=one.id,
        **one.names,
        device="host",
        how="executed",
        backend="numpy",
        result=result,  # type: ignore[arg-type]
        reason=reason,
        claim="/".join(one.names[name] for name in ("operation", "rule", "source", "format")),
        authority="the definitions of the formats, and what engines read",
        elements=sum(prod(t.shape) for t in one.part.tensors),
        notes=notes,
        seconds=seconds,
    )


def _lines(one: Audited, wrong: Sequence[Found]) -> list[str]:
    head = f"[AUDIT] {one.checkpoint}, {one.case}: {len(wrong)} findings"
    return [head, *(f"{_line(f)}\n    {f.remedy}" for f in wrong)]


def _line(found: Found) -> str:
    f = found.finding
    places = ", ".join(f"{list(p.index)} {p.value}" for p in f.places)
    where = f"{f.tensor}: " if f.tensor else ""
    return f"  {found.about}: {f.kind}: {where}{f.said}{f' ({places})' if places else ''}"


def _word(name: str) -> str:
    """A stranger's name as a word of an id: pytest and its reports take brackets and colons for their own."""
    return re.sub(r"[^A-Za-z0-9_.*]", "_", name)[:LONGEST] or "_"
