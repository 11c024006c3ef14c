"""What engines do to a part before it is quantized: ``BEFORE`` by name.

A rotation by position (RoPE) is the writer's business alone, since queries are rotated alike. A Hadamard rotation is
undone by whoever reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.reference.around.hadamard import block_size, transformed, vllm_signs
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.policies import resolve

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
#: rows [tokens, columns], how many heads they are, what is given beside them -> the rows that are quantized
Change = Callable[[Coded, int, Mapping[str, Coded]], Coded]


@dataclass(frozen=True)
class Before:
    """One such operation."""

    about: str
    source: str
    change: Change
    given: tuple[str, ...] = ()  #: what a writer is given for it
    undo: Callable[[Coded, int], Coded] | None = None  #: what a reader makes of float32 values, float32

    @property
    def undone(self) -> bool:
        """Whether readers turn it back."""
        return self.undo is not None


def before_named(name: str) -> Before:
    """The operation of that name. Raises ``BadInput`` with near names."""
    if name not in BEFORE:
        raise unknown("operation before a part is kept", name, BEFORE)
    return BEFORE[name]


def _heads(rows: Coded, heads: int) -> Coded:
    return Coded(rows.format, rows.data.reshape(rows.shape[0] * heads, rows.shape[1] // heads))


def _signs(width: int) -> F32:
    """Those of a block, for each block of a head: vLLM turns a head of 96 as three of 32."""
    block = block_size(width)
    return np.tile(vllm_signs(block), width // block)


def _hadamard(rows: Coded, heads: int, given: Mapping[str, Coded]) -> Coded:
    """Each head turned in float32, and rounded to the format of x."""
    turned = transformed(_heads(rows, heads), _signs(rows.shape[1] // heads))
    result = cast(turned, rows.format, resolve("ieee", rows.format))
    return Coded(rows.format, result.data.reshape(rows.shape))


def _turned_back(values: Coded, heads: int) -> Coded:
    """D H of each head over b, float32: what ``_hadamard`` took, if nothing was lost."""
    width = values.shape[1] // heads
    back = transformed(_heads(values, heads), _signs(width), inverse=True)
    number = back.data.view(np.float32) / np.float32(block_size(width))  # a power of two
    return Coded("float32", number.view(np.uint32).reshape(values.shape))


def _rope(rows: Coded, heads: int, given: Mapping[str, Coded], interleaved: bool) -> Coded:
    """x1 cos - x2 sin and x2 cos + x1 sin of each pair, in float32, rounded to the format of x.

    ``cos_sin`` [positions, rotated columns of a head] has the cosines in its first half and the sines in its second,
    in the format of x; ``positions`` int32 [1, tokens]. The first columns of a head are rotated; pairs are halves
    (neox) or neighbours (interleaved).

    One result and no interval: a product of two numbers of at most 11 bits has at most 22, which float32 holds as long
    as its exponent is in range, and other products are refused. Both products are then exact, so that the sum is the
    exact sum rounded once, whether the compiler makes a fused multiply-add of it or not. Zeros come out alike too: the
    fused form adds the exact product, whose sign is that of the rounded one.
    """
    cosine, sine = _angles(rows, heads, given)
    rotated = 2 * cosine.shape[1]
    x = decode_values(_heads(rows, heads)).reshape(rows.shape[0], heads, rows.shape[1] // heads)
    turned = x.copy()
    half = rotated // 2
    places = (slice(0, rotated, 2), slice(1, rotated, 2)) if interleaved else (slice(0, half), slice(half, rotated))
    one, two = (x[..., place] for place in places)
    cosine, sine = cosine[:, None], sine[:, None]
    with np.errstate(all="ignore"):
        products = [_exact(a * b) for a, b in ((one, cosine), (two, sine), (two, cosine), (one, sine))]
        turned[..., places[0]] = products[0] - products[1]
        turned[..., places[1]] = products[2] + products[3]
    result = cast(_float32(turned[..., :rotated]), rows.format, resolve("ieee", rows.format))
    kept = rows.data.reshape(x.shape).copy()  # what is not rotated stays bit for bit
    kept[..., :rotated] = result.data
    return Coded(rows.format, kept.reshape(rows.shape))


def _float32(values: F64) -> Coded:
    return Coded("float32", np.ascontiguousarray(values.astype(np.float32)).view(np.uint32))


def _exact(product: F64) -> F32:
    """A product that float32 holds. Raises ``BadInput`` for one that it does not."""
    held = product.astype(np.float32)
    wrong = np.isfinite(product) & (held.astype(np.float64) != product)
    if wrong.any():
        raise BadInput(
            f"rope: a product of {product[wrong][0]:g} is not a float32; expected x and cos_sin of 16 bits whose "
            "products lie within float32's range: of others the last bit is a compiler's"
        )
    return held


def _angles(rows: Coded, heads: int, given: Mapping[str, Coded]) -> tuple[F64, F64]:
    """Cosines and sines of each token, [tokens, half of the rotated columns]. Raises ``BadInput`` for what is none."""
    table, positions = given.get("cos_sin"), given.get("positions")
    width = rows.shape[1] // heads
    if table is None or table.format != rows.format or table.data.ndim != 2 or not _halves(table.shape[1], width):
        came = "nothing" if table is None else f"{table.format} {list(table.shape)}"
        raise BadInput(f"cos_sin: {came} came; expected {rows.format} [positions, an even number up to {width}]")
    if positions is None or positions.format != "int32" or positions.data.size != rows.shape[0]:
        came = "nothing" if positions is None else f"{positions.format} {list(positions.shape)}"
        raise BadInput(f"positions: {came} came; expected int32 [1, {rows.shape[0]}]")
    where = positions.data.view(np.int32).ravel()
    wrong = np.flatnonzero((where < 0) | (where >= table.shape[0]))
    if wrong.size:
        at = int(wrong[0])
        raise BadInput(f"positions[{at}] is {int(where[at])}; expected one from 0 to {table.shape[0] - 1}")
    both = decode_values(table)[where]
    return both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]


def _halves(rotated: int, width: int) -> bool:
    return 0 < rotated <= width and rotated % 2 == 0


_ROPE = "vLLM 0.33.0, pos_encoding_kernels.cu; models keep cosines in the format of x"
BEFORE: dict[str, Before] = {
    "hadamard": Before(
        "signs, then a Hadamard matrix, of each head, in float32, rounded to the format of x",
        "vLLM 0.33.0, int4_per_token_head.py:856-868,1042-1180",
        _hadamard,
        undo=_turned_back,
    ),
    "rope": Before(
        "rotated by its position, halves of a head in pairs (neox)",
        _ROPE,
        lambda rows, heads, given: _rope(rows, heads, given, False),
        ("cos_sin", "positions"),
    ),
    "rope_interleaved": Before(
        "rotated by its position, neighbours in pairs (GPT-J)",
        _ROPE,
        lambda rows, heads, given: _rope(rows, heads, given, True),
        ("cos_sin", "positions"),
    ),
}
