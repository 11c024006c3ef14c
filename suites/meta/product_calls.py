# SPDX-License-Identifier: Apache-2.0
"""One element of a product, for tests of small calls."""

from __future__ import annotations

from narrowgauge.contracts.coded import Input
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.suites.meta.product_checks import ends, value
from narrowgauge.suites.meta.second_operands import Real


def interval(name: str, x: Input, out: str = "float32", accumulator: str = "float32") -> tuple[Real, Real]:
    """Both ends of the first element."""
    low, high = ends(Claim(Matmul(name, accumulator), x.format, out), x)
    return value(low, (0, 0)), value(high, (0, 0))
