"""Where a library parts from the policy that it is said to follow. Each is looked for: one that is gone is an error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
SMALLEST = 2.0**-127  #: of E8M0; a float32 subnormal


@dataclass(frozen=True)
class Disagreement:
    """A set of inputs, all of which and none but which a library casts otherwise than its named policy says."""

    kernels: tuple[str, ...]
    versions: str  #: of the distribution, in which this was measured
    formats: tuple[str, ...]
    where: Callable[[Values], npt.NDArray[np.bool_]]
    inputs: str  #: ``where`` in words
    example: float
    gives: str
    says: str  #: what the policy says
    reason: str
    link: str


DISAGREEMENTS = (
    Disagreement(
        ("torch_eager",),
        ">=2.7,<=2.14.1",
        ("float8_e8m0fnu",),
        lambda x: (np.abs(x) > SMALLEST) & (np.abs(x) < 1.5 * SMALLEST),
        "2^-127 < |x| < 1.5 x 2^-127",
        1.25 * SMALLEST,
        "0x01",
        "0x00",
        "rounds a subnormal as though it had an implicit bit",
        "docs/upstream/e8m0-lowest-binade.md",
    ),
    Disagreement(
        ("ml_dtypes_astype",),
        "==0.5.0",
        ("float8_e8m0fnu",),
        lambda x: (x > SMALLEST) & (x <= 1.5 * SMALLEST),
        "2^-127 < x <= 1.5 x 2^-127",
        1.5 * SMALLEST,
        "0x01",
        "0x00",
        "rounds a subnormal as though it had an implicit bit",
        "docs/upstream/e8m0-lowest-binade.md",
    ),
    Disagreement(
        ("ml_dtypes_astype",),
        ">=0.5.1,<=0.6.0",
        ("float8_e8m0fnu",),
        lambda x: (x > SMALLEST) & (x < 1.5 * SMALLEST),
        "2^-127 < x < 1.5 x 2^-127",
        1.25 * SMALLEST,
        "0x01",
        "0x00",
        "rounds a subnormal as though it had an implicit bit",
        "docs/upstream/e8m0-lowest-binade.md",
    ),
    Disagreement(
        ("gfloat_saturate", "gfloat_nonsaturate"),
        ">=0.5.1,<=0.5.2",
        ("float8_e8m0fnu",),
        lambda x: (x > 0) & (x < 0.75 * SMALLEST),
        "0 < x < 0.75 x 2^-127",
        2.0**-149,
        "-22, no code",
        "0x00",
        "round_ndarray knows no smallest value in a format without subnormals, encode_ndarray does not look "
        "(the scalar encode_float gives 0xff, NaN)",
        "https://github.com/graphcore-research/gfloat/issues/62",
    ),
    Disagreement(
        ("gfloat_saturate", "gfloat_nonsaturate"),
        ">=0.5.1,<=0.5.2",
        ("float8_e8m0fnu",),
        lambda x: x < 0,
        "x < 0",
        -1.0,
        "-1, no code",
        "0x00",
        "encode_ndarray does not look at the sign in a format without one",
        "https://github.com/graphcore-research/gfloat/issues/62",
    ),
)
