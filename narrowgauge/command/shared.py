"""What several subcommands share: printing as JSON, and what recipes are given beside x."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.recipe import INPUTS


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def print_json(data: Any) -> None:
    print(json.dumps(_plain(data), indent=1, sort_keys=True))


def _plain(value: Any) -> Any:
    """The same with words for NaN and infinities, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def given_numbers(words: Sequence[str]) -> dict[str, float]:
    """``--given NAME=NUMBER``, each: a number for an input of recipes. Raises ``BadInput``."""
    found = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in INPUTS:
            raise unknown("input", name, INPUTS, f"--given {word}")
        try:
            found[name] = float(number)
        except ValueError:
            raise BadInput(f"--given {word}: expected {name}=NUMBER") from None
    return found
