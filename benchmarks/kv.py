"""Our kernels on key-value caches against torch's index_put and gather that move the same bytes.

A write of fp8 from bfloat16 reads two bytes of an element and writes one; its peer puts rows of so many columns of
bfloat16 that it reads and writes as many bytes. Where there is a GPU the Triton kernels are measured, else torch's own
operations on one thread; and the reference, which computes in numpy in this process, against the same peer.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from narrowgauge.benchmarks.paired import Benchmark
from narrowgauge.benchmarks.quantize import Peer
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.kv.cases import Shape, call

#: ratios that we mean to keep; the reference is only told
WRITE_GOAL, READ_GOAL, NO_GOAL = 0.3, 0.5, 0.0
#: what is measured: a case of the peer's, and its goal
CASES = (
    ("write_copy", WRITE_GOAL),
    ("write_fp8", WRITE_GOAL),
    ("read_copy", READ_GOAL),
    ("read_fp8", READ_GOAL),
)
#: claims that the reference is asked for, and the case whose peer it is held to
REFERENCE = (
    ("kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn", "write_fp8"),
    ("kv_read/vllm.flash_fp8/float8_e4m3fn/bfloat16", "read_fp8"),
)
HEADS, WIDTH, BLOCK = 8, 128, 16
TOKENS = 4096


@contextmanager
def benchmarks() -> Iterator[list[Benchmark]]:
    """One for each of ``CASES`` and of ``REFERENCE``. Without torch none."""
    if importlib.util.find_spec("torch") is None or not CASES:
        yield []
        return
    peer = Peer("kv_peer", TOKENS, HEADS, WIDTH, BLOCK)
    try:
        kernels = [_of_kernel(peer, case, goal) for case, goal in CASES]
        yield [*kernels, *(_of_reference(peer, Claim.parse(text), case) for text, case in REFERENCE)]
    finally:
        peer.close()


def _of_kernel(peer: Peer, case: str, goal: float) -> Benchmark:
    kernel, against, elements, size = peer.ask(f"who {case}").split("|")
    ours, theirs = partial(peer.ask, f"run {case}"), partial(peer.ask, f"peer {case}")
    return Benchmark(f"kv {kernel}, {TOKENS} tokens", against, int(elements), ours, theirs, goal, size=int(size))


def _of_reference(peer: Peer, claim: Claim, case: str) -> Benchmark:
    _, against, elements, size = peer.ask(f"who {case}").split("|")
    theirs = partial(peer.ask, f"peer {case}")
    name = f"kv reference, {claim.operation} fp8, {TOKENS} tokens"
    return Benchmark(name, against, int(elements), partial(_expect, claim), theirs, NO_GOAL, size=int(size))


def _expect(claim: Claim) -> None:
    expected(claim, _asked(claim, TOKENS))


@cache
def _asked(claim: Claim, tokens: int) -> Coded:
    return call(Shape(tokens=tokens, lengths=(tokens,), heads=HEADS, width=WIDTH, at="in_order"))(claim)
