"""The same work on many things, in this process or in several, with results in the order of the things."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

A, B = TypeVar("A"), TypeVar("B")
#: tasks that are handed out beyond those at work: what is done waits for what came before it
AHEAD = 4


def each(function: Callable[[A], B], tasks: Sequence[A], workers: int) -> Iterator[tuple[A, B]]:
    """Every task with its result, in order. ``function`` is one of a module, and it and the tasks can be pickled.

    Processes are started afresh: one that is copied from a process with threads (a progress bar has one) can stand
    still for ever. What a task raises is raised here, at its place.
    """
    if workers < 2 or len(tasks) < 2:
        for task in tasks:
            yield task, function(task)
        return
    pool = ProcessPoolExecutor(min(workers, len(tasks)), multiprocessing.get_context("spawn"))
    waiting: deque[tuple[A, Future[B]]] = deque()
    try:
        for task in tasks:
            waiting.append((task, pool.submit(function, task)))
            if len(waiting) >= workers + AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(cancel_futures=True)
