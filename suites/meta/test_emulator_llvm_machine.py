"""LLVM IR of AMD targets: control flow, lanes of a wave, memory, and what is refused."""

from __future__ import annotations

import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.suites.meta.llvm_program import M, apply, f32, inputs, output, run

pytestmark = pytest.mark.meta

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
        ("  %r = atomicrmw nand ptr addrspace(1) %0, i32 1 monotonic", "opcode atomicrmw"),
        ("  %r = call float @llvm.tan.f32(float 1.0)", r"opcode llvm\.tan\.f32"),
        ("  %r = fmul afn float 1.0, 2.0", "opcode fmul afn"),
        ("  %r = fdiv float 1.0, 2.0, !fpmath !3", "fpmath"),
        ("  %r = fadd half 0xH3C00, 0xH3C00\n  %q = load volatile i32, ptr addrspace(1) %0, align 4", "volatile"),
        ("  call void @llvm.amdgcn.s.setreg(i32 2177, i32 3)", "setreg"),
        ('  %r = call i32 asm "v_mov", "=v,v"(i32 %id)', "opcode call asm"),
        ("  %r = add i24 1, 2", "opcode add"),
        ("  %r = add i128 1, 2", "type i128"),
        ("  %m = fmul contract float 1.0, 3.0\n  %r = fadd contract float %m, 1.0", "fadd contract of a product"),
    ],
)
def test_what_is_not_known_is_refused(body: str, words: str) -> None:
    with pytest.raises(NotExecuted, match=words):
        run(body, fusion=False)


def test_a_sum_of_a_product_runs_where_the_code_generator_may_not_fuse() -> None:
    body = f"{inputs('float', 1)}\n  %m = fmul float %a, %a\n  %r = fsub float %m, 1.0\n{output('float')}"
    assert list(run(body, f32(1 + 2.0**-12), fusion=False)) == f32(2.0**-11)


def test_flushed_subnormals_are_refused() -> None:
    with pytest.raises(NotExecuted, match="denormal"):
        run("", denormals="preserve-sign,preserve-sign")
