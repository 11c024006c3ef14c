"""The same work on many things, in this process or in several, with results in the order of the things."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from narrowgauge.contracts.errors import Infrastructure

A = TypeVar("A")
B = TypeVar("B")
#: tasks that are handed out beyond those at work: what is done waits for what came before it
AHEAD = 4


def each(function: Callable[..., B], tasks: Sequence[A], workers: int, *shared: Any) -> Iterator[tuple[A, B]]:
    """Every task with ``function(task, *shared)``, in order. All of it can be pickled; what is shared is sent once.

    Processes are started afresh: one that is copied from a process with threads (a progress bar has one) can stand
    still for ever. What a task raises is raised here, at its place; ``Infrastructure`` where a process ends.
    """
    if workers < 2 or len(tasks) < 2:
        for task in tasks:
            yield task, function(task, *shared)
        return
    spawned = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(tasks)), spawned, initializer=_keep, initargs=(function, shared))
    waiting: deque[tuple[A, Future[B]]] = deque()
    try:
        for task in tasks:
            waiting.append((task, _handed_over(pool, task)))
            if len(waiting) >= workers + AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool:
        raise Infrastructure(
            f"one of {workers} processes ended, perhaps for want of memory; --workers 1 needs the least"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _handed_over(pool: ProcessPoolExecutor, task: Any) -> Future[Any]:
    """The task, for a process that may be started for it: Ctrl-C of a terminal reaches all, and this one alone answers.

    A process inherits what is blocked where it is started, so that not even its imports end in a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(_call, task)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


#: of a process of a pool: the function, and what is shared
_KEPT: list[Any] = []


def _keep(function: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    _KEPT[:] = [function, shared]


def _call(task: Any) -> Any:
    function, shared = _KEPT
    return function(task, *shared)
