"""``narrowgauge sqnr``: what recipes cost each linear layer of a module, worst layers first."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from narrowgauge.command import pictures, sqnr_picture
from narrowgauge.command.shared import add_json, given_numbers, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.capturing import capture
from narrowgauge.plugin.screen import Grid, Line, facts, screen, show
from narrowgauge.reference.calibrated import HOW
from narrowgauge.reference.layers import OfLayer, Pair, To
from narrowgauge.reference.measures import Measured
from narrowgauge.reference.recipes import recipe_named
from narrowgauge.suites.layers import Capture, measure_layers, read_capture, worst_first

#: rows of a layer's input that are kept, and layers that are shown
ROWS, TOP = 512, 20


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "sqnr",
        help="what recipes cost each linear layer of a module: worst layers first",
        description="Runs a torch module on batches, in a process of its own, and quantizes each linear layer's real "
        "input and weight by the reference: signal to quantization noise of input, weight and output, in decibels, and "
        "what of the error is clipping or flushing to zero. FILE.py:FUNCTION returns the module, or module and "
        "batches; FILE.safetensors holds tensors that were captured before (docs/measures.md), and needs no torch.",
    )
    parser.add_argument("subject", metavar="FILE.py:FUNCTION|FILE.safetensors", help="a module, or captured tensors")
    parser.add_argument("--batches", type=Path, metavar="FILE", help="safetensors: each tensor is a batch")
    parser.add_argument("--recipe", action="append", default=[], metavar="R", help="for input and weight; repeatable")
    parser.add_argument(
        "--input-recipe", action="append", default=[], metavar="R",
        help="for inputs alone; with as many --weight-recipe, pairs of the two in their order",
    )  # fmt: skip
    parser.add_argument("--weight-recipe", action="append", default=[], metavar="R", help="for weights alone")
    parser.add_argument("--format", help="the destination, of recipes that have it (default: each one's first)")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=NUMBER",
        help="what recipes are given beside x (default: from each tensor itself)",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, default=ROWS, metavar="N", help=f"of each input (default: {ROWS})")
    parser.add_argument("--capture", type=Path, metavar="FILE", help="keep what was captured in a safetensors file")
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=f"layers to show (default: {TOP})")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it into a .png or .svg file")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    pairs = pairs_of(arguments)
    for name in ("rows", "top"):
        if getattr(arguments, name) < 1:
            raise BadInput(f"--{name} {getattr(arguments, name)}; expected 1 or more")
    if arguments.picture:
        pictures.check(arguments.picture, "--picture")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        captured = _captured(arguments, progress)
        task = progress.add_task("quantizing", total=len(captured.layers))
        found = []
        for each in measure_layers(captured, pairs):
            found.append(each)
            progress.update(task, advance=1, description=f"quantizing {each[0].layer}")
    ranked = worst_first(found)
    if arguments.json:
        print_json({"capture": captured.about, "layers": [[one.to_json() for one in each] for each in ranked]})
    else:
        show(screen(), _report(captured, pairs, ranked, arguments.top, screen().width))
    if arguments.picture:
        sqnr_picture.draw(ranked, arguments.picture)
        if not arguments.json:
            print(f"picture written to {arguments.picture}")
    return Exit.OK


def pairs_of(arguments: argparse.Namespace) -> list[Pair]:
    """What input and weight go through. Raises ``BadInput`` where nothing is chosen or the two do not match."""
    inputs, weights = arguments.input_recipe, arguments.weight_recipe
    if inputs and weights and len(inputs) != len(weights):
        raise BadInput(
            f"{len(inputs)} --input-recipe and {len(weights)} --weight-recipe; expected as many, or one kind"
        )
    names = [(name, name) for name in arguments.recipe]
    names += [
        (inputs[i] if inputs else None, weights[i] if weights else None) for i in range(max(len(inputs), len(weights)))
    ]
    if not names:
        raise BadInput("no recipe; give --recipe R ('narrowgauge explain' lists them), several times to compare")
    numbers = given_numbers(arguments.given)
    wanted = format_named(arguments.format).name if arguments.format else ""
    pairs = [Pair(*(None if name is None else _to(name, wanted, numbers) for name in pair)) for pair in names]
    sides = [side for pair in pairs for side in (pair.input, pair.weight) if side is not None]
    for name in numbers:
        if not any(name in side.recipe.inputs for side in sides):
            raise BadInput(f"--given {name}: no recipe here is given that beside x")
    if wanted and not any(side.format == wanted for side in sides):
        raise BadInput(f"no recipe here has destination {wanted!r}")
    return pairs


def _to(name: str, wanted: str, numbers: dict[str, float]) -> To:
    recipe = recipe_named(name)
    formats = [d.format for d in recipe.destinations]
    chosen = {k: v for k, v in numbers.items() if k in recipe.inputs}
    return To(recipe, wanted if wanted in formats else formats[0], chosen)


def _captured(arguments: argparse.Namespace, progress: Progress) -> Capture:
    """The layers: from a file, or from a module that is run now."""
    file, _, function = arguments.subject.rpartition(":")
    if not file.endswith(".py"):
        for option in ("batches", "capture"):
            if getattr(arguments, option):
                raise BadInput(f"--{option} is for a module that is run: FILE.py:FUNCTION; got {arguments.subject}")
        return read_capture(Path(arguments.subject))
    task = progress.add_task("running the module", total=None)
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.capture or Path(folder) / "captured.safetensors"
        capture(
            Path(file), function, out, arguments.rows, arguments.batches,
            lambda number, of: progress.update(task, completed=number, total=of),
        )  # fmt: skip
        progress.remove_task(task)
        return read_capture(out)


# --- reports ---------------------------------------------------------------------------------------------------------


def _report(
    captured: Capture, pairs: Sequence[Pair], ranked: Sequence[tuple[OfLayer, ...]], top: int, width: int
) -> list[Text]:
    said = [("layers", f"{len(ranked):,}, the worst first, by the output under {pairs[0]}")]
    seen, batches = captured.about.get("rows"), captured.about.get("batches")
    if seen:
        kept = sum(x.shape[0] for x, _ in captured.layers.values())
        said.append(("inputs", f"{kept:,} of {sum(seen.values()):,} rows, of {batches:,} batches"))
    if captured.about.get("unused"):
        said.append(("not called", ", ".join(captured.about["unused"])))
    asked = {name: side for p in pairs for side in (p.input, p.weight) if side for name in side.recipe.inputs}
    for name, side in asked.items():
        from_where = f"{side.chosen[name]:g}, as was said" if name in side.chosen else f"from each tensor: {HOW[name]}"
        said.append((name, from_where))
    what = "input's" if any(p.input for p in pairs) else "weight's"
    said.append(
        ("clipped, flushed", f"how many of the {what} elements, and in brackets how much of their squared error")
    )
    grid = Grid("", ["layer", "recipe", "output", "input", "weight", "clipped", "flushed"])
    for each in ranked[:top]:
        grid.lines += [_line(one, first=number == 0) for number, one in enumerate(each)]
    more = len(ranked) - top
    last = [Text(f"… and {more} layers more (--top, or --json for all)")] if more > 0 else []
    return [*facts(said, width, indent=0), Text(), *grid.texts(width), *last]


def _line(one: OfLayer, first: bool) -> Line:
    name = one.layer if first else ""
    if one.refused:
        return Line([Text(cell) for cell in (name, one.recipe, "-", "-", "-", "-", "-")], one.refused)
    parts = [part.words if part else "as it is" for part in (one.output, one.input, one.weight)]
    shares = [_share(one.input or one.weight, kind) for kind in ("clipped", "flushed")]
    return Line([Text(cell) for cell in (name, one.recipe, *parts, *shares)])


def _share(measured: Measured | None, kind: str) -> str:
    """Of elements, and of the squared error."""
    if measured is None or not measured.counts[kind]:
        return "-"
    return f"{_percent(measured.counts[kind] / sum(measured.counts.values()))} ({_percent(measured.share(kind))})"


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %" if part >= 1e-4 else "< 0.01 %"
