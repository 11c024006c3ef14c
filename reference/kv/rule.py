"""What a contract of decode attention says of its arithmetic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.reference.kv.arithmetic import SUMS, TANH

#: formats that products of q and k, and weights, may be rounded to
NARROW = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e4m3fnuz")


@dataclass(frozen=True)
class Attention:
    """What a contract says of the arithmetic. Raises ``BadInput`` for what cannot be."""

    scale: float  #: what scores are multiplied by, a float32
    soft_cap: float = 0.0  #: c of c · tanh(score / c); 0 for none
    weights: str = "float32"  #: format that weights are rounded to before they meet values
    weights_scale: float = 1.0  #: power of two that they are multiplied by before, and divided by after
    shares: bool = False  #: whether weights are divided by their sum before they are rounded
    sums: str = "matrix_unit"  #: of ``SUMS``
    tanh: str = "function"  #: of ``TANH``
    products: str = "float32"  #: format that each q_i · k_i is rounded to before products are summed
    scaled_first: bool = False  #: whether q or k may meet a scale, or log2 e, in float32 before they meet each other
    tile: int = 1  #: a key's way has at most one rescaling for so many keys

    def __post_init__(self) -> None:
        named: tuple[tuple[str, str, Collection[str]], ...] = (
            ("format of products", self.products, NARROW),
            ("format of weights", self.weights, NARROW),
            ("sums", self.sums, SUMS),
            ("tanh", self.tanh, TANH),
        )
        for what, name, known in named:
            if name not in known:
                raise unknown(what, name, known, "Attention(...)")
        if not (0 < self.scale < 2.0**127 and 0 <= self.soft_cap < 2.0**127):
            raise BadInput(
                f"scale {self.scale}, soft cap {self.soft_cap}; expected a positive one, and 0 or a positive"
            )
        if self.tile < 1 or np.frexp(self.weights_scale)[0] != 0.5:
            raise BadInput(f"tile {self.tile}, weights_scale {self.weights_scale}; expected ≥ 1, and a power of two")
