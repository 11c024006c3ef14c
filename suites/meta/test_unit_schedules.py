"""Schedules of matrix units, the registry, and bad input: expected values are from definitions and public reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.noise import noise, scrambled
from narrowgauge.reference.units.registry import unit_named
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.schedule import Schedule, gemm

pytestmark = pytest.mark.meta

E4, E5, BF16, F16, F32 = "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32"
IEEE = CastPolicy(overflow="special", infinity="special")


def codes(values: Any, fmt: str) -> Coded:
    """Codes of numbers that the format holds."""
    wide = np.ascontiguousarray(values, np.float64)
    if fmt == "float64":
        return Coded(fmt, wide.view(np.uint64))
    found = cast(Coded("float64", wide.view(np.uint64)), fmt, IEEE)
    np.testing.assert_array_equal(decode_values(found), wide)
    return found


def row(fmt: str, size: int, terms: Mapping[int, float]) -> Coded:
    """[1, size]: numbers at some positions of k."""
    values = np.zeros((1, size))
    values[0, list(terms)] = list(terms.values())
    return codes(values, fmt)


def ones(fmt: str, size: int) -> Coded:
    return codes(np.ones((1, size)), fmt)


def pattern(*bits: int) -> Coded:
    """[1, n] float32."""
    return Coded(F32, np.array([bits], np.uint32))


def drawn(fmt: str, rows: int, size: int, seed: int) -> Coded:
    values = noise(rows * size, seed).astype(np.float32).reshape(rows, size)
    return cast(Coded(F32, values.view(np.uint32)), fmt, CastPolicy(overflow="max", infinity="max"))


def one(schedule: Schedule, terms: Mapping[int, float], size: int, fmt: str = BF16, **scales: Coded) -> int:
    """The code of one sum."""
    found = gemm(schedule, row(fmt, size, terms), ones(fmt, size), None, **scales)
    return int(found.data[0, 0])


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


UNIT, ONE = unit_named("hopper.hmma"), f32(1.0)


# --- products of matrices --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hopper.qgmma", "hopper.mma_fp8", "cdna3.mfma_fp8", "blackwell.mxf4nvf4"])
def test_every_element_is_the_dot_product_of_its_row_and_column(name: str) -> None:
    """Also past the edges of tiles, and where K is no multiple of a step."""
    unit = unit_named(name)
    fmt, rows, columns, depth = unit.formats[0], 130, 140, 96 if unit.scales else 45
    a, b = drawn(fmt, rows, depth, 1), drawn(fmt, columns, depth, 2)
    c = Coded(F32, noise(rows * columns, 3).astype(np.float32).view(np.uint32).reshape(rows, columns))
    scales: tuple[Coded, ...] = ()
    if unit.scales:
        grid = depth // unit.block
        scales = tuple(Coded(unit.scales[0], 48 + _small((n, grid), 8)) for n in (rows, columns))
    got = gemm(Schedule(unit), a, b, c, *scales)
    i, j = _small((200,), rows, np.intp, 5), _small((200,), columns, np.intp, 6)
    of = tuple(scale.take(at) for scale, at in zip(scales, (i, j), strict=False))
    want = dot(unit, a.take(i), b.take(j), Coded(F32, c.data[i, j]), *of)
    np.testing.assert_array_equal(got.data[i, j], want.data)


def _small(shape: tuple[int, ...], below: int, kind: Any = np.uint8, seed: int = 4) -> Any:
    return (scrambled(int(np.prod(shape)), seed) % np.uint64(below)).astype(kind).reshape(shape)


def test_no_k_and_no_rows() -> None:
    unit = unit_named("hopper.qgmma")
    empty = gemm(Schedule(unit, promote_every=32), drawn(E4, 3, 0, 1), drawn(E4, 2, 0, 1))
    assert empty.data.tolist() == [[0, 0]] * 3
    assert gemm(Schedule(unit), drawn(E4, 0, 8, 1), drawn(E4, 2, 8, 1)).shape == (0, 2)


def test_whole_numbers_wrap_and_are_split_exactly() -> None:
    unit = unit_named("nvidia.imma")
    a, b = (Coded("int8", _small((5, 300), 256, seed=s)) for s in (8, 9))
    want = a.data.view(np.int8).astype(np.int64) @ b.data.view(np.int8).astype(np.int64).T
    for split in (1, 3):
        got = gemm(Schedule(unit, split_k=split), a, b)
        assert got.data.view(np.int32).tolist() == want.tolist()
    high = Coded("int32", np.full((1, 1), 0x7FFFFFFF, np.uint32))
    parts = gemm(Schedule(unit, split_k=2), row("int8", 64, {0: 1, 63: 1}), ones("int8", 64), high)
    assert parts.data.tolist() == [[0x80000001]]


# --- order, splits, promotion ----------------------------------------------------------------------------------------


def test_an_accumulator_of_13_bits_as_reported() -> None:
    """triton#5065: e5m2, 1/32 · 3 summed over K = 8192 is 683 in 13 bits, and 768 where nothing is lost."""
    a, b = codes(np.full((1, 8192), 1 / 32), E5), codes(np.full((1, 8192), 3.0), E5)
    found = {
        name: decode_values(gemm(Schedule(unit_named(name)), a, b))[0, 0] for name in ("ada.qmma", "hopper.mma_fp8")
    }
    assert found == {"ada.qmma": 683.0, "hopper.mma_fp8": 768.0}


@pytest.mark.parametrize(("every", "lost"), [(0, 255), (32, 31), (64, 63), (128, 127)])
def test_promotion_keeps_what_the_unit_would_lose(every: int, lost: int) -> None:
    """1 at 0 and 2^-16 at j, for each j: lost within a stretch, kept from the next one on; without promotion never."""
    a, j = np.zeros((255, 256)), np.arange(1, 256)
    a[:, 0], a[j - 1, j] = 1.0, 2.0**-8
    b = np.where(np.arange(256) > 0, 2.0**-8, 1.0)[None]
    got = gemm(Schedule(unit_named("hopper.qgmma"), promote_every=every), codes(a, E4), codes(b, E4)).data[:, 0]
    assert got.tolist() == [ONE] * lost + [f32(1 + 2.0**-16)] * (255 - lost)


def test_the_order_of_k() -> None:
    """2^24, 1 and -2^24: the 1 is lost unless it comes last. A last period that is not whole ascends."""
    unit, terms = unit_named("plain.fma"), {0: 2.0**24, 1: 1.0, 2: -(2.0**24)}
    assert one(Schedule(unit), terms, 3, F32) == f32(0.0)
    assert one(Schedule(unit, k_order=(0, 2, 1)), terms, 3, F32) == f32(1.0)
    late = {3 + k: value for k, value in terms.items()}
    assert one(Schedule(unit, k_order=(0, 2, 1)), late, 6, F32) == f32(1.0)
    assert one(Schedule(unit, k_order=(3, 2, 1, 0)), late, 6, F32) == f32(0.0)


def test_splits_of_k() -> None:
    """2^24, 1, 1 and -2^24 in four blocks: the ones are lost one by one, and one is kept where they meet -2^24."""
    unit = unit_named("hopper.hmma")
    terms = {0: 2.0**24, 16: 1.0, 32: 1.0, 48: -(2.0**24)}
    assert one(Schedule(unit), terms, 64) == f32(0.0)
    assert one(Schedule(unit, split_k=4), terms, 64) == f32(0.0)
    assert one(Schedule(unit, split_k=4, reduce="pairs"), terms, 64) == f32(1.0)
    assert one(Schedule(unit, split_k=2), terms, 64) == f32(1.0)
    assert one(Schedule(unit, split_k=3, reduce="pairs"), {0: 1.0, 16: 2.0, 32: 4.0}, 48) == f32(7.0)
    narrow = Schedule(unit, split_k=2, reduce_format=BF16)
    assert one(narrow, {0: 256.0, 1: 1.0, 32: 1.0}, 64) == f32(256.0)
    assert one(Schedule(unit, split_k=2), {0: 256.0, 1: 1.0, 32: 1.0}, 64) == f32(258.0)


def test_a_split_does_not_cut_a_stretch() -> None:
    """96 in two parts are 64 and 32 where 32 are promoted at once: 40 and 50 are of one stretch."""
    schedule = Schedule(unit_named("hopper.qgmma"), promote_every=32, split_k=2)
    a, b = row(E4, 96, {40: 1.0, 50: 2.0**-8}), row(E4, 96, {40: 1.0, 50: 2.0**-8})
    assert gemm(schedule, a, b).data.tolist() == [[ONE]]


def test_a_nan_has_the_code_of_the_unit() -> None:
    assert one(Schedule(UNIT), {0: np.inf, 1: -np.inf}, 16) == 0x7FFFFFFF


def test_float64_is_left_alone() -> None:
    found = gemm(Schedule(unit_named("nvidia.dmma")), row("float64", 3, {0: 2.0**60, 1: 1.0}), ones("float64", 3))
    assert decode_values(found).tolist() == [[2.0**60]]


def test_an_addend_enters_once() -> None:
    unit, c = unit_named("hopper.hmma"), pattern(f32(3.0))
    for schedule in (Schedule(unit), Schedule(unit, split_k=2), Schedule(unit, promote_every=16)):
        assert gemm(schedule, ones(BF16, 32), ones(BF16, 32), c).data.tolist() == [[f32(35.0)]]


def test_float16_accumulators() -> None:
    """60000 twice and -60000: 60000 in float32, infinity where float16 is written between."""
    terms = {0: 60000.0, 64: 60000.0, 128: -60000.0}
    wide = gemm(Schedule(unit_named("hopper.hmma"), out=F16), row(F16, 160, terms), ones(F16, 160))
    narrow = gemm(Schedule(unit_named("hopper.hmma_f16")), row(F16, 160, terms), ones(F16, 160))
    assert (decode_values(wide)[0, 0], decode_values(narrow)[0, 0]) == (60000.0, np.inf)


def test_results_are_rounded_once_more() -> None:
    unit = unit_named("hopper.hmma")
    tie, above = {0: 1.0, 1: 2.0**-8}, {0: 1.0, 1: 2.0**-8, 2: 2.0**-20}
    assert [one(Schedule(unit, out=BF16), terms, 16) for terms in (tie, above)] == [0x3F80, 0x3F81]


# --- scales ----------------------------------------------------------------------------------------------------------

#: sums of stretches of 16, as numbers that bfloat16 has
TWO: dict[str, dict[int, float]] = {
    "1 and 1": {0: 1.0, 16: 1.0},
    "547 and 1655": {0: 512.0, 1: 35.0, 16: 1536.0, 17: 119.0},
    "407 and 1005": {0: 384.0, 1: 23.0, 16: 992.0, 17: 13.0},
    "2^10 and -2^10": {0: 1024.0, 16: -1024.0},
}


def stretches(terms: str, first: int, second: int, **how: Any) -> int:
    schedule = Schedule(UNIT, promote_every=16, scaled="stretches", **how)
    return one(schedule, TWO[terms], 32, a_scale=pattern(first, second), b_scale=pattern(ONE, ONE))


def at_the_end(terms: str, scale: int) -> int:
    return one(Schedule(UNIT, scaled="sum"), TWO[terms], 32, a_scale=pattern(scale), b_scale=pattern(ONE))


def test_scales_of_stretches() -> None:
    """The codes are those that another program gave for these numbers."""
    assert stretches("1 and 1", ONE, f32(2.0)) == f32(3.0)
    assert stretches("547 and 1655", 0x3FA0E51D, 0x3FB460A3) == 0x453CBCCA
    assert stretches("547 and 1655", 0x3FA0E51D, 0x3FB460A3, fused=True) == 0x453CBCC9
    assert stretches("407 and 1005", 0x3FA1937B, 0x3FA1937B) == 0x44DECC5C
    assert at_the_end("407 and 1005", 0x3FA1937B) == 0x44DECC5D


def test_a_scale_that_overflows_within_a_stretch() -> None:
    huge = f32(2.0**120)
    assert at_the_end("2^10 and -2^10", huge) == f32(0.0)
    assert np.isnan(np.uint32(stretches("2^10 and -2^10", huge, huge)).view(np.float32))


@pytest.mark.parametrize(("order", "code"), [("a first", 0x446E4D83), ("product", 0x446E4D82), ("b first", 0x446E4D84)])
def test_the_order_of_both_scales(order: Any, code: int) -> None:
    schedule = Schedule(UNIT, scaled="sum", order=order)
    scales = {"a_scale": pattern(0x3FC33D2F), "b_scale": pattern(0x3F82B464)}
    assert one(schedule, {0: 608.0, 1: 4.0}, 16, BF16, **scales) == code


def test_whole_numbers_are_scaled_in_float32() -> None:
    schedule = Schedule(unit_named("nvidia.imma"), scaled="sum")
    scales = {"a_scale": pattern(f32(0.5)), "b_scale": pattern(f32(0.25))}
    assert one(schedule, {0: 100.0, 1: 27.0}, 32, "int8", **scales) == f32(127 / 8)
    # 2^24 + 1 is rounded before it is multiplied by 3
    a = codes([[127.0] * 1040 + [24.0, 9.0]], "int8")
    b = codes([[127.0] * 1041 + [1.0]], "int8")
    assert gemm(schedule, a, b, None, pattern(f32(3.0)), pattern(ONE)).data.tolist() == [[f32(3 * 2.0**24)]]
