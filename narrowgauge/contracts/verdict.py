"""Verdicts, and the exit codes that all commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

Result = Literal["passed", "failed", "disputed", "waived", "not_executed"]

#: classes of difference, in the order in which a message names them
DIFFERENCES = ("value", "zero_sign", "infinity", "nan", "scale", "not_a_code")


class Exit(IntEnum):
    """Exit codes of every subcommand; 0, 1, 2, 4 and 5 agree with pytest's."""

    OK = 0
    FAILED = 1  #: something was judged wrong (with -m fnuz: NOT READY)
    INTERRUPTED = 2
    INFRASTRUCTURE = 3  #: the machine or the installation failed, nothing was judged
    BAD_INPUT = 4  #: wrong arguments, an unreadable file, an unknown name
    NOTHING = 5  #: nothing was selected
    UNKNOWN = 6  #: --require-verified, and something was not executed


@dataclass(frozen=True)
class Explanation:
    """A set of faults that give the same outputs on these inputs, and what they explain."""

    faults: tuple[str, ...]  #: each name is one fault, or two joined by " + "
    explained: int  #: differing elements that the faults reproduce exactly
    left: int  #: elements of the kernel's output that still differ from what the faults would give
    separated_by: str = ""  #: an input on which the faults of the set would differ
    only: str = ""  #: the part of a cache ("v") in which alone they are
    #: in which ways each was made, where it can be made in several: "in b", "tiles of 64 or tiles of 128"; else empty
    how: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.left == 0

    def spoils(self, differing: int) -> int:
        """Elements that are right and would be wrong by the faults, where ``differing`` elements are not right."""
        return self.left - (differing - self.explained)

    def accounts_for(self, differing: int) -> bool:
        """Whether this is an answer: it reproduces everything, or at least half of the elements that differ."""
        return self.complete or 2 * self.explained >= differing


@dataclass(frozen=True)
class Mismatch:
    """One differing element."""

    output: str
    index: tuple[int, ...]
    kind: str
    input: str  #: value and bits
    got: str
    want: str


@dataclass(frozen=True)
class OpenAnswers:
    """What became of a mismatch behind open answers of models, when other allowed answers were taken."""

    tried: tuple[str, ...]  #: choices of answers that gave an output, the first one included
    within: int  #: differing elements whose expected code lies within what the choices gave
    beyond: int  #: differing elements that no choice explains
    agrees: str = ""  #: the choice under which nothing differs


@dataclass(frozen=True)
class Verdict:
    """The judgement of one kernel's outputs on one set of inputs."""

    result: Result
    claim: str
    authority: str
    elements: int = 0
    differences: dict[str, int] = field(default_factory=dict)
    explanations: tuple[Explanation, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    malformed: tuple[str, ...] = ()
    reason: str = ""
    breaks: str = ""  #: "its own claim", "a specification" or "a convention"
    digest: str = ""
    models: dict[str, bool] = field(default_factory=dict)  #: as an ``Outcome`` has them
    open_answers: OpenAnswers | None = None  #: of a mismatch, where an answer was open and others were tried
    notes: tuple[str, ...] = ()  #: as an ``Outcome`` has them
    follows: tuple[str, ...] = ()  #: observations: the named rules that give exactly these outputs
    figures: dict[str, int] = field(default_factory=dict)  #: "saturated" and "ulp", as reference/distance.py has them

    @property
    def differing(self) -> int:
        return sum(self.differences.values())

    @property
    def open_models(self) -> tuple[str, ...]:
        """Models of instructions that gave one of several allowed answers."""
        return tuple(name for name, was_open in self.models.items() if was_open)
