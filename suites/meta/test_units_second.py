"""Models of matrix units agree with the second derivation, golden vectors with it and with a third program's table."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from narrowgauge.golden import units as golden
from narrowgauge.golden.families import Family
from narrowgauge.golden.manifest import VECTORS, load, load_manifest
from narrowgauge.golden.unit_vectors import VECTORS as NAMED
from narrowgauge.reference.units.registry import UNITS, unit_named
from narrowgauge.reference.units.running import dot
from narrowgauge.suites.meta.mutation import mutants
from narrowgauge.suites.meta.unit_killer import COUNT, SEED, agrees, right
from narrowgauge.suites.meta.unit_mutants import (
    EQUIVALENT,
    MODULES,
    changes,
    name_of,
    other_units,
    survives,
    without_effect,
)
from narrowgauge.suites.meta.unit_sets import Dots, cases, distinct, drawn, golden_dots, wide_dots

pytestmark = pytest.mark.meta

DRAWN = [(unit.name, fmt, scale) for unit in distinct() for fmt, scale in cases(unit)]
FILES = list(golden.families())


def assert_same(dots: Dots) -> None:
    unit = unit_named(dots.unit)
    got = dot(unit, *dots.given)
    where = np.flatnonzero(got.data != dots.want)[:3]
    assert agrees(got, dots, unit.known_nan), [(int(i), hex(int(got.data[i])), hex(int(dots.want[i]))) for i in where]


@pytest.mark.parametrize(("name", "fmt", "scale"), DRAWN)
def test_drawn_dots_agree_with_exact_fractions(name: str, fmt: str, scale: str) -> None:
    assert_same(drawn(unit_named(name), fmt, COUNT, seed=SEED, scale=scale))


@pytest.mark.parametrize(
    "name", ["hopper.qgmma", "hopper.mma_fp8", "cdna3.mfma_fp8", "blackwell.mxf8f6f4", "nvidia.imma"]
)
def test_operands_of_two_formats(name: str) -> None:
    unit = unit_named(name)
    for one, other in zip(unit.formats, unit.formats[1:], strict=False):
        assert_same(drawn(unit, one, COUNT, seed=7, scale="".join(unit.scales), other=other))


def test_float64_agrees_with_exact_fractions() -> None:
    for unit in distinct():
        if unit.out == "float64":
            assert_same(wide_dots(unit))


@pytest.mark.parametrize(("rule", "out"), FILES)
def test_golden_vectors_agree_with_exact_fractions(rule: str, out: str) -> None:
    for dots in golden_dots(rule, out):
        assert_same(dots)


@pytest.mark.parametrize(("rule", "out"), FILES)
def test_golden_files_are_what_is_made(rule: str, out: str) -> None:
    family = Family("unit", rule, out)
    stored, made = load(family, VECTORS), golden.tensors_of(rule, out)
    assert stored.keys() == made.keys()
    for name, tensor in made.items():
        np.testing.assert_array_equal(stored[name].data, tensor.data)
    entry = load_manifest(VECTORS)["files"][f"{family.name}.safetensors"]
    assert entry["flags"] == golden.flags(rule, out, made)
    assert all(unit.name in entry["authority"] for unit in golden.units_of(rule, out))


def test_vectors_are_named_once_and_every_unit_has_some() -> None:
    names = [vector.name for vector in NAMED]
    assert len(set(names)) == len(names) >= 30
    assert {unit.name for rule, out in FILES for unit in golden.units_of(rule, out)} == {
        name for name, unit in UNITS.items() if unit.out != "float64"
    }


def test_units_of_other_arithmetic_are_told_apart() -> None:
    """Any two units that take the same operands and compute differently differ on some vector."""
    alike = []
    for rule, out in FILES:
        units = golden.units_of(rule, out)
        made = golden.tensors_of(rule, out)
        for i, one in enumerate(units):
            for other in units[i + 1 :]:
                same = (made[one.name].data == made[other.name].data).all()
                if same and (one.family, one.through) != (other.family, other.through):
                    alike.append((rule, out, one.name, other.name))
    assert alike == []


# --- a third program -------------------------------------------------------------------------------------------------

VOLTA, AMPERE, HOPPER = "volta.hmma", "ampere.hmma", "hopper.hmma"
CDNA1, CDNA2, CDNA3 = "cdna1.mfma_f16", "cdna2.mfma", "cdna3.mfma"
CDNA1_B, CDNA2_OLD, CDNA3_8 = "cdna1.mfma_bf16", "cdna2.mfma_bf16_old", "cdna3.mfma_fp8"
ADA_8, HOPPER_8, SPLIT = "ada.qmma", "hopper.qgmma", "hopper.mma_fp8"
B200_8, RTX_8 = "blackwell.tcgen05_fp8", "rtx_blackwell.qmma"
NVIDIA, CDNA = (VOLTA, AMPERE, HOPPER), (CDNA1, CDNA2, CDNA3)
THIRTEEN, WIDE_8 = (ADA_8, HOPPER_8), (SPLIT, B200_8, RTX_8, CDNA3_8)
BF16 = (AMPERE, HOPPER, CDNA1_B, CDNA2, CDNA3)
#: by vector and format the codes that a program of other people gave, which was compared with mmasim 2.1.1
TABLE: dict[tuple[str, str], dict[int, tuple[str, ...]]] = {
    ("addend_23", "float16"): {
        0x00000000: (VOLTA, CDNA2), 0xBF000000: ("turing.hmma", AMPERE, "ada.hmma", CDNA3),
        0xBF400000: (HOPPER, "blackwell.hmma"), 0xBF600000: (CDNA1,),
    },
    ("addend_23", "bfloat16"): {
        0xBF000000: (AMPERE, CDNA3), 0xBF400000: (HOPPER,), 0xBF600000: (CDNA1_B,), 0x00000000: (CDNA2,),
        0xBEC00000: (CDNA2_OLD,),
    },
    ("addend_23", "float8_e5m2"): {0x00000000: (*THIRTEEN, SPLIT), 0xBF400000: (B200_8, RTX_8)},
    ("addend_23", "float8_e5m2fnuz"): {0xBF800000: (CDNA3_8,)},
    ("thirteen_bits", "float8_e4m3fn"): {0x43800000: THIRTEEN, 0x43803E00: WIDE_8[:3]},
    ("thirteen_bits", "float8_e4m3fnuz"): {0x43803E00: (CDNA3_8,)},
    ("thirteen_bits_less", "float8_e4m3fn"): {0xC3807C00: THIRTEEN, 0xC380BA00: WIDE_8[:3]},
    ("thirteen_bits_less", "float8_e4m3fnuz"): {0xC380BA00: (CDNA3_8,)},
    ("above_one", "float16"): {0x3F800000: NVIDIA, 0x3F800001: CDNA},
    ("below_minus_one", "float16"): {0xBF800000: NVIDIA, 0xBF800001: CDNA},
    ("steps_of_8", "float16"): {
        0x00000000: (VOLTA,), 0x34C00000: (AMPERE, CDNA2), 0x34E00000: (HOPPER,), 0x35000000: (CDNA1, CDNA3),
    },
    ("steps_of_4", "float16"): {
        0x00000000: (VOLTA,), 0x39C00000: (AMPERE, HOPPER, CDNA3), 0x3A000000: (CDNA1,), 0x39800000: (CDNA2,),
    },
    ("subnormal_in", "float16"): {0x00000000: (CDNA2,), 0x33800000: (*NVIDIA, CDNA1, CDNA3)},
    ("subnormal_out", "bfloat16"): {0x00000000: (CDNA2,), 0x00400000: (AMPERE, HOPPER, CDNA1_B, CDNA3)},
    ("wide_product", "bfloat16"): {0x00000000: (AMPERE, HOPPER, CDNA1_B), 0x7FC00000: (CDNA2, CDNA3)},
    ("overflow", "bfloat16"): {0x7F7FFFFF: (AMPERE, HOPPER), 0x7F800000: (CDNA1_B, CDNA2, CDNA3)},
    ("addend_alone", "float8_e4m3fn"): {0x3F800000: THIRTEEN, 0x3F800200: WIDE_8[:3]},
    ("addend_alone", "float8_e4m3fnuz"): {0x3F800200: (CDNA3_8,)},
    ("inner_split", "float8_e5m2"): {0x39800000: (SPLIT, "blackwell.mma_fp8"), 0x00000000: (*THIRTEEN, B200_8)},
    ("odd_and_even", "float8_e5m2fnuz"): {0xBA800000: (CDNA3_8,)},
    ("odd_and_even", "float8_e5m2"): {0x00000000: (*THIRTEEN, *WIDE_8[:3])},
    ("even_alone", "float8_e5m2"): {0x00000000: (*THIRTEEN, *WIDE_8[:3])},
    ("even_alone", "float8_e5m2fnuz"): {0x00000000: (CDNA3_8,)},
    ("swamped_at_16", "float8_e5m2"): {0x00000000: THIRTEEN, 0x3E400000: WIDE_8[:3]},
    ("swamped_at_16", "float8_e5m2fnuz"): {0x3E400000: (CDNA3_8,)},
    ("tf32_operand", "float32"): {
        0x3F800000: ("ampere.hmma_tf32", "hopper.hmma_tf32", "cdna3.mfma_xf32"), 0x3F801800: ("plain.fma",),
    },
    ("zero_exponent_158", "bfloat16"): {
        0x00000001: (AMPERE, "ada.hmma", CDNA1_B, CDNA3), 0x00000000: (HOPPER, "blackwell.hmma", CDNA2),
    },
    ("zero_exponent_159", "bfloat16"): {0x00000001: (AMPERE, HOPPER), 0x00000000: (CDNA2,)},
    ("float16_tie", "float16"): {0x6800: ("volta.hmma_f16", "ampere.hmma_f16", "hopper.hmma_f16")},
    ("float16_overflow", "float16"): {
        0x7C00: ("volta.hmma_f16", "ampere.hmma_f16"), 0x7BFF: ("hopper.hmma_f16", "blackwell.hmma_f16"),
    },
    ("infinities", "float16"): {0x7FFFFFFF: NVIDIA, 0x7FC00000: CDNA},
    ("below_one", "float8_e4m3fn"): {0x3F7FFFFF: (B200_8,), 0x3F800000: (*THIRTEEN, SPLIT)},
    ("below_one", "float8_e4m3fnuz"): {0x3F7FFFFF: (CDNA3_8,)},
    ("floored_addend", "bfloat16"): {0x447FFFFF: (CDNA3,), 0x44800000: BF16[:4]},
    ("mx_scales", "float8_e4m3fn"): {0x43803E00: ("blackwell.mxf8f6f4",)},
    ("mx_wide", "float8_e4m3fn"): {0x00000000: ("blackwell.mxf8f6f4",)},
    ("mx_subnormal", "float8_e4m3fn"): {0x00000004: ("blackwell.mxf8f6f4",)},
    ("mx_overflow", "float8_e4m3fn"): {0x7F800000: ("blackwell.mxf8f6f4",)},
    ("mx_nan", "float8_e4m3fn"): {0x7FFFFFFF: ("blackwell.mxf8f6f4",)},
    ("mxf4_35", "float4_e2m1fn"): {0x2E000000: ("blackwell.mxf4nvf4",)},
    ("mxf4_36", "float4_e2m1fn"): {0x00000000: ("blackwell.mxf4nvf4",)},
}  # fmt: skip


@pytest.mark.parametrize(("name", "fmt"), TABLE)
def test_values_that_others_computed(name: str, fmt: str) -> None:
    (vector,) = [v for v in NAMED if v.name == name]
    rule = f"{fmt}.{vector.scale}" if vector.scale else fmt
    made = golden.tensors_of(rule, vector.out)
    row = golden.vectors_of(rule, vector.out).index(vector)
    for code, units in TABLE[name, fmt].items():
        assert {unit: hex(int(made[unit].data[row])) for unit in units} == dict.fromkeys(units, hex(code))


# --- mutants ---------------------------------------------------------------------------------------------------------


def test_other_parameters_are_noticed() -> None:
    """Each parameter of each unit, one up and one down; where none notices, the reason says why none can."""
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for unit in distinct():
            for what, other in other_units(unit):
                if right(other, unit.name) != bool(without_effect(unit, what)):
                    wrong.append((unit.name, what))
    assert wrong == []


def test_changes_that_nobody_can_notice_still_exist() -> None:
    """A stale entry would excuse something else later."""
    made = {name_of(mutant) for module in MODULES for mutant in mutants(module)}
    assert EQUIVALENT - made == set()


def test_some_changes_of_the_code_are_noticed() -> None:
    """A few of all, which ``python -m narrowgauge.suites.meta.unit_mutants`` tries."""
    made = list(changes())
    assert len(made) > 200
    assert [str(mutant) for mutant in made[7 :: len(made) // 5] if survives(mutant)] == []
