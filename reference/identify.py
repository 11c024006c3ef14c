"""What a kernel is, whatever it claims: the named rules that give its outputs, else the nearest and where they part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.verdict import Explanation
from narrowgauge.reference.apart import Apart, apart
from narrowgauge.reference.behaviour import behaviour_of, candidates
from narrowgauge.reference.choices import Choices, choices_of, mistaken
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.diagnosis import explain
from narrowgauge.reference.expected import expected
from narrowgauge.reference.form import form_of, shaped, takes
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.listing import mismatches
from narrowgauge.reference.parts import Part, parts_of

#: so many recipes besides the nearest are tried with every fault, which takes a second each
HALFWAY = 3


@dataclass(frozen=True)
class Seen:
    """One input tensor and what came back, in the contract's form."""

    x: Coded
    got: Mapping[str, Coded]


@dataclass(frozen=True)
class Rule:
    """Named rules that give the same outputs on what was seen, and how a kernel's differ from them."""

    names: tuple[str, ...]
    claim: Claim  #: to the first of them
    want: tuple[Expected, ...]  #: for each that was seen
    apart: tuple[Difference, ...]

    @property
    def total(self) -> int:
        return sum(difference.total for difference in self.apart)

    @property
    def counts(self) -> dict[str, int]:
        """How many outputs differ, by class of difference."""
        found: dict[str, int] = {}
        for kind, count in (pair for difference in self.apart for pair in difference.counts.items()):
            found[kind] = found.get(kind, 0) + count
        return found


@dataclass(frozen=True)
class Identity:
    """What an observation found. ``nearest`` and what follows it are empty where a rule is followed."""

    claim: str  #: the observation: cast/?/float32/float8_e4m3fn
    elements: int  #: different inputs of a cast that were tried; elements of a quantizer's outputs
    follows: tuple[str, ...]  #: the named rules that give every output
    choices: Choices | None  #: of a cast, measured from its codes
    unsteady: int  #: inputs of a cast that got different codes in different places: it is no function of one value
    left_out: int = 0  #: tensors of a quantizer that not all recipes with outputs of its form take
    nearest: tuple[str, ...] = ()  #: the named rules that leave the least, all of one answer
    mistaken: str = ""  #: where the choices are known exactly, those in which they differ from the nearest
    differences: dict[str, int] | None = None  #: from the nearest, by class
    apart: tuple[Apart, ...] = ()
    explanations: tuple[Explanation, ...] = ()  #: faults that make the kernel out of the nearest
    spoilt: str = ""  #: another recipe out of which ``spoilt_by`` makes the kernel exactly, where the nearest is not it
    spoilt_by: tuple[Explanation, ...] = ()
    parts: tuple[Part, ...] = ()  #: of a quantizer, its scales and its codes by themselves

    @property
    def differing(self) -> int:
        return sum((self.differences or {}).values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def identify(claim: Claim, seen: Sequence[Seen]) -> Identity:
    """What the kernel is that gave these outputs. ``claim`` is an observation that has candidates (``check_claim``)."""
    unsteady, tried = 0, len(seen)
    if claim.operation == Cast.operation:
        merged, unsteady = _merged(seen)
        seen = [merged]
    else:
        seen = _taken(claim, seen)
    rules = rules_apart(claim, seen)
    elements = sum(c.data.size for one in seen for c in one.got.values())
    left_out = 0 if claim.operation == Cast.operation else tried - len(seen)
    if not rules:  # no named recipe has outputs of these forms for all of these inputs
        return Identity(str(claim), elements, (), None, unsteady, left_out)
    nearest, choices = _nearest(claim, rules, seen)
    follows = their_names(claim, (rule for rule in rules if rule.total == 0))
    if follows:
        return Identity(str(claim), elements, follows, choices, unsteady, left_out)
    explanations = _explanations(nearest, seen)
    exact = bool(explanations) and explanations[0].complete
    parts = _parts(claim, seen)
    others = () if exact or choices is not None else _halfway(rules, nearest, parts)
    spoilt, spoilt_by = _spoilt(others, seen)
    return Identity(
        str(claim), elements, follows, choices, unsteady, left_out,
        nearest=nearest.names,
        mistaken=mistaken(behaviour_of(nearest.claim).policy, choices) if choices and choices.left == 0 else "",
        differences=nearest.counts,
        apart=_where(claim, nearest, seen),
        explanations=explanations,
        spoilt=spoilt,
        spoilt_by=spoilt_by,
        parts=parts,
    )  # fmt: skip


def _nearest(claim: Claim, rules: Sequence[Rule], seen: Sequence[Seen]) -> tuple[Rule, Choices | None]:
    """The rule that leaves the least; of a cast, if its choices are known, that of the fewest other choices.

    So a cast to bfloat16 that cuts, and keeps infinity, is nearest to a policy that keeps infinity, though one that
    saturates leaves fewer of its codes.
    """
    nearest = min(rules, key=lambda rule: rule.total)
    if claim.operation != Cast.operation:
        return nearest, None
    x, got = seen[0].x, seen[0].got["codes"]
    choices = choices_of(x, got, nearest.apart[0])
    if choices is None or 2 * choices.left > nearest.total:
        return nearest, choices

    def others(rule: Rule) -> int:
        policy = behaviour_of(rule.claim).policy
        return sum(getattr(policy, name) not in found for name, found in choices.values.items())

    return min(rules, key=lambda rule: (others(rule), rule.total)), choices


def rules_apart(claim: Claim, seen: Sequence[Seen]) -> list[Rule]:
    """Every named rule for an observed claim, those of one answer together, with how a kernel differs from it."""
    found: dict[tuple[str, ...], Rule] = {}
    for candidate in _alike(claim, seen):
        want = tuple(expected(candidate, one.x) for one in seen)
        ends = ({f"{n} {end}": c for n, i in w.items() for end, c in (("low", i.low), ("high", i.high))} for w in want)
        key = tuple(digest(both) for both in ends)
        if key in found:
            same = found[key]
            found[key] = Rule((*same.names, candidate.rule), same.claim, same.want, same.apart)
        else:
            differences = tuple(compare(one.got, w) for one, w in zip(seen, want, strict=True))
            found[key] = Rule((candidate.rule,), candidate, want, differences)
    return list(found.values())


def _taken(claim: Claim, seen: Sequence[Seen]) -> list[Seen]:
    """The inputs by which a quantizer can be told: those that every recipe takes that has the form of its outputs.

    A quantizer in groups of 128 may answer for 131 columns too, in a form of its own, of which no recipe says a word.
    """
    kept = list(seen)
    for candidate in candidates(claim):
        takes_them = [one for one in seen if takes(candidate, one.x.shape)]
        alike = [one for one in takes_them if not form_of(one.got, shaped(candidate, one.x.shape))]
        if takes_them and len(alike) == len(takes_them):
            kept = [one for one in kept if one in takes_them]
    return kept


def _alike(claim: Claim, seen: Sequence[Seen]) -> list[Claim]:
    """The candidates that give outputs of the form that was seen."""
    return [
        c
        for c in candidates(claim)
        if all(takes(c, one.x.shape) and not form_of(one.got, shaped(c, one.x.shape)) for one in seen)
    ]


def their_names(claim: Claim, rules: Iterable[Rule]) -> tuple[str, ...]:
    """The names of all of them, in the order of the tables."""
    names = {name for rule in rules for name in rule.names}
    return tuple(c.rule for c in candidates(claim) if c.rule in names)


def _merged(seen: Sequence[Seen]) -> tuple[Seen, int]:
    """All of a cast's elements as one, each input once, in ascending order of its code; and how many are unsteady."""
    first = seen[0]
    x = np.concatenate([one.x.data.ravel() for one in seen])
    got = np.concatenate([one.got["codes"].data.ravel() for one in seen])
    unique, where, back = np.unique(x, return_index=True, return_inverse=True)
    codes = Coded(first.got["codes"].format, got)
    unsteady = np.unique(x[got != got[where[back]]]).size
    if unsteady:
        order = np.argsort(x, kind="stable")
        return Seen(Coded(first.x.format, x[order]), {"codes": codes.take(order)}), unsteady
    return Seen(Coded(first.x.format, unique), {"codes": codes.take(where)}), 0


def _parts(claim: Claim, seen: Sequence[Seen]) -> tuple[Part, ...]:
    if claim.operation == Cast.operation:
        return ()
    return parts_of(_alike(claim, seen), [(one.x, one.got) for one in seen])


def _where(claim: Claim, nearest: Rule, seen: Sequence[Seen]) -> tuple[Apart, ...]:
    if claim.operation == Cast.operation:
        got, want = seen[0].got["codes"], nearest.want[0]["codes"].low
        return apart(seen[0].x, got, want, nearest.apart[0].mask("codes"))
    return tuple(group for number, one in enumerate(seen) for group in _of_matrix(one, nearest, number))


def _of_matrix(one: Seen, nearest: Rule, number: int) -> list[Apart]:
    """The first element of each class of difference of each output, and how many there are."""
    want, difference = nearest.want[number], nearest.apart[number]
    listed = {(m.output, m.kind): m for m in reversed(mismatches(nearest.claim, one.x, one.got, want, difference))}
    told = []
    for (output, kind), m in listed.items():
        count = difference.count(output, kind)
        first = f"first {output}{list(m.index)}: {m.input}"
        told.append(Apart(output, kind, first, count, one.got[output].data.size, m.got, m.want))
    return told[::-1]


def _halfway(rules: Sequence[Rule], nearest: Rule, parts: Sequence[Part]) -> list[Rule]:
    """Those that a fault in one part may have made the kernel of: the other part is theirs. The nearest few."""
    names = {name for part in parts for name in part.follows}
    others = [rule for rule in rules if rule is not nearest and names.intersection(rule.names)]
    return sorted(others, key=lambda rule: rule.total)[:HALFWAY]


def _spoilt(others: Iterable[Rule], seen: Sequence[Seen]) -> tuple[str, tuple[Explanation, ...]]:
    """The first rule that a fault turns into the kernel: a quantizer that lacks one step may be nearer to another's."""
    for rule in others:
        wrong = [(one, d) for one, d in zip(seen, rule.apart, strict=True) if d.total]
        one, difference = min(wrong, key=lambda pair: pair[0].x.data.size)  # the rest is looked at where this one is
        first = explain(rule.claim, one.x, one.got, difference)
        found = _explanations(rule, seen) if first and first[0].complete else ()
        if found and found[0].complete:
            return rule.names[0], found
    return "", ()


def _explanations(nearest: Rule, seen: Sequence[Seen]) -> tuple[Explanation, ...]:
    """Those that hold for everything that was seen and differs; else those of the tensor that differs most."""
    wrong = [(one, d) for one, d in zip(seen, nearest.apart, strict=True) if d.total]
    each = [explain(nearest.claim, one.x, one.got, d) for one, d in wrong]
    sets = [set(e[0].faults) if e and e[0].complete else set() for e in each]
    common = tuple(name for name in (each[0][0].faults if each[0] else ()) if all(name in s for s in sets))
    if common:
        return (Explanation(common, nearest.total, 0, each[0][0].separated_by),)
    return each[max(range(len(each)), key=lambda i: wrong[i][1].total)]
