"""The parent's side of a capture: start the child, follow its reports, and survive whatever it does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices.device import ROOT

_BOOTSTRAP = "import sys; sys.path.append(sys.argv.pop(1)); from narrowgauge.devices.capture import main; main()"
_SAID = 2000


def capture(
    file: Path,
    function: str,
    out: Path,
    rows: int,
    batches: Path | None,
    progress: Callable[[int, int], None],
    what: str = "linear",
) -> None:
    """Run the module that a function of a file returns, in a process of its own, and write ``out``.

    ``rows``: of each layer's input that are kept, at most. ``progress`` is told each batch and how many there are.
    ``what`` is "linear", inputs and weights of linear layers, or "kv", magnitudes of keys and values.
    Raises ``BadInput`` for whatever the file, its function or the module does not do, and ``Infrastructure`` where
    torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise Infrastructure(
            "torch is not installed; a file that was captured elsewhere needs none: give it in place of the module"
        )
    for path in (file, batches):
        if path is not None and not path.is_file():
            raise BadInput(f"no file {path}")
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(reader) as reports:
        command = [
            sys.executable,
            "-P",
            "-c",
            _BOOTSTRAP,
            ROOT,
            str(writer),
            str(file.absolute()),
            function,
            str(out),
            str(rows),
            what,
        ]
        command += ["--batches", str(batches.absolute())] if batches else []
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, pass_fds=[writer],
            start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        try:
            done = False
            for line in reports:
                report = json.loads(line)
                if "refused" in report:
                    raise BadInput(report["refused"])
                done = "done" in report
                if not done:
                    progress(report["batch"], report["of"])
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not done:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID))
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise BadInput(
                f"{file}: the process that ran {function}() ended with {code}: {last[0] if last else 'no word'}"
            )
