"""Faults of a cast that widens: how codes of at most 8 bits are read. ``decode.*``"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.reference.behaviour import Behaviour
from narrowgauge.reference.codec import unrestricted
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.faults.edits import Edit
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.value_edits import Integers, Reals


def read(change: Callable[[Integers, Reals, Format], Reals], fits: Callable[[Format], bool]) -> Edit:
    """The codes of a source of at most 8 bits are read as other values.

    ``change`` gets the codes without sign, their magnitudes, and the source.
    """

    def edit(behaviour: Behaviour) -> Behaviour | None:
        source = format_named(behaviour.source)
        if behaviour.recipe or behaviour.before or source.bits > 8 or source.family == "integer" or not fits(source):
            return None

        def before(x: Coded) -> Coded:
            code = x.data.astype(np.int64)
            magnitude = code & (source.sign_bit - 1) if source.signed else code
            value = change(magnitude, np.abs(decode_values(x)), source)
            value = np.where((code & source.sign_bit) != 0, -value, value)
            with np.errstate(over="ignore"):
                return Coded("float32", value.astype(np.float32).view(np.uint32))

        return replace(behaviour, before=(before,))

    return edit


def as_number(code: Integers, value: Reals, fmt: Format) -> Reals:
    """No code is special: infinity and NaN are read as the numbers that would stand in their place."""
    return unrestricted(code, fmt)


def with_implicit_one(code: Integers, value: Reals, fmt: Format) -> Reals:
    """Subnormals are read by the formula of normal numbers; zero is not."""
    scale = 2.0 ** -(fmt.bias + fmt.mantissa)
    return np.where((code > 0) & (code < 1 << fmt.mantissa), ((1 << fmt.mantissa) + code) * scale, value)


def all_ones_is_nan(code: Integers, value: Reals, fmt: Format) -> Reals:
    """Every code with the top exponent and a fraction is NaN."""
    return np.where(code > ((1 << fmt.exponent) - 1) << fmt.mantissa, np.nan, value)


def code_0_is_zero(code: Integers, value: Reals, fmt: Format) -> Reals:
    return np.where(code == 0, 0.0, value)


FAULTS = (
    Fault(
        "decode.specials_as_numbers",
        "DECODE",
        read(as_number, lambda source: source.family != "finite"),
        "infinity and NaN are read as numbers: 480 in e4m3fn, 65536 in e5m2, -0 in FNUZ",
        "the code is shifted into place and its bias mended, without a look at the top exponent or at the code of NaN",
        ("triton#11784", "triton#10745", "intel-xpu-backend-for-triton#7771", "TransformerEngine#3262"),
    ),
    Fault(
        "decode.subnormals_as_normals",
        "DECODE",
        read(with_implicit_one, lambda source: source.mantissa > 0),
        "the smallest values are up to 4.5 times too large in e4m3: 0x01 is read as 0.0088",
        "the implicit one is put before the fraction where the exponent field is zero, too",
        ("1bit-MONSTER#300", "b12x#388"),
    ),
    Fault(
        "decode.finite_as_nan",
        "DECODE",
        read(all_ones_is_nan, lambda source: source.family == "fn"),
        "values of 288 to 448 are NaN",
        "every code with the top exponent is taken for NaN, as in IEEE 754",
        ("flashinfer#3035",),
    ),
    Fault(
        "decode.scale_code_0_is_zero",
        "DECODE",
        read(code_0_is_zero, lambda source: source.family == "exponent"),
        "blocks of tiny values are zeros, or NaN after a division by their scale",
        "the code is shifted into the exponent field of float32, where 0 is zero; 2^-127 is a subnormal",
        ("triton#11624", "TransformerEngine#3262"),
    ),
)
