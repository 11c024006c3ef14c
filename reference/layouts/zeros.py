"""What formats store for a zero point."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.layout import ZeroPoints


def _of(bits: int) -> tuple[ZeroPoints, ...]:
    half = 1 << (bits - 1)
    return (
        ZeroPoints(
            f"gptq_v1_{bits}bit", bits, -1, "checkpoint_format gptq: z - 1; vLLM q_gemm.cu adds 1 after unpacking"
        ),
        ZeroPoints(f"gptq_v2_{bits}bit", bits, 0, "checkpoint_format gptq_v2: z itself; vLLM q_gemm.cu adds nothing"),
        ZeroPoints(f"awq_{bits}bit", bits, 0, "AWQ: z itself, packed in the order of the weights"),
        ZeroPoints(f"compressed_tensors_{bits}bit", bits, half, "pack_to_int32 adds half the range: z is signed"),
        ZeroPoints(f"uint{bits}b{half}", bits, 0, "symmetric, vLLM's scalar type of that name: code - half", half),
    )


ZERO_POINTS: dict[str, ZeroPoints] = {z.name: z for bits in (4, 8) for z in _of(bits)}


def zero_points_named(name: str) -> ZeroPoints:
    """The convention of that name. Raises ``BadInput`` with near names."""
    if name not in ZERO_POINTS:
        raise unknown("zero-point convention", name, ZERO_POINTS)
    return ZERO_POINTS[name]


def _checked(values: npt.NDArray[Any], of: ZeroPoints, low: int, high: int, what: str) -> npt.NDArray[np.int64]:
    if of.constant is not None:
        raise BadInput(f"{of.name!r} stores no zero points: every one is {of.constant}; leave the tensor out")
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        given = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise BadInput(f"{what} of {of.name!r} must be a NumPy array of integers, not {given}")
    wide = values.astype(np.int64)
    beyond = np.argwhere((wide < low) | (wide > high))
    if len(beyond):
        at = tuple(int(i) for i in beyond[0])
        raise BadInput(f"{what} of {of.name!r} go from {low} to {high}; {int(wide[at])} at {at} has no place there")
    return wide


def stored_zeros(zeros: npt.NDArray[Any], of: ZeroPoints) -> npt.NDArray[np.uint8]:
    """What is stored for zero points: integers of any shape. Raises ``BadInput`` for one that cannot be stored."""
    return (_checked(zeros, of, of.lowest, of.highest, "zero points") + of.offset).astype(np.uint8)


def zeros_of(stored: npt.NDArray[Any], of: ZeroPoints) -> npt.NDArray[np.int16]:
    """The zero points that are stored as ``stored``. GPTQ v1 gives 1 to 16: it adds the 1 after unpacking."""
    return (_checked(stored, of, 0, (1 << of.bits) - 1, "stored zero points") - of.offset).astype(np.int16)
