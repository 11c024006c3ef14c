"""``narrowgauge identify``: which named policy or recipe a kernel follows, whatever it claims."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit, Explanation
from narrowgauge.devices.device import RUN
from narrowgauge.plugin.screen import Grid, Line, brief, facts, screen, show
from narrowgauge.reference.choices import Choices
from narrowgauge.reference.faults.registry import fault_named
from narrowgauge.reference.identify import Identity
from narrowgauge.reference.inputs import DEPTHS
from narrowgauge.reference.message import in_part
from narrowgauge.reference.parts import Part
from narrowgauge.suites.identifying import Found, identify_files, identify_kernel
from narrowgauge.suites.run import Run

#: groups of inputs, and faults of a set, that are shown; --json has all of them
GROUPS, FAULTS_NAMED = 16, 4


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "identify",
        help="which named policy or recipe a kernel follows, whatever it claims",
        description="Runs a kernel on the suite's inputs and says which named policies or recipes give exactly its "
        "codes. Where none does: the nearest, the inputs on which the two part, the fault that explains it, and the "
        "choices of the cast as measured. 'identify IN OUT' takes what 'narrowgauge inputs' wrote (any rule, '?' "
        "included) and the outputs of any program. Exit code 0: it follows a named rule wherever it ran; 1: "
        "somewhere it follows none, or gave no usable answer; 6: nothing was executed.",
    )
    parser.add_argument("kernel", metavar="KERNEL", help="a kernel's name (ours, or in --kernels), or a file of inputs")
    parser.add_argument("outputs", metavar="OUT", nargs="?", type=Path, help="a file of outputs, after one of inputs")
    parser.add_argument("--kernels", action="append", default=[], metavar="FILE", help="a file of kernels to plug in")
    parser.add_argument("--format", action="append", default=[], help="only this destination; several times for more")
    parser.add_argument("--source", action="append", default=[], help="only this source format; several times for more")
    parser.add_argument(
        "--device", action="append", default=[], metavar="ID", help="only there ('narrowgauge devices')"
    )
    parser.add_argument("--depth", choices=DEPTHS, default="smoke", help="how much of the input space to walk")
    parser.add_argument("--kernel-timeout", type=float, default=RUN, metavar="SECONDS", help="for one call")
    parser.add_argument("--target", default="unknown", help="with files: where it ran, for example gfx942")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    found = _from_files(arguments) if arguments.outputs else _from_devices(arguments)
    if arguments.json:
        print_json([one.to_json() for one in found])
    else:
        console = screen()
        show(console, reports(found, console.width))
    if not any(one.executed for one in found):
        return Exit.UNKNOWN
    return Exit.OK if all(one.follows for one in found if one.executed) else Exit.FAILED


def _from_files(arguments: argparse.Namespace) -> list[Found]:
    for name in ("kernels", "format", "source", "device"):
        if getattr(arguments, name):
            raise BadInput(
                f"--{name} is for a kernel that is run; {arguments.kernel} and {arguments.outputs} are files"
            )
    return [identify_files(Path(arguments.kernel), arguments.outputs, arguments.outputs.stem, arguments.target)]


def _from_devices(arguments: argparse.Namespace) -> list[Found]:
    run = Run(arguments.kernels, arguments.device, depth=arguments.depth, timeout=arguments.kernel_timeout)
    try:
        run.check()
        found = []
        with Console(stderr=True).status("loading kernels") as status:
            for one in identify_kernel(run, arguments.kernel, arguments.format, arguments.source):
                found.append(one)
                status.update(f"{one.kernel}: {len(found)} looked at, last {one.claim.source} to {one.claim.format}")
        return found
    finally:
        run.close()


# --- reports ---------------------------------------------------------------------------------------------------------


def reports(found: Sequence[Found], width: int) -> list[Text]:
    """What was found, in lines for a screen: findings that say the same of several sources are told once."""
    groups: dict[tuple[str, str, str], list[Found]] = {}
    for one in found:
        if one.executed:
            groups.setdefault((one.target, one.claim.format, _said(one)), []).append(one)
    texts = [text for group in groups.values() for text in (*_report(group, width), Text())]
    unrun = dict.fromkeys(f"not executed on {one.target}: {brief(why)}" for one in found for why in one.unrun)
    return [*texts, *map(Text, unrun)]


def _said(one: Found) -> str:
    """Equal for findings that are told once: rules that are followed, and the same choices."""
    if not one.follows or one.identity is None:
        return str(one.claim)
    return f"{one.follows} {one.identity.choices}"


def _report(same: Sequence[Found], width: int) -> list[Text]:
    one = same[0]
    sources = ", ".join(f.claim.source for f in same)
    head = f"{one.kernel} on {one.target}: {one.claim.operation} of {sources} to {one.claim.format}"
    texts = [Text(head, "bold")]
    if one.problems:
        texts += facts([("no answer", brief(problem)) for problem in one.problems], width)
    if one.beyond:
        texts += facts([("not taken", brief(beyond)) for beyond in one.beyond], width)
    if one.identity is not None:
        tried = sum(f.identity.elements for f in same if f.identity is not None)
        texts += _identity(one.identity, one.claim.operation, tried, width)
    return texts


def _identity(identity: Identity, operation: str, tried: int, width: int) -> list[Text]:
    rule = {"cast": "policy", "quantize": "recipe"}[operation]
    unit = "inputs" if operation == "cast" else "elements"
    said = [("tried", f"{tried:,} {unit}")]
    if identity.unsteady:
        inputs = "input" if identity.unsteady == 1 else "inputs"
        said.append(("unsteady", f"{identity.unsteady:,} {inputs} got another code in another place"))
    if identity.follows:
        said += [("follows", ", ".join(identity.follows)), *_choices(identity.choices, identity.elements)]
        return facts(said, width)
    if not identity.nearest:
        return facts([*said, ("follows", f"no named {rule}: none has outputs of these formats and shapes")], width)
    classes = ", ".join(f"{n:,} {kind.replace('_', ' ')}" for kind, n in (identity.differences or {}).items())
    said += [
        ("follows", f"no named {rule}"),
        *_choices(identity.choices, identity.elements),
        ("nearest", ", ".join(identity.nearest)),
        *([("but for", identity.mistaken)] if identity.mistaken else []),
        ("differs in", f"{identity.differing:,} of {identity.elements:,} {unit} ({classes})"),
        *_fault(identity.explanations, identity.differing),
    ]
    if identity.spoilt:
        said += [("exactly", f"{identity.spoilt} with this fault:"), *_fault(identity.spoilt_by, identity.differing)]
    said += [(part.name, _part(part)) for part in identity.parts]
    return [*facts(said, width), *_groups(identity).texts(width), *_more(identity)]


def _part(part: Part) -> str:
    """Of a quantizer: whose scales it makes, and whose codes it makes of its own scales."""
    under = ", under its own scales" if part.name == "codes" else ""
    if part.follows:
        names = ", ".join(part.follows[:FAULTS_NAMED])
        more = f" and {len(part.follows) - FAULTS_NAMED} more" if len(part.follows) > FAULTS_NAMED else ""
        return f"exactly those of {names}{more}{under}: {part.said}"
    return (
        f"of no named recipe{under}; {part.differing:,} of {part.of:,} differ from {part.nearest} ({part.said}), "
        f"the first {part.first}"
    )


def _choices(choices: Choices | None, elements: int) -> list[tuple[str, str]]:
    if choices is None or 2 * choices.left > elements:
        return []
    exactly = "exactly" if choices.left == 0 else f"but for {choices.left:,}"
    return [(exactly, str(choices))]


def _fault(explanations: Sequence[Explanation], differing: int) -> list[tuple[str, str]]:
    if not explanations:
        return [("fault", "no known fault accounts for any of it")]
    best = explanations[0]
    if not best.accounts_for(differing):
        names = ", ".join(best.faults[:FAULTS_NAMED])
        return [("fault", f"no known fault accounts for it; nearest: {names} {in_part(best, differing)}")]
    part = "" if best.complete else f" ({in_part(best, differing)})"
    said = [("fault", f"{name}{part}: {_cause(name)}") for name in best.faults[:FAULTS_NAMED]]
    if best.separated_by:
        said.append(("told apart", best.separated_by))
    return said


def _cause(name: str) -> str:
    return "; ".join(fault_named(single).cause for single in name.split(" + "))


def _groups(identity: Identity) -> Grid:
    """One line for each group of inputs on which the kernel and the nearest rule part."""
    grid = Grid("", ["  where", "inputs", "differ", "got", identity.nearest[0]])
    for group in identity.apart[:GROUPS]:
        count = f"{group.differing:,}" if group.differing == group.of else f"{group.differing:,} of {group.of:,}"
        where = group.where if group.output == "codes" else f"{group.output}: {group.where}"
        cells = (f"  {where}", group.inputs, count, group.got, group.want)
        grid.lines.append(Line([Text(cell) for cell in cells]))
    return grid


def _more(identity: Identity) -> Iterable[Text]:
    more = len(identity.apart) - GROUPS
    return [Text(f"  … and {more} groups more (--json has all)")] if more > 0 else []
