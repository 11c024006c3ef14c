"""A value as somebody typed it: a code of a format, or a number, which the format may not hold."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, as_codes
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import nan_code
from narrowgauge.reference.fast_codec import cast, decode_values


@dataclass(frozen=True)
class Typed:
    """One element (0-d), and the number that it was rounded from, if neither it nor its usual spelling (9 digits, of
    float64 the shortest) is that number."""

    value: Coded
    rounded_from: str | None = None
    note: str = ""  #: the rounding, for people


def typed(text: str, source: Format) -> Typed:
    """A hexadecimal integer as a code of the source, anything else as a number. Raises ``BadInput`` for what is
    neither, for a code that the source does not have, and for NaN and infinity where it has none."""
    hexadecimal = "0x" in text.lower()
    if hexadecimal and text[0] != "-" and "." not in text and "p" not in text.lower():
        try:
            code = np.array(int(text, 16), np.uint64)
        except (ValueError, OverflowError):
            raise BadInput(f"value {text!r}; expected a number or a code of {source.name} in hexadecimal") from None
        return Typed(Coded(source.name, as_codes(source.name, code)))
    try:
        real = float.fromhex(text) if hexadecimal else float(text)
    except (ValueError, OverflowError):
        raise BadInput(f"value {text!r}; expected a number (500, 1e-3, 0x1.8p-10, nan, -inf) or a code, 0x7e") from None
    exact = _exactly(text) if not hexadecimal else Decimal(real)
    if not exact.is_finite():
        _check_special(real, source)
    value = _nearest(exact, real, source) if exact.is_finite() else _rounded(real, source)
    got = float(decode_values(value))
    written = repr(got) if source.name == "float64" else f"{got:.9g}"
    if exact.is_nan() or _same(exact, Decimal(got)) or _same(exact, Decimal(written)):
        return Typed(value)
    more = "it" if _same(exact, Decimal(real)) else "more of it"
    hint = "" if _same(Decimal(real), Decimal(got)) else f"; --source float64 keeps {more}"
    return Typed(value, text, f"{text} is no {source.name}: rounded to {written}{hint}")


def _exactly(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise BadInput(f"value {text!r}; expected an exponent of at most 18 digits") from None


def _same(one: Decimal, other: Decimal) -> bool:
    """Whether they are the same number, a zero of the same sign; NaN is none."""
    return one == other and one.is_signed() == other.is_signed()


def _check_special(real: float, source: Format) -> None:
    if nan_code(source) < 0:
        raise BadInput(f"{source.name} has no {real:g}; give a finite value, or another --source")


def _nearest(exact: Decimal, real: float, source: Format) -> Coded:
    """The source's nearest value. float64 comes between, rounded to odd, so that nothing is rounded twice."""
    if source.name == "float64":
        return _rounded(real, source)
    if math.isinf(real):
        real = math.copysign(sys.float_info.max, real)
    odd = bool(np.array(real).view(np.uint64) & np.uint64(1))
    if exact != Decimal(real) and not odd:
        real = math.nextafter(real, math.inf if exact > Decimal(real) else -math.inf)
    return _rounded(real, source)


def _rounded(real: float, source: Format) -> Coded:
    exact = Coded("float64", np.array(real, np.float64).view(np.uint64))
    if source.name == "float64":
        return exact
    has_nan = nan_code(source) >= 0
    beyond, nan = ("special", "nan") if has_nan else ("max", "zero")
    return cast(exact, source.name, CastPolicy(overflow=beyond, infinity=beyond, nan=nan))  # type: ignore[arg-type]
