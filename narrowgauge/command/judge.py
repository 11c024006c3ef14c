"""``narrowgauge judge``: verdicts on the outputs of any program."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from narrowgauge.ci.ledger import Ledger
from narrowgauge.command.identify import reports
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import screen, show
from narrowgauge.plugin.tables import summary
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.identifying import found_in
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.offline import judge_files
from narrowgauge.suites.program import BLOCK
from narrowgauge.suites.stream import Stream, judge_answers, judge_program

#: seconds in which a program must read or write something
PATIENCE = 60.0


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "judge",
        help="judge the outputs of any program, in any language, from files or pipes",
        usage="narrowgauge judge [options] IN OUT\n       narrowgauge judge --stream [options] CLAIM -- COMMAND ARGS…\n"
        "       narrowgauge inputs CLAIM --stream | COMMAND | narrowgauge judge --stream [options] CLAIM -",
        description="Gives the same verdicts, messages and ledger as a run ('replayed'). With --stream a cast is asked "
        "value by value: patterns of the source go to the program's standard input, one hexadecimal number to a line, "
        "and its codes are read from its standard output in the same form and order. For an observation (rule '?') it "
        "says what was followed, as 'narrowgauge identify' does.",
    )
    parser.add_argument("inputs", metavar="IN", help="what 'narrowgauge inputs' wrote; with --stream, a claim")
    parser.add_argument(
        "outputs",
        metavar="OUT",
        help="safetensors with CASE.codes (and CASE.scale); with --stream, a file of answers, - for standard input, "
        "or after -- a command with its arguments",
    )
    parser.add_argument("--kernel", default="", help="a name for what made the outputs (default: OUT's name)")
    parser.add_argument("--target", default="unknown", help="where it ran, for example gfx942")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="write the ledger there")
    parser.add_argument("--stream", action="store_true", help="casts only: a number to a line instead of tensor files")
    parser.add_argument("--binary", action="store_true", help="with --stream: little-endian words instead of lines")
    parser.add_argument("--depth", choices=DEPTHS, default="smoke", help="with --stream: how many inputs")
    parser.add_argument(
        "--timeout", type=float, default=PATIENCE, metavar="SECONDS",
        help=f"with --stream: end a command that reads and writes nothing for so long (default: {PATIENCE:g})",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run, takes_program=True)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.stream:
        judged, options = _stream(arguments)
    elif arguments.program or arguments.binary:
        raise BadInput("a command after --, and --binary, go with --stream; without it give IN and OUT")
    else:
        kernel = arguments.kernel or Path(arguments.outputs).stem
        judged = judge_files(Path(arguments.inputs), Path(arguments.outputs), kernel, arguments.target)
        options = {"inputs": arguments.inputs, "outputs": arguments.outputs}
    return _report(judged, options, arguments)


def _stream(arguments: argparse.Namespace) -> tuple[list[Judged], dict[str, Any]]:
    stream = Stream.of(Claim.parse(arguments.inputs), arguments.depth, arguments.binary)
    program, out, target = arguments.program, arguments.outputs, arguments.target
    kernel = arguments.kernel or ("stdin" if out == "-" else Path(out).stem)
    options = {"stream": arguments.inputs, "depth": arguments.depth, "outputs": program or out}
    if program:
        return judge_program(stream, program, arguments.timeout, kernel, target), options
    if out == "-":
        return judge_answers(stream, _blocks(sys.stdin.buffer), "standard input", kernel, target), options
    try:
        with open(out, "rb") as file:
            return judge_answers(stream, _blocks(file), out, kernel, target), options
    except OSError as error:
        raise BadInput(f"cannot read {out}: {error.strerror}") from error


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(BLOCK):
        yield block


def _report(judged: list[Judged], options: dict[str, Any], arguments: argparse.Namespace) -> int:
    rows = [j.row for j in judged]
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
