"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from narrowgauge.contracts.errors import BadInput


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in place in one step, so that nobody ever sees half of it. Raises ``BadInput`` where it cannot be."""
    try:
        _write_whole(path, content)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}") from error


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
