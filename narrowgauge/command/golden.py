"""``narrowgauge golden``: make, check and hand out the golden vectors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.manifest import VECTORS, drift, export, load_manifest, problems, regenerate


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "golden",
        help="check, regenerate or export the golden vectors",
        description="verify: files against the manifest, and against what this version would generate. "
        "regenerate: write them anew; the same tables give the same bytes. "
        "export: expanded tables that need nothing but a safetensors reader.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, run, text in (
        ("verify", verify, "check files and bytes"),
        ("regenerate", make, "write files and manifest"),
        ("export", hand_out, "write expanded tables"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--golden", type=Path, default=VECTORS, metavar="DIR", help="the folder of vectors")
        if name == "export":
            action.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where to write")
        add_json(action)
        action.set_defaults(run=run)


def verify(arguments: argparse.Namespace, rest: list[str]) -> int:
    found = problems(arguments.golden)
    drifted = [] if found else [f"{name} would be generated with other bytes" for name in drift(arguments.golden)]
    count = len(load_manifest(arguments.golden)["files"])
    if arguments.json:
        print_json({"folder": str(arguments.golden), "files": count, "problems": found + drifted})
    else:
        for problem in found:
            print(f"[GOLDEN] {problem}")
        for problem in drifted:
            print(f"[GOLDEN-DRIFT] {problem}")
        if not found and not drifted:
            print(f"{count} files of golden vectors are intact, and are what this version generates")
    return Exit.FAILED if found or drifted else Exit.OK


def make(arguments: argparse.Namespace, rest: list[str]) -> int:
    changed = regenerate(arguments.golden)
    if arguments.json:
        print_json({"folder": str(arguments.golden), "changed": changed})
    else:
        print("\n".join(f"changed: {name}" for name in changed) or "nothing changed")
    return Exit.OK


def hand_out(arguments: argparse.Namespace, rest: list[str]) -> int:
    written = export(arguments.golden, arguments.output)
    if arguments.json:
        print_json({"files": [str(path) for path in written]})
    else:
        print("\n".join(str(path) for path in written))
    return Exit.OK
