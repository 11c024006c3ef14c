"""Every known matrix unit keeps to the bound of the accumulator that stands for it, and is exact on exact cases."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.matmul.accumulators import Accumulator, accumulator_named, least_exact
from narrowgauge.reference.matmul.bounds import absolute_error, flushed_terms, largest_exponents, least_normal
from narrowgauge.reference.matmul.exact import exact_case
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.schedule import Schedule, gemm
from narrowgauge.reference.units.unit import Unit

pytestmark = pytest.mark.meta

#: of units with scales of their own: the code of 1
_ONE = {"float8_e8m0fnu": 127, "float8_e4m3fn": 0x38}
#: 600 dots a unit and format; 24,000 were run once, with nothing beyond the bound
_SIZE = (20, 30, 96)
#: binades below and above 1 from which exponents are drawn, where a format has more: nothing overflows the result
_BINADES = {"float32": (30, 30), "float16": (12, 1), "int32": (0, 0)}


_UNITS = [unit for unit in UNITS.values() if unit.out in ("float16", "float32", "int32")]


def _formats(unit: Unit) -> list[str]:
    """Those that enter as they are: float32 becomes tfloat32 in some units, which is no error of the sum."""
    return [name for name in unit.formats if (name, unit.through) != ("float32", "tfloat32")]


def _accumulators(unit: Unit, format_name: str) -> list[Accumulator]:
    if unit.out == "float16":
        return [accumulator_named("float16")]
    found = [least_exact(target, format_name, format_name) for target in ("", *unit.targets)]
    return list({accumulator.name: accumulator for accumulator in found}.values())


def _run(unit: Unit, a: Coded, b: Coded, split_k: int = 1) -> np.ndarray:
    scales: list[Coded | None] = [None, None]
    if unit.scales:
        name = unit.scales[0]
        blocks = -(-a.shape[1] // unit.block)
        scales = [Coded(name, np.full((len(x.data), blocks), _ONE[name], np.uint8)) for x in (a, b)]
    return decode_values(gemm(Schedule(unit, split_k=split_k), a, b, None, *scales))


def _drawn(unit: Unit, format_name: str, rows: int, seed: int, positive: bool) -> Coded:
    """Finite codes of all exponents within reach."""
    fmt = format_named(format_name)
    k = _SIZE[2]
    noise = scrambled(rows * k, seed)
    if fmt.family == "integer":
        return Coded(fmt.name, (noise % np.uint64(fmt.code_count)).astype(fmt.storage).reshape(rows, k))
    below, above = _BINADES[unit.out]
    low, high = max(0, fmt.bias - below), min(2**fmt.exponent - 2, fmt.bias + above)
    field = np.uint64(low) + (noise >> np.uint64(40)) % np.uint64(high - low + 1)
    sign = np.uint64(0) if positive else noise >> np.uint64(63)
    code = (sign << np.uint64(fmt.exponent) | field) << np.uint64(fmt.mantissa) | noise % np.uint64(1 << fmt.mantissa)
    code = np.where(code == fmt.sign_bit, 0, code)  # NaN in FNUZ
    return Coded(fmt.name, code.astype(fmt.storage).reshape(rows, k))


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.name)
def test_a_unit_keeps_to_its_bound(unit: Unit) -> None:
    m, n, k = _SIZE
    for seed, format_name in enumerate(_formats(unit)):
        for positive in (False, True):
            a, b = (_drawn(unit, format_name, rows, seed + rows, positive) for rows in (m, n))
            x, y, least = decode_values(a), decode_values(b), least_normal(format_name)
            size, found = np.abs(x) @ np.abs(y).T, _run(unit, a, b)
            of_operands = largest_exponents(x, y, least, least), flushed_terms(x, y, least, least)
            for accumulator in _accumulators(unit, format_name):
                bound = absolute_error(accumulator, size, k, *of_operands)
                known = np.isfinite(bound)
                assert known.mean() > 0.9
                assert (np.abs(found - x @ y.T) <= bound)[known].all(), (format_name, accumulator.name)


@pytest.mark.parametrize("unit", _UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_exact_on_exact_cases(unit: Unit) -> None:
    for format_name in _formats(unit):
        for accumulator in _accumulators(unit, format_name)[:2]:
            case = exact_case(format_name, format_name, 9, 7, 300, accumulator, 5)
            assert np.array_equal(_run(unit, case.a, case.b), case.sums)
            if not unit.scales:
                assert np.array_equal(_run(unit, case.a, case.b, split_k=3), case.sums)
