"""LLVM intrinsics in the machine: narrow conversions of every kind, lanes, buffer atomics, hints, functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import pytest

from narrowgauge.suites.meta.llvm_program import M, apply, f32, inputs, output, run

pytestmark = pytest.mark.meta

WIDE = {"f32": "float", "f16": "half", "bf16": "bfloat"}
#: 1, 2 and 4 in each format
ONES = {
    "f32": (0x3F800000, 0x40000000, 0x40800000), "f16": (0x3C00, 0x4000, 0x4400), "bf16": (0x3F80, 0x4000, 0x4080),
    "fp8": (0x38, 0x40, 0x48), "bf8": (0x3C, 0x40, 0x44), "fp4": (0x2, 0x4, 0x6),
}  # fmt: skip
FNUZ = {"fp8": (0x40, 0x48, 0x50), "bf8": (0x40, 0x44, 0x48)}


@pytest.mark.parametrize("narrow", ["fp8", "bf8"])
@pytest.mark.parametrize(("target", "codes"), [("gfx942", FNUZ), ("gfx950", ONES), ("gfx1200", ONES)])
def test_fp8_of_a_pair_and_back(narrow: str, target: str, codes: dict[str, tuple[int, int, int]]) -> None:
    one, two, four = codes[narrow]
    line = f"call i32 @llvm.amdgcn.cvt.pk.{narrow}.f32(float %a, float %b, i32 287454020, i1 {{}})"
    a, b = f32(1.0), f32(2.0)
    assert apply(line.format("false"), "float", a, b, to="i32", target=target) == [0x11220000 | two << 8 | one]
    assert apply(line.format("true"), "float", a, b, to="i32", target=target) == [(two << 8 | one) << 16 | 0x3344]
    word = [four << 24 | two << 16 | one << 8]
    for byte, want in enumerate((0.0, 1.0, 2.0, 4.0)):
        line = f"call float @llvm.amdgcn.cvt.f32.{narrow}(i32 %a, i32 {byte})"
        assert apply(line, "i32", word, to="float", target=target) == f32(want)
    for high, pair in (("false", (0.0, 1.0)), ("true", (2.0, 4.0))):
        for at, want in enumerate(pair):
            call = f"  %v = call <2 x float> @llvm.amdgcn.cvt.pk.f32.{narrow}(i32 %a, i1 {high})"
            body = f"{inputs('i32', 1)}\n{call}\n  %r = extractelement <2 x float> %v, i64 {at}\n{output('float')}"
            assert list(run(body, word, target=target)) == f32(want)


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("narrow", ["fp8", "bf8", "fp4"])
def test_scaled_pairs_and_back(narrow: str, kind: str) -> None:
    """Packing divides by the scale, 2; unpacking multiplies. Other bits of the destination stay."""
    one, two, four = ONES[narrow]
    wide, (_, w2, w4) = WIDE[kind], ONES[kind]
    to = "i32" if narrow == "fp4" else "<2 x i16>"
    pair = "%a, float %b" if kind == "f32" else ""
    vector = f"  %u = insertelement <2 x {wide}> poison, {wide} %a, i64 0\n" + (
        f"  %v = insertelement <2 x {wide}> %u, {wide} %b, i64 1\n"
    )
    given = f"float {pair}" if pair else f"<2 x {wide}> %v"
    place = "i32 1" if narrow == "fp4" else "i1 true"
    old = "287454020" if narrow == "fp4" else "<i16 13124, i16 4386>"  # 0x11223344
    body = f"{inputs(wide, 2)}\n{vector}" + (
        f"  %c = call {to} @llvm.amdgcn.cvt.scalef32.pk.{narrow}.{kind}({to} {old}, {given}, float 2.0, {place})\n"
        f"  %r = bitcast {to} %c to i32\n{output('i32')}"
    )
    found = [int(v) for v in run(body, [w2], [w4], target="gfx950")]
    want = 0x11220044 | (two << 4 | one) << 8 if narrow == "fp4" else (two << 8 | one) << 16 | 0x3344
    assert [hex(v) for v in found] == [hex(want)]
    word = [(two << 4 | one) << 8] if narrow == "fp4" else [(two << 8 | one) << 16]
    for at, value in enumerate((w2, w4)):
        body = f"""{inputs("i32", 1)}
  %c = call <2 x {wide}> @llvm.amdgcn.cvt.scalef32.pk.{kind}.{narrow}(i32 %a, float 2.0, {place})
  %r = extractelement <2 x {wide}> %c, i64 {at}
{output(wide)}"""
        assert list(run(body, word, target="gfx950")) == [value]
    assert four  # of the table, not needed here


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("narrow", ["fp8", "bf8", "fp4"])
def test_scaled_eight_and_back(narrow: str, kind: str) -> None:
    """Elements 0 and 7 are 2 and 4, the others 0; the scale is 2."""
    one, two, _ = ONES[narrow]
    wide, (_, w2, w4) = WIDE[kind], ONES[kind]
    words, bits = (1, 4) if narrow == "fp4" else (2, 8)
    to = "i32" if words == 1 else "<2 x i32>"
    body = f"""{inputs(wide, 2)}
  %u = insertelement <8 x {wide}> zeroinitializer, {wide} %a, i64 0
  %v = insertelement <8 x {wide}> %u, {wide} %b, i64 7
  %c = call {to} @llvm.amdgcn.cvt.scalef32.pk8.{narrow}.{kind}(<8 x {wide}> %v, float 2.0)
  %r = bitcast {to} %c to i{32 * words}
{output(f"i{32 * words}")}"""
    code = two << 7 * bits | one
    assert list(run(body, [w2], [w4], target="gfx1250")) == [code]
    for at, value in ((0, w2), (1, 0), (7, w4)):
        body = f"""{inputs(f"i{32 * words}", 1)}
  %v = bitcast i{32 * words} %a to {to}
  %e = call <8 x {wide}> @llvm.amdgcn.cvt.scale.pk8.{kind}.{narrow}({to} %v, i32 128, i32 0)
  %r = extractelement <8 x {wide}> %e, i64 {at}
{output(wide)}"""
        assert list(run(body, [code], target="gfx1250")) == [value]


def test_two_halves_rounded_toward_zero() -> None:
    body = f"""{inputs("float", 2)}
  %v = call <2 x half> @llvm.amdgcn.cvt.pkrtz(float %a, float %b)
  %r = bitcast <2 x half> %v to i32
{output("i32")}"""
    assert [hex(v) for v in run(body, f32(1.9999), f32(-65519.0))] == ["0xfbff3fff"]


LANE = list(range(64))


def test_exchanges_between_lanes() -> None:
    push = "call i32 @llvm.amdgcn.ds.permute(i32 %b, i32 %a)"
    assert apply(push, "i32", LANE, [4 * ((n + 5) % 64) for n in LANE]) == [(n - 5) % 64 for n in LANE]
    assert apply("call i32 @llvm.amdgcn.ds.swizzle(i32 %a, i32 1055)", "i32", LANE) == [n ^ 1 for n in LANE]
    same = "call i32 @llvm.amdgcn.permlane16.i32(i32 poison, i32 %a, i32 305419896, i32 -1, i1 true, i1 false)"
    want = [n // 16 * 16 + (0x12345678 >> 4 * (n % 16) & 15 if n % 16 < 8 else 15) for n in range(32)]
    assert apply(same, "i32", LANE[:32], target="gfx1100") == want
    half = "call i32 @llvm.amdgcn.permlane64.i32(i32 %a)"
    assert apply(half, "i32", LANE[:32], target="gfx1100") == LANE[:32], "a wave of 32 has no other half"
    for size in (16, 32):
        for at in (0, 1):
            body = f"""{inputs("i32", 2)}
  %v = call {{ i32, i32 }} @llvm.amdgcn.permlane{size}.swap(i32 %a, i32 %b, i1 false, i1 false)
  %r = extractvalue {{ i32, i32 }} %v, {at}
{output("i32")}"""
            odd = [n // size % 2 == 1 for n in LANE]
            one = [100 + n - size if odd[n] else n for n in LANE]
            other = [100 + n if odd[n] else n + size for n in LANE]
            assert list(run(body, LANE, [100 + n for n in LANE], target="gfx950")) == (other if at else one)


def _signed(x: int) -> int:
    return x - 2**32 if x >> 31 else x


FLOATS: dict[str, Callable[[float, float], float]] = {
    "fadd": operator.add, "fsub": operator.sub, "fmax": max, "fmin": min,
}  # fmt: skip
INTEGERS: dict[str, Callable[[int, int], int]] = {
    "xchg": lambda a, b: b, "swap": lambda a, b: b, "add": operator.add, "sub": operator.sub, "and": operator.and_,
    "or": operator.or_, "xor": operator.xor, "umax": max, "umin": min,
    **{name: lambda a, b: max(_signed(a), _signed(b)) for name in ("max", "smax")},
    **{name: lambda a, b: min(_signed(a), _signed(b)) for name in ("min", "smin")},
}  # fmt: skip


@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
def test_buffer_atomics(name: str) -> None:
    """What was there comes back, and what is there then is the operation's result."""
    kind, short = ("float", "f32") if name in FLOATS else ("i32", "i32")
    call = f"call {kind} @llvm.amdgcn.raw.ptr.buffer.atomic.{name}.{short}"
    body = f"""{inputs(kind, 2)}
  %f = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %0, i16 0, i64 1024, i32 159744)
  %at = shl i32 %id, 4
  %o = {call}({kind} %b, ptr addrspace(8) %f, i32 %at, i32 0, i32 0)
  %p = bitcast {kind} %o to i32
  %then = load i32, ptr addrspace(1) %from, align 4
  %low = zext i32 %p to i64
  %wider = zext i32 %then to i64
  %high = shl i64 %wider, 32
  %r = or i64 %low, %high
{output("i64")}"""
    if name in FLOATS:
        a, b = [1.5, -2.0, 3.0], [2.0, -4.0, 0.25]
        want = [f32(FLOATS[name](x, y))[0] << 32 | f32(x)[0] for x, y in zip(a, b, strict=True)]
        assert list(run(body, f32(*a), f32(*b))) == want
    else:
        x, y = [5, M, 0x80000000, 12], [3, 1, 0x7FFFFFFF, 10]
        want = [(INTEGERS[name](i, j) & M) << 32 | i for i, j in zip(x, y, strict=True)]
        assert list(run(body, x, y)) == want


def test_hints_do_nothing() -> None:
    lines = [
        "sched.barrier(i32 0)", "sched.group.barrier(i32 1, i32 2, i32 0)", "s.setprio(i16 1)", "s.waitcnt(i32 0)",
        "iglp.opt(i32 0)",
    ]  # fmt: skip
    hints = [f"  call void @llvm.amdgcn.{line}" for line in lines]
    body = "\n".join([inputs("i32", 1), *hints, "  call void @llvm.assume(i1 true)", "  %r = add i32 %a, 1"])
    assert list(run(f"{body}\n{output('i32')}", [41])) == [42]


@pytest.mark.parametrize(
    ("line", "operands", "want"),
    [
        ("llvm.sqrt.f32(float %a)", (2.0,), math.sqrt(2.0)),
        ("llvm.amdgcn.sqrt.f32(float %a)", (4.0,), 2.0),
        ("llvm.amdgcn.rsq.f32(float %a)", (4.0,), 0.5),
        ("llvm.amdgcn.exp2.f32(float %a)", (3.0,), 8.0),
        ("llvm.amdgcn.log.f32(float %a)", (8.0,), 3.0),
        ("llvm.exp10.f32(float %a)", (0.0,), 1.0),
        ("llvm.minimumnum.f32(float %a, float %b)", (math.nan, 1.0), 1.0),
        ("llvm.maximumnum.f32(float %a, float %b)", (-0.0, 0.0), 0.0),
        ("llvm.minimum.f32(float %a, float %b)", (0.0, -0.0), -0.0),
    ],
)
def test_functions_at_values_that_are_exact(line: str, operands: tuple[float, ...], want: float) -> None:
    columns = [f32(x) for x in operands]
    assert apply(f"call float @{line}", "float", *columns) == f32(want)


def test_fmuladd_rounds_once() -> None:
    a, c = 1 + 2.0**-12, -(1 + 2.0**-11)
    line = "call float @llvm.fmuladd.f32(float %a, float %a, float %b)"
    assert apply(line, "float", f32(a), f32(c)) == f32(2.0**-24)


def test_minimum_gives_nan() -> None:
    (found,) = apply("call float @llvm.minimum.f32(float %a, float %b)", "float", f32(math.nan), f32(1.0))
    assert found & 0x7FFFFFFF > 0x7F800000


def test_numbers_of_threads_and_blocks_and_patterns() -> None:
    for name in ("workitem.id.y", "workitem.id.z", "workgroup.id.x", "workgroup.id.y", "workgroup.id.z"):
        assert set(run(f"  %r = call i32 @llvm.amdgcn.{name}()\n{output('i32')}", threads=64)) == {0}
    body = f"""{inputs("i64", 1)}
  %p = inttoptr i64 %a to ptr addrspace(1)
  %q = ptrtoint ptr addrspace(1) %p to i64
  %s = insertvalue {{ i64, i32 }} poison, i64 %q, 0
  %t = insertvalue {{ i64, i32 }} %s, i32 7, 1
  %r = extractvalue {{ i64, i32 }} %t, 0
{output("i64")}"""
    assert list(run(body, [0x123456789A])) == [0x123456789A]
