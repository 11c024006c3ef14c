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
from narrowgauge.contracts.views import View
from narrowgauge.reference import matrices, packed
from narrowgauge.reference.codec import WIDEST_TABLE, values
from narrowgauge.reference.convert import cases as conversions
from narrowgauge.reference.given import with_given
from narrowgauge.reference.kv.cases import call, suited
from narrowgauge.reference.kv.named import CALLS
from narrowgauge.reference.landmarks import boundaries, codes_near
from narrowgauge.reference.matmul import cases as products
from narrowgauge.reference.matmul.kinds import KINDS
from narrowgauge.reference.memory import fits
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.wide import cases as wide_cases
from narrowgauge.reference.wide.rows import every_code, noise_rows

Depth = Literal["smoke", "standard", "exhaustive"]
DEPTHS: tuple[Depth, ...] = ("smoke", "standard", "exhaustive")


@dataclass(frozen=True)
class Case:
    """A named set of inputs for claims of one operation."""

    name: str
    operation: str
    make: Callable[[Claim], Coded]
    about: str  #: the mistake or the place in the input space that this case is for
    depth: Depth = "smoke"
    applies: Callable[[Claim], bool] = lambda claim: True
    view: View = "contiguous"  #: how the matrix lies in memory when a kernel is given it
    turn: int | None = 0  #: which of a tensor's own numbers is given beside x; None for the scale that amax asks for

    def inputs(self, claim: Claim) -> Coded:
        """The tensor, with what the claim's contract gives beside it."""
        return with_given(claim, self.make(claim), self.turn)

    def suits(self, claim: Claim) -> bool:
        """Whether a claim can have this case."""
        if self.operation != claim.operation or not self.applies(claim):
            return False
        return not claim.layouts or fits(claim, self.inputs(claim))


# --- one value at a time ---------------------------------------------------------------------------------------------


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
    near = _both_signs(codes_near(boundaries(fmt), source), source)
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


def _has_edges(claim: Claim) -> bool:
    """The whole space of a 16-bit source is walked anyhow; a 32-bit destination has no list of ties."""
    return format_named(claim.format).bits <= 8 or (_is_wide(claim) and format_named(claim.format).bits <= WIDEST_TABLE)


def _is_wide(claim: Claim) -> bool:
    return format_named(claim.source).bits > WIDEST_TABLE


def _is_narrow(claim: Claim) -> bool:
    return not _is_wide(claim)


_OF_CASTS: tuple[Case, ...] = (
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
)


def _quantizers(*rows: tuple[str, Depth, matrices.Applies, matrices.Make, str]) -> tuple[Case, ...]:
    """Scales that are given are near what the named rows ask for, and just what other matrices ask for: their ties
    are ties under those."""
    return tuple(
        Case(name, "quantize", make, about, depth, applies, turn=0 if name.startswith("rows_") else None)
        for name, depth, applies, make, about in rows
    )


def _any(claim: Claim) -> bool:
    return True


def _viewed(view: View, depth: Depth, about: str, rows: int = 8) -> Case:
    return Case(view, "quantize", matrices.fitting(rows, 128), about, depth, view=view)


_SHARED = matrices.shares_a_tensor
_NAMED_ROWS = _quantizers(
    ("rows_128", "smoke", _any, matrices.named_rows(128), "named rows: zero, NaN, infinity, ties, powers of two"),
    ("rows_131", "smoke", matrices.divides(0, 131), matrices.named_rows(131), "the same with a tail in every block"),
    ("finite_128", "smoke", matrices.shares_rows, matrices.finite, "rows that may share a scale"),
    ("one_column", "standard", matrices.divides(0, 1), matrices.named_rows(1), "rows of one element"),
)
_SHAPES = _quantizers(
    ("no_rows", "smoke", _any, matrices.empty(0, 128), "an empty tensor"),
    ("no_columns", "standard", matrices.has_blocks_of_columns, matrices.empty(3, 0), "rows without elements"),
    *(
        (f"shape_{r}x{c}", "standard", matrices.divides(r, c), matrices.shape(r, c), "each block at its own magnitude")
        for r, c in ((1, 1), (1, 16), (3, 129), (7, 2880), (257, 384))
    ),
    ("wide", "standard", matrices.divides(8, 5120), matrices.wide, "5,120 columns"),
    ("tall", "exhaustive", _any, matrices.fitting(65_600, 32), "more rows than a grid's second axis may have"),
)
_BLOCKS = _quantizers(
    (
        "blocks",
        "smoke",
        packed.small_and_local,
        packed.few,
        "blocks: specials, outliers, few amaxes, ties of two scales",
    ),
    ("large_blocks", "standard", packed.large_and_local, packed.large, "large blocks: specials, outliers"),
    ("bad_lanes", "standard", matrices.local, packed.bad_lanes, "one NaN or infinity in each place of a block"),
    ("every_amax", "standard", packed.small_and_local, packed.every_amax, "amax where a scale's binade ends, +- 1 ulp"),
    ("every_tie", "standard", packed.small_and_local, packed.every_tie, "every tie of the destination at seven scales"),
    ("scale_ties", "standard", packed.has_narrow_scales, packed.scale_ties(1.0), "every tie of the scale's format"),
    ("scale_ties_odd", "standard", packed.has_narrow_scales, packed.scale_ties(1.3), "the same under another scale"),
)
_TENSORS = _quantizers(
    ("tensor_zeros", "smoke", _SHARED, matrices.tensor_of(0.0), "nothing but zeros"),
    ("tensor_ties", "smoke", _SHARED, packed.tensor_ties(1.0), "every tie of the destination under one scale"),
    ("tensor_ties_odd", "standard", _SHARED, packed.tensor_ties(1.3 * 2.0**-6), "the same under another scale"),
    ("tensor_outlier_last", "smoke", _SHARED, matrices.tensor_with(-1000.0, at=-1), "an outlier in the last place"),
    ("tensor_outlier_first", "standard", _SHARED, matrices.tensor_with(1000.0), "an outlier in the first place"),
    ("tensor_nan", "standard", _SHARED, matrices.tensor_with(np.nan, at=77), "one NaN"),
    ("tensor_infinity", "standard", _SHARED, matrices.tensor_with(-np.inf, at=77), "one infinity"),
    ("tensor_negative_zeros", "standard", _SHARED, matrices.tensor_of(-0.0), "nothing but negative zeros"),
    ("tensor_subnormals", "standard", _SHARED, matrices.tensor_of_subnormals, "nothing but subnormals of the source"),
    ("tensor_amax_below", "standard", _SHARED, matrices.tensor_amax(-1), "amax one ulp below the bound"),
    ("tensor_amax_exact", "standard", _SHARED, matrices.tensor_amax(0), "amax at the bound"),
    ("tensor_amax_above", "standard", _SHARED, matrices.tensor_amax(1), "amax one ulp above the bound"),
)
_VIEWS = (
    _viewed("sliced", "smoke", "columns cut out of a wider matrix, with NaN and large numbers around them"),
    _viewed("transposed", "standard", "a transposed matrix"),
    _viewed("alternate_rows", "standard", "every second row of a matrix"),
    _viewed("far", "exhaustive", "a row whose offset passes 32 bits", 3),
)

_READERS = (
    Case("codes", "dequantize", every_code(16), "every code under scales of every kind"),
    Case("codes_next_scale", "dequantize", every_code(2), "under the second of a tensor's scales", turn=1),
    Case("codes_tail", "dequantize", every_code(3, 129), "a tail in every block", applies=matrices.divides(3, 129)),
    Case("no_codes", "dequantize", every_code(0), "an empty tensor"),
    *(
        Case(f"codes_scale_{turn}", "dequantize", every_code(2), "another of a tensor's scales", "standard", turn=turn)
        for turn in range(2, 12)
    ),
    Case("codes_128", "dequantize", every_code(384, 384), "blocks both ways", "standard"),
)
_FUSED = (
    Case("noise", "then", noise_rows(256), "rows of noise of many magnitudes"),
    Case("noise_long", "then", noise_rows(4096), "long rows: sums in any order part most", "standard"),
)


def _conversion(name: str, shape: conversions.Shape, about: str, depth: Depth = "smoke") -> Case:
    return Case(name, "convert", conversions.call(shape), about, depth, conversions.suits(shape))


_CONVERSIONS = (
    _conversion("codes", conversions.Shape(256, 384), "every code under ordinary scales, of every block its own"),
    _conversion("hard_scales", conversions.Shape(512, 256, hard=True), "scales that half precision or doubling spoils"),
    _conversion("loaded_once", conversions.Shape(64, 256, loaded_once=True), "one scale for shards fused on disk"),
    _conversion("empty_shard", conversions.Shape(96, 256, empty_shard=True), "a shard of no rows"),
    _conversion("ragged", conversions.Shape(200, 272, finite=True), "blocks that are not whole at the edges, no NaN"),
    _conversion(
        "square", conversions.Shape(256, 256, finite=True), "as many rows as columns, no NaN: a transpose fits"
    ),
    _conversion("no_rows", conversions.Shape(0, 256), "an empty tensor"),
    _conversion("large", conversions.Shape(1152, 1024), "many blocks each way", "standard"),
    _conversion("large_hard", conversions.Shape(1024, 640, hard=True), "the same under scales at the ends", "standard"),
)


def _product(name: str, shape: products.Shape, about: str, depth: Depth = "smoke", view: View = "contiguous") -> Case:
    return Case(name, "matmul", products.call(shape), about, depth, products.suits(shape), view)


_PRODUCTS = (
    *(
        _product(kind.name, products.Shape(kind.name, depth=kind.depth, seed=place), kind.about, depth)
        for place, kind in enumerate(KINDS.values())
        for depth in ("standard" if kind.name in ("limit", "lost", "positive") else "smoke",)
    ),
    _product("surrounded", products.Shape("exact", rows=17, seed=20), "NaN around a and b in memory", view="sliced"),
    _product("one_row", products.Shape("exact", rows=1, seed=21), "one row"),
    _product("no_rows", products.Shape("exact", rows=0), "no rows at all"),
    _product("long", products.Shape("full", 33, 72, 20, 2113, seed=22), "a long K, many blocks", "standard"),
    _product("long_noise", products.Shape("noise", 33, 72, 20, 2113, seed=23), "the same, any numbers", "standard"),
    _product("short", products.Shape("exact", 5, 8, 1, 7, seed=24), "a K below every tile", "standard"),
    _product(
        "large", products.Shape("full", 130, 264, 5, 519, seed=25), "more rows and columns than tiles", "standard"
    ),
)

_CACHES = tuple(
    Case(
        named.name,
        operation,
        call(named.shape),
        named.about,
        named.depth,
        suited(named.shape),
        named.view,
    )
    for named in CALLS
    for operation in named.operations
)

_WIDE = tuple(
    Case(name, "wide", wide_cases.made(name), rows.about, rows.depth, wide_cases.suits(name))
    for name, rows in wide_cases.CASES.items()
)

CASES: tuple[Case, ...] = (
    *_OF_CASTS,
    *_NAMED_ROWS,
    *_SHAPES,
    *_BLOCKS,
    *_TENSORS,
    *_VIEWS,
    *_READERS,
    *_FUSED,
    *_CONVERSIONS,
    *_PRODUCTS,
    *_WIDE,
    *_CACHES,
)


def case_named(name: str, operation: str = "") -> Case:
    """The case of that name; where several operations have one, that of this operation. Raises ``BadInput`` with near
    names."""
    for case in CASES:
        if case.name == name and operation in ("", case.operation):
            return case
    raise unknown("case", name, (c.name for c in CASES))


def cases_for(claim: Claim, depth: Depth) -> dict[str, Coded]:
    """The inputs of every case that a claim has at a depth, by name. Of a matrix that lies in memory in another way
    there is nothing to see in its numbers: those cases are left out.
    """
    reached = DEPTHS[: DEPTHS.index(depth) + 1]
    return {c.name: c.inputs(claim) for c in CASES if c.depth in reached and c.view == "contiguous" and c.suits(claim)}
