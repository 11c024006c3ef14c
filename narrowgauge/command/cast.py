"""``narrowgauge cast``: what one value becomes in a format, by every named policy, and on whose word."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, as_codes, format_named
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import facts, screen, show
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.listing import show as shown
from narrowgauge.reference.policies import fitting, policy_named, resolve


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "cast",
        help="what one value becomes in a format, by every named policy, and on whose word",
        description="For example: narrowgauge cast 500 float8_e4m3fn; narrowgauge cast -- -0.0 float8_e4m3fnuz; "
        "narrowgauge cast 0x7e float32 --source float8_e4m3fnuz (hexadecimal integers are codes of the source).",
    )
    parser.add_argument("value", metavar="VALUE", help="500, 1e-3, 0x1.8p-10, nan, -inf; or a code of the source: 0x7e")
    parser.add_argument("format", metavar="FORMAT", help="destination format")
    parser.add_argument("--source", default="float32", metavar="NAME", help="source format (default: float32)")
    parser.add_argument("--policy", metavar="NAME", help="by this policy alone")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    fmt, source = format_named(arguments.format), format_named(arguments.source)
    x = _value(arguments.value, source)
    names = [arguments.policy] if arguments.policy else fitting(fmt.name)
    if not names:
        raise BadInput(f"no named policy has destination {fmt.name}")
    answers: dict[int, list[str]] = {}
    for name in names:
        code = int(cast(x, fmt.name, resolve(name, fmt.name)).data)
        answers.setdefault(code, []).append(name)
    if arguments.json:
        print_json(_data(x, fmt, answers))
        return Exit.OK
    console = screen()
    lines: list[Text | str] = [Text(f"{_told(x)} to {fmt.name}", "bold")]
    for code, followers in answers.items():
        lines.append(f"{shown(_coded(code, fmt))}")
        lines += facts([(f"{name}:", policy_named(name).authority) for name in followers], console.width)
    show(console, lines)
    return Exit.OK


def _data(x: Coded, fmt: Format, answers: dict[int, list[str]]) -> dict[str, Any]:
    return {
        "source": x.format,
        "pattern": int(x.data),
        "format": fmt.name,
        "answers": [
            {"code": code, "text": shown(_coded(code, fmt)), "policies": {n: policy_named(n).authority for n in names}}
            for code, names in answers.items()
        ],
    }


def _coded(code: int, fmt: Format) -> Coded:
    return Coded(fmt.name, np.array(code, fmt.storage))


def _told(x: Coded) -> str:
    return f"{shown(x)} of {x.format}"


def _value(text: str, source: Format) -> Coded:
    """A code of the source, or a real number, which the source must hold: a second rounding would not be seen."""
    if text.lower().startswith("0x") and "." not in text and "p" not in text.lower():
        try:
            code = np.array(int(text, 16), np.uint64)
        except (ValueError, OverflowError):
            raise BadInput(f"value {text!r}; expected a number or a code of {source.name} in hexadecimal") from None
        return Coded(source.name, as_codes(source.name, code))
    try:
        real = float.fromhex(text) if "0x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise BadInput(f"value {text!r}; expected a number (500, 1e-3, 0x1.8p-10, nan, -inf) or a code, 0x7e") from None
    return _nearest(real, source)


def _nearest(real: float, source: Format) -> Coded:
    """The source's nearest value; it is shown, so nobody takes it for the number itself."""
    exact = Coded("float64", np.array(real, np.float64).view(np.uint64))
    if source.name == "float64":
        return exact
    has_nan = source.family not in ("finite", "integer")
    if not has_nan and not math.isfinite(real):
        raise BadInput(f"{source.name} has no {real:g}; give a finite value, or another --source")
    beyond, nan = ("special", "nan") if has_nan else ("max", "zero")
    return cast(exact, source.name, CastPolicy(overflow=beyond, infinity=beyond, nan=nan))  # type: ignore[arg-type]
