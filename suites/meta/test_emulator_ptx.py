"""The PTX emulator: opcodes by the words of the PTX ISA, control flow, memory, and what it reports."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.devices.emulator import launching, ptx
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.memory import GlobalMemory, Region

pytestmark = pytest.mark.meta

IN, OUT = 0x10000, 0x20000
FRAME = """
.version 9.4
.target sm_90a
.address_size 64
{shared}
.visible .entry probe(
	.param .u64 .ptr .global .align 1 probe_param_0,
	.param .u64 .ptr .global .align 1 probe_param_1,
	.param .u32 probe_param_2
)
.reqntid {threads}
{{
	.reg .pred 	%p<9>;
	.reg .b16 	%h<9>;
	.reg .b32 	%r<20>;
	.reg .b64 	%d<20>;
	ld.param.b64 	%d0, [probe_param_0];
	ld.param.b64 	%d1, [probe_param_1];
	mov.u32 	%r0, %tid.x;
	mul.wide.u32 	%d2, %r0, {stride};
	add.s64 	%d0, %d0, %d2;
	mul.wide.u32 	%d3, %r0, 8;
	add.s64 	%d1, %d1, %d3;
	.loc	1 7 3
{body}
	ret;
}}
	.file	1 "somewhere/probe.py"
"""
SHARED = ".extern .shared .align 16 .b8 global_smem[];"
Words = npt.NDArray[np.uint64]


def run(body: str, *columns: list[int], threads: int = 32, outputs: int = 0, shared: str = "") -> Words:
    """Words that each thread stored at [%d1]. A thread's inputs are the words at [%d0], [%d0+8], …"""
    rows = len(columns[0]) if columns else threads
    threads = max(threads, -(-rows // 32) * 32)
    given = np.zeros((threads, max(1, len(columns))), np.uint64)
    for i, column in enumerate(columns):
        given[:rows, i] = np.array([value & (1 << 64) - 1 for value in column], np.uint64)
    out = np.full(outputs or threads, 0x5555555555555555, np.uint64)
    text = FRAME.format(threads=threads, stride=given.shape[1] * 8, body=body, shared=shared)
    program, parameters = ptx.parse(text)
    memory = GlobalMemory(
        [Region("argument 'x'", IN, given.view(np.uint8).ravel()), Region("argument 'out'", OUT, out.view(np.uint8))]
    )
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 77), strict=True)}
    launching.run(program, (1, 1, 1), memory, 256, 32, held)
    return out[:rows]


def apply(opcode: str, *columns: list[int], kind: str = "r") -> list[int]:
    """Results of ``opcode d, a, b, …`` on 16-bit (h), 32-bit (r) or 64-bit (d) registers."""
    bits = {"h": 16, "r": 32, "d": 64}[kind]
    names = [f"%{kind}{10 + i - (10 if kind == 'h' else 0)}" for i in range(len(columns) + 1)]
    loads = [f"\tld.global.b{bits} {name}, [%d0+{8 * i}];" for i, name in enumerate(names[1:])]
    zero = "\tmov.b64 %d9, 0;\n\tst.global.b64 [%d1], %d9;"
    body = "\n".join([*loads, f"\t{opcode} {', '.join(names)};", zero, f"\tst.global.b{bits} [%d1], {names[0]};"])
    return [int(v) for v in run(body, *columns)]


def f(value: float) -> int:
    """The pattern of a float32."""
    return int(np.float32(value).view(np.uint32))


NAN, INF, CANONICAL = 0x7FC00001, f(np.inf), 0x7FFFFFFF
NAN64 = 0x7FF8000000000001
M = 0xFFFFFFFF

#: opcode, operands, result; from the "Semantics" and "Notes" of each instruction in the PTX ISA
CASES: list[tuple[str, tuple[int, ...], int]] = [
    ("add.s32", (M, 2), 1),
    ("sub.s32", (0, 1), M),
    ("mul.lo.s32", (0x10001, 0x10001), 0x20001),
    ("mul.hi.u32", (M, M), M - 1),
    ("mul.hi.s32", (M, M), 0),
    ("mad.lo.s32", (3, M, 5), 2),
    ("div.s32", (-7 & M, 2), -3 & M),
    ("rem.s32", (-7 & M, 2), -1 & M),
    ("div.u32", (-7 & M, 2), 0x7FFFFFFC),
    ("abs.s32", (-5 & M,), 5),
    ("neg.s32", (5,), -5 & M),
    ("min.s32", (M, 1), M),
    ("min.u32", (M, 1), 1),
    ("max.s32", (M, 1), 1),
    ("max.u32", (M, 1), M),
    ("add.s16x2", (0x0001FFFF, 0x00010001), 0x00020000),
    ("and.b32", (12, 10), 8),
    ("or.b32", (12, 10), 14),
    ("xor.b32", (12, 10), 6),
    ("not.b32", (0,), M),
    ("shl.b32", (1, 31), 0x80000000),
    ("shl.b32", (1, 32), 0),
    ("shr.u32", (0x80000000, 31), 1),
    ("shr.u32", (M, 99), 0),
    ("shr.s32", (0x80000000, 99), M),
    ("shf.l.wrap.b32", (0x80000000, 1, 33), 3),
    ("shf.r.clamp.b32", (0x80000000, 1, 32), 1),
    ("bfe.u32", (0xABCD1234, 8, 8), 0x12),
    ("bfe.u32", (0xABCD1234, 4, 0), 0),
    ("bfe.s32", (0x0000F000, 12, 4), M),
    ("bfe.s32", (0x80000000, 28, 16), 0xFFFFFFF8),
    ("bfe.s32", (0x80000000, 40, 4), M),
    ("bfi.b32", (0xF, 0, 4, 4), 0xF0),
    ("prmt.b32", (0x33221100, 0x77665544, 0x5410), 0x55441100),
    ("prmt.b32", (0x000000F0, 0, 0x8888), M),
    ("clz.b32", (0,), 32),
    ("clz.b32", (0x10000,), 15),
    ("popc.b32", (0xF0F0,), 8),
    ("brev.b32", (1,), 0x80000000),
    ("add.f32", (f(1), f(2.0**-24)), f(1)),
    ("add.f32", (f(1), 0x33800001), f(1 + 2.0**-23)),
    ("add.f32", (INF, f(-np.inf)), CANONICAL),
    ("mul.f32", (1, f(1)), 1),
    ("mul.ftz.f32", (1, f(1)), 0),
    ("fma.rn.f32", (f(1 + 2.0**-12), f(1 + 2.0**-12), f(-(1 + 2.0**-11))), f(2.0**-24)),
    ("div.rn.f32", (f(1), f(3)), 0x3EAAAAAB),
    ("div.full.f32", (f(1), f(0)), INF),
    ("div.approx.f32", (f(1), f(2.0**127)), 0),
    ("sqrt.rn.f32", (f(2),), 0x3FB504F3),
    ("rcp.rn.f32", (f(-0.0),), f(-np.inf)),
    ("ex2.approx.ftz.f32", (f(3),), f(8)),
    ("ex2.approx.ftz.f32", (f(-140),), 0),
    ("lg2.approx.f32", (f(8),), f(3)),
    ("rsqrt.approx.f32", (f(4),), f(0.5)),
    ("min.f32", (NAN, f(1)), f(1)),
    ("min.f32", (f(1), NAN), f(1)),
    ("min.f32", (NAN, NAN), CANONICAL),
    ("min.f32", (f(0), f(-0.0)), f(-0.0)),
    ("min.f32", (f(-0.0), f(0)), f(-0.0)),
    ("max.f32", (f(-0.0), f(0)), f(0)),
    ("max.f32", (f(0), f(-0.0)), f(0)),
    ("max.f32", (f(-1), NAN), f(-1)),
    ("max.NaN.f32", (f(-1), NAN), CANONICAL),
    ("max.f32", (f(1), f(7), f(3)), f(7)),
    ("min.xorsign.abs.f32", (f(-3), f(2)), f(-2)),
    ("min.xorsign.abs.f32", (f(-3), f(-2)), f(2)),
    ("abs.f32", (f(-0.0),), 0),
    ("neg.f32", (0,), f(-0.0)),
    ("abs.f16x2", (0x80008001,), 0x00000001),
    ("add.rn.bf16x2", (0x3F803F80, 0x3F803B80), 0x40003F80),  # 1 + 2^-8 is a tie: to even
    ("fma.rn.bf16x2", (0x3F813F81, 0x3F813F81, 0xBF82BF82), 0x38803880),
    ("fma.rn.bf16x2", (0x3F883F88, 0x3F883F88, 0x2180A180), 0x3F913F90),  # a tie, and 2^-60 above or below it
    ("fma.rn.f16x2", (0x3C013C01, 0x3C013C01, 0xBC02BC02), 0x00100010),
    ("cvt.rni.s32.f32", (f(2.5),), 2),
    ("cvt.rzi.s32.f32", (f(-2.5),), -2 & M),
    ("cvt.rmi.s32.f32", (f(-2.5),), -3 & M),
    ("cvt.rpi.s32.f32", (f(2.1),), 3),
    ("cvt.rzi.s32.f32", (NAN,), 0),
    ("cvt.rzi.s32.f32", (f(3e9),), 0x7FFFFFFF),
    ("cvt.rzi.u32.f32", (f(-1),), 0),
    ("cvt.rni.f32.f32", (f(3.5),), f(4)),
    ("cvt.rn.f32.s32", (16777217,), f(16777216)),
    ("cvt.rn.f32.u32", (M,), f(4294967296.0)),
    ("cvt.s32.s8", (0x80,), 0xFFFFFF80),
    ("cvt.u32.u8", (0x180,), 0x80),
    ("cvt.rn.f16x2.f32", (f(1), f(2)), 0x3C004000),
    ("cvt.rz.f16x2.f32", (f(65519), f(-65530)), 0x7BFFFBFF),
    ("cvt.rn.bf16x2.f32", (0x3F808000, 0x3F818000), 0x3F803F82),
    ("set.nan.f16x2.f16x2", (0x7E000000, 0x7E000000), 0x3C000000),
]  # fmt: skip


IDS = ["-".join([opcode, *(f"{value:x}" for value in operands)]) for opcode, operands, _ in CASES]


@pytest.mark.parametrize(("opcode", "operands", "result"), CASES, ids=IDS)
def test_an_opcode_does_what_the_isa_says(opcode: str, operands: tuple[int, ...], result: int) -> None:
    assert hex(apply(opcode, *([o] for o in operands))[0]) == hex(result)


def test_a_table_of_three() -> None:
    """lop3 with the table of the majority; the table is an immediate."""
    body = """
	ld.global.b32 %r1, [%d0];
	ld.global.b32 %r2, [%d0+8];
	ld.global.b32 %r3, [%d0+16];
	lop3.b32 %r4, %r1, %r2, %r3, 0xE8;
	cvt.u64.u32 %d9, %r4;
	st.global.b64 [%d1], %d9;"""
    assert run(body, [0xF0F0], [0xCCCC], [0xAAAA])[0] == (0xF0F0 & 0xCCCC | 0xF0F0 & 0xAAAA | 0xCCCC & 0xAAAA)


def test_fma_rounds_once() -> None:
    """Against exact fractions, on operands whose float64 sums are near ties of float32."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0x3F000000, 0x40000000, 3000).astype(np.uint32) for _ in range(2))
    with np.errstate(all="ignore"):
        tie = (a.view(np.float32) * b.view(np.float32)).astype(np.float32)
        c = (tie * np.float32(2.0**-24) * rng.choice([1, -1, 2.0**-28], 3000)).astype(np.float32).view(np.uint32)
    # Halfway products: odd multiples of half a unit, plus something far below float64's last bit.
    a[:2], b[:2], c[:2] = 0x3F800001, 0x3FC00000, (f(2.0**-80), f(-(2.0**-80)))
    got = apply("fma.rn.f32", *([int(v) for v in column] for column in (a, b, c)))
    for x, y, z, found in zip(a, b, c, got, strict=True):
        exact = sum((Fraction(float(v.view(np.float32))) for v in (z,)), Fraction(float(x.view(np.float32)))
                    * Fraction(float(y.view(np.float32))))  # fmt: skip
        value = Fraction(struct.unpack("<f", struct.pack("<I", found))[0])
        for neighbour in (found - 1, found + 1):
            other = Fraction(struct.unpack("<f", struct.pack("<I", neighbour))[0])
            assert abs(value - exact) <= abs(other - exact)
            if abs(value - exact) == abs(other - exact):
                assert found % 2 == 0


@pytest.mark.parametrize(
    ("to", "source", "pattern", "want"),
    [  # PTX ISA 9.0, cvt: zero if the source is not .f64 and the destination not of 64 bits, else 1 << (width - 1)
        ("s32", "f32", NAN, 0),
        ("u16", "f32", NAN, 0),
        ("s64", "f32", NAN, 1 << 63),
        ("u64", "f32", NAN, 1 << 63),
        ("s32", "f64", NAN64, 1 << 31),
        ("u32", "f64", NAN64, 1 << 31),
        ("u16", "f64", NAN64, 1 << 15),
        ("s64", "f64", NAN64, 1 << 63),
    ],
)
def test_nan_as_an_integer(to: str, source: str, pattern: int, want: int) -> None:
    registers = {"16": "%h1", "32": "%r10", "64": "%d10"}
    register = registers[source[1:]].replace("10", "11")
    body = f"""
	ld.global.b{source[1:]} {register}, [%d0];
	cvt.rzi.{to}.{source} {registers[to[1:]]}, {register};
	mov.b64 %d9, 0;
	st.global.b64 [%d1], %d9;
	st.global.b{to[1:]} [%d1], {registers[to[1:]]};"""
    assert hex(run(body, [pattern])[0]) == hex(want)


@pytest.mark.parametrize(
    ("compare", "kind", "operands", "true"),
    [
        ("lt", "s32", (M, 0), 1),
        ("lt", "u32", (M, 0), 0),
        ("ne", "f32", (NAN, NAN), 0),
        ("neu", "f32", (NAN, NAN), 1),
        ("ltu", "f32", (f(1), NAN), 1),
        ("lt", "f32", (f(1), NAN), 0),
        ("num", "f32", (f(1), f(2)), 1),
        ("nan", "f32", (f(1), NAN), 1),
        ("eq", "f32", (f(0), f(-0.0)), 1),
    ],
)
def test_comparisons(compare: str, kind: str, operands: tuple[int, int], true: int) -> None:
    body = f"""
	ld.global.b32 %r1, [%d0];
	ld.global.b32 %r2, [%d0+8];
	setp.{compare}.{kind} %p1, %r1, %r2;
	selp.b64 %d9, 1, 0, %p1;
	st.global.b64 [%d1], %d9;"""
    assert run(body, [operands[0]], [operands[1]])[0] == true


def test_vectors_scopes_and_parameters() -> None:
    body = """
	{
	.reg .b16 a<2>;
	mov.b32 {a0, a1}, 0x00020001;
	mov.b32 %r1, {a1, a0};
	}
	ld.param.s32 %d9, [probe_param_2];
	cvt.u64.u32 %d8, %r1;
	shl.b64 %d9, %d9, 32;
	or.b64 %d9, %d9, %d8;
	st.global.b64 [%d1], %d9;"""
    assert run(body)[0] == 77 << 32 | 0x10002


def test_branches_part_and_meet() -> None:
    """Each lane loops as often as its number says; lanes 0, 2, … take the other arm afterwards."""
    body = """
	mov.b32 %r1, 0;
	setp.eq.s32 %p1, %r0, 0;
	@%p1 bra $L__after;
$L__loop:
	add.s32 %r1, %r1, 3;
	sub.s32 %r2, %r0, 1;
	mov.b32 %r3, %r1;
	mul.lo.s32 %r4, %r0, 3;
	setp.lt.s32 %p2, %r1, %r4;
	@%p2 bra $L__loop;
$L__after:
	and.b32 %r5, %r0, 1;
	setp.eq.s32 %p3, %r5, 0;
	@!%p3 bra $L__odd;
	add.s32 %r1, %r1, 1000;
	bra.uni $L__end;
$L__odd:
	add.s32 %r1, %r1, 2000;
$L__end:
	cvt.u64.u32 %d9, %r1;
	st.global.b64 [%d1], %d9;"""
    assert run(body, threads=64).tolist() == [3 * i + (2000 if i % 2 else 1000) for i in range(64)]


def test_shuffles_and_reductions_stay_within_a_warp() -> None:
    def shuffled(how: str) -> list[int]:
        body = f"\tshfl.sync.{how}, -1;\n\tcvt.u64.u32 %d9, %r1;\n\tst.global.b64 [%d1], %d9;"
        return [int(v) for v in run(body, threads=64)]

    assert shuffled("bfly.b32 %r1, %r0, 16, 31") == [i ^ 16 for i in range(64)]
    assert shuffled("up.b32 %r1, %r0, 1, 0") == [i - 1 if i % 32 else i for i in range(64)]
    assert shuffled("down.b32 %r1, %r0, 1, 31") == [i + 1 if i % 32 < 31 else i for i in range(64)]
    assert shuffled("idx.b32 %r1, %r0, 5, 31") == [i // 32 * 32 + 5 for i in range(64)]
    assert shuffled("idx.b32 %r1, %r0, 3, 0x101F") == [i // 16 * 16 + 3 for i in range(64)]  # two segments
    total = run("\tredux.sync.add.s32 %r1, %r0, -1;\n\tcvt.u64.u32 %d9, %r1;\n\tst.global.b64 [%d1], %d9;", threads=64)
    assert set(total[:32]) == {sum(range(32))}
    assert set(total[32:]) == {sum(range(32, 64))}


EXCHANGE = """
	shl.b32 %r1, %r0, 2;
	mov.b32 %r2, global_smem;
	add.s32 %r3, %r2, %r1;
	st.shared.b32 [%r3], %r0;
	{barrier}
	xor.b32 %r4, %r1, 128;
	add.s32 %r4, %r4, %r2;
	ld.shared.b32 %r5, [%r4];
	cvt.u64.u32 %d9, %r5;
	st.global.b64 [%d1], %d9;"""


def test_shared_memory_and_a_barrier() -> None:
    found = run(EXCHANGE.format(barrier="bar.sync 0;"), threads=64, shared=SHARED)
    assert found.tolist() == [i ^ 32 for i in range(64)]


#: what a kernel does wrong, and what is said of it
WRONG = {
    "race": (EXCHANGE.format(barrier=""), "race: shared memory"),
    "written after": (
        EXCHANGE.format(barrier="bar.sync 0;") + "\n\tst.shared.b32 [%r3], 99;",
        "is written while another thread reads",
    ),
    "unwritten": ("\tmov.b32 %r2, global_smem;\n\tld.shared.b32 %r5, [%r2+64];", "shared memory that nobody wrote"),
    "beyond shared": ("\tmov.b32 %r2, global_smem;\n\tst.shared.b32 [%r2+256], %r0;", "a block has 256 bytes"),
    "two values": ("\tmov.b32 %r2, global_smem;\n\tst.shared.b32 [%r2], %r0;", "race: two threads store"),
    "two values, global": ("\tld.param.b64 %d5, [probe_param_1];\n\tst.global.b32 [%d5], %r0;", "race: two threads"),
    "out of bounds": ("\tst.global.b64 [%d1+8], %d1;", "byte 512 of argument 'out'"),
    "before": ("\tld.global.b64 %d9, [%d0+-8];", "at 0xfff8, byte -8 of argument 'x'"),
    "misaligned": ("\tld.global.b32 %r5, [%d0+2];", "misaligned load of 4 bytes at 0x10002"),
    "divergent": (
        "\tsetp.lt.u32 %p1, %r0, 5;\n\t@%p1 bra $L__x;\n\tbar.sync 0;\n$L__x:\n\tmov.b32 %r9, 0;",
        "divergent barrier",
    ),
    "predicate": ("\t@%p7 st.global.b64 [%d1], %d1;", "predicate %p7 is read and was never written"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_hardware_passes_over_is_reported(name: str) -> None:
    body, said = WRONG[name]
    with pytest.raises(KernelError) as raised:
        run(body, threads=64, shared=SHARED)
    assert said in str(raised.value)
    assert str(raised.value).startswith("probe at probe.py:7, '")


def test_a_value_that_all_threads_store_is_no_race() -> None:
    body = "\tmov.b32 %r2, global_smem;\n\tst.shared.b32 [%r2], 7;\n\tbar.sync 0;\n\tld.shared.b32 %r5, [%r2];\n"
    body += "\tcvt.u64.u32 %d9, %r5;\n\tst.global.b64 [%d1], %d9;"
    assert set(run(body, threads=64, shared=SHARED)) == {7}
    assert set(run(body.replace("bar.sync 0;", ""), threads=32, shared=SHARED)) == {7}  # each reads its own


def test_lanes_that_ended_hold_no_barrier_up() -> None:
    body = "\tsetp.lt.u32 %p1, %r0, 40;\n\t@%p1 ret;\n\tbar.sync 0;\n\tmov.b64 %d9, 1;\n\tst.global.b64 [%d1], %d9;"
    found = run(body, threads=64)
    assert (found[40:] == 1).all()
    assert (found[:40] == 0x5555555555555555).all()


def test_atomics_give_what_was_there() -> None:
    body = """
	ld.param.b64 %d5, [probe_param_0];
	atom.global.gpu.acq_rel.add.u32 %r5, [%d5], 2;
	cvt.u64.u32 %d9, %r5;
	st.global.b64 [%d1], %d9;"""
    assert sorted(run(body, threads=64).tolist()) == list(range(0, 128, 2))


@pytest.mark.parametrize(
    ("line", "opcode"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %r1, %r2, %r3, %r4;", "opcode mma.sync"),
        ("add.sat.s32 %r1, %r2, %r3;", "opcode add.sat.s32"),
        ("fma.rz.f64 %d1, %d2, %d3, %d4;", "opcode fma.rz.f64"),
        ("cvt.rni.tf32.f32 %r1, %r2;", "opcode cvt.rni.tf32.f32"),
        ("mbarrier.init.shared.b64 [%r1], 1;", "opcode mbarrier.init.shared.b64"),
    ],
)
def test_what_is_not_known_is_refused(line: str, opcode: str) -> None:
    with pytest.raises(NotExecuted) as raised:
        run(f"\t{line}")
    assert str(raised.value).startswith(opcode)


def test_registers_nobody_wrote_differ_between_two_fills() -> None:
    text = FRAME.format(threads=32, stride=8, body="\tst.global.b32 [%d1], %r9;", shared="")
    program, parameters = ptx.parse(text)
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 0), strict=True)}
    answers = []
    for fill in (0xA5, 0x5A):
        out = np.zeros(256, np.uint8)
        memory = GlobalMemory([Region("argument 'out'", OUT, out)])
        launching.run(program, (1, 1, 1), memory, 0, 32, held, fill)
        answers.append(int(out[0]))
    assert answers == [0xA5, 0x5A]
