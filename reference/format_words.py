"""Formats in words: what one can hold, for people."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.formats import Format
from narrowgauge.reference.codec import decode, has_negative_zero, values
from narrowgauge.reference.landmarks import has_subnormals, smallest_normal, top_code

#: said of what a format does not have
NONE = "none"


def format_facts(fmt: Format) -> dict[str, str]:
    """What a format can hold, by the name of each fact. Numbers have digits enough to read them back."""
    top = top_code(fmt)
    return {
        "bits": bits(fmt),
        "largest finite": f"{_number(fmt, top)} ({top:#x})",
        "smallest normal": NONE if fmt.family == "integer" else _number(fmt, smallest_normal(fmt)),
        "smallest subnormal": _number(fmt, 1) if has_subnormals(fmt) else NONE,
        "zero": "no" if fmt.family == "exponent" else "yes",
        "infinity": _infinities(fmt),
        "NaN": _nans(fmt),
        "negative zero": "yes" if has_negative_zero(fmt) else "no",
        "safetensors": fmt.safetensors or NONE,
        "aliases": ", ".join(fmt.aliases),
        "authority": fmt.authority,
    }


def bits(fmt: Format) -> str:
    """How a code is laid out."""
    if fmt.family == "integer":
        return f"{fmt.bits}, two's complement" if fmt.signed else f"{fmt.bits}, unsigned"
    return f"{int(fmt.signed) or 'no'} sign, {fmt.exponent} exponent, {fmt.mantissa or 'no'} mantissa, bias {fmt.bias}"


def _number(fmt: Format, code: int) -> str:
    """The value of a code, in digits enough to read it back."""
    value = float(decode(np.array([code], fmt.storage), fmt)[0])
    return f"{value:.0f}" if fmt.family == "integer" else f"{value:.{17 if fmt.bits > 32 else 9}g}"


def _infinities(fmt: Format) -> str:
    """The codes of infinity, as those of NaN."""
    if fmt.family != "ieee":
        return NONE
    plus = ((1 << fmt.exponent) - 1) << fmt.mantissa
    return f"{plus:#x}, {plus | fmt.sign_bit:#x}"


def _nans(fmt: Format) -> str:
    """The codes of NaN: "0x7f, 0xff", or "0x7d to 0x7f, 0xfd to 0xff"."""
    if fmt.family == "integer":
        return NONE
    if fmt.bits > 8:
        return "every code with the top exponent and a fraction"
    codes = np.flatnonzero(np.isnan(values(fmt)))
    runs = [run for run in np.split(codes, np.flatnonzero(np.diff(codes) > 1) + 1) if run.size]
    return ", ".join(f"{r[0]:#04x}" if r.size == 1 else f"{r[0]:#04x} to {r[-1]:#04x}" for r in runs) or NONE
