"""What a symptom is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Symptom:
    """What is seen, the words by which one looks for it, and what is behind it."""

    title: str
    words: tuple[str, ...]  #: lower case; each is looked for in what the user typed, and the other way round
    why: str
    faults: tuple[str, ...]
    look: str  #: what to do next
