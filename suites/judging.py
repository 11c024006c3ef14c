"""Run one cell of the plan and make its ledger row and message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from narrowgauge.ci.ledger import Row
from narrowgauge.ci.waivers import Waiver
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Cast, Observe
from narrowgauge.contracts.outcome import CHOICES, Choice, Outcome
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.expected import expected
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.judge import judge
from narrowgauge.reference.memory import from_memory, in_memory, to_memory
from narrowgauge.reference.message import failure_message
from narrowgauge.reference.portrait import portrait
from narrowgauge.suites.planning import Planned
from narrowgauge.suites.scripts import standalone


@dataclass(frozen=True)
class Judged:
    """A ledger row with what goes beside it: the message, the script, and the codes that went in, came out, and should
    have come out where some did not."""

    row: Row
    message: str = ""
    script: str = ""
    x: Coded | None = None
    outputs: dict[str, Coded] | None = None
    want: Expected | None = None
    memory: dict[str, Coded] | None = None  #: outputs as they lay in memory


def run_cell(
    planned: Planned, x: Coded, want: Expected | None = None, timeout: float = 60.0, explained: bool = True
) -> Judged:
    """Run a kernel on ``x`` and judge what comes back, against the reference or against ``want``. Without
    ``explained`` a mismatch has no explanation, message or script, and costs little."""
    if planned.hindrance:
        return not_run(planned, planned.hindrance)
    claim, sent, form = resolved(planned.claim), to_memory(planned.claim, x), in_memory(planned.claim, x)

    def run(choice: Choice) -> Outcome:
        """The outcome, with outputs as matrices."""
        outcome = planned.device.run(planned.plugged, claim, sent, timeout, choice, form, planned.view)
        if outcome.kind != "returned" or outcome.malformed:
            return outcome
        outputs, wrong = from_memory(claim, x, outcome.outputs)
        return replace(outcome, outputs=outputs, memory=outcome.outputs, malformed=wrong)

    outcome = run(CHOICES[0])
    if outcome.kind == "raised" and planned.view != "contiguous":  # to refuse strides is no wrong answer
        return not_run(planned, f"it refuses a matrix that is not contiguous ({planned.view}): {outcome.reason}")
    if outcome.kind == "not_executed":
        return Judged(_row(planned, outcome, result="not_executed", reason=outcome.reason))
    if outcome.kind != "returned":
        reason = f"{outcome.kind}: {outcome.reason}"
        said = f"\nthe process said last:\n{outcome.said}" if outcome.said else ""
        message = f"[{outcome.kind.upper()}] {planned.subject}: {outcome.reason}{said}"
        return Judged(_row(planned, outcome, result="failed", reason=reason, breaks="its own claim"), message, x=x)

    def again() -> dict[str, dict[str, Coded]]:
        """Outputs under other answers of the models."""
        others = {choice: run(choice) for choice in CHOICES[1:]}
        return {c: other.outputs for c, other in others.items() if other.kind == "returned" and not other.malformed}

    verdict = judge(planned.claim, x, outcome.outputs, outcome.malformed, want, outcome.models, again, explained)
    verdict = replace(verdict, notes=outcome.notes)
    return _judged(planned, x, want, outcome, verdict) if explained else _told(planned, x, outcome, verdict)


def not_run(planned: Planned, reason: str) -> Judged:
    """The row of a cell that was not tried."""
    return Judged(_row(planned, Outcome("not_executed"), result="not_executed", reason=reason))


def judged_by(planned: Planned, verdict: Verdict, wrong: str) -> Judged:
    """The row of a cell on which something else than codes decides; ``wrong`` says what is, "" for nothing."""
    message = f"[{verdict.result.upper()}] {planned.subject}: {wrong}\nauthority: {verdict.authority}" if wrong else ""
    return Judged(_row(planned, Outcome("returned"), verdict=verdict, reason=wrong), message)


def _told(planned: Planned, x: Coded, outcome: Outcome, verdict: Verdict) -> Judged:
    """The row alone."""
    return Judged(_row(planned, outcome, verdict=verdict), x=x, outputs=outcome.outputs)


def _judged(planned: Planned, x: Coded, want: Expected | None, outcome: Outcome, verdict: Verdict) -> Judged:
    row = _row(planned, outcome, verdict=verdict)
    if planned.claim.operation == Cast.operation and not verdict.malformed and "not_a_code" not in verdict.differences:
        row = replace(row, portrait=portrait(x, outcome.outputs["codes"]))
    if verdict.result == "passed":
        return Judged(row, x=x, outputs=outcome.outputs)
    script, rightly = "", None
    if not isinstance(planned.claim.contract, Observe):
        rightly = want or expected(planned.claim, x)
        where, case = planned.device.target, planned.case
        script = standalone(planned.plugged, planned.claim, where, case, x, verdict, planned.view)
    message = failure_message(verdict, planned.subject, script)
    return Judged(row, message, script, x, outcome.outputs, rightly, outcome.memory)


def _row(planned: Planned, outcome: Outcome, *, verdict: Verdict | None = None, **values: object) -> Row:
    kernel, claim = planned.plugged.kernel, planned.claim
    row = Row(
        id=planned.id,
        operation=claim.operation,
        rule=claim.rule,
        source=claim.source,
        format=claim.format,
        case=planned.case,
        kernel=kernel.name,
        owner=kernel.owner,
        own=planned.plugged.own,
        target=planned.device.target,
        device=planned.device.id,
        how=planned.device.how,
        claim=str(claim),
        backend=kernel.backend,
        distribution=planned.plugged.distribution,
        outcome=outcome.kind,
        seconds=round(outcome.seconds, 4),
        notes=outcome.notes,
        result="not_executed",
    )
    row = row if verdict is None else with_verdict(row, verdict)
    return replace(row, **values)  # type: ignore[arg-type]


def with_verdict(row: Row, verdict: Verdict) -> Row:
    """A row with what the judge found."""
    best = verdict.explanations[0] if verdict.explanations else None
    return replace(
        row,
        result=verdict.result,
        authority=verdict.authority,
        breaks=verdict.breaks,
        elements=verdict.elements,
        differences=verdict.differences,
        faults=best.faults if best else (),
        explained=best.explained if best else 0,
        left=best.left if best else verdict.differing,
        explanations=verdict.explanations,
        mismatches=verdict.mismatches,
        malformed=verdict.malformed,
        follows=verdict.follows,
        models=verdict.models,
        open_answers=verdict.open_answers,
        reason=verdict.reason or "; ".join(verdict.malformed),
        digest=verdict.digest,
        figures=verdict.figures,
    )


def waived(judged: Judged, waivers: Sequence[Waiver], versions: dict[str, str]) -> Judged:
    """The same after the waivers: a mismatch that one covers is waived, a success that one covers is an error.

    A waiver is for wrong codes. What crashed, hung, raised or came in a wrong form is another failure, and stays one.
    """
    row = judged.row
    if row.outcome != "returned" or row.malformed or row.result not in ("failed", "passed"):
        return judged
    for waiver in waivers:
        if not waiver.covers(row.id, row.kernel, row.target, versions):
            continue
        if row.result == "failed":
            return replace(judged, row=replace(row, result="waived", waiver=waiver.link, reason=waiver.reason))
        row = replace(row, result="failed", reason=waiver.stale)
        return replace(judged, row=row, message=f"[STALE-WAIVER] {waiver.stale}")
    return judged
