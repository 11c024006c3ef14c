"""What came of asking a device to run a kernel once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from narrowgauge.contracts.coded import Coded

Kind = Literal["returned", "raised", "crashed", "hung", "not_executed"]
#: how the answer came about: on the target itself, by a model of it, by Triton's interpreter, or from a file
How = Literal["executed", "emulated", "interpreted", "replayed"]
#: which answer an emulated instruction takes where its words allow several; the first is what a run takes, the others
#: are tried where it mismatches. Random ones are seeded, the same for equal answers.
Choice = Literal["first", "low", "high", "random 1", "random 2"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


class NotExecuted(Exception):
    """Raised by a kernel or a device that has nothing here to run with; says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """``outputs`` where it returned, ``reason`` where it did not."""

    kind: Kind
    outputs: dict[str, Coded] = field(default_factory=dict)
    #: the same as the kernel left them in memory, where ``outputs`` were made matrices of that
    memory: dict[str, Coded] = field(default_factory=dict)
    reason: str = ""
    #: what the child wrote to stdout and stderr meanwhile, its end
    said: str = ""
    #: faults of the answer's form that only the child can see: "unwritten codes[3:7]", "returned nothing" …
    malformed: tuple[str, ...] = ()
    #: emulated: models of instructions that answered, and whether an answer of theirs was one of several allowed
    models: dict[str, bool] = field(default_factory=dict)
    notes: tuple[
        str, ...
    ] = ()  #: emulated: what was chosen for the kernel on the way, such as autotuning's configuration
    #: where it was asked for: of each kernel that was launched, and not executed, how often it has which opcode
    launches: tuple[dict[str, Any], ...] = ()
    seconds: float = 0.0
