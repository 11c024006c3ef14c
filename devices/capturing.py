"""The parent's side of a capture."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices.following import follow


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
    arguments = [str(file.absolute()), function, str(out), str(rows), what]
    arguments += ["--batches", str(batches.absolute())] if batches else []
    follow(
        "capture", arguments, f"{file}: the process that ran {function}()",
        lambda report: progress(report["batch"], report["of"]),
    )  # fmt: skip
