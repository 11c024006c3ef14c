"""``narrowgauge explain``: a format with its values, a policy, a recipe, a fault, or a symptom."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from narrowgauge.command.shared import add_json, console, print_json
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import FORMATS, Format, format_named
from narrowgauge.contracts.verdict import Exit
from narrowgauge.reference.codec import WIDEST_TABLE, decode, largest, nan_code, values
from narrowgauge.reference.faults.registry import FAULTS, Fault
from narrowgauge.reference.policies import POLICIES, NamedPolicy
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.symptoms import Symptom, matching

COLUMNS = 8  #: codes in one line of a value table


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "explain",
        help="explain a format, a policy, a recipe, a fault, or a symptom",
        description='For example: float8_e4m3fnuz, ocp_saturate, vllm.fp8_per_token_dynamic, cast.ties_away, "!!!!".',
    )
    parser.add_argument("what", metavar="NAME", help="a name of any of these, or a symptom in your own words")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    data, shown = explanation(arguments.what)
    if arguments.json:
        print_json(data)
    else:
        screen: Console = console()
        screen.print(shown)
    return Exit.OK


def explanation(what: str) -> tuple[Any, Any]:
    """JSON-able data, and the same for a screen. Raises ``BadInput`` for what nothing is known of."""
    if what in POLICIES:
        return dataclasses.asdict(POLICIES[what]), _policy(POLICIES[what])
    if what in RECIPES:
        data = dataclasses.asdict(RECIPES[what])
        return data, Text("\n".join([f"{what}: a recipe", *(f"  {k}: {v}" for k, v in data.items() if k != "name")]))
    if what in FAULTS:
        return _fault_data(FAULTS[what]), _fault(FAULTS[what])
    try:
        fmt = format_named(what)
    except BadInput:
        pass
    else:
        return _format_data(fmt), _format(fmt)
    found = matching(what)
    if found:
        return [dataclasses.asdict(s) for s in found], Group(*map(_symptom, found))
    raise unknown("format, policy, recipe, fault or symptom", what, [*FORMATS, *POLICIES, *RECIPES, *FAULTS])


# --- formats ---------------------------------------------------------------------------------------------------------


def _format_facts(fmt: Format) -> dict[str, str]:
    nan, layout = "every code with the top exponent and a fraction", f"{fmt.exponent} exponent, {fmt.mantissa} mantissa"
    if fmt.bits <= WIDEST_TABLE and fmt.family != "ieee":
        nan = ", ".join(f"{c:#04x}" for c in np.flatnonzero(np.isnan(values(fmt))))
    smallest = decode(np.array([1, 1 << fmt.mantissa, fmt.sign_bit], fmt.storage), fmt)
    top = largest(fmt) if fmt.bits <= WIDEST_TABLE else nan_code(fmt) - (1 << (fmt.mantissa - 1)) - 1
    return {
        "bits": f"1 sign, {layout}, bias {fmt.bias}",
        "largest finite": f"{decode(np.array([top], fmt.storage), fmt)[0]:.9g} ({top:#x})",
        "smallest normal": f"{smallest[1]:.9g}",
        "smallest subnormal": f"{smallest[0]:.9g}",
        "infinity": "yes" if fmt.family == "ieee" else "no",
        "NaN": nan,
        "negative zero": "no" if fmt.family == "fnuz" else "yes",
        "safetensors": fmt.safetensors,
        "aliases": ", ".join(fmt.aliases),
        "authority": fmt.authority,
    }


def _format_data(fmt: Format) -> dict[str, Any]:
    table = [f"{v:.9g}" for v in values(fmt)] if fmt.bits <= 8 else None
    return {"name": fmt.name, **_format_facts(fmt), "values": table}


def _format(fmt: Format) -> Any:
    facts = Table(title=fmt.name, title_justify="left", box=None, pad_edge=False, show_header=False, title_style="bold")
    for name, value in _format_facts(fmt).items():
        facts.add_row(name, value)
    if fmt.bits > 8:
        return facts
    table = Table(title="\nvalue of each code", title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("code")
    for column in range(COLUMNS):
        table.add_column(f"+{column}", justify="right")
    for row in range(0, fmt.code_count, COLUMNS):
        table.add_row(f"{row:#04x}", *(f"{v:.8g}" for v in values(fmt)[row : row + COLUMNS]))
    return Group(facts, table)


# --- policies, faults, symptoms --------------------------------------------------------------------------------------


def _policy(named: NamedPolicy) -> Any:
    table = Table(
        title=f"{named.name}: a cast policy", title_justify="left", box=None, pad_edge=False, title_style="bold"
    )
    table.add_column("choice")
    for format_name in named.by_format:
        table.add_column(format_name)
    for choice in dataclasses.fields(next(iter(named.by_format.values()))):
        table.add_row(choice.name, *(str(getattr(p, choice.name)) for p in named.by_format.values()))
    lines = f"\nauthority: {named.authority}\nevidence: {named.evidence}"
    return Group(table, Text(lines + (f"\napplies to: {named.applies}" if named.applies else "")))


def _fault_data(fault: Fault) -> dict[str, Any]:
    return {f.name: getattr(fault, f.name) for f in dataclasses.fields(fault) if f.name != "edit"}


def _fault(fault: Fault) -> Text:
    seen = ", ".join(fault.reports) or "no public report that we know of"
    return Text.assemble(
        (f"{fault.name} [{fault.code}]", "bold"),
        f"\n  one sees: {fault.symptom}\n  cause:    {fault.cause}\n  seen in:  {seen}",
    )


def _symptom(symptom: Symptom) -> Any:
    parts: list[Any] = [Text(symptom.title, "bold"), Text(f"  {symptom.why}"), Text("  candidates:")]
    parts += [Text(f"    {name}: {FAULTS[name].cause}") for name in symptom.faults]
    return Group(*parts, Text(f"  next: {symptom.look}\n"))
