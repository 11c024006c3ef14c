"""Products of integers: whether sums beyond 2^24 stay exact, and what becomes of them beyond 2^31."""

from __future__ import annotations

from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, unsaid
from narrowgauge.reference.probes.rows import Row, Rows
from narrowgauge.reference.probes.setting import Setting

#: so many products of -128 and -128 are 2^31
LONG = 1 << 17
LARGEST, NEXT = -128.0, 127.0
#: 127 · 128 · 128 - 128 · 127 · 128 = 0; nine times that goes beyond 2^24 on the way
TIMES = 9


def suits(setting: Setting) -> bool:
    """Whether both operands hold -128, and b 127."""
    return setting.a.holds(LARGEST) and setting.b.holds(LARGEST) and setting.b.holds(NEXT) and _whole(setting)


def _whole(setting: Setting) -> bool:
    return not (setting.a.holds(0.5) or setting.b.holds(0.5))


def _rows(setting: Setting) -> Rows:
    if not suits(setting) or setting.k < LONG:
        return {}
    up, down = 127 * TIMES, 128 * TIMES
    there = [(k, LARGEST, LARGEST) for k in range(up)]
    back = [(k, LARGEST, NEXT) for k in range(up + 1, up + 1 + down)]
    whole = tuple((k, LARGEST, LARGEST) for k in range(LONG))
    return {("exact",): Row((*there, (up, 1.0, 1.0), *back)), ("beyond",): Row(whole)}


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    if ("exact",) not in answers:
        return [unsaid(name, "asked of int8 x int8 alone") for name in ("integers", "overflow")]
    left, beyond = answers[("exact",)], answers[("beyond",)]
    exact = Finding("integers", "exact", "sums beyond 2^24 are exact")
    if left != 1:
        exact = Finding("integers", "inexact", f"a sum that goes beyond 2^24 and comes back to 1 gives {left:g}")
    kinds = {-(2.0**31): "wraps", 2.0**31: "wide or saturates", 2.0**31 - 1: "saturates"}
    value = kinds.get(beyond, "other")
    return [exact, Finding("overflow", value, f"a sum of 2^31 gives {beyond:.0f}: {value}")]


PROBE = Probe(
    "integers",
    "Are sums of integers exact, and what if they overflow?",
    ("integers", "overflow"),
    _rows,
    _read,
)
