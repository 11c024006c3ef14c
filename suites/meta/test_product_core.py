# SPDX-License-Identifier: Apache-2.0
"""What products may give, where one rule decides: small calls, results by definition, by hand or by exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.suites.meta.product_calls import interval
from narrowgauge.suites.meta.product_checks import ends, f32, one_dot

pytestmark = pytest.mark.meta

E4, HALF, BF16, F32 = "float8_e4m3fn", "float16", "bfloat16", "float32"
CHANNEL, NAN = "vllm.fp8_token_channel", 0x7FC00000


def scaled(total: list[float], a: float, b: float) -> Input:
    """A sum of products with 1 in fp8, under two scales."""
    return one_dot(E4, total, [1.0] * len(total), a_scale=[[a]], b_scale=[[b]])


def bits(number: float) -> float:
    """What a float32 of these bits stands for."""
    return f32(int(number))


# --- whole numbers ---------------------------------------------------------------------------------------------------


def whole(k: int, name: str, **scales: float) -> Input:
    """k products of -128 with itself."""
    codes = np.full((1, k), 0x80, np.uint8)
    beside = {n: Coded(F32, np.array([[s]], np.float32).view(np.uint32)) for n, s in scales.items()}
    return Input("int8", codes, {"b": Coded("int8", codes), **beside})


@pytest.mark.parametrize("k", [(1 << 17) - 1, 1 << 17, (1 << 17) + 5, (1 << 18) - 1, (1 << 18) + 1])
def test_sums_of_int32_wrap(k: int) -> None:
    """PTX ISA, mma with .s32 and no .satfinite: modulo 2^32, whatever the order; a scale meets what is left."""
    want = (k * 128 * 128 + 2**31) % 2**32 - 2**31
    low, high = ends(Claim(Matmul("plain.matmul_int8"), "int8", "int32"), whole(k, "plain.matmul_int8"))
    assert (low.data.view(np.int32)[0, 0], high.data.view(np.int32)[0, 0]) == (want, want)
    x = whole(k, "vllm.int8_token_channel", a_scale=1.0, b_scale=1.0)
    near = Fraction(float(np.float32(want)))
    assert interval("vllm.int8_token_channel", x, accumulator="") == (near, near)


def test_a_sum_of_int32_becomes_float32_before_it_meets_a_scale() -> None:
    """1024 · 128 · 128 + 1 = 2^24 + 1 becomes 2^24, to even; times 3 that is no neighbour of 3 (2^24 + 1)."""
    x = whole(1025, "vllm.int8_token_channel", a_scale=3.0, b_scale=1.0)
    x.data[0, -1] = x.given["b"].data[0, -1] = 1
    a, b = x.data.copy(), x.data.copy()
    x = Input("int8", a, {**x.given, "b": Coded("int8", b)})
    assert interval("vllm.int8_token_channel", x, accumulator="") == (3 << 24, 3 << 24)


# --- scales ----------------------------------------------------------------------------------------------------------


def test_two_roundings_of_scales_are_allowed_for() -> None:
    """13 · s · t is 1.35 u above 1 + 2^-8. The product s · t, rounded first, leads to that tie in float32, and to 1 in
    bfloat16; the exact product leads to 1 + 2^-7."""
    x = scaled([13.0], bits(0x3FA7EA18), bits(0x3D711E82))
    assert interval(CHANNEL, x, BF16) == (1, 1 + Fraction(1, 128))


def test_a_product_of_25_bits_is_rounded_in_float32() -> None:
    """9 · 1871417 is 2^24 + 2^16 + 1: in float32 a tie of bfloat16, which goes to even."""
    near, far = interval(CHANNEL, scaled([9.0], 1871417 * 2.0**-24, 1.0), BF16)
    assert near == 1 <= far


def test_a_product_of_24_bits_is_a_point() -> None:
    for a, b in ((2.0**22 - 1, 1.0), (4.0, 2.0**22 - 1)):
        want = 3 * Fraction(a) * Fraction(b)
        assert interval(CHANNEL, scaled([3.0], a, b)) == (want, want)


@pytest.mark.parametrize("scale", [-0.37, 0.37])
def test_a_scale_of_either_sign_keeps_ends_in_order(scale: float) -> None:
    """Subnormal products beside 448²: a wide interval."""
    x = one_dot(E4, [448.0, 0.015625, -0.013671875], [448.0, 0.013671875, 1.0], a_scale=[[f(scale)]], b_scale=[[1.0]])
    near, far = interval(CHANNEL, x, accumulator="tensor_core_13")
    exact = (448 * 448 + Fraction(0.015625) * Fraction(0.013671875) - Fraction(0.013671875)) * Fraction(f(scale))
    assert near < exact < far


def f(number: float) -> float:
    return float(np.float32(number))


def four_bits(
    global_a: float, global_b: float, a: tuple[int, ...] = (7, 7, 4), b: tuple[int, ...] = (6, 3, 2)
) -> Input:
    """NVFP4 under block scales of 1: 6 · 4 + 6 · 1.5 + 2 · 1 = 35, or other codes."""
    depth = -(-len(a) // 16) * 16
    rows = {n: [[*row, *[0] * (depth - len(row))]] for n, row in (("a", a), ("b", b))}
    codes = {n: Coded("float4_e2m1fn", np.array(row, np.uint8)) for n, row in rows.items()}
    ones = Coded(E4, np.full((1, depth // 16), 0x38, np.uint8))
    over = {
        f"{n}_global_scale": Coded(F32, np.array([[g]], np.float32).view(np.uint32))
        for n, g in (("a", global_a), ("b", global_b))
    }
    return Input("float4_e2m1fn", codes["a"].data, {"b": codes["b"], "a_scale": ones, "b_scale": ones, **over})


def test_reciprocals_of_whole_scales_are_rounded_too() -> None:
    """35 / ga / gb by three ways with reciprocals in float32: two neighbours more than one rounding gives."""
    ga, gb = bits(0x3F837517), bits(0x3FF85364)
    s, one = np.float32(35), np.float32(1)
    ways = (s * ((one / np.float32(ga)) * (one / np.float32(gb))), s * (one / (np.float32(ga) * np.float32(gb))),
            s * (one / np.float32(ga)) * (one / np.float32(gb)))  # fmt: skip
    near, far = interval("nvidia.nvfp4", four_bits(ga, gb))
    assert len({float(w) for w in ways}) == 3
    assert all(near <= Fraction(float(way)) <= far for way in ways)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_scale_of_either_sign_keeps_ends_in_order(sign: int) -> None:
    """256 times 36 is more than 13 bits hold, with one more that they lose."""
    codes = (7,) * 255 + (1,)
    near, far = interval("nvidia.nvfp4", four_bits(sign * 1.5, 1.0, codes, codes), accumulator="tensor_core_13")
    exact = Fraction(sign) * (255 * 36 + Fraction(1, 4)) / Fraction(1.5)
    assert near < exact < far


def test_whole_scales_of_powers_of_two_round_nothing() -> None:
    assert interval("nvidia.nvfp4", four_bits(0.5, 4.0)) == (Fraction(35, 2), Fraction(35, 2))


def test_stretches_beyond_24_bits_depend_on_their_order() -> None:
    """2^24 + 1 + 1 in float32 is 2^24, or 2^24 + 2 where the small ones meet first."""
    a = [1.0 if k % 128 == 0 else 0.0 for k in range(384)]
    x = one_dot(E4, a, a, a_scale=[[2.0**24, 1.0, 1.0]], b_scale=[[1.0, 1.0, 1.0]])
    near, far = interval("vllm.fp8_block", x)
    assert near <= 1 << 24 < (1 << 24) + 2 <= far


# --- the bias --------------------------------------------------------------------------------------------------------


def biased(a: list[float], bias: float) -> Input:
    x = one_dot(BF16, a, [1.0] * len(a))
    code = int(np.float32(bias).view(np.uint32)) >> 16
    return Input(x.format, x.data, {**x.given, "bias": Coded(BF16, np.array([[code]], np.uint16))})


def test_a_wide_bias_is_added_in_float32() -> None:
    """1 + 2^-8 and 2^-30 are a tie of bfloat16 in float32, which goes to even; as reals they are above it."""
    assert interval("plain.matmul_bias", biased([1.0, 2.0**-8], 2.0**-30), BF16) == (1, 1)


def test_a_narrow_bias_is_added_to_what_is_rounded() -> None:
    """257 becomes 256 in bfloat16, and 257 again 256; added before, 258 remains."""
    x = biased([256.0, 1.0], 1.0)
    assert interval("plain.matmul_then_bias", x, BF16) == (256, 256)
    assert interval("plain.matmul_bias", x, BF16) == (258, 258)


def test_a_sum_of_nothing_is_zero_and_the_bias_remains() -> None:
    x = biased([], 3.0)
    assert x.shape == (1, 0)
    for name, want in (("plain.matmul_bias", 3), ("plain.matmul_then_bias", 3)):
        assert interval(name, x, BF16) == (want, want)
    empty = {n: v for n, v in x.given.items() if n != "bias"}
    assert interval("plain.matmul", Input(x.format, x.data, empty)) == (0, 0)
