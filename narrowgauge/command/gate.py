"""``narrowgauge gate``: what came of a night, held to its plan and to the nights before; the exit code that counts."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from narrowgauge.ci import history as histories
from narrowgauge.ci import quarantine, waivers
from narrowgauge.ci.gate import Report, Rules, gate
from narrowgauge.ci.gate.night import Expect
from narrowgauge.ci.lanes import OWN as OWN_LANES
from narrowgauge.ci.lanes import Lane
from narrowgauge.ci.lanes import load as load_lanes
from narrowgauge.ci.records import read_shard
from narrowgauge.command.gate_words import as_json, markdown, texts
from narrowgauge.command.shared import add_json, print_json, results_in
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.files import write_whole
from narrowgauge.plugin.screen import screen, show


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "gate",
        help="whether a night was whole and well: what is missing, new, mended, and since when",
        description="Holds what runs left (narrowgauge run --out DIR) to their plan and to the nights before. A lost "
        "shard, a crashed test, a skipped operation, a stale or expired waiver and a failure are red; a machine in "
        "quarantine is yellow. docs/nightly.md lists everything that can be found. Exit code 0: green; 1: red; 3: red "
        "by machines, files or the set-up alone; 4: the gate was given what it cannot use.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "directories", nargs="*", type=Path, metavar="DIR", help="results of a shard, or a directory of such"
    )
    parser.add_argument(
        "--expect", action="append", default=[], metavar="LANE/TARGET[xN]",
        help="a place that must be there, with so many shards; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--history", type=Path, metavar="FILE", help="what earlier nights found; read, and written anew"
    )
    parser.add_argument(
        "--waivers", action="append", default=[], type=Path, metavar="FILE",
        help="known failures besides the suite's own, the same files as the run's; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--quarantine", type=Path, default=quarantine.OWN, metavar="FILE", help="machines that are known to fail"
    )
    parser.add_argument("--lanes", type=Path, default=OWN_LANES, metavar="FILE", help="lanes of your own")
    parser.add_argument("--today", metavar="DATE", help="as if the gate's clock said so: for results of an old night")
    parser.add_argument(
        "--accept", action="store_true",
        help="take what is not executed any more, and what is gone from the plan, as it is from now on",
    )  # fmt: skip
    parser.add_argument("--summary", type=Path, metavar="FILE.md", help="write the summary as Markdown")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    report = judged(arguments)
    if arguments.json:
        print_json(as_json(report))
    else:
        console = screen()
        show(console, texts(report, console.width))
    if arguments.summary is not None:
        write_whole(arguments.summary, markdown(report).encode())
    if arguments.history is not None:  # last: a night that could not be told whole is not taken in
        histories.write(arguments.history, report.history)
    return report.exit


def judged(arguments: argparse.Namespace) -> Report:
    """The report. Raises ``BadInput`` before anything is judged by rules that cannot be used."""
    if not arguments.directories and not arguments.expect:
        raise BadInput("nothing to judge; expected directories of results, or --expect LANE/TARGET where none came")
    lanes = load_lanes(arguments.lanes)
    rules = Rules(
        lanes=lanes,
        expects=_expects(arguments.expect, lanes),
        waivers=tuple(waivers.load([waivers.OWN, *arguments.waivers])),
        quarantine=tuple(quarantine.load(arguments.quarantine, lanes)),
        remembers=arguments.history is not None,
        accept=arguments.accept,
    )
    past = histories.read(arguments.history) if arguments.history is not None else None
    shards = [read_shard(directory) for given in arguments.directories for directory in results_in(given)]
    return gate(shards, rules, past, _today(arguments.today))


def _expects(words: Sequence[str], lanes: dict[str, Lane]) -> tuple[Expect, ...]:
    found = [Expect.parse(word, lanes) for word in words]
    twice = {e.place for e in found if sum(e.place == other.place for other in found) > 1}
    if twice:
        raise BadInput(f"--expect names {', '.join(sorted(twice))} twice; expected each place once")
    return tuple(found)


def _today(given: str | None) -> datetime.date:
    if given is None:
        return datetime.datetime.now(datetime.UTC).date()
    try:
        return datetime.date.fromisoformat(given)
    except ValueError:
        raise BadInput(f"--today {given!r}; expected a date such as 2026-11-30") from None
