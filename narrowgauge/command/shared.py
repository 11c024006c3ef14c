"""What several subcommands share: printing as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console

#: a table that is printed into a file or a pipe is this wide
PIPED_WIDTH = 160


def console() -> Console:
    """A console that does not fold tables when nobody's screen limits them."""
    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=PIPED_WIDTH)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, sort_keys=True))
