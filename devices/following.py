"""The parent's side of a child that does one thing and ends: start it, follow its reports, survive what it does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.device import ROOT

_BOOTSTRAP = "import sys; sys.path.append(sys.argv.pop(1)); from narrowgauge.devices.{} import main; main()"
_SAID = 2000


def follow(module: str, arguments: list[str], what: str, told: Callable[[dict[str, Any]], None]) -> None:
    """Run ``main`` of a module of this room, which writes one JSON object a line to the pipe that it is given first.

    ``told`` gets each report but the last, ``{"done": true}``. Raises ``BadInput`` with what a report refuses, and for
    a child that ends without a word; ``what`` it did is for that error.
    """
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(reader) as reports:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOTSTRAP.format(module), ROOT, str(writer), *arguments],
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, pass_fds=[writer],
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
                    told(report)
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not done:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID))
            last = said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise BadInput(f"{what} ended with {code}: {last[0] if last else 'no word'}")
