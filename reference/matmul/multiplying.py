"""The behaviour of a product: a contract on one with everything looked up, and what a fault does to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Input
from narrowgauge.contracts.product import Product
from narrowgauge.reference.matmul.accumulators import Accumulator

if TYPE_CHECKING:
    from narrowgauge.reference.behaviour import Behaviour
    from narrowgauge.reference.interval import Interval

F64 = npt.NDArray[np.float64]
#: least and greatest real number of each element
Ends = tuple[F64, F64]


@dataclass(frozen=True)
class Terms:
    """One expert's rows and matrix as numbers, before anything is added up.

    ``a`` [M, K] and ``b`` [N, K] are exact; so are the scales, ``a_scale`` [M, S] and ``b_scale`` [N, S], one for each
    of S stretches of K, which end at ``ends`` (the last at K). ``factors`` [1] each are what the whole result is
    multiplied by, ``divisors`` what it is divided by. ``bias`` [N]; None for none. ``a_open`` and ``b_open`` say how
    far each number may be off, where a unit rounds what enters it in a way of its own; None for not at all.
    """

    a: F64
    b: F64
    a_scale: F64
    b_scale: F64
    ends: tuple[int, ...]
    factors: tuple[float, ...] = ()
    divisors: tuple[float, ...] = ()
    bias: F64 | None = None
    a_open: F64 | None = None
    b_open: F64 | None = None
    a_least: F64 | float = 0.0  #: what the smallest normal number of the format that enters is, under its scale
    b_least: F64 | float = 0.0

    @property
    def slices(self) -> list[slice]:
        """The stretches of K."""
        return [slice(first, last) for first, last in zip((0, *self.ends), self.ends, strict=False)]


#: a definite sum of one stretch, numbers a [M, k] and b [N, k] to [M, N], where a model says what comes out
Dot = Callable[[F64, F64], F64]
#: how one more stretch is added to what there is
Combine = Callable[[F64, F64], F64]


@dataclass(frozen=True)
class Multiplying:
    """A product with everything looked up.

    What happens to a call, in order: ``received``; both operands are read, each by the behaviour of its reader, which
    gives numbers (with its scales where ``product.scaled`` is "operands", else under scales of 1); ``terms``; the sum
    of each stretch, in any order that ``accumulator`` allows, or by ``dot``; scales; the sum of stretches, or
    ``combine``; ``sums``; bias; ``rounding``; ``after``.
    """

    product: Product
    source: str
    format: str
    accumulator: Accumulator
    a: Behaviour
    b: Behaviour
    rounding: Behaviour  #: float32 to the format of the result
    received: tuple[Callable[[Input], Input], ...] = ()
    terms: tuple[Callable[[Terms], Terms], ...] = ()
    dot: Dot | None = None
    combine: Combine | None = None
    sums: tuple[Callable[[Ends, Terms], Ends], ...] = ()  #: each changes the result before the bias
    biased: tuple[Callable[[Ends, Terms], Ends], ...] = ()  #: and after it
    after: tuple[Callable[[Interval, Input], Interval], ...] = ()

    @property
    def entering(self) -> tuple[str, str]:
        """The formats in which both operands enter the product."""
        return self.product.entering(self.source)

    @property
    def by_rows(self) -> bool:
        """Rows of a may share a scale, and columns of the result are rows of b: no cut stands for the whole."""
        return False
