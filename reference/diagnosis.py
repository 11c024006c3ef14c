"""Which faults explain what a kernel returned.

Faults are tried on a witness first: a cut of the tensor that holds every class of difference and some agreement.
Those that survive are tried on everything. Two faults together are tried only where no single one explains all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Explanation
from narrowgauge.reference.behaviour import Behaviour, behaviour_of, blocks_of
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.expected import outputs_of
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.listing import input_of, show

Rows = npt.NDArray[np.intp]
#: how many rows of each class of difference a witness takes, and how many rows that agree
PER_CLASS, AGREEING = 64, 256


@dataclass(frozen=True)
class _Candidate:
    """A fault, or two, as the behaviour that they make."""

    name: str
    behaviour: Behaviour


def explain(claim: Claim, x: Coded, got: Mapping[str, Coded], difference: Difference) -> tuple[Explanation, ...]:
    """Explanations of a difference, best first; empty where no fault accounts for any of it.

    A complete one reproduces every output. A partial one is given only where it leaves less than it found.
    """
    right = behaviour_of(claim)
    # where rows share a scale, a cut of them is another matrix
    rows = _witness(difference) if right.recipe is None or right.recipe.by_rows else np.arange(x.shape[0])
    few = x.take(rows)
    few_got = {name: value.take(rows) if value.shape[0] == x.shape[0] else value for name, value in got.items()}
    singles = list(_single_faults(right))
    survivors = [c for c in singles if _left(c, few, few_got) == 0]
    complete = [c for c in survivors if _left(c, x, got) == 0]
    if not complete:
        survivors = [c for c in _pairs(right, singles) if _left(c, few, few_got) == 0]
        complete = [c for c in survivors if _left(c, x, got) == 0]
    if complete:
        names = tuple(c.name for c in complete)
        return (Explanation(names, difference.total, 0, _separating_input(claim, complete)),)
    return _partial(singles, x, got, difference)


def _single_faults(right: Behaviour) -> Iterable[_Candidate]:
    for name, fault in FAULTS.items():
        wrong = fault.applied_to(right)
        if wrong is not None:
            yield _Candidate(name, wrong)


def _pairs(right: Behaviour, singles: list[_Candidate]) -> Iterable[_Candidate]:
    for first, second in combinations(singles, 2):
        both = FAULTS[second.name].applied_to(first.behaviour)
        if both is not None:
            yield _Candidate(f"{first.name} + {second.name}", both)


def _witness(difference: Difference) -> Rows:
    """Rows (of the first axis) that show each class of difference in each output, and some that show none."""
    chosen: list[Rows] = []
    agrees = np.ones(next(iter(difference.classes.values())).shape[0], np.bool_)
    for classes in difference.classes.values():
        rows = classes.reshape(len(agrees), -1)
        agrees &= ~rows.any(axis=1)
        for number in np.flatnonzero(np.bincount(rows.ravel())[1:]) + 1:
            chosen.append(spread(np.flatnonzero((rows == number).any(axis=1)), PER_CLASS))
    return np.unique(np.concatenate([*chosen, spread(np.flatnonzero(agrees), AGREEING)]))


def spread(rows: Rows, most: int) -> Rows:
    """At most so many of the rows, spread evenly, first and last among them."""
    if rows.size <= most:
        return rows
    return rows[np.linspace(0, rows.size - 1, most).astype(np.intp)]


def _difference(candidate: _Candidate, x: Coded, got: Mapping[str, Coded]) -> Difference:
    return compare(got, outputs_of(candidate.behaviour, x))


def _left(candidate: _Candidate, x: Coded, got: Mapping[str, Coded]) -> int:
    """How many elements the kernel returned otherwise than this fault would."""
    return _difference(candidate, x, got).total


def _partial(
    singles: list[_Candidate], x: Coded, got: Mapping[str, Coded], difference: Difference
) -> tuple[Explanation, ...]:
    """The faults that leave the least, if they leave less than there was."""
    found: list[Explanation] = []
    for candidate in singles:
        rest = _difference(candidate, x, got)
        explained = sum(int(np.count_nonzero(difference.mask(name) & ~rest.mask(name))) for name in difference.classes)
        if rest.total < difference.total:
            found.append(Explanation((candidate.name,), explained, rest.total))
    found.sort(key=lambda e: (e.left, -e.explained))
    best = [e for e in found if (e.left, e.explained) == (found[0].left, found[0].explained)]
    if not best:
        return ()
    together = tuple(name for e in best for name in e.faults)
    return (Explanation(together, best[0].explained, best[0].left), *found[len(best) : len(best) + 2])


def _separating_input(claim: Claim, same: list[_Candidate]) -> str:
    """An input on which faults that agreed here would differ, or the statement that none was found."""
    if len(same) < 2:
        return ""
    first = same[0]
    for case, x in cases_for(claim, "smoke").items():
        want = outputs_of(first.behaviour, x)
        for other in same[1:]:
            outputs = other.behaviour.run(x)
            apart = compare(outputs, want)
            for name, classes in apart.classes.items():
                if classes.any():
                    index = tuple(int(i) for i in np.argwhere(classes)[0])
                    one, two = (show(Coded(c.format, c.data[index])) for c in (want[name].low, outputs[name]))
                    where = (
                        f"{input_of(x, index, classes.shape, blocks_of(claim))}, {name}{list(index)} of case {case!r}"
                    )
                    return f"{where}: {first.name} gives {one}, {other.name} gives {two}"
    return "no input of the suite's cases separates them for this claim: they are one fault here"
