"""Run a cast kernel on every pattern of a source format, 2^32 of them for float32, and say where it parts.

Over consecutive patterns the expected codes are constant runs, some hundred of them. So a block's expectation is
filled in, not computed; the kernel's process makes the patterns itself, and only codes travel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.contracts.verdict import Verdict
from narrowgauge.devices.device import RUN, Device
from narrowgauge.golden.steps import step_table
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.codec import values
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.form import form_of
from narrowgauge.reference.interval import Expected, Interval
from narrowgauge.reference.judge import judge
from narrowgauge.reference.showing import show
from narrowgauge.suites.sweep_record import Record, Span, Stretch, blocks


class Steps:
    """What a claim expects, as runs of equal codes over the ascending patterns of its source."""

    def __init__(self, claim: Claim) -> None:
        if claim.operation != Cast.operation:
            raise BadInput(f"{claim}: only a cast has one input per output; a sweep of a quantizer has no meaning")
        self.claim, self.format = claim, format_named(claim.format)
        source = format_named(claim.source)
        if source.bits > 32:
            raise BadInput(f"{claim}: 2^{source.bits} patterns cannot be walked; give a source of at most 32 bits")
        self.first, self.code = step_table(source, self.format, behaviour_of(claim).policy)
        self.starts = self.first.astype(np.int64)
        self.nan = np.isnan(values(self.format))

    @property
    def digest(self) -> str:
        """What tells the expectation of one policy from another's, whatever their names."""
        return Coded(self.format.name, self.code).digest()[:16] + Coded(self.claim.source, self.first).digest()[:16]

    def form(self, count: int) -> Expected:
        """Shape and format of the answer to so many patterns; its codes mean nothing."""
        return {"codes": Interval.exactly(Coded(self.format.name, np.broadcast_to(self.code[:1], count)))}

    def at(self, patterns: npt.NDArray[np.int64]) -> Codes:
        """Expected codes of any patterns."""
        return np.asarray(self.code[np.searchsorted(self.starts, patterns, side="right") - 1])

    def filled(self, first: int, count: int) -> Codes:
        """Expected codes of consecutive patterns."""
        begin, end = np.searchsorted(self.starts, [first, first + count - 1], side="right") - 1
        edges = np.append(np.maximum(self.starts[begin : end + 1], first), first + count) - first
        codes = np.empty(count, self.code.dtype)
        for run in range(end - begin + 1):
            codes[edges[run] : edges[run + 1]] = self.code[begin + run]
        return codes

    def apart(self, first: int, got: npt.NDArray[Any]) -> list[Stretch]:
        """The ranges of a block in which a kernel's codes are not the expected ones. NaN is compared as a class."""
        want = self.filled(first, got.size)
        if np.array_equal(got, want):
            return []
        # Runs in which both codes stay what they are: few, whatever the size of the block.
        changes = (got[1:] != got[:-1]) | (want[1:] != want[:-1])
        begins = np.append(0, np.flatnonzero(changes) + 1)
        ends = np.append(begins[1:], got.size) - 1
        g, w = got[begins].astype(np.int64), want[begins].astype(np.int64)
        is_code = (g >= 0) & (g < self.format.code_count)
        both_nan = self.nan[np.where(is_code, g, 0)] & self.nan[w] & is_code
        return [
            Stretch(first + int(begins[run]), first + int(ends[run]), int(g[run]), int(w[run]))
            for run in np.flatnonzero((g != w) & ~both_nan)
        ]


# --- running ---------------------------------------------------------------------------------------------------------


def sweep(
    plugged: Plugged,
    steps: Steps,
    device: Device,
    todo: Sequence[Span],
    record: Record,
    *,
    workers: int = 1,
    timeout: float = RUN,
    progress: Callable[[Span], None] = lambda span: None,
) -> None:
    """Sweep spans of patterns into a record, with so many children at once. An interruption leaves it whole."""
    lock, stop, local = threading.Lock(), threading.Event(), threading.local()
    opened: list[Device] = []

    def own_device() -> Device:
        if workers == 1:
            return device
        if not hasattr(local, "device"):
            # Several children share the cores; what a kernel starts of its own would only be in their way.
            environment = device.environment | {"OMP_NUM_THREADS": "1"}
            local.device = replace(device, environment=environment, _children={})
            with lock:
                opened.append(local.device)
        found: Device = local.device
        return found

    def one(span: Span) -> None:
        if stop.is_set():
            return
        found = _block(own_device(), plugged, steps, span, timeout)
        with lock:
            if isinstance(found, str):
                record.stopped = record.stopped or f"patterns {span[0]:#x} to {span[1]:#x}: {found}"
                stop.set()
            else:
                record.add(span, found)
                progress(span)

    pool = ThreadPoolExecutor(workers)
    try:
        for result in [pool.submit(one, span) for span in blocks(todo)]:
            result.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        for child in opened:
            child.close()


def _block(device: Device, plugged: Plugged, steps: Steps, span: Span, timeout: float) -> list[Stretch] | str:
    """The ranges of a block that differ, or why there are no codes to compare."""
    first, count = span[0], span[1] - span[0] + 1
    outcome = device.run_range(plugged, steps.claim, first, count, timeout)
    if outcome.kind != "returned":
        return f"{outcome.kind.replace('_', ' ')}: {outcome.reason}"
    wrong = outcome.malformed or form_of(outcome.outputs, steps.form(count))
    if wrong:
        return "; ".join(wrong)
    return steps.apart(first, outcome.outputs["codes"].data)


# --- what it means ---------------------------------------------------------------------------------------------------


def verdict(record: Record, steps: Steps) -> Verdict:
    """The judgement of everything that was swept, from both ends and the middle of every run and differing range.

    Casts, right ones and those of our faults, are monotone within a sign. So what explains a range at its ends and in
    its middle explains the range.
    """
    ranges = record.ranges
    points = [steps.starts, np.append(steps.starts[1:], format_named(steps.claim.source).code_count) - 1]
    for r in ranges:
        points.append(np.array([r.first, (r.first + r.last) // 2, r.last], np.int64))
        points.append(np.array([r.first - 1, r.last + 1], np.int64))
    at = np.unique(np.concatenate(points))
    at = at[_within(at, record.done)]
    got = steps.at(at).astype(np.int64)
    begins = np.array([r.first for r in ranges], np.int64)
    if begins.size:
        place = np.searchsorted(begins, at, side="right") - 1
        ends = np.array([r.last for r in ranges], np.int64)
        wrong = np.array([r.got for r in ranges], np.int64)
        inside = (place >= 0) & (at <= ends[place])
        got = np.where(inside, wrong[place], got)
    narrow = bool((got < 0).any() or (got >= steps.format.code_count).any())
    codes = got if narrow else got.astype(steps.format.storage)
    x = Coded(steps.claim.source, at.astype(format_named(steps.claim.source).storage))
    return judge(steps.claim, x, {"codes": Coded(steps.claim.format, codes)})


def _within(at: npt.NDArray[np.int64], spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(at.shape, np.bool_)
    for first, last in spans:
        inside |= (first <= at) & (at <= last)
    return inside


def shown(found: Stretch, steps: Steps) -> tuple[str, ...]:
    """Patterns, values, count, got and want of a range, in words."""
    source = format_named(steps.claim.source)
    digits = 2 + source.bits // 4
    ends = list(dict.fromkeys((found.first, found.last)))
    real = decode_values(Coded(source.name, np.array(ends, source.storage)))
    got, want = (show(Coded(steps.format.name, np.array(code))) for code in (found.got, found.want))
    patterns = " to ".join(f"{pattern:#0{digits}x}" for pattern in ends)
    return patterns, " to ".join(f"{value:.9g}" for value in real), f"{found.count:,}", got, want
