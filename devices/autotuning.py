"""Autotuning on an emulated device: there is no time to compare, so the first valid configuration runs. In the child.

A configuration is passed over for what Triton's autotuner passes over on hardware (shared memory or registers of the
target, ptxas, a static assertion), and where the emulator cannot execute it. Hooks, ``reset_to_zero``,
``restore_value`` and pruning stay Triton's own.

Private interfaces of Triton 3.9 are used: ``Autotuner._bench``, ``run``, ``prune_configs`` and ``do_bench``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from narrowgauge.contracts.outcome import NotExecuted

_WON, _LOST = [0.0] * 3, [float("inf")] * 3


class Tuning:
    """What an autotuner tried: by configuration, why it was passed over; "" for the one that was taken."""

    def __init__(self) -> None:
        self.tried: dict[str, str] = {}
        self.lacking: list[NotExecuted] = []

    @property
    def found(self) -> bool:
        return "" in self.tried.values()


def watch(note: Callable[[str], None]) -> None:
    """Make every ``@triton.autotune`` take its first valid configuration, and ``note`` which one each launch ran."""
    from triton.runtime.autotuner import Autotuner

    running: list[Tuning] = []
    told: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
    bench, run = Autotuner._bench, Autotuner.run

    @functools.wraps(bench)
    def first_valid(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        tuning = running[-1]
        if tuning.found:
            return _LOST
        failed: list[Exception] = []

        def once(launch: Callable[[], None], quantiles: Any = None) -> list[float]:
            try:
                launch()
            except Exception as error:  # what the autotuner catches is its own to say
                failed.append(error)
                raise
            return _WON

        self.__dict__["do_bench"] = once  # the owner's own way of measuring has nothing to measure
        try:
            result: list[float] = bench(self, *args, config=config, **meta)
        except NotExecuted as error:
            tuning.lacking.append(error)
            result = _LOST
        tuning.tried[str(config)] = f"{type(failed[0]).__name__}: {failed[0]}".splitlines()[0] if failed else ""
        return result

    @functools.wraps(run)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        tuning = Tuning()
        self.cache_results = False  # never into the file that tells real hardware which configuration is fastest
        running.append(tuning)
        try:
            result = run(self, *args, **kwargs)
        except NotExecuted:
            if tuning.lacking and not tuning.found:
                raise tuning.lacking[0] from None
            raise
        finally:
            running.pop()
        known = told.setdefault(self, {})
        chosen = str(self.best_config)
        if tuning.tried or chosen not in known:
            known[chosen] = _said(self, chosen, tuning)
        note(known[chosen])
        return result

    Autotuner._bench, Autotuner.run = first_valid, noted


def _said(tuner: Any, chosen: str, tuning: Tuning) -> str:
    many = len(tuner.configs)
    text = f"autotuned {tuner.base_fn.__name__}: {_short(tuner.best_config)} (first valid of {many})"
    over = [f"{_named(tuner, key)} ({why})" for key, why in tuning.tried.items() if why]
    return text + (f"; passed over: {'; '.join(over)}" if over else "")


def _named(tuner: Any, key: str) -> str:
    return next((_short(each) for each in tuner.configs if str(each) == key), key)


def _short(config: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in config.all_kwargs().items())
