"""The front end for LLVM IR of AMD targets: opcodes by the words of the language reference, conversions."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.llvm_program import OVFL, M, apply, f32, inputs, output, run

pytestmark = pytest.mark.meta

A, B = [0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], [3, 0xFFFFFFFF, 31, 1, 0x80000000, 2]


def s(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("add nsw i32 %a, %b", [(a + b) & M for a, b in zip(A, B, strict=True)]),
        ("sub i32 %a, %b", [(a - b) & M for a, b in zip(A, B, strict=True)]),
        ("mul i32 %a, %b", [(a * b) & M for a, b in zip(A, B, strict=True)]),
        ("and i32 %a, -16", [a & 0xFFFFFFF0 for a in A]),
        ("or disjoint i32 %a, %b", [a | b for a, b in zip(A, B, strict=True)]),
        ("xor i32 %a, %b", [a ^ b for a, b in zip(A, B, strict=True)]),
        ("shl i32 %a, 4", [(a << 4) & M for a in A]),
        ("lshr exact i32 %a, 4", [a >> 4 for a in A]),
        ("ashr i32 %a, 4", [(s(a) >> 4) & M for a in A]),
        ("udiv i32 %a, %b", [a // b for a, b in zip(A, B, strict=True)]),
        ("urem i32 %a, %b", [a % b for a, b in zip(A, B, strict=True)]),
        ("sdiv i32 %a, 7", [int(s(a) / 7) & M for a in A]),
        ("sdiv i32 %a, -7", [int(s(a) / -7) & M for a in A]),
        ("srem i32 %a, -7", [(s(a) - int(s(a) / -7) * -7) & M for a in A]),
        ("srem i32 %a, 7", [(s(a) - int(s(a) / 7) * 7) & M for a in A]),
        ("tail call i32 @llvm.smax.i32(i32 %a, i32 %b)", [max(s(a), s(b)) & M for a, b in zip(A, B, strict=True)]),
        ("call noundef i32 @llvm.smin.i32(i32 %a, i32 %b)", [min(s(a), s(b)) & M for a, b in zip(A, B, strict=True)]),
        ("call i32 @llvm.umax.i32(i32 %a, i32 %b)", [max(a, b) for a, b in zip(A, B, strict=True)]),
        ("call i32 @llvm.umin.i32(i32 %a, i32 %b)", [min(a, b) for a, b in zip(A, B, strict=True)]),
        ("call i32 @llvm.usub.sat.i32(i32 %a, i32 %b)", [max(a - b, 0) for a, b in zip(A, B, strict=True)]),
        ("call i32 @llvm.abs.i32(i32 %a, i1 false)", [abs(s(a)) & M for a in A]),
        ("call i32 @llvm.ctlz.i32(i32 %a, i1 false)", [32 - a.bit_length() for a in A]),
    ],
)  # fmt: skip
def test_integers(line: str, expected: list[int]) -> None:
    assert apply(line, "i32", A, B) == expected


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("eq", [False, False, False, False, True, False]),
        ("samesign ult", [a < b for a, b in zip(A, B, strict=True)]),
        ("uge", [a >= b for a, b in zip(A, B, strict=True)]),
        ("sgt", [s(a) > s(b) for a, b in zip(A, B, strict=True)]),
        ("sle", [s(a) <= s(b) for a, b in zip(A, B, strict=True)]),
    ],
)
def test_comparisons(how: str, expected: list[bool]) -> None:
    assert apply(f"icmp {how} i32 %a, %b", "i32", A, B, to="i1") == expected


def test_a_shift_by_the_width_or_more_is_the_fill_of_the_launch() -> None:
    assert apply("shl i32 %a, %b", "i32", [5, 5], [31, 32], fill=0x3C) == [0x80000000, 0x3C3C3C3C]
    assert apply("udiv i32 %a, %b", "i32", [5, 5], [2, 0], fill=0x3C) == [2, 0x3C3C3C3C]
    assert apply("sdiv i32 %a, %b", "i32", [1 << 31, 1 << 31], [1, M], fill=0x3C) == [1 << 31, 0x3C3C3C3C]


def test_widths() -> None:
    assert apply("sext i32 %a to i64", "i32", [5, 0x80000001], to="i64") == [5, 0xFFFFFFFF80000001]
    assert apply("zext nneg i32 %a to i64", "i32", [5, 0x80000001], to="i64") == [5, 0x80000001]
    assert apply("trunc nuw i32 %a to i8", "i32", [0x1FF, 0x180], to="i8") == [0xFF, 0x80]
    assert apply("trunc i32 %a to i1", "i32", [2, 3], to="i1") == [0, 1]
    one = "icmp eq i32 %a, 1"
    body = f"{inputs('i32', 1)}\n  %c = {one}\n  %r = sext i1 %c to i32\n{output('i32')}"
    assert list(run(body, [0, 1])) == [0, M]


def test_vectors_are_little_endian_and_parts_are_moved() -> None:
    body = f"""{inputs("i32", 2)}
  %v = bitcast i32 %a to <4 x i8>
  %u = bitcast i32 %b to <4 x i8>
  %s = shufflevector <4 x i8> %v, <4 x i8> %u, <4 x i32> <i32 3, i32 4, i32 0, i32 7>
  %e = extractelement <4 x i8> %v, i64 1
  %i = insertelement <4 x i8> %s, i8 %e, i64 2
  %add = add <4 x i8> %i, splat (i8 1)
  %c = icmp ugt <4 x i8> %add, <i8 0, i8 127, i8 0, i8 -1>
  %x = select <4 x i1> %c, <4 x i8> %add, <4 x i8> zeroinitializer
  %r = bitcast <4 x i8> %x to i32
{output("i32")}"""
    # parts of a: 44 33 22 11; of b: 88 77 66 55; s = 11 88 44 55; with part 1 of a: 11 88 33 55; plus one: 12 89 34 56
    assert [hex(v) for v in run(body, [0x11223344], [0x55667788])] == [hex(0x00348912)]


def test_poison_is_the_fill() -> None:
    line = "extractelement <2 x i32> <i32 poison, i32 4>, i64 0"
    assert apply(line, "i32", [0], fill=0x11) == [0x11111111]


NAN, INF, SNAN = 0x7FC00000, 0x7F800000, 0x7F800001


@pytest.mark.parametrize(
    ("line", "a", "b", "expected"),
    [
        ("fadd float %a, %b", f32(1.0, 2.0**-140), f32(2.0**-24, 2.0**-140), f32(1.0, 2.0**-139)),
        ("fsub float %a, %b", [INF], [INF], [NAN]),
        ("fmul float %a, %b", f32(3.0, -0.0), f32(0.5, 2.0), f32(1.5, -0.0)),
        ("fdiv float %a, %b", f32(1.0, 1.0), f32(448.0, 0.0), [0x3B124925, INF]),
        ("fneg float %a", [SNAN, 0], [0, 0], [0xFF800001, 0x80000000]),
        ("call float @llvm.fabs.f32(float %a)", [0xFFC00001], [0], [0x7FC00001]),
        ("call float @llvm.copysign.f32(float %a, float %b)", f32(2.0), f32(-0.0), f32(-2.0)),
        ("call float @llvm.maxnum.f32(float %a, float %b)", [NAN, *f32(-0.0, 1)], f32(1, 0.0, 2), f32(1, 0.0, 2)),
        ("call float @llvm.minnum.f32(float %a, float %b)", [SNAN, *f32(0.0, 1)], f32(1, -0.0, 2), f32(1, -0.0, 1)),
        ("call float @llvm.maximum.f32(float %a, float %b)", [NAN, *f32(3)], f32(1, 2), [NAN, *f32(3)]),
        ("call float @llvm.amdgcn.fmed3.f32(float %a, float 1.0, float %b)", f32(3, 0), f32(2, 5), f32(2, 1)),
        ("call float @llvm.fma.f32(float %a, float %a, float %b)", f32(1 + 2.0**-12), f32(-1 - 2.0**-11),
         f32(2.0**-24)),
        ("call float @llvm.rint.f32(float %a)", f32(2.5, -0.5), f32(0, 0), f32(2, -0.0)),
        ("call float @llvm.exp2.f32(float %a)", f32(-149, 3, -np.inf), f32(0, 0, 0), f32(2.0**-149, 8, 0)),
        ("call float @llvm.log2.f32(float %a)", f32(2.0**-149, 0), f32(0, 0), f32(-149, -np.inf)),
        ("call float @llvm.floor.f32(float %a)", f32(-0.5), f32(0), f32(-1)),
        ("fadd float %a, f0x3B000000", f32(0), f32(0), f32(2.0**-9)),
        ("fadd float %a, 0x3F60000000000000", f32(0), f32(0), f32(2.0**-9)),
    ],
)  # fmt: skip
def test_floats(line: str, a: list[int], b: list[int], expected: list[int]) -> None:
    assert [hex(v) for v in apply(line, "float", a, b)] == [hex(v) for v in expected]


def test_float_comparisons() -> None:
    assert apply("fcmp oeq bfloat %a, 1.5", "bfloat", [0x3FC0, 0x3FC1], to="i1") == [1, 0]
    a, b = [*f32(1, 2, 0.0), NAN], f32(2, 2, -0.0, 1)
    table = {
        "olt": [1, 0, 0, 0], "ult": [1, 0, 0, 1], "oeq": [0, 1, 1, 0], "une": [1, 0, 0, 1], "one": [1, 0, 0, 0],
        "uno": [0, 0, 0, 1], "ord": [1, 1, 1, 0], "oge": [0, 1, 1, 0],
    }  # fmt: skip
    for how, expected in table.items():
        assert apply(f"fcmp {how} float %a, %b", "float", a, b, to="i1") == expected, how


def test_a_broken_promise_is_the_fill() -> None:
    assert apply("fmul nnan float %a, 2.0", "float", [*f32(3), NAN], fill=0x3C) == [*f32(6), 0x3C3C3C3C]
    assert apply("fmul ninf float %a, 2.0", "float", [*f32(3, 3e38)], fill=0x3C) == [*f32(6), 0x3C3C3C3C]


def test_conversions() -> None:
    assert apply("fptrunc float %a to half", "float", f32(2049.0, 65520.0), to="half") == [0x6800, 0x7C00]
    assert apply("fptrunc float %a to bfloat", "float", f32(1 + 2.0**-8, 1 + 3 * 2.0**-8), to="bfloat") == [
        0x3F80,
        0x3F82,
    ]
    assert apply("fpext half %a to float", "half", [1, 0xFC00], to="float") == f32(2.0**-24, -np.inf)
    assert apply("fpext bfloat %a to float", "bfloat", [0x3F81], to="float") == [0x3F810000]
    assert apply("uitofp i32 %a to float", "i32", [M, 16777217], to="float") == f32(2.0**32, 16777216)
    assert apply("sitofp i32 %a to float", "i32", [M], to="float") == f32(-1)
    assert apply("fptosi float %a to i32", "float", [*f32(-1.9, 3e9), NAN], to="i32") == [M, 0x7FFFFFFF, 0]
    assert apply("fptoui float %a to i32", "float", f32(-1.0, 3e9), to="i32") == [0, 3000000000]


def test_mode_clamps_what_overflows_to_float16() -> None:
    line = "fptrunc float %a to half"
    assert apply(line, "float", [*f32(65520.0, -1e9), INF], to="half", before=OVFL) == [0x7BFF, 0xFBFF, 0x7C00]


@pytest.mark.parametrize(
    ("target", "largest", "beyond"), [("gfx942", 0x7F, 0x80), ("gfx1200", 0x7E, 0x7F)], ids=["fnuz", "ocp"]
)
def test_fp8_by_instruction(target: str, largest: int, beyond: int) -> None:
    """1.0 is 0x40 (bias 8) or 0x38 (bias 7); the upper half of the old register stays, or the lower."""
    one = 0x40 if target == "gfx942" else 0x38
    line = "call i32 @llvm.amdgcn.cvt.pk.fp8.f32(float %a, float %b, i32 287454020, i1 {})"
    low, high = (line.format(word) for word in ("false", "true"))
    words = f32(1, 1e9), f32(1, 1)
    assert apply(low, "float", *words, to="i32", before=OVFL, target=target) == [
        0x11220000 | one << 8 | one, 0x11220000 | one << 8 | largest
    ]  # fmt: skip
    assert apply(high, "float", *words, to="i32", target=target) == [
        0x3344 | one << 24 | one << 16, 0x3344 | one << 24 | beyond << 16
    ]  # fmt: skip


def test_scaled_fp8() -> None:
    line = (
        "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> zeroinitializer, float %a, float 1.0, "
        "float 2.0, i1 true)"
    )
    body = f"{OVFL}\n{inputs('float', 1)}\n  %v = {line}\n  %r = bitcast <2 x i16> %v to i32\n{output('i32')}"
    assert [hex(v) for v in run(body, f32(4, 1e9), target="gfx950")] == ["0x30400000", "0x307e0000"]
    with pytest.raises(NotExecuted, match=r"opcode llvm\.amdgcn\.cvt\.scalef32\.pk\.fp8\.f32.*gfx942"):
        run(body, f32(4), target="gfx942")


def test_fp8_by_eight() -> None:
    body = f"""{OVFL}
{inputs("float", 1)}
  %v = insertelement <8 x float> <float 1.0, float 2.0, float 4.0, float 8.0, float 0.0, float 0.0, float 0.0, float 0.0>, float %a, i64 6
  %c = call <2 x i32> @llvm.amdgcn.cvt.scalef32.pk8.fp8.f32(<8 x float> %v, float 2.0)
  %r = bitcast <2 x i32> %c to i64
{output("i64")}"""  # noqa: E501
    # 0.5, 1, 2, 4 are 0x30, 0x38, 0x40, 0x48; beyond the largest is 0x7E
    assert [hex(v) for v in run(body, f32(1, 1e9), target="gfx1250")] == ["0x30000048403830", "0x7e000048403830"]
