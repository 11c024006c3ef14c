"""Calls of wide operations that show mistakes: long rows of ones, squares beyond float16, near ties, single NaNs.

All is a sum or a quotient of whole numbers, so that inputs are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim, WideOp
from narrowgauge.contracts.wide import Held, Wide
from narrowgauge.reference.kv.arithmetic import F64, coded
from narrowgauge.reference.noise import noise
from narrowgauge.reference.wide.run import guesses, resolve_wide

#: powers of two of the magnitudes of rows
_POWERS = (-12, -6, -2, -1, 0, 1, 3, 6)
_WEIGHTS = (1.0, 0.75, 1.5, 0.3, -1.0, 2.0, 1.1)
_BIASES = (0.0, 0.25, -0.125, 0.03, 0.11, -0.4)
_TEMPERATURES = (1.0, 0.7, 0.25, 4.0, 1.3)
#: what a residual is larger than x by, row after row: sums that 16 bits round, and round away
_LARGER = (1.0, 8.0, 64.0, 256.0, 0.125)
#: logits of which float32 tells the largest, and bfloat16 does not
NEAR = (20.0, 20.03, 20.06, 19.97)
#: and logits that float16 does not tell apart
NEARER = (20.0, 20.003, 20.006, 19.997)
#: its square is beyond float16, and it is not
BEYOND_FLOAT16 = 300.0


@dataclass(frozen=True)
class Rows:
    """The matrix of a case: of so many columns, for what kinds of operations."""

    make: Callable[[int], F64]
    columns: int
    suits: Callable[[Wide], bool]
    about: str  #: the mistake or the place in the input space that this case is for
    depth: Literal["smoke", "standard"] = "smoke"


def has(step: str) -> Callable[[Wide], bool]:
    """Operations of which a step is so named."""
    return lambda wide: any(found[0] == step for found in wide.steps)


def _takes(name: str) -> Callable[[Wide], bool]:
    return lambda wide: any(held.name == name for held in wide.inputs)


def _any(wide: Wide) -> bool:
    return True


def _chooses(wide: Wide) -> bool:
    return bool(wide.chosen)


def _weighs(wide: Wide) -> bool:
    return has("square_mean")(wide) or has("exp")(wide)


def _noise(columns: int) -> F64:
    """Rows of noise of a magnitude each, one of zeros, one with a single large number, one of both signs of one."""
    rows = [np.ldexp(noise(columns, seed=20 + k), power) for k, power in enumerate(_POWERS)]
    outlier = noise(columns, seed=40)
    outlier[7 % columns] = 150.0
    return np.stack([*rows, np.zeros(columns), outlier, np.resize([1.0, -1.0], columns)])


def _specials(columns: int) -> F64:
    """Ordinary rows, and between them one with NaN, one with infinity, one with -infinity, in one place each."""
    value = np.stack([noise(columns, seed=50 + k) for k in range(8)])
    for row, number in ((1, np.nan), (3, np.inf), (5, -np.inf)):
        value[row, (3 * row) % columns] = number
    value[7, -1] = np.nan  # in a column that a mask hides
    return value


def _infinities(columns: int) -> F64:
    """The same without NaN."""
    return np.delete(_specials(columns), (1, 7), axis=0)


def _long(columns: int) -> F64:
    """Ones, of which a narrow sum stops growing; what float16 cannot square; zeros, of which softmax is 1 / columns; a
    third; noise."""
    constants = [np.full(columns, value) for value in (1.0, BEYOND_FLOAT16, 0.0, 1 / 3)]
    return np.stack([*constants, noise(columns, seed=60)])


def _near_epsilon(columns: int) -> F64:
    """Rows whose squares are about what is added to their mean, or far below it."""
    return np.stack([np.ldexp(noise(columns, seed=70 + k), power) for k, power in enumerate((-11, -10, -9, -30))])


def _near(columns: int) -> F64:
    """Logits that only a wide format tells apart, in every place; equal ones; very large and very small ones."""
    quiet = noise(columns, seed=80) - 4.0
    rows = []
    for logits in (NEAR, NEARER):
        for shift in (0, columns // 2, columns - len(NEAR)):
            row = quiet.copy()
            row[shift : shift + len(NEAR)] = logits
            rows.append(row)
    equal = np.resize([1.0, 2.0, 3.0], columns)
    wide = np.linspace(-900.0, 900.0, columns)
    falling = np.linspace(80.0, -110.0, columns)
    return np.stack([*rows, equal, np.zeros(columns), wide, falling])


def _draws(columns: int) -> F64:
    """Many rows of ordinary logits, for a token of each."""
    return np.multiply(2.0, noise(48 * columns, seed=75).reshape(48, columns))


CASES: Mapping[str, Rows] = {
    "noise": Rows(_noise, 96, _any, "rows of many magnitudes, zeros, one large number"),
    "one_pair": Rows(_noise, 2, lambda wide: wide.chosen < 2, "rows of two elements"),
    "specials": Rows(
        _specials, 96, lambda wide: not guesses(wide), "one NaN, one infinity in a row: where it must arrive"
    ),
    "infinities": Rows(_infinities, 96, guesses, "one infinity in a row, of a choice that NaN leaves open"),
    "long": Rows(
        _long,
        4096,
        lambda wide: _weighs(wide) and not _chooses(wide),
        "4,096 ones, squares beyond float16: narrow sums",
    ),
    "near_epsilon": Rows(_near_epsilon, 100, has("square_mean"), "squares of about ε, and far below it"),
    "near": Rows(
        _near, 100, lambda wide: has("exp")(wide) or has("top")(wide), "logits that tie in 16 bits, equal, far apart"
    ),
    "draws": Rows(_draws, 40, _takes("temperature"), "many draws: temperature and noise"),
    "many": Rows(_near, 5000, lambda wide: wide.chosen == 1, "the same among 5,000 columns", "standard"),
}


def made(name: str) -> Callable[[Claim], Coded]:
    """The call of a case for a claim."""
    return lambda claim: call(name, _wide_of(claim), claim.source)


def suits(name: str) -> Callable[[Claim], bool]:
    """Whether a claim can have a case."""
    return lambda claim: CASES[name].suits(_wide_of(claim))


def _wide_of(claim: Claim) -> Wide:
    assert isinstance(claim.contract, WideOp)
    return resolve_wide(claim.contract.wide, f"claim {claim}")


def call(name: str, wide: Wide, source: str) -> Input:
    """The matrix of a case for an operation, with what is given beside it."""
    rows = CASES[name]
    return call_with(rows.make(rows.columns * wide.parts), wide, source)


def call_with(value: F64, wide: Wide, source: str) -> Input:
    """A matrix for an operation, in a format, with what is given beside it."""
    columns = value.shape[1] // wide.parts
    given = {held.name: beside(held, wide, value, columns, source) for held in wide.inputs}
    x = coded(value, source)
    return Input(x.format, x.data, given)


def beside(held: Held, wide: Wide, x: F64, columns: int, source: str) -> Coded:
    """One matrix that is given beside x [rows, n · columns], whose elements these are."""
    shape, fmt = held.shape(x.shape[0], columns, wide.chosen), held.format or source
    if fmt == "int32":
        lengths = np.resize([columns, columns - 1, 1, columns // 2, 2, columns], shape)
        return Coded(fmt, np.clip(lengths, 1, columns).astype(np.int32).view(np.uint32))
    if held.name == "residual":
        return coded(_residual(x), fmt)
    return coded(_numbers(held.name, shape), fmt)


def _residual(x: F64) -> F64:
    """Rows of noise, each of a magnitude that stands in a ratio to that of x."""
    largest = np.abs(np.where(np.isfinite(x), x, 0.0)).max(axis=1, keepdims=True)
    unit = np.ldexp(1.0, np.frexp(largest)[1] - 2)  # about the root of the mean square of noise
    drawn = noise(x.size, seed=91).reshape(x.shape)
    return np.asarray(drawn * unit * np.resize(_LARGER, (x.shape[0], 1)), np.float64)


def _numbers(name: str, shape: tuple[int, int]) -> F64:
    count = shape[0] * shape[1]
    if name in ("cos", "sin"):  # of angles whose half has a tangent that is a number of float32
        tangent = noise(count, seed=90).reshape(shape)
        return (1 - tangent**2) / (1 + tangent**2) if name == "cos" else 2 * tangent / (1 + tangent**2)
    if name == "noise":  # in every third row the same for all: there the shares alone decide
        drawn = np.abs(noise(count, seed=92)).reshape(shape) + 2.0**-6
        return np.where(np.arange(shape[0])[:, None] % 3 == 0, 0.5, drawn)
    numbers = {"weight": _WEIGHTS, "bias": _BIASES, "temperature": _TEMPERATURES}[name]
    return np.resize(np.array(numbers), shape)
