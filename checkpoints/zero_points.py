"""Packed zero points as numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.reading import whole
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.layouts import layout_named, unpack, zero_points_named

Values = npt.NDArray[np.float64]


def zero_points(passport: Passport) -> Values:
    """The zero points of a weight whose scheme stores them packed, [rows, groups]. Raises ``BadInput`` as ``rows``."""
    *lead, n, columns = passport.shape
    tensor, scheme, cutting = passport.tensors["zeros"], passport.scheme, passport.cutting
    if lead or cutting is None or not scheme.zeros or tensor.dtype != "I32":
        raise BadInput(f"{tensor.path}: tensor {tensor.name!r}: packed zero points of one matrix were expected")
    return packed_zeros(tensor, scheme.zeros, scheme.transposed, *cutting.grid(n, columns))


def packed_zeros(tensor: Stored, convention: str, transposed: bool, down: int, across: int) -> Values:
    """Packed zero points as numbers: what is stored less what the convention adds."""
    bits = zero_points_named(convention).bits
    if transposed:
        layout = layout_named(f"awq_{bits}bit" if convention.startswith("awq") else f"gptq_zeros_{bits}bit")
        codes = unpack(whole(tensor).view("<i4"), layout, across, down).codes.T
    else:
        layout = layout_named(f"compressed_tensors_zeros_{bits}bit")
        codes = unpack(whole(tensor).view("<i4"), layout, down, across).codes
    # codes of compressed-tensors are stored by half the range higher, as its zero points are: they are subtracted alike
    offset = zero_points_named(convention).offset if convention.startswith("gptq") else 0
    return codes.astype(np.float64) - offset
