"""The front end for LLVM IR beyond a lane's registers: atomics, votes, waves in step; and what was added with them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.devices.emulator import launching, llvm_ir, ptx
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.llvm_amdgcn import HIDDEN
from narrowgauge.devices.emulator.memory import GlobalMemory, Region
from narrowgauge.suites.meta.llvm_program import FRAME, IN, OUT, M, apply, f32, inputs, output, run

pytestmark = pytest.mark.meta

A, B = [0, 1, 7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], [3, 0xFFFFFFFF, 31, 1, 0x80000000, 2]
PAIRS = list(zip(A, B, strict=True))
INF, NAN, QUIET = f32(math.inf)[0], 0x7FA00001, 0x7FC00000


def s(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def _clamped(x: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, x)) & M


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("call i32 @llvm.uadd.sat.i32(i32 %a, i32 %b)", [min(a + b, M) for a, b in PAIRS]),
        ("call i32 @llvm.usub.sat.i32(i32 %a, i32 %b)", [max(a - b, 0) for a, b in PAIRS]),
        ("call i32 @llvm.sadd.sat.i32(i32 %a, i32 %b)", [_clamped(s(a) + s(b)) for a, b in PAIRS]),
        ("call i32 @llvm.ssub.sat.i32(i32 %a, i32 %b)", [_clamped(s(a) - s(b)) for a, b in PAIRS]),
        ("call i32 @llvm.fshl.i32(i32 %a, i32 %b, i32 5)", [(a << 5 | b >> 27) & M for a, b in PAIRS]),
        ("call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 37)", [(a << 27 | b >> 5) & M for a, b in PAIRS]),
        ("call i32 @llvm.fshl.i32(i32 %a, i32 %b, i32 32)", A),
        ("call i32 @llvm.fshr.i32(i32 %a, i32 %b, i32 0)", B),
        ("call i32 @llvm.ctpop.i32(i32 %a)", [a.bit_count() for a in A]),
        ("call i32 @llvm.cttz.i32(i32 %a, i1 false)", [(a & -a).bit_length() - 1 if a else 32 for a in A]),
        ("call i32 @llvm.bitreverse.i32(i32 %a)", [int(f"{a:032b}"[::-1], 2) for a in A]),
    ],
)
def test_integers(line: str, want: list[int]) -> None:
    assert apply(line, "i32", A, B) == want


def test_integers_of_odd_widths() -> None:
    body = """  %t = trunc i32 %a to i7
  %m = and i7 %t, 23
  %v = call i7 @llvm.bitreverse.i7(i7 %m)
  %r = zext i7 %v to i32"""
    got = run("\n".join([inputs("i32", 1), body, output("i32")]), A)
    assert [int(v) for v in got] == [int(f"{a & 23:07b}"[::-1], 2) for a in A]


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "want"), [(0.5, 1), (-0.5, -1), (2.5, 3), (0.49999997, 0), (8388609.0, 8388609.0), (-0.25, -0.0)]
)
def test_round_goes_away_from_zero_at_halves(value: float, want: float) -> None:
    assert apply("call float @llvm.round.f32(float %a)", "float", f32(value)) == f32(want)


@pytest.mark.parametrize("value", [1.0, -3.75, 2.0**-149, 0.0, 3e38])
def test_frexp_and_ldexp_are_inverse(value: float) -> None:
    body = """  %p = call { float, i32 } @llvm.frexp.f32.i32(float %a)
  %m = extractvalue { float, i32 } %p, 0
  %e = extractvalue { float, i32 } %p, 1
  %r = call float @llvm.ldexp.f32.i32(float %m, i32 %e)"""
    (got,) = run("\n".join([inputs("float", 1), body, output("float")]), f32(value))
    assert int(got) == f32(value)[0]
    (part,) = run("\n".join([inputs("float", 1), body, output("float").replace("%r", "%m")]), f32(value))
    magnitude = abs(float(np.uint32(part).view(np.float32)))
    assert magnitude == 0 if value == 0 else 0.5 <= magnitude < 1


def test_fma_of_doubles_rounds_once() -> None:
    a, b, c = 1 + 2.0**-30, 1 + 2.0**-30, -(1 + 2.0**-29)
    pattern = [[int(np.float64(x).view(np.uint64))] for x in (a, b, c)]
    body = "\n".join(
        [inputs("i64", 3), *(f"  %d{n} = bitcast i64 %{n} to double" for n in "abc"),
         "  %d = call double @llvm.fma.f64(double %da, double %db, double %dc)", "  %r = bitcast double %d to i64",
         output("i64")]
    )  # fmt: skip
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert float(np.uint64(run(body, *pattern)[0]).view(np.float64)) == float(exact) == 2.0**-60


@pytest.mark.parametrize(
    ("line", "a", "b", "want"),
    [
        ("fadd bfloat %a, %b", 0x3F80, 0x3C00, 0x3F81),  # 1 + 2^-7
        ("fadd bfloat %a, %b", 0x3F80, 0x3B80, 0x3F80),  # 1 + 2^-8: a tie, to even
        ("fsub bfloat %a, %b", 0x3F80, 0x3F80, 0x0000),
        ("fmul bfloat %a, %b", 0x3F81, 0x3F81, 0x3F82),
        ("fmul bfloat %a, %b", 0x8000, 0x3F80, 0x8000),
    ],
)
def test_bfloat16_arithmetic_of_gfx1250(line: str, a: int, b: int, want: int) -> None:
    assert apply(line, "bfloat", [a], [b], target="gfx1250") == [want]


def test_a_nan_with_a_payload_is_read() -> None:
    assert apply("select i1 true, float +nan(0x3F0000), float %a", "float", f32(0.0)) == [0x7FFF0000]
    assert apply("select i1 true, float -nan(0x1), float %a", "float", f32(0.0)) == [0xFFC00001]


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "log10"])
def test_functions_that_are_written_out_are_open(name: str) -> None:
    text = FRAME.format(columns=1, body=f"  %r = call float @llvm.{name}.f32(float 3.0)", denormals="ieee")
    program = llvm_ir.parse(text, "gfx942", 64).program
    held = {"%0": bytes(8), "%1": bytes(8), "%2": bytes(4)}
    models = launching.run(program, (1, 1, 1), GlobalMemory([]), 0, 64, held)
    assert models == {f"llvm.{name}.f32 (LLVM AMDGPU backend)": True}
    (found,) = apply(f"call float @llvm.{name}.f32(float %a)", "float", f32(3.0))
    assert found == f32(getattr(np, name)(3.0))[0]


# --- atomics, votes, waves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "first", "want"),
    [
        ("add", 10, 10 + sum(range(64))),
        ("max", M, 63),
        ("umax", M, M),
        ("umin", 7, 0),
        ("xor", 5, 5),
        ("xchg", 5, 63),
    ],
)
@pytest.mark.parametrize("space", [1, 3])
def test_atomics_go_by_the_number_of_the_lane(space: int, operation: str, first: int, want: int) -> None:
    where = "%to0" if space == 1 else "@global_smem"
    body = f"""  %to0 = getelementptr i8, ptr addrspace(1) %1, i64 0
  store i32 {s(first)}, ptr addrspace({space}) {where}, align 4
  tail call void @llvm.amdgcn.s.barrier()
  %old = atomicrmw {operation} ptr addrspace({space}) {where}, i32 %id syncscope("agent") acq_rel, align 4
  tail call void @llvm.amdgcn.s.barrier()
  %now = load i32, ptr addrspace({space}) {where}, align 4
  tail call void @llvm.amdgcn.s.barrier()
  %wn = zext i32 %now to i64
  %wo = zext i32 %old to i64
  %hi = shl i64 %wo, 32
  %r = or i64 %hi, %wn
  store i64 %r, ptr addrspace(1) %to, align 8"""
    words = [int(w) for w in run(body, threads=64)]
    assert {w & M for w in words} == {want}
    assert words[0] >> 32 == first


def test_compare_exchange_says_whether_it_happened() -> None:
    body = """  store i32 0, ptr addrspace(3) @global_smem, align 4
  tail call void @llvm.amdgcn.s.barrier()
  %next = add i32 %id, 1
  %p = cmpxchg ptr addrspace(3) @global_smem, i32 %id, i32 %next syncscope("workgroup") monotonic monotonic, align 4
  %ok = extractvalue { i32, i1 } %p, 1
  %r = zext i1 %ok to i64
  store i64 %r, ptr addrspace(1) %to, align 8"""
    assert [int(w) for w in run(body, threads=64)] == [1] * 64
    body = body.replace("i32 %id, i32 %next sync", "i32 0, i32 %next sync")
    assert [int(w) for w in run(body, threads=64)] == [1] + [0] * 63


def test_a_ballot_and_the_count_below() -> None:
    body = """  %odd = trunc i32 %id to i1
  %votes = call i64 @llvm.amdgcn.ballot.i64(i1 %odd)
  %low = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %lane = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %low)
  %w = zext i32 %lane to i64
  %r = xor i64 %votes, %w
  store i64 %r, ptr addrspace(1) %to, align 8"""
    assert [int(w) for w in run(body, threads=64)] == [0xAAAAAAAAAAAAAAAA ^ i for i in range(64)]


EXCHANGE = """  %at = getelementptr i32, ptr addrspace(3) @global_smem, i32 %id
  store i32 %id, ptr addrspace(3) %at, align 4
  tail call void @llvm.amdgcn.wave.barrier()
  %other = xor i32 %id, {mask}
  %from2 = getelementptr i32, ptr addrspace(3) @global_smem, i32 %other
  %v = load i32, ptr addrspace(3) %from2, align 4
  %r = zext i32 %v to i64
  store i64 %r, ptr addrspace(1) %to, align 8"""


def test_lanes_of_a_wave_are_in_step_and_waves_are_not() -> None:
    within = run(EXCHANGE.format(mask=1), threads=32, target="gfx1100")
    assert [int(w) for w in within] == [i ^ 1 for i in range(32)]
    with pytest.raises(KernelError, match="race"):
        run(EXCHANGE.format(mask=32), threads=64, target="gfx1100")


def test_hidden_arguments_have_the_grid() -> None:
    body = """  %hidden = tail call dereferenceable(256) ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %p = getelementptr i8, ptr addrspace(4) %hidden, i64 4
  %v = load i32, ptr addrspace(4) %p, align 4
  %r = zext i32 %v to i64
  store i64 %r, ptr addrspace(1) %to, align 8"""
    text = FRAME.format(columns=1, body=body, denormals="ieee")
    kernel = llvm_ir.parse(text, "gfx942", 64)
    hidden, out = launching.hidden_arguments((3, 5, 7), 64), np.zeros(64, np.uint64)
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(kernel.parameters, (IN, OUT, 0), strict=True)}
    held[HIDDEN] = hidden.address.to_bytes(8, "little")
    memory = GlobalMemory([Region("out", OUT, out.view(np.uint8)), hidden])
    launching.run(kernel.program, (1, 1, 1), memory, 0, 64, held)
    assert set(out.tolist()) == {5}
