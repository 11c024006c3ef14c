"""The PTX emulator beyond a thread's registers: matrices, atomics, votes, local memory, tables; carries, float64."""

from __future__ import annotations

import math
import operator
import random
from fractions import Fraction

import numpy as np
import pytest

from narrowgauge.devices.emulator import launching, ptx
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.memory import GlobalMemory, Region, in_turn
from narrowgauge.suites.meta.test_emulator_ptx import FRAME, IN, OUT, SHARED, M, apply, f, run

pytestmark = pytest.mark.meta

INF, NAN, CANONICAL = f(math.inf), 0x7FC00001, 0x7FFFFFFF


def d(value: float) -> int:
    """The pattern of a float64."""
    return int(np.float64(value).view(np.uint64))


# --- numbers ---------------------------------------------------------------------------------------------------------


def _value(pattern: int) -> Fraction:
    return Fraction(float(np.uint32(pattern).view(np.float32)))


def _neighbours(exact: Fraction) -> tuple[float, float]:
    """The float32 below and above a number, or itself twice."""
    near = np.float32(float(exact))
    if Fraction(float(near)) == exact:
        return float(near), float(near)
    if Fraction(float(near)) > exact:
        return float(np.nextafter(near, np.float32(-np.inf))), float(near)
    return float(near), float(np.nextafter(near, np.float32(np.inf)))


def _directed(exact: Fraction, how: str) -> float:
    below, above = _neighbours(exact)
    return {"rm": below, "rp": above, "rz": below if exact > 0 else above}[how]


@pytest.mark.parametrize("how", ["rz", "rm", "rp"])
@pytest.mark.parametrize("opcode", ["add", "sub", "mul"])
def test_directed_rounding(opcode: str, how: str) -> None:
    draw = random.Random(7)
    a = [f(draw.uniform(-4, 4) * 2.0 ** draw.randint(-30, 30)) for _ in range(200)]
    b = [f(draw.uniform(-4, 4) * 2.0 ** draw.randint(-30, 30)) for _ in range(200)]
    exact = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}[opcode]
    want = [f(_directed(exact(_value(x), _value(y)), how)) for x, y in zip(a, b, strict=True)]
    assert apply(f"{opcode}.{how}.f32", a, b) == want


@pytest.mark.parametrize(
    ("opcode", "a", "b", "want"),
    [
        ("add.rm.f32", f(1), f(-1), 0x80000000),  # IEEE 754, 6.3: an exact sum of zero is -0 when rounding down
        ("add.rm.f32", 0, 0, 0),
        ("add.rz.f32", f(1), f(-1), 0),
        ("mul.rz.f32", f(3e38), f(2), f(float(np.finfo(np.float32).max))),
        ("mul.rp.f32", f(3e38), f(2), INF),
        ("mul.rp.f32", f(-1e-30), f(1e-30), 0x80000000),
        ("add.rz.f32", INF, f(-math.inf), CANONICAL),
        ("add.rz.f32", NAN, f(1), CANONICAL),
    ],
)
def test_directed_rounding_at_the_ends(opcode: str, a: int, b: int, want: int) -> None:
    assert apply(opcode, [a], [b]) == [want]


def test_fma_of_float64_rounds_once() -> None:
    draw = random.Random(3)
    rows = [[draw.uniform(-2, 2) * 2.0 ** draw.randint(-9, 9) for _ in range(3)] for _ in range(200)]
    rows += [[1 + 2.0**-52, 1 - 2.0**-53, -1.0], [2.0**-540, 2.0**-540, 0.0], [1e200, 1e200, -1.0], [0.0, -1.0, -0.0]]
    want = []
    for a, b, c in rows:
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        try:
            want.append(d(exact.numerator / exact.denominator) if exact else d(a * b + c))
        except OverflowError:
            want.append(d(math.inf if exact > 0 else -math.inf))
    columns = [[d(row[i]) for row in rows] for i in range(3)]
    assert apply("fma.rn.f64", *columns, kind="d") == want


def test_copysign_takes_the_sign_of_the_first() -> None:
    assert apply("copysign.f32", [f(-0.0), f(1), NAN], [f(2), f(-3), f(-math.inf)]) == [f(-2), f(3), INF]


def test_carries_make_wide_sums_and_products() -> None:
    a, b = [0xFFFFFFFFFFFFFFFF, 5, 1 << 63, 0x123456789ABCDEF0], [1, 7, 1 << 63, 0xFEDCBA9876543210]
    halves = [[x & M for x in a], [x >> 32 for x in a], [x & M for x in b], [x >> 32 for x in b]]

    def wide(low: str, high: str) -> list[int]:
        loads = "\n".join(f"\tld.global.b32 %r{10 + i}, [%d0+{8 * i}];" for i in range(4))
        body = f"{loads}\n\t{low}\n\t{high}\n\tst.global.v2.b32 [%d1], {{%r14, %r15}};"
        return [int(v) for v in run(body, *halves)]

    total = wide("add.cc.u32 %r14, %r10, %r12;", "addc.u32 %r15, %r11, %r13;")
    assert total == [(x + y) % 2**64 for x, y in zip(a, b, strict=True)]
    rest = wide("sub.cc.u32 %r14, %r10, %r12;", "subc.u32 %r15, %r11, %r13;")
    assert rest == [(x - y) % 2**64 for x, y in zip(a, b, strict=True)]
    product = wide("mad.lo.cc.u32 %r14, %r10, %r12, %r11;", "madc.hi.u32 %r15, %r10, %r12, 0;")
    assert product == [(x & M) * (y & M) + (x >> 32) for x, y in zip(a, b, strict=True)]


# --- memory ----------------------------------------------------------------------------------------------------------


def test_local_memory_is_each_threads_own() -> None:
    body = """
	.local .align 4 .b8 __local_depot0[16];
	mov.b32 %r1, __local_depot0;
	add.s32 %r2, %r0, 100;
	st.local.b32 [%r1+8], %r2;
	ld.local.b32 %r3, [%r1+8];
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b32 [%d1], %r3;"""
    assert run(body).tolist() == list(range(100, 132))
    with pytest.raises(KernelError, match="load of local memory that nobody wrote"):
        run(body.replace("st.local.b32 [%r1+8]", "st.local.b32 [%r1+4]"))
    with pytest.raises(KernelError, match="out of bounds: store of 4 bytes of local memory; a thread has 16 bytes"):
        run(body.replace("[%r1+8]", "[%r1+16]"))


def test_tables_that_come_with_the_code() -> None:
    body = """
	mov.b64 %d4, table;
	and.b32 %r1, %r0, 3;
	mul.wide.u32 %d5, %r1, 4;
	add.s64 %d4, %d4, %d5;
	ld.global.b32 %r2, [%d4];
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b32 [%d1], %r2;"""
    text = FRAME.format(threads=32, stride=8, body=body, shared=".global .align 4 .b32 table[4] = {7, 0x10, -1};")
    program, parameters = ptx.parse(text)
    out = np.zeros(32, np.uint64)
    memory = GlobalMemory([Region("out", OUT, out.view(np.uint8)), *program.constants])
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 0), strict=True)}
    launching.run(program, (1, 1, 1), memory, 0, 32, held)
    assert out[:4].tolist() == [7, 16, M, 0]


def test_lanes_in_turn_never_share_an_address() -> None:
    address = np.array([8, 0, 8, 4, 8, 0])
    turns = [turn.tolist() for turn in in_turn(address)]
    assert turns == [[0, 1, 3], [2, 5], [4]]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("opcode", "operand", "first", "want"),
    [
        ("add.u32", "%r1", 10, 10 + sum(range(32))),
        ("max.s32", "%r1", -3 & M, 31),
        ("min.u32", "%r1", 7, 0),
        ("xor.b32", "%r1", 5, 5),  # 0 ^ 1 ^ … ^ 31 is 0
        ("exch.b32", "%r1", 5, 31),
        ("add.f32", "0f3F800000", f(1), f(33)),
    ],
)
def test_atomics_go_by_the_number_of_the_lane(space: str, opcode: str, operand: str, first: int, want: int) -> None:
    where = "%r5" if space == "shared" else "%d6"
    body = f"""
	mov.u32 %r1, %tid.x;
	mov.b32 %r5, 0;
	mov.b64 %d6, {OUT};
	mov.b32 %r6, {first};
	setp.eq.u32 %p1, %r1, 0;
	@%p1 st.{space}.b32 [{where}], %r6;
	bar.sync 0;
	atom.{space}.gpu.relaxed.{opcode} %r2, [{where}], {operand};
	bar.sync 0;
	ld.{space}.b32 %r3, [{where}];
	mov.b64 %d9, 0;
	bar.sync 0;
	st.global.b64 [%d1], %d9;
	st.global.v2.b32 [%d1], {{%r3, %r2}};"""
    words = run(body, shared=SHARED).tolist()
    assert {w & M for w in words} == {want}
    assert words[0] >> 32 == first, "the first lane gets what was there"


def test_compare_and_swap() -> None:
    body = f"""
	mov.b64 %d6, {OUT};
	mov.u32 %r1, %tid.x;
	add.s32 %r2, %r1, 1;
	mov.b32 %r6, 0;
	st.global.b32 [%d6], %r6;
	bar.sync 0;
	atom.global.acq_rel.cas.b32 %r3, [%d6], %r1, %r2;
	bar.sync 0;
	st.global.v2.b32 [%d1], {{%r3, %r1}};"""
    assert [w & M for w in run(body).tolist()] == list(range(32)), "each lane finds what the one before it put there"


def test_an_atomic_beside_a_plain_access_is_a_race() -> None:
    body = """
	mov.b32 %r5, 0;
	mov.b32 %r6, 1;
	st.shared.b32 [%r5], %r6;
	bar.sync 0;
	atom.shared.add.u32 %r2, [%r5], 1;
	ld.shared.b32 %r3, [%r5];"""
    with pytest.raises(KernelError, match="race"):
        run(body, shared=SHARED)


# --- a warp ----------------------------------------------------------------------------------------------------------


def test_votes() -> None:
    body = """
	and.b32 %r1, %r0, 1;
	setp.eq.u32 %p1, %r1, 1;
	vote.sync.ballot.b32 %r2, %p1, -1;
	vote.sync.any.pred %p2, %p1, -1;
	vote.sync.all.pred %p3, %p1, -1;
	vote.sync.uni.pred %p4, %p1, -1;
	selp.b32 %r3, 1, 0, %p2;
	selp.b32 %r4, 2, 0, %p3;
	selp.b32 %r5, 4, 0, %p4;
	or.b32 %r3, %r3, %r4;
	or.b32 %r3, %r3, %r5;
	st.global.v2.b32 [%d1], {%r2, %r3};"""
    assert set(run(body).tolist()) == {1 << 32 | 0xAAAAAAAA}
    every = body.replace("setp.eq.u32 %p1, %r1, 1;", "setp.ge.u32 %p1, %r1, 0;")
    assert set(run(every).tolist()) == {7 << 32 | M}


def test_a_barrier_of_a_warp_orders_its_accesses_alone() -> None:
    body = """
	shl.b32 %r1, %r0, 2;
	st.shared.b32 [%r1], %r0;
	bar.warp.sync -1;
	xor.b32 %r2, %r1, {mask};
	ld.shared.b32 %r3, [%r2];
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b32 [%d1], %r3;"""
    assert run(body.format(mask=4), threads=64, shared=SHARED).tolist() == [i ^ 1 for i in range(64)]
    with pytest.raises(KernelError, match="race"):
        run(body.format(mask=128), threads=64, shared=SHARED)
    with pytest.raises(KernelError, match="race"):
        run(body.format(mask=4).replace("bar.warp.sync -1;", ""), shared=SHARED)


@pytest.mark.parametrize("least", [0, 32])
@pytest.mark.parametrize("trans", [False, True])
def test_matrices_go_to_shared_memory_and_back(trans: bool, least: int) -> None:
    """Elements are numbered by thread and half; each is looked for where the ISA's figure has it. Other warps may be
    elsewhere."""
    tail = ".trans" if trans else ""
    body = f"""
	mov.b64 %d9, 5;
	st.global.b64 [%d1], %d9;
	setp.lt.u32 %p1, %r0, {least};
	@%p1 bra $L__out;
	sub.u32 %r0, %r0, {least};
	shl.b32 %r1, %r0, 4;
	shl.b32 %r2, %r0, 1;
	add.s32 %r3, %r2, 1;
	shl.b32 %r3, %r3, 16;
	or.b32 %r4, %r2, %r3;
	mov.b32 %r5, 0;
	and.b32 %r6, %r0, 15;
	shl.b32 %r6, %r6, 4;
	stmatrix.sync.aligned.m8n8.x2{tail}.shared.b16 [%r6], {{%r4, %r4}};
	bar.warp.sync -1;
	and.b32 %r7, %r0, 7;
	shl.b32 %r7, %r7, 4;
	ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r8}}, [%r7];
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b32 [%d1], %r8;
$L__out:"""
    words = run(body, threads=32 + least, shared=SHARED).tolist()
    matrix = np.zeros((8, 8), int)
    for thread in range(32):
        for half in range(2):
            at = (thread // 4, 2 * (thread % 4) + half)
            matrix[at[::-1] if trans else at] = 2 * thread + half
    want = [matrix[t // 4, 2 * (t % 4)] | matrix[t // 4, 2 * (t % 4) + 1] << 16 for t in range(32)]
    assert words == [5] * least + want
    if least:
        with pytest.raises(KernelError, match="while others are elsewhere"):
            run(body.replace(f"%r0, {least};", f"%r0, {least - 1};", 1), threads=32 + least, shared=SHARED)
