"""What a block of a matrix holds, one function for each kind of mistake. All are float64 [n]."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.matrices import Reals, bound_of, near
from narrowgauge.reference.noise import noise


def plain(n: int, k: int) -> Reals:
    """Noise with an amax of its own for each k, near 1."""
    found = np.clip(np.roll(noise(n, seed=5), k) * 0.3, -0.99, 0.99)
    found[(7 * k) % n] = 1 if k % 2 else -1
    return np.asarray(found * np.ldexp(1 + (11 * k % 32) / 32, 7 * k % 13 - 6), np.float64)


def with_plain(contents: Iterable[Reals]) -> list[Reals]:
    """Two plain blocks after each: four stand side by side, so each has plain ones beside, above and below it."""
    found: list[Reals] = []
    for k, content in enumerate(contents):
        found += [content, plain(content.size, 2 * k), plain(content.size, 2 * k + 1)]
    return found


def specials(n: int, source: Format) -> list[Reals]:
    """One of each kind of block that recipes treat by a rule of its own."""
    base, ramp, last, middle = noise(n, seed=6), np.linspace(-1.0, 1.0, n), n - 1, (n - 1) // 2
    tiny = 2.0 ** (1 - source.bias - source.mantissa)
    normal, huge = 2.0 ** (1 - source.bias), (2 - 2.0**-source.mantissa) * 2.0**source.bias

    def having(value: float, *places: int, row: Reals = base) -> Reals:
        out = row.copy()
        out[list(places)] = value
        return out

    return [
        np.zeros(n),
        np.full(n, -0.0),
        having(-0.0, middle, row=np.zeros(n)),
        *(having(bad, place) for bad in (np.nan, -np.nan, np.inf, -np.inf) for place in (0, middle, last)),
        having(np.inf, 0, row=having(-np.inf, last)),
        having(np.inf, 0, row=having(np.nan, last)),
        having(np.nan, middle, row=np.zeros(n)),
        *(
            np.full(n, value)
            for value in (np.nan, np.inf, -np.inf, tiny, normal, normal - tiny, huge, -huge, 1.0, -1.0)
        ),
        ramp * (normal - tiny),
        ramp * 4 * tiny,
        having(tiny, middle, row=np.zeros(n)),
        having(-huge, last, row=ramp * tiny * 9),
        having(huge, 0, row=np.full(n, -huge)),
        np.abs(base),
        -np.abs(base),
    ]


def outliers(n: int, places: Iterable[int]) -> list[Reals]:
    """One outlier in each position, each of another magnitude."""
    return [holding(n, place, (8 + k / 32) * (-1) ** k, k) for k, place in enumerate(places)]


def holding(n: int, place: int, value: float, k: int) -> Reals:
    """Noise below 1 with one value in a place; other noise for each k."""
    out = np.clip(np.roll(noise(n, seed=7), k) * 0.3, -0.99, 0.99)
    out[place] = value
    return out


def scaled_by(n: int, amax: float, k: int) -> Reals:
    """Noise below an amax, which stands in another place for each k."""
    return holding(n, (5 * k) % n, (-1.0) ** k, k) * amax


# --- amax ------------------------------------------------------------------------------------------------------------


def amaxes(claim: Claim, exponents: Iterable[int]) -> Reals:
    """Where a scale changes its binade, at each exponent, and the values of the source beside: 1, the bound's own
    fraction, halfway, and half a place of the destination below 2."""
    source, fmt = format_named(claim.source), format_named(claim.format)
    fractions = {1.0, 2 * float(np.frexp(bound_of(claim))[0]), 1.5, 2 - 2.0 ** -(fmt.mantissa + 1)}
    return near(np.array([np.ldexp(fraction, k) for fraction in fractions for k in exponents]), source)


def every_exponent(claim: Claim) -> list[int]:
    """Of the source's finite values, subnormals included."""
    source = format_named(claim.source)
    return list(range(1 - source.bias - source.mantissa, source.bias + 1))


def few_exponents(claim: Claim) -> list[int]:
    """The ends of the source's ranges, the ends of E8M0's, and a few between."""
    every, normal = every_exponent(claim), 1 - format_named(claim.source).bias
    of_bound = int(np.frexp(bound_of(claim))[1]) - 1
    wanted = {every[0], every[0] + 1, normal - 1, normal, -1, 0, of_bound, of_bound - 126, of_bound - 127, every[-1]}
    return sorted(wanted & set(every))
