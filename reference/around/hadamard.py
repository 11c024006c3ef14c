"""Randomised Hadamard transform: y = H D x, so that no channel stands out before int4.

H[i, j] is (-1)^popcount(i & j), natural order; D are signs that are given as data. Source: vLLM 0.33.0,
int4_per_token_head.py, single_rht and its float32 butterflies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import cast, to_float32
from narrowgauge.reference.policies import resolve

F32 = npt.NDArray[np.float32]
#: vLLM's signs, drawn by torch's CPU generator from the seed 0x9E3779B9 (torch 2.13.0): bit 1 is +1, the first element
#: the highest bit. Those of fewer elements, a power of two, are the first ones (measured too).
_VLLM = bytes.fromhex("b09acea68dac010136bc22651c2afed681d125528223f5d51219d04c05c2045f")
VLLM_SIZES = (16, 32, 64, 128, 256)


def vllm_signs(size: int) -> F32:
    """vLLM's +1 and -1 for heads of that size, float32 [size]. Raises ``BadInput`` for a size that is not recorded."""
    if size not in VLLM_SIZES:
        raise BadInput(f"signs of {size} elements are not recorded; known: {', '.join(map(str, VLLM_SIZES))}")
    bits = np.unpackbits(np.frombuffer(_VLLM, np.uint8))[:size]
    return (2.0 * bits - 1.0).astype(np.float32)


def block_size(size: int) -> int:
    """The largest power of two that divides a head: a head of 96 is turned in three blocks of 32."""
    if size < 1:
        raise BadInput(f"a head of {size} elements; expected at least one")
    return size & -size


def transformed(x: Coded, signs: F32, inverse: bool = False) -> Coded:
    """H (D x) of each row, float32 [rows, head]; inverse: D (H x). Not normalised: both ways make b times x of x.

    b is ``block_size``. Butterflies of distance 1, 2, 4, …: (a + b, a - b), each rounded to float32. Exact for whole
    numbers as long as sums stay below 2^24. Raises ``BadInput`` for other shapes, and for signs that are not ±1.
    """
    if x.data.ndim != 2 or signs.shape != x.shape[1:]:
        raise BadInput(f"Hadamard: x {list(x.shape)} and signs {list(signs.shape)}; expected [rows, head] and [head]")
    if (np.abs(signs) != 1).any():
        raise BadInput("Hadamard: signs other than +1 and -1; expected one of the two for each element of a head")
    with np.errstate(all="ignore"):
        values = to_float32(x)
        turned = (
            _butterflies(values, block_size(x.shape[1])) * signs
            if inverse
            else _butterflies(values * signs, block_size(x.shape[1]))
        )
    return Coded("float32", np.ascontiguousarray(turned, np.float32).view(np.uint32))


def _butterflies(values: F32, block: int) -> F32:
    rows, columns = values.shape
    distance = 1
    while distance < block:
        pairs = values.reshape(rows, columns // (2 * distance), 2, distance)
        above, below = pairs[:, :, 0], pairs[:, :, 1]
        values = np.stack([above + below, above - below], axis=2).reshape(rows, columns)
        distance *= 2
    return values


def rotated_heads(x: Coded, signs: F32) -> Coded:
    """What vLLM's int4 cache quantizes, bfloat16 [rows, head]: ``transformed``, rounded to the nearest, ties to even.

    The recipe vllm.int4_per_token_head goes on from there. A reader undoes it by ``transformed(…, inverse=True)`` and
    a division by ``block_size``.
    """
    return cast(transformed(x, signs), "bfloat16", resolve("ieee", "bfloat16"))
