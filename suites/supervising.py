"""Run a program to its end, or end it: when nothing happens any more, when its time is up, when we are told to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

#: seconds between two looks, and seconds that a program has to write its results once it is asked to end
LOOK, GRACE = 0.5, 30.0
#: what a CI engine, or a person, ends a job with
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (negative: a signal), and why it was ended, "" where it ended by itself."""

    code: int
    why: str = ""


@dataclass(frozen=True)
class Limits:
    """Seconds in all, and seconds in which ``progress`` must grow."""

    whole: float
    silence: float
    progress: Path


def supervise(
    command: Sequence[str], environment: Mapping[str, str], log: Path, limits: Limits, quiet: bool = False
) -> Ended:
    """Run a command in a process group of its own; its output goes to ``log`` and, unless ``quiet``, to ours.

    What is ended gets SIGINT first, which lets pytest write what it has, and SIGKILL after ``GRACE`` seconds.
    """
    process = subprocess.Popen(
        command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    copier = threading.Thread(target=_copy, args=(process.stdout, log, quiet), daemon=True)
    copier.start()
    with _told_to_stop() as told:
        why = _wait(process, limits, told)
        if why:
            _end(process)
    code = process.wait()
    _kill(process)  # what it left behind in its group
    copier.join(GRACE)
    return Ended(code, why)


def _wait(process: subprocess.Popen[bytes], limits: Limits, told: list[int]) -> str:
    """Why the program must be ended, or "" once it has ended."""
    start = moved = time.monotonic()
    size = -1
    while process.poll() is None:
        now = time.monotonic()
        if told:
            return f"ended by {signal.Signals(told[0]).name}"
        with contextlib.suppress(OSError):
            if (found := limits.progress.stat().st_size) != size:
                size, moved = found, now
        if now - moved > limits.silence:
            return f"hung: no test began or ended for {limits.silence:g} s"
        if now - start > limits.whole:
            return f"its {limits.whole:g} s are over"
        time.sleep(LOOK)
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _copy(source: IO[bytes], log: Path, quiet: bool) -> None:
    """Read to the end whatever happens to the copies: a program whose output nobody reads stops."""
    with contextlib.ExitStack() as stack:
        copies: list[IO[bytes]] = [] if quiet else [sys.stdout.buffer]
        with contextlib.suppress(OSError):
            copies.append(stack.enter_context(log.open("wb")))
        while block := os.read(source.fileno(), 65536):
            for copy in list(copies):
                try:
                    copy.write(block)
                    copy.flush()
                except (OSError, ValueError):  # a full disk, a reader that went away
                    copies.remove(copy)


@contextlib.contextmanager
def _told_to_stop() -> Iterator[list[int]]:
    """The signals that ask us to stop, as they come. Only the main thread is told."""
    told: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        told.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {number: signal.signal(number, remember) for number in STOPS}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
