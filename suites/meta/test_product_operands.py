# SPDX-License-Identifier: Apache-2.0
"""What units make of operands, NaN, rows of experts; and every product against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.product import Operand, Product
from narrowgauge.golden.products import as_case, claims_of, families
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.matmul.cases import Shape, call_of
from narrowgauge.reference.matmul.kinds import Name
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.matmul.reading import terms_by_expert
from narrowgauge.reference.matmul.run import prescaled
from narrowgauge.suites.meta.golden_sets import FAMILIES, stored
from narrowgauge.suites.meta.product_calls import interval
from narrowgauge.suites.meta.product_checks import derived, drawn_input, ends, formats, held, one_dot
from narrowgauge.suites.meta.product_inputs import inputs_for
from narrowgauge.suites.meta.second_operands import number
from narrowgauge.suites.meta.second_products import once

pytestmark = pytest.mark.meta

E4, HALF, BF16, F32 = "float8_e4m3fn", "float16", "bfloat16", "float32"
CHANNEL = "vllm.fp8_token_channel"

# --- what a unit makes of its operands -------------------------------------------------------------------------------

#: two operands, and the products of what they may become: the neighbours of ten bits, if they are not of ten bits
ULP = 2.0**-10
TF32 = {
    "ten bits": (1 + ULP, 1 - ULP, (1 + ULP) * (1 - ULP), (1 + ULP) * (1 - ULP)),
    "just above ten": (1 + 2.0**-23, 1 + 2.0**-23, 1.0, (1 + ULP) ** 2),
    "just below ten": (1 + ULP - 2.0**-23, 1.0, 1.0, 1 + ULP),
    "negative": (1 + ULP - 2.0**-23, -1.0, -1 - ULP, -1.0),
}


@pytest.mark.parametrize("what", TF32)
def test_operands_become_a_neighbour_of_ten_bits(what: str) -> None:
    a, b, least, largest = TF32[what]
    near, far = interval("plain.matmul_tf32", one_dot(F32, [a], [b]))
    assert near <= Fraction(least) <= Fraction(largest) <= far
    assert (near == far) == (least == largest)
    # the other side of what they are, by no more than a unit of the tenth bit each
    assert Fraction(a * b) - Fraction(2.002 * ULP) < near
    assert far < Fraction(a * b) + Fraction(2.002 * ULP)


def test_subnormal_operands_are_flushed_of_16_bits_and_by_some_units_alone() -> None:
    """By CDNA2's, as facts on matrix units have it; all other units keep them."""
    small, smallest = Fraction(2.0**-20), Fraction(2.0**-16)
    x = one_dot(HALF, [2.0**-20], [1.0])
    near, far = interval("plain.matmul", x, accumulator="float32_flushed")
    assert near <= 0 < small <= far
    assert interval("plain.matmul", x) == (small, small)
    x = one_dot("float8_e5m2", [2.0**-16], [1.0])  # below the normal numbers of float16
    assert interval("plain.matmul_fp8", x, accumulator="float32_flushed") == (smallest, smallest)


@pytest.mark.parametrize("power", [0, 20])
def test_subnormal_operands_are_aligned_by_the_least_normal_exponent(power: int) -> None:
    """2^-9 · 2^8 stands at 2^(-6 + 8); 31 products below 2^(2 - 13) beside it are cut away whole. Under a scale too."""
    a, b = [2.0**-9, *[2.0**-6] * 31], [2.0**8, *[1.875 * 2.0**-6] * 31]
    x = one_dot(E4, a, b)
    name = "plain.matmul_fp8"
    if power:  # E8M0 codes of 2^power, and of 1
        name, scales = "ocp.mxfp8", {"a_scale": 127 + power, "b_scale": 127}
        beside = {n: Coded("float8_e8m0fnu", np.array([[c]], np.uint8)) for n, c in scales.items()}
        x = Input(x.format, x.data, {**x.given, **beside})
    near, far = interval(name, x, accumulator="tensor_core_13")
    assert near <= Fraction(2) ** (power - 1) < far


def test_each_operand_has_the_least_normal_number_of_its_own_format() -> None:
    """2^-6 of e4m3 and 1 of e2m1, under the scales of their blocks."""
    claim = Claim(Matmul("ocp.mxfp8_mxfp4"), E4, F32)
    x = call_of(multiplying_of(claim), Shape("exact", rows=3, columns=8, blocks=2))
    ((_, terms),) = terms_by_expert(multiplying_of(claim), x)
    assert (terms.a_least, terms.b_least) == (2.0**-6, 1.0)
    within = prescaled(terms)
    for found, least, scales in (
        (within.a_least, 2.0**-6, x.given["a_scale"]), (within.b_least, 1.0, x.given["b_scale"]),
    ):  # fmt: skip
        np.testing.assert_array_equal(found, least * 2.0 ** np.repeat(scales.data.astype(float) - 127, 32, axis=1))


def test_a_sum_that_may_overflow_may_be_anything() -> None:
    """In float16, 448² · 3; under scales of powers of two, which round nothing."""
    x = one_dot(E4, [448.0] * 3, [448.0] * 3, a_scale=[[0.5]], b_scale=[[2.0]])
    assert interval(CHANNEL, x, accumulator="float16") == (-np.inf, np.inf)


# --- NaN, and rows of no expert --------------------------------------------------------------------------------------


def nowhere_but(claim: Claim, x: Coded, where: tuple[slice | int, slice | int]) -> None:
    for end in ends(claim, x):
        nan = np.array([[number(int(c), end.format) != number(int(c), end.format) for c in row] for row in end.data])
        assert nan[where].all()
        nan[where] = False
        assert not nan.any()


@pytest.mark.parametrize(("name", "code"), [("ocp.mxfp8", 0xFF), ("ocp.mxfp4", 0xFF), ("nvidia.nvfp4", 0x7F)])
def test_a_scale_that_is_nan_reaches_its_row_or_its_column_alone(name: str, code: int) -> None:
    source, out = formats(name)
    claim, everything = Claim(Matmul(name), source, out), slice(None)
    x = drawn_input(name, source, out)
    assert isinstance(x, Input)
    for side, row, where in (("a_scale", 2, (2, everything)), ("b_scale", 3, (everything, 3))):
        data = x.given[side].data.copy()
        data[row, -1] = code
        nowhere_but(claim, Input(x.format, x.data, {**x.given, side: Coded(x.given[side].format, data)}), where)


@pytest.mark.parametrize("name", ["plain.matmul_bias", "plain.matmul_then_bias"])
def test_a_bias_that_is_no_number_reaches_its_column_alone(name: str) -> None:
    claim = Claim(Matmul(name), BF16, BF16)
    x = drawn_input(name, BF16, BF16)
    assert isinstance(x, Input)
    data = x.given["bias"].data.copy()
    data[0, 3], data[0, 4] = 0x7FC0, 0xFF80
    found = Input(x.format, x.data, {**x.given, "bias": Coded(BF16, data)})
    nowhere_but(claim, found, (slice(None), 3))
    for end in ends(claim, found):
        assert (end.data[:, 4] == 0xFF80).all()
        assert (end.data == 0xFF80).sum() == len(end.data)


def test_rows_of_no_expert_are_zeros_whatever_they_hold() -> None:
    claim = Claim(Matmul("vllm.moe"), HALF, HALF)
    x = drawn_input("vllm.moe", HALF, HALF)
    assert isinstance(x, Input)
    rows = np.flatnonzero(x.given["experts"].data.view(np.int32)[0] == -1)
    data = x.data.copy()
    data[rows, 0] = 0x7E00
    low, high = ends(claim, Input(x.format, data, x.given))
    assert rows.size
    assert not low.data[rows].any()
    assert not high.data[rows].any()


# --- every product, and products of one's own ------------------------------------------------------------------------

OWN = {
    "token × blocks": Product("mine", ((E4, F32),), Operand("vllm.fp8_static_token"),
                              Operand("vllm.fp8_static_group_128"), "stretches", "a test"),
    "blocks × channel": Product("mine", ((E4, F32),), Operand("vllm.fp8_static_group_128"),
                                Operand("vllm.fp8_static_token"), "stretches", "a test"),
    "a bias of each expert": Product("mine", ((BF16, F32),), Operand(), Operand(), "sum", "a test",
                                     bias="wide", grouped=True),
    "a narrow bias of each": Product("mine", ((BF16, BF16),), Operand(), Operand(), "sum", "a test",
                                     bias="narrow", grouped=True),
}  # fmt: skip


@pytest.mark.parametrize("what", OWN)
def test_a_product_as_data_is_as_derived(what: str) -> None:
    """Blocks of K on one side alone; and what no engine's product has at once."""
    product = OWN[what]
    given = inputs_for(product, *product.formats[0], (4, 6, 256), 7)
    x = given.pop("x")
    claim = Claim(Matmul(product, "float32"), *product.formats[0])
    held(claim, Input(x.format, x.data, given), [(m, n) for m in range(4) for n in (0, 5)], ways=1)


@pytest.mark.parametrize("kind", ["exact", "noise"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_no_order_gives_anything_else(name: str, kind: Name) -> None:
    """Orders, trees, tiles, splits and units as they are drawn: a point is all that any of them gives."""
    source, out = formats(name)
    claim = Claim(Matmul(name, "float32"), source, out)
    x = call_of(multiplying_of(claim), Shape(kind, rows=2, columns=8, blocks=1, depth=24, experts=2, seed=5))
    where = [(row, column) for row in range(2) for column in (0, 7)]
    points = held(claim, x, where, ways=2)
    assert kind == "noise" or points == len(where)


@pytest.mark.parametrize(("name", "out"), list(families()))
def test_golden_results_are_as_derived(name: str, out: str) -> None:
    """The stored codes, against exact fractions rounded once."""
    for claim in claims_of(name, out):
        x, wanted = as_case(claim, stored(FAMILIES[f"matmul-{name}-{out}"]))
        m, result = derived(claim, x), wanted["codes"].low
        for place in ((0, 0), (3, 7), (6, 15)):
            want = number(once(m, place), out)
            assert number(int(result.data[place]), out) == want
