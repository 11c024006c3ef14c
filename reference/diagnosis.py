"""Which faults explain what a kernel returned.

Faults are tried on a witness first: a cut of the tensor that holds every class of difference and some agreement.
Those that survive are tried on everything. Two faults together are tried only where no single one explains all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from narrowgauge.contracts.coded import Coded, digest
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, Claim, KvWrite
from narrowgauge.contracts.verdict import Explanation
from narrowgauge.reference.behaviour import Promised
from narrowgauge.reference.compare import Difference, compare
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.expected import outputs_of, promised_for
from narrowgauge.reference.faults.product_ways import bits_of, in_words
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.interval import Expected
from narrowgauge.reference.kv.call import Numbers
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.settling import free_rows, settled
from narrowgauge.reference.listing import origin
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.showing import show
from narrowgauge.reference.wide.widening import Widening
from narrowgauge.reference.witness import Rows, witness

#: of the faults that explain a part: how many are tried with each other fault, and how many on everything
PAIRED, PARTIAL = 8, 24
#: calls on caches with more elements of outputs than this are not asked for two faults, since smaller ones tell; and of
#: attention, whose elements cost more
PAIRS_WITHIN, PAIRS_OF_ATTENTION_WITHIN = 1 << 18, 1 << 14
#: the least part of what differs that one of two faults explains alone: 1 in so many
LEAST_PART = 16


@dataclass(frozen=True)
class _Candidate:
    """A fault, or two, as the behaviour that they make."""

    names: tuple[str, ...]
    behaviour: Promised
    whole: bool  #: what it does to a row depends on others, so that it is tried on all of them
    how: str = ""  #: the way in which it is made, where there are several

    @property
    def name(self) -> str:
        return " + ".join(self.names)


@dataclass(frozen=True)
class _Seen:
    """What went in and came out, and what of it differs."""

    x: Coded
    got: Mapping[str, Coded]
    difference: Difference
    free: Numbers  #: slots of a cache of which nobody may ask what they hold

    def cut(self, rows: Rows) -> _Seen:
        """Some rows of it. What has no rows of x stays as it is."""

        def few(shape: tuple[int, ...]) -> bool:
            return shape[:1] == self.x.shape[:1]

        got = {name: value.take(rows) if few(value.shape) else value for name, value in self.got.items()}
        classes = {name: c[rows] if few(c.shape) else c for name, c in self.difference.classes.items()}
        return _Seen(self.x.take(rows), got, Difference(classes), self.free)

    def of(self, part: str) -> _Seen:
        """The matrices of one part of a cache alone."""
        classes = {name: c for name, c in self.difference.classes.items() if _is_of(name, part)}
        return _Seen(self.x, {name: self.got[name] for name in classes}, Difference(classes), self.free)


@dataclass(frozen=True)
class _Tried:
    """A candidate with what it leaves of what was seen."""

    candidate: _Candidate
    outputs: Expected
    left: int
    explained: int


def explain(claim: Claim, x: Coded, got: Mapping[str, Coded], difference: Difference) -> tuple[Explanation, ...]:
    """Explanations of a difference, best first; empty where no fault accounts for any of it.

    A complete one reproduces every output. A partial one is given only where it leaves less than it found.
    """
    right = promised_for(claim, x)
    seen = _Seen(x, got, difference, _free(right, x, got))
    # where rows share a scale, a cut of them is another matrix
    few = seen.cut(witness(difference)) if right.by_rows else seen
    tried = (_tried(c, seen if c.whole else few) for c in _single_faults(right))
    singles = [t for t in tried if t is not None]
    complete = _complete((t.candidate for t in singles if t.left == 0), seen)
    if not complete and (part := _part_alone(right, difference)):
        in_part = _complete(_single_faults(right), seen.of(part))
        if in_part:
            return (Explanation(tuple(c.name for c in in_part), difference.total, 0, only=part),)
    if not complete and not _too_large(right, got):
        complete = _complete(_pairs(right, singles, seen, few), seen)
    complete = complete or _complete(_single_faults(right, _bits(right, x, got)), seen)
    return (_together(claim, complete, difference),) if complete else _partial(singles, seen)


def _together(claim: Claim, same: list[_Candidate], difference: Difference) -> Explanation:
    """Faults that all reproduce every output, each with the ways in which it does."""
    ways = in_words((candidate.name, candidate.how) for candidate in same)
    apart = _separating_input(claim, [next(c for c in same if c.name == name) for name in ways])
    how = tuple(ways.values()) if any(ways.values()) else ()
    return Explanation(tuple(ways), difference.total, 0, apart, how=how)


def _too_large(right: Promised, got: Mapping[str, Coded]) -> bool:
    if isinstance(right, Multiplying):  # each fault of a product can be made in so many ways
        return True
    if not isinstance(right, Paged):
        return False
    most = PAIRS_OF_ATTENTION_WITHIN if isinstance(right.contract, Attend) else PAIRS_WITHIN
    return sum(value.data.size for value in got.values()) > most


def _is_of(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}_")


def _part_alone(right: Promised, difference: Difference) -> str:
    """The part of a cache in which alone something differs; "" where there is none."""
    if not isinstance(right, Paged) or len(right.parts) < 2 or isinstance(right.contract, Attend):
        return ""
    wrong = [name for name, classes in difference.classes.items() if classes.any()]
    parts = [part for part, _ in right.parts if any(_is_of(name, part) for name in wrong)]
    return parts[0] if len(parts) == 1 else ""


def _free(right: Promised, x: Coded, got: Mapping[str, Coded]) -> Numbers:
    if not isinstance(right, Paged) or not isinstance(right.contract, KvWrite):
        return np.zeros(0, np.int32)
    return free_rows(right, x, next(iter(got.values())).shape[0])


def _complete(survivors: Iterable[_Candidate], seen: _Seen) -> list[_Candidate]:
    return [c for c in survivors if _leaves_nothing(c, seen)]


def _leaves_nothing(candidate: _Candidate, seen: _Seen) -> bool:
    tried = _tried(candidate, seen)
    return tried is not None and tried.left == 0


def _bits(right: Promised, x: Coded, got: Mapping[str, Coded]) -> range:
    """Of a product: in how many bits its sums may have been kept, as results say that have fewer than they should."""
    needed = {name: value.low for name, value in outputs_of(right, x).items()} if isinstance(right, Multiplying) else {}
    return range(bits_of(got), bits_of(needed)) if needed else range(0)


def _single_faults(right: Promised, bits: range = range(1)) -> Iterable[_Candidate]:
    """Every definite way of every fault; with ``bits`` those of a bound, where so many bits were kept."""
    for name, fault in FAULTS.items():
        for way in fault.ways(right):
            if way.bits in bits:
                yield _Candidate((name,), way.behaviour, _whole(way.behaviour, fault.across_rows), way.note)


def _whole(wrong: Promised, across_rows: bool) -> bool:
    return across_rows or not wrong.by_rows


def _pairs(right: Promised, singles: list[_Tried], seen: _Seen, few: _Seen) -> Iterable[_Candidate]:
    """Two faults of which one explains a part, and the other changes something, that leave nothing of a witness.

    Of faults that do the same the first stands for all until it is found.
    """
    alike: dict[str, list[str]] = {}
    for tried in singles:
        alike.setdefault(_answer(tried.outputs), []).append(tried.candidate.name)
    for either in (seen, few):
        alike.pop(_answer(outputs_of(right, either.x)), None)
    first = {names[0] for names in alike.values()}
    helping = [
        t for t in _best(singles) if t.candidate.name in first and LEAST_PART * t.explained >= few.difference.total
    ]
    helps = {t.candidate.name for t in helping[:PAIRED]}
    for one, two in combinations([name for name in FAULTS if name in first], 2):
        if (one in helps or two in helps) and _fits(_pair(right, one, two), seen, few):
            for names in product(*(next(a for a in alike.values() if n in a) for n in (one, two))):
                both = _pair(right, *names)
                if both is not None and _fits(both, seen, few):
                    yield both


def _answer(outputs: Expected) -> str:
    return digest({f"{end} {name}": getattr(value, end) for name, value in outputs.items() for end in ("low", "high")})


def _pair(right: Promised, one: str, two: str) -> _Candidate | None:
    first = FAULTS[one].applied_to(right)
    both = None if first is None else FAULTS[two].applied_to(first)
    if both is None:
        return None
    return _Candidate((one, two), both, _whole(both, FAULTS[one].across_rows or FAULTS[two].across_rows))


def _fits(candidate: _Candidate | None, seen: _Seen, few: _Seen) -> bool:
    return candidate is not None and _leaves_nothing(candidate, seen if candidate.whole else few)


def _best(tried: Iterable[_Tried]) -> list[_Tried]:
    """Those that explain anything, by what they leave."""
    return sorted((t for t in tried if t.explained), key=lambda t: (t.left, -t.explained))


def _tried(candidate: _Candidate, seen: _Seen) -> _Tried | None:
    """What a candidate leaves: how many elements the kernel returned otherwise than this fault would.

    None for a fault that cannot be in this call on a cache, converter or product: it would read or write outside, say;
    and for one before a quantizer, of whose NaN nothing is derived.
    """
    behaviour, got = candidate.behaviour, seen.got
    try:
        outputs = outputs_of(behaviour, seen.x)
        if isinstance(behaviour, Paged) and isinstance(behaviour.contract, KvWrite):
            got = settled(behaviour, seen.x, got, outputs, seen.free)
    except BadInput:
        if isinstance(behaviour, Paged | Converting | Multiplying | Widening) or behaviour.first:
            return None
        raise
    outputs = {name: outputs[name] for name in seen.difference.classes}
    rest = compare(got, outputs)
    masks = ((seen.difference.mask(name), rest.mask(name)) for name in seen.difference.classes)
    return _Tried(candidate, outputs, rest.total, sum(int(np.count_nonzero(d & ~r)) for d, r in masks))


def _partial(singles: list[_Tried], seen: _Seen) -> tuple[Explanation, ...]:
    """The faults that leave the least, if they leave less than there was."""
    tried = (_tried(t.candidate, seen) for t in _best(singles)[:PARTIAL])
    found = [
        Explanation((t.candidate.name,), t.explained, t.left)
        for t in tried
        if t is not None and t.left < seen.difference.total
    ]
    found.sort(key=lambda e: (e.left, -e.explained))
    best = [e for e in found if (e.left, e.explained) == (found[0].left, found[0].explained)]
    if not best:
        return ()
    together = tuple(dict.fromkeys(name for e in best for name in e.faults))
    return (Explanation(together, best[0].explained, best[0].left), *found[len(best) : len(best) + 2])


def _separating_input(claim: Claim, same: list[_Candidate]) -> str:
    """An input on which faults that agreed here would differ, or the statement that none was found."""
    if len(same) < 2:
        return ""
    first = same[0]
    for case, x in cases_for(claim, "smoke").items():
        try:
            want = outputs_of(first.behaviour, x)
            others = [(other, outputs_of(other.behaviour, x)) for other in same[1:]]
        except BadInput:  # a call in which one of them cannot be
            continue
        for other, given in others:
            outputs = {name: value.low for name, value in given.items()}
            apart = compare(outputs, want)
            for name, classes in apart.classes.items():
                if classes.any():
                    index = tuple(int(i) for i in np.argwhere(classes)[0])
                    one, two = (show(Coded(c.format, c.data[index])) for c in (want[name].low, outputs[name]))
                    place = origin(claim, x, name, index, classes.shape)
                    where = f"{place}, {name}{list(index)} of case {case!r}"
                    return f"{where}: {first.name} gives {one}, {other.name} gives {two}"
    return "no input of the suite's cases separates them for this claim: they are one fault here"
