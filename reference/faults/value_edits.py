"""Edits of one value: what the last cast is given (``given``), and the codes it gives (``coded``).

The functions of the first half take real values (float64) and say what is cast in their place. Those of the second
half take the codes too, as int64 without a sign, and say which codes are returned in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.codec import WIDEST_TABLE, allowed_top, encode, nan_code, special_code, unrestricted
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.edits import Edit

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Fits = Callable[[Behaviour], bool]

FLOATS = ("ieee", "fn", "fnuz", "finite")


def family(b: Behaviour) -> str:
    """How the destination's codes are laid out."""
    return format_named(b.format).family


def is_float(b: Behaviour) -> bool:
    """A destination with sign, exponent and fraction, of at most 19 bits."""
    return family(b) in FLOATS and format_named(b.format).bits <= WIDEST_TABLE


def has_an_end(b: Behaviour) -> bool:
    """A destination beyond whose largest value there are others: floats and powers of two."""
    return is_float(b) or family(b) == "exponent"


def has_subnormals_of_its_own(b: Behaviour) -> bool:
    """A destination whose subnormals are normal numbers of float32."""
    return is_float(b) and format_named(b.format).exponent < 8


def reads_a_float(b: Behaviour) -> bool:
    return b.recipe is not None or format_named(b.source).family in FLOATS


def rounds_to_nearest(b: Behaviour) -> bool:
    return b.policy.rounding.startswith("nearest")


def given(change: Callable[[Reals, Format, Format], Reals], fits: Fits) -> Edit:
    """Another value is cast. ``change`` gets the values, the format they come in, and the destination."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if not fits(behaviour):
            return None
        fmt = format_named(behaviour.format)

        def before(x: Coded) -> Coded:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                changed = change(decode_values(x), format_named(x.format), fmt)
                if x.format == "float64":
                    return Coded("float64", changed.view(np.uint64))
                return Coded("float32", changed.astype(np.float32).view(np.uint32))

        return replace(behaviour, before=(*behaviour.before, before))

    return edit


def coded(change: Callable[[Reals, Integers, Format, CastPolicy], Integers], fits: Fits) -> Edit:
    """Other codes. ``change`` gets the values, the right codes without the sign, and says which ones to return."""

    def patch(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
        fmt = format_named(behaviour.format)
        real, right = decode_values(x), codes.data.astype(np.int64)
        magnitude = right & (fmt.sign_bit - 1) if fmt.signed else right
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            changed = change(real, magnitude, fmt, behaviour.policy)
        signed = np.where(np.signbit(real), changed | fmt.sign_bit, changed)
        return Coded(codes.format, np.where(changed == magnitude, right, signed).astype(fmt.storage))

    return lambda b: replace(b, patched=(*b.patched, patch)) if fits(b) else None


# --- what is cast ----------------------------------------------------------------------------------------------------


def smallest_normal(fmt: Format) -> float:
    return float(np.ldexp(1.0, 1 - fmt.bias))


def below_normal(real: Reals, fmt: Format) -> npt.NDArray[np.bool_]:
    return np.asarray((np.abs(real) < smallest_normal(fmt)) & (real != 0))


def source_flushed(real: Reals, source: Format, fmt: Format) -> Reals:
    """Subnormals of the source are zeros."""
    return np.where(below_normal(real, source), np.copysign(0.0, real), real)


def flushed_below_normal(real: Reals, source: Format, fmt: Format) -> Reals:
    """What is below the destination's smallest normal is a zero of its sign."""
    return np.where(below_normal(real, fmt), np.copysign(0.0, real), real)


def nothing_below_normal(real: Reals, source: Format, fmt: Format) -> Reals:
    """What is below the destination's smallest normal, -0 too, is +0."""
    return np.where(np.abs(real) < smallest_normal(fmt), 0.0, real)


def without_sign(real: Reals, source: Format, fmt: Format) -> Reals:
    """The magnitude."""
    return np.abs(real)


def zero_added(real: Reals, source: Format, fmt: Format) -> Reals:
    """-0 + 0 is +0; nothing else changes."""
    return real + 0.0


def rounded_as_normal(real: Reals, source: Format, fmt: Format) -> Reals:
    """What will be subnormal is rounded to the significand's full width first, ties to even."""
    significand, exponent = np.frexp(real)
    width = fmt.mantissa + 1
    once = np.ldexp(np.rint(np.ldexp(significand, width)), exponent - width)
    return np.where(below_normal(real, fmt), once, real)


def cut_to_24_bits(real: Reals, source: Format, fmt: Format) -> Reals:
    """What will be subnormal loses the bits that a 24-bit register drops when it is shifted into place."""
    place = 1 - fmt.bias - 23
    cut = np.ldexp(np.trunc(np.ldexp(real, -place)), place)
    return np.where(below_normal(real, fmt), cut, real)


def halved_below_normal(real: Reals, source: Format, fmt: Format) -> Reals:
    """What will be subnormal is shifted by one bit too many."""
    return np.where(below_normal(real, fmt), real / 2, real)


def shift_modulo_64(real: Reals, source: Format, fmt: Format) -> Reals:
    """The count by which a significand is shifted below the smallest normal is taken modulo 64."""
    lowest = 1 - source.bias if source.family == "ieee" else -126
    below = np.maximum(1 - fmt.bias - np.maximum(np.frexp(real)[1] - 1, lowest), 0)
    return np.where(np.isfinite(real), np.ldexp(real, below - below % 64), real)


def half_added_in_float32(real: Reals, source: Format, fmt: Format) -> Reals:
    """Half is added, the sum is rounded to float32, and the fraction is cut."""
    return np.trunc((real + np.copysign(0.5, real)).astype(np.float32)).astype(np.float64)


def floor_of_half_added(real: Reals, source: Format, fmt: Format) -> Reals:
    """Half is added, the sum is rounded to float32, and the floor taken: floor(x + 0.5)."""
    return np.floor((real + 0.5).astype(np.float32)).astype(np.float64)


def without_fraction_bits(bits: int) -> Callable[[Reals, Format, Format], Reals]:
    """Some bits of the float32 fraction are not looked at."""

    def change(real: Reals, source: Format, fmt: Format) -> Reals:
        pattern = real.astype(np.float32).view(np.uint32)
        masked = (pattern & np.uint32(~bits & 0xFFFFFFFF)).view(np.float32).astype(np.float64)
        return np.where(np.isnan(real) | below_normal(real, format_named("float32")), real, masked)

    return change


# --- which code ------------------------------------------------------------------------------------------------------


def without_end(real: Reals, fmt: Format, policy: CastPolicy) -> Integers:
    """Codes of magnitudes as though the exponent had more bits; of no meaning for NaN and infinity."""
    wide = replace(fmt, exponent=fmt.exponent + min(3, WIDEST_TABLE - fmt.bits), family="finite")
    codes = encode(real, wide, CastPolicy(policy.rounding, nan="zero")).astype(np.int64)
    return codes & (wide.sign_bit - 1)


def carry_lost(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """Where rounding fills the fraction up, the exponent is not raised."""
    filled = (code & ((1 << fmt.mantissa) - 1) == 0) & (unrestricted(code, fmt) > np.abs(real)) & (code > 0)
    return np.where(filled & (code <= allowed_top(fmt, policy)), code - (1 << fmt.mantissa), code)


def limit_before_rounding(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """Only what is as large as the next value beyond the limit is clamped; what rounds to it passes."""
    top = allowed_top(fmt, policy)
    beyond = unrestricted(np.array(top + 1), fmt)
    passes = (np.abs(real) < beyond) & (without_end(real, fmt, policy) > top)
    return np.where(passes, top + 1, code)


def overflow_above_the_largest(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """Whatever is larger than the largest value overflows, also what would be rounded down to it."""
    beyond = (np.abs(real) > unrestricted(np.array(allowed_top(fmt, policy)), fmt)) & np.isfinite(real)
    return np.where(beyond & (_counts(real, policy) | fmt.signed), special_code(fmt), code)


def wrapped(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """Beyond the largest value the code is cut to its width."""
    whole = without_end(real, fmt, policy)
    return np.where(np.isfinite(real) & (whole > allowed_top(fmt, policy)), whole & (fmt.sign_bit - 1), code)


def integer_wrapped(real: Reals, codes: Coded, fmt: Format, policy: CastPolicy) -> Coded:
    """Rounded to a 32-bit integer, of which the lowest bits are kept."""
    finite = np.clip(np.nan_to_num(real, nan=0.0), -(2.0**31), 2.0**31 - 1)
    magnitude, inward = np.abs(finite), np.trunc(finite)
    rounded = {
        "nearest_even": np.rint(finite),
        "nearest_away": np.copysign(np.floor(magnitude + 0.5), finite),
        "nearest_zero": np.copysign(np.ceil(magnitude - 0.5), finite),
        "toward_zero": inward,
        "up": np.ceil(finite),
        "down": np.floor(finite),
    }[policy.rounding].astype(np.int64)
    outside = (rounded > allowed_top(fmt, policy)) | (rounded < -fmt.sign_bit)
    kept = np.where(outside, rounded & (fmt.code_count - 1), codes.data)
    return Coded(codes.format, kept.astype(fmt.storage))


def without_the_lowest(real: Reals, codes: Coded, fmt: Format, policy: CastPolicy) -> Coded:
    """The negative range ends where the positive one does: -127, not -128."""
    lowest = codes.data == fmt.sign_bit
    return Coded(codes.format, np.where(lowest, fmt.sign_bit + 1, codes.data).astype(fmt.storage))


def lowest_binade_up(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """E8M0: whatever lies between the smallest power and the half of the next gap goes up."""
    magnitude = np.abs(real) / np.ldexp(1.0, -fmt.bias)
    return np.where((code == 0) & (magnitude > 1) & (magnitude < 1.5) & _counts(real, policy), 1, code)


def underflow_is_nan(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """E8M0: what rounds below the smallest power is NaN."""
    deeper = replace(fmt, exponent=fmt.exponent + 1, bias=fmt.bias + 128)
    power = encode(np.abs(real), deeper, CastPolicy(policy.rounding)).astype(np.int64)
    return np.where((power < 128) & (real != 0) & _counts(real, policy), nan_code(fmt), code)


def _counts(real: Reals, policy: CastPolicy) -> npt.NDArray[np.bool_]:
    """Of which values the magnitude is looked at, in a format without a sign."""
    return ~np.signbit(real) | (policy.negative == "magnitude")


def shift_modulo_32(real: Reals, code: Integers, fmt: Format, policy: CastPolicy) -> Integers:
    """The whole shift of the 24-bit significand is taken modulo 32: what should vanish can be the largest value."""
    exponent = np.maximum(np.frexp(real)[1] - 1, -126)
    shift = 23 - fmt.mantissa + np.maximum(1 - fmt.bias - exponent, 0)
    significand = np.ldexp(np.where(np.isfinite(real), np.abs(real), 0.0), 23 - exponent).astype(np.int64)
    count = shift % 32
    half = np.where(count > 0, (1 << np.maximum(count, 1) - 1) - 1 + (significand >> count & 1), 0)
    top = allowed_top(fmt, policy)
    rounded = (significand + half) >> count
    rounded = np.where(rounded > top, special_code(fmt) if policy.overflow == "special" else top, rounded)
    return np.where((shift >= 32) & np.isfinite(real) & (real != 0), rounded, code)


def all_of(change: Callable[[Reals, Coded, Format, CastPolicy], Coded], fits: Fits) -> Edit:
    """Other codes, of a format whose sign is no bit of its own."""

    def patch(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
        return change(decode_values(x), codes, format_named(behaviour.format), behaviour.policy)

    return lambda b: replace(b, patched=(*b.patched, patch)) if fits(b) else None


def zero_with_sign(fits: Fits) -> Edit:
    """A zero that came from a negative value gets the sign bit, in a format that has no negative zero."""

    def change(real: Reals, codes: Coded, fmt: Format, policy: CastPolicy) -> Coded:
        underflowed = (codes.data == 0) & np.signbit(real) & ~np.isnan(real)
        return Coded(codes.format, np.where(underflowed, fmt.sign_bit, codes.data).astype(fmt.storage))

    return all_of(change, fits)


def nan_by_its_bits() -> Edit:
    """A NaN is narrowed like a number: the top exponent, and as much of the fraction as there is room for."""

    def patch(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
        fmt, source = format_named(behaviour.format), format_named(x.format)
        pattern = x.data.astype(np.uint64).astype(np.int64)
        fraction = pattern & ((1 << source.mantissa) - 1)
        excess = source.mantissa - fmt.mantissa
        fraction = fraction >> excess if excess > 0 else fraction << -excess
        narrowed = ((1 << fmt.exponent) - 1) << fmt.mantissa | fraction
        narrowed |= np.where((pattern >> (source.bits - 1)) & 1 == 1, fmt.sign_bit, 0)
        real = decode_values(x)
        return Coded(codes.format, np.where(np.isnan(real), narrowed, codes.data).astype(fmt.storage))

    def edit(behaviour: Behaviour) -> Behaviour | None:
        source = format_named("float32" if behaviour.recipe or behaviour.before else behaviour.source)
        fits = is_float(behaviour) and family(behaviour) != "finite" and source.family == "ieee"
        return replace(behaviour, patched=(*behaviour.patched, patch)) if fits else None

    return edit
