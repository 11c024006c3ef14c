"""What the arithmetic of a decode kernel may err by: allowances, each with the document that states it.

u = 2^-24 is the relative error of one float32 operation that rounds to nearest; an ulp is at most 2 u of its number.
Every allowance is the largest that a document states for any library or instruction that attention is written in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import cast, decode_values

F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

U = 2.0**-24
#: what flushing a subnormal result takes away at most
TINY = 2.0**-126
#: covers the products of errors that a sum of errors leaves out, and what float64 leaves (see ``reference.wide``)
MORE = 1 + 2.0**-10
#: exp and exp2 of an exact argument, 3 ulp. CUDA C++ Programming Guide: expf 1, exp2f 2 ulp. PTX ISA 9.1, ex2.approx:
#: 2 ulp of the correctly rounded result, so 2.5. CDNA3 V_EXP_F32: 1; OpenCL C, whose bound HIP's compiler keeps:
#: exp 3. NumPy, AVX-512: 2.52 (2.44 measured over [-87, 0]); torch (SLEEF u10): 1 (0.57 measured). exp(0) is 1 in all.
EXP = 6 * U
#: the argument of an exp2 that stands for exp: log2 e (off by 0.23 u) and the product with it (u), below 2 u
TO_BASE_2 = 2 * U
#: log: OpenCL C 3 ulp, CUDA logf 1 ulp. Relative, or absolute where log is near 0 (PTX ISA lg2.approx: 2^-22)
LOG, LOG_ABSOLUTE = 6 * U, 4 * U
#: a division: LLVM's !fpmath of OpenCL 2.5 ulp, PTX div.full 2 ulp, rcp.approx 1 ulp and a product 3 u
DIVISION = 5 * U
#: tanh out of one exp, 1 - 2 / (exp(2y) + 1) or 2 / (1 + exp(-2y)) - 1, where it cancels. Absolute: the exp, EXP and
#: 2 · 0.448 · TO_BASE_2 (|y| / cosh² y < 0.448), halved by the slope: 4 u; the sum u and the division DIVISION of a
#: number of at most 2: 12 u; the last difference u; and y itself, off by 6 u of y: 0.448 · 6 u. Together below 20 u.
TANH_ABSOLUTE = 20 * U


@dataclass(frozen=True)
class Sums:
    """How products are added: a sum of n terms errs by (n + 2) · ``add`` of the sum of their magnitudes at most.

    Where all terms are multiples of a unit and their magnitudes sum to at most 2^``bits`` units, nothing is lost.
    """

    add: float
    bits: int
    source: str


#: by name. The last two truncate terms to a common exponent: ceil(n / L) · ((L + 1) 2^-F + 2^-m) of the magnitudes,
#: for L terms a step, F bits below the largest exponent, m bits written.
SUMS = {
    "ieee": Sums(U, 24, "IEEE 754: every addition to nearest, in any order, fused with the product or not"),
    "matrix_unit": Sums(
        2 * U,
        24,
        "L 8, F 24, m 23 (A100) is 1.375 n u + 3 u; L 16, F 25 (H100, B200) less; MI300 1.3 n u; the first too",
    ),
    "fp8_matrix_unit": Sums(1.125 * 2.0**-13, 14, "Ada L 16, Hopper's wgmma L 32: F 13, m 13"),
}
#: relative error of tanh, by name
TANH = {
    "function": 4 * U,  # CUDA tanhf 2 ulp; SLEEF u10, OCML and numpy less. A form out of exp: TANH_ABSOLUTE
    "instruction": 2.0**-11,  # PTX ISA, tanh.approx.f32, as FlashAttention's soft cap uses it (cutlass::fast_tanh)
}


def grid(value: F64) -> F64:
    """The unit of which all elements of the last axis are multiples: their lowest set bit. Infinite for zeros."""
    lowest = _lowest(value)
    return np.asarray(np.where(lowest == 0, np.inf, lowest).min(axis=-1, initial=np.inf))


def digits(value: F64) -> F64:
    """How many significant bits an element of the last axis has at most; 0 for zeros."""
    counts = np.ceil(np.log2(np.abs(value) / np.where(value == 0, 1.0, _lowest(value)) + 1))
    return np.asarray(counts.max(axis=-1, initial=0.0))


def _lowest(value: F64) -> F64:
    mantissa, exponent = np.frexp(value)
    whole = (mantissa * 2.0**53).astype(np.int64)
    return np.asarray(np.ldexp((whole & -whole).astype(np.float64), exponent - 53))


def power_of_two(value: F64) -> Mask:
    """Whether a product with it is exact."""
    return np.asarray(np.abs(np.frexp(value)[0]) == 0.5)


@dataclass(frozen=True)
class Rounding:
    """What rounding to a format takes away: relative, absolute below its normal numbers; and its largest number."""

    unit: float
    lost: float
    largest: float


@lru_cache
def rounding_to(format_name: str) -> Rounding:
    """Of float32 nothing, since what is rounded is in float32 already."""
    if format_name == "float32":
        return Rounding(0.0, 0.0, np.inf)
    fmt = format_named(format_name)
    largest = float(np.nanmax(np.where(np.isinf(values(fmt)), 0.0, values(fmt))))
    return Rounding(2.0 ** -(fmt.mantissa + 1), 2.0 ** (-fmt.bias - fmt.mantissa), largest)


def coded(value: F64, format_name: str) -> Coded:
    """To nearest, ties to even; overflow gives infinity, or NaN where there is none."""
    policy = CastPolicy(overflow="special", infinity="special")
    return cast(Coded("float64", np.ascontiguousarray(value, np.float64).view(np.uint64)), format_name, policy)


def in_format(value: F64, format_name: str) -> F64:
    """Real numbers rounded to a format."""
    return decode_values(coded(value, format_name))
