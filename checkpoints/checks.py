"""An audit in parts, each a test of its own: the headers, then tensors whose names differ by numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.audit import HEADERS, NUMBERS, done, opened
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.report import Found, Report, pattern_of

#: what stands in headers and configuration, as a part
NAMES = "headers"


@dataclass(frozen=True, eq=False)
class Part:
    """A part of an audit."""

    name: str
    report: Report  #: of the headers: what they say, and nothing of the numbers
    tensors: tuple[Stored, ...] = ()  #: what is to be read; none of the headers

    @property
    def dtype(self) -> str:
        """Our name of the format of the largest tensor, or the file's word where there is none."""
        largest = max(self.tensors, key=lambda tensor: tensor.size, default=None)
        return "" if largest is None else largest.format or largest.dtype

    def found(self) -> list[Found]:
        """What is found in it. Raises ``BadInput`` where a file does not give its bytes."""
        if not self.tensors:
            return self.report.found
        names = {tensor.name for tensor in self.tensors}
        passports = [p for p in self.report.passports if p.weight.name in names]
        mine = replace(self.report, found=[], chosen=list(self.tensors), passports=passports, censuses={}, online=[])
        for _ in done(NUMBERS, mine):
            pass
        return mine.found


def parts(asked: Asked) -> list[Part]:
    """Every part, the headers first; the scales of a weight are with it. Raises as ``audit`` does."""
    report = opened(asked)
    for _ in done(HEADERS, report):
        pass
    return [Part(NAMES, report), *_by_pattern(report)]


def _by_pattern(report: Report) -> Iterator[Part]:
    modules = {tensor.name: p.module for p in report.passports for tensor in p.tensors.values()}
    same: dict[str, list[Stored]] = {}
    for tensor in report.chosen:
        same.setdefault(pattern_of(modules.get(tensor.name, tensor.name)), []).append(tensor)
    for pattern, tensors in same.items():
        yield Part(pattern, report, tuple(tensors))
