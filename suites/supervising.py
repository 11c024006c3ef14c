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

from narrowgauge.contracts.errors import Infrastructure
from narrowgauge.contracts.processes import end_with_parent

#: seconds between two looks
LOOK = 0.2
#: seconds that a program has to write its results once it is asked to end. A CI engine that cancels a job kills it in
#: 10 s: what is left of them is for our own record
GRACE = 7.0
#: what a CI engine, or a person, ends a job with
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (negative: a signal), and why it was ended, "" where it ended by itself."""

    code: int
    why: str = ""
    log: str = ""  #: what became of its output, where the log could not be written


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

    What is ended gets SIGINT first, which lets pytest write what it has, and SIGKILL after ``GRACE`` seconds, or when
    we are told to stop once more. If we are killed, it is too. Raises ``Infrastructure`` where it cannot be started.
    """
    with _told_to_stop() as told:
        try:
            process = subprocess.Popen(
                command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent,
            )  # fmt: skip
        except OSError as error:
            raise Infrastructure(f"cannot start {command[0]}: {error.strerror or error}") from error
        assert process.stdout is not None
        copy = _Copy(process.stdout, log, quiet)
        copy.start()
        why = _wait(process, limits, told)
        if why:
            _end(process, told)
        code = process.wait()
        _kill(process)  # what it left behind in its group
        copy.join(GRACE)
    return Ended(code, why, copy.lost)


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


def _end(process: subprocess.Popen[bytes], told: list[int]) -> None:
    """Ask, and wait no longer than we are given."""
    before, end = len(told), time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    while process.poll() is None and len(told) == before and time.monotonic() < end:
        time.sleep(LOOK)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class _Copy(threading.Thread):
    """Reads to the end whatever happens to the copies: a program whose output nobody reads stops."""

    def __init__(self, source: IO[bytes], log: Path, quiet: bool) -> None:
        super().__init__(daemon=True)
        self.source, self.log, self.quiet = source, log, quiet
        self.lost = ""

    def run(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.source)
            copies: list[IO[bytes]] = [] if self.quiet else [sys.stdout.buffer]
            try:
                kept: IO[bytes] | None = stack.enter_context(self.log.open("wb", buffering=0))
            except OSError as error:
                kept, self.lost = None, _lost(self.log, error)
            while block := os.read(self.source.fileno(), 65536):
                if kept is not None:
                    kept = self._keep(kept, block)
                for copy in list(copies):
                    try:
                        copy.write(block)
                        copy.flush()
                    except (OSError, ValueError):  # a reader that went away
                        copies.remove(copy)

    def _keep(self, log: IO[bytes], block: bytes) -> IO[bytes] | None:
        """Write all of a block; None once that fails: a log with a hole would read as if it were whole."""
        try:
            while block:
                block = block[log.write(block) :]
        except OSError as error:
            self.lost = _lost(self.log, error)
            return None
        return log


def _lost(log: Path, error: OSError) -> str:
    return f"{log.name} is cut: {error.strerror or error}"


@contextlib.contextmanager
def _told_to_stop() -> Iterator[list[int]]:
    """The signals that ask us to stop, as they come. Only the main thread is told."""
    told: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        told.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    kept = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()  # nohup: go on
    before = {number: signal.signal(number, remember) for number in STOPS if number not in kept}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
