"""What is wrong with the numbers of scales, by themselves. Codes are read only where a scale is 0."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

import numpy as np

from narrowgauge.checkpoints.codes import PLAUSIBLE, top
from narrowgauge.checkpoints.counting import PLACES, Counted, as_places, count_into, counted, where
from narrowgauge.checkpoints.findings import Finding, Place
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.orders import order_findings
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import whole
from narrowgauge.checkpoints.values import has_numbers, numbers, raws, readable
from narrowgauge.checkpoints.zero_points import zero_points
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.codec import values

#: formats of scales that are numbers, where the scheme expects another
NUMBERS = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


def scale_findings(passport: Passport) -> Iterator[Finding]:
    """What the scales of one weight say by themselves. Raises ``BadInput`` where the file does not give them."""
    for role in ("scale", "second", "input", "second_input"):
        tensor, part = passport.tensors.get(role), passport.scheme.part(role)
        if tensor is None or part is None:
            continue
        if tensor.dtype not in part.dtypes and tensor.format not in NUMBERS:
            continue
        found = counted(tensor, part.format)
        exponents = part.format == "float8_e8m0fnu" and not tensor.format.startswith(("float16", "bfloat16", "float32"))
        yield from _of_exponents(tensor, found) if exponents else _of_numbers(passport, role, tensor, found)
        if found.one == found.every and role != "input" and (found.every > 1 or role == "scale"):
            yield Finding("all scales one", f"{found.every:,} of {found.every:,}", tensor.name, found.every)
        if role == "scale":
            yield from _of_size(passport, tensor, found)
    yield from order_findings(passport)
    yield from _of_shape(passport)
    if passport.scheme.zeros and "zeros" in passport.tensors and not readable(passport):
        yield from _of_zero_points(passport)


def _of_exponents(tensor: Stored, found: Counted) -> Iterator[Finding]:
    for code, kind in ((255, "E8M0 not a number"), (0, "E8M0 zero")):
        if count := found.codes.get(code, 0):
            places = tuple(Place(index, f"{code:#04x}") for index in where(tensor, code))
            yield Finding(kind, f"{count:,} of {found.every:,} scales are {code}", tensor.name, count, places)


def _of_numbers(passport: Passport, role: str, tensor: Stored, found: Counted) -> Iterator[Finding]:
    for name, kind, says in (
        ("negative", "scale negative", "are below 0"),
        ("not_finite", "scale not finite", "are infinite or NaN"),
        ("subnormal", "scale subnormal", f"are subnormal in {tensor.dtype}"),
    ):
        if count := getattr(found, name):
            places = found.places.get(name) or [
                (np.ravel_multi_index(index, tensor.shape or (1,)).item(), float(code))
                for code in found.codes
                if _is(name, code, tensor)
                for index in list(where(tensor, code))[:1]
            ]
            yield Finding(
                kind,
                f"{count:,} of {found.every:,} scales {says}",
                tensor.name,
                count,
                as_places(tensor, places[:PLACES]),
            )
    if found.zero:
        yield from _of_zeros(passport, role, tensor, found)
    if tensor.dtype == "BF16" and role == "scale":
        yield Finding("scale in bfloat16", f"{found.every:,} scales", tensor.name)


def _is(name: str, code: int, tensor: Stored) -> bool:
    probe = Counted()
    count_into(probe, values(FORMATS[tensor.format])[[code]], FORMATS[tensor.format], None)
    return bool(getattr(probe, name))


def _of_zeros(passport: Passport, role: str, tensor: Stored, found: Counted) -> Iterator[Finding]:
    said = f"{found.zero:,} of {found.every:,} scales are 0"
    lost = _lost(passport) if role == "scale" else 1
    if lost:
        under = {"scale": f"{lost:,} weights under them are not 0", "second": "all weights under them become 0"}
        said = f"{said}; {under.get(role, 'activations are divided by them')}"
        places = as_places(tensor, found.places.get("zero", []))
        yield Finding("scale zero", said, tensor.name, found.zero, places)
    else:
        yield Finding("scale zero over zeros", said, tensor.name, found.zero)


def _lost(passport: Passport) -> int:
    """Weights that are not 0 and whose scale is. 1 where the codes cannot be read."""
    if readable(passport):
        return 1
    return sum(int(np.count_nonzero((raw.scale == 0) & (raw.decoded != raw.zeros))) for raw in raws(passport))


def _of_size(passport: Passport, tensor: Stored, found: Counted) -> Iterator[Finding]:
    """Whether the largest weight that scales and codes allow is one, this way or the other."""
    if not found.most or passport.element not in FORMATS:
        return
    largest_code = top(passport) / passport.scheme.divisor
    second, divides = _second(passport)
    low, high = PLAUSIBLE

    def plausible(amax: float) -> bool:
        return low <= amax <= high

    amax = largest_code * found.most * (1 / second if divides else second)
    if plausible(amax) or not isfinite(amax):
        return
    if "second" in passport.tensors and plausible(
        other := largest_code * found.most * (second if divides else 1 / second)
    ):
        how = ("divides", "multiplied") if divides else ("multiplies", "divided")
        yield Finding(
            "second scale inverted",
            f"{second:g} {how[0]}, which makes weights of up to {amax:.3g}; {how[1]} by it they are up to {other:.3g}",
            passport.tensors["second"].name, 1,
        )  # fmt: skip
    else:
        inverse = largest_code / found.least if found.least else 0.0
        more = f"; by their reciprocals up to {inverse:.3g}" if plausible(inverse) else ""
        yield Finding(
            "scale implausible",
            f"scales from {found.least:g} to {found.most:g} make weights of up to {amax:.3g}{more}",
            tensor.name, found.every,
        )  # fmt: skip


def _second(passport: Passport) -> tuple[float, bool]:
    tensor, part = passport.tensors.get("second"), passport.scheme.part("second")
    if tensor is None or part is None or not has_numbers(tensor):
        return 1.0, False
    every = numbers(tensor)
    good = every[np.isfinite(every) & (every > 0)]
    return (float(good.max()), part.divides) if good.size else (1.0, False)


def _of_shape(passport: Passport) -> Iterator[Finding]:
    """The logical shape, where a tensor says it. The last word of a row may hold fewer codes than it could."""
    tensor = passport.tensors.get("shape")
    if tensor is None or tensor.shape != (2,) or tensor.dtype not in ("I64", "I32"):
        return
    rows, columns = (int(size) for size in whole(tensor).view("<i8" if tensor.dtype == "I64" else "<i4"))
    each = 32 // FORMATS[passport.element].bits
    if rows != passport.shape[-2] or -(-columns // each) * each != passport.shape[-1]:
        said = f"it says {[rows, columns]}; the codes make {list(passport.shape)}"
        yield Finding("shape disagrees", said, tensor.name, 1)


def _of_zero_points(passport: Passport) -> Iterator[Finding]:
    tensor, fmt = passport.tensors["zeros"], FORMATS[passport.element]
    every = zero_points(passport)
    half = fmt.code_count // 2
    wrong = np.argwhere((every < 0) | (every >= fmt.code_count))
    if len(wrong):
        places = tuple(Place((int(g), int(n)), f"{every[n, g]:g}") for n, g in wrong[:PLACES])
        said = f"{len(wrong):,} of {every.size:,} lie outside of 0 to {fmt.code_count - 1}, {every.max():g} the largest"
        yield Finding("zeros out of range", said, tensor.name, len(wrong), places)
    elif passport.asked and passport.asked.symmetric and (off := int(np.count_nonzero(every != half))):
        first = float(every[every != half][0])
        yield Finding("zeros out of step", f"{off:,} of {every.size:,} are {first:g}, not {half}", tensor.name, off)
