# SPDX-License-Identifier: Apache-2.0
"""What products of matrices may give: the reference against exact fractions, by somebody who had not seen it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.expected import expected
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.memory import to_memory
from narrowgauge.suites.meta.product_inputs import inputs_for
from narrowgauge.suites.meta.second_operands import Place, Real, number
from narrowgauge.suites.meta.second_products import Made, allowance, code, exact_at, made, once, possible_at
from narrowgauge.suites.meta.second_sums import NARROW, Term, Way, drawn, summed

pytestmark = pytest.mark.meta

Floats = npt.NDArray[np.float64]


def ends(claim: Claim, x: Coded) -> tuple[Coded, Coded]:
    """The interval of a claim."""
    (interval,) = expected(claim, x).values()
    return interval.low, interval.high


def derived(claim: Claim, x: Coded, rounding: str = "") -> Made:
    """The second derivation of what a kernel is given, as it stands in memory."""
    contract = resolved(claim).contract
    assert isinstance(contract, Matmul)
    assert not isinstance(contract.product, str)
    image = to_memory(claim, x)
    inputs = {"x": image, **given_with(image)}
    return made(contract.product, claim.source, claim.format, inputs, rounding)


def value(coded: Coded, place: Place) -> Real:
    return number(int(coded.data[place]), coded.format)


def places(m: Made, count: int, seed: int = 1) -> Iterator[Place]:
    rng = Random(seed)
    for _ in range(count):
        yield rng.randrange(m.shape[0]), rng.randrange(m.shape[1])


def drawn_input(name: str, source: str, out: str) -> Coded:
    """Random codes: one more than a whole number of blocks each way, where blocks may be ragged."""
    blocks = "block" in name
    rows = (256 if PRODUCTS[name].grouped else 136) if blocks else 16
    given = inputs_for(PRODUCTS[name], source, out, (5, rows, 256 if blocks else 160), 5)
    x = given.pop("x")
    return Input(x.format, x.data, given)


def formats(name: str) -> tuple[str, str]:
    """A pair of a product's formats that shows most of its sum: float32 where there is one."""
    return max(PRODUCTS[name].formats, key=lambda pair: pair[1] in ("float32", "int32"))


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_possible_result_is_expected_and_little_else(name: str) -> None:
    """Draws of ways lie in the interval, and the interval within what the proof at ``allowance`` leaves a machine."""
    source, out = formats(name)
    x, claim = drawn_input(name, source, out), Claim(Matmul(name, "float32"), source, out)
    low, high = ends(claim, x)
    roundings = ("", "toward_zero", "nearest_away") if "tf32" in name else ("",)
    turned = [derived(claim, x, rounding) for rounding in roundings]
    centre = derived(claim, x, "none")
    rng = Random(2)
    for place in places(turned[0], 4):
        near, far = value(low, place), value(high, place)
        for m in (*turned, turned[0]):
            found = possible_at(m, place, drawn(rng), rng)
            assert found is not None
            assert near <= number(found, out) <= far, (place, found)
        assert near <= number(once(turned[0], place), out) <= far
        exact, off = exact_at(centre, place), allowance(centre, place)
        assert isinstance(exact, Fraction)
        assert number(code(exact - off, out), out) <= near
        assert far <= number(code(exact + off, out), out)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_point_is_the_exact_result_rounded_once(name: str) -> None:
    """In the suite's own cases; a NaN or an infinity of an operand gives what IEEE 754 says, and is no interval."""
    points = 0
    for source, out in (PRODUCTS[name].formats[0], formats(name)):
        claim = Claim(Matmul(name, "float32"), source, out)
        cases = cases_for(claim, "smoke")
        for case in ("exact", "specials"):
            if case not in cases:
                continue
            x = cases[case]
            low, high = ends(claim, x)
            m = derived(claim, x)
            odd = np.argwhere(~np.isfinite(_floats(low)))
            for place in [*places(m, 3), *(tuple(p) for p in odd[:: max(1, len(odd) // 3)].tolist())]:
                near, far, want = value(low, place), value(high, place), number(once(m, place), out)
                if case == "exact" or not isinstance(want, Fraction):
                    assert _alike(near, want), (case, place)
                    assert _alike(far, want), (case, place)
                    points += 1
    assert points >= 6


def _floats(coded: Coded) -> Floats:
    found = [number(int(c), coded.format) for c in coded.data.ravel()]
    return np.array([float(f) for f in found]).reshape(coded.shape)


def _alike(one: Real, other: Real) -> bool:
    """Zeros of either sign, NaNs of any."""
    return one == other or (one != one and other != other)


# ---------------- attained


def adversarial(k: int) -> Input:
    """float16 [1, k] and [1, k]: one large product, and k − 1 that a unit of 23 bits loses almost whole."""
    a, b = np.full((1, k), 0.49951172, np.float16), np.full((1, k), 0.25, np.float16)
    a[0, 0] = b[0, 0] = 1024
    return Input("float16", a.view(np.uint16), {"b": Coded("float16", b.view(np.uint16))})


def test_the_bound_is_attained_by_two_thirds() -> None:
    """Volta's unit loses every small product: just below 2^-23 of the large one each; the bound allows 1.5 of it."""
    claim, x = Claim(Matmul("plain.matmul", "float32"), "float16", "float32"), adversarial(400)
    m, (low, _) = derived(claim, x), ends(claim, x)
    found = possible_at(m, (0, 0), Way("chopped", 4, 23), Random(1))
    assert found is not None
    lost = exact_at(m, (0, 0)) - number(found, "float32")
    assert lost / allowance(m, (0, 0)) > 0.6
    assert value(low, (0, 0)) <= number(found, "float32")


@pytest.mark.parametrize("way", [*NARROW, Way("chopped", 32, 13, 14, window=128)], ids=("ada", "hopper", "promoted"))
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


# ---------------- the second derivation itself


def fused(way: Way, *pairs: tuple[float, float]) -> int:
    """The float32 bits of a sum of products of floats."""
    terms = [Term(Fraction(a) * Fraction(b), math.frexp(a)[1] + math.frexp(b)[1] - 2 if a * b else 0) for a, b in pairs]
    return int(np.float32(summed(terms, way, Random(1))).view(np.uint32))


ADA, BLACKWELL, HOPPER = Way("chopped", 32, 13, 14), Way("chopped", 32, 25), Way("chopped", 16, 25)
VOLTA, AMPERE, CDNA1, CDNA3 = Way("chopped", 4, 23), Way("chopped", 8, 24), Way("exact", 4), Way("floored", 8)


def test_machines_round_as_published() -> None:
    """Vectors of the facts on matrix units, section 4, whose sums begin at zero: V2, V3, V7, V8."""
    v2 = ((16.0, 16.0), *[(0.125, 0.125)] * 31)
    assert [fused(way, *v2) for way in (ADA, BLACKWELL)] == [0x43800000, 0x43803E00]
    v3 = ((-16.0, 16.0), *[(-0.375, 0.125)] * 31)
    assert [fused(way, *v3) for way in (ADA, HOPPER)] == [0xC3807C00, 0xC380BA00]
    v7 = ((1.0, 1.0), *[(2.0**-12, 2.0**-12)] * 7, (-1.0, 1.0), *[(0.0, 1.0)] * 7)
    want = [0x00000000, 0x34C00000, 0x34E00000, 0x35000000, 0x35000000]
    assert [fused(way, *v7) for way in (VOLTA, AMPERE, HOPPER, CDNA1, CDNA3)] == want
    v8 = ((2.0**11, 1.0), *[(2.0**-13, 1.0)] * 3, (-(2.0**11), 1.0))
    want = [0x00000000, 0x39C00000, 0x39C00000, 0x3A000000, 0x39C00000]
    assert [fused(way, *v8) for way in (VOLTA, AMPERE, HOPPER, CDNA1, CDNA3)] == want
