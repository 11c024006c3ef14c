"""Why expectations of golden vectors changed: the file ``reasons.toml``, in which every change has its sentence.

A reason names files of vectors, each with the digest of what it expected before and after, so that it holds for that
change and for no later one. The digests come from ``narrowgauge golden diff``, which prints the lines that are missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput

REASONS = Path(__file__).parent / "reasons.toml"
#: instead of a digest: there is no such file of vectors
GONE = "none"
ARROW = " -> "
_PAIR = re.compile(rf"([0-9a-f]{{12}}|{GONE}){ARROW}([0-9a-f]{{12}}|{GONE})")
FORM = '[[change]] with why = "…" and [change.files] of FAMILY = "DIGEST -> DIGEST", as "golden diff" prints them'


@dataclass(frozen=True)
class Reasons:
    """Changes with their reasons: family, digest before, digest after, why."""

    changes: tuple[tuple[str, str, str, str], ...] = ()

    def of(self, family: str, before: str, after: str) -> tuple[str, ...]:
        """Why a family's expectations went from one content to another, change by change; empty if a step has none."""
        if before == after:
            return ()
        ways: dict[str, tuple[str, ...]] = {before: ()}
        reached = [before]
        for at in reached:  # grows: what is reached is gone on from
            for _, _, to, why in (c for c in self.changes if c[:2] == (family, at) and c[2] not in ways):
                ways[to] = (*ways[at], why)
                reached.append(to)
        return ways.get(after, ())


def read_reasons(path: Path) -> Reasons:
    """The reasons of a file. Raises ``BadInput`` that names the file and the entry for whatever is wrong with it."""
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise BadInput(f"cannot read reasons {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"reasons {path} are not TOML: {error}") from error
    entries = data.get("change", [])
    if data.keys() - {"change"} or not isinstance(entries, list):
        raise BadInput(f"reasons {path} have keys {', '.join(data)}; expected {FORM}")
    found = [
        one for number, entry in enumerate(entries, 1) for one in _entry(f"reasons {path}, change {number}", entry)
    ]
    return Reasons(tuple(found))


def _entry(where: str, entry: Any) -> Iterable[tuple[str, str, str, str]]:
    if not isinstance(entry, dict) or entry.keys() != {"why", "files"} or not isinstance(entry["files"], dict):
        raise BadInput(f"{where}: expected {FORM}")
    why = entry["why"]
    if not isinstance(why, str) or len(why.split()) < 3:
        raise BadInput(f"{where}: why = {why!r}; expected a sentence that says why the expectation changed")
    for family, pair in entry["files"].items():
        match = _PAIR.fullmatch(pair) if isinstance(pair, str) else None
        if match is None or match[1] == match[2]:
            raise BadInput(f"{where}: {family} = {pair!r}; expected two digests, or {GONE}: {FORM}")
        yield family, match[1], match[2], why


def lines_for(changes: Iterable[tuple[str, str, str]]) -> str:
    """The lines of ``reasons.toml`` for changes (family, before, after) of one reason, which is left to be written."""
    files = "".join(f'"{family}" = "{before}{ARROW}{after}"\n' for family, before, after in changes)
    return f'[[change]]\nwhy = ""\n[change.files]\n{files}'
