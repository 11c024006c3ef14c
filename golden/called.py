"""Families whose vectors are whole calls of a kernel, by operation: caches, conversions, products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.golden import calls, conversions, products
from narrowgauge.reference.interval import Expected


class Called(Protocol):
    """What each of them has."""

    def layout(self, claim: Claim) -> dict[str, str]: ...

    def vectors(self, claim: Claim) -> dict[str, Coded]: ...

    def as_case(self, claim: Claim, tensors: Mapping[str, Coded]) -> tuple[Coded, Expected]: ...

    def well_shaped(self, claim: Claim, tensors: Mapping[str, Coded]) -> str: ...


CALLED: dict[str, Called] = {
    **dict.fromkeys(calls.OPERATIONS, calls),
    conversions.OPERATION: conversions,
    products.OPERATION: products,
}
