"""Figures of a night that Allure follows from night to night, one of each for each kernel and environment.

Allure averages samples of one key, so that a key that two kernels share would hide the worse of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from narrowgauge.ci.allure.identity import environment_of
from narrowgauge.ci.ledger import Row

#: Allure takes files of this end for metrics
FILE = "narrowgauge-perf.json"
#: drawn inputs differ from night to night, and their figures with them
DRAWN = "property"


@dataclass(frozen=True)
class Metric:
    """One figure of a kernel on a target."""

    name: str
    title: str
    unit: str
    of: Callable[[Row], int]
    over: Callable[[Iterable[int]], int]  #: how cells make one figure


METRICS = (
    Metric("mismatching", "codes that differ", "codes", lambda row: sum(row.differences.values()), sum),
    Metric("ulp", "farthest from what may come", "codes off", lambda row: row.figures.get("ulp", 0), max),
    Metric("saturated", "codes at the end of their range", "codes", lambda row: row.figures.get("saturated", 0), sum),
)


def _places(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows that have figures, by kernel and environment."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.outcome == "returned" and row.result != "not_executed" and row.case != DRAWN:
            found.setdefault((row.kernel, environment_of(row.target, row.operation)), []).append(row)
    return dict(sorted(found.items()))


def samples(rows: Iterable[Row], at: int) -> list[dict[str, Any]]:
    """The content of Allure's file; ``at`` in milliseconds since 1970."""
    return [
        {"id": _key(metric, *place), "key": _key(metric, *place), "value": metric.over(map(metric.of, own)),
         "start": at, "stop": at}
        for place, own in _places(rows).items()
        for metric in METRICS
    ]  # fmt: skip


def described(rows: Iterable[Row]) -> dict[str, Any]:
    """Titles and units, for Allure's configuration. Less is better in all of them."""
    places = _places(rows)
    return {
        "groups": {metric.name: {"title": metric.title} for metric in METRICS},
        "metrics": {
            _key(metric, kernel, place): {
                "title": f"{kernel} on {place}", "unit": metric.unit, "better": "lower", "group": metric.name,
            }
            for kernel, place in places
            for metric in METRICS
        },
    }  # fmt: skip


def _key(metric: Metric, kernel: str, environment: str) -> str:
    return f"{metric.name}.{environment}.{kernel}"
