"""The ledger: the plan and every verdict of a run, as one JSON file. Its form is docs/ledger.md and ledger.schema.json.

"Not executed" is plan minus results: a cell that was planned and has no row was not executed, never passed.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.outcome import How
from narrowgauge.contracts.verdict import Explanation, Mismatch, OpenAnswers, Result
from narrowgauge.version import __version__

SCHEMA = "narrowgauge.ledger/1"


@dataclass(frozen=True)
class Row:
    """One verdict. ``docs/ledger.md`` says what each field means."""

    id: str
    operation: str
    rule: str
    source: str
    format: str
    case: str
    kernel: str
    owner: str
    own: bool
    target: str
    device: str
    how: How
    backend: str
    result: Result
    reason: str = ""
    claim: str = ""
    authority: str = ""
    breaks: str = ""
    elements: int = 0
    differences: dict[str, int] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    explained: int = 0
    left: int = 0
    explanations: tuple[Explanation, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    malformed: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    models: dict[str, bool] = field(default_factory=dict)
    open_answers: OpenAnswers | None = None
    notes: tuple[str, ...] = ()
    outcome: str = "returned"
    digest: str = ""
    waiver: str = ""
    portrait: dict[str, str] = field(default_factory=dict)
    distribution: dict[str, str] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        fixed = dict(data)
        fixed["explanations"] = tuple(
            Explanation(**{**e, "faults": tuple(e["faults"]), "how": tuple(e.get("how", ()))})
            for e in data.get("explanations", ())
        )
        fixed["mismatches"] = tuple(Mismatch(**{**m, "index": tuple(m["index"])}) for m in data.get("mismatches", ()))
        for name in ("faults", "malformed", "follows", "notes"):
            fixed[name] = tuple(data.get(name, ()))
        if tried := data.get("open_answers"):
            fixed["open_answers"] = OpenAnswers(**{**tried, "tried": tuple(tried["tried"])})
        return cls(**fixed)


@dataclass
class Ledger:
    """A run: what was planned, what came of it, and where."""

    plan: list[str]
    rows: list[Row]
    devices: dict[str, dict[str, Any]]  #: by target: what the child said of its surroundings
    options: dict[str, Any]
    golden: str  #: sha256 of the golden manifest
    unselected: list[str] = field(default_factory=list)  #: ``test[cell]`` that -k, -m and the like left out
    missing: dict[str, str] = field(default_factory=dict)  #: modules of kernels that could not be loaded, and why

    @property
    def unrun(self) -> list[str]:
        """Ids that were planned and have no row: the process that should have run them ended before."""
        have = {row.id for row in self.rows}
        return [i for i in self.plan if i not in have]

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "narrowgauge": __version__,
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "options": self.options,
            "golden_manifest_sha256": self.golden,
            "devices": self.devices,
            "missing": self.missing,
            "unselected": self.unselected,
            "plan": sorted(self.plan),
            "not_run": sorted(self.unrun),
            "rows": [row.to_json() for row in sorted(self.rows, key=lambda r: r.id)],
        }

    def write(self, path: Path) -> None:
        write_whole(path, (json.dumps(self.to_json(), indent=1, sort_keys=True) + "\n").encode())


def common_faults(rows: Sequence[Row]) -> tuple[str, ...]:
    """The faults that explain every difference of several rows completely: candidates intersected over all cases."""
    sets = [set(row.faults) if row.left == 0 else set() for row in rows if row.differences]
    return tuple(sorted(set.intersection(*sets))) if sets else ()
