"""LLVM IR of AMD targets: which sum of a product is fused, by the combiner's rule, and the check against the text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, llvm_ir
from narrowgauge.devices.emulator.llvm_fusion import EXPANDED, additions
from narrowgauge.suites.meta.llvm_program import FRAME, f32, inputs, output, run

pytestmark = pytest.mark.meta

#: x * x is 1 + 2^-11 + 2^-24 exactly, and 1 + 2^-11 rounded
X = 1 + 2.0**-12
LOST, GONE, LEFT = f32(2.0**-24), f32(-(2.0**-24)), f32(0.0)
SQUARE = "  %m = fmul float %a, %a\n"
BOTH = "  %m = fmul float %a, %a\n  %n = fmul float %b, %b\n"


def one(lines: str, *values: float, target: str = "gfx942", fusion: bool = True) -> list[int]:
    body = f"{inputs('float', len(values))}\n{lines}\n{output('float')}"
    return [int(v) for v in run(body, *(f32(value) for value in values), target=target, fusion=fusion)]


@pytest.mark.parametrize(
    ("lines", "values", "expected"),
    [
        (f"{SQUARE}  %r = fsub float %m, %b", (X, 1 + 2.0**-11), LOST),
        (f"{SQUARE}  %r = fsub float %b, %m", (X, 1 + 2.0**-11), GONE),
        (f"{SQUARE}  %r = fadd float %b, %m", (X, -1 - 2.0**-11), LOST),
        (f"{SQUARE}  %s = fneg float %m\n  %r = fadd float %s, %b", (X, 1 + 2.0**-11), GONE),
        (f"{SQUARE}  %s = fneg float %m\n  %r = fsub float %b, %s", (X, -1 - 2.0**-11), LOST),
        (f"{BOTH}  %r = fsub float %m, %n", (X, X), LOST),  # of two, the left one
        (f"{SQUARE}  %h = fadd float %m, 0.0\n  %r = fsub float %h, %b", (X, 1 + 2.0**-11), LEFT),  # once rounded
    ],
)
def test_the_rule(lines: str, values: tuple[float, ...], expected: list[int]) -> None:
    assert one(lines, *values) == expected
    assert one(lines, *values, fusion=False) == LEFT


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (f"{BOTH}  %r = fsub float %m, %n", 1),
        (f"{SQUARE}  %r = fadd float %m, %m", 1),  # the same either way
        # which of two sums the combiner sees first decides how many uses %m has at the other one
        (f"{BOTH}  %s = fadd float %m, 1.0\n  %r = fsub float %m, %n", 2),
        (f"{BOTH}  %r = fsub float %m, %n\n  %s = fadd float %n, 1.0", 2),
    ],
)
def test_of_two_products_with_other_uses_both_are_tried(lines: str, count: int) -> None:
    text = FRAME.format(columns=2, denormals="ieee", body=f"{inputs('float', 2)}\n{lines}\n{output('float')}")
    assert len(launching.amd_fronts(text, "", "gfx942", 64, True)) == count


def test_the_right_one_of_two_products() -> None:
    lines = f"{BOTH}  %s = fadd float %m, 1.0\n  %r = fsub float %m, %n"
    body = f"{inputs('float', 2)}\n{lines}\n{output('float')}"
    for right, expected in ((False, LOST), (True, GONE)):
        assert [int(v) for v in run(body, f32(X), f32(X), right=right)] == expected


def test_a_product_of_another_block_is_not_fused() -> None:
    lines = f"{SQUARE}  br label %next\nnext:\n  %r = fsub float %m, %b"
    assert one(lines, X, 1 + 2.0**-11) == LEFT


def test_a_part_of_a_vector_is_fused_where_vectors_are_taken_apart() -> None:
    lines = """  %v = insertelement <2 x float> poison, float %a, i64 0
  %w = insertelement <2 x float> %v, float %a, i64 1
  %p = fmul <2 x float> %w, %w
  %m = extractelement <2 x float> %p, i64 1
  %r = fsub float %m, %b"""
    assert one(lines, X, 1 + 2.0**-11, target="gfx1100") == LOST
    assert one(lines, X, 1 + 2.0**-11, target="gfx942") == LEFT


def test_additions_are_counted_in_the_text() -> None:
    text = """
	v_add_f32_e32 v1, v2, v3                ; v_add_f32
	v_pk_add_f32 v[0:1], v[2:3], v[4:5]
	v_subrev_f32_e32 v1, v2, v3
	v_dual_add_f32 v1, v2, v3 :: v_dual_sub_f32 v4, v5, v6
	s_add_f32 s0, s1, s2
	v_add_f16_e32 v1, v2, v3
	v_pk_add_bf16 v1, v2, v3
	v_add_f64 v[0:1], v[2:3], v[4:5]
	v_add_u32_e32 v1, v2, v3
	v_fma_f32 v1, v2, v3, v4
"""
    assert additions(text) == {"f32": 7, "f16": 1, "bf16": 2, "f64": 1}


ADD, FMA = "\tv_add_f32_e32 v0, v1, v2\n", "\tv_fma_f32 v0, v1, v2, v3\n"


@pytest.mark.parametrize(
    ("lines", "amdgcn", "settled"),
    [
        (f"{SQUARE}  %r = fadd float %m, %a", FMA, True),
        (f"{SQUARE}  %r = fadd float %m, %a", ADD, False),
        (f"{SQUARE}  %s = fadd float %m, %a\n  %r = fadd float %s, %a", FMA + ADD, True),
        (f"{SQUARE}  %s = fadd float %m, %a\n  %r = fadd float %s, %a", FMA + FMA, False),
        ("  %r = fadd float %a, %a", ADD + ADD, True),  # no product: nothing to settle
        # x * 2 is x + x, unless a fused sum took it
        (f"{SQUARE}  %t = fmul float %a, 2.0\n  %u = fmul float %t, %a\n  %r = fadd float %m, %u", FMA + ADD, True),
        (f"{SQUARE}  %t = fmul float %a, 2.0\n  %u = fmul float %t, %a\n  %r = fadd float %m, %u", FMA, False),
        ("  %t = fmul float 2.0, %a\n  %r = fadd float %t, %a", FMA, True),
        ("  %t = fmul float 2.0, %a\n  %r = fadd float %t, %a", FMA + ADD, False),
        # what is written out brings its own additions
        (f"{SQUARE}  %e = frem float %m, %a\n  %r = fadd float %m, %e", FMA + ADD + ADD, True),
        (f"{SQUARE}  %e = call float @llvm.exp.f32(float %a)\n  %r = fadd float %m, %e", FMA + ADD + ADD, True),
        (f"{SQUARE}  %v = insertelement <2 x float> zeroinitializer, float %a, i64 0\n"
         "  %e = call <2 x float> @llvm.exp.v2f32(<2 x float> %v)\n  %f = extractelement <2 x float> %e, i64 0\n"
         "  %r = fadd float %m, %f", FMA + 4 * ADD, True),
        (f"{SQUARE}  %e = call float @llvm.exp2.f32(float %a)\n  %r = fadd float %m, %e", FMA + ADD + ADD, False),
        (f"{SQUARE}  %e = fptrunc float %a to half\n  %f = fdiv half 1.0, %e\n  %g = fpext half %f to float\n"
         "  %r = fadd float %m, %g", FMA, True),
        (f"{SQUARE}  %e = fptrunc float %a to half\n  %f = fdiv half 3.0, %e\n  %g = fpext half %f to float\n"
         "  %r = fadd float %m, %g", FMA + ADD, True),
    ],
)  # fmt: skip
def test_the_rule_is_settled_by_the_additions_that_are_left(lines: str, amdgcn: str, settled: bool) -> None:
    text = FRAME.format(columns=1, denormals="ieee", body=f"{inputs('float', 1)}\n{lines}\n{output('float')}")
    assert llvm_ir.parse(text, "gfx942", 64).products.settled(amdgcn) is settled
    assert len(launching.amd_fronts(text, amdgcn, "gfx942", 64, True)) == (1 if settled else 2)
    assert len(launching.amd_fronts(text, amdgcn, "gfx942", 64, False)) == 1


def test_what_is_written_out_takes_the_additions_that_are_said() -> None:
    command = [sys.executable, "-m", "narrowgauge.suites.meta.amd_additions"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for target, entries in told.items():
        assert entries == {entry: {kind: count} if count else {} for entry, (kind, count) in EXPANDED.items()}, target


def _tensor(words: Any) -> Any:
    """What the launcher asks of a tensor, of a NumPy array."""
    address: Callable[[], int] = lambda: words.ctypes.data  # noqa: E731
    storage = SimpleNamespace(nbytes=lambda: words.nbytes, data_ptr=address)
    return SimpleNamespace(data_ptr=address, device=SimpleNamespace(type="cpu"), untyped_storage=lambda: storage)


@pytest.mark.parametrize(("value", "open_"), [(1.5, False), (X, True)])
def test_what_is_not_settled_runs_both_ways_and_has_to_agree(value: float, open_: bool) -> None:
    lines = f"{SQUARE}  %r = fsub float %m, 1.0"
    text = FRAME.format(columns=1, denormals="ieee", body=f"{inputs('float', 1)}\n{lines}\n{output('float')}")
    words = np.full(64, f32(value)[0], np.uint64)  # in place: the second run has to start where the first one did
    fronts = launching.amd_fronts(text, ADD, "gfx942", 64, True)
    signature = {"x": "*i64", "out": "*i64", "n": "i32"}

    def launch() -> None:
        launching.launch(fronts, text, signature, [_tensor(words), _tensor(words), 7], (1, 1, 1), 0, 64, 0xA5)

    if open_:
        with pytest.raises(NotExecuted, match="not settled by the LLVM IR"):
            launch()
        return
    launch()
    assert set(words.tolist()) == set(f32(1.25))


@pytest.mark.parametrize("kinds", [("*i64", "constexpr", "i32"), ("*i64", ("constexpr", ("i32",)))])
def test_the_members_of_a_tuple_are_parameters_in_their_order(kinds: Any) -> None:
    body = f"{inputs('i64', 1)}\n  %w = zext i32 %2 to i64\n  %r = add i64 %a, %w\n{output('i64')}"
    words, out = np.full(64, 5, np.uint64), np.zeros(64, np.uint64)
    text = FRAME.format(columns=1, denormals="ieee", body=body)
    fronts = launching.amd_fronts(text, "", "gfx942", 64, False)
    members = (_tensor(out), 9, 7) if len(kinds) == 3 else (_tensor(out), (9, (7,)))
    launching.launch(fronts, text, {"x": "*i64", "more": kinds}, [_tensor(words), members], (1, 1, 1), 0, 64, 0xA5)
    assert set(out.tolist()) == {12}


def test_bfloat16_is_computed_by_binary32_where_there_is_no_instruction() -> None:
    """2^-66 * 2^-67 * 1.5 rounds in binary32 already; of gfx1250 alone the sum of a product is one operation."""
    body = f"{inputs('bfloat', 2)}\n  %m = fmul bfloat %a, %a\n  %r = fsub bfloat %m, %b\n{output('bfloat')}"
    a, b = 0x3F81, 0x3F82  # 1 + 2^-7, 1 + 2^-6: the square is 1 + 2^-6 + 2^-14
    assert [int(v) for v in run(body, [a], [b], target="gfx942")] == [0]
    assert [int(v) for v in run(body, [a], [b], target="gfx1250")] == [0x3880]  # 2^-14
