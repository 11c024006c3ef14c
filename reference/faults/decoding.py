"""Faults of a cast that widens: how codes of at most 8 bits are read. ``decode.*``"""

from __future__ import annotations

from narrowgauge.reference.faults import value_edits
from narrowgauge.reference.faults.fault import Fault

FAULTS = (
    Fault(
        "decode.specials_as_numbers",
        "DECODE",
        value_edits.read(value_edits.as_number, lambda source: source.family != "finite"),
        "infinity and NaN are read as numbers: 480 in e4m3fn, 65536 in e5m2, -0 in FNUZ",
        "the code is shifted into place and its bias mended, without a look at the top exponent or at the code of NaN",
        ("triton#11784", "triton#10745", "intel-xpu-backend-for-triton#7771", "TransformerEngine#3262"),
    ),
    Fault(
        "decode.subnormals_as_normals",
        "DECODE",
        value_edits.read(value_edits.with_implicit_one, lambda source: source.mantissa > 0),
        "the smallest values are up to 4.5 times too large in e4m3: 0x01 is read as 0.0088",
        "the implicit one is put before the fraction where the exponent field is zero, too",
        ("1bit-MONSTER#300", "b12x#388"),
    ),
    Fault(
        "decode.finite_as_nan",
        "DECODE",
        value_edits.read(value_edits.all_ones_is_nan, lambda source: source.family == "fn"),
        "values of 288 to 448 are NaN",
        "every code with the top exponent is taken for NaN, as in IEEE 754",
        ("flashinfer#3035",),
    ),
    Fault(
        "decode.scale_code_0_is_zero",
        "DECODE",
        value_edits.read(value_edits.code_0_is_zero, lambda source: source.family == "exponent"),
        "blocks of tiny values are zeros, or NaN after a division by their scale",
        "the code is shifted into the exponent field of float32, where 0 is zero; 2^-127 is a subnormal",
        ("triton#11624", "TransformerEngine#3262"),
    ),
)
