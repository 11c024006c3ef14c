"""``narrowgauge devices``: where kernels can run on this machine."""

from __future__ import annotations

import argparse
from typing import Any

from rich.text import Text

from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.discovery import all_devices, default_devices, gpus, has_triton
from narrowgauge.devices.targets import TARGETS
from narrowgauge.plugin.screen import Grid, Line, screen, show

#: the width from which notes stand beside their devices
NOTES_BESIDE = 110


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "devices",
        help="where kernels can run on this machine",
        description="Every device that --device can name: the host, Triton's interpreter, GPUs that torch sees, and "
        "targets that Triton compiles for without hardware. A star marks those of a run that names none.",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    chosen = {d.id for d in default_devices()}
    rows: list[dict[str, Any]] = [
        {
            "id": device.id,
            "target": device.target,
            "how": device.how,
            "default": device.id in chosen,
            "hardware_formats": list(_target(device).hardware) if _target(device) else [],
            "triton_formats": list(_target(device).triton) if _target(device) else [],
            "note": device.note,
        }
        for device in all_devices()
    ]
    if arguments.json:
        print_json(rows)
        return Exit.OK
    headings = ("  device", "target", "how", "hardware fp8", "Triton fp8")
    grid = Grid("", headings, "note", beside_from=NOTES_BESIDE)
    for row in rows:
        star = "* " if row["default"] else "  "
        hardware, triton = (_short(row[key]) for key in ("hardware_formats", "triton_formats"))
        cells = (star + row["id"], row["target"], row["how"], hardware, triton)
        grid.lines.append(Line([Text(cell) for cell in cells], row["note"]))
    console = screen()
    show(console, grid.texts(console.width))
    if not gpus():
        print("\nno GPU that torch sees: that is a normal case")
    if not has_triton():
        print("triton is not installed: Triton kernels are not executed")
    return Exit.OK


def _target(device: Any) -> Any:
    return TARGETS.get(device.emulates or device.target)


def _short(formats: Any) -> str:
    return ", ".join(name.removeprefix("float8_") for name in formats) or "-"
