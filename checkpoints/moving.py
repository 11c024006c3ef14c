"""What becomes of a tensor's numbers where they go: float16, another format without scales, or a device of FNUZ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from narrowgauge.checkpoints import counted
from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.findings import Finding, Place
from narrowgauge.checkpoints.flavours import flavour_findings
from narrowgauge.checkpoints.kinds.parts import Part, part_of
from narrowgauge.checkpoints.landing import DESTINATIONS
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.reading import all_elements
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS, format_named
from narrowgauge.reference.codec import decode, values
from narrowgauge.reference.landmarks import top_code
from narrowgauge.reference.showing import show

#: not a format but a device that has only FNUZ: bytes of OCP are converted as they are loaded
FNUZ = "fnuz"
#: what OCP bytes become there
TWIN = {"float8_e4m3fn": "float8_e4m3fnuz", "float8_e5m2": "float8_e5m2fnuz"}
#: values that become zero are many if they are so many, and such a share of those that are not zero
MANY, SHARE = 100, 1e-3
_SCALE = re.compile(r"(^|[._])scales?(_inv|_2)?$")


def findings(tensor: Stored, census: Census, to: str = "") -> list[Finding]:
    """What is wrong with a tensor's numbers as they are (``to`` is ""), or would be: in "float16", in another format of
    ``landing.NARROW`` without a scale, or on a device of FNUZ ("fnuz").

    The census has to have been taken into ``to``, where that is a format. Of a tensor that is not the model's, what a
    conversion loses is a note.
    """
    if to == "":
        found = [*_there(census), *flavour_findings(tensor.format, census)]
    elif to == FNUZ:
        found = list(_to_fnuz(tensor, census))
    else:
        found = list(_cast(census, format_named(to).name, part_of(tensor.name)))
    if to and tensor.role != "model":
        found = [replace(f, kind="lost outside the model") for f in found]
    return [replace(f, tensor=tensor.name) for f in found]


# --- as they are -----------------------------------------------------------------------------------------------------


def _there(census: Census) -> Iterator[Finding]:
    """NaN and infinities that a tensor holds."""
    if FORMATS.get(census.format) is None or FORMATS[census.format].family == "integer":
        return
    if census.nan:
        said = f"{census.nan:,} of {census.elements:,} values are NaN"
        if census.format == "float8_e4m3fn":  # and a few ±240 of FNUZ are too few for a fingerprint
            said += "; in FNUZ these bytes are ±240, if the label is wrong"
        yield Finding("NaN there", said, count=census.nan, places=census.places(counted.NAN))
    if census.infinite:
        said = f"{census.plus_infinite:,} values are inf and {census.minus_infinite:,} -inf, of {census.elements:,}"
        places = first(census, counted.PLUS_INFINITE, counted.MINUS_INFINITE)
        yield Finding("infinity there", said, count=census.infinite, places=places)


def first(census: Census, *kinds: str) -> tuple[Place, ...]:
    """The first places of several kinds of trouble together."""
    every = [place for kind in kinds for place in census.places(kind)]
    return tuple(sorted(every, key=lambda place: place.index)[: counted.FIRST])


# --- into a format, without a scale ----------------------------------------------------------------------------------


def _cast(census: Census, to: str, part: Part) -> Iterator[Finding]:
    """What a cast of each value alone loses."""
    there = census.into.get(to)
    if there is None:  # integers, and what is of that format
        return
    wide = to in DESTINATIONS
    of = f"of {census.elements:,} values"
    if there.beyond:
        ends = "become infinite" if wide else "lie beyond the largest"
        said = f"{there.beyond:,} {of} {ends} in {to}; the largest is {census.amax:,.6g}, the largest there {_most(to)}"
        kind = _kind_beyond(to, part) if wide else "beyond a narrow format"
        places = census.places(counted.beyond(to))
        yield Finding(kind, _effect(said, part.infinite if wide else ""), count=there.beyond, places=places)
    if there.flushed:
        cast = "become 0" if wide else f"become 0 in an unscaled cast to {to}"
        said = f"{there.flushed:,} {of} {cast}; the smallest is {census.least:.3g}, the smallest there {_least(to)}"
        kind = _kind_of_zero(census, there.flushed, to, part) if wide else "zero in a narrow format"
        places = census.places(counted.flushed(to))
        yield Finding(kind, _effect(said, part.zero if wide else ""), count=there.flushed, places=places)


def _kind_beyond(to: str, part: Part) -> str:
    return f"scale lost in {to}" if part.scale else f"infinite in {to}"


def _kind_of_zero(census: Census, flushed: int, to: str, part: Part) -> str:
    if part.scale:
        return f"scale lost in {to}"
    if part.zero:
        return f"zero where it counts in {to}"
    nonzero = census.finite - census.zeros
    return f"many zero in {to}" if flushed >= max(MANY, SHARE * nonzero) else f"zero in {to}"


def _effect(said: str, effect: str) -> str:
    return f"{said}: {effect}" if effect else said


def _most(to: str) -> str:
    return f"{_value(to, top_code(FORMATS[to])):,.6g}"


def _least(to: str) -> str:
    return f"{_value(to, 1):.3g}"


def _value(name: str, code: int) -> float:
    return float(decode(np.array([code], FORMATS[name].storage), FORMATS[name])[0])


# --- OCP bytes on a device of FNUZ -----------------------------------------------------------------------------------


def _to_fnuz(tensor: Stored, census: Census) -> Iterator[Finding]:
    """What the conversion that engines do at load must do, and what it cannot.

    In vLLM 0.33.0 that is w8a8_utils.py:109-130, and fp8_utils.py:1506-1530 for exponents.
    """
    if census.format in TWIN:
        yield from _codes_to_fnuz(census)
    elif _SCALE.search(tensor.name) and census.codes is not None:
        yield from _exponents_doubled(census)
    elif _SCALE.search(tensor.name):
        yield from _doubled(tensor, census)


def _codes_to_fnuz(census: Census) -> Iterator[Finding]:
    """Codes of OCP, which keep their bits but for 0x80, while every scale doubles."""
    zero = FORMATS[census.format].sign_bit
    zeros = census.count(zero)
    said = f"{census.elements:,} codes stand for half as much in {TWIN[census.format]}: their scales must double"
    if zeros:
        said += f"; {zeros:,} are {zero:#04x}, which must become 0x00, or they are NaN"
    yield Finding("OCP bytes for FNUZ", said, count=zeros, places=census.places(counted.code(zero)))
    ocp, fnuz = (values(FORMATS[name]) for name in (census.format, TWIN[census.format]))
    lost = np.flatnonzero(~np.isfinite(ocp)).tolist()  # none of which is 0x80
    lost = [code for code in lost if census.count(code)]
    if lost:
        count = sum(census.count(code) for code in lost)
        ends = ", ".join(f"{code:#04x} ({ocp[code]:g}) would be {fnuz[code]:g}" for code in lost)
        places = first(census, *(counted.code(code) for code in lost))
        yield Finding("NaN becomes finite", f"{count:,} codes: {ends}", count=count, places=places)


def _exponents_doubled(census: Census) -> Iterator[Finding]:
    """Scales that are powers of two, in a type of their own or as integers."""
    nan = FORMATS["float8_e8m0fnu"].code_count - 1
    top, none = census.count(nan - 1), census.count(nan)
    if top or none:
        said = (
            f"{top:,} exponents are {nan - 1}, the largest, and {none:,} are {nan}, which is NaN: a loader that adds 1 "
            f"and holds it to {nan - 1} loses a factor of two, and makes a number of NaN"
        )
        places = first(census, counted.code(nan), counted.code(nan - 1))
        yield Finding("E8M0 cannot double", said, count=top + none, places=places)


def _doubled(tensor: Stored, census: Census) -> Iterator[Finding]:
    """Scales that are numbers."""
    fmt = FORMATS.get(census.format)
    if fmt is None or fmt.family == "integer":
        return
    most = _value(fmt.name, top_code(fmt))
    if 2 * census.amax <= most:
        return
    codes = all_elements(tensor)
    real = decode(codes.codes, fmt)
    large = np.flatnonzero(np.isfinite(real) & (2 * np.abs(real) > most))
    shape = tensor.shape or (1,)
    places = tuple(
        Place(
            tuple(map(int, np.unravel_index(at, shape))) if tensor.shape else (), show(Coded(fmt.name, codes.codes[at]))
        )
        for at in large[: counted.FIRST]
    )
    said = f"{large.size:,} of {census.elements:,} scales; the largest is {census.amax:.6g}, of {fmt.name} {most:.6g}"
    yield Finding("scale cannot double", said, count=int(large.size), places=places)
