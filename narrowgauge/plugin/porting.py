"""The answer to ``-m fnuz``: may these kernels go to MI300?

A path is one claim of a kernel on an FNUZ format. It is verified when its cases passed where MI300's code ran: on a
gfx942 or an emulation of one. Triton's interpreter and the host prove nothing about compiled code, except for a numpy
kernel, which never leaves the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from narrowgauge.ci.ledger import Ledger, Row
from narrowgauge.contracts.formats import format_named

FNUZ_TARGETS = frozenset({"gfx940", "gfx941", "gfx942", "emulated-gfx942"})
State = Literal["READY", "NOT READY", "UNKNOWN"]


@dataclass(frozen=True)
class PortVerdict:
    """``state`` is about plugged-in kernels, or about the suite's own where none is plugged in."""

    state: State
    text: str


def port_verdict(ledger: Ledger) -> PortVerdict:
    """Read the answer from a ledger."""
    rows = [row for row in ledger.rows if "fnuz" in format_named(row.format).markers]
    theirs, own = [r for r in rows if not r.own], [r for r in rows if r.own]
    lost = (*ledger.unrun, *ledger.unselected)
    own_state, own_text = _answer(own, lost)
    if not theirs:
        return PortVerdict(
            own_state, f"porting to FNUZ: no plugged-in kernel claims an FNUZ format (narrowgauge's own: {own_text})"
        )
    state, text = _answer(theirs, lost)
    return PortVerdict(state, f"porting to FNUZ: {text}\n  apart from that, narrowgauge's own kernels: {own_text}")


def _answer(rows: Sequence[Row], lost: Sequence[str]) -> tuple[State, str]:
    paths: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        paths.setdefault((row.kernel, row.claim), []).append(row)
    failed = sorted({kernel for (kernel, _), cells in paths.items() if any(c.result == "failed" for c in cells)})
    if failed:
        return "NOT READY", f"NOT READY: {', '.join(failed)} failed"
    unknown = {key: why for key, cells in paths.items() if (why := _doubt(cells, lost))}
    if not unknown and paths:
        return "READY", f"READY: {len(paths)} of {len(paths)} paths verified"
    reasons: dict[str, set[str]] = {}
    for (kernel, _), why in unknown.items():
        reasons.setdefault(why, set()).add(kernel)
    told = "; ".join(f"{', '.join(sorted(kernels))}: {why}" for why, kernels in sorted(reasons.items()))
    return "UNKNOWN", f"UNKNOWN {len(unknown)} of {len(paths)} paths" + (f" ({told})" if told else "")


def _doubt(cells: Sequence[Row], lost: Sequence[str]) -> str:
    """Why a path is not verified; "" if it is."""
    there = [c for c in cells if c.target in FNUZ_TARGETS or c.backend == "numpy"]
    results = {c.result for c in there}
    if not there or "not_executed" in results:
        reasons = sorted({c.reason for c in there if c.reason})
        return f"not executed for gfx942{f' ({reasons[0]})' if reasons else ''}"
    if others := sorted(results - {"passed"}):
        return f"executed for gfx942, and {' and '.join(others)}"
    first, targets = there[0], {c.target for c in there}
    for cell in lost:
        name = cell.partition("[")[2].rstrip("]")
        mine = name.startswith(f"{first.source}-{first.format}-") and name.endswith(
            tuple(f"-{first.kernel}-{target}" for target in targets)
        )
        if mine:
            return f"only some of its cases were run, not {name}"
    return ""
