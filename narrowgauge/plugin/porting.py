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
    lost = len(ledger.unrun)
    own_state, own_text = _answer(own, lost)
    if not theirs:
        return PortVerdict(
            own_state, f"porting to FNUZ: no plugged-in kernel claims an FNUZ format (narrowgauge's own: {own_text})"
        )
    state, text = _answer(theirs, lost)
    return PortVerdict(state, f"porting to FNUZ: {text}\n  apart from that, narrowgauge's own kernels: {own_text}")


def _answer(rows: Sequence[Row], lost: int) -> tuple[State, str]:
    paths: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        paths.setdefault((row.kernel, row.claim), []).append(row)
    failed = sorted({kernel for (kernel, _), cells in paths.items() if any(c.result == "failed" for c in cells)})
    if failed:
        return "NOT READY", f"NOT READY: {', '.join(failed)} failed"
    unknown = [key for key, cells in paths.items() if not _verified(cells)]
    if unknown or lost or not paths:
        why = f", and {lost} planned tests did not run" if lost else ""
        names = ", ".join(sorted({kernel for kernel, _ in unknown}))
        what = f" ({names}: not executed for gfx942)" if names else ""
        return "UNKNOWN", f"UNKNOWN {len(unknown)} of {len(paths)} paths{what}{why}"
    return "READY", f"READY: {len(paths)} of {len(paths)} paths verified"


def _verified(cells: Sequence[Row]) -> bool:
    there = [c for c in cells if c.target in FNUZ_TARGETS or c.backend == "numpy"]
    return bool(there) and all(c.result == "passed" for c in there)
