"""A program that is asked on one pipe and answers on another, both at once, whatever it buffers."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import IO

from narrowgauge.contracts.errors import BadInput

#: bytes read at once
BLOCK = 1 << 16


@dataclass(frozen=True)
class Ending:
    """How a conversation ended: ``kind`` is "returned", "crashed" or "hung", in the words of a call's outcome."""

    kind: str
    reason: str = ""


def converse(
    command: Sequence[str], questions: Iterable[bytes], hear: Callable[[bytes], bool], patience: float
) -> Ending:
    """Start a program, write the questions to its standard input, and hand what it writes to ``hear``, block by block.

    It ends when the program has closed its output and exited, when ``hear`` returns False (enough was heard), when
    ``hear`` raises, or when for ``patience`` seconds nothing was read or written. The program and what it started are
    killed where they still run. Its standard error is ours. Raises ``BadInput`` for a program that cannot be started.
    """
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise BadInput(f"cannot start {command[0]!r}: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    told = [0]
    teller = threading.Thread(target=_tell, args=(process.stdin, questions, told), daemon=True)
    teller.start()
    try:
        return _listen(process, process.stdout, hear, told, patience)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        teller.join()  # whoever could still read from its pipe is dead


def _tell(pipe: IO[bytes], questions: Iterable[bytes], told: list[int]) -> None:
    """Write all questions and close the pipe; a program that wants no more of them is free to."""
    with contextlib.suppress(BrokenPipeError):
        for block in questions:
            pipe.write(block)
            told[0] += 1
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def _listen(
    process: subprocess.Popen[bytes], pipe: IO[bytes], hear: Callable[[bytes], bool], told: list[int], patience: float
) -> Ending:
    while True:
        before = told[0]
        if not select.select([pipe], [], [], patience)[0]:
            if told[0] != before:
                continue
            return Ending("hung", f"nothing was read or written for {patience:g} s")
        block = os.read(pipe.fileno(), BLOCK)
        if not block:
            break
        if not hear(block):
            return Ending("returned")
    try:
        code = process.wait(patience)
    except subprocess.TimeoutExpired:
        return Ending("hung", f"its output is closed, and {patience:g} s later it has not ended")
    if code < 0:
        return Ending("crashed", f"killed by {signal.Signals(-code).name}")
    return Ending("crashed", f"exited with code {code}") if code else Ending("returned")
