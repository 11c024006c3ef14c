"""Operands on which bounds are held to definitions: of every kind of number that a format has."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.suites.meta.second_bounds import FORMATS

Rows = list[list[int]]
KINDS = ("any", "near one", "one sign", "subnormal", "tiny", "one large")
#: fields around that of 1 from which exponents are drawn, where a format has more: sums then stay finite
_REACH = 30


@dataclass(frozen=True)
class Operands:
    """Codes of two matrices, by rows."""

    a_format: str
    b_format: str
    a: Rows
    b: Rows

    def coded(self) -> tuple[Coded, Coded]:
        """The same as buffers."""
        return _coded(self.a, self.a_format), _coded(self.b, self.b_format)


def _coded(rows: Rows, name: str) -> Coded:
    return Coded(name, np.array(rows, format_named(name).storage))


def operands(a_format: str, b_format: str, kind: str, m: int, n: int, k: int, seed: int) -> Operands:
    """Codes of one kind; "one large": the first place holds the largest numbers, the others small ones."""
    rng = random.Random(f"{a_format}/{b_format}/{kind}/{k}/{seed}")
    a = [[_code(a_format, kind, place, rng) for place in range(k)] for _ in range(m)]
    b = [[_code(b_format, kind, place, rng) for place in range(k)] for _ in range(n)]
    return Operands(a_format, b_format, a, b)


def _code(name: str, kind: str, place: int, rng: random.Random) -> int:
    exponent, mantissa, bias = FORMATS[name]
    last = 2**exponent - 2  # the top field holds infinities and NaN in some formats
    low, high = max(0, bias - _REACH), min(last, bias + _REACH)
    field = {
        "any": rng.randint(low, high),
        "near one": min(last, max(0, bias + rng.choice((-2, -1, -1, 0, 0, 0, 1)))),
        "one sign": min(last, max(0, bias + rng.choice((-3, -1, 0, 0, 1)))),
        "subnormal": rng.choice((0, 0, 0, low, min(low + 3, last), bias)),
        "tiny": max(0, bias - rng.randint(60, 68)),  # of bfloat16: products about 2^-126
        "one large": high if place == 0 else max(low, bias - rng.randint(4, 12)),
    }[kind]
    if rng.random() < 0.05:
        return 0
    sign = 0 if kind == "one sign" else rng.getrandbits(1)
    return int((sign << exponent | field) << mantissa | rng.getrandbits(mantissa))


def values(x: Coded) -> npt.NDArray[np.float64]:
    """What codes stand for, by hand."""
    exponent, mantissa, bias = FORMATS[x.format]
    code = x.data.astype(np.int64)
    field, fraction = (code >> mantissa) & (2**exponent - 1), code & (2**mantissa - 1)
    whole = fraction + np.where(field > 0, 1 << mantissa, 0)
    magnitude = np.ldexp(whole.astype(np.float64), np.maximum(field, 1) - bias - mantissa)
    return np.asarray(np.where(code >> (exponent + mantissa), -magnitude, magnitude))
