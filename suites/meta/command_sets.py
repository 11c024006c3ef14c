"""Call the command in this process, and what it must keep to however it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from narrowgauge import command

SUBCOMMANDS = (
    "devices",
    "test",
    "inputs",
    "judge",
    "identify",
    "instructions",
    "probe",
    "sweep",
    "cast",
    "diff",
    "sqnr",
    "kv",
    "audit",
    "lint",
    "explain",
    "golden",
    "bench",
    "run",
    "gate",
    "report",
    "compare",
)
CLAIM = "cast/ocp_saturate/bfloat16/float8_e4m3fn"
FILE = "cast-ocp_saturate-float8_e4m3fn.safetensors"


def ends(arguments: list[str]) -> int:
    """The exit code, whether the command returns it or argparse raises it."""
    try:
        return int(command.main(arguments))
    except SystemExit as end:
        return int(end.code or 0)


def said(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """What the command prints, blanks and line ends joined; it must end with that exit code and complain of nothing."""
    assert ends(arguments) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return " ".join(captured.out.split())


def as_json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """What the command prints with --json: one JSON value and nothing else, without NaN, which JSON does not have."""
    assert ends([*arguments, "--json"]) == code

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line by which the command refuses bad input."""
    assert ends(arguments) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("narrowgauge: ")
    assert captured.err.count("\n") == 1
    return captured.err
