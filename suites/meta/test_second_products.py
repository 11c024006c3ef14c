# SPDX-License-Identifier: Apache-2.0
"""What products of matrices may give: the reference against exact fractions, by somebody who had not seen it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.suites.meta.product_checks import (
    alike,
    derived,
    drawn_input,
    ends,
    f32,
    floats,
    formats,
    held,
    one_dot,
    places,
    swamped,
    value,
    with_strange,
    within,
)
from narrowgauge.suites.meta.second_operands import number
from narrowgauge.suites.meta.second_products import exact_at, once, possible_at
from narrowgauge.suites.meta.second_reach import allowance
from narrowgauge.suites.meta.second_sums import NARROW, Term, Way, summed

pytestmark = pytest.mark.meta


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_possible_result_is_expected_and_little_else(name: str) -> None:
    source, out = formats(name)
    x, claim = drawn_input(name, source, out), Claim(Matmul(name, "float32"), source, out)
    held(claim, x, list(places(derived(claim, x), 4)), ways=2)


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_suites_cases_are_as_derived(name: str) -> None:
    """Every case of the smoke depth; those that are exact are points, each the exact result rounded once."""
    source, out = formats(name)
    claim = Claim(Matmul(name, "float32"), source, out)
    for case, x in cases_for(claim, "smoke").items():
        if not x.shape[0]:
            continue
        where = list(places(derived(claim, x), 2 if case == "exact" else 1))
        if case == "specials":
            odd = np.argwhere(~np.isfinite(floats(ends(claim, x)[0])))
            where += [(int(r), int(c)) for r, c in odd[:: max(1, len(odd) // 3)]]
        points = held(claim, x, where, ways=1)
        assert case != "exact" or points == len(where)


#: operands in which NaN and infinities are put; a format without infinity has NaN alone
STRANGE = {
    "plain.matmul_bias": "float16", "plain.matmul_then_bias": "bfloat16", "plain.matmul_fp8": "float8_e5m2",
    "vllm.moe": "bfloat16", "vllm.fp8_token_channel_bias": "float8_e4m3fn", "vllm.fp8_block": "float8_e4m3fn",
    "awq.gemm": "float16", "gptq.gemm_act_order": "float16", "ocp.mxfp8": "float8_e4m3fn",
    "plain.matmul_tf32": "float32",
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_nan_and_infinity_are_as_ieee_754_says(name: str) -> None:
    """In their row and column, and nowhere else."""
    source = STRANGE[name]
    out = max((o for s, o in PRODUCTS[name].formats if s == source), key=lambda o: o == "float32")
    claim = Claim(Matmul(name, "float32"), source, out)
    x = with_strange(drawn_input(name, source, out), 11)
    low, high = ends(claim, x)
    m = derived(claim, x)
    odd = 0
    for place in np.ndindex(m.shape[0], min(m.shape[1], 16)):
        near, far, want = value(low, place), value(high, place), number(once(m, place), out)
        assert isinstance(want, float) == isinstance(near, float) == isinstance(far, float), place
        if isinstance(want, float):
            odd += 1
            assert alike(near, want), place
            assert alike(far, want), place
    assert odd >= 16


# ---------------- attained


VOLTA, QGMMA = Way("chopped", 4, 23), Way("chopped", 32, 13, 14)
#: accumulator, format, its unit, a large number and two small ones, so that their product is just below what is kept
#: beside the large one's square; every so many of them; at least so much of the bound is lost
ATTAINED = {
    "volta": ("float32", "float16", VOLTA, 1024.0, (0.49951172, 0.25), 0, 0.6),
    "nearest": ("float32_nearest", "float16", Way(), 1024.0, (0.24975586, 0.25), 0, 0.3),
    "hopper": ("tensor_core_13", "float8_e4m3fn", QGMMA, 16.0, (0.125, 0.234375), 0, 0.6),
    "promoted": ("promoted_128", "float8_e4m3fn", replace(QGMMA, window=128), 16.0, (0.125, 0.234375), 128, 0.08),
}


@pytest.mark.parametrize("name", ATTAINED)
def test_a_bound_is_nearly_attained(name: str) -> None:
    """All small products are lost, each just below what a unit keeps: as far off as a sum can be but for a factor."""
    accumulator, format, way, large, small, every, share = ATTAINED[name]
    x, narrow = swamped(format, large, small, 512, every), "float8" in format
    claim = Claim(Matmul("plain.matmul_fp8" if narrow else "plain.matmul", accumulator), format, "float32")
    m, (low, high) = derived(claim, x), ends(claim, x)
    found = number(possible_at(m, (0, 0), way, Random(1)) or 0, "float32")
    exact = exact_at(m, (0, 0))
    assert (exact - found) / allowance(m, (0, 0), narrow) > share
    assert value(low, (0, 0)) <= found <= exact <= value(high, (0, 0))


@pytest.mark.parametrize("way", [*NARROW, replace(QGMMA, window=128)], ids=("ada", "hopper", "promoted"))
def test_thirteen_bits_are_expected_where_they_are_claimed_alone(way: Way) -> None:
    """A unit of 13 bits stays within its own accumulator's interval, and leaves that of float32."""
    source, out, rng, outside = "float8_e4m3fn", "float32", Random(3), 0
    x = drawn_input("vllm.fp8_token_channel", source, out)
    accumulator = "promoted_128" if way.window else "tensor_core_13"
    claim, wide = (Claim(Matmul("vllm.fp8_token_channel", name), source, out) for name in (accumulator, "float32"))
    low, high = ends(claim, x)
    narrowest = ends(wide, x)
    m = derived(claim, x)
    for place in places(m, 12):
        found = number(possible_at(m, place, way, rng) or 0, out)
        assert value(low, place) <= found <= value(high, place)
        outside += not value(narrowest[0], place) <= found <= value(narrowest[1], place)
        exact, off = exact_at(m, place), allowance(m, place, narrow=True)
        assert isinstance(exact, Fraction)
        assert exact - off <= found <= exact + off
    assert outside >= 6


#: a dot of small whole numbers, scales of a and b, and the float32 results of every association
E5 = ([16.0, 16, 10], [16.0, 16, 10], 0x3FC33D2F, 0x3F82B464, (0x446E4D83, 0x446E4D82, 0x446E4D84))


def test_every_association_of_scales_is_expected() -> None:
    """Probe E5 of the facts on matrix units: 612 times two scales, three ways, three results, and no fourth."""
    a, b, sa, sb, results = E5
    x = one_dot("float8_e4m3fn", a, b, a_scale=[[f32(sa)]], b_scale=[[f32(sb)]])
    claim = Claim(Matmul("vllm.fp8_token_channel", "float32"), "float8_e4m3fn", "float32")
    low, high = ends(claim, x)
    m, rng = derived(claim, x), Random(1)
    assert tuple(possible_at(m, (0, 0), Way(association=way), rng) for way in (0, 2, 1)) == results
    for bits in results:
        assert value(low, (0, 0)) <= number(bits, "float32") <= value(high, (0, 0))
    within(m, (0, 0), value(low, (0, 0)), value(high, (0, 0)))


def test_stretches_are_expected_fused_or_not() -> None:
    """Probe E4b: dots 547 and 1655 under two scales, added with one rounding or two."""
    a = [16.0, 16, 5] + [0.0] * 125 + [16.0] * 6 + [11, 9] + [0.0] * 120
    b = [16.0, 16, 7] + [0.0] * 125 + [16.0] * 6 + [10, 1] + [0.0] * 120
    scales = [[f32(0x3FA0E51D), f32(0x3FB460A3)]]
    x = one_dot("float8_e4m3fn", a, b, a_scale=scales, b_scale=[[1.0, 1.0]])
    claim = Claim(Matmul("vllm.fp8_block", "float32"), "float8_e4m3fn", "float32")
    low, high = ends(claim, x)
    m, rng = derived(claim, x), Random(1)
    ways = (Way(), Way(association=1, contracted=True))
    results = tuple(possible_at(m, (0, 0), way, rng) for way in ways)
    assert results == (0x453CBCCA, 0x453CBCC9)
    for bits in results:
        assert value(low, (0, 0)) <= number(bits or 0, "float32") <= value(high, (0, 0))


#: section 5 (f) of the facts on matrix units: a number, cut to tfloat32, and the next one above the cut
TF32 = (
    (1 + 2.0**-11, 0x3F800000, 0x3F802000), (1 + 3 * 2.0**-11, 0x3F802000, 0x3F804000),
    (1 + 2.0**-11 + 2.0**-23, 0x3F800000, 0x3F802000), (1 + 2.0**-11 - 2.0**-23, 0x3F800000, 0x3F802000),
    (-1 - 2.0**-11, 0xBF802000, 0xBF800000), (1.5, 0x3FC00000, 0x3FC00000),
)  # fmt: skip


@pytest.mark.parametrize("k", [1, 64])
def test_tfloat32_is_either_neighbour(k: int) -> None:
    """Sums of 1 or 64 equal numbers: both neighbours are expected, and of a number that is one, that alone."""
    claim = Claim(Matmul("plain.matmul_tf32", "float32"), "float32", "float32")
    for x, below, above in TF32:
        given = one_dot("float32", [x] * k, [1.0] * k)
        low, high = ends(claim, given)
        assert value(low, (0, 0)) <= k * Fraction(f32(below))
        assert k * Fraction(f32(above)) <= value(high, (0, 0))
        assert (value(low, (0, 0)) == value(high, (0, 0))) == (below == above)
        within(derived(claim, given, "none"), (0, 0), value(low, (0, 0)), value(high, (0, 0)))


# ---------------- the second derivation itself


def fused(way: Way, *pairs: tuple[float, float]) -> int:
    """The float32 bits of a sum of products of floats."""
    terms = [Term(Fraction(a) * Fraction(b), math.frexp(a)[1] + math.frexp(b)[1] - 2 if a * b else 0) for a, b in pairs]
    return int(np.float32(summed(terms, way, Random(1))).view(np.uint32))


BLACKWELL, HOPPER = Way("chopped", 32, 25), Way("chopped", 16, 25)
AMPERE, CDNA1, CDNA3 = Way("chopped", 8, 24), Way("exact", 4), Way("floored", 8)


def test_machines_round_as_published() -> None:
    """Vectors of the facts on matrix units, section 4, whose sums begin at zero: V2, V3, V7, V8."""
    v2 = ((16.0, 16.0), *[(0.125, 0.125)] * 31)
    assert [fused(way, *v2) for way in (QGMMA, BLACKWELL)] == [0x43800000, 0x43803E00]
    v3 = ((-16.0, 16.0), *[(-0.375, 0.125)] * 31)
    assert [fused(way, *v3) for way in (QGMMA, HOPPER)] == [0xC3807C00, 0xC380BA00]
    v7 = ((1.0, 1.0), *[(2.0**-12, 2.0**-12)] * 7, (-1.0, 1.0), *[(0.0, 1.0)] * 7)
    want = [0x00000000, 0x34C00000, 0x34E00000, 0x35000000, 0x35000000]
    assert [fused(way, *v7) for way in (VOLTA, AMPERE, HOPPER, CDNA1, CDNA3)] == want
    v8 = ((2.0**11, 1.0), *[(2.0**-13, 1.0)] * 3, (-(2.0**11), 1.0))
    want = [0x00000000, 0x39C00000, 0x39C00000, 0x3A000000, 0x39C00000]
    assert [fused(way, *v8) for way in (VOLTA, AMPERE, HOPPER, CDNA1, CDNA3)] == want
