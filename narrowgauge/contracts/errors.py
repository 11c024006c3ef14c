"""Errors that help: what was given, what was expected, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NarrowgaugeError(Exception):
    """Bad input or a broken part of the set-up. Its text is meant for the person who ran the command."""


class BadInput(NarrowgaugeError, ValueError):
    """Something that was given cannot be used; nothing was computed from it."""


class Infrastructure(NarrowgaugeError, RuntimeError):
    """The machine or the installation failed, not a kernel."""


def unknown(kind: str, given: str, known: Iterable[str], where: str = "", aliases: Iterable[str] = ()) -> BadInput:
    """An error for a name that is not in a table, with the nearest names that are."""
    names = sorted(known)
    near = difflib.get_close_matches(given, [*names, *aliases], n=3, cutoff=0.5)
    place = f" in {where}" if where else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return BadInput(f"unknown {kind} {given!r}{place}; {hint}")
