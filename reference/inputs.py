"""Inputs that show mistakes: every tie and its neighbours, every special, every exponent; never random data alone.

Each case is a name, a depth from which it is run, and a function of a claim. Adding a case is one entry of ``CASES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import encode, largest, unrestricted, values

Depth = Literal["smoke", "standard", "exhaustive"]
DEPTHS: tuple[Depth, ...] = ("smoke", "standard", "exhaustive")

_EXACT = CastPolicy(overflow="special", infinity="special")
_SEED = 20261129


@dataclass(frozen=True)
class Case:
    """A named set of inputs for claims of one operation."""

    name: str
    operation: str
    make: Callable[[Claim], Coded | None]  #: None where the case has no meaning for the claim
    depth: Depth = "smoke"
    #: the mistake or the place in the input space that this case is for
    about: str = ""


# --- one value at a time ---------------------------------------------------------------------------------------------


def _source_codes(reals: npt.NDArray[np.float64], source: Format) -> npt.NDArray[np.uint64]:
    """Source codes of real values: the nearest, and its neighbours one code below and above."""
    if source.name == "float32":
        with np.errstate(over="ignore"):
            middle = reals.astype(np.float32).view(np.uint32).astype(np.int64)
    else:
        middle = encode(reals, source, _EXACT).astype(np.int64)
    near = middle[:, None] + np.array([0, -1, 1])
    return np.unique(near[(near >= 0) & (near < source.code_count)]).astype(np.uint64)


def boundaries(fmt: Format) -> npt.NDArray[np.float64]:
    """Every non-negative value of a format, every midpoint, and those of the two places beyond the largest."""
    grid = unrestricted(np.arange(largest(fmt) + 3, dtype=np.int64), fmt)
    return np.unique(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2]))


def _specials(source: Format) -> npt.NDArray[np.uint64]:
    """Zeros, infinities, the ends of the source's normal and subnormal ranges, and every class of NaN; both signs."""
    m = source.mantissa
    infinity = ((1 << source.exponent) - 1) << m
    quiet = 1 << (m - 1)
    positive = [0, 1, (1 << m) - 1, 1 << m, infinity - 1, infinity, infinity | 1]
    positive += [infinity | quiet, infinity | quiet | 1, infinity | ((1 << m) - 1), infinity | (quiet - 1)]
    positive += [(source.bias + e) << m for e in (-1, 0, 1)]
    return np.array([c | s for c in positive for s in (0, source.sign_bit)], np.uint64)


def _both_signs(codes: npt.NDArray[np.uint64], source: Format) -> npt.NDArray[np.uint64]:
    return np.concatenate([codes, codes | np.uint64(source.sign_bit)])


def _coded(codes: npt.NDArray[np.uint64], source: Format) -> Coded:
    return Coded(source.name, codes.astype(source.storage))


def _edges(claim: Claim) -> Coded:
    source, fmt = format_named(claim.source), format_named(claim.format)
    near = _both_signs(_source_codes(boundaries(fmt), source), source)
    return _coded(np.concatenate([_specials(source), near]), source)


def _every_code(claim: Claim) -> Coded | None:
    source = format_named(claim.source)
    return _coded(np.arange(source.code_count, dtype=np.uint64), source) if source.bits <= 16 else None


def _stratified(mantissas: int) -> Callable[[Claim], Coded | None]:
    """float32: every exponent and sign, each with so many mantissas, and every bfloat16 and float16 value."""

    def make(claim: Claim) -> Coded | None:
        source = format_named(claim.source)
        if source.name != "float32":
            return None
        random = np.random.default_rng(_SEED)
        head = np.arange(512, dtype=np.uint64)[:, None] << np.uint64(23)
        # Half of the mantissas have few bits set at the top and noise of a few ulp below: where ties are near.
        tops = random.integers(0, 1 << 8, (512, mantissas // 2), dtype=np.uint64) << np.uint64(15)
        noise = random.integers(0, 3, tops.shape, dtype=np.uint64)
        free = random.integers(0, 1 << 23, (512, mantissas - mantissas // 2), dtype=np.uint64)
        patterns = [(head | tops | noise).ravel(), (head | free).ravel()]
        for name in ("bfloat16", "float16"):
            fmt = FORMATS[name]
            with np.errstate(invalid="ignore"):
                patterns.append(values(fmt).astype(np.float32).view(np.uint32).astype(np.uint64))
        return _coded(np.concatenate(patterns), source)

    return make


# --- matrices --------------------------------------------------------------------------------------------------------

Rows = dict[str, npt.NDArray[np.float64]]


def quantizer_rows(columns: int, bound: float) -> Rows:
    """Rows for a per-token quantizer, each with the name of what it is for."""
    random = np.random.default_rng(_SEED)
    noise = random.standard_normal(columns)
    ramp = np.linspace(-1.0, 1.0, columns)

    def holding(value: float, row: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        out = row.copy()
        out[columns // 2] = value
        return out

    rows: Rows = {
        "zeros": np.zeros(columns),
        "negative zeros": np.full(columns, -0.0),
        "ones": np.ones(columns),
        "one element": holding(3.0, np.zeros(columns)),
        "largest is negative": holding(-9.0, noise),
        "ties of a unit scale": holding(bound, np.resize(boundaries(FORMATS["float8_e4m3fn"]), columns) % bound),
        "a NaN": holding(np.nan, noise),
        "a signalling NaN": noise.copy(),
        "all NaN": np.full(columns, np.nan),
        "an infinity": holding(np.inf, noise),
        "a negative infinity": holding(-np.inf, noise),
        "smallest subnormal": np.full(columns, 2.0**-149),
        "subnormals": ramp * 2.0**-127,
        "below the minimum scale": ramp * 2.0**-12,
        "near overflow": ramp * 3.3e38,
    }
    for power in (-100, -30, -8, -1, 0, 5, 15, 60):
        rows[f"noise x 2^{power}"] = np.ldexp(noise, power)
        rows[f"bound x 2^{power}"] = holding(np.ldexp(bound, power), np.ldexp(ramp * bound, power))
    # A row for each of many largest values: where amax / bound and amax * (1 / bound) part.
    for step, amax in enumerate(np.linspace(1.0, 2.0, 48, endpoint=False)):
        rows[f"largest {amax:.6g}"] = holding(amax, np.clip(np.roll(noise, step) * 0.3, -0.99, 0.99))
    return rows


def _matrix(columns: int) -> Callable[[Claim], Coded]:
    def make(claim: Claim) -> Coded:
        fmt = format_named(claim.format)
        rows = quantizer_rows(columns, float(values(fmt)[largest(fmt)]))
        x = _as_source(np.stack(list(rows.values())), claim)
        source = format_named(claim.source)
        # float64 has no signalling NaN to give: it is written as a pattern, into a row of noise.
        x.data[list(rows).index("a signalling NaN"), columns // 2] = (((1 << source.exponent) - 1) << source.mantissa) | 1
        return x

    return make


def _as_source(matrix: npt.NDArray[np.float64], claim: Claim) -> Coded:
    source = format_named(claim.source)
    if source.name == "float32":
        with np.errstate(over="ignore"):
            return Coded("float32", matrix.astype(np.float32).view(np.uint32))
    return Coded(source.name, encode(matrix, source, _EXACT))


def _empty(claim: Claim) -> Coded:
    return _as_source(np.zeros((0, 128)), claim)


def _wide(claim: Claim) -> Coded:
    """Few rows, many columns, every row at its own magnitude."""
    random = np.random.default_rng(_SEED + 1)
    matrix = random.standard_normal((8, 5120)) * np.ldexp(1.0, np.arange(-12, 12, 3))[:, None]
    return _as_source(matrix, claim)


CASES: tuple[Case, ...] = (
    Case("edges", "cast", _edges, about="every value and tie of the destination, one code either side, every special"),
    Case("every_code", "cast", _every_code, about="the whole space of a 16-bit source"),
    Case("stratified", "cast", _stratified(64), about="float32: every exponent, few mantissas"),
    Case("stratified_1m", "cast", _stratified(2048), "standard", "float32: every exponent, 2,048 mantissas"),
    Case("stratified_8m", "cast", _stratified(16384), "exhaustive", "float32: every exponent, 16,384 mantissas"),
    Case("rows_128", "quantize", _matrix(128), about="named rows: zero, NaN, infinity, ties, powers of two"),
    Case("rows_131", "quantize", _matrix(131), about="the same rows with a tail in every block size"),
    Case("one_column", "quantize", _matrix(1), "standard", "rows of one element"),
    Case("no_rows", "quantize", _empty, about="an empty tensor"),
    Case("wide", "quantize", _wide, "standard", "5,120 columns"),
)


def cases_for(claim: Claim, depth: Depth) -> dict[str, Coded]:
    """The inputs of every case that a claim has at a depth, by name."""
    reached = DEPTHS[: DEPTHS.index(depth) + 1]
    made = {c.name: c.make(claim) for c in CASES if c.operation == claim.operation and c.depth in reached}
    return {name: x for name, x in made.items() if x is not None}
