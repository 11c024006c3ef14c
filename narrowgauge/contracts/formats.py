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

#: How the code space is laid out:
#: ``ieee`` all-ones exponent is infinity or NaN; ``fn`` only S.11..1 is NaN, no infinity;
#: ``fnuz`` the code of -0 is the only NaN, no infinity, no negative zero; ``finite`` every code is a number;
#: ``exponent`` a power of two alone: no sign, no zero, the last code is NaN; ``integer`` two's complement, or unsigned.
Family = Literal["ieee", "fn", "fnuz", "finite", "exponent", "integer"]

Codes = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Format:
    """How bits are read. It belongs to a buffer, never to a vendor."""

    name: str  #: torch / ml_dtypes spelling
    exponent: int  #: width of the exponent field in bits; 0 for integers
    mantissa: int  #: width of the mantissa field in bits; of the magnitude for integers
    bias: int  #: exponent bias
    family: Family
    authority: str  #: the document that defines it
    safetensors: str = ""  #: the dtype name in a safetensors header, where there is one
    aliases: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()  #: pytest markers of every test of this format
    signed: bool = True

    @property
    def bits(self) -> int:
        """Width of one code, sign included."""
        return self.signed + self.exponent + self.mantissa

    @property
    def sign_bit(self) -> int:
        """The code whose only set bit is the sign; 0 without one."""
        return 1 << (self.bits - 1) if self.signed else 0

    @property
    def code_count(self) -> int:
        """How many codes there are; a larger number in a buffer is not a code of this format."""
        return 1 << self.bits

    @property
    def storage(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned integer type that holds one code, little-endian. Packing is another matter."""
        width = next(w for w in (1, 2, 4, 8) if 8 * w >= self.bits)
        return np.dtype(f"<u{width}")


_OFP8 = "OCP 8-bit Floating Point Specification (OFP8) 1.0"
_MX = "OCP Microscaling Formats (MX) 1.0"
_IEEE = "IEEE 754-2019"
_FNUZ = "LLVM APFloat and ONNX"

FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("float64", 11, 52, 1023, "ieee", f"{_IEEE} binary64", "F64", ("fp64", "f64", "double")),
        Format("float32", 8, 23, 127, "ieee", f"{_IEEE} binary32", "F32", ("fp32", "f32", "float")),
        Format("tfloat32", 8, 10, 127, "ieee", "PTX ISA, .tf32: the upper 19 bits of binary32", "", ("tf32",)),
        Format("bfloat16", 8, 7, 127, "ieee", "the upper half of IEEE 754 binary32", "BF16", ("bf16",)),
        Format("float16", 5, 10, 15, "ieee", f"{_IEEE} binary16", "F16", ("fp16", "f16", "half")),
        Format(
            "float8_e4m3fn", 4, 3, 7, "fn", f"{_OFP8}, E4M3", "F8_E4M3",
            ("e4m3fn", "e4m3", "fp8_e4m3", "float8e4nv", "fp8e4nv", "F8E4M3FN", "OCP E4M3"), ("ocp",),
        ),
        Format(
            "float8_e4m3fnuz", 4, 3, 8, "fnuz", f"{_FNUZ}, Float8E4M3FNUZ", "F8_E4M3FNUZ",
            ("e4m3fnuz", "float8e4b8", "fp8e4b8", "F8E4M3FNUZ"), ("fnuz",),
        ),
        Format(
            "float8_e5m2", 5, 2, 15, "ieee", f"{_OFP8}, E5M2", "F8_E5M2",
            ("e5m2", "fp8_e5m2", "float8e5", "fp8e5", "F8E5M2", "OCP E5M2"), ("ocp",),
        ),
        Format(
            "float8_e5m2fnuz", 5, 2, 16, "fnuz", f"{_FNUZ}, Float8E5M2FNUZ", "F8_E5M2FNUZ",
            ("e5m2fnuz", "float8e5b16", "fp8e5b16", "F8E5M2FNUZ"), ("fnuz",),
        ),
        Format("float8_e4m3", 4, 3, 7, "ieee", "LLVM APFloat Float8E4M3 (IEEE-like)", "", ("e4m3_ieee",)),
        Format("float8_e3m4", 3, 4, 3, "ieee", "LLVM APFloat Float8E3M4 (IEEE-like)", "", ("e3m4",)),
        # Triton's fp8e4b15 is another format: bias 15, and no NaN at all.
        Format("float8_e4m3b11fnuz", 4, 3, 11, "fnuz", "LLVM APFloat Float8E4M3B11FNUZ", "", ("e4m3b11fnuz",)),
        Format(
            "float8_e8m0fnu", 8, 0, 127, "exponent", f"{_MX}, E8M0", "F8_E8M0",
            ("e8m0", "e8m0fnu", "ue8m0", "E8M0", "F8E8M0FNU"), ("mx",), signed=False,
        ),
        Format(
            "float6_e2m3fn", 2, 3, 1, "finite", f"{_MX}, FP6 E2M3", "F6_E2M3", ("e2m3", "e2m3fn", "fp6_e2m3"), ("mx",),
        ),
        Format(
            "float6_e3m2fn", 3, 2, 3, "finite", f"{_MX}, FP6 E3M2", "F6_E3M2", ("e3m2", "e3m2fn", "fp6_e3m2"), ("mx",),
        ),
        Format(
            "float4_e2m1fn", 2, 1, 1, "finite", f"{_MX}, FP4 E2M1", "F4",
            ("e2m1", "e2m1fn", "fp4", "fp4_e2m1", "F4E2M1FN"), ("mx", "nvfp4"),
        ),
        Format("int8", 0, 7, 0, "integer", "two's complement", "I8", ("i8", "s8"), ("integer",)),
        Format("uint8", 0, 8, 0, "integer", "unsigned", "U8", ("u8",), ("integer",), signed=False),
        Format("int4", 0, 3, 0, "integer", "two's complement", "", ("i4", "s4"), ("integer",)),
        Format("int32", 0, 31, 0, "integer", "two's complement", "I32", ("i32", "s32"), ()),
        Format("uint4", 0, 4, 0, "integer", "unsigned", "", ("u4",), ("integer",), signed=False),
    )
}  # fmt: skip

#: names in use that stand for no single format here, and what to say instead
NO_FORMAT: dict[str, str] = {
    "fp8": "engines mean float8_e4m3fn by it, and float8_e4m3fnuz on gfx940 to gfx942; say which",
    "fp6": "there are two: float6_e2m3fn and float6_e3m2fn",
    "fp8e4b15": "Triton's has bias 15 and no NaN, and is not modelled; float8_e4m3b11fnuz has bias 11",
    "float4_e2m1fn_x2": "torch's packed storage, two codes a byte: the format of one element is float4_e2m1fn",
    "mxfp8": "blocks: elements of float8_e4m3fn or float8_e5m2, scales of float8_e8m0fnu",
    "mxfp6": "blocks: elements of float6_e2m3fn or float6_e3m2fn, scales of float8_e8m0fnu",
    "mxfp4": "blocks: elements of float4_e2m1fn, scales of float8_e8m0fnu",
    "mxint8": "blocks: elements of int8, scales of float8_e8m0fnu",
    "nvfp4": "blocks: elements of float4_e2m1fn, scales of float8_e4m3fn and one of float32",
}

_BY_ANY_NAME = {a.lower(): f for f in FORMATS.values() for a in (f.name, f.safetensors, *f.aliases) if a}


def format_named(name: str) -> Format:
    """The format of that name or alias; case does not matter, nor does ``torch.`` or ``tl.`` before it.

    Raises ``BadInput`` with near names.
    """
    bare = name.lower().removeprefix("torch.").removeprefix("tl.")
    found = _BY_ANY_NAME.get(bare)
    if bare in NO_FORMAT:
        raise BadInput(f"{name!r} is not one format: {NO_FORMAT[bare]}")
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
