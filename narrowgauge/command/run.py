"""``narrowgauge run``: one shard of a lane, from the preflight to a directory of results that a gate can judge."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from narrowgauge.ci.lanes import Lane, lane_named
from narrowgauge.ci.records import MOST_SHARDS, RunRecord
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import Grid, Line, screen, show
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.suites.lane_run import ADDED, LaneRun, prepared

#: variables of the environment that say the same as options, for CI engines
ARCH, SHARD, OUT = "ARCH", "SHARD", "OUT"
#: options of pytest and its plugins that would make a run's results other than what it says
REFUSED = {
    "--reruns": "a result that a second try mends is a finding: there are no reruns",
    "--only-rerun": "there are no reruns",
    "--clean-alluredir": "a worker that is replaced would clean again, and wipe what was there",
    "--splits": "shards are --shard K/N",
    "--group": "shards are --shard K/N",
    "--store-durations": "python -m narrowgauge.ci.splitting makes durations of results directories",
    "--require-verified": "whether a path was executed is the gate's question",
    "--runxfail": "a failure that is waived would count as passed",
    "--setup-only": "a test that is not called judges nothing",
    "--setup-plan": "a test that is not called judges nothing",
    "--continue-on-collection-errors": "tests that could not be collected would be missing from the plan",
    "--numprocesses": "it is -n N here",
    "--dist": "the run decides how tests are shared out",
    "--golden": "a night is held to the vectors of its commit: run.json would name others than it was judged by",
    "--device": "the lane names its devices (ci/lanes.toml)",
    "--collect-only": "a run runs; 'narrowgauge test --collect-only' lists tests",
    "--co": "a run runs; 'narrowgauge test --collect-only' lists tests",
    "-x": "a run that ends at its first failure leaves tests of its plan unrun",
    "--exitfirst": "a run that ends at its first failure leaves tests of its plan unrun",
    "--maxfail": "a run that ends early leaves tests of its plan unrun",
}
#: -x, also where it is written together with others, as in -vx
FIRST_FAILURE = re.compile(r"-[lqsv]*x[lqsvx]*")


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        help="one shard of a lane of the nightly run, with a preflight and results that a gate can judge",
        description="Looks at the machine first (a failure there is 'infra', exit 3, and no test), makes the plan of "
        "the whole lane, runs this shard's tests under a watchdog, and leaves everything in --out: run.json, "
        "plan.json, journal.jsonl, ledger.json, junit.xml, pytest.log and allure-results. Options that are not listed "
        "go to pytest, as those of 'narrowgauge test' do. 'narrowgauge gate' judges what was left.",
        allow_abbrev=False,
    )
    parser.add_argument("--lane", required=True, metavar="LANE", help="a lane of ci/lanes.toml: cpu, cuda, rocm")
    for option, variable, metavar, what in (
        ("--arch", ARCH, "TARGET", "the architecture (default: ${}, else the lane's only one, or that of the GPU)"),
        ("--shard", SHARD, "K/N", "which part of the plan (default: ${}, else 1/1)"),
        ("--out", OUT, "DIR", "where results go (default: ${}, else .narrowgauge/LANE)"),
    ):
        default = os.environ.get(variable, "")
        parser.add_argument(option, default=default, metavar=metavar, help=what.format(variable))
    parser.add_argument("--lanes", type=Path, metavar="FILE", help="lanes of your own (form: ci/lanes.toml)")
    parser.add_argument("--depth", choices=DEPTHS, help="instead of the lane's")
    parser.add_argument("-n", dest="workers", type=int, metavar="N", help="processes, instead of the lane's")
    parser.add_argument("--preflight-only", action="store_true", help="look at the machine, and run nothing")
    add_json(parser)
    parser.set_defaults(run=run, passes_on=True)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    lane = lane_named(arguments.lane, *([arguments.lanes] if arguments.lanes else []))
    options = (*_added(os.environ.get(ADDED, "")), *rest)
    _refuse(options)
    shard, shards = _shard(arguments.shard or "1/1")
    workers = lane.workers if arguments.workers is None else arguments.workers
    if workers < 1:
        raise BadInput(f"-n {workers}; expected at least 1: a test that kills its process must not end the run")
    out = Path(arguments.out or f".narrowgauge/{lane.name}")
    target, depth = _target(lane, arguments.arch), arguments.depth or lane.depth
    with prepared(out):
        return _run(LaneRun(lane, target, shard, shards, out, depth, workers, options), arguments)


def _run(ran: LaneRun, arguments: argparse.Namespace) -> int:
    record = ran.preflight()
    if not arguments.json:
        _show(record)
    if record.state == "infra" or arguments.preflight_only:
        return _end(arguments, record, Exit.INFRASTRUCTURE if record.state == "infra" else Exit.OK)
    record = ran.judge(quiet=arguments.json)
    return _end(arguments, record, ran.exit_code)


def _end(arguments: argparse.Namespace, record: RunRecord, code: int) -> int:
    if arguments.json:
        print_json(record.to_json())
    elif record.reason:
        print(f"narrowgauge run: {record.name} {record.state}: {record.reason}")
    return code


def _added(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(f"{ADDED} = {text!r}: {error}; expected options as a shell takes them") from None


def _refuse(options: Sequence[str]) -> None:
    for word in options:
        name = "-x" if FIRST_FAILURE.fullmatch(word) else word.split("=")[0]
        if name in REFUSED:
            raise BadInput(f"narrowgauge run does not take {name}: {REFUSED[name]}")


def _shard(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]) <= MOST_SHARDS:
        raise BadInput(f"shard {text!r}; expected K/N with K from 1 to N, N at most {MOST_SHARDS}, for example 2/3")
    return int(found[1]), int(found[2])


def _target(lane: Lane, asked: str) -> str:
    """The architecture that was asked for; without one the lane's only one, or that of the GPU that is there."""
    if asked and asked not in lane.targets:
        raise BadInput(f"lane {lane.name} is not for {asked!r}; its architectures are {', '.join(lane.targets)}")
    if asked or len(lane.targets) == 1:
        return asked or lane.targets[0]
    from narrowgauge.devices.discovery import gpus

    seen = [d.target for d in gpus() if d.target in lane.targets]
    if not seen:
        raise BadInput(
            f"which architecture? torch sees no GPU of lane {lane.name} here; --arch names one of "
            f"{', '.join(lane.targets)}, and the preflight then says what is missing"
        )
    return seen[0]


def _show(record: RunRecord) -> None:
    """The preflight as a table."""
    grid = Grid(f"preflight of {record.name}", ["check", "", "found"], "expected")
    from rich.text import Text

    for check in record.preflight:
        word = Text("fit", "green") if check.ok else Text("UNFIT", "bold red")
        grid.lines.append(Line([Text(check.name), word, Text(check.found)], "" if check.ok else check.expected))
    console = screen()
    show(console, grid.texts(console.width))
