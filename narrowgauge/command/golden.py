"""``narrowgauge golden``: make, check and hand out the golden vectors."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from narrowgauge.command import golden_diff
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.golden.export import KINDS, export
from narrowgauge.golden.manifest import VECTORS, drift, load_manifest, problems, regenerate


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "golden",
        help="check, compare, regenerate or export the golden vectors",
        description="verify: files against the manifest, and against what this version would generate. "
        "regenerate: write them anew; the same tables give the same bytes. "
        "diff: what changed between two sets of them, and why. "
        "export: expanded tables, edge cases and C headers that need no Python to read, as a folder or an archive.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, run, text in (
        ("verify", verify, "check files and bytes"),
        ("regenerate", make, "write files and manifest"),
        ("export", hand_out, "write tables for other languages"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("--golden", type=Path, default=VECTORS, metavar="DIR", help="the folder of vectors")
        if name == "export":
            _add_export(action)
        add_json(action)
        action.set_defaults(run=run)
    golden_diff.add(actions)


def _add_export(action: argparse.ArgumentParser) -> None:
    place = "where to write: .tar.gz, .tgz, .zip, or a folder"
    action.add_argument("-o", "--output", type=Path, required=True, metavar="DIR|FILE", help=place)
    action.add_argument(
        "--format", action="append", default=[], metavar="FORMAT", help="this destination format only (may be repeated)"
    )
    action.add_argument(
        "--kind", default="", metavar="KIND[,KIND]", help=f"these kinds of files only: {','.join(KINDS)}"
    )


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
    kinds = [kind for kind in arguments.kind.split(",") if kind]
    files = export(arguments.golden, arguments.output, arguments.format, kinds)
    if arguments.json:
        print_json({"output": str(arguments.output), "files": files})
    else:
        print(f"{arguments.output}: {len(files)} files; README.txt in it says what they are and how to use them")
    return Exit.OK
