"""An engine's log of its start: known lines that tell of trouble, with their numbers. Others are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from narrowgauge.checkpoints.findings import Finding, Place
from narrowgauge.checkpoints.log_lines import LINES
from narrowgauge.checkpoints.log_lines.line import Line
from narrowgauge.contracts.errors import BadInput

#: bytes of a line that are looked at; the rest of a longer one is passed over
LONGEST = 1 << 16
#: numbers of lines that are kept for each finding, and characters of the text of the first
PLACES, SHOWN = 3, 160
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")


def literal(pattern: str) -> str:
    """The longest text that is in whatever a pattern finds: looking for that first is some ten times as fast."""
    runs, depth = [""], 0
    for token in re.findall(r"\\.|.", pattern):
        depth += (token == "(") - (token == ")")
        plain = token[-1] if len(token) == 2 and not token[1].isalnum() else token
        if token in ("*", "?"):
            runs[-1] = runs[-1][:-1]
        if depth or len(plain) == 2 or token in "[]().*+?|^$":
            runs.append("")
        else:
            runs[-1] += plain
    return max(runs, key=len)


_KNOWN = tuple((literal(line.pattern), re.compile(line.pattern), line) for line in LINES)


@dataclass
class _Seen:
    """What was seen of a kind of line."""

    count: int = 0
    last: int = 0  #: number of the last line, which both engines may have
    places: list[Place] = field(default_factory=list)
    lines: dict[str, Line] = field(default_factory=dict)  #: by engine


def log_findings(path: Path) -> Iterator[Finding]:
    """A finding for each known text of a log, in the order of their first lines.

    Memory is bounded: a piece of ``LONGEST`` bytes, and a few places a text. Bytes that are no UTF-8 are no trouble.
    Raises ``BadInput`` for what is no readable file, and for compressed ones.
    """
    seen: dict[str, _Seen] = {}
    for number, text in _lines(path):
        for part, pattern, line in _KNOWN:
            if part in text and (found := pattern.search(text)):
                each = seen.setdefault(f"{line.kind}\n{line.pattern}", _Seen())
                if line.engine not in each.lines:
                    each.lines[line.engine] = line
                if each.last != number:
                    each.last, each.count = number, each.count + 1
                    if len(each.places) < PLACES:
                        each.places.append(Place((number,), text[found.start() :][:SHOWN].strip()))
    yield from map(_finding, seen.values())


def _finding(seen: _Seen) -> Finding:
    first = next(iter(seen.lines.values()))
    times = f", {seen.count} times" if seen.count > 1 else ""
    once = all(line.once for line in seen.lines.values())
    said = f"line {seen.places[0].index[0]}{times}: {seen.places[0].value}"
    if once:
        said += "; an engine says it once, so that other layers may be meant too"
    by = ", ".join(f"{engine} ({line.source})" for engine, line in seen.lines.items())
    return Finding(f"log: {first.kind}", f"{said} [{by}]", places=tuple(seen.places))


def _is_no_text(start: bytes) -> bool:
    """Whether more than one byte in 20 is a control character, as in UTF-16 and in what is compressed or random.

    Zeros at the beginning do not count: they are what is left where a log was cut while it was written.
    """
    start = start.lstrip(b"\0")
    return 20 * sum(byte < 32 and byte not in b"\t\n\r\x1b\b\f" for byte in start) > len(start)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1: the first ``LONGEST`` bytes of each, without colours."""
    if path.exists() and not path.is_file():  # a pipe would keep whoever opens it waiting
        raise BadInput(f"--log {path} is no file; expected a text file of an engine's start")
    try:
        with path.open("rb") as file:
            if file.peek(8).startswith(_COMPRESSED):
                raise BadInput(f"--log {path} is compressed; unpack it first")
            if _is_no_text(file.peek(LONGEST)):
                raise BadInput(f"--log {path} is no text in UTF-8 (binary, or UTF-16); expected an engine's start")
            number, whole = 0, True
            while piece := file.readline(LONGEST):
                if whole:
                    number += 1
                    yield number, _COLOUR.sub("", piece.decode("utf-8", "replace"))
                whole = piece.endswith(b"\n")
    except OSError as error:
        raise BadInput(f"--log {path}: {error.strerror or error}; expected a text file of an engine's start") from None
