"""The front end for LLVM IR of AMD targets: opcodes by the words of the language reference, lanes, memory, refusals."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, llvm_ir, ptx
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.memory import GlobalMemory, Region
from narrowgauge.devices.targets import TARGETS

pytestmark = pytest.mark.meta

IN, OUT = 0x10000, 0x20000
FRAME = """
@global_smem = external local_unnamed_addr addrspace(3) global [0 x i8], align 16
define amdgpu_kernel void @probe(ptr addrspace(1) captures(none) %0, ptr addrspace(1) %1, i32 inreg %2) #0 !dbg !4 {{
  %id = tail call i32 @llvm.amdgcn.workitem.id.x(), !dbg !14
  %wide = zext nneg i32 %id to i64
  %from = getelementptr inbounds <{columns} x i64>, ptr addrspace(1) %0, i64 %wide
  %to = getelementptr inbounds i64, ptr addrspace(1) %1, i64 %wide
{body}
  ret void
}}
attributes #0 = {{ "denormal-fp-math-f32"="{denormals}" }}
!1 = !DIFile(filename: "probe.py", directory: "somewhere")
!4 = distinct !DISubprogram(name: "probe", scope: !1, file: !1, line: 3)
!14 = !DILocation(line: 7, column: 3, scope: !4)
"""
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "half": 16, "bfloat": 16}
Words = npt.NDArray[np.uint64]


def run(
    body: str, *columns: list[int], target: str = "gfx942", threads: int = 0, fusion: bool = True,
    denormals: str = "ieee", fill: int = 0xA5,
) -> Words:  # fmt: skip
    """Words that each thread stored at %to. A thread's inputs are the i64 at %from, …"""
    warp = TARGETS[target].warp
    rows = len(columns[0]) if columns else threads or warp
    threads = threads or max(warp, -(-rows // warp) * warp)
    given = np.zeros((threads, max(1, len(columns))), np.uint64)
    for i, column in enumerate(columns):
        given[:rows, i] = np.array([value & (1 << 64) - 1 for value in column], np.uint64)
    out = np.full(threads, 0x5555555555555555, np.uint64)
    text = FRAME.format(columns=given.shape[1], body=body, denormals=denormals)
    program, parameters = llvm_ir.parse(text, target, threads, fusion)
    memory = GlobalMemory(
        [Region("argument 'x'", IN, given.view(np.uint8).ravel()), Region("argument 'out'", OUT, out.view(np.uint8))]
    )
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 77), strict=True)}
    launching.run(program, (1, 1, 1), memory, 256, warp, held, fill)
    return out[:rows]


def inputs(kind: str, count: int) -> str:
    """%a, %b, … of a kind from the thread's words."""
    lines = []
    for i, name in enumerate("abcd"[:count]):
        narrow = f"trunc i64 %w{name} to i{BITS[kind]}" if BITS[kind] < 64 else f"freeze i64 %w{name}"
        lines += [
            f"  %p{name} = getelementptr i64, ptr addrspace(1) %from, i32 {i}",
            f"  %w{name} = load i64, ptr addrspace(1) %p{name}, align 8",
            f"  %n{name} = {narrow}",
            f"  %{name} = bitcast i{BITS[kind]} %n{name} to {kind}",
        ]
    return "\n".join(lines)


def output(kind: str) -> str:
    """Store %r."""
    if kind == "i1":
        return "  %rw = zext i1 %r to i64\n  store i64 %rw, ptr addrspace(1) %to, align 8"
    last = "  %rw = freeze i64 %rb" if BITS[kind] == 64 else f"  %rw = zext i{BITS[kind]} %rb to i64"
    return f"  %rb = bitcast {kind} %r to i{BITS[kind]}\n{last}\n  store i64 %rw, ptr addrspace(1) %to, align 8"


def apply(
    line: str, kind: str, *columns: list[int], to: str = "", before: str = "", target: str = "gfx942", fill: int = 0xA5
) -> list[int]:
    """Results of ``%r = line`` on %a, %b, … of a kind."""
    body = "\n".join([before, inputs(kind, len(columns)), f"  %r = {line}", output(to or kind)])
    return [int(v) for v in run(body, *columns, target=target, fill=fill)]


def f32(*values: float) -> list[int]:
    return [int.from_bytes(struct.pack("<f", value), "little") for value in values]


A, B = [0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], [3, 0xFFFFFFFF, 31, 1, 0x80000000, 2]
M = 0xFFFFFFFF


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


OVFL = "  tail call void @llvm.amdgcn.s.setreg(i32 1473, i32 1)"


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


# --- control flow ----------------------------------------------------------------------------------------------------


def test_a_loop_whose_phis_change_places() -> None:
    """Fibonacci numbers: each lane leaves after its own number of steps; both phis are copied at once."""
    body = f"""{inputs("i32", 1)}
  %none = icmp eq i32 %a, 0
  br i1 %none, label %done, label %loop
loop:                                             ; preds = %loop, %3
  %x = phi i32 [ 0, %3 ], [ %y, %loop ]
  %y = phi i32 [ 1, %3 ], [ %sum, %loop ]
  %i = phi i32 [ 0, %3 ], [ %next, %loop ]
  %sum = add i32 %x, %y
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %a
  br i1 %more, label %loop, label %done, !llvm.loop !9
done:                                             ; preds = %loop, %3
  %r = phi i32 [ 0, %3 ], [ %y, %loop ]
{output("i32")}"""
    assert list(run(body, [0, 1, 2, 3, 4, 5, 10])) == [0, 1, 1, 2, 3, 5, 55]


def test_phis_that_exchange_their_values() -> None:
    body = f"""{inputs("i32", 1)}
  br label %loop
loop:
  %x = phi i32 [ 5, %3 ], [ %y, %loop ]
  %y = phi i32 [ 9, %3 ], [ %x, %loop ]
  %i = phi i32 [ 0, %3 ], [ %next, %loop ]
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %a
  br i1 %more, label %loop, label %done
done:
  %r = sub i32 %y, %x
{output("i32")}"""
    assert list(run(body, [1, 2, 3])) == [4, M - 3, 4]


def test_a_phi_of_a_vector() -> None:
    body = f"""{inputs("i32", 1)}
  %odd = trunc i32 %a to i1
  br i1 %odd, label %yes, label %no
yes:
  %v = bitcast i32 %a to <2 x i16>
  br label %no
no:
  %p = phi <2 x i16> [ <i16 1, i16 2>, %3 ], [ %v, %yes ]
  %r = bitcast <2 x i16> %p to i32
{output("i32")}"""
    assert list(run(body, [4, 0x70005])) == [0x20001, 0x70005]


# --- lanes -----------------------------------------------------------------------------------------------------------


def test_lanes_of_a_wave() -> None:
    lane = list(range(64))
    dpp = "call i32 @llvm.amdgcn.update.dpp.i32(i32 {old}, i32 %a, i32 {control}, i32 15, i32 15, i1 {bound})"
    shifted = apply(dpp.format(old="99", control=0x111, bound="true"), "i32", lane)
    assert shifted == [0 if i % 16 == 0 else i - 1 for i in lane]
    kept = apply(dpp.format(old="99", control=0x111, bound="false"), "i32", lane)
    assert kept == [99 if i % 16 == 0 else i - 1 for i in lane]
    assert apply("call i32 @llvm.amdgcn.readlane.i32(i32 %a, i32 63)", "i32", lane) == [63] * 64
    assert apply("call i32 @llvm.amdgcn.readfirstlane.i32(i32 %a)", "i32", lane[5:]) == [5] * 59
    pull = "call i32 @llvm.amdgcn.ds.bpermute(i32 %b, i32 %a)"
    assert apply(pull, "i32", lane, [4 * (63 - i) for i in lane]) == lane[::-1]
    other = "call i32 @llvm.amdgcn.permlanex16.i32(i32 poison, i32 %a, i32 -1, i32 -1, i1 true, i1 false)"
    assert apply(other, "i32", lane[:32], target="gfx1100") == [31] * 16 + [15] * 16
    with pytest.raises(NotExecuted, match="DPP control"):
        apply(dpp.format(old="0", control=0x142, bound="true"), "i32", lane[:32], target="gfx1100")
    assert list(run(f"  %r = call i32 @llvm.amdgcn.wave.id()\n{output('i32')}", threads=64, target="gfx1200")) == (
        [0] * 32 + [1] * 32
    )


def test_readfirstlane_takes_the_first_lane_that_is_active() -> None:
    body = f"""{inputs("i32", 1)}
  %late = icmp ugt i32 %a, 9
  br i1 %late, label %yes, label %no
yes:
  %f = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %a)
  br label %no
no:
  %r = phi i32 [ 0, %3 ], [ %f, %yes ]
{output("i32")}"""
    assert list(run(body, list(range(64)))) == [0] * 10 + [10] * 54


@pytest.mark.parametrize(
    ("fetch", "bound", "expected"), [("true", "false", 20), ("false", "true", 0), ("false", "false", 7)]
)
def test_a_lane_that_is_not_active_is_fetched_or_not(fetch: str, bound: str, expected: int) -> None:
    """Lanes 0 to 15 read lane 20, which went another way."""
    body = f"""{inputs("i32", 1)}
  %low = icmp ult i32 %a, 16
  br i1 %low, label %yes, label %no
yes:
  %f = call i32 @llvm.amdgcn.permlanex16.i32(i32 7, i32 %a, i32 1145324612, i32 1145324612, i1 {fetch}, i1 {bound})
  br label %no
no:
  %r = phi i32 [ 99, %3 ], [ %f, %yes ]
{output("i32")}"""
    assert list(run(body, list(range(32)), target="gfx1100")) == [expected] * 16 + [99] * 16


# --- memory ----------------------------------------------------------------------------------------------------------

EXCHANGE = """  %at = shl i32 %id, 2
  %mine = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %at
  store i32 %id, ptr addrspace(3) %mine, align 4
{barrier}
  %back = sub i32 252, %at
  %other = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %back
  %r = load i32, ptr addrspace(3) %other, align 4, !dbg !14
"""


def test_shared_memory_and_barriers() -> None:
    barrier = '  fence syncscope("workgroup") release\n  call void @llvm.amdgcn.s.barrier()'
    signal = "  call void @llvm.amdgcn.s.barrier.signal(i32 -1)\n  call void @llvm.amdgcn.s.barrier.wait(i16 -1)"
    for text, target in ((barrier, "gfx1100"), (signal, "gfx1200")):
        found = run(EXCHANGE.format(barrier=text) + output("i32"), threads=64, target=target)
        assert list(found) == list(range(63, -1, -1))
    with pytest.raises(KernelError, match=r"probe at probe\.py:7.*race: shared memory"):
        run(EXCHANGE.format(barrier="") + output("i32"), threads=64, target="gfx1100")


def test_buffers() -> None:
    body = f"""{inputs("i32", 1)}
  %b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %0, i16 0, i64 {{size}}, i32 159744)
  %v = call <2 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v2i32(ptr addrspace(8) %b, i32 %a, i32 0, i32 0), !dbg !14
  %r = bitcast <2 x i32> %v to i64
{output("i64")}"""
    # the words of memory are 0, 8, 12, -2^31: the second lane reads 8, the third 0:12, the last is out of range
    assert list(run(body.format(size=2147483646), [0, 8, 12, -(1 << 31)])) == [0, 8, 12 << 32, 0]
    assert list(run(body.format(size=20), [0, 8, 12, 16])) == [0, 8, 12 << 32, 12]  # parts beyond the size are 0
    assert list(run(body.format(size=28), [0, 0, 0, -1, 24])) == [0, 0, 0, 0, M]  # of the word -1 the lower half
    with pytest.raises(KernelError, match=r"probe at probe\.py:7, .*out of bounds: load of 4 bytes at 0x"):
        run(body.format(size=2147483646), [0, 1 << 20])
    store = f"""{inputs("i32", 1)}
  %b = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %1, i16 0, i64 2147483646, i32 159744)
  call void @llvm.amdgcn.raw.ptr.buffer.store.i8(i8 7, ptr addrspace(8) %b, i32 %a, i32 0, i32 0)"""
    found = run(store, [0, 9, *[-(1 << 31)] * 62])
    assert [hex(v) for v in found[:3]] == ["0x5555555555555507", "0x5555555555550755", "0x5555555555555555"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("  %r = call i32 @llvm.amdgcn.mfma.i32(i32 %id)", r"opcode llvm\.amdgcn\.mfma\.i32"),
        ("  %r = atomicrmw add ptr addrspace(1) %0, i32 1 monotonic", "opcode atomicrmw"),
        ("  %r = call float @llvm.exp.f32(float 1.0)", r"opcode llvm\.exp\.f32"),
        ("  %r = fmul afn float 1.0, 2.0", "opcode fmul afn"),
        ("  %r = fdiv float 1.0, 2.0, !fpmath !3", "fpmath"),
        ("  %r = fadd half 0xH3C00, 0xH3C00\n  %q = load volatile i32, ptr addrspace(1) %0, align 4", "volatile"),
        ("  call void @llvm.amdgcn.s.setreg(i32 2177, i32 3)", "setreg"),
        ('  %r = call i32 asm "v_mov", "=v,v"(i32 %id)', "opcode call asm"),
        ("  %r = add i24 1, 2", "type i24"),
        ("  %m = fmul float 1.0, 2.0\n  %r = fadd float %m, 1.0", "fadd of a product"),
    ],
)
def test_what_is_not_known_is_refused(body: str, words: str) -> None:
    with pytest.raises(NotExecuted, match=words):
        run(body)


def test_a_sum_of_a_product_runs_where_the_code_generator_may_not_fuse() -> None:
    body = f"{inputs('float', 1)}\n  %m = fmul float %a, %a\n  %r = fsub float %m, 1.0\n{output('float')}"
    assert list(run(body, f32(1 + 2.0**-12), fusion=False)) == f32(2.0**-11)


def test_flushed_subnormals_are_refused() -> None:
    with pytest.raises(NotExecuted, match="denormal"):
        run("", denormals="preserve-sign,preserve-sign")
