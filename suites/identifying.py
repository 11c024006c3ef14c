"""Ask what a kernel is, whatever it claims: on devices, or from files of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from narrowgauge.contracts.coded import given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim, Quantize, observe
from narrowgauge.reference.behaviour import resolved
from narrowgauge.reference.form import takes
from narrowgauge.reference.identify import Identity, Seen, identify
from narrowgauge.reference.inputs import DEPTHS, Depth, case_named
from narrowgauge.reference.judge import check_claim
from narrowgauge.suites.judging import Judged, not_run, run_cell
from narrowgauge.suites.offline import judge_files
from narrowgauge.suites.planning import Planned, plan_cases
from narrowgauge.suites.run import Run


@dataclass(frozen=True)
class Found:
    """What a kernel is for one source and format on one target."""

    kernel: str
    target: str
    how: str
    claim: Claim  #: the observation
    cases: tuple[str, ...]  #: the input sets that it returned an answer for
    identity: Identity | None  #: None where there is no answer
    problems: tuple[str, ...]  #: each case in which it crashed, hung, raised or gave an answer in a wrong form
    beyond: tuple[str, ...]  #: the same of cases that the recipes it follows, or the nearest ones, do not take either
    unrun: tuple[str, ...]  #: reasons why cases were not executed

    @property
    def follows(self) -> tuple[str, ...]:
        """The named rules that it follows: none where a case has no usable answer."""
        return self.identity.follows if self.identity is not None and not self.problems else ()

    @property
    def executed(self) -> bool:
        return self.identity is not None or bool(self.problems)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "target": self.target,
            "how": self.how,
            "claim": str(self.claim),
            "operation": self.claim.operation,
            "source": self.claim.source,
            "format": self.claim.format,
            "cases": list(self.cases),
            "follows": list(self.follows),
            "identity": None if self.identity is None else self.identity.to_json(),
            "problems": list(self.problems),
            "beyond": list(self.beyond),
            "not_executed": list(self.unrun),
        }


def identify_kernel(run: Run, name: str, formats: Sequence[str], sources: Sequence[str]) -> Iterator[Found]:
    """What a kernel of the run is, for each format, source and target.

    ``formats`` and ``sources`` choose among those that it names; empty for all of them.
    Raises ``BadInput`` for a kernel, a format or a source that is not there.
    """
    plugged = _observed(run.kernel_named(name), formats, sources)
    operation = plugged.kernel.contract.of  # type: ignore[union-attr]  # an observation, as of the line above
    cells = plan_cases([plugged], run.devices, operation, _depth(operation, run.depth))
    if not cells:
        devices = ", ".join(device.id for device in run.devices)
        raise BadInput(
            f"kernel {name!r} ({plugged.kernel.backend}) is not for {devices}; 'narrowgauge devices' lists all"
        )
    for _, group in groupby(cells, key=lambda cell: (cell.claim, cell.device.target)):
        yield found_in(list(_answers(group, run.timeout)))


def _depth(operation: str, asked: Depth) -> Depth:
    """A quantizer is asked at "standard" at least: with few columns, a group is a row."""
    return "standard" if operation == Quantize.operation and asked == DEPTHS[0] else asked


def found_in(judged: Sequence[Judged]) -> Found:
    """What the cases of one claim on one target say together."""
    row = judged[0].row
    given = next((tuple(given_with(j.x)) for j in judged if j.x is not None), ())
    claim = Claim(observe(row.operation, given), row.source, row.format)
    answers = [j for j in judged if j.row.outcome == "returned" and not j.row.malformed and j.outputs]
    seen = [Seen(j.x, j.outputs) for j in answers if j.x is not None and j.outputs is not None]
    sized = [one for one in seen if one.x.data.size]
    identity = identify(claim, sized) if sized else None
    wrong = [j for j in judged if j not in answers and j.row.result != "not_executed"]
    beyond = [j for j in wrong if identity is not None and _is_beyond(claim, identity, j)]
    return Found(
        kernel=row.kernel,
        target=row.target,
        how=row.how,
        claim=claim,
        cases=tuple(j.row.case for j in answers),
        identity=identity,
        problems=tuple(f"case {j.row.case}: {j.row.reason}" for j in wrong if j not in beyond),
        beyond=tuple(f"case {j.row.case}: {j.row.reason}" for j in beyond),
        unrun=tuple(dict.fromkeys(j.row.reason for j in judged if j.row.result == "not_executed")),
    )


def _is_beyond(claim: Claim, identity: Identity, judged: Judged) -> bool:
    """Whether a quantizer refused, or answered in its own way, a matrix that its blocks do not divide.

    A kernel that crashed or hung has no such excuse.
    """
    if claim.operation != Quantize.operation or judged.x is None or judged.row.outcome not in ("raised", "returned"):
        return False
    names = identity.follows or identity.nearest
    rules = [replace(claim, contract=Quantize(name)) for name in names]
    return bool(rules) and not any(takes(rule, judged.x.shape) for rule in rules)


def identify_files(inputs: Path, outputs: Path, kernel: str, target: str) -> Found:
    """The same from files, whatever the inputs file claims. Raises ``BadInput`` that names file and tensor."""
    return found_in(judge_files(inputs, outputs, kernel, target))


def _observed(plugged: Plugged, formats: Sequence[str], sources: Sequence[str]) -> Plugged:
    """The same kernel with nothing claimed, for the formats and sources that are chosen."""
    kernel = plugged.kernel
    operation = kernel.claims[0].operation
    if any(claim.layouts for claim in kernel.claims):
        raise BadInput(
            f"kernel {kernel.name!r} packs its outputs; what it is can be said of matrices alone: unpack them"
        )
    inputs = tuple(resolved(kernel.claims[0]).inputs)
    chosen = replace(
        kernel,
        contract=observe(operation, inputs),
        formats=_chosen("format", formats, kernel.formats, kernel.name),
        sources=_chosen("source", sources, kernel.sources, kernel.name),
    )
    for claim in chosen.claims:
        check_claim(claim)
    return replace(plugged, kernel=chosen)


def _chosen(kind: str, asked: Sequence[str], has: tuple[str, ...], kernel: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(format_named(name).name for name in asked))
    for name in names:
        if name not in has:
            raise BadInput(f"kernel {kernel!r} does not name {kind} {name!r}; it names {', '.join(has)}")
    return names or has


def _answers(cells: Iterator[Planned], timeout: float) -> Iterator[Judged]:
    """Each case, until one hangs: the next would too."""
    hung = ""
    for cell in cells:
        if hung:
            yield not_run(cell, f"not tried: it hung in case {hung}")
            continue
        judged = run_cell(cell, case_named(cell.case, cell.claim.operation).inputs(cell.claim), timeout=timeout)
        hung = cell.case if judged.row.outcome == "hung" else ""
        yield judged
