"""A line of a log that is known."""

from __future__ import annotations

from dataclasses import dataclass

#: pattern, kind, source; False behind them where the engine logs it every time
Row = tuple[str, str, str] | tuple[str, str, str, bool]


@dataclass(frozen=True)
class Line:
    """What a line is known by, and what it means."""

    engine: str
    pattern: str  #: a regular expression, found anywhere in the line
    kind: str  #: of checkpoints.kinds, without "log: "
    source: str  #: file and line of the call
    once: bool = True  #: the engine logs each text once, so that later layers and ranks go silently
