"""Judge one answer: check its form, compare, diagnose, and say what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Cast, Claim, Convert, Matmul, Observe, OfCache, Then, WideOp
from narrowgauge.contracts.outcome import CHOICES
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.reference.behaviour import (
    behaviour_of,
    candidates,
    converting_of,
    multiplying_of,
    promised,
    standing_of,
)
from narrowgauge.reference.choices import choices_of, mistaken
from narrowgauge.reference.compare import compare
from narrowgauge.reference.convert.memory import check_packed
from narrowgauge.reference.diagnosis import explain
from narrowgauge.reference.distance import figures
from narrowgauge.reference.expected import expected
from narrowgauge.reference.form import form_of, observed_form
from narrowgauge.reference.identify import Seen, rules_apart, their_names
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.listing import mismatches
from narrowgauge.reference.matmul import memory as product_memory
from narrowgauge.reference.memory import check_layouts
from narrowgauge.reference.open_answers import open_answers
from narrowgauge.reference.probes.claimed import check_named
from narrowgauge.reference.wide.run import quantizable


def judge(
    claim: Claim,
    x: Coded,
    got: Mapping[str, Coded],
    malformed: tuple[str, ...] = (),
    want: Expected | None = None,
    models: Mapping[str, bool] | None = None,
    again: Callable[[], Mapping[str, Mapping[str, Coded]]] = dict,
    explained: bool = True,
) -> Verdict:
    """The verdict on what a kernel returned for ``x``.

    ``malformed`` is what the device already found. ``want`` replaces the reference's own expectation (by vectors).
    ``models``: of instructions, which an emulated kernel passed through; where one was open (True) another answer may
    have been right. On a mismatch ``again`` is asked for the outputs under other answers, by choice; what differs is
    "disputed" where they explain it, or where there are none. Without ``explained`` no fault is sought.
    """
    observed = isinstance(claim.contract, Observe)
    emulated = dict(models or {})
    if observed:
        want = None
        malformed = malformed or observed_form(candidates(claim), x, got)
    else:
        want = expected(claim, x) if want is None else want
        malformed = malformed or form_of(got, want)
    if malformed:
        authority = "the contract's shapes and formats" if observed else standing_of(claim).authority
        return Verdict("failed", str(claim), authority, malformed=malformed, breaks="its own claim", models=emulated)
    if want is None:
        return replace(_observe(claim, x, got), models=emulated)
    verdict = _hold_to(claim, x, got, want, explained)
    if verdict.result != "passed" and any(emulated.values()):
        verdict = _with_open_answers(verdict, got, want, again())
    return replace(verdict, models=emulated)


def _with_open_answers(
    verdict: Verdict, got: Mapping[str, Coded], want: Expected, others: Mapping[str, Mapping[str, Coded]]
) -> Verdict:
    """A mismatch behind open answers is disputed, unless other answers were tried and leave some of it unexplained."""
    if "not_a_code" in verdict.differences:
        return verdict  # no answer of an instruction makes a number that is none of the format's
    others = {c: o for c, o in others.items() if not form_of(o, want) and all(each.well_formed for each in o.values())}
    if not others:
        return replace(verdict, result="disputed")
    found = open_answers(compare(got, want), want, {CHOICES[0]: got, **others})
    return replace(verdict, open_answers=found, result=verdict.result if found.beyond else "disputed")


def _hold_to(claim: Claim, x: Coded, got: Mapping[str, Coded], want: Expected, explained: bool) -> Verdict:
    standing = standing_of(claim)
    elements = sum(interval.low.data.size for interval in want.values())
    difference = compare(got, want)
    if difference.total == 0:
        verdict = Verdict("passed", str(claim), standing.authority, elements, digest=digest(dict(got)))
        return replace(verdict, figures=figures(got, want, difference)) if explained else verdict
    explanations = explain(claim, x, got, difference) if explained else ()
    told = not explained or claim.operation != Cast.operation or (bool(explanations) and explanations[0].complete)
    return Verdict(
        result="disputed" if standing.evidence == "document" else "failed",
        claim=str(claim),
        authority=standing.authority,
        elements=elements,
        differences=difference.counts,
        explanations=explanations,
        mismatches=tuple(mismatches(claim, x, got, want, difference)),
        breaks=standing.breaks,
        reason="" if told else _other_choices(claim, x, got["codes"]),
        digest=digest(dict(got)),
        figures=figures(got, want, difference) if explained else {},
    )


def _other_choices(claim: Claim, x: Coded, got: Coded) -> str:
    """Where a cast of other choices gives exactly these codes: in which ones it parts from the contract."""
    flat, codes = Coded(x.format, x.data.ravel()), Coded(got.format, got.data.ravel())
    right = behaviour_of(claim)
    choices = choices_of(flat, codes, compare({"codes": codes}, expected(claim, flat)))
    if choices is None or choices.left:
        return ""
    return f"exactly the contract but for: {mistaken(right.policy, choices)}"


def _observe(claim: Claim, x: Coded, got: Mapping[str, Coded]) -> Verdict:
    """Which named rules give exactly these outputs, and in how much the nearest one parts."""
    rules = rules_apart(claim, [Seen(x, got)])
    follows = their_names(claim, (r for r in rules if r.total == 0))
    reason = f"follows {', '.join(follows)}"
    if not follows:
        nearest = min(rules, key=lambda r: r.total)
        counts = ", ".join(f"{n} {kind}" for kind, n in nearest.counts.items())
        reason = f"follows no named rule; nearest is {nearest.names[0]}, which parts in {counts}"
    elements = sum(value.data.size for value in got.values())
    return Verdict(
        "passed", str(claim), "an observation: nothing is claimed", elements,
        reason=reason, digest=digest(dict(got)), follows=follows,
    )  # fmt: skip


def check_claim(claim: Claim) -> None:
    """Raise ``BadInput`` for a claim whose rule does not exist or does not fit its formats."""
    if isinstance(claim.contract, Observe):
        if not candidates(claim):
            raise BadInput(f"{claim}: no named rule has destination {claim.format}; there is nothing to compare with")
        return
    standing_of(claim)
    if isinstance(claim.contract, OfCache | WideOp):
        promised(claim)
        return
    if isinstance(claim.contract, Convert):
        check_packed(converting_of(claim).conversion, claim.source, claim.format)
        return
    if isinstance(claim.contract, Matmul):
        product_memory.check_packed(multiplying_of(claim).product, claim.source, claim.format)
        check_named(dict(claim.contract.portrait))
        return
    if behaviour_of(claim).policy.rounding == "stochastic":
        raise BadInput(
            f"{claim}: a stochastic cast cannot be judged: nobody hands a kernel the random bits to round by, so "
            "no code is the expected one; reference.codec.encode takes them as RandomBits"
        )
    if isinstance(claim.contract, Then):
        quantizable(claim.contract.first, f"claim {claim}")
    check_layouts(claim)
