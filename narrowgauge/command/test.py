"""``narrowgauge test``: run the suites from any directory, with the suite's own configuration."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import narrowgauge
from narrowgauge.contracts.verdict import Exit
from narrowgauge.plugin.places import OUT

PACKAGE = Path(narrowgauge.__file__).parent
#: the last place to look for modules is this very package's, for a checkout that is not installed
BOOTSTRAP = "import sys; sys.path.append(sys.argv.pop(1)); import pytest; sys.exit(pytest.main())"
#: where pytest's own output goes with --json
STDERR = 2


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "test",
        help="judge kernels: torch's, ml_dtypes', ours, and yours with --kernels",
        description="Runs the suites with pytest. Options not listed here go to pytest: -k, -n, -x, --depth, --device, "
        "--waivers, --golden, --out, --kernel-timeout, --recordings, --require-verified, --alluredir; "
        "'narrowgauge test --help-all' lists them all.",
        allow_abbrev=False,
    )
    parser.add_argument("--kernels", action="append", default=[], metavar="FILE", help="a file of kernels to plug in")
    parser.add_argument("-m", dest="markers", default="", metavar="EXPRESSION", help="markers, for example: -m fnuz")
    parser.add_argument("--meta", action="store_true", help="run the suite's tests of itself too")
    parser.add_argument("--json", action="store_true", help="print the ledger as JSON; pytest's output goes to stderr")
    parser.add_argument("--help-all", action="store_true", help="pytest's own help, with the suite's options")
    parser.set_defaults(run=run, passes_on=True)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if arguments.help_all:
        return _pytest("--help")
    meta = [] if arguments.meta else [f"--ignore={PACKAGE / 'suites' / 'meta'}"]
    markers = arguments.markers if arguments.meta else _without_meta(arguments.markers)
    kernels = [f"--kernels={path}" for path in arguments.kernels]
    marked = ["-m", markers] if markers else []
    ledger = _out(rest) / "ledger.json"
    before = _identity(ledger)
    code = _pytest(str(PACKAGE / "suites"), *meta, *marked, *kernels, *rest, output=STDERR if arguments.json else None)
    if arguments.json:
        print("{}" if _identity(ledger) in (None, before) else ledger.read_text())
    return code


def _identity(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written anew: a run that selects nothing leaves the ledger of an earlier one."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def _pytest(*arguments: str, output: int | None = None) -> int:
    """Run pytest in a process of its own: it has to be there before narrowgauge is imported, to rewrite its assertions.

    rootdir and ini are given, which pytest would otherwise take from the caller's project. Nothing is cached: the
    package's folder may not be writable, and is not the place.
    """
    fixed = ["-c", str(PACKAGE / "pytest.toml"), f"--rootdir={PACKAGE.parent}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-P", "-c", BOOTSTRAP, str(PACKAGE.parent), *fixed, *arguments]
    with _waiting_through_interrupts():
        code = subprocess.run(command, check=False, stdout=output).returncode
    return Exit.INTERRUPTED if code == -signal.SIGINT else code


@contextmanager
def _waiting_through_interrupts() -> Iterator[None]:
    """Ctrl-C reaches pytest too, which ends its tests and writes its ledger: let it.

    A handler that does nothing, since what is ignored here would be ignored by the process that is started.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _without_meta(markers: str) -> str:
    return f"({markers}) and not meta" if markers else "not meta"


def _out(rest: list[str]) -> Path:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=OUT)
    found: Path = parser.parse_known_args(rest)[0].out
    return found
