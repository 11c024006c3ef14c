"""Tensors in files, for tests of a census, and what they hold as whole numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.model import Stored
from narrowgauge.contracts.formats import FORMATS

#: bytes before a tensor in its file: an odd number, as headers may end anywhere
BEFORE = 13


def stored(folder: Path, codes: npt.NDArray[Any], format: str, shape: tuple[int, ...] = (), name: str = "w") -> Stored:
    """A tensor of codes in a file of its own. Two codes of 4 bits share a byte, the first in the low nibble."""
    fmt = FORMATS[format]
    dtype = fmt.safetensors or "U8"  # a type as wide, where a file has no word for the format
    flat = codes.astype(fmt.storage).ravel()
    if fmt.bits == 4:
        flat = flat[0::2] | flat[1::2] << 4
    path = folder / f"{name}.bin"
    path.write_bytes(b"\xa5" * BEFORE + flat.tobytes())
    return Stored(name, dtype, shape or codes.shape, path, BEFORE, flat.nbytes, format)


def plain(folder: Path, numbers: npt.NDArray[Any], dtype: str) -> Stored:
    """A tensor of whole numbers of a type that is no format of ours."""
    path = folder / "plain.bin"
    path.write_bytes(b"\xa5" * BEFORE + numbers.tobytes())
    return Stored("plain", dtype, numbers.shape, path, BEFORE, numbers.nbytes)


def said(census: Census) -> dict[str, object]:
    """What it counts, in the words of second_census."""
    names = (
        "elements",
        "nan",
        "plus_infinite",
        "minus_infinite",
        "zeros",
        "negative_zeros",
        "negative",
        "amax",
        "least",
    )
    landed = {to: (there.beyond, there.flushed, there.subnormal, there.inexact) for to, there in census.into.items()}
    return {**{name: getattr(census, name) for name in names}, **landed}


def mixture(format: str, count: int, seed: int) -> npt.NDArray[Any]:
    """Codes of a wide format without pattern: half of them at random, half near the places where something changes."""
    fmt = FORMATS[format]
    rng = np.random.default_rng(seed)
    anywhere = rng.integers(0, 1 << 63, count, dtype=np.uint64) << np.uint64(1) | rng.integers(
        0, 2, count, dtype=np.uint64
    )
    powers = np.array(
        [0.0, *(2.0 ** np.arange(-150.0, 130.0)), 65520.0, 464.0, 448.0, 240.0, 57344.0, 61440.0, 3.39e38]
    )
    with np.errstate(over="ignore"):
        near = (
            rng.choice(powers, count)
            .astype(ml_dtypes.bfloat16 if format == "bfloat16" else format)
            .view(fmt.storage)
            .astype(np.int64)
        )
    near = np.maximum(near + rng.integers(-3, 4, count), 0) | rng.integers(0, 2, count) * np.int64(
        fmt.sign_bit if fmt.bits < 64 else 0
    )
    both = np.where(rng.integers(0, 2, count) == 1, anywhere & np.uint64(fmt.code_count - 1), near.astype(np.uint64))
    return both.astype(fmt.storage)
