"""Where who follows a named policy parts from it: declared once, for the proof and for ``narrowgauge cast``.

Each entry is a set of inputs as data. In the versions that are installed, the self-test looks for all of these inputs
and for no others (suites/meta/test_proof.py): an entry that is gone is an error.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
SMALLEST = 2.0**-127  #: of E8M0; a float32 subnormal


def in_powers(value: float) -> str:
    """A float64 for people: ``1.5 x 2^-127`` where a decimal would not be read."""
    mantissa, exponent = np.frexp(abs(value))
    text = f"{abs(value):g}"
    if 0 < abs(value) < 1e-6 or 1e6 < abs(value) < np.inf:
        text = f"2^{exponent - 1}" if mantissa == 0.5 else f"{2 * mantissa:g} x 2^{exponent - 1}"
    return f"-{text}" if np.signbit(value) else text


@dataclass(frozen=True)
class Span:
    """Values, or magnitudes, between two bounds; None is no bound. The lower one is never in it."""

    low: float | None
    high: float
    of: str = "x"  #: or ``|x|``
    closed: bool = False  #: the upper bound is in it

    def holds(self, x: Values) -> npt.NDArray[np.bool_]:
        """Which values lie in it, same shape; no NaN does."""
        measured = np.abs(x) if self.of == "|x|" else x
        inside = (operator.le if self.closed else operator.lt)(measured, self.high)
        return np.asarray(inside if self.low is None else inside & (measured > self.low))

    def __str__(self) -> str:
        low = "" if self.low is None else f"{in_powers(self.low)} < "
        return f"{low}{self.of} {'<=' if self.closed else '<'} {in_powers(self.high)}"


@dataclass(frozen=True)
class Deviation:
    """A set of inputs, all of which and none but which a library casts otherwise than its named policy says."""

    library: str
    versions: str  #: of the library's distribution, in which this was seen
    format: str  #: destination
    where: Span
    example: float
    gives: int  #: the code, of every input; below zero: no code, and of the example alone
    reason: str
    link: str
    sources: tuple[str, ...] = ()  #: where it is not so from every source

    @property
    def given(self) -> str:
        """``gives`` in words."""
        return f"{self.gives:#04x}" if self.gives >= 0 else f"{self.gives}, no code"

    def concerns(self, source: str, format_name: str) -> bool:
        """Whether a cast of these formats can meet it."""
        return format_name == self.format and (not self.sources or source in self.sources)


_LOWEST_BINADE = "rounds a subnormal as though it had an implicit bit"
_PAGE = "docs/upstream/e8m0-lowest-binade.md"
_GFLOAT = "https://github.com/graphcore-research/gfloat/issues/62"
_E8M0 = "float8_e8m0fnu"

TORCH = Deviation(
    "torch", ">=2.7,<=2.14.1", _E8M0, Span(SMALLEST, 1.5 * SMALLEST, "|x|"), 1.25 * SMALLEST, 0x01,
    _LOWEST_BINADE, _PAGE,
)  # fmt: skip
ML_DTYPES_0_5_0 = Deviation(
    "ml_dtypes", "==0.5.0", _E8M0, Span(SMALLEST, 1.5 * SMALLEST, closed=True), 1.5 * SMALLEST, 0x01,
    _LOWEST_BINADE, _PAGE,
)  # fmt: skip
ML_DTYPES = Deviation(
    "ml_dtypes", ">=0.5.1,<=0.6.0", _E8M0, Span(SMALLEST, 1.5 * SMALLEST), 1.25 * SMALLEST, 0x01,
    _LOWEST_BINADE, _PAGE,
)  # fmt: skip
GFLOAT_TINY = Deviation(
    "gfloat", ">=0.5.1,<=0.5.2", _E8M0, Span(0.0, 0.75 * SMALLEST), 2.0**-149, -22,
    "round_ndarray knows no smallest value in a format without subnormals, encode_ndarray does not look "
    "(the scalar encode_float gives 0xff, NaN)", _GFLOAT,
)  # fmt: skip
GFLOAT_NEGATIVE = Deviation(
    "gfloat", ">=0.5.1,<=0.5.2", _E8M0, Span(None, 0.0), -1.0, -1,
    "encode_ndarray does not look at the sign in a format without one", _GFLOAT,
)  # fmt: skip
#: found in Triton's IR, run on a CPU: the clamp compares with 480, though rounding reaches the code of NaN from 464.25
TRITON_AMD = Deviation(
    "triton", "==3.9", "float8_e4m3fn", Span(464.0, 480.0, "|x|"), 470.0, 0x7F,
    "the clamp of float16 sources begins at 480, and what rounds to 480 is the code of NaN",
    "docs/upstream/triton-fp16-to-e4m3fn-nan.md", ("float16",),
)  # fmt: skip

DEVIATIONS = (TORCH, ML_DTYPES_0_5_0, ML_DTYPES, GFLOAT_TINY, GFLOAT_NEGATIVE, TRITON_AMD)
