"""Claims about block scales (MXFP4, NVFP4) and about the bytes that formats and their scales take."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.suites.meta.claims.claim import TRUE, Found, claim
from narrowgauge.suites.meta.claims.measuring import (
    cast,
    finite,
    finite_reals,
    largest,
    listed,
    number,
)

E2M1, E4M3, E8M0 = "float4_e2m1fn", "float8_e4m3fn", "float8_e8m0fnu"
UP = CastPolicy(rounding="up")


def bits_per_element(name: str, block: int, scale: str) -> Fraction:
    """Bits per element with one scale to a block."""
    return format_named(name).bits + Fraction(format_named(scale).bits, block)


# --- MXFP4 and NVFP4 -------------------------------------------------------------------------------------------------


@claim("000:181", "MXFP4 costs 4 + 8/32 = 4.25 bits per weight", TRUE, "4.25")
def mxfp4_bits() -> Found:
    bits = bits_per_element(E2M1, 32, E8M0)
    return Found(bits == Fraction("4.25"), number(bits))


@claim("003:88", "NVFP4, 16 elements to an E4M3 scale, costs 4.5 bits, its scale per tensor not counted", TRUE, "4.5")
def nvfp4_bits() -> Found:
    bits = bits_per_element(E2M1, 16, E4M3)
    return Found(bits == Fraction("4.5"), number(bits))


@claim(
    "000:187", "The bounds between E2M1's magnitudes are 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5", TRUE,
    "0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5; a count of the bounds below x parts from ties to even at 0.75, 1.75, 3.5"
)  # fmt: skip
def e2m1_bounds() -> Found:
    grid = finite(E2M1)
    bounds = [(a + b) / 2 for a, b in pairwise(grid)]
    ties = np.array([float(b) for b in bounds])
    counted = finite_reals(E2M1)[(ties[:, None] > ties).sum(axis=1)]
    parted = ties[counted != cast(ties, E2M1)].tolist()
    text = f"{listed(bounds)}; a count of the bounds below x parts from ties to even at {listed(parted)}"
    return Found(listed(bounds) == "0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5", text)


@claim(
    "000:189", "amax / 6, rounded up to a power of two, is stored as its exponent plus 127", TRUE,
    "equal to E8M0 rounded up for all 32640 bf16 amax; 0 and all up to 6 x 2^-127 give 0"
)  # fmt: skip
def the_ceil_scale_is_e8m0_rounded_up() -> Found:
    amax = finite_reals("bfloat16")
    exponents = [_exponent_above(Fraction(a) / 6) for a in amax.tolist()]
    stored = np.maximum(np.array(exponents) + 127, 0)
    # amax / 6 in float64 is a power of two only where it is one exactly, so its rounding changes no code.
    codes = np.frexp(cast(amax / 6, E8M0, UP))[1] - 1 + 127
    same = stored == codes
    below = bool((stored[amax <= 6 * 2.0**-127] == 0).all())
    text = f"equal to E8M0 rounded up for all {same.sum()} bf16 amax; 0 and all up to 6 x 2^-127 give 0"
    return Found(bool(same.all()) and below, text)


def _exponent_above(x: Fraction) -> int:
    """The exponent of the smallest power of two that is not below x. Very small for 0."""
    if x == 0:
        return -(10**4)
    exponent = x.numerator.bit_length() - x.denominator.bit_length() - 1
    while Fraction(2) ** exponent < x:
        exponent += 1
    return exponent


@claim(
    "000:206",
    "Rounding the scale up keeps every element of the block within 6, in exact arithmetic",
    TRUE,
    "the largest element stands at 3.01562 to 6",
)
def the_ceil_scale_clips_nothing() -> Found:
    scaled = _ceil_scaled()
    return Found(max(scaled) <= 6, f"the largest element stands at {number(min(scaled))} to {number(max(scaled))}")


@claim(
    "000:206",
    "That costs up to one binade of headroom",
    TRUE,
    "the largest element stands as low as 3.01562, a factor 1.98964 below 6",
)
def the_ceil_scale_costs_a_binade() -> Found:
    least = min(_ceil_scaled())
    return Found(
        3 < least < Fraction(31, 10),
        f"the largest element stands as low as {number(least)}, a factor {number(6 / least)} below 6",
    )


def _ceil_scaled() -> list[Fraction]:
    """Where the largest element stands, for every bf16 amax of one binade and its scale rounded up."""
    amax = [Fraction(v) for v in finite_reals("bfloat16").tolist() if 1 <= v < 2]
    return [a / Fraction(2) ** _exponent_above(a / 6) for a in amax]


@claim(
    "000:206", "NVFP4 trades the other way: its scale may land between powers of two, and clips", TRUE,
    "126 positive scales, 18 of them powers of two; the largest element stands at 5.66797 to 6.375, and clips to 6"
)  # fmt: skip
def nvfp4_scales() -> Found:
    scales = finite_reals(E4M3)[1:]
    powers = sum(math.frexp(s)[0] == 0.5 for s in scales.tolist())
    amax = 6 * (1 + np.arange(4096) / 4096)
    scaled = amax / cast(amax / 6, E4M3)
    text = f"{scales.size} positive scales, {powers} of them powers of two"
    clipped = f"the largest element stands at {number(scaled.min())} to {number(scaled.max())}, and clips to 6"
    return Found(powers < scales.size and scaled.max() > 6, f"{text}; {clipped}")


@claim(
    "003:90",
    "An E8M0 scale multiplies by adding to the exponent",
    TRUE,
    "the mantissa stays in all 1785 products; float32 holds all but 6, which overflow",
)
def e8m0_multiplies_exactly() -> Found:
    elements, scales = finite_reals(E2M1)[1:], finite_reals(E8M0)
    product = elements[:, None] * scales
    fractions = np.frexp(product)[0] == np.frexp(elements)[0][:, None]
    with np.errstate(over="ignore"):
        narrow = product.astype(np.float32).astype(np.float64)
    lost = product[narrow != product]
    text = f"the mantissa stays in all {fractions.size} products; float32 holds all but {lost.size}, which overflow"
    return Found(bool(fractions.all()) and bool((lost > largest("float32")).all()), text)


@claim(
    "003:90",
    "An E4M3 block scale reaches 448, so NVFP4 needs a scale per tensor",
    TRUE,
    "without one nothing above 6 x 448 = 2688 fits",
)
def nvfp4_needs_a_second_scale() -> Found:
    end = largest(E2M1) * largest(E4M3)
    return Found(largest(E4M3) == 448, f"without one nothing above 6 x 448 = {end} fits")


@claim(
    "003:90", "E8M0 fits an amax more coarsely than E4M3 does", TRUE,
    "the largest element stands at 3.00073 to 6 by E8M0 rounded up, at 5.66797 to 6.375 by E4M3"
)  # fmt: skip
def e8m0_is_coarser() -> Found:
    amax = 6 * (1 + np.arange(4096) / 4096)
    e8m0, e4m3 = amax / cast(amax / 6, E8M0, UP), amax / cast(amax / 6, E4M3)
    text = f"the largest element stands at {number(e8m0.min())} to {number(e8m0.max())} by E8M0 rounded up"
    holds = np.ptp(e8m0) > np.ptp(e4m3)
    return Found(bool(holds), f"{text}, at {number(e4m3.min())} to {number(e4m3.max())} by E4M3")


# --- bytes -----------------------------------------------------------------------------------------------------------

#: the articles' model: layers, key-value heads, width of a head
LAYERS, KV_HEADS, HEAD = 32, 8, 128


@claim(
    "000:80",
    "int4 with an fp16 scale to 128 weights takes 0.125 bits more, 0.516 bytes in all",
    TRUE,
    "0.125 bits; 0.515625 bytes",
)
def int4_with_group_scales() -> Found:
    bits = bits_per_element("int4", 128, "float16")
    return Found(
        bits - 4 == Fraction(1, 8) and round(bits / 8, 3) == Fraction("0.516"),
        f"{number(bits - 4)} bits; {float(bits / 8)} bytes",
    )


@claim("000:78", "8.03e9 parameters less a 128256 x 4096 embedding are 7.50e9", TRUE, "7.50466e+09")
def parameters_streamed() -> Found:
    streamed = Fraction("8.03e9") - 128256 * 4096
    return Found(f"{float(streamed):.2e}" == "7.50e+09", number(streamed))


@claim("000:80", "Streaming 7.50e9 weights of 2 bytes at 3.35 TB/s takes 4.48 ms", TRUE, "4.48 ms")
def streaming_floor() -> Found:
    time = Fraction("7.50e9") * 2 / Fraction("3.35e12") * 1000
    return Found(f"{float(time):.2f}" == "4.48", f"{float(time):.2f} ms")


@claim(
    "000:392", "At batch 1 the activations are negligible beside the weights: 4096 against 4096 x 4096", TRUE, "1/4096"
)
def activations_are_few() -> Found:
    share = Fraction(4096, 4096 * 4096)
    return Found(share < Fraction(1, 1000), str(share))


@claim("003:37", "A token of a model with L = 32, H_kv = 8, d = 128 has 65536 elements of K and V", TRUE, "65536")
def kv_elements_per_token() -> Found:
    elements = 2 * LAYERS * KV_HEADS * HEAD
    return Found(elements == 65536, str(elements))


@claim(
    "003:40", "A token takes 128 KiB in bf16, 64 in fp8, 36 in fp4 with a byte to 16: 2 and 3.6 times as many fit",
    TRUE, "128, 64, 36 KiB; 2 and 3.55556 times"
)  # fmt: skip
def kv_bytes_per_token() -> Found:
    elements = 2 * LAYERS * KV_HEADS * HEAD
    bits = [Fraction(16), Fraction(8), bits_per_element(E2M1, 16, E4M3)]
    kib = [elements * b / 8 / 1024 for b in bits]
    times = [bits[0] / b for b in bits[1:]]
    holds = kib == [128, 64, 36] and times[0] == 2 and round(float(times[1]), 1) == 3.6
    return Found(holds, f"{listed(kib)} KiB; {number(times[0])} and {number(times[1])} times")


@claim(
    "003:113",
    "Buffers of head_dim / 2 bytes of codes and head_dim / 16 of scales hold that fp4 cache",
    TRUE,
    "64 + 8 bytes to 128 elements, 0.5625 each",
)
def fp4_cache_buffers() -> Found:
    codes, scales = HEAD // 2, HEAD // 16
    each = Fraction(codes + scales, HEAD)
    return Found(
        8 * each == bits_per_element(E2M1, 16, E8M0), f"{codes} + {scales} bytes to {HEAD} elements, {float(each)} each"
    )
