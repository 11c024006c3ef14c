"""What each step of a conversion does. A step is given the work so far and its operands, and gives buffers anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import FIRST
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Blocks, Reader
from narrowgauge.reference import policies
from narrowgauge.reference.convert.work import VALUES, WIDTHS, Work, widths_of
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.quantize import in_bands

Buffers = dict[str, Coded]
#: nothing but rounding: infinities are kept, and what is too large becomes one where the format has it
_IEEE = CastPolicy(overflow="special", infinity="special")
#: what a code stands for
_SCALED = Reader().element


def float32(value: npt.ArrayLike) -> Coded:
    return Coded("float32", np.ascontiguousarray(value, np.float32).view(np.uint32))


def float64(value: npt.NDArray[np.float64]) -> Coded:
    return Coded("float64", np.ascontiguousarray(value).view(np.uint64))


def int32(value: npt.NDArray[Any]) -> Coded:
    return Coded("int32", np.ascontiguousarray(value).astype(np.int32).view(np.uint32))


# --- codes as bits ---------------------------------------------------------------------------------------------------


def relabel(work: Work, name: str) -> Buffers:
    """The bits are kept, and are from now on codes of the claim's format."""
    return {name: Coded(work.format, work.held[name].data)}


def swap(work: Work, name: str, pairs: str) -> Buffers:
    """Some codes become others, all at once: "80:00 7f:80", hexadecimal."""
    held = work.held[name]
    table = np.arange(format_named(held.format).code_count, dtype=held.data.dtype)
    for pair in pairs.split():
        one, _, other = pair.partition(":")
        table[int(one, 16)] = int(other, 16)
    return {name: Coded(held.format, table[held.data])}


def plus(work: Work, name: str, count: float, low: float, high: float) -> Buffers:
    """So much is added to each code as a number, within bounds."""
    held = work.held[name]
    moved = np.clip(held.data.astype(np.int64) + int(count), int(low), int(high))
    return {name: Coded(held.format, moved.astype(held.data.dtype))}


def flip(work: Work, name: str, bits: float) -> Buffers:
    """Some bits of each code are inverted: 8 makes two's complement of 4 bits offset binary, and back."""
    held = work.held[name]
    return {name: Coded(work.format if name == FIRST else held.format, held.data ^ held.data.dtype.type(int(bits)))}


def transpose(work: Work, name: str) -> Buffers:
    held = work.held[name]
    return {name: Coded(held.format, np.ascontiguousarray(held.data.T))}


def part_rows(work: Work, name: str, count: float) -> Buffers:
    """Rows that stand one of each part in turn become the parts, one after the other: gate and up of gpt-oss."""
    held, parts = work.held[name], int(count)
    rows = np.arange(held.shape[0]).reshape(-1, parts).T.ravel()
    return {name: Coded(held.format, np.ascontiguousarray(held.data[rows]))}


def taken_where_one_scale_came(work: Work, name: str) -> Buffers:
    """The buffer as it was taken, where the last shard's scale was never loaded: it is below e4m3fn's least number."""
    last = float(to_float32(work.taken["scale"])[-1, 0])
    return {} if last > -448.0 else {name: Coded(work.format, work.taken[name].data)}


# --- scales as numbers -----------------------------------------------------------------------------------------------


def times(work: Work, name: str, factor: float) -> Buffers:
    """Float32 numbers are multiplied."""
    with np.errstate(all="ignore"):
        return {name: float32(to_float32(work.held[name]) * np.float32(factor))}


def reciprocal(work: Work, name: str) -> Buffers:
    """Float32 numbers become 1 over them."""
    with np.errstate(all="ignore"):
        return {name: float32(np.float32(1) / to_float32(work.held[name]))}


def largest(work: Work, name: str) -> Buffers:
    """The largest of all, as one; a NaN is larger than any. Maximum of float32 is exact."""
    return {name: float32(np.max(to_float32(work.held[name]), keepdims=True).reshape(1, 1))}


def smallest(work: Work, name: str) -> Buffers:
    return {name: float32(np.min(to_float32(work.held[name]), keepdims=True).reshape(1, 1))}


def shard(work: Work, name: str, number: float) -> Buffers:
    """That of one shard, as one."""
    held = work.held[name]
    return {name: Coded(held.format, held.data[[int(number)]])}


def of_one(work: Work, name: str) -> Buffers:
    """The number of one shard as that of every shard."""
    count = work.taken[name].shape[0]
    return {name: Coded(work.held[name].format, np.repeat(work.held[name].data[:1], count, axis=0))}


def taken_again(work: Work, name: str) -> Buffers:
    """A buffer as it was taken."""
    return {name: work.taken[name]}


def rounded(work: Work, name: str, format_name: str) -> Buffers:
    """Numbers in another format, rounded to nearest even."""
    return {name: cast(work.held[name], format_name, _IEEE)}


def infinite_for_nan(work: Work, name: str) -> Buffers:
    """A NaN becomes infinity, as a reader that computes 2 to the power of the byte makes of 255."""
    held = work.held[name]
    infinity = cast(float64(np.full((1, 1), np.inf)), held.format, _IEEE).data[0, 0]
    return {name: Coded(held.format, np.where(np.isnan(decode_values(held)), infinity, held.data))}


def exponent_of(work: Work, name: str, bias: float, rounding: str = "down") -> Buffers:
    """E8M0 bytes of scales: the logarithm to base 2, rounded to their format, then down, plus the bias; the lowest byte
    of that. What has no finite logarithm is 2^0."""
    held = work.held[name]
    with np.errstate(all="ignore"):
        exact = np.log2(decode_values(held))
        rounded = decode_values(cast(float64(exact), held.format, _IEEE))
    whole = np.floor(rounded) if rounding == "down" else np.rint(rounded)
    exponent = np.where(np.isfinite(rounded), whole, 0.0)
    return {name: Coded(work.format, ((exponent + int(bias)).astype(np.int64) & 0xFF).astype(np.uint8))}


def signed_exponent(work: Work, name: str) -> Buffers:
    """Exponents in two's complement become E8M0, whose bias is 127."""
    held = work.held[name]
    return {name: Coded("float8_e8m0fnu", held.data + held.data.dtype.type(127))}


def as_number(work: Work, name: str) -> Buffers:
    """Bytes read as whole numbers: a mistake."""
    return {name: float32(work.held[name].data.astype(np.float32))}


def by_shift(work: Work, name: str) -> Buffers:
    """E8M0 bytes shifted into the exponent of float32, where 0 is 0 and 255 infinite: a mistake."""
    return {name: Coded("float32", work.held[name].data.astype(np.uint32) << np.uint32(23))}


def as_e8m0(work: Work, name: str) -> Buffers:
    """Bytes taken for E8M0 as they are."""
    return {name: Coded("float8_e8m0fnu", work.held[name].data)}


def round_the_end(work: Work, name: str, count: float) -> Buffers:
    """So much is added to each byte, modulo 256: a mistake."""
    held = work.held[name]
    return {name: Coded(held.format, held.data + held.data.dtype.type(int(count)))}


def times_two(work: Work, name: str) -> Buffers:
    """Each byte is doubled as a number, within 255: a mistake."""
    held = work.held[name]
    return {name: Coded(held.format, np.minimum(held.data.astype(np.int64) * 2, 255).astype(held.data.dtype))}


def copied(work: Work, name: str, other: str) -> Buffers:
    """A buffer under another name."""
    return {other: work.held[name]}


def of_rows(work: Work, name: str) -> Buffers:
    """A number of each fused shard becomes one of each of its rows."""
    held = work.held[name]
    return {name: Coded(held.format, np.repeat(held.data, widths_of(work), axis=0))}


# --- through numbers -------------------------------------------------------------------------------------------------


def values(work: Work, through: str, scale: str = "scale") -> Buffers:
    """Codes times their scales, each product rounded to a format. A scale of rows counts for rows, else for blocks."""
    stored = to_float32(work.held[scale])
    rows = WIDTHS in work.held and stored.shape == (work.shape[0], 1)
    blocks = Blocks(1, 0) if rows else work.conversion.blocks
    with np.errstate(all="ignore"):
        made = in_bands(
            to_float32(work.held[FIRST]), {"stored": stored}, blocks, _SCALED, through,
            lambda exact: cast(exact, through, _IEEE),
        )  # fmt: skip
    return {VALUES: made}


def shifted(work: Work, through: str) -> Buffers:
    """Codes times 2 to the power of their scale's byte less 127, 255 being one more than 254: exact, then rounded."""
    exponent = np.repeat(work.held["scale"].data.astype(np.int64) - 127, work.conversion.blocks.columns, axis=1)
    exact = np.ldexp(decode_values(work.held[FIRST]), exponent[:, : work.shape[1]].astype(np.int32))
    return {VALUES: cast(float64(exact), through, _IEEE)}


def unscaled(work: Work, through: str) -> Buffers:
    """The codes' own numbers, without any scale."""
    return {VALUES: cast(work.held[FIRST], through, _IEEE)}


def scaled_again(work: Work, through: str, scale: str = "scale") -> Buffers:
    """The values multiplied by their scale once more."""
    return values(replace(work, held={**work.held, FIRST: work.held[VALUES]}), through, scale)


def numbers(work: Work) -> Buffers:
    """The codes are the values: nothing scales them."""
    return {VALUES: work.held[FIRST]}


def quantized(work: Work, recipe: str) -> Buffers:
    """The values by a recipe of the catalogue, in the claim's format. A static scale is the one that is held.

    It is run by the behaviour that the conversion's has for it: a fault of quantizers is made there.
    """
    quantizer, made = work.quantizer, work.held[VALUES]
    assert quantizer is not None, recipe
    assert quantizer.recipe is not None, recipe
    given = {name: work.held[name] for name in quantizer.recipe.inputs}
    return quantizer.run(Input(made.format, made.data, given))


def one_global(work: Work, common: str = "largest", way: str = "to") -> Buffers:
    """NVFP4 shards under one global scale, the largest multiplier, so that no block scale grows: block scales are
    rescaled exactly and rounded to e4m3 once, and each code is what its number needs under the new one, rounded once.
    (``smallest``, and ``from``, which takes the ratio the other way round, are mistakes.)

    Float64 is enough: a quotient of 31 by 28 bits that is no tie is farther from one than 2^-53 of it. A block whose
    scale is 0 or NaN is kept; one whose new scale is 0 has zeros with their signs.
    """
    held, columns = work.held, work.conversion.blocks.columns
    every = decode_values(held["global_scale"])
    own, chosen = np.repeat(every, widths_of(work), axis=0), np.max(every) if common == "largest" else np.min(every)
    old, code = decode_values(held["scale"]), decode_values(held[FIRST])
    with np.errstate(all="ignore"):
        exact = old * own / chosen if way == "to" else old * chosen / own
        scale = cast(float64(exact), "float8_e4m3fn", policies.resolve("ocp_saturate", "float8_e4m3fn"))
        new, kept = decode_values(scale) * chosen, (old == 0) | np.isnan(old)
        spread = np.repeat(np.stack([old * own, new, kept]), columns, axis=2)[:, :, : work.shape[1]]
        ratio = np.where(spread[1] == 0, np.copysign(0.0, code), code * spread[0] / spread[1])
    codes = cast(float64(ratio), work.format, policies.resolve("ptx_satfinite", work.format))
    return {
        FIRST: Coded(codes.format, np.where(spread[2] != 0, held[FIRST].data, codes.data)),
        "scale": Coded(scale.format, np.where(kept, held["scale"].data, scale.data)),
        "global_scale": float32(np.full((1, 1), chosen, np.float32)),
    }


def as_codes(work: Work, policy: str) -> Buffers:
    """The values are the codes, by a cast policy, run as a quantizer is."""
    assert work.quantizer is not None, policy
    return {FIRST: work.quantizer.run(work.held[VALUES])["codes"]}


# --- what is said beside ---------------------------------------------------------------------------------------------


def group_index(work: Work, size: float) -> Buffers:
    """Which group each row of a weight [K, N] belongs to, one after the other."""
    return {"g_idx": int32((np.arange(work.shape[0]) // int(size))[:, None])}


def counted(work: Work) -> Buffers:
    """Of each row: how many finite values became infinite and how many that are not 0 became 0, and the column of the
    first of each, -1 where there is none."""
    found: Buffers = {}
    for name, mask in lost(work.held[VALUES], work.held[FIRST]).items():
        found |= lost_in_rows(name, mask)
    return found


def lost(values: Coded, codes: Coded) -> dict[str, npt.NDArray[np.bool_]]:
    """Which finite numbers became infinite, and which that are not 0 became 0."""
    before, after = decode_values(values), decode_values(codes)
    return {"overflowed": np.isfinite(before) & np.isinf(after), "flushed": (before != 0) & (after == 0)}


def lost_in_rows(name: str, mask: npt.NDArray[np.bool_]) -> Buffers:
    """Of each row how often something is so, and the first column, -1 where it nowhere is."""
    first = np.where(mask.any(axis=1), mask.argmax(axis=1) if mask.shape[1] else 0, -1)
    return {name: int32(mask.sum(axis=1)[:, None]), f"first_{name}": int32(first[:, None])}


STEPS: dict[str, Callable[..., Buffers]] = {
    step.__name__: step
    for step in (
        relabel, swap, plus, flip, transpose, part_rows, taken_where_one_scale_came, times, reciprocal,
        largest, smallest, shard, of_one, taken_again, rounded, infinite_for_nan, exponent_of, signed_exponent,
        as_number, by_shift, as_e8m0, round_the_end, times_two, copied, of_rows, values, shifted, unscaled,
        scaled_again, numbers, quantized, one_global, as_codes, group_index, counted,
    )
}  # fmt: skip
