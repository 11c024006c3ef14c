"""``narrowgauge instructions``: which matrix units a kernel's products become, on targets that are not here."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Matmul
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.device import OWN
from narrowgauge.devices.discovery import EMULATED_BY_DEFAULT
from narrowgauge.plugin.screen import Grid, Line, brief, screen, show
from narrowgauge.suites.instructions import ROWS, Compiled, compiled
from narrowgauge.suites.run import Run

#: opcodes of a row that are shown; --json has all of them
OPCODES = 6


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "instructions",
        help="which matrix units compute a kernel's products on GPUs that are not here",
        description="Compiles Triton kernels that claim products of matrices (Matmul) for targets, without hardware, "
        "and says of each which matrix units multiply, whether sums are taken out of a unit of 13 bits, and what is "
        "converted before. The same source may become another unit with another tile: --rows changes the number of "
        "rows of x. Exit code 1: what was compiled contradicts the accumulator that is claimed; 6: nothing compiled.",
    )
    parser.add_argument(
        "kernel", metavar="KERNEL", nargs="*", help="names of kernels; all that claim a product if none"
    )
    parser.add_argument("--kernels", action="append", default=[], metavar="FILE", help="a file of kernels to plug in")
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="for example sm_90; several times"
    )
    parser.add_argument("--rows", type=int, default=ROWS, metavar="M", help=f"rows of x; {ROWS} if nothing is said")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.rows < 1:
        raise BadInput(f"--rows {arguments.rows}; expected 1 or more")
    found = _found(arguments)
    if arguments.json:
        print_json([one.to_json() for one in found])
    else:
        console = screen()
        show(console, _grid(found).texts(console.width))
    if all(one.code is None for one in found):
        return Exit.UNKNOWN
    return Exit.FAILED if any(one.contradicted for one in found) else Exit.OK


def _found(arguments: argparse.Namespace) -> list[Compiled]:
    targets = arguments.target or EMULATED_BY_DEFAULT
    run = Run(arguments.kernels, [f"emulated:{name}" for name in targets])
    try:
        found = []
        with Console(stderr=True).status("loading kernels") as status:
            for one in compiled(_chosen(run, arguments), run.devices, arguments.rows):
                found.append(one)
                status.update(f"{len(found)} compiled, last {one.kernel} for {one.target}")
        return found
    finally:
        run.close()


def _chosen(run: Run, arguments: argparse.Namespace) -> list[Plugged]:
    """The kernels that are named; else all products, of files that are plugged in or else of ours."""
    if arguments.kernel:
        return [run.kernel_named(name) for name in arguments.kernel]
    products = [p for p in run.kernels if isinstance(p.kernel.contract, Matmul)]
    found = [p for p in products if bool(arguments.kernels) != p.origin.startswith(OWN)]
    if not found:
        raise BadInput("no kernel there claims a product of matrices (Matmul)")
    return found


def _grid(found: list[Compiled]) -> Grid:
    grid = Grid("", ("kernel", "a", "target", "units"), "what it says")
    for one in found:
        units = ", ".join(one.code.units) if one.code else "not compiled"
        cells = (one.kernel, one.claim.source, one.target, units or "none")
        colour = "red" if one.contradicted else ""
        grid.lines.append(Line([Text(cell, colour) for cell in cells], _said(one)))
    return grid


def _said(one: Compiled) -> str:
    if one.code is None:
        return brief(one.reason)
    counts = [f"{count} {name}" for name, count in sorted(one.code.told.items(), key=lambda c: _weight(c[0]))]
    more = [f"and {len(counts) - OPCODES} more opcodes"] if len(counts) > OPCODES else []
    return ". ".join([*(f.text for f in one.findings), ", ".join([*counts[:OPCODES], *more])])


def _weight(name: str) -> tuple[bool, str]:
    """Matrix units first."""
    return "MMA" not in name and "mfma" not in name and "wmma" not in name, name
