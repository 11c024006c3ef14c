"""Judging by streams, as TestFloat does: the inputs of a cast on one pipe, a program's codes on another.

A text stream has one number to a line, in hexadecimal: patterns of the source go out, codes of the destination come
back. A binary stream has little-endian words of the storage width instead (4-, 6- and 8-bit formats: one byte). All
cases of a claim follow each other in one stream; they are the same every time, so the judge makes them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import Codes, Format, format_named
from narrowgauge.contracts.operations import Cast, Claim
from narrowgauge.reference.inputs import Depth, cases_for
from narrowgauge.reference.judge import check_claim
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.offline import Replay
from narrowgauge.suites.program import Ending, converse

#: elements written at once
_ELEMENTS = 1 << 13
_LINES = re.compile(rb"(?:(?:0[xX])?[0-9a-fA-F]{1,16}\r?\n)*")
#: no line with a number is longer
_LONGEST = 20
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, eq=False)
class Stream:
    """What is asked: the cases of a claim, by name, and the form of both streams."""

    claim: Claim
    cases: dict[str, Coded]
    binary: bool

    @classmethod
    def of(cls, claim: Claim, depth: Depth, binary: bool) -> Stream:
        """Raises ``BadInput`` for a claim that cannot be, or is not about single values."""
        check_claim(claim)
        if claim.operation != Cast.operation:
            raise BadInput(f"{claim}: a stream carries single values, so it is for casts alone; leave out --stream")
        return cls(claim, cases_for(claim, depth), binary)

    @property
    def total(self) -> int:
        return sum(x.data.size for x in self.cases.values())

    def questions(self) -> Iterator[bytes]:
        """The inputs as they go out, in blocks."""
        source = format_named(self.claim.source)
        for x in self.cases.values():
            flat = x.codes.reshape(-1)
            for start in range(0, flat.size, _ELEMENTS):
                block = flat[start : start + _ELEMENTS]
                yield block.tobytes() if self.binary else as_lines(block, source)


def as_lines(codes: Codes, fmt: Format) -> bytes:
    """Codes as lines of hexadecimal digits, as many to a line as the format's bits need."""
    digits = (fmt.bits + 3) // 4
    shifts = np.arange(4 * (digits - 1), -1, -4, dtype=np.uint64)
    lines = np.full((codes.size, digits + 1), ord("\n"), np.uint8)
    lines[:, :-1] = _DIGITS[(codes.astype(np.uint64)[:, None] >> shifts & np.uint64(15)).astype(np.intp)]
    return lines.tobytes()


class Answers:
    """The codes that come back. They are given in blocks as they arrive, cut anywhere."""

    def __init__(self, fmt: Format, most: int, binary: bool, origin: str) -> None:
        self._fmt, self._most, self._binary, self._origin = fmt, most, binary, origin
        self._parts: list[npt.NDArray[np.uint64]] = []
        self._rest = b""  # of a line or a word
        self.count = 0

    def hear(self, block: bytes) -> bool:
        """Take a block; False when there are more answers than inputs. Raises ``BadInput`` for a line without one."""
        self._rest += block
        width = self._fmt.storage.itemsize
        end = len(self._rest) // width * width if self._binary else self._rest.rfind(b"\n") + 1
        whole, self._rest = self._rest[:end], self._rest[end:]
        part = np.frombuffer(whole, self._fmt.storage).astype(np.uint64) if self._binary else self._numbers(whole)
        if not self._binary and len(self._rest) > _LONGEST:
            self._refuse(self.count + part.size, self._rest)
        self._parts.append(part)
        self.count += part.size
        return self.count <= self._most

    def _numbers(self, lines: bytes) -> npt.NDArray[np.uint64]:
        each = lines.split(b"\n")[:-1]
        if _LINES.fullmatch(lines) is None:
            number = next(i for i, line in enumerate(each) if not _LINES.fullmatch(line + b"\n"))
            self._refuse(self.count + number, each[number])
        return np.array([int(line, 16) for line in each], np.uint64)

    def _refuse(self, before: int, line: bytes) -> None:
        shown = line[:40].decode(errors="replace").rstrip("\r")
        raise BadInput(
            f"{self._origin}: line {before + 1} is {shown!r}; expected a code of {self._fmt.name} in hexadecimal, "
            "one to a line, and nothing else"
        )

    def finished(self) -> tuple[Coded, tuple[str, ...]]:
        """All codes, and what is wrong with their form. A number that is no code stays, for the judge to see."""
        if self._rest and not self._binary:
            self.hear(b"\n")  # the last line may lack its end
        codes = np.concatenate([np.zeros(0, np.uint64), *self._parts])
        wrong = []
        if self._rest:
            wrong = [f"the stream ends within a word of {self._fmt.storage.itemsize} bytes"]
        if codes.size != self._most:
            gave = f"more than {self._most:,}" if codes.size > self._most else f"{codes.size:,}"
            wrong += [f"{gave} answers to {self._most:,} inputs (of this --depth), so nothing was compared"]
        fits = codes.size == 0 or int(codes.max()) <= np.iinfo(self._fmt.storage).max
        return Coded(self._fmt.name, codes.astype(self._fmt.storage) if fits else codes), tuple(wrong)


def judge_answers(stream: Stream, blocks: Iterable[bytes], origin: str, kernel: str, target: str) -> list[Judged]:
    """Verdicts on answers that are there already, one per case. Raises ``BadInput`` for a line that is no number."""

    def listen(hear: Callable[[bytes], bool]) -> Ending:
        for block in blocks:
            if not hear(block):
                break
        return Ending("returned")

    return _judged(stream, listen, origin, Replay(kernel, target, "stream"))


def judge_program(stream: Stream, command: Sequence[str], patience: float, kernel: str, target: str) -> list[Judged]:
    """Start a program, ask it, and give verdicts on its answers, one per case.

    A program that crashes or hangs has failed every case. Raises ``BadInput`` for one that cannot be started, or whose
    output has a line that is no number.
    """
    origin = f"the output of {command[0]}"
    return _judged(
        stream,
        lambda hear: converse(command, stream.questions(), hear, patience),
        origin,
        Replay(kernel, target, "stream"),
    )


def _judged(
    stream: Stream, listen: Callable[[Callable[[bytes], bool]], Ending], origin: str, replay: Replay
) -> list[Judged]:
    answers = Answers(format_named(stream.claim.format), stream.total, stream.binary, origin)
    ending = listen(answers.hear)
    if ending.kind != "returned":
        return [_ended(stream.claim, case, ending, answers.count, stream.total, replay) for case in stream.cases]
    codes, malformed = answers.finished()
    ends = np.cumsum([0, *(x.data.size for x in stream.cases.values())]).tolist()
    return [
        replay.judged(stream.claim, case, x, {"codes": _cut(codes, start, end, x)}, malformed)
        for (case, x), (start, end) in zip(stream.cases.items(), pairwise(ends), strict=True)
    ]


def _cut(codes: Coded, start: int, end: int, x: Coded) -> Coded:
    part = codes.data[start:end]
    return Coded(codes.format, part.reshape(x.shape) if part.size == x.data.size else part)


def _ended(claim: Claim, case: str, ending: Ending, count: int, total: int, replay: Replay) -> Judged:
    """The row of a case for a program that did not come to its end, in the words of a live run."""
    reason = f"{ending.reason}, after {count:,} of {total:,} answers"
    row = replace(
        replay.row(claim, case),
        result="failed",
        outcome=ending.kind,
        reason=f"{ending.kind}: {reason}",
        breaks="its own claim",
    )
    return Judged(row, f"[{ending.kind.upper()}] {replay.subject(claim, case)}: {reason}")
