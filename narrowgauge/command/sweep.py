"""``narrowgauge sweep``: a cast kernel on every pattern of its source."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Kernel
from narrowgauge.contracts.operations import Cast, Claim, Observe
from narrowgauge.contracts.verdict import Exit, Verdict
from narrowgauge.devices.device import RUN
from narrowgauge.plugin.screen import Grid, Line, screen, show
from narrowgauge.reference.message import findings
from narrowgauge.suites.run import Run
from narrowgauge.suites.sweep import Steps, shown, sweep, verdict
from narrowgauge.suites.sweep_record import Record, Span, Stretch, share
from narrowgauge.version import __version__

#: how many ranges are printed; --json and --state hold all
LISTED = 20


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "sweep",
        help="run a cast kernel on every pattern of its source: all 2^32 of float32",
        description="Ends with 'equal', or with the ranges of inputs that differ and the faults that explain them. "
        "A sweep can be cut up (--range, --shard) and, with --state, ended and taken up again.",
    )
    parser.add_argument("--kernel", required=True, metavar="NAME", help="a kernel, or a library: torch, ml_dtypes")
    parser.add_argument("--format", required=True, metavar="NAME", help="destination format")
    parser.add_argument("--source", default="float32", metavar="NAME", help="source format (default: float32)")
    parser.add_argument("--policy", metavar="NAME", help="hold it to this policy instead of what it claims")
    parser.add_argument("--kernels", action="append", default=[], metavar="FILE", help="a file of kernels to plug in")
    parser.add_argument("--device", metavar="ID", help="where to run it (default: the first device that it is for)")
    parser.add_argument("--range", metavar="FIRST:LAST", help="patterns, for example 0x3f800000:0x3fffffff")
    parser.add_argument("--shard", metavar="K/N", help="the K-th of N parts of the range")
    parser.add_argument("--state", type=Path, metavar="FILE", help="keep what is done there; go on from there")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--kernel-timeout", type=float, default=RUN, metavar="S", help="seconds for one block")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.workers < 1:
        raise BadInput(f"--workers {arguments.workers}; expected 1 or more")
    span = _span(arguments)
    run = Run(arguments.kernels, [arguments.device] if arguments.device else (), timeout=arguments.kernel_timeout)
    try:
        run.check()
        plugged = run.kernel_named(arguments.kernel)
        device = run.place_of(plugged)
        steps = Steps(_claim(arguments, plugged.kernel))
        identity = {
            "claim": str(steps.claim), "kernel": plugged.kernel.name, "device": device.id, **plugged.distribution,
            "expected": steps.digest, "narrowgauge": __version__,
        }  # fmt: skip
        record = Record.read(arguments.state, identity) if arguments.state else Record(identity)
        todo, before, began = record.left(span), record.patterns, time.monotonic()
        try:
            with _shown(record, sum(b - a + 1 for a, b in todo)) as progress:
                sweep(
                    plugged, steps, device, todo, record,
                    workers=arguments.workers, timeout=arguments.kernel_timeout, progress=progress,
                )  # fmt: skip
        finally:
            if arguments.state:
                record.write(arguments.state)
    finally:
        run.close()
    rate = (record.patterns - before) / max(time.monotonic() - began, 1e-9)
    return _conclude(arguments, steps, span, record, rate)


def _claim(arguments: argparse.Namespace, kernel: Kernel) -> Claim:
    """What the kernel is held to: a policy by name, or what it claims itself."""
    source, destination = format_named(arguments.source).name, format_named(arguments.format).name
    if arguments.policy:
        return Claim(Cast(arguments.policy), source, destination)
    if isinstance(kernel.contract, Observe):
        raise BadInput(f"kernel {kernel.name!r} is observed and claims nothing: say which --policy it is held to")
    found = [c for c in kernel.claims if (c.source, c.format) == (source, destination)]
    if not found:
        known = ", ".join(f"{c.source} to {c.format}" for c in kernel.claims)
        raise BadInput(f"kernel {kernel.name!r} makes no claim for {source} to {destination}; it has {known}")
    return found[0]


def _span(arguments: argparse.Namespace) -> Span:
    """The patterns that are asked for."""
    source, _ = format_named(arguments.source), format_named(arguments.format)
    last = source.code_count - 1
    span = (0, last)
    if arguments.range:
        try:
            begin, end = (int(part, 0) for part in arguments.range.split(":"))
        except ValueError:
            raise BadInput(f"--range {arguments.range!r}; expected FIRST:LAST, for example 0x0:0x7fffffff") from None
        if not 0 <= begin <= end <= last:
            raise BadInput(f"--range {arguments.range}: patterns of {source.name} go from 0x0 to {last:#x}, upward")
        span = (begin, end)
    if arguments.shard:
        try:
            number, of = (int(part) for part in arguments.shard.split("/"))
        except ValueError:
            raise BadInput(f"--shard {arguments.shard!r}; expected K/N, for example 1/4") from None
        if not 1 <= number <= of <= span[1] - span[0] + 1:
            raise BadInput(f"--shard {arguments.shard}; expected K/N, K from 1 to N, N no more than patterns")
        span = share(span, number, of)
    return span


@contextmanager
def _shown(record: Record, total: int) -> Iterator[Callable[[Span], None]]:
    """A bar on stderr, or a line for each eighth where stderr is no terminal."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total)

            def advance(done: Span) -> None:
                differ = f"{record.differing:,} differ" if record.differing else "none differs"
                bar.update(task, advance=done[1] - done[0] + 1, description=differ)

            yield advance
        return
    done, said = 0, 0

    def tell(part: Span) -> None:
        nonlocal done, said
        done += part[1] - part[0] + 1
        if 8 * done // max(total, 1) > said:
            said = 8 * done // total
            console.print(f"{done:,} of {total:,} patterns, {record.differing:,} differ", highlight=False)

    yield tell


# --- what came of it -------------------------------------------------------------------------------------------------


def _conclude(arguments: argparse.Namespace, steps: Steps, span: Span, record: Record, rate: float) -> int:
    record, left = record.within(span), record.left(span)
    judged = verdict(record, steps)
    if arguments.json:
        print_json(_data(record, span, judged, left))
    else:
        show(screen(), _texts(steps, span, record, judged, left, rate))
        if left and arguments.state:
            print(f"go on with the same command: {arguments.state} holds what is done")
    if record.differing or (record.stopped and not record.stopped.count("not executed")):
        return Exit.FAILED
    return Exit.UNKNOWN if left else Exit.OK


def _data(record: Record, span: Span, judged: Verdict, left: list[Span]) -> dict[str, Any]:
    return {
        **record.identity,
        "range": [*span],
        "done": record.done,
        "left": left,
        "stopped": record.stopped,
        "equal": not (record.differing or left),
        "differing": record.differing,
        "ranges": [{"first": r.first, "last": r.last, "got": r.got, "want": r.want} for r in record.ranges],
        "not_listed": sum(record.dropped.values()),
        "faults": [{"names": e.faults, "left": e.left} for e in judged.explanations],
        "authority": judged.authority,
    }


def _texts(
    steps: Steps, span: Span, record: Record, judged: Verdict, left: list[Span], rate: float
) -> list[Text | str]:
    identity, patterns = record.identity, f"{record.patterns:,} patterns"
    subject = f"{identity['kernel']} ({steps.claim.source} to {steps.claim.format}) on {identity['device']}"
    lines: list[Text | str] = []
    if record.differing:
        ranges = sorted(record.ranges, key=lambda r: r.count, reverse=True)
        lines += findings(judged, subject)
        lines.append(f"{record.differing:,} of {patterns} differ, in ranges: {len(ranges):,}")
        lines += _table(ranges[:LISTED], steps).texts(screen().width)
        if len(ranges) > LISTED:
            lines.append(f"and {len(ranges) - LISTED:,} ranges more (--json lists them)")
        if record.dropped:
            lines.append(f"and {sum(record.dropped.values()):,} differing patterns in ranges that were not kept")
    elif not left:
        lines.append(Text(f"equal: {subject}, all {patterns} from {span[0]:#x} to {span[1]:#x}", "bold"))
    if record.stopped:
        lines.append(f"stopped at {record.stopped}")
    if left:
        lines.append(f"not swept: {', '.join(f'{a:#x} to {b:#x}' for a, b in left)}")
    lines += [f"claim: {steps.claim}", f"authority: {judged.authority}"]
    if rate >= 1e6:
        lines.append(f"{rate / 1e6:.0f} million patterns a second")
    return lines


def _table(ranges: list[Stretch], steps: Steps) -> Grid:
    grid = Grid("", ("patterns", "values", "count", "got", "want"))
    for r in ranges:
        grid.lines.append(Line([Text(cell) for cell in shown(r, steps)]))
    return grid
