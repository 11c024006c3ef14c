"""``narrowgauge cast``: what one value becomes in a format, by every named policy or by one's own choices."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.screen import facts, folded, screen, show
from narrowgauge.reference.actual import Actual, actual, check_known_from, is_known_from
from narrowgauge.reference.choosing import chosen, random_bits
from narrowgauge.reference.codec import RandomBits
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.policies import fitting, policy_named
from narrowgauge.reference.showing import show as shown
from narrowgauge.reference.typed import Typed, typed

#: under which the answer of one's own choices stands among those of the named policies
CHOSEN = "--choose"


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "cast",
        help="what one value becomes in a format, by every named policy or by your own choices",
        description="For example: narrowgauge cast 500 float8_e4m3fn; narrowgauge cast -0.0 float8_e4m3fnuz; "
        "narrowgauge cast 0x7e float32 --source float8_e4m3fnuz (hexadecimal integers are codes of the source); "
        "narrowgauge cast 1.03 e4m3fn --choose rounding=stochastic --random 200/8.",
    )
    parser.add_argument("value", metavar="VALUE", help="500, 1e-3, 0x1.8p-10, nan, -inf; or a code of the source: 0x7e")
    parser.add_argument("format", metavar="FORMAT", help="destination format")
    parser.add_argument("--source", default="float32", metavar="NAME", help="source format (default: float32)")
    parser.add_argument("--policy", metavar="NAME", help="by this policy alone, and on whose word")
    parser.add_argument(
        "--choose",
        metavar="CHOICE=VALUE,…",
        help="by your own choices, on top of --policy or of nearest even, saturating: rounding=down,limit=240",
    )
    parser.add_argument("--random", metavar="BITS/WIDTH", help="the random bits of rounding=stochastic: 200/8, 0x80/8")
    parser.add_argument("-v", "--verbose", action="store_true", help="on whose word each policy stands")
    add_json(parser)
    parser.set_defaults(run=run, takes_numbers=True)


@dataclass
class Answer:
    """One code, and the names of who gives it, each with its authority."""

    code: int
    authorities: dict[str, str] = field(default_factory=dict)
    deviations: dict[str, str] = field(default_factory=dict)  #: of those who part from their policy here, why


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    fmt, source = format_named(arguments.format), format_named(arguments.source)
    x = typed(arguments.value.strip(), source)
    left_out: list[str] = []
    if arguments.choose is not None or arguments.random is not None:
        answers = [_by_choice(arguments, x.value, fmt)]
    else:
        names, left_out = _names(arguments.policy, source, fmt)
        answers = _by_policies(names, x.value, fmt)
    if arguments.json:
        print_json(_data(x, fmt, answers, left_out))
        return Exit.OK
    width, told = screen().width, arguments.verbose or arguments.policy is not None or arguments.choose is not None
    lines: list[Text | str] = [Text(f"{shown(x.value)} of {source.name} to {fmt.name}", "bold")]
    lines += folded(f"({x.note})" if x.note else "", width)
    for answer in answers:
        lines += _lines(answer, fmt, width, told)
    if left_out:
        lines += folded(f"not known from {source.name}: {', '.join(left_out)}", width)
    show(screen(), lines)
    return Exit.OK


def _names(policy: str | None, source: Format, fmt: Format) -> tuple[list[str], list[str]]:
    """The policies that are asked, and those of which nothing is known from this source."""
    if policy is not None:
        check_known_from(policy, source.name)
        return [policy], []
    all_names = fitting(fmt.name)
    if not all_names:
        raise BadInput(f"no named policy has destination {fmt.name}")
    names = [name for name in all_names if is_known_from(name, source.name)]
    left_out = [name for name in all_names if name not in names]
    if not names:
        raise BadInput(f"of no named policy to {fmt.name} it is known what it does from {source.name}: {left_out}")
    return names, left_out


def _by_policies(names: list[str], x: Coded, fmt: Format) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for name in names:
        given: Actual = actual(name, x, fmt.name)
        answer = answers.setdefault(given.code, Answer(given.code))
        answer.authorities[name] = policy_named(name).authority
        if given.deviation is not None:
            answer.deviations[name] = given.deviation.reason
    return list(answers.values())


def _by_choice(arguments: argparse.Namespace, x: Coded, fmt: Format) -> Answer:
    policy = chosen(arguments.choose or "", fmt, arguments.policy)
    random: RandomBits | None = None
    if (policy.rounding == "stochastic") != (arguments.random is not None):
        raise BadInput(
            f"rounding={policy.rounding}, --random {arguments.random or 'not given'}; --choose rounding=stochastic and "
            "--random BITS/WIDTH (200/8) go together"
        )
    if arguments.random is not None:
        random = random_bits(arguments.random)
    choices = ", ".join(f"{name} {value}" for name, value in vars(policy).items())
    return Answer(int(cast(x, fmt.name, policy, random).data), {CHOSEN: choices})


def _lines(answer: Answer, fmt: Format, width: int, told: bool) -> list[Text]:
    """An answer with the names of who gives it, or, where that is to be told, with the word of each."""
    known = {name: f" (known deviation: {reason})" for name, reason in answer.deviations.items()}
    if told:
        pairs = [(f"{name}{known.get(name, '')}:", word) for name, word in answer.authorities.items()]
        if known:  # long names leave no column for what is said of them
            return [Text(_text(answer, fmt)), *(t for n, w in pairs for t in _below(f"{n} {w}", width))]
        return [Text(_text(answer, fmt)), *facts(pairs, width)]
    groups: dict[str, list[str]] = {"": []}
    for name in answer.authorities:
        groups.setdefault(known.get(name, ""), []).append(name)
    names = "; ".join(f"{', '.join(group)}{reason}" for reason, group in groups.items() if group)
    return facts([(_text(answer, fmt), names)], width, indent=0)


def _below(text: str, width: int) -> list[Text]:
    return [Text("  ") + line for line in folded(text, width - 2)]


def _text(answer: Answer, fmt: Format) -> str:
    """The value and its code; of a number that is none, this alone."""
    return shown(Coded(fmt.name, np.array(answer.code, fmt.storage))) if answer.code >= 0 else "no code"


def _data(x: Typed, fmt: Format, answers: list[Answer], left_out: list[str]) -> dict[str, Any]:
    return {
        "source": x.value.format,
        "pattern": int(x.value.data),
        "rounded_from": x.rounded_from,
        "format": fmt.name,
        "answers": [
            {
                "code": a.code if a.code >= 0 else None,
                "text": _text(a, fmt),
                "policies": a.authorities,
                "deviations": a.deviations,
            }
            for a in answers
        ],
        "left_out": left_out,
    }
