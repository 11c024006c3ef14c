"""The PTX emulator: wide products, saturation, lanes that find each other, narrow atomics, copies, functions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, ptx
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.memory import GlobalMemory, Region
from narrowgauge.suites.meta.test_emulator_ptx import FRAME, IN, OUT, SHARED, M, apply, f, run
from narrowgauge.suites.meta.test_emulator_ptx_wide import _directed, _value

pytestmark = pytest.mark.meta

WIDE = (1 << 64) - 1


# --- numbers ---------------------------------------------------------------------------------------------------------


def _signed(word: int) -> int:
    return word - (word >> 63 << 64)


def test_the_upper_half_of_a_product_of_64_bits() -> None:
    draw = random.Random(3)
    edges = [0, 1, WIDE, 1 << 63, (1 << 63) - 1, 0xFFFFFFFF, 1 << 32]
    pairs = [(x, y) for x in edges for y in edges] + [(draw.getrandbits(64), draw.getrandbits(64)) for _ in range(200)]
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    assert apply("mul.hi.u64", a, b, kind="d") == [x * y >> 64 for x, y in pairs]
    assert apply("mul.hi.s64", a, b, kind="d") == [_signed(x) * _signed(y) >> 64 & WIDE for x, y in pairs]
    c = [5] * len(pairs)
    assert apply("mad.hi.u64", a, b, c, kind="d") == [(x * y >> 64) + 5 & WIDE for x, y in pairs]


@pytest.mark.parametrize(
    ("opcode", "operand", "want"),
    [
        ("bfind.u32", 0, M),
        ("bfind.u32", 0x10000, 16),
        ("bfind.shiftamt.u32", 0x10000, 15),
        ("bfind.shiftamt.u32", 0, M),
        ("bfind.u32", M, 31),
        ("bfind.s32", M, M),
        ("bfind.s32", -2 & M, 0),
        ("bfind.s32", 5, 2),
    ],
)
def test_the_topmost_bit(opcode: str, operand: int, want: int) -> None:
    assert apply(opcode, [operand]) == [want]


@pytest.mark.parametrize("how", ["rz", "rm", "rp"])
def test_fma_with_directed_rounding(how: str) -> None:
    draw = random.Random(11)
    a, b, c = ([f(draw.uniform(-4, 4) * 2.0 ** draw.randint(-20, 20)) for _ in range(200)] for _ in range(3))
    # Far smaller than the last bit of float64, and of both signs: only the direction shows.
    a[:4], b[:4] = [f(1.5)] * 4, [f(1.25), f(-1.25)] * 2
    c[:4] = [f(2.0**-90), f(2.0**-90), f(-(2.0**-90)), f(-(2.0**-90))]
    want = [f(_directed(_value(x) * _value(y) + _value(z), how)) for x, y, z in zip(a, b, c, strict=True)]
    assert apply(f"fma.{how}.f32", a, b, c) == want
    assert apply(f"fma.{how}.f32", [f(1)], [f(1)], [f(-1)]) == [0x80000000 if how == "rm" else 0]


@pytest.mark.parametrize(
    ("opcode", "operands", "want"),
    [
        ("add.sat.f32", (f(0.75), f(0.75)), f(1)),
        ("add.sat.f32", (f(0.5), f(0.25)), f(0.75)),
        ("sub.sat.f32", (f(1), f(2)), 0),
        ("mul.sat.f32", (f(-0.0), f(1)), 0),
        ("fma.rn.sat.f32", (f(math.inf), f(0), f(1)), 0),  # NaN is +0
        ("cvt.sat.f32.f32", (f(3),), f(1)),
        ("cvt.sat.f32.f32", (0x7FC00000,), 0),
        ("cvt.ftz.sat.f32.f32", (1,), 0),
        ("cvt.sat.f32.f32", (1,), 1),
    ],
)
def test_saturation_clamps_to_0_and_1(opcode: str, operands: tuple[int, ...], want: int) -> None:
    assert apply(opcode, *([o] for o in operands)) == [want]


# --- lanes and atomics -----------------------------------------------------------------------------------------------


def test_lanes_that_have_the_same_value() -> None:
    keep = "\tcvt.u64.u32 %d9, %r1;\n\tst.global.b64 [%d1], %d9;"
    found = run("\tand.b32 %r2, %r0, 3;\n\tmatch.any.sync.b32 %r1, %r2, -1;\n" + keep, threads=64)
    assert found.tolist() == [sum(1 << i for i in range(32) if i % 4 == lane % 4) for lane in range(64)]
    both = "\tshr.u32 %r2, %r0, {}; \n\tmatch.all.sync.b32 %r1|%p1, %r2, -1;\n\tselp.b32 %r3, 1, 0, %p1;\n"
    both += "\txor.b32 %r1, %r1, %r3;\n"
    assert set(run(both.format(5) + keep, threads=64).tolist()) == {M ^ 1}  # the same within each warp
    assert set(run(both.format(4) + keep, threads=64).tolist()) == {0}


def test_one_lane_is_elected() -> None:
    body = "\telect.sync %r1|%p1, -1;\n\tselp.b32 %r2, 100, 0, %p1;\n\tadd.s32 %r1, %r1, %r2;\n"
    found = run(body + "\tcvt.u64.u32 %d9, %r1;\n\tst.global.b64 [%d1], %d9;", threads=64).tolist()
    assert [found.count(value) for value in (0, 100)] == [62, 2]


def test_the_mask_of_lanes_that_are_here() -> None:
    body = "\tmov.b32 %r1, 0;\n\tsetp.lt.u32 %p1, %r0, 5;\n\t@!%p1 bra $L__x;\n\tactivemask.b32 %r1;\n$L__x:\n"
    found = run(body + "\tcvt.u64.u32 %d9, %r1;\n\tst.global.b64 [%d1], %d9;", threads=64).tolist()
    assert found == [31] * 5 + [0] * 59


@pytest.mark.parametrize(
    ("opcode", "operand", "before", "after"),
    [
        # 2048 + 1 is a tie in float16, to even: the order shows, and that each lane's sum is rounded
        ("red.global.gpu.relaxed.add.noftz.f16", 0x3C00, 0x6800, 0x6800),
        ("red.global.gpu.relaxed.add.noftz.f16", 0x0001, 0x0001, 0x0021),  # subnormals stay
        ("red.global.gpu.relaxed.add.noftz.bf16", 0x3F80, 0x0000, 0x4200),
        ("red.global.gpu.relaxed.add.noftz.bf16x2", 0x3F803F80, 0x00004300, 0x42004320),
        ("red.global.gpu.relaxed.max.f16", 0x4000, 0x7E00, 0x4000),
        ("red.global.gpu.relaxed.min.bf16", 0x8000, 0x0000, 0x8000),
    ],
)
def test_atomics_on_narrow_floats(opcode: str, operand: int, before: int, after: int) -> None:
    bits = 32 if opcode.endswith("x2") else 16
    register = "%r5" if bits == 32 else "%h5"
    out = np.array([before], np.uint64)
    body = f"\tld.param.b64 %d5, [probe_param_1];\n\tmov.b{bits} {register}, {operand};\n\t{opcode} [%d5], {register};"
    program, parameters = ptx.parse(FRAME.format(threads=32, stride=8, body=body, shared=""))
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 0), strict=True)}
    memory = GlobalMemory([Region("argument 'out'", OUT, out.view(np.uint8))])
    launching.run(program, (1, 1, 1), memory, 0, 32, held)
    assert hex(int(out[0])) == hex(after)


def test_atomics_on_vectors_and_16_bits() -> None:
    body = "\tatom.global.gpu.relaxed.add.v2.f32 {%r1, %r2}, [%d1], {%r3, %r4};\n"
    body = f"\tmov.b64 %d9, 0x4000000000000000;\n\tst.global.b64 [%d1], %d9;\n\tmov.b32 %r3, {f(1)};\n" + body
    assert set(run(body.replace("%r4", "%r3"))) == {f(3) << 32 | f(1)}
    swap = "\tmov.b64 %d9, 7;\n\tst.global.b64 [%d1], %d9;\n\tcvt.u16.u32 %h1, %r0;\n\tmov.b16 %h2, 9;\n"
    swap += "\tadd.u16 %h1, %h1, 6;\n\tatom.global.relaxed.gpu.cas.b16 %h3, [%d1], %h1, %h2;"
    assert run(swap).tolist() == [7, 9, *[7] * 30]


# --- copies ----------------------------------------------------------------------------------------------------------

COPY = """
	shl.b32 %r1, %r0, 3;
	mov.b32 %r2, global_smem;
	add.s32 %r3, %r2, %r1;
	cp.async.ca.shared.global [ %r3 + 0 ], [ %d0 + 0 ], 0x4, {first};
	cp.async.commit_group;
	cp.async.ca.shared.global [ %r3 + 4 ], [ %d0 + 4 ], 0x4;
	cp.async.commit_group;
	{wait}
	{barrier}
	xor.b32 %r4, %r1, 8;
	add.s32 %r4, %r4, %r2;
	ld.shared.b{bits} %{kind}9, [%r4];
	{{ .reg .b64 wide; cvt.u64.u{bits} wide, %{kind}9; st.global.b64 [%d1], wide; }}"""
GIVEN = [(i + 1) << 32 | (i + 7) for i in range(32)]


def copied(
    first: str = "4", wait: str = "cp.async.wait_group 0;", barrier: str = "bar.sync 0;", bits: int = 64
) -> list[int]:
    body = COPY.format(first=first, wait=wait, barrier=barrier, bits=bits, kind="d" if bits == 64 else "r")
    return [int(word) for word in run(body, GIVEN, shared=SHARED)]


def test_copies_are_there_after_the_wait_and_a_barrier() -> None:
    assert copied() == [GIVEN[i ^ 1] for i in range(32)]
    assert copied(wait="cp.async.wait_all;") == [GIVEN[i ^ 1] for i in range(32)]
    assert copied(first="0") == [GIVEN[i ^ 1] >> 32 << 32 for i in range(32)]  # what is not copied is zero
    assert copied(wait="cp.async.wait_group 1;", bits=32) == [GIVEN[i ^ 1] & M for i in range(32)]  # the first group


@pytest.mark.parametrize(
    ("wait", "barrier", "said"),
    [
        ("", "bar.sync 0;", "read before the asynchronous copy to it was waited for"),
        ("cp.async.wait_group 1;", "bar.sync 0;", "read before the asynchronous copy to it was waited for"),
        ("cp.async.wait_group 0;", "", "is read while another thread writes it"),
        ("bar.sync 0;", "cp.async.wait_group 0;", "is read while another thread writes it"),
    ],
)
def test_copies_that_nobody_waited_for_are_reported(wait: str, barrier: str, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        copied(wait=wait, barrier=barrier)


# --- functions -------------------------------------------------------------------------------------------------------

FUNCTION = """
.func  (.param .align 16 .b8 func_retval0[16]) twice_until(
	.param .b32 twice_until_param_0,
	.param .b64 twice_until_param_1
)                                       // -- Begin function twice_until
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<9>;
	.reg .b64 	%d<9>;
	ld.param.b32 	%r1, [twice_until_param_0];
	ld.param.b64 	%d1, [twice_until_param_1];
	mov.b32 %r2, 0;
$L__again:
	add.s32 %r1, %r1, %r1;
	add.s32 %r2, %r2, 1;
	cvt.u64.u32 %d2, %r1;
	setp.ge.u64 %p1, %d2, %d1;
	@%p1 st.param.b32 	[func_retval0], %r1;
	@%p1 st.param.b64 	[func_retval0+8], %d1;
	@%p1 ret;
	bra.uni $L__again;
}
"""
CALL = """
	{{ // callseq {n}, 0
	.param .b32 param0;
	.param .b64 param1;
	.param .align 16 .b8 retval0[16];
	st.param.b32 	[param0], %r{n};
	st.param.b64 	[param1], {until};
	call.uni (retval0), {name}, (param0, param1);
	ld.param.b32 	%r{to}, [retval0];
	ld.param.b64 	%d{to}, [retval0+8];
	}} // callseq {n}
"""


def called(body: str, function: str = FUNCTION) -> list[int]:
    return [int(v) for v in run(body, shared=function)]


def test_functions_are_carried_out_where_they_are_called() -> None:
    """Lanes leave its loop at different turns; a second call uses other registers; the caller's own stay."""
    body = "\tadd.s32 %r1, %r0, 1;\n\tmov.b32 %r2, 5;\n\tmov.b64 %d2, 99;\n"
    body += CALL.format(n=1, until=20, to=3, name="twice_until") + CALL.format(n=2, until=40, to=4, name="twice_until")
    body += "\tshl.b32 %r4, %r4, 8;\n\tadd.s32 %r3, %r3, %r4;\n\tcvt.u64.u32 %d9, %r3;\n\tmul.lo.u64 %d4, %d4, %d2;\n"
    body += "\tshl.b64 %d4, %d4, 32;\n\tadd.s64 %d9, %d9, %d4;\n\tst.global.b64 [%d1], %d9;"

    def until(x: int, end: int) -> int:
        x += x
        return x if x >= end else until(x, end)

    want = [(40 * 99 << 32) + until(i + 1, 20) + (until(5, 40) << 8) for i in range(32)]
    assert called(body) == want
    assert called(body.replace("{ //", "//").replace("} //", "//")) == want  # both calls in one scope


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("call.uni (retval0), twice_until", "call.uni (retval0), elsewhere"), "a call of elsewhere"),
        (("ld.param.b64 	%d3, [retval0+8]", "ld.param.b64 	%d3, [retval0+4]"), "passed in other parts"),
    ],
)
def test_calls_that_are_refused(change: tuple[str, str], said: str) -> None:
    body = CALL.format(n=1, until=20, to=3, name="twice_until")
    assert change[0] in body
    with pytest.raises(NotExecuted, match=said):
        called(body.replace(*change))


def test_a_function_that_calls_itself_is_refused() -> None:
    own = FUNCTION.replace("	mov.b32 %r2, 0;\n", CALL.format(n=1, until="%d1", to=3, name="twice_until"))
    with pytest.raises(NotExecuted, match="twice_until calls itself"):
        called(CALL.format(n=1, until=20, to=3, name="twice_until"), own)


def test_a_kernel_that_stops_itself() -> None:
    with pytest.raises(KernelError, match="the kernel stops itself"):
        run("\tsetp.eq.u32 %p1, %r0, 3;\n\t@%p1 trap;")


def test_hints_change_no_value() -> None:
    body = """
	createpolicy.fractional.L2::evict_last.b64 %d5, 1.0;
	prefetch.global.L2 [%d0];
	ld.global.L1::evict_last.L2::cache_hint.b64 %d9, [%d0], %d5;
	membar.cta;
	ld.volatile.global.b64 %d8, [%d0];
	add.s64 %d9, %d9, %d8;
	st.global.L1::evict_first.b64 [%d1], %d9;"""
    assert run(body, list(range(32))).tolist() == [2 * i for i in range(32)]


def test_values_come_from_a_second_derivation() -> None:
    """The helper of this file gives what the definition says."""
    assert _directed(Fraction(1) + Fraction(1, 2**30), "rm") == 1.0
    assert _directed(Fraction(-1) - Fraction(1, 2**30), "rz") == -1.0


def test_what_has_no_effect_here() -> None:
    """An address in global memory is its generic one; a fence and a wait do nothing that a thread could see."""
    body = """
	cvta.to.global.u64 %d4, %d1;
	cvta.global.u64 %d5, %d4;
	fence.acq_rel.gpu;
	nanosleep.u32 100;
	sub.s64 %d6, %d5, %d1;
	st.global.b64 [%d4], %d6;"""
    assert set(run(body)) == {0}
