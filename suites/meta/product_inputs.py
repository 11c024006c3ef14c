# SPDX-License-Identifier: Apache-2.0
"""Inputs of products for meta tests: codes, scales, zero points and the rest, in the shapes that the contract says."""

from __future__ import annotations

from random import Random

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.suites.meta import second_readers
from narrowgauge.suites.meta.second_catalogue import SHAPES
from narrowgauge.suites.meta.second_derivation import LAYOUTS, Number, cast_bound, decode
from narrowgauge.suites.meta.second_recipes import rule_of


def inputs_for(
    product: Product, source: str, out: str, shape: tuple[int, int, int], seed: int, experts: int = 3
) -> dict[str, Coded]:
    """x, b and what is given beside them, of random finite codes; ``shape`` is M, N, K."""
    rng, (m, n, k) = Random(seed), shape
    count = experts if product.grouped else 1
    given = {
        **_operand(product.a, "a", source, (m, k), rng, 1),
        **_operand(product.b, "b", source, (count * n, k) if product.b.by_rows else (k, n), rng, count),
    }
    if product.bias:
        rows = [[rng.gauss(0, 2.0 ** rng.randint(0, 16)) for _ in range(n)] for _ in range(count)]
        given["bias"] = _values(rows, out)
    if product.grouped:
        given["expert_count"] = _int32([[count]])
        given["experts"] = _int32([[(7 * row) % (count + 1) - 1 for row in range(m)]])
    if product.b.indexed:
        index = [i // 128 for i in range(k)]
        rng.shuffle(index)
        given["b_group_index"] = _int32([index])
    return {"x": given.pop("a"), **given}


def _operand(
    operand: Operand, name: str, source: str, shape: tuple[int, int], rng: Random, count: int
) -> dict[str, Coded]:
    format = operand.format or source
    codes = [[_finite(format, rng) for _ in range(shape[1])] for _ in range(shape[0])]
    found = {name: Coded(format, np.array(codes, format_named(format).storage))}
    if not operand.recipe:
        return found
    known = SHAPES[operand.recipe]
    grid = count * -(-shape[0] // count // (known.rows or shape[0])), -(-shape[1] // (known.columns or shape[1]))
    found[f"{name}_scale"] = _scales(known.scale, grid, rng)
    reader = second_readers.READERS.get(operand.recipe)
    if reader is second_readers.less_zero_point:
        low, high = _zeros(operand, format)
        found[f"{name}_zero_point"] = _int32([[rng.randint(low, high) for _ in range(grid[1])] for _ in range(grid[0])])
    if reader in (second_readers.over_global, second_readers.times_global):
        found[f"{name}_global_scale"] = _values([[rng.uniform(0.3, 3)]], "float32")
    return found


def _zeros(operand: Operand, format: str) -> tuple[int, int]:
    """The least and the largest zero point that can be stored."""
    if format != "uint4":
        return -100, 100
    return (1, 16) if dict(operand.layouts).get("zero_point", "").endswith("gptq_v1_4bit") else (0, 15)


def _finite(format: str, rng: Random) -> int:
    """Of floats of 16 bits and more a number about 1; of others any finite code."""
    layout = LAYOUTS[format]
    if layout.codes > 256:
        value = rng.gauss(0, 1)
        return cast_bound(double(value), rule_of(format))
    while True:
        found = rng.randrange(layout.codes)
        if decode(found, format).kind == "finite":
            return found


def double(value: float) -> Number:
    """A finite double."""
    return decode(int(np.float64(value).view(np.uint64)), "float64")


def _scales(format: str, grid: tuple[int, int], rng: Random) -> Coded:
    if format == "float8_e8m0fnu":
        bytes_ = [[rng.randint(117, 137) for _ in range(grid[1])] for _ in range(grid[0])]
        return Coded(format, np.array(bytes_, np.uint8))
    rows = [[2.0 ** rng.uniform(-4, 4) * rng.choice((1, 1, 1, -1)) for _ in range(grid[1])] for _ in range(grid[0])]
    return _values(rows, format)


def _values(rows: list[list[float]], format: str) -> Coded:
    codes = [[cast_bound(double(x), rule_of(format)) for x in row] for row in rows]
    return Coded(format, np.array(codes, format_named(format).storage))


def _int32(rows: list[list[int]]) -> Coded:
    return Coded("int32", np.array(rows, np.int32).view(np.uint32))
