"""``narrowgauge audit``: whether a checkpoint survives what is planned for it, and what to mend."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.progress import TaskID

from narrowgauge.checkpoints.asked import BANDWIDTH, ENGINES, Asked, destinations
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.report import Found, Progress, Report
from narrowgauge.command import audit_page, pages
from narrowgauge.command.audit_words import plain, report_texts, said_now
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.targets import TARGETS
from narrowgauge.plugin.screen import screen, show
from narrowgauge.version import __version__

#: groups of findings and of passports that are shown
TOP = 20
#: processes at most, unless more are asked for
WORKERS = 4


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="whether a checkpoint survives a conversion, a GPU, an engine, and what to mend",
        description="Reads the files of a model: safetensors or GGUF, a folder or one file. Says what is wrong with "
        "them as they are, and what becomes of them where they are to go: findings with tensor, count and remedy, what "
        "each quantized tensor is, bytes and the time that reading them takes (docs/audit.md). Exit code 1: something "
        "is wrong.",
    )
    parser.add_argument("path", type=Path, metavar="MODEL", help="a model's folder, or one file of weights")
    parser.add_argument(
        "--to", action="append", default=[], metavar="WHERE",
        help="float16, bfloat16 or another format: a cast; fnuz: bytes for MI300; a recipe (RECIPE or RECIPE:FORMAT): "
        "quantizing by it; repeatable",
    )  # fmt: skip
    parser.add_argument("--target", default="", metavar="T", help=f"a GPU: {', '.join(TARGETS)}")
    parser.add_argument("--engine", default="", metavar="E", help=f"what it makes of the names: {' or '.join(ENGINES)}")
    parser.add_argument("--kv-cache-dtype", default="", metavar="FLAG", help="the engine's flag")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="ORIGINAL",
        help="what it was made from: the SQNR of each weight, the decisive check",
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="an engine's log of its start: known warnings in it")
    parser.add_argument("--torch-weights", action="store_true", help="read .bin, .pt and .pth too, by torch in a child")
    parser.add_argument(
        "--bandwidth",
        type=float,
        default=BANDWIDTH,
        metavar="TB/s",
        help=f"for the decode floor (default: {BANDWIDTH})",
    )
    cores = min(WORKERS, os.cpu_count() or 1)
    parser.add_argument("--workers", type=int, default=cores, metavar="N", help=f"processes (default here: {cores})")
    parser.add_argument("--only", default="", metavar="PATTERN", help="tensors: a part of their name, or with * and ?")
    parser.add_argument("--headers-only", action="store_true", help="names, shapes and configuration, and no numbers")
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=f"groups to show (default: {TOP})")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write one page with pictures")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    asked = asked_of(arguments)
    if arguments.top < 1:
        raise BadInput(f"--top {arguments.top}; expected 1 or more")
    if arguments.html:
        pages.check(arguments.html)
    report = _work(asked)
    if arguments.json:
        print_json({"narrowgauge": __version__, **report.to_json()})
    else:
        show(screen(), report_texts(report, arguments.top, screen().width))
    if arguments.html:
        write_whole(arguments.html, audit_page.page(report).encode())
        if not arguments.json:
            print(f"page written to {arguments.html}")
    return Exit.FAILED if report.wrong else Exit.OK


def asked_of(arguments: argparse.Namespace) -> Asked:
    """The options. Raises ``BadInput`` for what is unknown or does not go together."""
    return Asked(
        path=arguments.path,
        to=destinations(arguments.to, arguments.target),
        target=arguments.target,
        engine=arguments.engine,
        kv_cache_dtype=arguments.kv_cache_dtype,
        against=arguments.against,
        log=arguments.log,
        torch_weights=arguments.torch_weights,
        bandwidth=arguments.bandwidth,
        workers=arguments.workers,
        only=arguments.only,
        headers_only=arguments.headers_only,
    )


def _work(asked: Asked) -> Report:
    """The report; on a terminal, the first finding of each kind as it comes, above a bar of progress."""
    console = Console(stderr=True)
    report: Report | None = None
    told: set[tuple[str, str]] = set()
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}
        for event in audit(asked):
            if isinstance(event, Report):
                report = event
            elif isinstance(event, Found):
                if console.is_terminal and event.level != "note" and (event.about, event.finding.kind) not in told:
                    bar.console.print(said_now(event), soft_wrap=True)
                told.add((event.about, event.finding.kind))
            elif isinstance(event, Progress):
                _advance(bar, tasks, event)
    assert report is not None, "an audit ends with its report"
    return report


def _advance(bar: Bar, tasks: dict[str, TaskID], event: Progress) -> None:
    if event.step not in tasks:
        for task in tasks.values():
            bar.remove_task(task)
        tasks.clear()
        tasks[event.step] = bar.add_task("", total=event.total or None)
    # a name is a stranger's: no markup in it
    bar.update(tasks[event.step], completed=event.done, description=escape(plain(f"{event.step} {event.tensor}")))
