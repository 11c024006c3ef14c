"""``narrowgauge judge``: verdicts on the outputs of any program."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from narrowgauge.ci.ledger import Ledger
from narrowgauge.command.identify import reports
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import screen, show
from narrowgauge.plugin.tables import summary
from narrowgauge.suites.identifying import found_in
from narrowgauge.suites.offline import judge_files


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "judge",
        help="judge the outputs of any program, in any language, from files",
        description="Gives the same verdicts, messages and ledger as a run ('replayed'). For an observation (rule '?') "
        "it says what was followed, as 'narrowgauge identify' does.",
    )
    parser.add_argument("inputs", type=Path, metavar="IN", help="what 'narrowgauge inputs' wrote")
    parser.add_argument("outputs", type=Path, metavar="OUT", help="safetensors with CASE.codes (and CASE.scale)")
    parser.add_argument("--kernel", default="", help="a name for what made the outputs (default: OUT's name)")
    parser.add_argument("--target", default="unknown", help="where it ran, for example gfx942")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="write the ledger there")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    kernel = arguments.kernel or arguments.outputs.stem
    judged = judge_files(arguments.inputs, arguments.outputs, kernel, arguments.target)
    rows = [j.row for j in judged]
    options = {"inputs": str(arguments.inputs), "outputs": str(arguments.outputs)}
    ledger = Ledger([row.id for row in rows], rows, {}, options, golden="")
    if arguments.ledger:
        ledger.write(arguments.ledger)
    if arguments.json:
        print_json(ledger.to_json())
    else:
        for one in judged:
            if one.message:
                print(one.message, end="\n\n")
        console = screen()
        if judged[0].row.rule == "?" and (found := found_in(judged)).executed:
            show(console, reports([found], console.width))
        print(summary(ledger, console.width, colour=console.is_terminal and not console.no_color), end="")
    results = {row.result for row in rows}
    if "failed" in results:
        return Exit.FAILED
    return Exit.UNKNOWN if "not_executed" in results else Exit.OK
