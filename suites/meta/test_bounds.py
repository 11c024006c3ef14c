"""Bounds of sums are held to sums by definition: never exceeded, nearly reached, one-sided where that is claimed."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.matmul.accumulators import ACCUMULATORS, accumulator_named, least_exact
from narrowgauge.reference.matmul.adversarial import adversarial_case
from narrowgauge.reference.matmul.bounds import (
    absolute_error,
    after_roundings,
    flushed_terms,
    largest_exponents,
    least_normal,
    summed,
)
from narrowgauge.reference.matmul.one_sided import one_sided, sign_of_terms
from narrowgauge.suites.meta import second_bounds as second
from narrowgauge.suites.meta.bound_sets import KINDS, Operands, operands, values

pytestmark = pytest.mark.meta

_ONE = Fraction(1, second.ONE)
_EIGHT = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz")
_FORMATS = {
    "tensor_core_13": (*_EIGHT, "float8_e5m2fnuz"), "promoted_128": _EIGHT[:2], "promoted_32": _EIGHT[:1],
    "float16": ("float16", "float8_e4m3fn"), "bfloat16": ("bfloat16",),
    "float32": ("bfloat16", "float16", "float8_e5m2"), "float32_flushed": ("bfloat16", "float16"),
    "float32_nearest": ("float32", "bfloat16"), "cdna3": ("float8_e4m3fnuz", "bfloat16", "float16"),
    "tensor_core_23": ("float16",), "tensor_core_24": ("float16", "tfloat32"),
    "tensor_core_25": ("float8_e4m3fn", "bfloat16", "float4_e2m1fn"),
}  # fmt: skip


def _errors(case: Operands, way: second.Sum, seed: int = 0) -> np.ndarray:
    """D - exact of every pair of rows, as fractions."""
    rng, found = random.Random(seed), []
    for row in case.a:
        for column in case.b:
            terms = second.terms(row, column, case.a_format, case.b_format)
            found.append((way(terms, rng) - sum(t.value for t in terms)) * _ONE)
    return np.array(found, object).reshape(len(case.a), len(case.b))


def _least(case: Operands) -> tuple[float, float]:
    return least_normal(case.a_format), least_normal(case.b_format)


def _bound(case: Operands, name: str, steps: int | None = None) -> np.ndarray:
    a, b = (values(x) for x in case.coded())
    size, k = np.abs(a) @ np.abs(b).T, a.shape[1]
    largest, flushed = largest_exponents(a, b, *_least(case)), flushed_terms(a, b, *_least(case))
    return absolute_error(accumulator_named(name), size, k, largest, flushed, steps)


def _exceeded(errors: np.ndarray, bound: np.ndarray) -> bool:
    return any(
        np.isfinite(most) and abs(error) > Fraction(float(most))
        for error, most in zip(errors.ravel(), bound.ravel(), strict=True)
    )


@pytest.mark.parametrize("name", sorted(_FORMATS))
def test_no_way_to_add_exceeds_its_bound(name: str) -> None:
    finite = 0
    for format_name in _FORMATS[name]:
        for kind in KINDS:
            for k in (1, 37, 96):
                case = operands(format_name, format_name, kind, 2, 3, k, 0)
                bound = _bound(case, name)
                finite += int(np.isfinite(bound).sum())
                for way, run in second.WAYS[name].items():
                    assert not _exceeded(_errors(case, run), bound), (format_name, kind, k, way)
    assert finite > 20


#: how near the worst input that is known comes to each bound, for 64 products (of the promoted, for 256)
_REACHED = {
    "tensor_core_13": ("float8_e4m3fn", "hopper", 0.85), "promoted_128": ("float8_e4m3fn", "hopper", 0.85),
    "tensor_core_23": ("float16", "volta", 0.75), "tensor_core_24": ("float16", "ampere, tf32", 0.8),
    "tensor_core_25": ("bfloat16", "hopper, tf32", 0.85), "float32": ("bfloat16", "volta", 0.75),
    "float32_nearest": ("float8_e4m3fn", "chain", 0.95), "float16": ("float16", "chain", 0.9),
    "bfloat16": ("bfloat16", "chain", 0.75),
}  # fmt: skip


def _adversarial(name: str, format_name: str, k: int) -> Operands:
    a, b = adversarial_case(format_name, format_name, 2, 1, k, accumulator_named(name))
    return Operands(format_name, format_name, a.data.tolist(), b.data.tolist())


@pytest.mark.parametrize("name", sorted(_REACHED))
def test_bounds_are_nearly_reached(name: str) -> None:
    format_name, way, least = _REACHED[name]
    case = _adversarial(name, format_name, 256 if name == "promoted_128" else 64)
    errors, bound = _errors(case, second.WAYS[name][way]), _bound(case, name, 0)
    assert not _exceeded(errors, bound)
    ratios = [float(abs(error)) / most for error, most in zip(errors.ravel(), bound.ravel(), strict=True)]
    assert min(ratios) > least, ratios


def test_parts_of_bounds_that_no_known_input_reaches() -> None:
    """The formulas of docs/bounds.md by hand, for P = 1, no joins: growth, CDNA3's floors, float16 by fused steps."""
    k = 2**20
    stored = Fraction(k // 4, 2**24) * Fraction(65, 64)
    cdna3 = Fraction(k + k // 4 + 1, 2**24) + stored
    rdna3 = Fraction(k + k // 2 + 1, 2**22) + Fraction(k // 2, 2**23)
    nearest = Fraction(8193, 2**11) * (1 + Fraction(1, 2**11))
    wanted = {
        ("cdna3", k): cdna3 / (1 - cdna3),
        ("rdna3", k): rdna3 / (1 - rdna3),
        ("float16", 8192): Fraction(8193, 2**13) * (1 + nearest) + Fraction(8192 // 4, 2**11),
    }
    for (name, count), value in wanted.items():
        found = Fraction(float(absolute_error(accumulator_named(name), np.ones(1), count, steps=0)[0]))
        assert value < found < value * Fraction(1002, 1000), name
    # never above what facts/matrix-units.md, section 6, has for the same units
    for name, length, fraction, bits in (("tensor_core_23", 4, 23, 23), ("tensor_core_13", 16, 13, 13)):
        found = absolute_error(accumulator_named(name), np.ones(1), 512, steps=0)[0]
        assert found < 512 // length * ((length + 1) * 2.0**-fraction + 2.0**-bits)


def test_a_subnormal_operand_is_aligned_by_its_format() -> None:
    """2^-9 · 2^8 is aligned as though it were 2^2, and 31 products of nearly 2^-11 are lost: P alone says far less."""
    case = Operands("float8_e4m3fn", "float8_e4m3fn", [[0x01] + [0x0E] * 31], [[0x78] + [0x09] * 31])
    errors = _errors(case, second.WAYS["tensor_core_13"]["hopper"])
    a, b = (values(x) for x in case.coded())
    for name in ("tensor_core_13", "promoted_32"):
        assert not _exceeded(errors, _bound(case, name, 0))
    assert not _exceeded(_errors(case, second.WAYS["float16"]["hopper fp8"]), _bound(case, "float16", 0))
    of_size = absolute_error(accumulator_named("tensor_core_13"), np.abs(a) @ np.abs(b).T, 32, steps=0)
    assert float(abs(errors[0, 0])) > 6 * of_size[0, 0]
    assert largest_exponents(a, b, 2.0**-6, 2.0**-6)[0, 0] == 4


def test_the_sign_of_all_terms() -> None:
    a, b = np.array([[1.0, -2.0], [1.0, 2.0], [0.0, 0.0]]), np.array([[3.0, -1.0], [-1.0, -1.0]])
    assert sign_of_terms(a, b).tolist() == [[1, 0], [0, -1], [1, 1]]
    assert sign_of_terms(a, b, np.full((3, 2), -1.0)).tolist() == [[0, 0], [0, -1], [-1, -1]]
    assert sign_of_terms(a, b, np.full((3, 2), 0.5)).tolist() == [[1, 0], [0, 0], [1, 1]]


def test_what_may_overflow_is_not_bounded() -> None:
    size = np.array([[60000.0, 65504.0, 2.0**127, 1e39]])
    assert np.isinf(absolute_error(accumulator_named("float16"), size, 8)).tolist() == [[False, True, True, True]]
    assert np.isinf(absolute_error(accumulator_named("float32"), size, 8)).tolist() == [[False, False, False, True]]
    assert absolute_error(accumulator_named("int32"), np.array([2.0**31 - 1, 2.0**31]), 8).tolist() == [0, np.inf]
    with pytest.raises(BadInput, match="bounds are derived for 0 to 2\\^20"):
        absolute_error(accumulator_named("float32"), size, 2**20 + 1)
    with pytest.raises(BadInput, match="8 products, -1 joins"):
        absolute_error(accumulator_named("float32"), size, 8, steps=-1)


def test_data_of_one_sign_are_never_above_the_exact_sum() -> None:
    """Of cutting units; where float32 additions join, above by what these round at most; nearest sums do go above."""
    for name, ways in {"tensor_core_13": ("ada", "hopper"), "tensor_core_23": ("volta",)}.items():
        accumulator = accumulator_named(name)
        for k in (33, 96):
            case = operands(_FORMATS[name][0], _FORMATS[name][0], "one sign", 3, 4, k, 1)
            a, b = (values(x) for x in case.coded())
            sign, exact, size = sign_of_terms(a, b), a @ b.T, np.abs(a) @ np.abs(b).T
            assert accumulator.only_cuts
            low, high = one_sided(accumulator, exact, size, k, sign, steps=0)
            for way in ways:
                errors = _errors(case, second.WAYS[name][way])
                assert (errors <= 0).all()
                result = exact + errors.astype(np.float64)
                assert ((low <= result) & (result <= high)).all()
            assert (high < exact).mean() > 0.5  # no number of m bits is the exact sum
            minus = one_sided(accumulator, -exact, size, k, -sign, steps=0)
            assert np.array_equal(minus[0], -high)
            assert np.array_equal(minus[1], -low)
    nearest = _errors(operands("float16", "float16", "one sign", 3, 4, 96, 1), second.WAYS["float32"]["chain"])
    assert (nearest > 0).any()
    assert not accumulator_named("float32").only_cuts


def test_joined_sums_of_one_sign_may_be_above_by_what_the_join_rounds() -> None:
    """2^20 and 3/4 of a unit in its last place, exact in their stretches of 32, are rounded up where they meet."""
    case = Operands("float8_e4m3fn", "float8_e4m3fn", [[0x78] * 16 + [0] * 16 + [0x34]], [[0x78] * 32 + [0x20]])
    a, b = (values(x) for x in case.coded())
    exact, size, accumulator = a @ b.T, np.abs(a) @ np.abs(b).T, accumulator_named("promoted_32")
    error = float(_errors(case, second.WAYS["promoted_32"]["hopper"])[0, 0])
    low, high = one_sided(accumulator, exact, size, 33, sign_of_terms(a, b))
    assert 0 < error <= (high - exact)[0, 0] < absolute_error(accumulator, size, 33)[0, 0] / 1000
    assert (low < exact).all()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_products_with_scales_in_any_association(count: int) -> None:
    """float32 products of numpy, with and without flushing, of reals in an interval known to float64."""
    rng = np.random.default_rng(count)
    for scale in (1.0, 2.0**-70, 2.0**-124):
        x = (rng.standard_normal((4, 5)) * scale).astype(np.float32)
        factors = [rng.uniform(0.5, 3, (4, 5)).astype(np.float32) for _ in range(count)]
        exact = x.astype(np.float64) * np.prod([f.astype(np.float64) for f in factors], axis=0)  # of at most 96 bits
        low, high = after_roundings(exact, exact, count)
        after, before = x, factors[0]
        for factor in factors:
            after = after * factor
        for factor in factors[1:]:
            before = before * factor
        for result in (after, x * before):
            assert ((low <= result) & (result <= high)).all()
            flushed = np.where(np.abs(result) < 2.0**-126, np.copysign(0, result), result)
            assert ((low <= flushed) & (flushed <= high)).all()
    assert (low * high >= 0).all()  # no result changes its sign
    half = np.abs(exact) * (count * 2.0**-25)
    assert np.array_equal(after_roundings(exact, exact, 0)[0], exact)
    assert (high - exact >= half).all()
    assert after_roundings(np.zeros(1), np.zeros(1), count)[1] == 0


def test_sums_of_stretches_in_any_order() -> None:
    """float32 sums of numpy, of any numbers within their intervals; and one that reaches half of the bound."""
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        low = rng.standard_normal((count, 3, 4)).astype(np.float32)
        high = low + np.abs(rng.standard_normal(low.shape)).astype(np.float32) * np.float32(1e-6)
        least, most = summed(low.astype(np.float64), high.astype(np.float64))
        for _ in range(5):
            parts = list(np.where(rng.random(low.shape) < 0.5, low, high)[rng.permutation(count)])
            while len(parts) > 1:
                parts.append(parts.pop(rng.integers(len(parts))) + parts.pop(rng.integers(len(parts))))
            assert ((least <= parts[0]) & (parts[0] <= most)).all()
    lost = np.full((64, 1), 2.0**-24)
    lost[0] = 1
    least, _ = summed(lost, lost)
    assert least[0] <= np.add.accumulate(lost.astype(np.float32))[-1, 0] == 1
    assert 0.95 * (lost.sum() - least[0]) < lost.sum() - 1


def test_sums_of_few_bits_are_exact() -> None:
    known = np.array([[2.0**22 - 1, 2.0**24, 0.0, 1.5], [-0.5, 1.0, 0.0, 2.0**-30]])
    low, high = summed(known, known)
    assert (low == high).tolist() == [True, False, True, False]
    small = summed(np.full((2, 1), 2.0**-130), np.full((2, 1), 2.0**-130))  # may be flushed
    assert small[0][0] <= 0 < 2.0**-129 <= small[1][0]
    assert summed(known, known + 1)[0][2] < summed(known, known + 1)[1][2] - 2


def test_the_least_exact_unit_of_a_target() -> None:
    """By facts/matrix-units.md, sections 2.2, 7 and 8."""
    e4, bf16, i8, fp4 = "float8_e4m3fn", "bfloat16", "int8", "float4_e2m1fn"
    for target, of_eight, of_sixteen in (
        ("", "tensor_core_13", "float32_flushed"), ("gfx90a", "float32", "float32_flushed"),
        ("sm_89", "tensor_core_13", "float32"),
        ("sm_90", "tensor_core_13", "float32"), ("sm_100", "float32", "float32"), ("sm_120", "float32", "float32"),
        ("sm_80", "float32", "float32"), ("gfx942", "float32", "float32"), ("gfx1100", "rdna3", "rdna3"),
        ("host", "float32", "float32"),
    ):  # fmt: skip
        assert least_exact(target, e4, e4).name == of_eight
        assert least_exact(target, "e4m3", "e2m1").name == of_eight
        assert least_exact(target, bf16, bf16).name == least_exact(target, e4, bf16).name == of_sixteen
        assert least_exact(target, fp4, fp4).name == of_sixteen
        assert least_exact(target, i8, "uint4").name == "int32"
    assert {least_exact(t, bf16, bf16).grade for t in ("gfx950", "gfx1201")} == {"assumed"}
    assert {(ACCUMULATORS[n].exact_bits) for n in ("tensor_core_13", "promoted_128")} == {14}
    with pytest.raises(BadInput, match=r"unknown target 'sm90' .* did you mean sm_90"):
        least_exact("sm90", e4, e4)
    with pytest.raises(BadInput, match="unknown accumulator 'fp32'"):
        accumulator_named("fp32")
