"""gfloat's casts, its two modes of overflow as two kernels: rounding and encoding are separate calls there.

gfloat has no name for FNUZ, for tf32 or for LLVM's small IEEE formats; its parameters describe them.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from narrowgauge import Cast, kernel

#: name: bits, significand bits with the implicit one, bias, infinities, a negative zero, codes per sign that are NaN
PARAMETERS: dict[str, tuple[int, int, int, bool, bool, int]] = {
    "float8_e4m3fnuz": (8, 4, 8, False, False, 0),
    "float8_e5m2fnuz": (8, 3, 16, False, False, 0),
    "float8_e4m3b11fnuz": (8, 4, 11, False, False, 0),
    "float8_e4m3": (8, 4, 7, True, True, 7),
    "float8_e3m4": (8, 5, 3, True, True, 15),
    "tfloat32": (19, 11, 127, True, True, 1023),
}
#: what gfloat itself calls a format
NAMES = {
    "float8_e4m3fn": "ocp_e4m3",
    "float8_e5m2": "ocp_e5m2",
    "float6_e2m3fn": "ocp_e2m3",
    "float6_e3m2fn": "ocp_e3m2",
    "float4_e2m1fn": "ocp_e2m1",
    "float8_e8m0fnu": "ocp_e8m0",
    "bfloat16": "bfloat16",
    "float16": "binary16",
}
#: no NaN and no infinity: gfloat refuses a NaN, and overflow too where it is not to saturate
FINITE = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
FORMATS = (*NAMES, *PARAMETERS)
#: gfloat works on float64 here, so the other sources would only say the same of fewer values
SOURCES = ("float32",)


@cache
def described(format):
    """gfloat's description of a format."""
    import gfloat.formats

    if format in NAMES:
        return getattr(gfloat.formats, f"format_info_{NAMES[format]}")
    bits, precision, bias, infinities, negative_zero, nans = PARAMETERS[format]
    return gfloat.FormatInfo(
        format,
        bits,
        precision,
        bias=bias,
        is_signed=True,
        domain=gfloat.Domain.Extended if infinities else gfloat.Domain.Finite,
        has_nz=negative_zero,
        num_high_nans=nans,
        has_subnormals=True,
        is_twos_complement=False,
    )


def _cast(x, format, saturate):
    import gfloat.formats

    info, real = described(format), x.astype(np.float64)
    if format in FINITE:
        real = np.where(np.isnan(real), 0.0, real)
    rounded = gfloat.round_ndarray(info, real, gfloat.RoundMode.TiesToEven, sat=saturate)
    return gfloat.encode_ndarray(info, rounded)


@kernel(Cast("gfloat_saturate"), FORMATS, SOURCES, owner="gfloat", backend="numpy", library="gfloat")
def gfloat_saturate(x, format):
    return _cast(x, format, saturate=True)


@kernel(
    Cast("gfloat_nonsaturate"),
    [name for name in FORMATS if name not in FINITE],
    SOURCES,
    owner="gfloat",
    backend="numpy",
    library="gfloat",
)
def gfloat_nonsaturate(x, format):
    return _cast(x, format, saturate=False)
