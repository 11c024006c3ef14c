"""Races in global memory, and loads of global memory that nobody wrote, in emulated launches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.devices.emulator import launching, ptx
from narrowgauge.devices.emulator.accesses import Accesses
from narrowgauge.devices.emulator.engine import KernelError
from narrowgauge.devices.emulator.memory import Fault, GlobalMemory, Region
from narrowgauge.suites.meta.test_emulator_ptx import FRAME, IN, OUT

pytestmark = pytest.mark.meta

Words = npt.NDArray[np.uint64]
#: %r5: the block; %d0, %d1: where x and out start; %d4: the block's 64 words of out; %d5: the thread's word of these;
#: %d7: the word of the thread 32 before or after it, which is of another warp
HEAD = """
	mov.u32 %r5, %ctaid.x;
	ld.param.b64 %d0, [probe_param_0];
	ld.param.b64 %d1, [probe_param_1];
	mul.wide.u32 %d4, %r5, 512;
	add.s64 %d4, %d4, %d1;
	mul.wide.u32 %d3, %r0, 8;
	add.s64 %d5, %d4, %d3;
	cvt.u64.u32 %d6, %r0;
	xor.b32 %r6, %r0, 32;
	mul.wide.u32 %d7, %r6, 8;
	add.s64 %d7, %d4, %d7;
	setp.lt.u32 %p1, %r0, 32;
"""


def launch(body: str, blocks: int = 2, threads: int = 64, written: npt.NDArray[np.bool_] | None = None) -> Words:
    """Run blocks of threads on 64 words of x, all 3, and 64 words of out for each block, all 5."""
    given, out = np.full(64, 3, np.uint64), np.full(64 * blocks, 5, np.uint64)
    program, parameters = ptx.parse(FRAME.format(threads=threads, stride=8, body=HEAD + body, shared=""))
    x, to = (Region(name, at, data.view(np.uint8)) for name, at, data in (("x", IN, given), ("out", OUT, out)))
    if written is not None:
        x = Region(x.name, x.address, x.data, written)
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 0), strict=True)}
    launching.run(program, (blocks, 1, 1), GlobalMemory([x, to]), 0, 32, held)
    return out


#: block 0 stores one value, block 1 another one, in another instruction
TWO_BLOCKS = """
	setp.eq.u32 %p2, %r5, 1;
	@%p2 bra $L__r;
	st.global.b64 [%d0], 9;
	ret;
$L__r:
	st.global.b64 [%d0], 10;"""

#: block 0 stores and goes on past a barrier, block 1 reads after one of its own
TWO_BARRIERS = """
	setp.eq.u32 %p2, %r5, 1;
	@%p2 bra $L__r;
	st.global.b64 [%d0], 9;
	bar.sync 0;
	ret;
$L__r:
	bar.sync 0;
	ld.global.b64 %d9, [%d0];"""
#: block 0 reads, block 1 reads and stores
BOTH_READ = """
	setp.eq.u32 %p2, %r5, 1;
	@%p2 bra $L__r;
	ld.global.b64 %d9, [%d0];
	ret;
$L__r:
	ld.global.b64 %d9, [%d0];
	st.global.b64 [%d0], 10;"""
#: both blocks carry out an atomic, between the store of one and the load of the other
IN_STEP = """
	setp.eq.u32 %p2, %r5, 1;
	@%p2 bra $L__r;
	st.global.b64 [%d0], 9;
	red.global.gpu.release.add.u32 [%d1], 1;
	ret;
$L__r:
	atom.global.gpu.acquire.add.u32 %r9, [%d1], 1;
	ld.global.b64 %d9, [%d0];"""

#: what a launch does, and what is said of it
RACES = {
    "two blocks write at once": ("\tst.global.b32 [%d0], %r5;", "two threads store different values at 0x10000"),
    "two blocks write": (TWO_BLOCKS, "x is changed after a warp of block 0 wrote it"),
    "barriers of each block": (TWO_BARRIERS, "x is read after a warp of block 0 wrote it"),
    "both have read": (BOTH_READ, "x is changed after other blocks read it"),
    "another warp reads, after a barrier": (
        "\tbar.sync 0;\n\tst.global.b64 [%d5], %d6;\n\tld.global.b64 %d9, [%d7];",
        "out is read after a warp of block 0 wrote it",
    ),
    "one block reads": (
        "\tsetp.eq.u32 %p2, %r5, 1;\n\t@%p2 bra $L__r;\n\tst.global.b64 [%d0], 9;\n\tret;\n$L__r:\n"
        "\tld.global.b64 %d9, [%d0];",
        "x is read after a warp of block 0 wrote it",
    ),
    "all read, one writes": (
        "\tld.global.b64 %d9, [%d0];\n\tsetp.eq.u32 %p2, %r5, 1;\n\t@%p2 st.global.b64 [%d0], 9;",
        "x is changed after other blocks read it",
    ),
    "another warp reads": (
        "\tst.global.b64 [%d5], %d6;\n\tld.global.b64 %d9, [%d7];",
        "out is read after a warp of block 0 wrote it",
    ),
    "another warp writes": (
        "\tst.global.b64 [%d5], %d6;\n\tst.global.b64 [%d7], 77;",
        "out is changed after a warp of block 0 wrote it",
    ),
    "another warp has read": (
        "\tld.global.b64 %d9, [%d7];\n\tst.global.b64 [%d5], 77;",
        "out is changed after a warp of block 0 read it",
    ),
    "a part of a word": (
        "\tst.global.b64 [%d5], %d6;\n\tst.global.b8 [%d7+1], 77;",
        "out is changed after a warp of block 0 wrote it",
    ),
}


@pytest.mark.parametrize("name", RACES)
def test_races_are_reported(name: str) -> None:
    body, said = RACES[name]
    with pytest.raises(KernelError) as raised:
        launch(body)
    assert said in str(raised.value)
    assert str(raised.value).startswith("probe at probe.py:7, '")


#: what is no race
ORDERED = {
    "own words": "\tst.global.b64 [%d5], %d6;\n\tld.global.b64 %d9, [%d5];\n\tst.global.b64 [%d5], %d9;",
    "one value": "\tst.global.b64 [%d0], 9;",
    "nothing new": "\tst.global.b64 [%d0], 3;\n\tld.global.b64 %d9, [%d0];",
    "a barrier": "\tst.global.b64 [%d5], %d6;\n\tbar.sync 0;\n\tld.global.b64 %d9, [%d7];\n\tbar.sync 0;\n"
    "\tst.global.b64 [%d5], %d9;",
    "lanes of a warp": "\txor.b32 %r7, %r0, 1;\n\tmul.wide.u32 %d8, %r7, 8;\n\tadd.s64 %d8, %d4, %d8;\n"
    "\tld.global.b64 %d9, [%d8];\n\tst.global.b64 [%d5], %d9;",
    "warps that load the same, of which one stores": "\tld.global.b64 %d9, [%d4];\n\tsetp.eq.u32 %p2, %r0, 0;\n"
    "\t@%p2 st.global.b64 [%d4], 9;\n\tld.global.b64 %d9, [%d4];",
    "atomics between": IN_STEP,
    "atomics": "\tatom.global.gpu.acq_rel.add.u64 %d9, [%d0], 1;\n\tld.global.b64 %d8, [%d0];",
    "halves of a word": "\tmul.wide.u32 %d8, %r0, 4;\n\tadd.s64 %d8, %d8, %d4;\n\tst.global.b32 [%d8], %r0;\n"
    "\tld.global.b32 %r9, [%d8];",
}


@pytest.mark.parametrize("name", ORDERED)
def test_what_is_in_order_is_no_race(name: str) -> None:
    launch(ORDERED[name])


def test_blocks_of_another_batch_race_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "LANES", 64)
    with pytest.raises(KernelError, match="is changed after a warp of block 0 wrote it"):
        launch(TWO_BLOCKS)


def test_another_launch_is_in_order() -> None:
    out = np.zeros(64, np.uint64)
    memory = GlobalMemory([Region("out", OUT, out.view(np.uint8))])
    for word in ("%d5", "%d7"):  # of the thread, then of one of another warp
        text = FRAME.format(threads=64, stride=8, body=f"{HEAD}\tst.global.b64 [{word}], %d6;", shared="")
        program, parameters = ptx.parse(text)
        held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 0), strict=True)}
        launching.run(program, (1, 1, 1), memory, 0, 32, held)
    assert out.tolist() == [i ^ 32 for i in range(64)]


def test_large_tensors_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("narrowgauge.devices.emulator.accesses.MOST_MARKS", 3)
    launch(TWO_BLOCKS)  # a race that is not seen


def test_the_ways_of_a_mark_refine() -> None:
    """Accesses of 8 bytes, then of 1: what was noted of a word holds for its bytes."""
    accesses = Accesses()
    accesses.batch(0, 1, 64, 32)
    region = Region("x", 0, np.zeros(32, np.uint8))
    one = np.ones(1, bool)
    accesses.store(region, np.array([1]), 8, np.array([0]), one)
    accesses.store(region, np.array([16]), 1, np.array([40]), one)  # beside it
    with pytest.raises(Fault, match="byte 15 of x is changed"):
        accesses.store(region, np.array([15]), 1, np.array([40]), one)
    accesses.store(region, np.array([3]), 8, np.array([0]), one)  # all bytes of a word
    with pytest.raises(Fault, match="byte 31 of x is changed"):
        accesses.store(region, np.array([31]), 1, np.array([40]), one)


# --- memory that nobody wrote ----------------------------------------------------------------------------------------


def test_loads_of_what_nobody_wrote() -> None:
    read = "\tadd.s64 %d3, %d3, %d0;\n\tld.global.b64 %d9, [%d3];"
    written = np.ones(512, bool)
    launch(read, written=written)
    written[8 * 41] = False
    with pytest.raises(KernelError) as raised:
        launch(read, blocks=1, written=written)
    assert "load of 8 bytes that nobody wrote since they were allocated, at 0x10148, byte 328 of x (1 of 64" in str(
        raised.value
    )


def test_a_store_writes() -> None:
    written = np.zeros(512, bool)
    body = "\tadd.s64 %d3, %d3, %d0;\n\tst.global.b32 [%d3+4], 7;\n\tld.global.b32 %r9, [%d3+4];"
    launch(body, blocks=1, written=written)
    assert written.reshape(-1, 8).tolist() == [[False] * 4 + [True] * 4] * 64
    with pytest.raises(KernelError, match="nobody wrote"):
        launch(body.replace("ld.global.b32 %r9, [%d3+4]", "ld.global.b16 %h1, [%d3+2]"), blocks=1, written=written)
    with pytest.raises(KernelError, match="nobody wrote"):
        launch("\tred.global.gpu.relaxed.add.u32 [%d0], 1;", blocks=1, written=np.zeros(512, bool))
