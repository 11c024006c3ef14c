"""The order of an audit: headers, configuration and names, then the numbers; findings as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from narrowgauge.checkpoints import online
from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.bytes import weigh
from narrowgauge.checkpoints.configured import configuration
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.checkpoints.report import AS_IT_IS, Found, Progress, Report
from narrowgauge.checkpoints.work import each
from narrowgauge.contracts.errors import BadInput

Event = Found | Progress | Report


def audit(asked: Asked) -> Iterator[Event]:
    """Findings as they come, progress between them, and at the end the report.

    Raises ``BadInput`` for what is no checkpoint, and where ``--only`` leaves no tensor.
    """
    yield Progress("headers", 0, 0)
    report = Report(asked, open_checkpoint(asked.path, asked.torch_weights))
    report.chosen = [t for t in report.checkpoint.tensors.values() if asked.wants(t)]
    if not report.chosen:
        raise BadInput(f"--only {asked.only!r} matches none of {len(report.checkpoint.tensors):,} tensors")
    for stage in STAGES:
        for event in stage(report):
            if isinstance(event, Found):
                report.found.append(event)
            yield event
    yield report


def _found(report: Report, about: str, finding: Finding) -> Found:
    tensor = report.checkpoint.tensors.get(finding.tensor)
    return Found(about, finding, tensor.role if tensor else "model")


# --- stages ----------------------------------------------------------------------------------------------------------


def _headers(report: Report) -> Iterator[Event]:
    """What names, shapes and the configuration say."""
    checkpoint = report.checkpoint
    report.configuration = configuration(checkpoint)
    report.passports, wrong = passports(checkpoint)
    report.weighed = weigh(checkpoint, report.passports)
    for finding in wrong:
        yield _found(report, AS_IT_IS, finding)


def _online(report: Report) -> Iterator[Event]:
    """What quantizing the weights by each recipe that was asked for would do."""
    recipes = [d for d in report.asked.to if d.how == "recipe"]
    weights = [t for t in report.chosen if online.is_weight(t)]
    report.spared = [t.name for t in weights if online.is_spared(t.name)]
    taken = [t for t in weights if not online.is_spared(t.name)]
    for to in recipes:
        done, total = 0, sum(t.size for t in taken)
        for tensor, one in each(partial(online.of_weight, to=to), taken, report.asked.workers):
            done += tensor.size
            report.online.append(one)
            for finding in online.findings_of(one, to):
                yield _found(report, f"to {to.name}", finding)
            yield Progress(f"quantizing by {to.name}", done, total, tensor.name)


STAGES: tuple[Callable[[Report], Iterator[Event]], ...] = (_headers, _online)
