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
from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import recipe_of
from narrowgauge.reference.codec import WIDEST_TABLE, encode, largest, unrestricted, values
from narrowgauge.reference.given import with_given
from narrowgauge.reference.packed import fits
from narrowgauge.reference.wide_cases import every_code, noise_rows

Depth = Literal["smoke", "standard", "exhaustive"]
DEPTHS: tuple[Depth, ...] = ("smoke", "standard", "exhaustive")

_EXACT = CastPolicy(overflow="special", infinity="special")


def scrambled(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """So many 64-bit numbers without pattern (SplitMix64): the same on every machine and under every numpy."""
    step, mix1, mix2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * step
    z = (z ^ (z >> np.uint64(30))) * mix1
    z = (z ^ (z >> np.uint64(27))) * mix2
    return z ^ (z >> np.uint64(31))


def noise(count: int, seed: int) -> npt.NDArray[np.float64]:
    """Values of about a normal distribution with variance 1, exact in float32: sums of four 16-bit uniforms."""
    parts = scrambled(count, seed)[:, None] >> np.array([0, 16, 32, 48], np.uint64) & np.uint64(0xFFFF)
    centred: npt.NDArray[np.float64] = parts.sum(axis=1).astype(np.float64) - 2 * 65535
    return centred * (2.0**-15 * 0.875)


@dataclass(frozen=True)
class Case:
    """A named set of inputs for claims of one operation."""

    name: str
    operation: str
    make: Callable[[Claim], Coded]
    about: str  #: the mistake or the place in the input space that this case is for
    depth: Depth = "smoke"
    applies: Callable[[Claim], bool] = lambda claim: True
    turn: int = 0  #: which of a tensor's own numbers is given beside x

    def inputs(self, claim: Claim) -> Coded:
        """The tensor, with what the claim's contract gives beside it."""
        return with_given(claim, self.make(claim), self.turn)

    def suits(self, claim: Claim) -> bool:
        """Whether a claim can have this case."""
        if self.operation != claim.operation or not self.applies(claim):
            return False
        return not claim.layouts or fits(claim, self.inputs(claim))


# --- one value at a time ---------------------------------------------------------------------------------------------


def _source_codes(reals: npt.NDArray[np.float64], source: Format) -> npt.NDArray[np.uint64]:
    """Source codes of real values: the nearest, and its neighbours one code below and above."""
    if source.bits >= 32:
        with np.errstate(over="ignore"):
            middle = reals.astype(source.name).view(source.storage).astype(np.int64)
    else:
        middle = encode(reals, source, _EXACT).astype(np.int64)
    near = middle[:, None] + np.array([0, -1, 1])
    return np.unique(near[(near >= 0) & (near < source.code_count)]).astype(np.uint64)


def boundaries(fmt: Format) -> npt.NDArray[np.float64]:
    """Every non-negative value of a format, every midpoint, and those of the two places beyond the largest."""
    grid = unrestricted(np.arange(largest(fmt) + 3, dtype=np.int64), fmt)
    return np.unique(np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, [1000.0]]))  # 1000 overflows all of them


def _specials(source: Format) -> npt.NDArray[np.uint64]:
    """Zeros, infinities, the ends of the source's normal and subnormal ranges, and every class of NaN; both signs."""
    m = source.mantissa
    infinity = ((1 << source.exponent) - 1) << m
    positive = [0, 1, (1 << m) - 1, 1 << m, infinity - 1, infinity, *(infinity | p for p in nan_payloads(m))]
    positive += [(source.bias + e) << m for e in (-1, 0, 1)]
    return np.array([c | s for c in positive for s in (0, source.sign_bit)], np.uint64)


def nan_payloads(mantissa: int) -> list[int]:
    """Mantissa fields of NaNs of every class, signalling and quiet: the least and the most payload, each bit alone, all
    bits above or below a place (what a cut or a carry makes an infinity or a zero of), alternating bits."""
    quiet, places = 1 << (mantissa - 1), range(mantissa - 1)
    payloads = {0, quiet - 1, quiet // 3, (quiet - 1) ^ (quiet // 3), *(1 << p for p in places)}
    payloads |= {(1 << p) - 1 for p in places} | {(quiet - 1) & ~((1 << p) - 1) for p in places}
    return sorted({p | q for p in payloads for q in (0, quiet)} - {0})  # 0 is infinity


def _both_signs(codes: npt.NDArray[np.uint64], source: Format) -> npt.NDArray[np.uint64]:
    return np.concatenate([codes, codes | np.uint64(source.sign_bit)])


def _coded(codes: npt.NDArray[np.uint64], source: Format) -> Coded:
    return Coded(source.name, codes.astype(source.storage))


def _edges(claim: Claim) -> Coded:
    source, fmt = format_named(claim.source), format_named(claim.format)
    near = _both_signs(_source_codes(boundaries(fmt), source), source)
    return _coded(np.concatenate([_specials(source), near]), source)


def _every_code(claim: Claim) -> Coded:
    source = format_named(claim.source)
    return _coded(np.arange(source.code_count, dtype=np.uint64), source)


def _stratified(mantissas: int) -> Callable[[Claim], Coded]:
    """Every float32 exponent and sign, each with so many mantissas, and every bfloat16 and float16 value."""

    def make(claim: Claim) -> Coded:
        source = format_named(claim.source)
        head = np.arange(512, dtype=np.uint64)[:, None] << np.uint64(23)
        patterns = [(head | _mantissas(mantissas)).ravel()]
        for name in ("bfloat16", "float16"):
            fmt = FORMATS[name]
            with np.errstate(invalid="ignore"):
                patterns.append(values(fmt).astype(np.float32).view(np.uint32).astype(np.uint64))
        x = np.concatenate(patterns)
        if source.name == "float64":
            with np.errstate(invalid="ignore"):
                x = x.astype(np.uint32).view(np.float32).astype(np.float64).view(np.uint64)
        return _coded(x, source)

    return make


def _mantissas(count: int) -> npt.NDArray[np.uint64]:
    """So many different 23-bit mantissas for each of 512 heads, shape [512, count].

    Up to half of them lie where ties are: at most the upper eight bits set, and one ulp either side. The rest have one
    in each of as many equal stretches.
    """
    near = 3 << 8
    fixed = min(near, count // 2)
    # 469 has no divisor in common with the 768 of them, so each head begins elsewhere and takes none twice.
    chosen = (
        scrambled(512, seed=8)[:, None] % np.uint64(near) + np.arange(fixed, dtype=np.uint64) * np.uint64(469)
    ) % near
    upper, ulp = chosen // np.uint64(3), chosen % np.uint64(3)
    ties = ((upper << np.uint64(15)) + ulp - np.uint64(1)) & np.uint64(0x7FFFFF)
    free = count - fixed
    length = (1 << 23) // free
    within = scrambled(512 * free, seed=1).reshape(512, free) % np.uint64(length - 4)
    spread = np.arange(free, dtype=np.uint64) * np.uint64(length) + within
    # Those that hit a tie or a neighbour go on to what is neither.
    lower = spread & np.uint64(0x7FFF)
    spread += np.where(lower < 2, np.uint64(2), np.where(lower == 0x7FFF, np.uint64(3), np.uint64(0)))
    return np.concatenate([ties, spread], axis=1)


# --- matrices --------------------------------------------------------------------------------------------------------

Rows = dict[str, npt.NDArray[np.float64]]


def quantizer_rows(columns: int, bound: float, fmt: Format) -> Rows:
    """Rows for a quantizer to ``fmt`` whose largest code stands for ``bound``, each with the name of what it is for."""
    random = noise(columns, seed=2)
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
        "largest is negative": holding(-9.0, random),
        "ties of a unit scale": holding(bound, np.resize(boundaries(fmt), columns) % bound),
        "a NaN": holding(np.nan, random),
        "a signalling NaN": random.copy(),
        "all NaN": np.full(columns, np.nan),
        "an infinity": holding(np.inf, random),
        "a negative infinity": holding(-np.inf, random),
        "smallest subnormal": np.full(columns, 2.0**-149),
        "subnormals": ramp * 2.0**-127,
        "below the minimum scale": ramp * 2.0**-12,
        "near overflow": ramp * 3.3e38,
    }
    for power in (-100, -30, -8, -1, 0, 5, 15, 60):
        rows[f"noise x 2^{power}"] = np.ldexp(random, power)
        rows[f"bound x 2^{power}"] = holding(np.ldexp(bound, power), np.ldexp(ramp * bound, power))
    # A row for each of many largest values: where amax / bound and amax * (1 / bound) part.
    for step, amax in enumerate(np.linspace(1.0, 2.0, 48, endpoint=False)):
        rows[f"largest {amax:.6g}"] = holding(amax, np.clip(np.roll(random, step) * 0.3, -0.99, 0.99))
    return rows


def _matrix(columns: int) -> Callable[[Claim], Coded]:
    def make(claim: Claim) -> Coded:
        fmt = format_named(claim.format)
        rows = quantizer_rows(columns, _bound(claim), fmt)
        x = _as_source(np.stack(list(rows.values())), claim)
        source = format_named(claim.source)
        # float64 has no signalling NaN to give: it is written as a pattern, into a row of noise.
        x.data[list(rows).index("a signalling NaN"), columns // 2] = (
            ((1 << source.exponent) - 1) << source.mantissa
        ) | 1
        return x

    return make


def _bound(claim: Claim) -> float:
    """The largest value that codes stand for: of the recipe, or of the format where nothing is claimed."""
    recipe, fmt = recipe_of(claim), format_named(claim.format)
    return float(values(fmt)[largest(fmt)]) if recipe is None else recipe.destination(fmt.name).bound


def _finite(claim: Claim) -> Coded:
    """The rows whose largest magnitudes are near 1: where all of a tensor shares a scale, the rest hides them."""
    rows = quantizer_rows(128, _bound(claim), format_named(claim.format))
    kept = [name for name in rows if name.startswith("largest ") or name in ("zeros", "negative zeros", "ones")]
    tiny = {f"2^-{p} of it": rows["ones"] * 2.0**-p for p in (4, 8, 9, 10, 12, 18, 19, 20)}
    return _as_source(np.stack([*(rows[name] for name in kept), *tiny.values()]), claim)


def _divides(columns: int) -> Callable[[Claim], bool]:
    """Whether a claim can have matrices of so many columns. Rows are no matter: no recipe has blocks of whole rows."""

    def applies(claim: Claim) -> bool:
        recipe = recipe_of(claim)
        return recipe is None or recipe.blocks.divide(0, columns)

    return applies


def _shares_a_tensor(claim: Claim) -> bool:
    recipe = recipe_of(claim)
    return recipe is not None and not recipe.by_rows


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
    matrix = noise(8 * 5120, seed=3).reshape(8, 5120) * np.ldexp(1.0, np.arange(-12, 12, 3))[:, None]
    return _as_source(matrix, claim)


def _has_edges(claim: Claim) -> bool:
    """The whole space of a 16-bit source is walked anyhow; a 32-bit destination has no list of ties."""
    return format_named(claim.format).bits <= 8 or (_is_wide(claim) and format_named(claim.format).bits <= WIDEST_TABLE)


def _is_wide(claim: Claim) -> bool:
    return format_named(claim.source).bits > WIDEST_TABLE


def _is_narrow(claim: Claim) -> bool:
    return not _is_wide(claim)


CASES: tuple[Case, ...] = (
    Case(
        "edges",
        "cast",
        _edges,
        "every value and tie of the destination, one code either side, every special",
        applies=_has_edges,
    ),
    Case("every_code", "cast", _every_code, "the whole space of a 16-bit source", applies=_is_narrow),
    Case("stratified", "cast", _stratified(64), "every float32 exponent, 64 mantissas", applies=_is_wide),
    Case("stratified_2m", "cast", _stratified(4096), "every exponent, 4,096 mantissas", "standard", _is_wide),
    Case("stratified_8m", "cast", _stratified(16384), "every exponent, 16,384 mantissas", "exhaustive", _is_wide),
    Case("rows_128", "quantize", _matrix(128), "named rows: zero, NaN, infinity, ties, powers of two"),
    Case("rows_131", "quantize", _matrix(131), "the same rows with a tail in every block size", applies=_divides(131)),
    Case("finite_128", "quantize", _finite, "rows that may share a scale", applies=_shares_a_tensor),
    Case("one_column", "quantize", _matrix(1), "rows of one element", "standard", _divides(1)),
    Case("no_rows", "quantize", _empty, "an empty tensor"),
    Case("wide", "quantize", _wide, "5,120 columns", "standard"),
    Case("codes", "dequantize", every_code(16), "every code under scales of every kind"),
    Case("codes_next_scale", "dequantize", every_code(2), "under the second of a tensor's scales", turn=1),
    Case("codes_tail", "dequantize", every_code(3, 129), "a tail in every block size", applies=_divides(129)),
    Case("no_codes", "dequantize", every_code(0), "an empty tensor"),
    *(
        Case(f"codes_scale_{turn}", "dequantize", every_code(2), "another of a tensor's scales", "standard", turn=turn)
        for turn in range(2, 12)
    ),
    Case("codes_128", "dequantize", every_code(384, 384), "blocks both ways", "standard"),
    Case("noise", "then", noise_rows(256), "rows of noise of many magnitudes"),
    Case("noise_long", "then", noise_rows(4096), "long rows: sums in any order part most", "standard"),
)


def case_named(name: str) -> Case:
    """The case of that name. Raises ``BadInput`` with near names."""
    for case in CASES:
        if case.name == name:
            return case
    raise unknown("case", name, (c.name for c in CASES))


def cases_for(claim: Claim, depth: Depth) -> dict[str, Coded]:
    """The inputs of every case that a claim has at a depth, by name."""
    reached = DEPTHS[: DEPTHS.index(depth) + 1]
    return {c.name: c.inputs(claim) for c in CASES if c.depth in reached and c.suits(claim)}
