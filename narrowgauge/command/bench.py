"""``narrowgauge bench``: how fast the reference and the emulator are, against a peer in the same run."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.text import Text

from narrowgauge.benchmarks import casts, census, emulator, kv, quantize, units
from narrowgauge.benchmarks.paired import Measured, measure
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import Grid, Line, screen, show


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="how fast the reference casts and quantizes, as ratios against peers in the same run, and the emulator",
        description="One thread; each round measures both in turn, and the median of the rounds' ratios is shown. "
        "Casts are held to ml_dtypes; quantizers to torchao's eager ones, or to the same steps in eager torch where "
        "torchao is not installed, with the most memory that ours take, by the input's bytes; writes and reads of "
        "caches to torch's index_put and gather of the same bytes; the census of a checkpoint's tensors to torch's "
        "amax over the same bytes, and two processes to one; models of matrix units to mmasim's, where that is "
        "installed; the emulator to "
        "Triton's interpreter on the same kernel, each in a child. A ratio below its goal is "
        "marked; the exit code stays 0, for a speed is no verdict.",
    )
    parser.add_argument("-k", dest="chosen", default="", metavar="TEXT", help="only those whose name holds this")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="how often each is measured (default: 7)")
    parser.add_argument(
        "--smoke", action="store_true", help="measure the emulated cells of a default run instead: minutes"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.rounds < 1:
        raise BadInput(f"--rounds {arguments.rounds}; expected 1 or more")
    if arguments.smoke:
        return _smoke(arguments.json)
    console = Console(stderr=True)
    with (
        emulator.benchmarks() as emulated,
        quantize.benchmarks() as quantizers,
        kv.benchmarks() as caches,
        census.benchmarks() as censuses,
        units.benchmarks() as models,
    ):
        every = (*casts.benchmarks(), *quantizers, *caches, *censuses, *models, *emulated)
        chosen = [b for b in every if arguments.chosen in b.name]
        if not chosen:
            raise BadInput(f"-k {arguments.chosen!r}: no benchmark has that in its name; try the name of a format")
        work = track(chosen, "measuring", console=console, transient=True, disable=not console.is_terminal)
        measured = [measure(b, arguments.rounds) for b in work]
    if arguments.json:
        print_json([dataclasses.asdict(m) for m in measured])
    else:
        show(screen(), _table(measured).texts(screen().width))
    return Exit.OK


def _smoke(as_json: bool) -> int:
    seconds = emulator.smoke()
    if as_json:
        print_json({"name": "emulated cells of a default run", "seconds": seconds, "goal": emulator.SMOKE_GOAL})
    else:
        print(f"emulated cells of a default run, two workers: {seconds:.0f} s (goal: {emulator.SMOKE_GOAL:.0f})")
    return Exit.OK


def _table(measured: list[Measured]) -> Grid:
    grid = Grid("", ("what", "ratio", "goal", "M elements/s", "ns", "GB/s", "peak memory", "against"))
    for m in measured:
        low = m.ratio < m.goal
        ratio = Text(f"{m.ratio:.2f}{' below' if low else ''}", "yellow" if low else "")
        cells = [
            Text(m.name),
            ratio,
            Text(f"{m.goal:g}" if m.goal else ""),
            Text(f"{m.rate / 1e6:.0f}"),
            Text(f"{1e9 / m.rate:.2g}"),
            Text("" if m.moved is None else f"{m.moved / 1e9:.3g}"),
            _peak(m),
            Text(m.peer),
        ]
        grid.lines.append(Line(cells))
    return grid


def _peak(m: Measured) -> Text:
    if m.peak is None:
        return Text("")
    high = m.peak >= quantize.PEAK_GOAL
    return Text(f"{m.peak:.1f} × input{' above' if high else ''}", "yellow" if high else "")
