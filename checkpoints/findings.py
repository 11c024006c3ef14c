"""Findings of an audit: what is wrong, where, how bad, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: "wrong": the model will give other numbers, or none; one is enough for the exit code of findings.
#: "doubt": it may be meant, and it may be a mistake. "note": said, no more
Level = Literal["wrong", "doubt", "note"]


@dataclass(frozen=True)
class Kind:
    """A kind of finding, declared once in checkpoints/kinds."""

    level: Level
    meaning: str  #: one sentence: what is so
    remedy: str  #: one sentence: what to do


@dataclass(frozen=True)
class Place:
    """One element of a tensor."""

    index: tuple[int, ...]
    value: str  #: as shown: a number or a code in hexadecimal


@dataclass(frozen=True)
class Finding:
    """One finding about one tensor, or about the checkpoint as a whole ("")."""

    kind: str  #: a name of ``kinds.KINDS``
    said: str  #: the figures: "64 of 128 values become inf in float16; the largest is 497,160"
    tensor: str = ""
    count: int = 0  #: elements; 0 where none are counted
    places: tuple[Place, ...] = ()  #: the first few
    remedy: str = ""  #: where a better one is known than the kind's
