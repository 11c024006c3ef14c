# SPDX-License-Identifier: Apache-2.0
"""How the reference's products are held to the second derivation: its intervals, and what right machines may give."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.expected import expected
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.memory import to_memory
from narrowgauge.suites.meta.product_inputs import inputs_for
from narrowgauge.suites.meta.second_derivation import LAYOUTS
from narrowgauge.suites.meta.second_operands import Place, Real, number
from narrowgauge.suites.meta.second_products import Made, code, exact_at, made, once, possible_at
from narrowgauge.suites.meta.second_reach import reach
from narrowgauge.suites.meta.second_sums import drawn

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


def held(claim: Claim, x: Coded, where: list[Place], ways: int) -> int:
    """Hold an expectation to the second derivation, at some places: how many of them are points.

    Draws of right machines lie in the interval, and so does the exact result rounded once, which a point is; the
    interval lies within what the proof at ``allowance`` leaves a machine. NaN and infinity are as IEEE 754 says.
    """
    low, high = ends(claim, x)
    product = str(claim.contract.rule)
    roundings = ("", "toward_zero", "nearest_away") if "tf32" in product else ("",)
    turned = [derived(claim, x, rounding) for rounding in roundings]
    centre, rng, points = derived(claim, x, "none"), Random(2), 0
    for place in where:
        near, far, want = value(low, place), value(high, place), number(once(turned[0], place), claim.format)
        points += near == far
        if not isinstance(exact_at(centre, place), Fraction):
            assert alike(near, want), place
            assert alike(far, want), place
            continue
        assert near <= want <= far, place
        for m in turned * ways:
            found = possible_at(m, place, drawn(rng), rng)
            assert found is None or near <= number(found, claim.format) <= far, (place, found)
        within(centre, place, near, far)
    return points


def within(m: Made, place: Place, near: Real, far: Real) -> None:
    """The interval is no wider than the second derivation allows."""
    least, largest = reach(m, place)
    assert least <= near, place
    assert far <= largest, place


def floats(coded: Coded) -> Floats:
    found = [number(int(c), coded.format) for c in coded.data.ravel()]
    return np.array([float(f) for f in found]).reshape(coded.shape)


def alike(one: Real, other: Real) -> bool:
    """Zeros of either sign, NaNs of any."""
    return one == other or (one != one and other != other)


def with_strange(x: Coded, seed: int) -> Coded:
    """A NaN, an infinity, two of one sign or two of both in some rows of x, b and the bias; zeros where they meet, and
    scales of 0 or with a minus."""
    rng, given = Random(seed), {n: Coded(v.format, v.data.copy()) for n, v in given_with(x).items()}
    first = Coded(x.format, x.data.copy())
    for coded in (first, given["b"], given.get("bias", first)):
        layout = LAYOUTS[coded.format]
        if layout.is_integer:
            continue
        strange = [c for c in (layout.infinity, layout.nan) if c is not None]
        strange += [c | layout.sign_bit for c in strange if c == layout.infinity]
        for row in range(coded.shape[0]):
            for _ in range(rng.choice((0, 1, 1, 2))):
                coded.data[row, rng.choice((0, 1, coded.shape[1] - 1))] = rng.choice([*strange, 0])
    for coded in (given[n] for n in ("a_scale", "b_scale") if n in given and given[n].format != "float8_e8m0fnu"):
        minus = LAYOUTS[coded.format].sign_bit
        for row in range(coded.shape[0]):
            kind = rng.choice(("zero", "minus", "", ""))
            coded.data[row] = 0 if kind == "zero" else coded.data[row] | minus * (kind == "minus")
    return Input(first.format, first.data, given)


def one_dot(format: str, a: list[float], b: list[float], **scales: list[list[float]]) -> Input:
    """Operands [1, k] of values, and scales in float32."""

    def coded(rows: list[list[float]], format: str) -> Coded:
        codes = [[code(Fraction(v), format) for v in row] for row in rows]
        return Coded(format, np.array(codes, format_named(format).storage))

    given = {"b": coded([b], format), **{n: coded(rows, "float32") for n, rows in scales.items()}}
    return Input(format, coded([a], format).data, given)


def swamped(format: str, large: float, small: tuple[float, float], k: int, every: int = 0) -> Input:
    """One large product, or one ``every`` so many, and small ones that are lost beside it."""
    first = [i % (every or k) == 0 for i in range(k)]
    a, b = ([large if f else s for f in first] for s in small)
    return one_dot(format, a, b)


def f32(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))
