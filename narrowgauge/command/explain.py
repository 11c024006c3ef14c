"""``narrowgauge explain``: a format with its values, a policy, a recipe, a fault, a target, or a symptom."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from narrowgauge.command.cache_words import described
from narrowgauge.command.caches import CACHES, cache, is_cache
from narrowgauge.command.calls import call, called_as, is_call
from narrowgauge.command.catalogues import NAMES, catalogued, is_catalogued
from narrowgauge.command.legal_words import LEGAL, is_legal, legal
from narrowgauge.command.plot import plot
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import FORMATS, NO_FORMAT, Format, format_named
from narrowgauge.contracts.operations import OPERATIONS
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.discovery import emulated
from narrowgauge.devices.targets import TARGETS, Target
from narrowgauge.plugin.screen import Grid, Line, facts, folded, screen, show
from narrowgauge.reference.codec import values
from narrowgauge.reference.deviations import Deviation
from narrowgauge.reference.faults.applicability import Applicability, survey
from narrowgauge.reference.faults.fault import AnyFault
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.format_words import format_facts
from narrowgauge.reference.kv.caches import CACHES as KEPT
from narrowgauge.reference.policies import POLICIES, NamedPolicy
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.recipes.dispatch import CALLS
from narrowgauge.reference.symptom import Symptom
from narrowgauge.reference.symptoms import matching
from narrowgauge.reference.words import facts_of

#: how many codes may stand in one line of a value table; the most that fit are taken
COLUMNS = (8, 4, 2, 1)
#: every spelling of a format, in lower case
ALIASES = {alias.lower(): f.name for f in FORMATS.values() for alias in (f.name, f.safetensors, *f.aliases) if alias}
#: what a fault does where it can exist, and what is to be said of it
WHERE = {
    "shows": "",
    "equivalent": " (no input at all shows it)",
    "not shown": " (no input of the suite shows it)",
}


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="explain a format, a policy, a recipe, a call or a cache of an engine, a conversion, a product, "
        "an accumulator, a fault, a target, a symptom, or where a format may stand",
        description="For example: float8_e4m3fnuz, ocp_saturate, vllm.fp8_per_token_dynamic, "
        '"sglang.per_token_quant_fp8 rows_per_multiprocessor=3", "kv.vllm flag=fp8 target=gfx942", '
        "vllm.flash_fp8 (a cache), awq_to_gptq (a conversion), cast.ties_away, "
        'TIES (the word in brackets of a failure), gfx942, MI300, "!!!!", legal (where a format may stand).',
    )
    parser.add_argument("what", metavar="NAME", help="a name of any of these, or a symptom in your own words")
    parser.add_argument(
        "--plot", nargs="?", const="", metavar="FILE",
        help="draw a format into FILE, .png or .svg (default: NAME.png here): number line, spacing, what the policies "
        "make of overflow, and where OCP and FNUZ part; needs matplotlib (the extra 'plot')",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.plot is not None:
        return _plot(arguments)
    console = screen()
    data, shown = explanation(arguments.what, console.width)
    if arguments.json:
        print_json(data)
    else:
        show(console, shown)
    return Exit.OK


def _plot(arguments: argparse.Namespace) -> int:
    """Draw a format and say where the picture is."""
    if arguments.what.lower() not in ALIASES:
        raise BadInput(f"--plot draws a format, and {arguments.what!r} is none; there are {', '.join(FORMATS)}")
    fmt = format_named(arguments.what)
    path = Path(arguments.plot or f"{fmt.name}.png")
    plot(fmt, path)
    if arguments.json:
        print_json({"name": fmt.name, "picture": str(path)})
    else:
        print(f"{fmt.name}: picture written to {path}")
    return Exit.OK


def explanation(what: str, width: int) -> tuple[Any, list[Text]]:
    """JSON-able data, and the same in lines for a screen. Raises ``BadInput`` for what nothing is known of."""
    if what.count("/") == 3:  # of a claim, its rule
        return explanation(what.split("/")[1].partition("+")[0], width)
    if what in POLICIES:
        return dataclasses.asdict(POLICIES[what]), _policy(POLICIES[what], width)
    if what in RECIPES:
        # a recipe, and the cache or the product that it writes for, may share a name
        kept, lines = described(what, width) if what in KEPT else (None, [])
        multiplied, more = catalogued(what, width) if is_catalogued(what) else (None, [])
        both = {name: data for name, data in (("cache", kept), ("product", multiplied)) if data}
        return dataclasses.asdict(RECIPES[what]) | both, [*_recipe(RECIPES[what], width), *lines, *more]
    if what in KEPT:
        return described(what, width)
    if is_call(what):
        return call(what, width)
    if is_cache(what):
        return cache(what, width)
    if is_legal(what):
        return legal(what, width)
    if what in FAULTS:
        found = survey(what)
        where = {"where": [dataclasses.asdict(one) for one in found]}
        return _fault_data(FAULTS[what]) | where, _fault(FAULTS[what], width, found)
    if what.lower() in ALIASES or what.lower() in NO_FORMAT:
        fmt = format_named(what)
        return _format_data(fmt), _format(fmt, width)
    if is_catalogued(what):  # after formats: accumulators are named after them
        return catalogued(what, width)
    targets = _targets(what)
    if targets:
        data = [dataclasses.asdict(target) for target in targets]
        return data, [text for target in targets for text in _target(target, width)]
    word = what.strip().strip("[]")
    symptoms = matching(what)
    # "NAN" is the word of a failure, "nan" what somebody sees
    of_code = [f for f in FAULTS.values() if f.code == (word if symptoms else word.upper())]
    if of_code:
        return [_fault_data(f) for f in of_code], [text for f in of_code for text in _fault(f, width)]
    if symptoms:
        return [dataclasses.asdict(s) for s in symptoms], [text for s in symptoms for text in _symptom(s, width)]
    known = [*FORMATS, *POLICIES, *RECIPES, *CALLS, *CACHES, *KEPT, *NAMES, *FAULTS, *TARGETS, LEGAL]
    kinds = "format, policy, recipe, conversion, product, operation, unit, accumulator, fault, target or symptom"
    raise unknown(kinds, what, known, aliases=ALIASES)


# --- targets ---------------------------------------------------------------------------------------------------------


def _targets(what: str) -> list[Target]:
    """The target of a name, however a device or a ledger spells it, or those of a product."""
    name = what.strip().lower().removeprefix("emulated").lstrip(":-")
    if name in TARGETS:
        return [TARGETS[name]]
    if len(name) < 3 or not any(map(str.isdigit, name)):
        return []
    return [t for t in TARGETS.values() if any(word.startswith(name) for word in _product_words(t))]


def _product_words(target: Target) -> list[str]:
    """ "RTX 4090" is found as "rtx 4090" and as "4090"."""
    products = target.product.lower().split(", ")
    return [*products, *(word for product in products for word in product.split())]


def _target(target: Target, width: int) -> list[Text]:
    try:
        device = f"{emulated(target.name).id}, or a GPU of this kind"
    except BadInput:
        device = "a GPU of this kind"
    said = (
        ("product:", target.product),
        ("backend:", f"{target.backend}, {target.warp} lanes to a warp"),
        ("fp8 in hardware:", ", ".join(target.hardware) or "none"),
        ("fp8 in Triton:", ", ".join(target.triton) or "none"),
        ("of these in software:", ", ".join(target.software) or "none"),
        ("device:", device),
    )
    return [Text(f"{target.name}: a target", "bold"), *facts(said, width)]


# --- recipes ---------------------------------------------------------------------------------------------------------


def _recipe(recipe: Recipe, width: int) -> list[Text]:
    said = [(f"{name}:", words) for name, words in facts_of(recipe)] + called_as(recipe.name)
    return [Text(f"{recipe.name}: a recipe", "bold"), *facts(said, width)]


# --- formats ---------------------------------------------------------------------------------------------------------


def _format_data(fmt: Format) -> dict[str, Any]:
    table = [f"{v:.17g}" for v in values(fmt)] if fmt.bits <= 8 else None
    return {"name": fmt.name, **format_facts(fmt), "values": table}


def _format(fmt: Format, width: int) -> list[Text]:
    texts = [Text(fmt.name, "bold"), *facts(format_facts(fmt).items(), width, indent=0)]
    if fmt.bits > 8:
        return texts
    shown = [f"{v:.8g}" for v in values(fmt)]
    for columns in COLUMNS:
        cells = max(map(len, shown))
        grid = Grid("", ["code", *(f"+{c}".rjust(cells) for c in range(columns))])
        for row in range(0, fmt.code_count, columns):
            grid.lines.append(Line([Text(f"{row:#04x}"), *(Text(v.rjust(cells)) for v in shown[row : row + columns])]))
        if grid.width <= width:
            break
    rounded = any(float(text) != v for text, v in zip(shown, values(fmt), strict=True) if not np.isnan(v))
    title = "value of each code" + (", to 8 digits (--json gives all of them)" if rounded else "")
    return [*texts, Text(), Text(title), *grid.texts(width)]


# --- policies, faults, symptoms --------------------------------------------------------------------------------------


def _policy(named: NamedPolicy, width: int) -> list[Text]:
    said = [("authority:", named.authority), ("evidence:", named.evidence), ("applies to:", named.applies)]
    said += [("known from:", ", ".join(named.sources))]
    said += [("known deviation:", f"{d.library} {d.versions}, {_deviation(d)}") for d in named.exceptions]
    known = [(name, value) for name, value in said if value]
    texts, formats = [Text(f"{named.name}: a cast policy", "bold")], list(named.by_format)
    while formats:
        # As many formats as fit side by side, then a table of the next ones.
        grid, count = _choices(named, formats), len(formats)
        while count > 1 and grid.width > width:
            count -= 1
            grid = _choices(named, formats[:count])
        texts += [*grid.texts(width), Text()]
        formats = formats[count:]
    return [*texts, *facts(known, width, indent=0)]


def _deviation(d: Deviation) -> str:
    """From which formats, which values and why."""
    sources = f" from {', '.join(d.sources)}" if d.sources else ""
    return f"{d.format}{sources}, {d.where}: {d.reason} ({d.link})"


def _choices(named: NamedPolicy, formats: list[str]) -> Grid:
    policies = [named.by_format[name] for name in formats]
    grid = Grid("", ["choice", *formats])
    for choice in dataclasses.fields(CastPolicy):
        cells = (choice.name, *(str(getattr(p, choice.name)) for p in policies))
        grid.lines.append(Line([Text(cell) for cell in cells]))
    return grid


def _fault_data(fault: AnyFault) -> dict[str, Any]:
    return {f.name: getattr(fault, f.name) for f in dataclasses.fields(fault) if f.name not in ("edit", "across_rows")}


def _fault(fault: AnyFault, width: int, found: Sequence[Applicability] = ()) -> list[Text]:
    seen = ", ".join(fault.reports) or "no public report that we know of"
    said = [("one sees:", fault.symptom), ("cause:", fault.cause), ("seen in:", seen)]
    said += [(f"{state}:", pairs) for state in WHERE for pairs in _from_to(found, state)]
    return [Text(f"{fault.name} [{fault.code}]", "bold"), *facts(said, width)]


def _from_to(found: Sequence[Applicability], state: str) -> list[str]:
    """The pairs of formats of one state; sources that reach the same destinations stand together."""
    reached: dict[str, list[str]] = {}
    for one in found:
        if one.state == state:
            operation, rule, source, destination = one.claim.split("/")
            how = f"{operation} of {rule}" if OPERATIONS[operation] == "kv_cache" else rule
            reached.setdefault(source, []).append(destination if operation == "cast" else f"{destination} ({how})")
    together: dict[str, list[str]] = {}
    for source, destinations in reached.items():
        together.setdefault(", ".join(destinations), []).append(source)
    return [f"{', '.join(sources)} to {to}{WHERE[state]}" for to, sources in together.items()]


def _symptom(symptom: Symptom, width: int) -> list[Text]:
    causes = [(f"{name}:", FAULTS[name].cause) for name in symptom.faults]
    texts = [Text(symptom.title, "bold"), *(Text("  ") + line for line in folded(symptom.why, width - 2))]
    texts += [Text("  candidates:"), *facts(causes, width, indent=4)]
    return [*texts, *facts([("next:", symptom.look)], width), Text()]
