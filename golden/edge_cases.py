"""Edge cases by name: the few inputs that a first test of a cast wants, with the codes that the vectors give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.golden.families import Family, Tensors, form_of
from narrowgauge.golden.using import looked_up
from narrowgauge.reference.codec import WIDEST_TABLE, largest, unrestricted
from narrowgauge.reference.fast_codec import cast, decode_values

_IEEE = CastPolicy(overflow="special", infinity="special")


def edge_cases(family: Family, tensors: Tensors) -> dict[str, list[dict[str, str]]]:
    """By source format: input value and pattern, expected code, the code's value, and why the case is there.

    Of a decode family it is every code.
    """
    return {claim.source: _cases(claim, tensors) for claim in family.claims}


def _cases(claim: Claim, tensors: Tensors) -> list[dict[str, str]]:
    source, fmt = format_named(claim.source), format_named(claim.format)
    why = _every(source) if form_of(claim) == "table" else _named(source, fmt)
    patterns = np.array(list(why), source.storage)
    codes = looked_up(claim, tensors, patterns)
    given, gives = decode_values(Coded(source.name, patterns)), decode_values(Coded(fmt.name, codes))
    return [
        {
            "value": _text(given[i]),
            "pattern": _hex(patterns[i], source),
            "code": _hex(codes[i], fmt),
            "gives": _text(gives[i]),
            "why": reason,
        }
        for i, reason in enumerate(why.values())
    ]


def _text(value: Any) -> str:
    return repr(float(value))


def _hex(code: Any, fmt: Format) -> str:
    return f"{int(code):#0{2 + (fmt.bits + 3) // 4}x}"


def _every(source: Format) -> dict[int, str]:
    values = decode_values(Coded(source.name, np.arange(source.code_count, dtype=source.storage)))
    finite = values[np.isfinite(values)]
    kinds = [
        (np.isnan(values), "NaN"),
        (np.isinf(values), "infinity"),
        (values == 0, "zero"),
        (np.isin(values, (finite.min(), finite.max())), "end of the range"),
    ]
    return {c: next((name for holds, name in kinds if holds[c]), "a value") for c in range(source.code_count)}


def _named(source: Format, fmt: Format) -> dict[int, str]:
    """Source patterns, each with its reason, without repetition; a place that the source cannot express is left out."""
    found: dict[int, str] = {}
    for pattern, why in (*_specials(source), *_places(source, fmt)):
        found.setdefault(pattern, why)
        found.setdefault(pattern | source.sign_bit, f"{why}, negative")
    return found


def _specials(source: Format) -> Iterator[tuple[int, str]]:
    infinity, quiet = ((1 << source.exponent) - 1) << source.mantissa, 1 << (source.mantissa - 1)
    yield 0, "zero"
    yield infinity, "infinity"
    yield infinity | quiet, "NaN"
    yield infinity | 1, "NaN, signalling"
    yield infinity | (2 * quiet - 1), "NaN, every bit set"
    yield 1, f"smallest subnormal of {source.name}"
    yield infinity - 1, f"largest finite {source.name}"


def _places(source: Format, fmt: Format) -> Iterator[tuple[int, str]]:
    """Values and ties at both ends of the destination's range, where its normal values begin, and at 1."""
    if fmt.bits > WIDEST_TABLE:
        return  # a source is exact in it
    top = largest(fmt)
    grid = unrestricted(np.arange(top + 2, dtype=np.int64), fmt)
    normal, one = 1 << fmt.mantissa, int(np.searchsorted(grid, 1.0))
    around = {0, 1, 2, normal - 1, normal, one - 1, one, top - 1, top}
    for code in sorted(c for c in around if 0 <= c <= top):
        name = "what would come next" if code == top else _hex(code + 1, fmt)
        yield from _exactly(float(grid[code]), source, f"the value of {_hex(code, fmt)}")
        for tie, _ in _exactly(float(grid[code] + grid[code + 1]) / 2, source, ""):
            yield tie, f"tie of {_hex(code, fmt)} and {name}"
            yield tie - 1, f"one pattern below the tie of {_hex(code, fmt)} and {name}"
            yield tie + 1, f"one pattern above the tie of {_hex(code, fmt)} and {name}"
    yield from _exactly(float(grid[top + 1]), source, "overflow: what would come after the largest value")
    yield from _exactly(float(grid[top + 1]) * 4, source, "overflow: far beyond the largest value")


def _exactly(value: float, source: Format, why: str) -> Iterator[tuple[int, str]]:
    """The pattern of a positive value, where the source has it."""
    code = cast(Coded("float64", np.array([value], "<f8").view("<u8")), source.name, _IEEE)
    if value > 0 and decode_values(code)[0] == value and np.isfinite(value):
        yield int(code.data[0]), why
