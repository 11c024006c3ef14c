"""Formats as declarations. Everything else about a format (values, maxima, codecs) is derived in ``reference``.

The table stands in the lowest room because a kernel's process, which must never see the oracle, needs the names and
the storage widths too. Adding a format is one entry of ``FORMATS``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput, unknown

#: How the top of the code space is spent:
#: ``ieee`` all-ones exponent is infinity or NaN; ``fn`` only S.11..1 is NaN, no infinity;
#: ``fnuz`` the code of -0 is the only NaN, no infinity, no negative zero.
Family = Literal["ieee", "fn", "fnuz"]

Codes = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Format:
    """How bits are read. It belongs to a buffer, never to a vendor."""

    name: str  #: torch / ml_dtypes spelling
    exponent: int  #: width of the exponent field in bits
    mantissa: int  #: width of the mantissa field in bits
    bias: int  #: exponent bias
    family: Family
    authority: str  #: the document that defines it
    safetensors: str  #: the dtype name in a safetensors header
    aliases: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()  #: pytest markers of every test of this format

    @property
    def bits(self) -> int:
        """Width of one code, sign included."""
        return 1 + self.exponent + self.mantissa

    @property
    def sign_bit(self) -> int:
        """The code whose only set bit is the sign."""
        return 1 << (self.bits - 1)

    @property
    def code_count(self) -> int:
        """How many codes there are; a larger number in a buffer is not a code of this format."""
        return 1 << self.bits

    @property
    def storage(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned integer type that holds one code, little-endian."""
        width = next(w for w in (1, 2, 4, 8) if 8 * w >= self.bits)
        return np.dtype(f"<u{width}")


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("float32", 8, 23, 127, "ieee", "IEEE 754-2019 binary32", "F32", ("fp32", "f32", "float")),
        Format("float16", 5, 10, 15, "ieee", "IEEE 754-2019 binary16", "F16", ("fp16", "f16", "half")),
        Format("bfloat16", 8, 7, 127, "ieee", "the upper half of IEEE 754 binary32", "BF16", ("bf16",)),
        Format(
            "float8_e4m3fn",
            4,
            3,
            7,
            "fn",
            "OCP 8-bit Floating Point Specification (OFP8) 1.0, E4M3",
            "F8_E4M3",
            ("e4m3fn", "e4m3", "fp8_e4m3", "float8e4nv", "fp8e4nv", "F8E4M3FN", "OCP E4M3"),
            ("ocp",),
        ),
        Format(
            "float8_e4m3fnuz",
            4,
            3,
            8,
            "fnuz",
            "ONNX and LLVM APFloat, Float8E4M3FNUZ",
            "F8_E4M3FNUZ",
            ("e4m3fnuz", "float8e4b8", "fp8e4b8", "F8E4M3FNUZ"),
            ("fnuz",),
        ),
    )
}

_BY_ANY_NAME = {alias.lower(): f for f in FORMATS.values() for alias in (f.name, f.safetensors, *f.aliases)}


def format_named(name: str) -> Format:
    """The format of that name or alias (case does not matter). Raises ``BadInput`` with near names."""
    found = _BY_ANY_NAME.get(name.lower())
    if found is None:
        raise unknown("format", name, FORMATS, aliases={alias: f.name for alias, f in _BY_ANY_NAME.items()})
    return found


def as_codes(format_name: str, values: Iterable[int] | npt.NDArray[np.integer]) -> Codes:
    """Integers as an array of codes in the format's storage type. Raises ``BadInput`` if one is not a code."""
    fmt = format_named(format_name)
    array = np.asarray(values)
    if array.size and (int(array.min()) < 0 or int(array.max()) >= fmt.code_count):
        raise BadInput(
            f"{fmt.name} has codes 0 to {fmt.code_count - 1:#x}; given {int(array.min())} to {int(array.max())}"
        )
    return array.astype(fmt.storage)
