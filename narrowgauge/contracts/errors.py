"""Errors that help: what was given, what was expected, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

#: how many near names an error suggests
NEAR = 3
#: of more names than these the first are listed
LISTED = 40


class NarrowgaugeError(Exception):
    """Bad input or a broken part of the set-up. Its text is meant for the person who ran the command."""


class BadInput(NarrowgaugeError, ValueError):
    """Something that was given cannot be used; nothing was computed from it."""


class Infrastructure(NarrowgaugeError, RuntimeError):
    """The machine or the installation failed, not a kernel."""


def unknown(
    kind: str, given: str, known: Iterable[str], where: str = "", aliases: Mapping[str, str] | None = None
) -> BadInput:
    """An error for a name that is not in a table, with the nearest names that are.

    ``aliases`` are other spellings, each with the name that it stands for: what is suggested is always a name.
    """
    names = sorted(known)
    meant = {**(aliases or {}), **{name: name for name in names}}
    found = difflib.get_close_matches(given, meant, n=len(meant) or 1, cutoff=0.5)
    near = list(dict.fromkeys(meant[spelling] for spelling in found))[:NEAR]
    place = f" in {where}" if where else ""
    rest = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names[:LISTED])}{rest}"
    return BadInput(f"unknown {kind} {given!r}{place}; {hint}")
