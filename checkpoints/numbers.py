"""The numbers of small tensors: scales, and what else is read as a whole."""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.source import Source
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.fast_codec import decode_values

Values = npt.NDArray[np.float64]


def has_numbers(tensor: Stored) -> bool:
    """Whether ``numbers`` reads such a tensor without being told its format."""
    return tensor.format in FORMATS and FORMATS[tensor.format].bits % 8 == 0


def numbers(tensor: Stored, form: str = "") -> Values:
    """The numbers of a small tensor, flat; in a format that its file's word does not say."""
    return part_numbers(tensor, form, 1, 0, prod(tensor.shape))


def part_numbers(tensor: Stored, form: str, lead: int, which: int, count: int) -> Values:
    """``count`` numbers of a tensor: those of matrix ``which`` of ``lead``, or all where it has not one for each."""
    known = form if tensor.dtype in ("U8", "I8") and form else tensor.format
    if known not in FORMATS or FORMATS[known].bits % 8:
        raise BadInput(f"{tensor.path}: tensor {tensor.name!r} is {tensor.dtype}; expected numbers")
    fmt = FORMATS[known]
    each = prod(tensor.shape) == count * lead
    with Source(tensor.path) as source:
        start = tensor.start + (which * count * fmt.storage.itemsize if each else 0)
        size = count * fmt.storage.itemsize
        if size > tensor.size:
            raise BadInput(
                f"{tensor.path}: tensor {tensor.name!r} has {list(tensor.shape)}; expected {count:,} numbers"
            )
        data = source.read(start, size, f"tensor {tensor.name!r}")
    return decode_values(Coded(fmt.name, np.frombuffer(data, fmt.storage)))
