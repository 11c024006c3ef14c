"""What several subcommands share: printing as a table or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, sort_keys=True))
