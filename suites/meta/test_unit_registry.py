"""Which matrix units there are, what is said of others and of bad input, and the page about them."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.noise import noise
from narrowgauge.reference.units.registry import TARGETS as KNOWN
from narrowgauge.reference.units.registry import UNITS, UNKNOWN, unit_named, units_for
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.schedule import Schedule, gemm
from narrowgauge.suites.meta import second_units as second
from narrowgauge.suites.meta import unit_pages

pytestmark = pytest.mark.meta

E4, E5, BF16, F16, F32 = "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32"


def pattern(*bits: int) -> Coded:
    """[1, n] float32."""
    return Coded(F32, np.array([bits], np.uint32))


def drawn(fmt: str, rows: int, size: int, seed: int) -> Coded:
    values = noise(rows * size, seed).astype(np.float32).reshape(rows, size)
    return cast(Coded(F32, values.view(np.uint32)), fmt, CastPolicy(overflow="max", infinity="max"))


# --- the registry ----------------------------------------------------------------------------------------------------


def test_names_and_targets() -> None:
    """Every target of the suite has units, or is said to be unknown; and the second derivation has every unit."""
    assert all(unit.name == name for name, unit in UNITS.items())
    assert set(TARGETS) <= set(KNOWN)
    assert {*second.UNITS, *second.PAIRWISE, *second.GROUPS, *second.WHOLE} == set(UNITS)
    for unit in UNITS.values():
        assert format_named(unit.out).name == unit.out
        assert all(format_named(name).name == name for name in (*unit.formats, *unit.scales))
        assert bool(unit.scales) == bool(unit.block)


@pytest.mark.parametrize(
    ("target", "fmt", "out", "names"),
    [
        ("sm_90", E4, F32, ["hopper.qgmma", "hopper.mma_fp8"]),
        ("sm_89", E4, F32, ["ada.qmma"]),
        ("sm_100", E4, F32, ["blackwell.tcgen05_fp8", "blackwell.mma_fp8"]),
        ("sm_86", BF16, F32, ["ampere.hmma"]),
        ("sm_90", F32, F32, ["hopper.hmma_tf32", "hopper.hgmma_tf32", "plain.fma"]),
        ("gfx942", "float8_e4m3fnuz", F32, ["cdna3.mfma_fp8"]),
        ("gfx942", E4, F32, ["cdna3.mfma_of_ocp"]),
        ("gfx90a", BF16, F32, ["cdna2.mfma", "cdna2.mfma_bf16_old"]),
        ("gfx1100", F32, F32, ["plain.fma"]),
        ("gfx950", "int8", "int32", ["cdna.mfma_i8"]),
    ],
)
def test_units_of_a_target(target: str, fmt: str, out: str, names: list[str]) -> None:
    assert [unit.name for unit in units_for(target, fmt, fmt, out)] == names


def test_units_that_take_scales() -> None:
    names = [unit.name for unit in units_for("sm_100", E4, E5, F32, "float8_e8m0fnu")]
    assert names == ["blackwell.mxf8f6f4"]
    e2m1 = "float4_e2m1fn"
    assert [u.name for u in units_for("sm_120", e2m1, e2m1, F32, E4)] == ["rtx_blackwell.mxf4nvf4"]


@pytest.mark.parametrize(("target", "fmt"), [(target, gap.formats[0]) for gap in UNKNOWN for target in gap.targets])
def test_an_unknown_unit_is_not_guessed(target: str, fmt: str) -> None:
    with pytest.raises(BadInput, match=rf"how {target} computes .* is not known\. What is: .*narrowgauge probe"):
        units_for(target, fmt, fmt, F32)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("sm_80", E4, E4, F32), "no matrix unit of sm_80 computes .* It has float16, bfloat16 into float32"),
        (("sm_9", F16, F16, F32), "unknown target with matrix units 'sm_9'; did you mean sm_90"),
        (("sm_90", F16, BF16, F32), "no matrix unit of sm_90 computes float16 × bfloat16 into float32"),
        (("sm_90", "fp7", F16, F32), "unknown format 'fp7'"),
        (("sm_90", F16, F16, BF16), "computes float16 × float16 into bfloat16; name"),
    ],
)
def test_what_no_unit_does(asked: tuple[str, str, str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        units_for(*asked)


def test_what_no_unit_does_with_scales() -> None:
    with pytest.raises(BadInput, match="into float32 with scales of float8_e8m0fnu; name"):
        units_for("sm_90", E4, E4, F32, "float8_e8m0fnu")


def test_where_what_is_known_stands() -> None:
    with pytest.raises(BadInput, match=r"\(rocm-systems #12056, .*\)\. Run 'narrowgauge probe'"):
        units_for("gfx1151", F16, F16, F32)
    with pytest.raises(BadInput, match=r"not released\. Run"):
        units_for("gfx1250", F16, F16, F32)


def test_an_unknown_name() -> None:
    with pytest.raises(BadInput, match=r"unknown matrix unit 'hopper\.qgma'; did you mean hopper\.qgmma"):
        unit_named("hopper.qgma")


# --- bad input -------------------------------------------------------------------------------------------------------

QGMMA, MX = unit_named("hopper.qgmma"), unit_named("blackwell.mxf8f6f4")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"k_order": (0, 2)}, "expected every position of one period once"),
        ({"promote_every": 48}, "takes 32 at once"),
        ({"promote_every": -32}, "promote_every=-32"),
        ({"scaled": "stretches"}, "needs promote_every"),
        ({"split_k": 0}, "expected at least 1"),
        ({"unit": unit_named("nvidia.imma"), "promote_every": 16}, "only float32 and float16 are promoted"),
        ({"unit": unit_named("nvidia.dmma"), "split_k": 2}, "gives float64"),
        ({"unit": MX, "scaled": "sum"}, "applies scales itself"),
    ],
)
def test_schedules_that_are_none(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        Schedule(**{"unit": QGMMA, **changed})


@pytest.mark.parametrize(
    ("schedule", "given", "said"),
    [
        (
            Schedule(QGMMA),
            {"b": drawn(E4, 2, 31, 1)},
            r"operands \[3, 32\] and \[2, 31\]; expected \[M, K\] and \[N, K\]",
        ),
        (Schedule(QGMMA), {"b": drawn(BF16, 2, 32, 1)}, "multiplies float8_e4m3fn, float8_e5m2; given"),
        (Schedule(QGMMA), {"c": pattern(0)}, r"addends of float32 \[1, 1\]; expected float32 \[3, 2\]"),
        (Schedule(QGMMA), {"a_scale": pattern(0)}, "says not where they are applied"),
        (Schedule(QGMMA, scaled="sum"), {}, r"scales none; expected \[3, 1\]"),
        (Schedule(QGMMA, scaled="sum"), {"a_scale": pattern(0)}, r"scales \[1, 1\]; expected \[3, 1\]"),
        (Schedule(MX), {}, r"takes scales of float8_e8m0fnu \[3, 1\], one for each 32 elements of k; given none"),
        (Schedule(MX), {"a_scale": pattern(0)}, r"given float32 \[1, 1\]"),
    ],
)
def test_operands_that_do_not_fit(schedule: Schedule, given: dict[str, Coded], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        gemm(schedule, **{"a": drawn(E4, 3, 32, 1), "b": drawn(E4, 2, 32, 2), **given})


def test_addends_are_zeros_where_none_are_given() -> None:
    found = dot(QGMMA, drawn(E4, 3, 32, 1), drawn(E4, 3, 32, 2))
    assert found.shape == (3,)
    assert found.data.tolist() == dot(QGMMA, drawn(E4, 3, 32, 1), drawn(E4, 3, 32, 2), _zeros(3)).data.tolist()


def _zeros(count: int) -> Coded:
    return Coded(F32, np.zeros(count, np.uint32))


def test_dot_products_that_do_not_fit() -> None:
    with pytest.raises(BadInput, match="expected one shape"):
        dot(QGMMA, drawn(E4, 3, 32, 1), drawn(E4, 2, 32, 2))
    with pytest.raises(BadInput, match=r"a schedule applies them after it"):
        dot(QGMMA, drawn(E4, 3, 32, 1), drawn(E4, 3, 32, 2), None, pattern(0))


# --- docs/units.md ---------------------------------------------------------------------------------------------------

needs_docs = pytest.mark.skipif(not unit_pages.PAGE.path.exists(), reason="the package is installed without docs/")


@needs_docs
def test_the_examples_of_the_page_are_right() -> None:
    found = doctest.testfile(str(unit_pages.PAGE.path), module_relative=False)
    assert found.attempted == 6
    assert found.failed == 0
