"""In which order, and how many at once, products are added; and whether K is summed in stretches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Row, Rows, row
from narrowgauge.reference.probes.setting import Setting
from narrowgauge.reference.probes.trees import Node, chain, drawn, exact_chain, leaves_of, shape, tree

#: terms at the start of K that are looked at one by one: more than any unit is known to fuse
FINE = 36
#: and how many, evenly, over all of K
COARSE = 32
#: exponents of M and of the small terms: those of a float16 accumulator, where the formats allow no more; and more
NARROW, WIDE = (15, -24), (40, -40)
#: so many bits apart M swallows 36 small terms beside 25 bits of its own, and every order shows; with fewer than the
#: least it is not even seen that nothing is lost
ENOUGH, LEAST = 32, 8
#: letters of an order that is still read as one
LONGEST = 40
VARIES = "the order is not the same in all rows"


def fine(setting: Setting) -> tuple[int, ...]:
    """Places of the terms at the start of K."""
    return tuple(range(FINE))


def coarse(setting: Setting) -> tuple[int, ...]:
    """Places over all of K."""
    step = max(setting.k // COARSE, setting.a.along if _by_blocks(setting) else 1)
    return tuple(range(0, setting.k, step))


def _by_blocks(setting: Setting) -> bool:
    """Whether numbers so far apart need scales of blocks."""
    return not setting.factors(2.0 ** NARROW[0]) and row(setting, {0: 2.0 ** NARROW[0]}) is not None


def _rows(name: str, places: Sequence[int], setting: Setting) -> Rows:
    return kept(dict(_each(name, places, setting)))


def _each(name: str, places: Sequence[int], setting: Setting) -> Iterator[tuple[Key, Row | None]]:
    found = sizes_of(setting)
    for n, i in enumerate(places):
        for j in places[n + 1 :]:
            yield (name, i, j), None if found is None else _pair(setting, places, i, j, *found)


def _pair(setting: Setting, places: Sequence[int], i: int, j: int, large: float, small: float) -> Row | None:
    """M at i, -M at j, and small terms elsewhere."""
    parts = [setting.factors(number) for number in (large, -large, small)]
    if None in parts:
        return row(setting, dict.fromkeys(places, small) | {i: large, j: -large})
    up, down, rest = (part for part in parts if part is not None)
    return Row(tuple((k, *(up if k == i else down if k == j else rest)) for k in places))


def sizes_of(setting: Setting) -> tuple[float, float] | None:
    """M and the small term, as far apart as the formats hold; None where a result cannot count small terms."""
    wide = all(setting.factors(2.0**e) for e in WIDE) and setting.out != "float16"
    highest, lowest = WIDE if wide else NARROW
    held = [e for e in range(lowest, highest + 1) if setting.factors(2.0**e)]
    if not held or held[-1] - held[0] < ENOUGH:
        held = [e for e in range(lowest, highest + 1) if row(setting, {0: 2.0**e})]
    if not held or held[-1] - held[0] < LEAST:
        return None
    large, small = math.ldexp(1.0, held[-1]), math.ldexp(1.0, held[0])
    counts = all(setting.returns(n * small) or _is_subnormal_count(setting, small) for n in (1, 2, FINE - 3, FINE - 2))
    return (large, small) if counts else None


def _is_subnormal_count(setting: Setting, small: float) -> bool:
    """Whether small terms are whole steps of a float16's subnormal numbers."""
    return setting.out == "float16" and small >= 2.0**-24


def _tree(setting: Setting, answers: Answers, name: str, places: Sequence[int]) -> Node | str:
    """The tree over these places, by their numbers; or why there is none."""
    found = sizes_of(setting)
    if found is None or any((name, i, j) not in answers for i in places for j in places if i < j):
        return f"{setting.a.format} x {setting.b.format} to {setting.out} cannot swallow and count small terms"
    sizes: dict[tuple[int, int], int] = {}
    for (kind, *pair), left in answers.items():
        if kind != name:
            continue
        i, j = int(str(pair[0])), int(str(pair[1]))
        count = left / found[1]
        if not (math.isfinite(count) and count == int(count) and 0 <= count <= len(places) - 2):
            return f"small terms beside M at {i} and -M at {j} left {left:g}: no number of them"
        sizes[places.index(i), places.index(j)] = len(places) - int(count)
    if set(sizes.values()) == {2}:
        return f"nothing is lost beside a term {found[0] / found[1]:g} times as large: the order cannot be seen"
    root = tree(range(len(places)), sizes) or exact_chain(len(places), sizes)
    return root if isinstance(root, Node) else VARIES + _mostly(sizes)


def _mostly(sizes: Mapping[tuple[int, int], int]) -> str:
    """The chain that most rows are of, where results at some places of a tile are summed in another way."""
    agree = {
        each: sum(size == (j // each + 1) * each for (_, j), size in sizes.items() if (j // each + 1) * each <= FINE)
        for each in (1, 2, 4, 8, 16, 32)
    }
    best = max(agree, key=lambda each: agree[each])
    return f"; {agree[best]} of {len(sizes)} are chains of {best}" if 2 * agree[best] > len(sizes) else ""


def _branch(node: Node, i: int, j: int) -> Node:
    """The least branch that holds both terms."""
    for part in node.parts:
        if isinstance(part, Node) and {i, j} <= set(leaves_of(part)):
            return _branch(part, i, j)
    return node


def _read_fine(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    root = _tree(setting, answers, "fine", fine(setting))
    if isinstance(root, str):
        varies = {"varies": root.startswith(VARIES)}
        return [Finding("order", "", root, varies), unsaid("fused", root), unsaid("k_order", root)]
    said, links = shape(root), chain(root)
    bottom = root
    while isinstance(bottom.parts[0], Node):
        bottom = bottom.parts[0]
    met = {str(end): _branch(root, 0, end).size for end in (1, 2, 4, 8, 16, 32)}
    at_once = 1 if links is not None and links.terms == 1 else len(bottom.parts)
    one = "one product after the other" if at_once == 1 else f"{at_once} products at once"
    words = f"{said}" if said != f"chain of {at_once}" else "each result enters the next addition"
    if len(said) > LONGEST:
        said, words = "tree", f"a tree in which those at {drawn(bottom).strip('()')} meet first (--json has all of it)"
    return [
        Finding("order", said, words, {"tree": drawn(root), "met": met}),
        Finding("fused", str(at_once), one),
        _k_order(root),
    ]


def _k_order(root: Node) -> Finding:
    """In which order places of K enter; of those that are added at once it has no meaning."""
    entered = leaves_of(root)
    if entered == sorted(entered):
        return Finding("k_order", "ascending", "places of K enter in ascending order")
    shown = " ".join(map(str, entered[:16]))
    return Finding("k_order", "other", f"places of K enter in the order {shown} …", {"order": entered})


def _is_run(places: list[int]) -> bool:
    """Whether one follows the other."""
    return sorted(places) == list(range(min(places), max(places) + 1))


def _read_coarse(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    places = coarse(setting)
    root = _tree(setting, answers, "coarse", places)
    if isinstance(root, str):
        return [unsaid("stretch", root)]
    step = places[1]
    raw = {"tree": drawn(root), "step": step}
    links = chain(root)
    if links is not None and not links.terms and not _is_run(first := leaves_of(links.first)):
        said = f"those at {', '.join(str(n * step) for n in first[:4])} … are one sum, those between others"
        return [Finding("stretch", "interleaved", said, raw)]
    if links is not None and not links.terms:
        length = links.first.size * step
        return [Finding("stretch", str(length), f"sums of {length} products are added up", raw)]
    if links is not None:
        return [Finding("stretch", "none", "one sum from one end of K to the other", raw)]
    return [Finding("stretch", shape(root), f"in steps of {step}: {shape(root)}", raw)]


# --- stretches, another way ------------------------------------------------------------------------------------------

#: beside U, this much of it is lost by a unit of 13 bits and kept by all wider ones
SMALL = -16
#: exponents of U
LIFTS = (8, 14, 16, 0)


def _reach_rows(setting: Setting) -> Rows:
    return kept({(j,): _beside(setting, j) for j in _ends(setting)})


def _ends(setting: Setting) -> list[int]:
    """First and last places of stretches of 16."""
    return sorted({k for start in range(0, setting.k, 16) for k in (start, start + 15)} - {0, setting.k - 1})


def _reach_lift(setting: Setting) -> int | None:
    held = (e for e in LIFTS if setting.factors(2.0**e) and setting.returns(2.0 ** (e + SMALL)))
    return next((e for e in held if setting.factors(2.0 ** (e + SMALL))), None)


def _beside(setting: Setting, j: int) -> Row | None:
    lift = _reach_lift(setting)
    if lift is None:
        return None
    return row(setting, {0: 2.0**lift, j: 2.0 ** (lift + SMALL), setting.k - 1: -(2.0**lift)})


def _read_reach(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    lift = _reach_lift(setting)
    if lift is None or not answers:
        return [unsaid("kept_from", f"{setting.a.format} x {setting.b.format} cannot hold U and 2^{SMALL} U")]
    ends = [j for j in _ends(setting) if answers[(j,)] == 2.0 ** (lift + SMALL)]
    if not ends:
        return [Finding("kept_from", "never", f"beside U, 2^{SMALL} of it is lost wherever it stands")]
    if len(ends) == len(_ends(setting)):
        return [Finding("kept_from", "always", f"beside U, 2^{SMALL} of it is kept wherever it stands")]
    return [Finding("kept_from", str(ends[0]), f"2^{SMALL} of U is kept from k = {ends[0]} to {ends[-1]}")]


FINE_PROBE = Probe(
    "order",
    "In which order are products added, and how many at once?",
    ("order", "fused", "k_order"),
    lambda setting: _rows("fine", fine(setting), setting),
    _read_fine,
)
COARSE_PROBE = Probe(
    "stretches",
    "Is K summed in stretches that are added up?",
    ("stretch",),
    lambda setting: _rows("coarse", coarse(setting), setting),
    _read_coarse,
    "schedule",
)
REACH_PROBE = Probe(
    "reach",
    "From which place of K on is a small term safe from a large one at 0?",
    ("kept_from",),
    _reach_rows,
    _read_reach,
    "schedule",
)
