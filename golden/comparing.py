"""What changed of one claim between two contents of golden vectors, input by input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.golden.contents import Content, Ints, Rows, Steps
from narrowgauge.reference.showing import show

#: numbers of a row that an example shows
MOST = 4


@dataclass(frozen=True)
class Example:
    """One expectation that changed, or a stretch of neighbouring inputs whose expectations did."""

    where: str  #: the output and its index; "" of a function
    input: str  #: value and bits; of a stretch, of both ends
    inputs: int
    old: str
    new: str


@dataclass(frozen=True)
class OfClaim:
    """What changed of one claim. An expectation is one code: of an input of a function, of an element of an output."""

    claim: str
    changed: int
    added: int
    removed: int
    places: int  #: stretches or elements that changed, of which ``examples`` are the first
    examples: tuple[Example, ...]
    other_inputs: bool = False  #: of a call: it is another call, so its old expectations are gone


def compared(claim: str, old: Content | None, new: Content | None, first: int) -> OfClaim:
    """What changed of a claim that at least one of the two has, with so many examples."""
    if isinstance(old, Steps) and isinstance(new, Steps) and (old.source, old.format) == (new.source, new.format):
        return _steps(claim, old, new, first)
    if isinstance(old, Rows) and isinstance(new, Rows):
        if old.listed and new.listed:
            return _lists(claim, old, new, first)
        if _same_inputs(old, new):
            everything = np.arange(0)
            return _outputs(claim, old, new, everything, everything, first)
    other = old is not None and new is not None
    added, removed = new.expectations if new else 0, old.expectations if old else 0
    return OfClaim(claim, 0, added, removed, 0, (), other)


# --- functions -------------------------------------------------------------------------------------------------------


def _steps(claim: str, old: Steps, new: Steps, first: int) -> OfClaim:
    """The stretches of neighbouring patterns whose codes are others."""
    at = np.union1d(old.first, new.first)
    was, now = _code_at(old, at), _code_at(new, at)
    past = np.append(at[1:], old.expectations)
    differs = was != now
    edges = np.flatnonzero(np.diff(np.concatenate([[False], differs, [False]]).astype(np.int8)))
    stretches = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))

    def ends(values: Ints, begin: int, end: int, name: str) -> str:
        return _ends(name, int(values[begin]), int(values[end - 1]))

    examples = [
        Example(
            "", _ends(old.source, int(at[begin]), int(past[end - 1]) - 1), int(past[end - 1] - at[begin]),
            ends(was, begin, end, old.format), ends(now, begin, end, new.format),
        )
        for begin, end in stretches[:first]
    ]  # fmt: skip
    return OfClaim(claim, int((past - at)[differs].sum()), 0, 0, len(stretches), tuple(examples))


def _code_at(steps: Steps, patterns: Ints) -> Ints:
    found: Ints = steps.code[np.searchsorted(steps.first, patterns, side="right") - 1]
    return found


def _ends(format_name: str, low: int, high: int) -> str:
    ends = _shown(format_name, low), _shown(format_name, high)
    return ends[0] if low == high else " to ".join(ends)


def _shown(format_name: str, code: int) -> str:
    """A code as value and bits; of a format that this version does not know, its bits."""
    return show(Coded(format_name, np.array(code))) if format_name in FORMATS else f"{code:#x}"


# --- rows ------------------------------------------------------------------------------------------------------------


def _same_inputs(old: Rows, new: Rows) -> bool:
    return old.inputs.keys() == new.inputs.keys() and all(
        np.array_equal(tensor.data, new.inputs[name].data) for name, tensor in old.inputs.items()
    )


def _lists(claim: str, old: Rows, new: Rows, first: int) -> OfClaim:
    """Rows with the same inputs are held against each other, wherever they stand."""
    olds, news = _by_input(old), _by_input(new)
    both = [key for key in olds if key in news]
    rows = np.array([olds[key] for key in both], np.intp), np.array([news[key] for key in both], np.intp)
    found = _outputs(claim, old, new, *rows, first)
    added = len(news) - len(both)
    removed = len(olds) - len(both)
    return OfClaim(
        claim, found.changed, found.added + added * len(new.outputs), found.removed + removed * len(old.outputs),
        found.places, found.examples,
    )  # fmt: skip


def _by_input(rows: Rows) -> dict[tuple[bytes, int], int]:
    """The place of each row by what is put in, and of rows that are alike, by which of them it is."""
    found: dict[tuple[bytes, int], int] = {}
    seen: dict[bytes, int] = {}
    count = next(iter(rows.inputs.values())).data.shape[0]
    for place in range(count):
        key = b"\0".join(name.encode() + tensor.data[place].tobytes() for name, tensor in rows.inputs.items())
        found[key, seen.get(key, 0)] = place
        seen[key] = seen.get(key, 0) + 1
    return found


def _outputs(
    claim: str, old: Rows, new: Rows, of_old: npt.NDArray[np.intp], of_new: npt.NDArray[np.intp], first: int
) -> OfClaim:
    """Element by element; of a list, the rows that both have."""
    changed = added = removed = 0
    examples: list[Example] = []
    for name in dict.fromkeys([*old.outputs, *new.outputs]):
        was, now = old.outputs.get(name), new.outputs.get(name)
        if was is not None and now is not None and old.listed:
            was, now = Coded(was.format, was.data[of_old]), Coded(now.format, now.data[of_new])
        if was is None or now is None or was.data.shape != now.data.shape:
            rows = len(of_new if was is None else of_old)
            added += 0 if now is None else rows if old.listed else now.data.size
            removed += 0 if was is None else rows if old.listed else was.data.size
            continue
        places = np.argwhere(was.data != now.data)
        changed += len(places)
        for place in places[: max(first - len(examples), 0)]:
            examples.append(_element(old, name, was, now, place, of_old))
    return OfClaim(claim, changed, added, removed, changed, tuple(examples))


def _element(
    old: Rows, name: str, was: Coded, now: Coded, place: npt.NDArray[np.intp], of_old: npt.NDArray[np.intp]
) -> Example:
    index = tuple(int(i) for i in place)
    own = (int(of_old[index[0]]), *index[1:]) if old.listed else index
    x = old.inputs.get("x")
    given = ""
    if old.listed:
        given = ", ".join(
            f"{each} = {_some(tensor.format, np.atleast_1d(tensor.data[own[0]]).ravel())}"
            for each, tensor in old.inputs.items()
        )
    elif x is not None and x.data.shape == was.data.shape:
        given = f"x = {_shown(x.format, int(x.data[own]))}"
    return Example(
        f"{name}{list(own)}",
        given,
        1,
        _shown(was.format, int(was.data[index])),
        _shown(now.format, int(now.data[index])),
    )


def _some(format_name: str, codes: npt.NDArray[np.integer]) -> str:
    """A row of numbers: of a long one, those that are not zero."""
    if codes.size == 1:
        return _shown(format_name, int(codes[0]))
    kept = [f"[{place}] {_shown(format_name, int(codes[place]))}" for place in np.flatnonzero(codes)[:MOST]]
    return " ".join([*kept, "…"] if np.count_nonzero(codes) > MOST else kept) or "zeros"
