"""Result files of Allure: those that a run wrote, read and mended, and those of cells that have none."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from narrowgauge.ci.allure.identity import CELL, Identity
from narrowgauge.ci.ledger import Row
from narrowgauge.ci.records import Cell, End, RunRecord
from narrowgauge.contracts.failures import FAILURES
from narrowgauge.contracts.verdict import Result

Json = dict[str, Any]
#: Allure's words for results. A waived cell is a failure that somebody accepted; Allure says so of failures alone
STATUS: dict[Result, str] = {
    "passed": "passed", "failed": "failed", "waived": "failed", "disputed": "skipped", "not_executed": "skipped",
}  # fmt: skip
#: of two results of one cell the worse is kept: a second try that passed mends nothing
WORST_FIRST = ("failed", "broken", "unknown", "skipped", "passed")
#: how many faults that cannot be told apart a label names
SPELLED_OUT = 4
#: the label that holds our word for a result
RESULT = "result"


def read_result(path: Path) -> Json | None:
    """A result file; None where it is cut or none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found["status"], str) and _is_whole(found) else None
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def _is_whole(result: Mapping[str, Any]) -> bool:
    """Whether what is read of a result, or of a step of it, are lists of objects."""
    lists = [result.get(name, []) for name in ("labels", "attachments", "steps")]
    return all(isinstance(one, Mapping) for each in lists for one in each) and all(map(_is_whole, lists[-1]))


def label_of(result: Mapping[str, Any], name: str) -> str:
    """The first label of that name; "" without one."""
    return next((str(each.get("value", "")) for each in result.get("labels", ()) if each.get("name") == name), "")


def mended(result: Json) -> Json:
    """A result as the report has it: what is waived is a failure."""
    word = label_of(result, RESULT)
    return {**result, "status": STATUS["waived"]} if word == "waived" else result


def worse(one: Json, other: Json) -> Json:
    """Of two results of one cell, the worse; of equal ones, the first."""
    order = {status: place for place, status in enumerate(WORST_FIRST)}
    return min(one, other, key=lambda result: order.get(result["status"], 0))


def held(result: Json, end: End) -> Json:
    """A result as the journal has it, where that is worse than what its file says."""
    if end.row is None or (end.outcome in ("failed", "error") and end.row.result == "passed"):
        status, said = "broken", end.message.strip() or f"ended as {end.outcome!r} without a verdict"
    else:
        status, said = STATUS[end.row.result], _found(end.row)
    message = f"[NO-RESULT] the journal says {said}; the file of this result says {result['status']}"
    return worse(result, {**result, "status": status, "statusDetails": {"message": message}})


def attachments(result: Mapping[str, Any]) -> list[str]:
    """Names of the files that a result refers to, those of its steps too."""
    own = [str(each.get("source", "")) for each in result.get("attachments", ())]
    return own + [name for step in result.get("steps", ()) for name in attachments(step)]


def stub(cell: Cell, code: str, said: str, run: RunRecord | None) -> Json:
    """A broken result of a cell that left none, with the reason: a word of ``FAILURES``, and what is known."""
    message = f"[{code}] {Identity(cell).name}, on {cell.target}: {FAILURES[code]}{f'; {said}' if said else ''}"
    return _made(cell, "broken", message, run, [("family", code), (RESULT, "lost"), ("severity", "critical")])


def from_end(cell: Cell, end: End, run: RunRecord | None) -> Json:
    """The result of a cell that ended, and whose own file is missing or cut: what the journal says of it."""
    if end.row is None:
        return stub(cell, "LOST", end.message.strip(), run)
    row = end.row
    labels = [("family", "NO-RESULT"), (RESULT, row.result), *fault_of(row)]
    known = _found(row)
    message = f"[NO-RESULT] {Identity(cell).name}, on {cell.target}: {FAILURES['NO-RESULT']}; the journal says {known}"
    return _made(cell, STATUS[row.result], message, run, labels)


def fault_of(row: Row) -> list[tuple[str, str]]:
    """The label by which categories group what is wrong. One for faults that cannot be told apart: of several labels
    Allure takes the last, and a page that names one of them would blame it."""
    return [("fault", " or ".join(row.faults[:SPELLED_OUT]))] if row.faults else []


def _found(row: Row) -> str:
    faults = f" by {', '.join(row.faults)}" if row.faults else ""
    return f"{row.result.replace('_', ' ')}{faults}{f': {row.reason}' if row.reason else ''}"


def of_a_run(name: str, code: str, said: Sequence[str], run: RunRecord | None) -> Json:
    """The broken result of a run that judged nothing, by itself, since nothing of it may be in a plan."""
    message = "\n".join([f"[{code}] {name}: {FAILURES[code]}", *said])
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    labels = [("epic", "runs"), ("feature", name), ("severity", "blocker"), ("family", code)]
    body = _body(f"run of {name}", "broken", message, run, labels)
    return {**body, "fullName": "narrowgauge.run", "testCaseId": digest, "historyId": digest, "parameters": []}


def _made(cell: Cell, status: str, message: str, run: RunRecord | None, labels: list[tuple[str, str]]) -> Json:
    identity = Identity(cell)
    tags = [("tag", marker) for marker in cell.markers]
    return {
        **_body(identity.name, status, message, run, [*identity.labels, *labels, *tags]),
        "fullName": identity.full_name,
        "testCaseId": identity.test_case_id,
        "historyId": identity.history_id,
        "parameters": identity.parameters,
    }


def _body(name: str, status: str, message: str, run: RunRecord | None, labels: list[tuple[str, str]]) -> Json:
    at = milliseconds(run.ended or run.started) if run is not None else 0
    return {
        "name": name,
        "status": status,
        "statusDetails": {"message": message},
        "start": at,
        "stop": at,
        "labels": [{"name": n, "value": v} for n, v in labels],
    }


def milliseconds(moment: str) -> int:
    """Since 1970, of a time in ISO 8601; 0 for what is none."""
    try:
        return int(1000 * datetime.datetime.fromisoformat(moment).timestamp())
    except ValueError:
        return 0


def id_of(result: Mapping[str, Any]) -> str:
    """The cell of a result; "" for one that is none of ours."""
    return label_of(result, CELL)
