"""The tree in which terms are added, from how much of the rest each pair of large terms swallows (FPRev).

M at i and -M at j cancel where their branches meet; every small term that was added to either of them before is lost.
So the size of the least common branch of i and j is what a result lacks, plus the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: by pair i < j: how many terms the least branch has that holds both
Sizes = Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class Node:
    """A fused addition: everything below it is added at once."""

    parts: tuple[Node | int, ...]  #: by their least term; a term is its place in K

    @property
    def first(self) -> int:
        """The least term below."""
        part = self.parts[0]
        return part if isinstance(part, int) else part.first

    @property
    def size(self) -> int:
        """How many terms are below."""
        return sum(1 if isinstance(part, int) else part.size for part in self.parts)


def tree(leaves: Sequence[int], sizes: Sizes) -> Node | int | None:
    """The tree over these terms; None where the sizes are those of none."""
    if len(leaves) == 1:
        return leaves[0]
    size = max(sizes[i, j] for n, i in enumerate(leaves) for j in leaves[n + 1 :])
    groups: list[list[int]] = []
    for leaf in leaves:
        group = next((g for g in groups if sizes[min(g[0], leaf), max(g[0], leaf)] < size), None)
        if group is None:
            groups.append([leaf])
        else:
            group.append(leaf)
    if len(groups) == 1 or size != len(leaves):
        return None
    parts = [tree(group, sizes) for group in groups]
    if any(part is None for part in parts):
        return None
    found = Node(tuple(part for part in parts if part is not None))
    return found if _agrees(found, sizes) else None


def exact_chain(count: int, sizes: Sizes) -> Node | None:
    """The chain of a unit that rounds after each step alone: within the step of -M nothing is lost.

    Of M in one step and -M in a later one, all before the later step is lost.
    """
    alone = [j for j in range(1, count) if sizes[0, j] != 2]
    each = alone[0] if alone else count
    want = {(i, j): 2 if i // each == j // each else 1 + j // each * each for i, j in sizes}
    if want != sizes or each == 1:
        return None
    node = Node(tuple(range(each)))
    for start in range(each, count, each):
        node = Node((node, *range(start, min(start + each, count))))
    return node


def _agrees(node: Node, sizes: Sizes) -> bool:
    """Whether each pair that meets in this node has its size."""
    parts = [leaves_of(part) for part in node.parts]
    pairs = ((i, j) for n, one in enumerate(parts) for other in parts[n + 1 :] for i in one for j in other)
    return all(sizes[min(pair), max(pair)] == node.size for pair in pairs)


def leaves_of(node: Node | int) -> list[int]:
    """Terms below a node, in the order of its parts."""
    return [node] if isinstance(node, int) else [leaf for part in node.parts for leaf in leaves_of(part)]


@dataclass(frozen=True)
class Chain:
    """Results of one addition enter the next: ``first``, then in each step as many terms, or one branch, again."""

    first: Node
    terms: int  #: added in each step; 0 for a branch like the first
    steps: int  #: after the first


def chain(node: Node) -> Chain | None:
    """The chain that a tree is, the last step perhaps cut short; None where it is no chain."""
    held: list[Node] = [node]
    while isinstance(start := held[-1].parts[0], Node):
        held.append(start)
    for place in range(len(held) - 1, 0, -1):
        first = held[place]
        steps = [tuple(part.parts[1:]) for part in held[:place]][::-1]
        terms = _terms(first, steps)
        if terms is not None:
            return Chain(first, terms, len(steps))
    return None


def _terms(first: Node, steps: Sequence[tuple[Node | int, ...]]) -> int | None:
    """How many terms each step adds, 0 for a branch like the first; None where steps differ."""
    *whole, last = steps
    if all(isinstance(part, int) for step in steps for part in step):
        own = len(first.parts) if first.size == len(first.parts) else 0
        count = len(steps[0]) if whole else (1 if own == 2 and len(last) == 1 else own)
        same = all(len(step) == count for step in whole) and len(last) <= count
        return count if same and (own == count or (own == 2 and count == 1)) else None
    alike = all(len(step) == 1 and shape(step[0]) == shape(first) for step in whole)
    end = sum(1 if isinstance(part, int) else part.size for part in last)
    if alike and (end < first.size or (len(last) == 1 and shape(last[0]) == shape(first))):
        return 0
    return None


def shape(part: Node | int) -> str:
    """A branch without the places of its terms: "4" for four at once, "(2 + 2)" for the sum of two pairs."""
    if isinstance(part, int):
        return "1"
    if found := chain(part):
        return _chained(part, found)
    terms = sum(isinstance(each, int) for each in part.parts)
    branches = [_bracketed(shape(each)) for each in part.parts if not isinstance(each, int)]
    return " + ".join([*branches, *([str(terms)] if terms else [])])


def _chained(node: Node, found: Chain) -> str:
    unit = str(found.terms) if found.terms else _bracketed(shape(found.first))
    if found.steps > 1 or node.size < 2 * found.first.size:  # the last step may be cut short
        return f"chain of {unit}"
    return f"{unit} then {unit}" if found.terms else f"{unit} + {unit}"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def drawn(part: Node | int) -> str:
    """A tree with the places of its terms; runs of them as ``0-7``."""
    if isinstance(part, int):
        return str(part)
    texts: list[str] = []
    run: list[int] = []
    for each in part.parts:
        if isinstance(each, int):
            if run and each != run[-1] + 1:
                texts.append(_run(run))
                run = []
            run.append(each)
        else:
            texts.append(drawn(each))
    return f"({' '.join([*texts, *([_run(run)] if run else [])])})"


def _run(run: Sequence[int]) -> str:
    return " ".join(map(str, run)) if len(run) < 3 else f"{run[0]}-{run[-1]}"
