"""Judge one answer: check its form, compare, diagnose, and say what it rests on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Observe
from narrowgauge.contracts.verdict import Mismatch, Verdict
from narrowgauge.reference.behaviour import candidates, standing_of
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.diagnosis import explain
from narrowgauge.reference.expected import Expected, expected
from narrowgauge.reference.fast_codec import decode_values

#: how many differing elements a verdict lists
LISTED = 10


def judge(
    claim: Claim,
    x: Coded,
    got: Mapping[str, Coded],
    malformed: tuple[str, ...] = (),
    want: Expected | None = None,
) -> Verdict:
    """The verdict on what a kernel returned for ``x``.

    ``malformed`` is what the device already found. ``want`` replaces the reference's own expectation (by vectors).
    """
    observed = isinstance(claim.contract, Observe)
    if want is None:
        want = expected(candidates(claim)[0] if observed else claim, x)
    malformed = malformed or form_of(got, want)
    if malformed:
        authority = "the contract's shapes and formats" if observed else standing_of(claim).authority
        return Verdict("failed", str(claim), authority, malformed=malformed, breaks="its own claim")
    return _observe(claim, x, got) if observed else _hold_to(claim, x, got, want)


def form_of(got: Mapping[str, Coded], want: Expected) -> tuple[str, ...]:
    """What is wrong with an answer before any value is looked at: outputs missing, shapes, storage types."""
    wrong = [f"{name} was not returned" for name in want if name not in got]
    wrong += [f"returned {name!r}, which the contract does not have" for name in got if name not in want]
    for name in want.keys() & got.keys():
        shape, storage = want[name].low.shape, format_named(want[name].format).storage
        if got[name].shape != shape:
            wrong.append(f"{name} misshaped: got {list(got[name].shape)}, want {list(shape)}")
        elif got[name].format != want[name].format:
            wrong.append(f"{name} is {got[name].format}, want {want[name].format}")
        elif got[name].data.dtype.kind not in "ui":
            wrong.append(f"{name} came as {got[name].data.dtype}, want codes ({storage})")
    return tuple(wrong)


def _hold_to(claim: Claim, x: Coded, got: Mapping[str, Coded], want: Expected) -> Verdict:
    standing = standing_of(claim)
    elements = sum(interval.low.data.size for interval in want.values())
    difference = compare(got, want)
    if difference.total == 0:
        return Verdict("passed", str(claim), standing.authority, elements, digest=digest(dict(got)))
    return Verdict(
        result="disputed" if standing.evidence == "document" else "failed",
        claim=str(claim),
        authority=standing.authority,
        elements=elements,
        differences=difference.counts,
        explanations=explain(claim, x, got, difference),
        mismatches=tuple(mismatches(x, got, want, difference)),
        breaks=standing.breaks,
        digest=digest(dict(got)),
    )


def _observe(claim: Claim, x: Coded, got: Mapping[str, Coded]) -> Verdict:
    """Which named rules give exactly these outputs, and where the nearest one parts."""
    apart = {c.rule: compare(got, expected(c, x)) for c in candidates(claim)}
    follows = tuple(rule for rule, difference in apart.items() if difference.total == 0)
    nearest = min(apart, key=lambda rule: apart[rule].total)
    reason = f"follows {', '.join(follows)}"
    if not follows:
        counts = ", ".join(f"{n} {kind}" for kind, n in apart[nearest].counts.items())
        reason = f"follows no named rule; nearest is {nearest}, which parts in {counts}"
    elements = sum(value.data.size for value in got.values())
    return Verdict(
        "passed", str(claim), "an observation: nothing is claimed", elements,
        reason=reason, digest=digest(dict(got)), follows=follows,
    )  # fmt: skip


def mismatches(x: Coded, got: Mapping[str, Coded], want: Expected, difference: Difference) -> list[Mismatch]:
    """The first differing elements, a few of each class, with what went in."""
    listed: list[Mismatch] = []
    for name, classes in difference.classes.items():
        numbers = np.unique(classes[classes != 0])
        for number in numbers:
            for place in np.argwhere(classes == number)[: max(1, LISTED // len(numbers))]:
                index = tuple(int(i) for i in place)
                low, high = want[name].low, want[name].high
                ends = [show(Coded(c.format, c.data[index])) for c in (low, high)]
                listed.append(
                    Mismatch(
                        output=name,
                        index=index,
                        kind=difference.kind(name, index),
                        input=_input_of(x, index, classes.shape),
                        got=show(Coded(got[name].format, got[name].data[index])),
                        want=ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}",
                    )
                )
    return listed


def _input_of(x: Coded, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The element that the output element came from, or the row for an output that has one value per row."""
    if shape == x.shape:
        return show(Coded(x.format, x.data[index]))
    row = decode_values(x.take(np.array([index[0]])))
    magnitudes = np.abs(row[~np.isnan(row)])
    return f"row {index[0]}, largest magnitude {magnitudes.max(initial=0.0):.9g}"


def show(element: Coded) -> str:
    """A single element as value and bits: ``448 (0x7e)``."""
    fmt = format_named(element.format)
    code = int(element.data)
    if not 0 <= code < fmt.code_count:
        return f"{code:#x}, no code"
    value = float(decode_values(Coded(fmt.name, np.array([code], fmt.storage)))[0])
    return f"{value:.9g} ({code:#0{2 + fmt.bits // 4}x})"


def check_claim(claim: Claim) -> None:
    """Raise ``BadInput`` for a claim whose rule does not exist or does not fit its formats."""
    if isinstance(claim.contract, Observe):
        if not candidates(claim):
            raise BadInput(f"{claim}: no named rule has destination {claim.format}; there is nothing to compare with")
        return
    standing_of(claim)
    expected(claim, Coded(claim.source, np.zeros((0, 1), format_named(claim.source).storage)))
