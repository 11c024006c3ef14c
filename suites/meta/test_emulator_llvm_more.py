"""LLVM IR of AMD targets: switches, atomics, conversions, MODE, open answers, and rarer instructions."""

from __future__ import annotations

import numpy as np
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.suites.meta.llvm_program import OVFL, M, apply, f32, inputs, output, run

pytestmark = pytest.mark.meta

NAN, INF = 0x7FC00000, 0x7F800000


def test_switch() -> None:
    body = f"""{inputs("i32", 1)}
  switch i32 %a, label %other [
    i32 0, label %done
    i32 7, label %seven
    i32 -1, label %done
  ], !dbg !14
seven:
  %s = add i32 %a, 100
  br label %done
other:
  br label %done
done:
  %r = phi i32 [ 1, %3 ], [ 1, %3 ], [ %s, %seven ], [ 3, %other ]
{output("i32")}"""
    assert list(run(body, [0, 7, M, 5, 6])) == [1, 107, 1, 3, 3]


@pytest.mark.parametrize(
    ("line", "values", "expected"),
    [
        ("call i32 @llvm.uadd.sat.i32(i32 %a, i32 %b)", (M, 1), M),
        ("call i32 @llvm.sadd.sat.i32(i32 %a, i32 %b)", (0x7FFFFFFF, 1), 0x7FFFFFFF),
        ("call i32 @llvm.ssub.sat.i32(i32 %a, i32 %b)", (0x80000000, 1), 0x80000000),
        ("call i32 @llvm.fshl.i32(i32 %a, i32 %b, i32 36)", (0x12345678, 0x9ABCDEF0), 0x23456789),
        ("call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 4)", (0x12345678, 0x9ABCDEF0), 0x89ABCDEF),
        ("call i32 @llvm.fshl.i32(i32 %a, i32 %b, i32 0)", (1, 2), 1),
        ("call i32 @llvm.ctpop.i32(i32 %a)", (0xF0F00001, 0), 9),
        ("call i32 @llvm.cttz.i32(i32 %a, i1 false)", (0x50, 0), 4),
        ("call i32 @llvm.bitreverse.i32(i32 %a)", (0x1, 0), 0x80000000),
        # bytes 3 of b, 4 (0 of a), the sign of the lower half of b, all ones
        ("call i32 @llvm.amdgcn.perm(i32 %a, i32 %b, i32 218629123)",
         (0x11223344, 0x5566F788), 0xFFFF4455),
        ("call i32 @llvm.amdgcn.perm(i32 %a, i32 %b, i32 201720581)", (0x11223344, 0x55667788), 0x00225533),
    ],
)  # fmt: skip
def test_integers(line: str, values: tuple[int, int], expected: int) -> None:
    assert [hex(v) for v in apply(line, "i32", *([v] for v in values))] == [hex(expected)]


def test_odd_widths() -> None:
    body = f"""{inputs("i32", 1)}
  %n = trunc i32 %a to i24
  %m = and i24 %n, -2
  %r = zext i24 %m to i32
{output("i32")}"""
    assert list(run(body, [0xFF123457])) == [0x123456]


def test_conversions_to_integers() -> None:
    """To 64 bits and to fewer than 32 the result beyond the range is open: the fill."""
    fill = 0x3C3C3C3C3C3C3C3C
    assert apply("fptosi float %a to i64", "float", f32(-1.9, 2.0**62, 2.0**63), to="i64", fill=0x3C) == [
        (1 << 64) - 1, 1 << 62, fill,
    ]  # fmt: skip
    assert apply("fptoui float %a to i64", "float", [*f32(2.0**63), NAN], to="i64", fill=0x3C) == [1 << 63, fill]
    assert apply("fptosi float %a to i8", "float", f32(-128.5, 127.9, 128), to="i8", fill=0x3C) == [0x80, 127, 0x3C]
    sat = "call i8 @llvm.fptosi.sat.i8.f32(float %a)"
    assert apply(sat, "float", [*f32(-300, 300), NAN], to="i8") == [0x80, 0x7F, 0]


@pytest.mark.parametrize(
    ("name", "expected"), [("max", [2.0, 3.0, 0.0, 0.0, 1.0]), ("min", [1.0, 3.0, -0.0, -0.0, 1.0])]
)
def test_the_larger_and_the_smaller_of_doubles(name: str, expected: list[float]) -> None:
    """A number beats a NaN on either side, a signalling one too; of two NaN a quiet one is left."""

    def patterns(values: list[float]) -> list[int]:
        return [int(v) for v in np.array(values).view(np.uint64)]

    def results(*columns: list[int]) -> list[int]:
        body = f"""{inputs("i64", 2)}
  %x = bitcast i64 %a to double
  %y = bitcast i64 %b to double
  %m = call double @llvm.{name}num.f64(double %x, double %y)
  %r = bitcast double %m to i64
{output("i64")}"""
        return [int(v) for v in run(body, *columns)]

    signalling = 0x7FF0000000000001
    a, b = [1.0, np.nan, -0.0, 0.0, 1.0], [2.0, 3.0, 0.0, -0.0, np.nan]
    assert results(patterns(a), patterns(b)) == patterns(expected)
    assert results([signalling] * 2, [signalling, *patterns([-7.0])]) == [signalling | 1 << 51, *patterns([-7.0])]


def test_numbers() -> None:
    assert apply("frem float %a, %b", "float", f32(5.5, -5.5, 1e30), f32(2, 2, 3)) == f32(1.5, -1.5, np.fmod(
        np.float32(1e30), np.float32(3)))  # fmt: skip
    assert apply("call float @llvm.round.f32(float %a)", "float", f32(2.5, -0.5, 0.49999997)) == f32(3, -1, 0)
    assert apply("call float @llvm.ldexp.f32.i32(float %a, i32 -149)", "float", f32(1, 1.5)) == [1, 2]
    body = f"""{inputs("float", 1)}
  %f = call {{ float, i32 }} @llvm.frexp.f32.i32(float %a)
  %x = extractvalue {{ float, i32 }} %f, 0
  %y = extractvalue {{ float, i32 }} %f, 1
  %z = sitofp i32 %y to float
  %r = fadd float %x, %z
{output("float")}"""
    assert list(run(body, f32(12.0, 0.0))) == f32(4.75, 0.0)


def test_float16_under_the_mode() -> None:
    """A finite overflow is clamped, an infinity stays; without the mode it is infinity."""
    big = [0x7BFF, 0x7C00, 0xFBFF]
    assert apply("fadd half %a, %a", "half", big, before=OVFL) == [0x7BFF, 0x7C00, 0xFBFF]
    assert apply("fadd half %a, %a", "half", big) == [0x7C00, 0x7C00, 0xFC00]
    line = "call half @llvm.amdgcn.fmed3.f16(half %a, half 0xHBC00, half 0xH3C00)"
    assert apply(line, "half", [0x4000, 0xC000, 0x3800]) == [0x3C00, 0xBC00, 0x3800]


def test_bfloat16() -> None:
    assert apply("fadd bfloat %a, %b", "bfloat", [0x3F80, 0x3F81], [0x3B80, 0x3B80]) == [0x3F80, 0x3F82]  # ties to even
    assert apply("fdiv bfloat %a, %b", "bfloat", [0x3F80], [0x4040]) == [0x3EAB]


CELL = """{inputs}
  %odd = and i32 %a, 1
  {body}
  %wide2 = zext i32 %r to i64
  store i64 %wide2, ptr addrspace(1) %to, align 8"""


def test_atomics_go_in_the_order_of_lanes() -> None:
    """All lanes add to the word of the first lane, and see what those before them left."""
    add = '%r = atomicrmw add ptr addrspace(1) %0, i32 %a syncscope("agent") acq_rel, align 4'
    found = run(CELL.format(inputs=inputs("i32", 1), body=add), [1] * 64)
    assert list(found) == list(range(1, 65))
    swap = '%p = cmpxchg ptr addrspace(1) %0, i32 5, i32 %id syncscope("agent") acq_rel monotonic, align 4\n'
    swap += "  %r = extractvalue { i32, i1 } %p, 0"
    assert list(run(CELL.format(inputs=inputs("i32", 1), body=swap), [5] * 64)) == [5] + [0] * 63


def test_buffer_atomics() -> None:
    head = "%b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %0, i16 0, i64 8, i32 0)\n"
    swap = (
        "  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.cmpswap.i32(i32 %id, i32 5, ptr addrspace(8) %b, i32 {}, "
    )
    swap += "i32 0, i32 0)"
    text = CELL.format(inputs=inputs("i32", 1), body=head + swap)
    assert list(run(text.format("0"), [5] * 64)) == [5] + [0] * 63
    assert list(run(text.format("8"), [5] * 64)) == [0] * 64  # out of range
    top = (
        "  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.atomic.smax.i32(i32 %a, ptr addrspace(8) %b, i32 0, i32 0, i32 0)"
    )
    found = run(CELL.format(inputs=inputs("i32", 1), body=head + top), [3, M, 9, 4, *[0] * 60])
    assert list(found[:5]) == [3, 3, 3, 9, 9]


def test_ballot_and_counts_of_lanes() -> None:
    body = f"""{inputs("i32", 1)}
  %odd = trunc i32 %a to i1
  %w = call i64 @llvm.amdgcn.ballot.i64(i1 %odd)
  %low = trunc i64 %w to i32
  %half = lshr i64 %w, 32
  %high = trunc i64 %half to i32
  %c = call i32 @llvm.amdgcn.mbcnt.lo(i32 %low, i32 0)
  %r = call i32 @llvm.amdgcn.mbcnt.hi(i32 %high, i32 %c)
{output("i32")}"""
    assert list(run(body, list(range(64)))) == [i // 2 for i in range(64)]
    line = "call i32 @llvm.amdgcn.writelane.i32(i32 77, i32 3, i32 %a)"
    assert apply(line, "i32", [5] * 64) == [77 if i == 3 else 5 for i in range(64)]


def test_fp8_by_eight_and_back() -> None:
    """Codes of e4m3fn: 0x38 is 1, 0x40 is 2, 0x7F is NaN; the scale 128 is 2."""
    body = f"""{inputs("i32", 2)}
  %v = insertelement <2 x i32> poison, i32 %a, i64 0
  %w = insertelement <2 x i32> %v, i32 %b, i64 1
  %e = call <8 x {{kind}}> @llvm.amdgcn.cvt.scale.pk8.{{name}}.fp8(<2 x i32> %w, i32 128, i32 {{select}})
  %r = extractelement <8 x {{kind}}> %e, i64 {{at}}
"""
    for at, expected in ((0, 2.0), (1, 4.0), (7, -2.0)):
        text = body.format(kind="float", name="f32", select=0, at=at) + output("float")
        assert list(run(text, [0x7F004038], [0xB8000000], target="gfx1250")) == f32(expected)
    text = body.format(kind="bfloat", name="bf16", select=0, at=1) + output("bfloat")
    assert list(run(text, [0x7F004038], [0], target="gfx1250")) == [0x4080]
    with pytest.raises(NotExecuted, match=r"cvt\.scale\.pk8"):
        run(body.format(kind="float", name="f32", select=1, at=0) + output("float"), [0], [0], target="gfx1250")


def test_fp4_by_eight() -> None:
    """1, 2 and 6 are 0x2, 0x4 and 0x7; what is larger saturates."""
    body = f"""{inputs("float", 1)}
  %v = insertelement <8 x float> <float 1.0, float 2.0, float 6.0, float 0.0, float 0.0, float 0.0, float 0.0, float 0.0>, float %a, i64 7
  %r = call i32 @llvm.amdgcn.cvt.scalef32.pk8.fp4.f32(<8 x float> %v, float 1.0)
{output("i32")}"""  # noqa: E501
    assert [hex(v) for v in run(body, f32(-100.0), target="gfx1250")] == ["0xf0000742"]


def test_a_promise_of_a_function_makes_the_fill() -> None:
    line = "call nnan float @llvm.log.f32(float %a)"
    assert apply(line, "float", f32(1.0, -1.0), fill=0x3C) == [0, 0x3C3C3C3C]


def test_open_answers_are_noted_and_chosen() -> None:
    """gfx950: an infinity under FP16_OVFL is kept (NaN, 0x7f) or the largest value (0x7e); v_rcp_f32 has an ulp."""
    line = "call <2 x i16> @llvm.amdgcn.cvt.scalef32.pk.fp8.f32(<2 x i16> zeroinitializer, float %a, float 1.0, float 1.0, i1 false)"  # noqa: E501
    body = f"{OVFL}\n{inputs('float', 1)}\n  %v = {line}\n  %r = extractelement <2 x i16> %v, i64 0\n{output('i16')}"
    used: dict[str, bool] = {}
    found = {int(run(body, [INF], target="gfx950", choice=c, used=used)[0]) for c in ("first", "low", "high")}
    assert found == {0x387F, 0x387E}
    assert list(used.items()) == [("v_cvt_scalef32_pk_fp8_f32 (CDNA4)", True)]
    body = f"{inputs('float', 1)}\n  %r = call float @llvm.amdgcn.rcp.f32(float %a)\n{output('float')}"
    low, first, high = (int(run(body, f32(3.0), choice=c)[0]) for c in ("low", "first", "high"))
    assert (low, first, high) == (0x3EAAAAAA, 0x3EAAAAAB, 0x3EAAAAAC)


def test_members_of_a_struct_may_be_vectors() -> None:
    body = f"""{inputs("float", 2)}
  %v = insertelement <2 x float> poison, float %a, i64 0
  %w = insertelement <2 x float> %v, float %b, i64 1
  %f = call {{ <2 x float>, <2 x i32> }} @llvm.frexp.v2f32.v2i32(<2 x float> %w)
  %g = insertvalue {{ <2 x float>, <2 x i32> }} %f, <2 x float> %w, 0
  %e = extractvalue {{ <2 x float>, <2 x i32> }} %g, 1
  %x = extractvalue {{ <2 x float>, <2 x i32> }} %g, 0
  %y = extractelement <2 x float> %x, i64 1
  %z = extractelement <2 x i32> %e, i64 1
  %n = sitofp i32 %z to float
  %r = fsub float %y, %n
{output("float")}"""
    assert list(run(body, f32(1.0), f32(12.0))) == f32(8.0)


def test_reciprocals_of_float16_have_an_open_last_bit() -> None:
    """0.51 ulp: open where 1 / x is at most 0.01 ulp from the middle of two numbers."""
    line = "fdiv half 1.0, %a"
    assert apply(line, "half", [0x4200, 0x4000, 0x0000, 0x8000, 0x7C00, 0x7E00]) == [
        0x3555, 0x3800, 0x7C00, 0xFC00, 0, 0x7E00,
    ]  # fmt: skip
    assert apply("fdiv half -1.0, %a", "half", [0x4200]) == [0xB555]
    bits = np.arange(0x3C00, 0x4000)
    exact = (
        2048 * 1024 / bits.astype(np.float64).__sub__(0x3C00 - 1024)
    )  # 1 / x in units of the last place, x in [1, 2)
    far = np.abs(exact - np.floor(exact) - 0.5) > 0.01
    found = {}
    used: dict[str, bool] = {}
    for choice in ("first", "low", "high"):
        body = f"{inputs('half', 1)}\n  %r = {line}\n{output('half')}"
        found[choice] = run(body, bits.tolist(), choice=choice, used=used)
    assert used == {"v_rcp_f16 (CDNA3)": True}
    assert np.array_equal(found["low"] != found["high"], ~far)
    assert np.array_equal(found["first"][1:], 0x3800 + np.rint(exact[1:]).astype(int) - 1024)
