"""Matrices on which recipes are compared: the named rows of the suite, each as a data set of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.codec import encode
from narrowgauge.reference.matrices import quantizer_rows

SOURCES = ("float32", "bfloat16", "float16")
_LEAST_COLUMNS = 128
_NEAREST = CastPolicy(overflow="special", infinity="special")


def named_data(recipes: Sequence[Recipe], format_name: str, source: str) -> dict[str, Coded]:
    """Every named row as a matrix, made for what the first recipe does to a format.

    Where a scale may depend on more than a row, the matrix is square and each of its rows is the one before, moved on
    by one: so each row, each column, each block and the whole hold the same numbers, and the name is true of them all.
    Raises ``BadInput`` for a source other than ``SOURCES``.
    """
    if source not in SOURCES:
        raise BadInput(f"source {source!r}; the named rows are made in {', '.join(SOURCES)}")
    columns = int(np.lcm.reduce([_LEAST_COLUMNS, *(r.blocks.columns or 1 for r in recipes)]))
    rows = quantizer_rows(columns, recipes[0].destination(format_name).bound, format_named(format_name))
    alone = all(recipe.by_rows for recipe in recipes)
    return {name: _matrix(_codes(name, row, source), source, alone) for name, row in rows.items()}


def _codes(name: str, row: npt.NDArray[np.float64], source: str) -> Codes:
    fmt = format_named(source)
    if source == "float32":
        with np.errstate(over="ignore"):
            codes: Codes = row.astype(np.float32).view(np.uint32)
    else:
        codes = encode(row, fmt, _NEAREST)
    if name == "a signalling NaN":  # float64 has none to give
        codes[codes.size // 2] = (((1 << fmt.exponent) - 1) << fmt.mantissa) | 1
    return codes


def _matrix(row: Codes, source: str, alone: bool) -> Coded:
    if alone:
        return Coded(source, row[None, :])
    each = np.arange(row.size)
    return Coded(source, row[(each[None, :] - each[:, None]) % row.size])
