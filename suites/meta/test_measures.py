"""The measures against exact fractions, by hand where hands suffice, and the article's row of 4,096 values."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.recipe import Destination, less
from narrowgauge.reference import measures
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.dequantized import dequantized
from narrowgauge.reference.measures import KINDS, Measured, Measures, measure
from narrowgauge.reference.noise import noise, scrambled
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.second_derivation import Number, decode, whole_number
from narrowgauge.suites.meta.second_measures import Element, Sums, measured, reader_of, real

pytestmark = pytest.mark.meta

Array = npt.NDArray[np.float32]


def coded(x: Array) -> Coded:
    return Coded("float32", np.ascontiguousarray(x, np.float32).view(np.uint32))


def one(value: float, format: str = "float32") -> Coded:
    if format == "int32":
        return Coded(format, np.array([[int(value)]], np.int32).view(np.uint32))
    return coded(np.array([[value]], np.float32))


def given_for(recipe: str) -> dict[str, Coded]:
    """Inputs of such sizes that something clips."""
    values = {"scale": 0.0103, "global_scale": 331.7, "upper_bound": 1.3, "zero_point": -9}
    return {name: one(values[name], "int32" if name == "zero_point" else "float32") for name in RECIPES[recipe].inputs}


def rows(special: bool = True) -> Array:
    """[8, 128]: noise at several magnitudes, zeros, specials, subnormals, one outlier, elements on powers of two."""
    x = noise(8 * 128, 11).reshape(8, 128).astype(np.float32)
    x[1] *= np.float32(2.0**-10)
    x[2, :40] = 0
    if special:  # which leaves nothing of a tensor that shares one scale
        x[3, 5], x[3, 70], x[3, 100] = np.nan, np.inf, -np.inf
    x[4] = np.float32(2.0**-140) * np.arange(128, dtype=np.float32)
    x[5, 17] = 600
    x[6] = np.ldexp(np.float32(1), np.arange(128) % 24 - 12)
    x[7] = np.where(np.arange(128) % 2, x[7], -np.abs(x[7]))
    return x


#: one of each way in which codes are read, and of each granularity
CASES = [
    ("vllm.fp8_per_token_dynamic", "float8_e4m3fnuz"),
    ("vllm.fp8_static_tensor", "float8_e4m3fn"),
    ("vllm.fp8_per_tensor_dynamic", "float8_e4m3fn"),
    ("vllm.fp8_block", "float8_e4m3fn"),
    ("ocp.mxfp8_e5m2", "float8_e5m2"),
    ("ocp.mxfp6_e2m3", "float6_e2m3fn"),
    ("ocp.mxfp4", "float4_e2m1fn"),
    ("ocp.mxint8", "int8"),
    ("nvidia.nvfp4_divisor", "float4_e2m1fn"),
    ("nvidia.nvfp4_multiplier", "float4_e2m1fn"),
    ("vllm.nvfp4_emulated", "float4_e2m1fn"),
    ("vllm.int8_static_tensor", "int8"),
    ("vllm.int8_static_azp", "int8"),
    ("vllm.int8_per_token_dynamic_azp", "int8"),
    ("compressed_tensors.int8_channel", "int8"),
    ("compressed_tensors.int4_channel", "int4"),
]


def of_blocks(recipe: str, format: str, x: Coded, outputs: dict[str, Coded], given: dict[str, Coded]) -> list[Sums]:
    """The exact measures of every block, in the order of the grid."""
    every, blocks, shape = given | outputs, RECIPES[recipe].blocks, x.data.shape
    each = blocks.rows or shape[0], blocks.columns or shape[1]
    found = []
    for i, top in enumerate(range(0, shape[0], each[0])):
        for j, left in enumerate(range(0, shape[1], each[1])):
            where = np.s_[top : top + each[0], left : left + each[1]]

            def number(name: str, absent: int, i: int = i, j: int = j) -> Number:
                if name not in every:
                    return whole_number(absent)
                data = every[name].data
                code = int(data[min(i, data.shape[0] - 1), min(j, data.shape[1] - 1)])
                if name == "zero_point":
                    return whole_number(code - (1 << 32) if code >> 31 else code)
                return decode(code, every[name].format)

            numbers = number("scale", 1), number("global_scale", 1), real(number("zero_point", 0))
            pairs = zip(x.data[where].ravel(), outputs["codes"].data[where].ravel(), strict=True)
            elements = [Element(decode(int(a), "float32"), int(b), *numbers) for a, b in pairs]
            bound = Fraction(RECIPES[recipe].destination(format).bound)
            found.append(measured(elements, recipe, format, bound))
    return found


def agrees(got: Measured, want: Sums) -> None:
    """Counts and the largest error in ulps; energies but for what float64 loses.

    A term is a square of a difference of numbers that are rounded to float64 at most twice, and at least 2^-27 of
    them (codes have at most 8 bits, x 24: an error that is not zero is no smaller): it is off by less than 2^-23
    where a reader divides, and by 2^-51 where all is exact. A sum of n such terms, none negative, adds n 2^-53.
    """
    counts = {kind: count for kind, count in got.counts.items() if count}
    assert counts == want.counts
    assert math.isclose(got.signal, want.signal, rel_tol=1e-12)
    for kind in KINDS:
        assert math.isclose(got.noise[kind], want.noise.get(kind, Fraction(0)), rel_tol=2e-7)
    assert math.isclose(got.max_ulp, want.max_ulp, rel_tol=2e-7)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(("recipe", "format"), CASES)
def test_measures_are_those_of_exact_fractions(recipe: str, format: str, special: bool) -> None:
    x, given = coded(rows(special)), given_for(recipe)
    outputs = quantize(x, RECIPES[recipe], format, given=given)
    found = measure(x, outputs, RECIPES[recipe], format, given)
    want = of_blocks(recipe, format, x, outputs, given)
    grid = RECIPES[recipe].blocks.grid(*x.shape)
    assert found.signal.shape == grid
    for number, sums in enumerate(want):
        agrees(found.block(number // grid[1], number % grid[1]), sums)
    assert sum(found.tensor.counts.values()) == x.data.size
    assert found.tensor.counts == {
        kind: sum(s.counts.get(kind, 0) for s in want) for kind in found.tensor.counts
    }  # fmt: skip
    error = sum((e for s in want for e in s.noise.values()), Fraction(0))
    signal = sum((s.signal for s in want), Fraction(0))
    assert error or special
    assert not error or abs(found.tensor.sqnr - 10 * math.log10(signal / error)) < 1e-6


@pytest.mark.parametrize(("recipe", "format"), CASES)
def test_bands_are_no_matter(recipe: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at row by row (or block by block of rows), the same comes out but for the order of a sum."""
    x, given = coded(np.tile(rows(False), (40, 1))), given_for(recipe)
    outputs = quantize(x, RECIPES[recipe], format, given=given)
    whole = measure(x, outputs, RECIPES[recipe], format, given)
    monkeypatch.setattr(measures, "_BAND", 128)
    parts = measure(x, outputs, RECIPES[recipe], format, given)
    for kind, count in whole.counts.items():
        np.testing.assert_array_equal(parts.counts[kind], count)
    np.testing.assert_array_equal(parts.max_ulp, whole.max_ulp)
    np.testing.assert_allclose(parts.signal, whole.signal, rtol=1e-12)  # 5,120 terms, none negative: 5,120 · 2^-53


def test_unsigned_codes_end_at_zero() -> None:
    """Weights to uint4 with a zero point of 8, as GPTQ stores them: 0 stands for -8 steps, 15 for 7."""
    recipe = replace(
        RECIPES["vllm.int8_static_tensor"],
        destinations=(Destination("uint4", 15, "integer_nearest"),),
        element=("x", ("div", "scale"), "rint", ("add", 8.0)),
        reader=less(8.0),
    )
    x, given = coded(np.array([[-8.0, -8.5, -9.0, 7.0, 7.5, 8.0, 0.25, 0.0, -1.0]], np.float32)), {"scale": one(1.0)}
    outputs = quantize(x, recipe, "uint4", given=given)
    assert outputs["codes"].data.tolist() == [[0, 0, 0, 15, 15, 15, 8, 8, 7]]
    assert dequantized(outputs, recipe, given).tolist() == [[-8, -8, -8, 7, 7, 7, 0, 0, -1]]
    found = measure(x, outputs, recipe, "uint4", given).tensor
    assert {kind: n for kind, n in found.counts.items() if n} == {"exact": 4, "clipped": 2, "flushed": 1, "rounded": 2}


def test_the_cases_hold_every_kind() -> None:
    """Else the comparison above proves nothing of it."""
    seen = dict.fromkeys((*KINDS, "not_finite", "lost"), 0)
    for recipe, format in CASES:
        given = given_for(recipe)
        outputs = quantize(coded(rows()), RECIPES[recipe], format, given=given)
        for kind, count in measure(coded(rows()), outputs, RECIPES[recipe], format, given).tensor.counts.items():
            seen[kind] += count
    assert min(seen.values()) > 20


def by_hand(x: list[float], scale: float, format: str = "float8_e4m3fn") -> Measured:
    recipe, given = RECIPES["vllm.fp8_static_tensor"], {"scale": one(scale)}
    outputs = quantize(coded(np.array([x], np.float32)), recipe, format, given=given)
    return measure(coded(np.array([x], np.float32)), outputs, recipe, format, given).tensor


def test_kinds_by_hand() -> None:
    """Scale 1: 448 is the last code, its step 32. 464 is half a step beyond and is rounded; 480 is clipped."""
    got = by_hand([448.0, 464.0, 480.0, -1000.0, 2.0**-10, 2.0**-9, 1.0625, 0.0, math.nan, math.inf], 1.0)
    assert got.counts == {"exact": 3, "clipped": 2, "flushed": 1, "rounded": 2, "not_finite": 2, "lost": 0}
    assert got.noise == {"exact": 0, "clipped": 32.0**2 + 552.0**2, "flushed": 2.0**-20, "rounded": 256 + 2.0**-8}
    assert got.max_ulp == 552 / 32
    assert got.share("clipped") > 0.999


def test_bound_of_an_engine_is_the_end() -> None:
    """vLLM holds FNUZ to 224, whose step is 16: 230 is rounded to it, 240, a value of the format, is clipped."""
    got = by_hand([230.0, 240.0, -240.0], 1.0, "float8_e4m3fnuz")
    assert (got.counts["rounded"], got.counts["clipped"]) == (1, 2)


def test_a_tensor_without_error_and_one_without_signal() -> None:
    exact = by_hand([1.0, 2.0, 0.0], 1.0)
    assert exact.sqnr == math.inf
    assert exact.to_json()["sqnr_db"] is None
    assert exact.to_json()["error"] == 0
    assert by_hand([], 1.0).counts == dict.fromkeys(exact.counts, 0)


def test_an_element_that_is_lost_is_counted_and_no_number() -> None:
    """NaN in a block of MX makes its scale NaN, and 31 finite elements with it."""
    x = np.ones((1, 64), np.float32)
    x[0, 3] = np.nan
    recipe = RECIPES["ocp.mxfp8_e4m3"]
    outputs = quantize(coded(x), recipe, "float8_e4m3fn")
    found = measure(coded(x), outputs, recipe, "float8_e4m3fn")
    assert found.tensor.counts == {
        "exact": 32, "clipped": 0, "flushed": 0, "rounded": 0, "not_finite": 1, "lost": 31,
    }  # fmt: skip
    assert found.block(0, 1).counts["exact"] == 32
    assert found.tensor.sqnr == math.inf


@pytest.mark.parametrize("recipe", list(RECIPES))
def test_every_recipe_comes_back(recipe: str) -> None:
    """Reader and recipe fit together: numbers that a block holds well, from 1 to 1.5 of both signs, come back.

    A recipe whose reader is off by a factor, or by a zero point, fails here. What is not clipped is within a step and
    a half: what is cut instead of rounded is a whole step off, and a scale may be stored in few bits. Recipes that
    round their scale down clip up to half of an element.
    """
    entry = RECIPES[recipe]
    magnitudes = 1 + np.abs(noise(128 * 128, 5)).reshape(128, 128) / 8
    x = coded((magnitudes * np.where(noise(128 * 128, 6).reshape(128, 128) < 0, -1, 1)).astype(np.float32))
    for destination in entry.destinations:
        given = calibrated(x, entry, destination.format, {})
        outputs = quantize(x, entry, destination.format, given=given)
        ratio = dequantized(outputs, entry, given) / x.data.view(np.float32)
        found = measure(x, outputs, entry, destination.format, given).tensor
        assert 0.5 <= ratio.min() <= 1.1, "none is lost, none is doubled"
        assert 0.7 <= ratio.max() <= 1.4
        assert found.max_ulp <= 1.5 or found.counts["clipped"]


# --- the article's row: 4,096 values, an outlier of 600 --------------------------------------------------------------


def row_of_600() -> Array:
    """Magnitudes 0.5 to 2, a quarter of them 0.01, one outlier: seeds 002, "Worked example"."""
    row = np.concatenate([np.linspace(0.5, 2, 3070), np.full(1024, 0.01), [0.003], [600.0]])
    return row.astype(np.float32)[None, :]


def of_row(x: Array, format: str, scale: float) -> tuple[npt.NDArray[np.float64], Measures]:
    """What a row becomes with one scale: of E4M3 by vLLM's recipe; E5M2 has no recipe of a tensor's own scale, so the
    same steps by hand."""
    recipe = replace(
        RECIPES["sglang.fp8_native_static_tensor"],
        destinations=(
            Destination("float8_e4m3fn", 448, "ocp_saturate"),
            Destination("float8_e5m2", 57344, "ocp_saturate"),
        ),
    )
    given = {"scale": one(scale)}
    outputs = quantize(coded(x), recipe, format, given=given)
    return dequantized(outputs, recipe, given)[0], measure(coded(x), outputs, recipe, format, given)


def test_the_row_of_600_in_e4m3() -> None:
    """s = 600/448; 0.01 stands at 0.00747, a subnormal, comes back 4 steps of 2^-9: 4.6 % off; 0.003: 12.8 %."""
    x = row_of_600()
    back, found = of_row(x, "float8_e4m3fn", 600 / 448)
    s = np.float64(np.float32(600 / 448))
    assert back[3071] == 4 * 2.0**-9 * s
    assert back[4094] == 2.0**-9 * s
    assert [f"{abs(back[i] - x[0, i]) / x[0, i]:.1%}" for i in (3071, 4094)] == ["4.6%", "12.8%"]
    assert back[4095] == np.float64(448 * s)
    assert max(abs(back[:3070] - x[0, :3070]) / x[0, :3070]) <= 1 / 17  # half a step of 1/8 above 1 is 1/17 of 17/16
    assert found.tensor.counts["clipped"] == found.tensor.counts["flushed"] == 0


def test_the_row_of_600_in_both_formats() -> None:
    """The article: E5M2's SQNR is worse. Its "12.5 %" is half of a step of a quarter: 1/9 at most; small values
    improve from 12.8 % to 9 %, and 0.01 not at all."""
    x = row_of_600()
    e4m3, e5m2 = (of_row(x, f, 600 / top) for f, top in (("float8_e4m3fn", 448), ("float8_e5m2", 57344)))
    got = {name: f"{one_.tensor.sqnr:.1f}" for name, one_ in (("e4m3", e4m3[1]), ("e5m2", e5m2[1]))}
    assert got == {"e4m3": "49.6", "e5m2": "43.5"}
    assert f"{abs(e5m2[0][4094] - 0.003) / 0.003:.1%}" == "9.0%"
    assert math.isclose(e5m2[0][3071], e4m3[0][3071], rel_tol=1e-7)
    assert 1 / 10 < max(abs(e5m2[0][:3070] - x[0, :3070]) / x[0, :3070]) <= 1 / 9
    rest = [1 - (np.square(b[:4095] - x[0, :4095]).sum() / np.square(x[0, :4095]).sum()) for b, _ in (e4m3, e5m2)]
    assert rest[0] > rest[1]


def test_reading_by_hand() -> None:
    """The longest name wins, and the plain reading is one product."""
    two, three = Fraction(2), Fraction(3)
    assert reader_of("vllm.fp8_group")(two, three, Fraction(5), Fraction(7)) == 6
    assert reader_of("vllm.nvfp4")(two, three, Fraction(5), Fraction(7)) == Fraction(6, 5)


def test_the_page_has_these_numbers() -> None:
    """docs/measures.md: the row in an order without pattern, under five recipes."""
    row = row_of_600()[0]
    row = row[np.argsort(scrambled(row.size, 7))][None, :]
    text = (Path(narrowgauge.__file__).parents[1] / "docs" / "measures.md").read_text()
    small = [int(np.flatnonzero(row[0] == np.float32(v))[0]) for v in (0.01, 0.003)]
    others = row[0] != 600

    def line(name: str, back: npt.NDArray[np.float64], found: Measures) -> str:
        exact = row[0].astype(np.float64)
        rest = 10 * math.log10(np.square(exact[others]).sum() / np.square(back - exact)[others].sum())
        off = [f"{abs(back[i] - exact[i]) / exact[i]:.1%}".replace("%", " %") for i in small]
        flushed = found.tensor.counts["flushed"]
        return f"| {name} | {found.tensor.sqnr:.1f} dB | {abs(rest):.1f} dB | {flushed:,} | {off[0]} | {off[1]} |"

    lines = []
    for name in ("vllm.fp8_per_tensor_dynamic", "vllm.int8_per_token_dynamic", "vllm.int8_group", "ocp.mxfp4"):
        recipe = RECIPES[name]
        format = recipe.destinations[0].format
        outputs = quantize(coded(row), recipe, format)
        back = dequantized(outputs, recipe)[0]
        lines.append(line(name, back, measure(coded(row), outputs, recipe, format)))
    lines.insert(1, line("the same to float8_e5m2", *of_row(row, "float8_e5m2", 600 / 57344)))
    assert "\n".join(lines) in text
