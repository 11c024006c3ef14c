"""``narrowgauge diff``: two recipes on the same data, where they part and at which step."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from narrowgauge.command import diff_picture, pictures
from narrowgauge.command.shared import add_json, given_numbers, print_json
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import INPUTS
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.safetensors_file import read
from narrowgauge.plugin.screen import Grid, Line, facts, screen, show
from narrowgauge.reference.calibrated import HOW, calibrated
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.recipe_data import SOURCES, named_data
from narrowgauge.reference.recipe_diff import Compared, OfData, Place, Side, common_format, compare_recipes
from narrowgauge.reference.recipes import recipe_named

#: data sets that part and are shown; --json has all
SHOWN = 24


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="where two recipes part: codes, scales, the first step",
        description="Runs two recipes on the same data and says how many codes and scales part, on which data, at "
        "which inputs, and at which step of the two chains. Recipes of two granularities or formats are compared by "
        "what codes and scales stand for. What a recipe is given beside x is --given or comes from the data itself. "
        "Exit code 0: they agree on all of it; 1: they part.",
    )
    parser.add_argument("one", metavar="RECIPE", help="a recipe of the catalogue (docs/recipes.md)")
    parser.add_argument("other", metavar="RECIPE", help="the other one")
    parser.add_argument("--format", help="the destination (default: the first that both have, else the first of each)")
    parser.add_argument("--source", default=SOURCES[0], help=f"of the named rows: {', '.join(SOURCES)}")
    parser.add_argument("--data", metavar="FILE:NAME", help="a tensor of a safetensors file instead of the named rows")
    parser.add_argument(
        "--given", action="append", default=[], metavar="NAME=NUMBER",
        help=f"what recipes are given beside x: {', '.join(INPUTS)}; several times for more",
    )  # fmt: skip
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it into a .png or .svg file")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    recipes = recipe_named(arguments.one), recipe_named(arguments.other)
    formats = common_format(*recipes, format_named(arguments.format).name if arguments.format else None)
    if arguments.picture:
        pictures.check(arguments.picture, "--picture")
    if arguments.data:
        data = of_file(arguments.data)
    else:
        data = named_data(recipes, formats[0], format_named(arguments.source).name)
    chosen = given_numbers(arguments.given)
    unasked = [name for name in chosen if not any(name in r.inputs for r in recipes)]
    if unasked:
        raise BadInput(f"--given {unasked[0]}: neither recipe is given that beside x")
    sides = []
    for recipe, name in zip(recipes, formats, strict=True):
        numbers = {k: v for k, v in chosen.items() if k in recipe.inputs}
        sides.append(Side(recipe, name, {d: calibrated(x, recipe, name, numbers) for d, x in data.items()}))
    found = compare_recipes(data, *sides)
    if arguments.json:
        print_json(_json(found, sides, chosen))
    else:
        show(screen(), _report(found, sides, chosen, screen().width))
    if arguments.picture:
        diff_picture.draw(found, sides, arguments.picture)
        if not arguments.json:
            print(f"picture written to {arguments.picture}")
    return Exit.OK if not any(_parts(row) for row in found.rows) else Exit.FAILED


def of_file(asked: str) -> dict[str, Coded]:
    """The tensor that FILE:NAME names, as a matrix: all axes but the last together. Raises ``BadInput``."""
    path, _, name = asked.rpartition(":")
    if not path or not path.endswith(".safetensors"):
        raise BadInput(f"--data {asked}: expected FILE.safetensors:NAME")
    tensors = read(Path(path)).tensors
    if name not in tensors:
        raise unknown("tensor", name, tensors, path)
    tensor = tensors[name]
    if tensor.format not in SOURCES:
        raise BadInput(
            f"{path}: tensor {name!r} is {tensor.format or tensor.data.dtype}; expected {', '.join(SOURCES)}"
        )
    if not tensor.data.size:
        raise BadInput(f"{path}: tensor {name!r} is empty: {list(tensor.data.shape)}")
    return {name: Coded(tensor.format, tensor.data.reshape(-1, tensor.data.shape[-1] if tensor.data.ndim else 1))}


def _parts(row: OfData) -> bool:
    return bool(row.codes or row.scales or row.values)


# --- reports ---------------------------------------------------------------------------------------------------------


def _beside(sides: Sequence[Side], chosen: Mapping[str, float]) -> list[tuple[str, str]]:
    """What the recipes are given, and where from."""
    said = []
    for side in sides:
        for name in side.recipe.inputs:
            if name in chosen:
                text = f"{chosen[name]:g}, as was said"
            else:
                numbers = [float(decode_values(each[name])[0, 0]) for each in side.given.values()]
                ends = f"{min(numbers):.6g}" + (f" to {max(numbers):.6g}" if min(numbers) < max(numbers) else "")
                text = f"{ends}, from the data: {HOW[name]}"
            said.append((name, f"of {side.recipe.name}: {text}"))
    return said


def _report(found: Compared, sides: Sequence[Side], chosen: Mapping[str, float], width: int) -> list[Text]:
    one, other = sides
    head = f"{one.recipe.name} to {one.format} and {other.recipe.name} to {other.format}"
    said = [("data", _data_in_words(found)), *_beside(sides, chosen)]
    for field, unit in (("codes", "elements"), ("scales", "blocks"), ("values", "elements")):
        count, of = found.total(field), found.total(unit)
        if count is None:
            why = "two formats" if field == "codes" else "two granularities"
            said.append((field, f"not comparable: {why}"))
        else:
            of_all = sum(1 for row in found.rows if getattr(row, field))
            said.append((field, f"{count:,} of {of:,} part, in {of_all} of {len(found.rows)} data sets"))
    nearer = [sum(row.nearer[i] for row in found.rows) for i in (0, 1)]
    if found.total("values"):
        said.append(("nearer to x", f"the first in {nearer[0]:,}, the second in {nearer[1]:,} of the values that part"))
    apart = sorted((row for row in found.rows if _parts(row)), key=lambda row: -row.values)
    texts = [Text(head, "bold"), *facts(said, width)]
    if not apart:
        return [*texts, Text("they agree on all of it")]
    grid = Grid("", ["  data", "codes", "scales", "values", "SQNR of the first", "of the second"])
    for row in apart[:SHOWN]:
        counts = ["-" if c is None else f"{c:,} of {of:,}" for c, of in _counts(row)]
        cells = [f"  {row.name}", *counts, *(m.words for m in row.measured)]
        grid.lines.append(Line([Text(cell) for cell in cells]))
    texts += [Text(), *grid.texts(width)]
    if len(apart) > SHOWN:
        texts.append(Text(f"  … and {len(apart) - SHOWN} data sets more (--json has all)"))
    for place in found.places:
        texts += [Text(), *_place(place, sides, width)]
    return texts


def _counts(row: OfData) -> list[tuple[int | None, int]]:
    return [(row.codes, row.elements), (row.scales, row.blocks), (row.values, row.elements)]


def _data_in_words(found: Compared) -> str:
    count = len(found.rows)
    return f"{count} data set{'s' if count > 1 else ''}, {sum(row.elements for row in found.rows):,} elements"


def _place(place: Place, sides: Sequence[Side], width: int) -> list[Text]:
    head = Text(f"{place.data} {list(place.index)}: x = {place.input}", "bold")
    pairs = []
    for i, side in enumerate(sides):
        said = f"code {place.codes[i]} times {place.scales[i]}: {place.values[i]:.9g}"
        pairs.append((side.recipe.name, said))
    if place.parting is not None:
        step = place.parting.step
        pairs.append(("parts at", f"{place.parting.name}, {f'step {step}' if step else 'at its start'}"))
        for side, part in zip(sides, (place.parting.one, place.parting.other), strict=True):
            pairs.append((f"  {side.recipe.name}", f"{part.said}: {part.value}"))
    return [head, *facts(pairs, width)]


def _json(found: Compared, sides: Sequence[Side], chosen: Mapping[str, float]) -> dict[str, Any]:
    return {
        "recipes": [side.recipe.name for side in sides],
        "formats": [side.format for side in sides],
        "given": [
            {n: {d: float(decode_values(each[n])[0, 0]) for d, each in s.given.items()} for n in s.recipe.inputs}
            for s in sides
        ],
        "chosen": dict(chosen),
        "rows": [row.to_json() for row in found.rows],
        "places": [_place_json(place) for place in found.places],
    }


def _place_json(place: Place) -> dict[str, Any]:
    return asdict(place)
