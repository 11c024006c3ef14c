"""``narrowgauge report``: what runs left, as a report for the owners of kernels."""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from rich.text import Text

from narrowgauge.ci import waivers
from narrowgauge.ci.allure import config, metrics, node
from narrowgauge.ci.allure.gather import Gathered, gather, without_well, write
from narrowgauge.ci.allure.identity import ENVIRONMENT
from narrowgauge.ci.allure.results import RESULT, label_of, milliseconds
from narrowgauge.command.shared import add_json, print_json, results_in
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.failures import FAILURES
from narrowgauge.contracts.files import write_whole
from narrowgauge.contracts.verdict import Exit, Result
from narrowgauge.plugin.screen import Grid, Line, screen, show
from narrowgauge.reference.faults.families import FAMILIES

RESULTS, REPORT = "results", "report"
#: the only things that an earlier report left, and that this one removes
OWN = (RESULTS, REPORT)
NAME = "narrowgauge"
#: a failure that is known, which Allure's words do not tell from others
WAIVED: Result = "waived"
#: in the order of the table
STATUSES = ("failed", "broken", WAIVED, "skipped", "passed")
#: notes on the screen; --json has all
SHOWN = 10


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="what runs left as an Allure report: a page for each kernel, the vendors side by side",
        description="Gathers what 'narrowgauge run' left, adds a broken result for every planned test that has none, "
        "and has Allure 3 make a report in SITE/report; SITE/results has what it was made of. It judges nothing: "
        "'narrowgauge gate' does. docs/report.md says how a report is read.",
    )
    parser.add_argument(
        "directories", nargs="*", type=Path, metavar="DIR", help="results of a shard, or a folder of such"
    )
    parser.add_argument("--out", type=Path, metavar="SITE", help="a folder for the report")
    parser.add_argument("--history", type=Path, metavar="FILE", help="earlier nights, read and added to (.jsonl)")
    parser.add_argument(
        "--single-file", action="store_true",
        help="one page that opens without a server: what did not pass, and the same tests on other targets",
    )  # fmt: skip
    parser.add_argument("--name", default=NAME, help=f"the report's title (default: {NAME})")
    parser.add_argument(
        "--waivers", action="append", default=[], type=Path, metavar="FILE",
        help="for the dates of waivers that are not the suite's own; may be given several times",
    )  # fmt: skip
    parser.add_argument("--no-render", action="store_true", help="gather results, and make no report")
    parser.add_argument("--install", action="store_true", help=f"install Allure {node.pinned()} by npm, once")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.install:
        program = node.install()
        if not arguments.json or arguments.directories:
            print(f"Allure {node.pinned()} is in {program.parent}")
        if not arguments.directories:
            return Exit.OK
    if not arguments.directories or arguments.out is None:
        raise BadInput("expected results directories and --out SITE: narrowgauge report DIR... --out SITE")
    if arguments.history is not None and arguments.history.suffix != ".jsonl":
        raise BadInput(f"--history {arguments.history}; expected a file that ends in .jsonl")
    known = waivers.load([waivers.OWN, *arguments.waivers])
    found = gather([directory for given in arguments.directories for directory in results_in(given)])
    site, counts = _prepared(arguments.out), _counts(found)
    well = without_well(found) if arguments.single_file else 0
    _write(arguments, found, known, site)
    if arguments.json:
        print_json(_data(found, counts, site, well))
    else:
        _show(found, counts)
        if well:
            print(f"{well:,} tests that passed wherever they ran are not on the page; without --single-file all are")
    if arguments.no_render:
        return Exit.OK
    node.render(site / RESULTS, site / RESULTS / config.FILE, site / REPORT)
    if not arguments.json:
        how = "" if arguments.single_file else " (serve the folder: as a file the page stays empty)"
        print(f"report: {site / REPORT / 'index.html'}{how}")
    return Exit.OK


def _prepared(out: Path) -> Path:
    """The folder, made or emptied of an earlier report. Raises ``BadInput`` for one with other things in it."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file; expected a directory")
    if strangers := sorted(p.name for p in out.iterdir() if p.name not in OWN) if out.exists() else []:
        raise BadInput(f"--out {out} has {', '.join(strangers[:3])} in it, which no report left; name another folder")
    try:
        for name in OWN:
            shutil.rmtree(out / name, ignore_errors=True)
        (out / RESULTS).mkdir(parents=True)
    except OSError as error:
        raise BadInput(f"cannot write to --out {out}: {error.strerror}") from error
    return out.resolve()


def _write(arguments: argparse.Namespace, found: Gathered, known: list[waivers.Waiver], site: Path) -> None:
    words = {**FAMILIES, **FAILURES}
    results = site / RESULTS
    write(found, results)
    rows = found.rows.values()
    at = max((milliseconds(s.run.started) for s in found.shards if s.run is not None), default=0)
    write_whole(results / metrics.FILE, json.dumps(metrics.samples(rows, at)).encode())
    write_whole(results / "categories.json", config.categories_json(words).encode())
    made = config.configuration(
        found,
        config.categories(words),
        config.resolutions(rows, found.cells, known),
        name=arguments.name,
        output=str(site / REPORT),
        history="" if arguments.history is None else str(arguments.history.resolve()),
        single_file=arguments.single_file,
    )
    write_whole(results / config.FILE, config.module(made).encode())


def _counts(found: Gathered) -> dict[str, Counter[str]]:
    """Results by environment and status; failures that are known apart."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in found.environments}
    for result in found.results.values():
        status = WAIVED if label_of(result, RESULT) == WAIVED else result["status"]
        counts.setdefault(label_of(result, ENVIRONMENT) or "no environment", Counter())[status] += 1
    return counts


def _data(found: Gathered, counts: dict[str, Counter[str]], site: Path, well: int) -> dict[str, Any]:
    return {
        "site": str(site),
        "environments": {name: dict(count) for name, count in counts.items()},
        "passed_and_left_out": well,
        "without_a_result_of_their_own": sorted(found.stubs),
        "notes": found.notes,
    }


def _show(found: Gathered, counts: dict[str, Counter[str]]) -> None:
    grid = Grid("results by environment", ["environment", *STATUSES])
    for name, count in counts.items():
        grid.lines.append(Line([Text(name), *(Text(str(count[s] or "·")) for s in STATUSES)]))
    console = screen()
    show(console, grid.texts(console.width))
    if found.stubs:
        show(
            console,
            [f"{len(found.stubs)} planned tests left no result, and are shown as broken, first {min(found.stubs)}"],
        )
    show(console, found.notes[:SHOWN])
    if len(found.notes) > SHOWN:
        show(console, [f"and {len(found.notes) - SHOWN} more such notes (--json has all)"])
