"""Which products AMD's code generator fuses with a sum: the rule, its check against AMDGCN text, an open one."""

from __future__ import annotations

import random
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, llvm_ir
from narrowgauge.devices.emulator.llvm_fusion import additions
from narrowgauge.suites.meta.llvm_program import FRAME, f32, inputs, output, run

pytestmark = pytest.mark.meta

#: a product that is not exact in float32, and a number near it: fused and separate sums differ
A, B = 1 + 2.0**-12, 1 + 2.0**-12
C = -(1 + 2.0**-11)
ONCE = float(Fraction(A) * Fraction(B) + Fraction(C))  # 2^-24
TWICE = float(np.float32(np.float32(A) * np.float32(B)) + np.float32(C))  # 0


def _sum(line: str, *, target: str = "gfx942", product: str = "fmul float %a, %b", c: float = C) -> float:
    before_last = f"  %m = {product}\n"
    (pattern,) = apply_with(before_last, line, target, c)
    return float(np.uint32(pattern).view(np.float32))


def apply_with(before: str, line: str, target: str, c: float) -> list[int]:
    columns = (f32(A), f32(B), f32(c))
    body = "\n".join([inputs("float", 3), before, f"  %r = {line}", output("float")])
    return [int(v) for v in run(body, *columns, target=target)]


def test_the_two_sums_differ() -> None:
    assert (ONCE, TWICE) == (2.0**-24, 0.0)


@pytest.mark.parametrize(
    ("line", "c", "want"),
    [
        ("fadd float %m, %c", C, ONCE),
        ("fadd float %c, %m", C, ONCE),
        ("fsub float %m, %c", -C, ONCE),
        ("fsub float %c, %m", -C, -ONCE),
    ],
)
def test_a_product_is_fused_on_either_side(line: str, c: float, want: float) -> None:
    assert _sum(line, c=c) == want


@pytest.mark.parametrize(
    ("line", "c", "want"),
    [("fadd float %n, %c", -C, -ONCE), ("fsub float %n, %c", C, -ONCE), ("fsub float %c, %n", C, ONCE)],
)
def test_a_negated_product_is_a_product(line: str, c: float, want: float) -> None:
    assert _sum(line, product="fmul float %a, %b\n  %n = fneg float %m", c=c) == want


def test_without_fusion_both_round() -> None:
    body = "\n".join([inputs("float", 3), "  %m = fmul float %a, %b\n  %r = fadd float %m, %c", output("float")])
    (pattern,) = run(body, f32(A), f32(B), f32(C), fusion=False)
    assert np.uint32(pattern).view(np.float32) == TWICE


@pytest.mark.parametrize("line", ["fadd float %m, %k", "fsub float %m, %k"])
def test_of_two_products_the_left_one(line: str) -> None:
    """Where neither is used elsewhere; else both ways are tried (test_emulator_llvm_fusion.py)."""
    sign = 1 if line.startswith("fadd") else -1
    a, b, c = _telling(sign)
    columns = (f32(a), f32(b), f32(c))
    before = "  %m = fmul float %a, %b\n  %k = fmul float %b, %c"
    (pattern,) = run("\n".join([inputs("float", 3), before, f"  %r = {line}", output("float")]), *columns)
    assert np.uint32(pattern).view(np.float32) == _fused(a, b, c, sign)[0]


def _fused(a: float, b: float, c: float, sign: int) -> tuple[float, float, float]:
    """a * b ± b * c with the left product exact, the right one, or none."""
    exact = Fraction(a) * Fraction(b), Fraction(b) * Fraction(c)
    rounded = [Fraction(float(np.float32(float(x)))) for x in exact]
    sums = exact[0] + sign * rounded[1], rounded[0] + sign * exact[1], rounded[0] + sign * rounded[1]
    left, right, none = (float(np.float32(float(x))) for x in sums)
    return left, right, none


def _telling(sign: int) -> tuple[float, float, float]:
    """Three float32 with which all three ways differ."""
    draw = random.Random(1)
    while True:
        a, b = (float(np.float32(draw.uniform(1, 2))) for _ in range(2))
        c = float(np.float32(-sign * a * (1 + draw.randint(-8, 8) * 2.0**-23)))
        if len(set(_fused(a, b, c, sign))) == 3:
            return a, b, c


@pytest.mark.parametrize(
    ("target", "want"), [("gfx942", TWICE), ("gfx950", TWICE), ("gfx1100", ONCE), ("gfx1201", ONCE)]
)
def test_a_part_of_a_vector_is_a_product_where_vectors_are_taken_apart(target: str, want: float) -> None:
    vector = """  %v0 = insertelement <2 x float> poison, float %a, i64 0
  %v = insertelement <2 x float> %v0, float %a, i64 1
  %m = fmul <2 x float> %v, %v
  %e = extractelement <2 x float> %m, i64 0
"""
    (pattern,) = apply_with(vector, "fadd float %e, %c", target, C)
    assert np.uint32(pattern).view(np.float32) == want


def test_a_product_of_another_block_is_not_fused() -> None:
    body = "\n".join(
        [inputs("float", 3), "  %m = fmul float %a, %b\n  br label %next\nnext:", "  %r = fadd float %m, %c"]
    )
    (pattern,) = run(body + "\n" + output("float"), f32(A), f32(B), f32(C))
    assert np.uint32(pattern).view(np.float32) == TWICE


# --- the check -------------------------------------------------------------------------------------------------------


def test_additions_are_counted_by_kind() -> None:
    text = """
	v_add_f32_e32 v1, v2, v3 ; v_add_f32 in a comment
	v_pk_add_f32 v[0:1], v[2:3], v[4:5]
	v_subrev_f16_e32 v1, v2, v3
	v_add_f32_dpp v11, v11, v11 row_shr:8
	v_dual_add_f32 v2, v2, v3 :: v_dual_sub_f32 v3, v4, v5
	s_sub_f32 s3, 1.0, s13
	v_add_f64 v[0:1], v[0:1], v[2:3]
	v_add_u32_e32 v1, v2, v3
	v_fma_f32 v1, v2, v3, v4
	v_dual_fmac_f32 v4, v5, v4 :: v_dual_add_nc_u32 v17, s2, v1
"""
    assert additions(text) == {"f32": 1 + 2 + 1 + 2 + 1, "f16": 1, "f64": 1}


def _kernel(body: str) -> str:
    return FRAME.format(columns=1, body=body, denormals="ieee")


ONE = "\tv_add_f32_e32 v1, v2, v3"
PRODUCT = "  %m = fmul float 1.0, 3.0\n  %r = fadd float %m, 1.0"
DOUBLED = "  %m = fmul float 3.0, 2.0\n  %k = fmul float 3.0, 3.0\n  %r = fadd float %k, %m"


@pytest.mark.parametrize(
    ("body", "amdgcn", "settled"),
    [
        (PRODUCT, "", True),
        (PRODUCT, ONE, False),
        (f"{PRODUCT}\n  %s = fadd float %r, 1.0", ONE, True),
        ("  %r = fadd float 3.0, 1.0", f"{ONE}\n{ONE}", True),  # no sum of a product: nothing to settle
        (DOUBLED, ONE, True),  # twice a number is a sum
        (f"{PRODUCT}\n  %e = call float @llvm.exp2.f32(float %r)", ONE, True),  # written out with one addition
        (f"{PRODUCT}\n  %e = call float @llvm.exp10.f32(float %r)", "", False),  # with how many is not known
    ],
)
def test_the_rule_is_held_to_the_additions_that_are_left(body: str, amdgcn: str, settled: bool) -> None:
    assert llvm_ir.parse(_kernel(body), "gfx942", 64).products.settled(amdgcn) is settled


def _launch(given: float) -> float:
    """a * a + c where the AMDGCN text has an addition, so that it is open which sum it was."""

    class Tensor:
        device = SimpleNamespace(type="cpu")

        def __init__(self, data: np.ndarray[Any, Any]) -> None:
            self.data = data

        def data_ptr(self) -> int:
            return int(self.data.ctypes.data)

        def untyped_storage(self) -> SimpleNamespace:
            return SimpleNamespace(nbytes=lambda: self.data.nbytes, data_ptr=self.data_ptr)

    body = """  %a = load float, ptr addrspace(1) %from, align 4
  %m = fmul float %a, %a
  %r = fadd float %m, C
  store float %r, ptr addrspace(1) %to, align 4""".replace("C", "-1.00048828125")
    x, out = np.zeros(64, np.uint64), np.zeros(64, np.uint64)
    x.view(np.float32)[::2] = given
    text = _kernel(body)
    fronts = launching.amd_fronts(text, "\tv_add_f32_e32 v1, v2, v3", "gfx942", 64, True)
    assert len(fronts) == 2
    signature = {"x": "*i64", "out": "*i64", "n": "i32"}
    launching.launch(fronts, text, signature, (Tensor(x), Tensor(out), 1), (1, 1, 1), 0, 64, 0xA5)
    return float(out.view(np.float32)[0])


def test_an_open_fusion_is_run_both_ways() -> None:
    assert _launch(1.0) == 1 - 1.00048828125, "both ways agree"
    with pytest.raises(NotExecuted, match="fused with a sum is not settled by the LLVM IR, and it matters"):
        _launch(A)


def test_halves_are_fused_too() -> None:
    a = int(np.float16(1 + 2.0**-6).view(np.uint16))
    c = int(np.float16(-(1 + 2.0**-5)).view(np.uint16))
    once = int(np.float16(2.0**-12).view(np.uint16))
    line = "fadd half %m, %b"
    body = "\n".join([inputs("half", 2), "  %m = fmul half %a, %a", f"  %r = {line}", output("half")])
    assert [int(v) for v in run(body, [a], [c])] == [once]
