"""Nights that are made for tests of reports: cells, rows, and results directories as runs leave them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from narrowgauge.ci.allure.gather import RESULTS
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import JOURNAL, PLAN, RUN, Cell, Plan, RunRecord, write_json

TEST = "narrowgauge/suites/casts/test_casts.py::test_cell"


def cell(case: str = "edges", target: str = "sm_90", shard: int = 1, **values: Any) -> Cell:
    who = {"kernel": "k", "owner": "o", "own": False, "rule": "ocp_saturate", "operation": "cast"}
    made = Cell(
        "", shard, **{**who, **values}, source="float32", format="float8_e4m3fn", case=case, target=target,
        markers=("cast",),
    )  # fmt: skip
    return replace(made, id=f"{TEST}[float32-float8_e4m3fn-{case}-{made.kernel}-{target}]")


def row(of: Cell, **values: Any) -> Row:
    taken = {n: getattr(of, n) for n in ("id", "operation", "rule", "source", "format", "case", "kernel", "owner")}
    fixed = {"own": False, "device": "cuda:0", "how": "executed", "backend": "torch", "result": "passed"}
    return Row(**{**taken, **fixed, "target": of.target, **values})


RUNS = RunRecord(
    lane="cuda", target="sm_90", shard=1, shards=2, attempt=1, depth="smoke", state="finished",
    started="2026-11-30T20:00:00+00:00", golden="a" * 64, gpus=("H100", "H100"), versions={"torch": "2.13.0"},
)  # fmt: skip


def night(
    folder: Path,
    cells: tuple[Cell, ...],
    ends: Mapping[str, Row | str | None],
    files: Mapping[str, str] | None = None,
    **run: Any,
) -> Path:
    """A results directory. ``ends``: by id a row, a message of a test without one, or None for one that only began.
    ``files``: statuses by id, of result files; by default one for each row, by what it says."""
    folder.mkdir()
    made = replace(RUNS, **run)
    write_json(folder / RUN, made.to_json())
    write_json(folder / PLAN, Plan(made.lane, made.target, "smoke", made.shards, cells).to_json())
    lines: list[dict[str, Any]] = []
    for name, end in ends.items():
        lines.append({"event": "begin", "id": name})
        if end is not None:
            row_of, said = (end.to_json(), "") if isinstance(end, Row) else (None, end)
            outcome = "error" if row_of is None else "passed"
            lines.append(
                {"event": "end", "id": name, "outcome": outcome, "seconds": 1.0, "row": row_of, "message": said}
            )
    (folder / JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / RESULTS).mkdir()
    if files is None:
        files = {name: end.result for name, end in ends.items() if isinstance(end, Row)}
    for number, (name, status) in enumerate(files.items()):
        (folder / RESULTS / f"{number}-result.json").write_text(json.dumps(result(name, status)))
    return folder


def result(name: str, word: str) -> dict[str, Any]:
    """A result file as allure-pytest writes it: what is waived is skipped."""
    labels = [{"name": "cell", "value": name}, {"name": "result", "value": word}]
    status = "skipped" if word in ("waived", "disputed", "not_executed") else word
    return {"name": name, "status": status, "labels": labels, "statusDetails": {"message": "[TIES] x"}}


def message(results: Mapping[str, Any], name: str) -> str:
    return str(results[name]["statusDetails"]["message"])
