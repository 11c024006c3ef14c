"""``narrowgauge probe``: what the accumulator of a product of matrices really is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.outcome import NotExecuted
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.device import RUN
from narrowgauge.plugin.screen import facts, folded, screen, show
from narrowgauge.reference.probes.claimed import differences
from narrowgauge.reference.probes.portrait import LENGTH
from narrowgauge.suites.probing import REPEATS, ROWS, Probed, claim_of, probe_kernel, read_probes, write_probes
from narrowgauge.suites.run import Run


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "probe",
        help="what the accumulator of a product of matrices is: bits, rounding, order, promotion, scales",
        description="Launches a kernel with a contract Matmul a few dozen times on numbers that tell accumulators "
        "apart, prints what was found, and the known matrix units that it fits. With --write the launches go to a file "
        "for a program that runs elsewhere, and --read takes its results. Exit code 1: the contract claims a portrait "
        "that was not found; 6: the kernel has nothing here to run with.",
    )
    parser.add_argument("--kernel", metavar="FILE[:NAME]", help="a file with a kernel, or the name of one of ours")
    parser.add_argument(
        "--claim", default="", metavar="CLAIM", help="matmul/PRODUCT/SOURCE/FORMAT (default: its first)"
    )
    parser.add_argument("--device", metavar="ID", help="where to run it ('narrowgauge devices')")
    parser.add_argument("--k", type=int, default=LENGTH, metavar="K", help=f"length of the sums (default: {LENGTH})")
    parser.add_argument(
        "--rows", type=int, default=ROWS, metavar="M",
        help=f"M and N of a launch, a multiple of 128 (default: {ROWS}); kernels take other tiles for few rows",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=int, default=REPEATS, metavar="N", help="launches again, to see whether results stay"
    )
    parser.add_argument("--kernel-timeout", type=float, default=RUN, metavar="S", help="seconds for one launch")
    parser.add_argument("--write", type=Path, metavar="IN", help="write the launches of --claim to a file")
    parser.add_argument("--read", type=Path, nargs=2, metavar=("IN", "OUT"), help="read the results of such launches")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    ways = [name for name in ("kernel", "write", "read") if getattr(arguments, name)]
    if len(ways) != 1:
        raise BadInput(f"probe takes one of --kernel, --write and --read; given {' and '.join(ways) or 'none'}")
    if arguments.rows < 128 or arguments.rows % 128:
        raise BadInput(f"--rows {arguments.rows}; expected a multiple of 128, which is the largest block of scales")
    if arguments.repeats < 0 or not 0 < arguments.kernel_timeout < float("inf"):
        raise BadInput("--repeats is 0 or more, --kernel-timeout a positive number of seconds")
    if arguments.write:
        return _write(arguments)
    if arguments.read:
        probed = read_probes(*arguments.read)
        return _report(arguments, probed, arguments.read[1].stem, "a file")
    return _on_device(arguments)


def _write(arguments: argparse.Namespace) -> int:
    if not arguments.claim:
        raise BadInput("--write needs --claim, for example matmul/vllm.fp8_block/float8_e4m3fn/bfloat16")
    claim = Claim.parse(arguments.claim)
    shapes = write_probes(claim, arguments.write, arguments.k, arguments.rows)
    if arguments.json:
        print_json({"file": str(arguments.write), "claim": str(claim), "cases": shapes})
        return Exit.OK
    print(f"{arguments.write}: {len(shapes)} launches for {claim}")
    for name, shape in shapes.items():
        print(f"  {name}.x, {name}.b …  ->  {name}.codes ({list(shape)} {claim.format})")
    print("write the results under those names; those of b and c may be left out. Then:")
    print(f"  narrowgauge probe --read {arguments.write} RESULTS.safetensors")
    return Exit.OK


def _on_device(arguments: argparse.Namespace) -> int:
    run = Run((), [arguments.device] if arguments.device else (), timeout=arguments.kernel_timeout)
    try:
        plugged = _kernel(run, arguments.kernel)
        claim = claim_of(plugged, arguments.claim)
        device = run.devices[0] if arguments.device else run.place_of(plugged)
        with _shown() as told:
            probed = probe_kernel(
                plugged, claim, device, arguments.k, arguments.rows, arguments.repeats, arguments.kernel_timeout, told
            )
    except NotExecuted as reason:
        return _not_executed(arguments, str(reason))
    finally:
        run.close()
    return _report(arguments, probed, plugged.kernel.name, device.id)


def _not_executed(arguments: argparse.Namespace, reason: str) -> int:
    if arguments.json:
        print_json({"kernel": arguments.kernel, "not_executed": reason})
    else:
        print(f"{arguments.kernel}: not executed: {reason}")
    return Exit.UNKNOWN


def _kernel(run: Run, text: str) -> Plugged:
    """One of ours by its name; or that of a file, by its name or as the only product of matrices in it.

    Raises ``BadInput`` where it is not there, or is not the only one.
    """
    file, _, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    if not file.endswith(".py"):
        return run.kernel_named(text)
    path = Path(file).absolute()
    if not path.is_file():
        raise BadInput(f"--kernel {text}: no such file ({path})")
    held = run.devices[0].describe(str(path))
    found = [p for p in held if p.kernel.name == name or (not name and isinstance(p.kernel.contract, Matmul))]
    if len(found) != 1:
        known = ", ".join(p.kernel.name for p in held if isinstance(p.kernel.contract, Matmul)) or "none"
        raise BadInput(f"--kernel {text}: the file's kernels with a contract Matmul are {known}; give FILE:NAME")
    return found[0]


@contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, where that is a terminal."""
    columns = (TextColumn("launches"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")
        yield lambda done, of: bar.update(task, completed=done, total=of)


# --- report ----------------------------------------------------------------------------------------------------------


def _report(arguments: argparse.Namespace, probed: Probed, name: str, where: str) -> int:
    contract = probed.claim.contract
    claimed = dict(contract.portrait) if isinstance(contract, Matmul) else {}
    wrong = differences(claimed, probed.portrait)
    if arguments.json:
        print_json({"kernel": name, "device": where, "not_as_claimed": wrong, **probed.to_json()})
    else:
        console = screen()
        show(console, texts(probed, f"{name} on {where}, {probed.claim}", wrong, console.width))
    return Exit.FAILED if wrong else Exit.OK


def texts(probed: Probed, subject: str, wrong: list[str], width: int) -> list[Text | str]:
    """The report in lines."""
    setting, found = probed.portrait.setting, probed.portrait.findings.values()
    lines: list[Text | str] = [Text(subject, "bold"), f"  {probed.portrait.summary}"]
    lines += ["", f"K = {setting.k}, M and N at most {probed.rows}"]
    lines += [*facts(_units(probed), width), ""]
    said = [(f.name, f.words if f.value in f.words else f"{f.value}: {f.words}") for f in found if f.value]
    lines += facts(said, width)
    silent: dict[str, list[str]] = {}
    for each in found:
        if not each.value and each.words:
            silent.setdefault(each.words, []).append(each.name)
    lines += (
        ["", "not to be seen", *facts([(", ".join(names), why) for why, names in silent.items()], width)]
        if silent
        else []
    )
    for title, texts in (("on the way", probed.notes), ("not as claimed", wrong)):
        if texts:
            lines += ["", title, *(Text("  ") + line for text in texts for line in folded(text, width - 2))]
    return lines


def _units(probed: Probed) -> list[tuple[str, str]]:
    """The units that fit, or the nearest and in what they part."""
    known = probed.known
    if known.fits:
        return [("units that fit", ", ".join(match.name for match in known.fits))]
    near = [(match.name, match.parts) for match in known.nearest]
    return [("units that fit", "none that is known; the nearest, and what was found of the kernel, not of them"), *near]
