"""LLVM IR of AMD targets: functions that were not inlined."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, llvm_ir
from narrowgauge.suites.meta.llvm_program import FRAME, f32, inputs, output, run

pytestmark = pytest.mark.meta

#: a where it is negative, else a * a - 1: 2^-11 + 2^-24 of 1 + 2^-12 where the sum is fused
FUNCTION = """
define internal fastcc {{ float, i32 }} @"mine own"(float %0, i32 %1) unnamed_addr #1 !dbg !18 {{
  %3 = fcmp olt float %0, 0.0
  br i1 %3, label %4, label %"other one"

4:
  %5 = insertvalue {{ float, i32 }} poison, float %0, 0
  %6 = insertvalue {{ float, i32 }} %5, i32 7, 1
  ret {{ float, i32 }} %6

"other one":
  %r = fmul float %0, %0
  {sum}
  %7 = insertvalue {{ float, i32 }} poison, float %s, 0
  %8 = insertvalue {{ float, i32 }} %7, i32 %1, 1
  ret {{ float, i32 }} %8
}}
"""
SUM, X = "%s = fsub float %r, 1.0", 1 + 2.0**-12
TWICE = f"""{inputs("float", 1)}
  %one = tail call fastcc {{ float, i32 }} @"mine own"(float %a, i32 %id)
  %x = extractvalue {{ float, i32 }} %one, 0
  %two = tail call fastcc {{ float, i32 }} @"mine own"(float %x, i32 20)
  %y = extractvalue {{ float, i32 }} %two, 1
  %z = extractvalue {{ float, i32 }} %one, 1
  %r = add i32 %y, %z
"""


def _beside(function: str, body: str) -> str:
    """A body that ends the kernel, a function, and another one that has the end of the frame."""
    return f"{body}\n  ret void\n}}\n{function}\ndefine internal void @last() {{"


def test_each_call_has_values_of_its_own() -> None:
    """Lanes part in the function, and return to the same place."""
    text = _beside(FUNCTION.format(sum=SUM), TWICE + output("i32"))
    # -2: 7 and 7; 2: lane 1, then 3 gives 20; 0.5: lane 2, then -0.75 gives 7
    assert list(run(text, f32(-2.0, 2.0, 0.5))) == [14, 21, 9]


def test_products_of_a_function_are_fused_and_counted_once() -> None:
    for line, additions, settled in ((SUM, 0, True), (SUM, 1, False), ("%s = fadd float %0, 1.0", 1, True)):
        body = _beside(FUNCTION.format(sum=line), f"{TWICE}  %q = fmul float %x, %x\n  %w = fadd float %q, %x")
        text = FRAME.format(columns=1, denormals="ieee", body=body)
        assert llvm_ir.parse(text, "gfx942", 64).products.settled("\tv_add_f32_e32 v0, v1, v2\n" * additions) is settled
        assert (
            len(launching.amd_fronts(text, "\tv_add_f32 v0, v1, v2\n" * additions, "gfx942", 64, True)) == 2 - settled
        )


def test_the_product_is_fused_in_the_function() -> None:
    body = f'{inputs("float", 1)}\n  %one = call fastcc {{ float, i32 }} @"mine own"(float %a, i32 0)\n'
    body += f"  %r = extractvalue {{ float, i32 }} %one, 0\n{output('float')}"
    text = _beside(FUNCTION.format(sum=SUM), body)
    assert list(run(text, f32(X))) == f32(2.0**-11 + 2.0**-24)
    assert list(run(text, f32(X), fusion=False)) == f32(2.0**-11)


def test_what_is_refused() -> None:
    again = "define internal void @f() {\n  call void @f()\n  ret void\n}"
    with pytest.raises(NotExecuted, match="calls itself"):
        run(_beside(again, "  call void @f()"))
    with pytest.raises(NotExecuted, match="others may call"):
        run(_beside("define void @f() {\n  ret void\n}", ""))
