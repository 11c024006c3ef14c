"""Steps that no operation has: what narrow or mistaken kernels do in place of a right one. Faults are made of these.

Where a kernel is narrow its order counts, and it is one after the other here, as of a loop over columns.
"""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.kv.arithmetic import in_format
from narrowgauge.reference.wide import steps as right
from narrowgauge.reference.wide.ends import F64, TINY, Ends, U, exactly, held_in, in_order, product, widened
from narrowgauge.reference.wide.steps import Step, Work


def _in_turn(terms: F64, format_name: str) -> F64:
    """Sums of rows of numbers of a format, each addition rounded to it: by way of float32, which has as many digits
    as two roundings of a sum need to be one. There may be thousands, so they are rounded by their bits."""
    narrow = np.asarray(terms.T, np.float16 if format_name == "float16" else np.float32)
    total = np.zeros_like(narrow[0])
    for column in narrow:
        total = total + column
        if format_name == "bfloat16":
            bits = total.view(np.uint32)
            upper = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
            total = np.where(np.isnan(total), total, upper.view(np.float32))
    return np.asarray(total, np.float64)[:, None]


def sum_in(work: Work, out: str, name: str, format_name: str) -> dict[str, Ends]:
    """Terms and sums in a narrow format, one after the other."""
    ends = held_in(work.held[name], format_name)
    return {out: Ends(_in_turn(ends.low, format_name), _in_turn(ends.high, format_name))}


def square_mean_in(work: Work, out: str, name: str, format_name: str) -> dict[str, Ends]:
    """Squares and their sums in a narrow format, one after the other; the mean of that in float32."""
    ends = work.held[name]
    squares = in_order([in_format(end**2, format_name) for end in (ends.low, ends.high)])
    sums = Ends(_in_turn(squares.low, format_name), _in_turn(squares.high, format_name))
    n = ends.shape[1]
    return {out: widened(Ends(sums.low / n, sums.high / n), U)}


def square_mean_of_narrow(work: Work, out: str, name: str, format_name: str) -> dict[str, Ends]:
    """Squares in a narrow format, their mean in float32."""
    ends, n = work.held[name], work.held[name].shape[1]
    squares = in_order([in_format(end**2, format_name) for end in (ends.low, ends.high)])
    low, high = (end.mean(axis=1, keepdims=True) for end in (squares.low, squares.high))
    return {out: widened(Ends(low, high), (n + 1) * U, 2 * TINY)}


def scaled_mean(work: Work, out: str, name: str, what: str) -> dict[str, Ends]:
    """A mean over another count: of the columns as they are padded, or none at all."""
    columns = work.held["x"].shape[1]
    factor = columns / (1 << (columns - 1).bit_length()) if what == "padded" else columns
    return {out: widened(product(work.held[name], exactly(np.full((1, 1), float(factor)))), U)}


def square_mean_but_last(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The sum leaves out the last column, and is divided by all."""
    ends = work.held[name]
    short = Work({**work.held, name: Ends(_zeroed(ends.low), _zeroed(ends.high))}, work.source, work.format)
    return right.square_mean(short, out, name)


def _zeroed(value: F64) -> F64:
    return np.concatenate([value[:, :-1], np.zeros_like(value[:, :1])], axis=1)


def centred(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The mean of the row is taken off, as LayerNorm does."""
    ends = work.held[name]
    n, mean = ends.shape[1], ends.low.mean(axis=1, keepdims=True)
    reach = (n + 1) * U * np.abs(ends.low).mean(axis=1, keepdims=True) + TINY
    return {out: widened(Ends(ends.low - mean - reach, ends.high - mean + reach), U)}


def root_then_plus(work: Work, out: str, name: str, number: float) -> dict[str, Ends]:
    """1 over the root plus a constant, which should stand under it."""
    ends = work.held[name]
    found = Ends(1 / (np.sqrt(ends.high) + number), 1 / (np.sqrt(ends.low) + number))
    return {out: widened(found, right.ROOT + 2 * U)}


def negated(work: Work, out: str, name: str) -> dict[str, Ends]:
    return {out: Ends(-work.held[name].high, -work.held[name].low)}


def exp2(work: Work, out: str, name: str) -> dict[str, Ends]:
    """2 to the power of what e should be raised to."""
    return right.exp(Work({**work.held, name: _times_log2(work.held[name])}, work.source, work.format), out, name)


def log2(work: Work, out: str, name: str) -> dict[str, Ends]:
    """The logarithm to base 2."""
    found = right.log(work, out, name)[out]
    return {out: widened(Ends(found.low / np.log(2), found.high / np.log(2)), 2 * U)}


def _times_log2(ends: Ends) -> Ends:
    return Ends(ends.low * np.log(2), ends.high * np.log(2))


def without_nan(work: Work, out: str, name: str) -> dict[str, Ends]:
    """NaN is taken for 0."""
    ends = work.held[name]
    return {out: Ends(*(np.where(np.isnan(end), 0.0, end) for end in (ends.low, ends.high)))}


def clamped(work: Work, out: str, name: str, largest: float) -> dict[str, Ends]:
    """Infinities, and all beyond, are taken for a largest number."""
    ends = work.held[name]
    return {out: Ends(np.clip(ends.low, -largest, largest), np.clip(ends.high, -largest, largest))}


def longer(work: Work, out: str, name: str, count: float) -> dict[str, Ends]:
    """Lengths that are off by so much."""
    ends = work.held[name]
    return {out: Ends(ends.low + count, ends.high + count)}


def rotated_in(work: Work, out: str, name: str, cos: str, sin: str, pairs: str) -> dict[str, Ends]:
    """A rotation whose products and sums are rounded to the source's format."""
    value, c, s = work.held[name].low, *(in_format(work.held[each].low, work.source) for each in (cos, sin))
    one, two = right.pair_of(value.shape[1], pairs)
    turned = np.empty_like(value)
    a, b = value[:, one], value[:, two]
    for place, left, rest in ((one, a * c, -b * s), (two, b * c, a * s)):
        turned[:, place] = in_format(in_format(left, work.source) + in_format(rest, work.source), work.source)
    return {out: exactly(turned)}


WRONG: dict[str, Step] = {
    step.__name__: step
    for step in (
        sum_in, square_mean_in, square_mean_of_narrow, scaled_mean, square_mean_but_last, centred, root_then_plus,
        negated, exp2, log2, without_nan, clamped, longer, rotated_in,
    )
}  # fmt: skip
