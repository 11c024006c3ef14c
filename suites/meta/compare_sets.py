"""Rows, ledgers and results directories for the tests of ``compare``: made by hand, so that what is right is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from narrowgauge.ci import records
from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.ci.records import Cell, Plan, RunRecord

E4M3, FNUZ = "float8_e4m3fn", "float8_e4m3fnuz"
#: what children say of themselves, as far as it matters here
DEVICE = {"versions": {"torch": "2.13.0", "triton": "3.9.0"}, "torch": {"git": "abc"}, "gpus": []}


def row(target: str, digest: str = "d1", **values: Any) -> Row:
    """A cast of kernel "k" that passed, but for what is given."""
    made = Row(
        id="", operation="cast", rule="ocp_saturate", source="float32", format=E4M3, case="edges", kernel="k",
        owner="", own=False, target=target, device=target, how="executed", backend="torch", result="passed",
        outcome="returned", elements=10, digest=digest,
    )  # fmt: skip
    made = replace(made, **values)
    inside = f"{made.source}-{made.format}-{made.case}-{made.kernel}-{made.target}"
    claim = values.get("claim", f"{made.operation}/{made.rule}/{made.source}/{made.format}")
    return replace(made, id=f"narrowgauge/suites/casts/test_casts.py::test_cell[{inside}]", claim=claim)


def failed(target: str, digest: str = "d2", **values: Any) -> Row:
    """The same with all infinities wrong."""
    wrong: dict[str, Any] = {"differences": {"nan": 2}, "faults": ("cast.infinity_to_nan",), "result": "failed"}
    return row(target, digest, **{**wrong, **values})


def unexecuted(target: str, reason: str = "no such instruction", **values: Any) -> Row:
    return row(target, "", result="not_executed", outcome="not_executed", reason=reason, elements=0, **values)


def ledger(path: Path, rows: Sequence[Row], plan: Sequence[str] = (), **changes: Any) -> Path:
    """A ledger file of these rows; ``plan`` has ids without a row; ``changes`` are fields of the file."""
    devices: dict[str, dict[str, Any]] = {each.target: DEVICE for each in rows}
    made = Ledger([r.id for r in rows] + list(plan), list(rows), devices, {"depth": "smoke"}, "0" * 64).to_json()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**made, **changes}))
    return path


def results(path: Path, rows: Sequence[Row], *, shards: Sequence[Sequence[Row]] = (), **run: Any) -> Path:
    """A results directory of a lane, as ``narrowgauge run`` leaves it: of ``shards`` the one that ``run`` names ran."""
    each = list(shards) or [list(rows)]
    cells = tuple(
        Cell(r.id, number, r.operation, r.rule, r.source, r.format, r.case, r.kernel, r.owner, r.own, r.target)
        for number, of in enumerate(each, 1)
        for r in of
    )
    target = rows[0].target if rows else run.get("target", "sm_90")
    plan = Plan("cuda", target, "standard", len(each), cells)
    record = RunRecord(
        **{
            "lane": "cuda", "target": target, "shard": 1, "shards": len(each), "attempt": 1, "depth": "standard",
            "state": "finished", "started": "2026-11-30T02:00:00+00:00", "narrowgauge": "0.1.0", "golden": "0" * 64,
            "plan": plan.digest, "versions": {"torch": "2.13.0"}, **run,
        }
    )  # fmt: skip
    path.mkdir(parents=True)
    records.write_json(path / records.RUN, record.to_json())
    records.write_json(path / records.PLAN, plan.to_json())
    ends = [{"event": "end", "id": r.id, "outcome": "passed", "seconds": 0.1, "row": r.to_json()} for r in rows]
    begins = [{"event": "begin", "id": r.id, "worker": "main"} for r in rows]
    (path / records.JOURNAL).write_text("".join(json.dumps(event) + "\n" for event in (*begins, *ends)))
    return path
