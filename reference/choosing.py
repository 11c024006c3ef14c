"""A policy and random bits as somebody typed them: ``rounding=down,limit=240`` and ``200/8``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import Format
from narrowgauge.contracts.policy import CastPolicy, options
from narrowgauge.reference.codec import RandomBits, nan_code
from narrowgauge.reference.policies import check_fits, resolve

#: zero points that may be typed; every integer format ends far below
FARTHEST = 1 << 31


def chosen(text: str, fmt: Format, named: str | None = None) -> CastPolicy:
    """A policy with some fields chosen anew, from a named one or the plain one (whose NaN is 0 in a format without).

    Raises ``BadInput`` for a choice that does not exist, is given twice, or does not fit the format.
    """
    plain = CastPolicy() if nan_code(fmt) >= 0 else CastPolicy(nan="zero")
    base = plain if named is None else resolve(named, fmt.name)
    given: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in given:
            raise BadInput(f"choice {part!r}; expected choice=value, each once, for example rounding=down,limit=240")
        given[name] = _read(name, value)
    policy = replace(base, **given)
    check_fits(policy, fmt)
    return policy


def _read(name: str, value: str) -> Any:
    """The value of one field; which words there are, the policy itself checks."""
    if name in options():
        return value
    if name not in {f.name for f in fields(CastPolicy)}:
        raise unknown("choice", name, [f.name for f in fields(CastPolicy)], "a cast policy")
    try:
        if name == "zero_point":
            point = int(value, 0)
            if abs(point) < FARTHEST:
                return point
        else:
            return None if value.lower() == "none" else float(value)
    except ValueError:
        pass
    kind = f"a whole number below {FARTHEST} either way" if name == "zero_point" else "a number or none"
    raise BadInput(f"choice {name}={value!r}; expected {kind}")


def random_bits(text: str) -> RandomBits:
    """``200/8``: the integer, of 8 bits. Raises ``BadInput``."""
    bits, slash, width = text.partition("/")
    try:
        if not slash:
            raise ValueError
        return RandomBits(np.array(int(bits, 0), np.int64), int(width))
    except (ValueError, OverflowError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"random bits {text!r}; expected BITS/WIDTH, for example 200/8 or 0x80/8") from None
