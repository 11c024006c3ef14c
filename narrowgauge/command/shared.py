"""What several subcommands share: printing as JSON, what recipes are given beside x, and directories of results."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from narrowgauge.ci.records import JOURNAL, LEDGER, PLAN, RUN
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.recipe import INPUTS

#: what makes a directory one of results
RESULTS = (RUN, PLAN, JOURNAL, LEDGER)


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


def results_in(given: Path) -> Iterator[Path]:
    """The results directories that a path stands for: itself, or those in it. One that is not there is a lost one."""
    if given.is_file():
        raise BadInput(f"{given} is a file; expected a directory of results (unpack an archive first)")
    inside = sorted(p for p in given.iterdir() if p.is_dir()) if given.is_dir() else []
    if inside and not any((given / name).exists() for name in RESULTS):
        yield from inside
    else:
        yield given
