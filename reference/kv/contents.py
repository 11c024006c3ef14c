"""What cases put into tokens and into caches: numbers on which a mistake shows.

Of a part whose scale is given: every value and tie of the cache's format under that scale, one ulp of the source either
side, what lies beyond both ends, specials; in every head. Of a part that makes its own scales: blocks of each kind of
``BLOCKS``. Of a part that is copied: patterns of bits. Padding tokens bring NaN and the largest number by turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.kv.pages import Matrix
from narrowgauge.reference.landmarks import boundaries, codes_near
from narrowgauge.reference.noise import noise, scrambled

F64 = npt.NDArray[np.float64]
Codes = npt.NDArray[np.unsignedinteger]
#: what stands in slots of nobody: NaN; numbers; an infinity, or the largest number where there is none; NaN in some
#: columns of V alone, and numbers elsewhere; bytes
Fill = Literal["nan", "numbers", "infinity", "nan_in_v", "00", "7f", "80", "ff"]
_EXACT = CastPolicy(overflow="special", infinity="special")


def nearest(numbers: F64, fmt: Format) -> Codes:
    """The codes nearest to numbers, in a format of any family."""
    if fmt.family == "integer":
        return (np.rint(numbers).astype(np.int64) & (fmt.code_count - 1)).astype(fmt.storage)
    exact = Coded("float64", np.ascontiguousarray(numbers, np.float64).view(np.uint64))
    return cast(exact, fmt.name, _EXACT if fmt.family in ("ieee", "fn", "fnuz") else CastPolicy()).codes.astype(
        fmt.storage
    )


# --- what tokens bring -----------------------------------------------------------------------------------------------


def around_every_code(fmt: Format, source: Format, scale: float) -> Codes:
    """Codes of the source: under that scale, every value of a format, every tie and its neighbours; beyond; specials.

    Of a format of 16 bits or more, patterns of bits.
    """
    if fmt.bits > 8:
        return (scrambled(2048, 3) % np.uint64(source.code_count)).astype(np.uint64)
    marks = boundaries(fmt)
    beyond = marks[-2] * np.array([1.07, 2.0, 300.0])
    near = codes_near(np.concatenate([marks, beyond]) * scale, source)
    infinity = ((1 << source.exponent) - 1) << source.mantissa
    ends = np.array([1, infinity - 1, infinity, infinity + 1, infinity | 1 << (source.mantissa - 1)], np.uint64)
    every = np.concatenate([near[near < infinity], ends])
    return np.concatenate([every, every | np.uint64(source.sign_bit)])


def _drawn(codes: Codes, count: int, seed: int) -> Codes:
    """So many of the codes in no order that repeats, each as often as any other."""
    some = np.resize(codes[np.argsort(scrambled(codes.size, seed))], count)
    return some[np.argsort(scrambled(count, seed + 1))]


def given_scale_rows(behaviour: Behaviour, scale: F64, rows: int, heads: int, width: int, seed: int) -> Codes:
    """Rows [rows, heads * width] for scales [1] or [heads] (or any number that divides the columns)."""
    fmt, source = format_named(behaviour.format), format_named(behaviour.source)
    found = np.empty((rows, heads, width), source.storage)
    for head in range(heads):
        each = around_every_code(fmt, source, float(scale[head * scale.size // heads]))
        found[:, head] = _drawn(each, rows * width, seed + 16 * head).reshape(rows, width)
    return found.reshape(rows, heads * width)


Block = Callable[[F64, F64], F64]


def _spike(place: int, value: float) -> Block:
    def make(x: F64, grid: F64) -> F64:
        x = x.copy()
        x[place % x.size] = value
        return x

    return make


#: kinds of blocks that share a scale, made of noise and of a format's values and ties
BLOCKS: tuple[Block, ...] = (
    lambda x, grid: x,
    lambda x, grid: x * 2.0**-9,
    lambda x, grid: np.zeros_like(x),
    lambda x, grid: np.abs(x) + 4.0,  # of one sign, far from zero
    lambda x, grid: np.resize(grid, x.size) * 2.0**-3,  # ties, under a scale that is a power of two
    _spike(-1, 97.0),
    lambda x, grid: x * 2.0**-25,
    _spike(0, -41.0),
    lambda x, grid: np.full_like(x, -3.3),
    _spike(-2, np.nan),
    lambda x, grid: x * 2.0**6,
    lambda x, grid: np.full_like(x, -0.0),
    lambda x, grid: np.resize(grid[::-1], x.size) * 1.3,
    _spike(5, -np.inf),
    lambda x, grid: x * 5000.0,
    lambda x, grid: -np.abs(x) - 0.5,
)


def graded_rows(behaviour: Behaviour, rows: int, columns: int, block: int, seed: int, few_bits: bool = False) -> Codes:
    """Rows of blocks, each of another kind than its neighbours; every place of a row has every kind in 16 rows.

    ``few_bits``: numbers of a block are so short that their sums are exact in any order, and none is NaN or infinite.
    """
    fmt, source = format_named(behaviour.format), format_named(behaviour.source)
    grid = boundaries(fmt)
    # The largest comes first, so that it is amax; then each one below it, and its mirror.
    top = float(np.nanmax(np.where(np.isfinite(v := values(fmt)), v, np.nan)))
    below = grid[grid <= top][::-1]
    each = np.concatenate([[top], np.ravel([below, -below], order="F")])
    x = noise(rows * columns, seed).reshape(rows, columns)
    for row in range(rows):
        for place, start in enumerate(range(0, columns, block)):
            kind = BLOCKS[(row + 5 * place + seed) % len(BLOCKS)]
            turned = np.concatenate([each[:1], np.roll(each[1:], -(row + place) * 37)])
            made = kind(x[row, start : start + block], turned)
            x[row, start : start + block] = _shortened(made) if few_bits else made
    return nearest(x, source)


def _shortened(x: F64) -> F64:
    """To 2^-9 of the largest; what is no number becomes one."""
    x = np.nan_to_num(x, nan=1.5, posinf=7.0, neginf=-7.0)
    unit = np.ldexp(1.0, int(np.frexp(np.abs(x).max(initial=0))[1]) - 9)
    return np.asarray(np.rint(x / unit) * unit)


def without_extremes(codes: Codes, source: Format) -> Codes:
    """Numbers too large or too small for products in float32 become others; NaN and infinities stay."""
    field = (codes >> source.mantissa) & ((1 << source.exponent) - 1)
    far = (np.abs(field.astype(np.int64) - source.bias) > 40) & (field != (1 << source.exponent) - 1)
    other = (codes & (source.sign_bit | (1 << source.mantissa) - 1)) | (source.bias << source.mantissa)
    return np.where(far, other, codes).astype(source.storage)


def copied_rows(behaviour: Behaviour, rows: int, columns: int, seed: int) -> Codes:
    """Rows of any bits."""
    source = format_named(behaviour.source)
    return (
        (scrambled(rows * columns, seed) % np.uint64(source.code_count)).astype(source.storage).reshape(rows, columns)
    )


def poison(source: Format, rows: int, columns: int) -> Codes:
    """What padding tokens bring: NaN and the largest number by turns."""
    infinity = ((1 << source.exponent) - 1) << source.mantissa
    pair = np.array([infinity | 1 << (source.mantissa - 1), infinity - 1], source.storage)
    return np.resize(pair, rows * columns).reshape(rows, columns)


# --- what stands in a cache ------------------------------------------------------------------------------------------


def filled(name: str, matrix: Matrix, fill: Fill, place: int) -> Coded:
    """A cache's matrix with a pattern in all its slots, of its own for each ``place``."""
    fmt, some = format_named(matrix.format), fill == "nan_in_v"
    data = np.full((matrix.rows, matrix.columns), _code(fmt, "numbers" if some else fill, place), fmt.storage)
    if some and name == "v":
        data[:, 1::3] = _code(fmt, "nan", place)
    return Coded(fmt.name, data)


def _code(fmt: Format, fill: Fill, place: int) -> int:
    mask = fmt.code_count - 1
    if fill in ("00", "7f", "80", "ff"):
        return int(fill * 8, 16) & mask if fmt.bits > 4 else int(fill[0], 16) & mask
    known = values(fmt) if fmt.bits <= 16 else np.array([])
    if fill == "infinity" and fmt.family != "integer":
        if fmt.bits > 16:
            return ((1 << fmt.exponent) - 1) << fmt.mantissa
        return int(np.nanargmax(known))
    nan = np.flatnonzero(np.isnan(known)) if fmt.bits <= 16 else np.array([0x7FC00001])
    if fill == "nan" and nan.size and fmt.family != "integer":
        return int(nan[place % nan.size])
    return (0x5A5A5A5A >> place) & mask


def every_code(matrix: Matrix, count: int, seed: int) -> Codes:
    """Codes of so many slots: every one of a narrow format in every head, any of a wide one."""
    fmt = format_named(matrix.format)
    if fmt.bits > 8:
        return copied_codes(fmt, count, matrix.columns, seed)
    width = matrix.columns // matrix.heads
    every = np.arange(fmt.code_count, dtype=np.uint64)
    heads = [_drawn(every, count * width, seed + 16 * h).reshape(count, width) for h in range(matrix.heads)]
    return np.concatenate(heads, axis=1).astype(fmt.storage) if heads else np.zeros((count, 0), fmt.storage)


def odd_sums(codes: Codes, block: int) -> Codes:
    """Codes of which each block of an even size has an odd sum, and so each sum of a block with any signs: it is not 0,
    whose sign would depend on the order."""
    blocks = codes.reshape(codes.shape[0], codes.shape[1] // block, block).copy()
    blocks[:, :, 0] ^= (blocks.sum(axis=2, dtype=np.int64) % 2 == 0).astype(codes.dtype)
    return blocks.reshape(codes.shape)


def copied_codes(fmt: Format, count: int, columns: int, seed: int) -> Codes:
    found = scrambled(count * columns, seed) % np.uint64(fmt.code_count)
    return found.astype(fmt.storage).reshape(count, columns)


def ordinary(matrix: Matrix, count: int, seed: int) -> Codes:
    """Codes of numbers of ordinary size, as attention has them."""
    x = noise(count * matrix.columns, seed).reshape(count, matrix.columns) * 2.0
    return nearest(x, format_named(matrix.format))


def stored_scales(matrix: Matrix, count: int, seed: int, plain: bool, few_bits: bool = False) -> Codes:
    """Scales that stand in a cache, each unlike its neighbours; for attention of ordinary size.

    ``few_bits``: of 8 bits and none 0, so that sums of codes times a scale are exact in any order.
    """
    fmt = format_named(matrix.format)
    if fmt.family == "integer":  # zero points of 4-bit codes
        return (
            (scrambled(count * matrix.columns, seed) % np.uint64(16)).astype(fmt.storage).reshape(count, matrix.columns)
        )
    base = np.array([0.37, 0.25, 3.0, 1.5, 2.0**-4, 1.7, 0.11, 5.0, 1.0])
    if not plain:
        base = np.concatenate([base, [2.0**-9, 40.0, 0.0]])
    order = scrambled(count * matrix.columns, seed)
    numbers = base[order % np.uint64(base.size)] * (1.0 if plain else 2.0 ** ((order >> np.uint64(8)) % np.uint64(3)))
    numbers = numbers.astype(np.float64).reshape(count, matrix.columns)
    if few_bits:
        numbers[numbers == 0] = 1.0
        part, exponent = np.frexp(numbers)
        numbers = np.ldexp(np.rint(part * 2.0**8), exponent - 8)
    return nearest(numbers, fmt)
