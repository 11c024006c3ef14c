"""The order of an audit: headers, configuration and names, then the numbers; findings as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.checkpoints import moving, online
from narrowgauge.checkpoints.against import compare_one
from narrowgauge.checkpoints.against_config import config_findings
from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.blocked import census_of_values, is_blocked
from narrowgauge.checkpoints.bytes import weigh
from narrowgauge.checkpoints.census import census_of_run, countable
from narrowgauge.checkpoints.codes import code_findings
from narrowgauge.checkpoints.configured import configuration
from narrowgauge.checkpoints.counted import Census
from narrowgauge.checkpoints.engines.findings import engine_findings
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.flavours import flavour_findings
from narrowgauge.checkpoints.logs import log_findings
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import Passport, passports
from narrowgauge.checkpoints.report import AS_IT_IS, Found, Progress, Report
from narrowgauge.checkpoints.scales import scale_findings
from narrowgauge.checkpoints.shards import shard_findings
from narrowgauge.checkpoints.targets import path_of
from narrowgauge.checkpoints.work import each
from narrowgauge.contracts.errors import BadInput

#: what scales that are not finite say by themselves
OF_SCALES = ("NaN there", "infinity there")
Event = Found | Progress | Report
Stage = Callable[[Report], Iterator[Event]]
#: bytes of a tensor that one process counts at a time: large tensors are shared out
RUN = 1 << 26
#: how much longer a byte takes that is quantized, or read as a weight, than one that is counted
COSTS = 64
#: bytes that are worth the start of other processes
MUCH = 1 << 27


def audit(asked: Asked) -> Iterator[Event]:
    """Findings as they come, progress between them, and at the end the report.

    Raises ``BadInput`` for what is no checkpoint, and where ``--only`` leaves no tensor.
    """
    yield Progress("headers", 0, 0)
    report = opened(asked)
    yield from done(HEADERS, report)
    if not asked.headers_only:
        yield from done(NUMBERS, report)
    yield report


def opened(asked: Asked) -> Report:
    """A report with nothing found yet. Raises as ``audit`` does."""
    report = Report(asked, open_checkpoint(asked.path, asked.torch_weights))
    report.chosen = [t for t in report.checkpoint.tensors.values() if asked.wants(t)]
    if not report.chosen:
        raise BadInput(f"--only {asked.only!r} matches none of {len(report.checkpoint.tensors):,} tensors")
    return report


def done(stages: Sequence[Stage], report: Report) -> Iterator[Event]:
    """What stages find, which the report keeps."""
    for stage in stages:
        for event in stage(report):
            if isinstance(event, Found):
                report.found.append(event)
            yield event


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
    plain = list(config_findings(checkpoint, report.passports))
    for finding in (*checkpoint.findings, *wrong, *shard_findings(report.passports), *plain):
        yield _found(report, AS_IT_IS, finding)
    asked = report.asked
    for to in (d for d in asked.to if d.format == "float16"):
        for finding in config_findings(checkpoint, report.passports, to_float16=True):
            if finding not in plain:
                yield _found(report, f"to {to.name}", finding)
    if asked.kv_cache_dtype:
        for finding in config_findings(checkpoint, report.passports, kv_cache_dtype=asked.kv_cache_dtype):
            if finding not in plain:
                yield _found(report, report.served, finding)


def _served(report: Report) -> Iterator[Event]:
    """What an engine makes of the names, and a target of the quantized weights."""
    asked, method = report.asked, report.configuration.method
    if not (asked.engine or asked.target):
        return
    if asked.target:
        report.paths = {p.module: path_of(p, asked.engine, asked.target, method) for p in report.passports}
    found = engine_findings(report.checkpoint, report.passports, asked.engine, asked.target, asked.kv_cache_dtype)
    for finding in found:
        yield _found(report, report.served, finding)


def _logged(report: Report) -> Iterator[Event]:
    """What an engine's log of its start says."""
    log = report.asked.log
    for finding in log_findings(log) if log is not None else ():
        yield _found(report, f"log {log}", finding)


def _scales(report: Report) -> Iterator[Event]:
    """What the scales of quantized weights say, by themselves and of their codes."""
    taken = report.taken
    done, total = 0, sum(p.size for p in taken)
    for passport, found in each(of_passport, taken, workers(report, total)):
        for finding in found:
            yield _found(report, AS_IT_IS, finding)
        done += passport.size
        yield Progress("scales and codes", done, total, passport.module)


def workers(report: Report, size: int) -> int:
    """Processes for so many bytes of work."""
    return report.asked.workers if size >= MUCH else 1


def of_passport(passport: Passport) -> list[Finding]:
    """Everything that the numbers of one quantized weight say."""
    return [*scale_findings(passport), *code_findings(passport)]


def _numbers(report: Report) -> Iterator[Event]:
    """What stands in the tensors, and what of it is wrong, there or where it is to go."""
    tensors = [t for t in report.chosen if countable(t)]
    into = _into(report)
    runs = [Run(t, skip, min(RUN, t.size - skip), into) for t in tensors for skip in range(0, max(1, t.size), RUN)]
    done, total, before = 0, sum(t.size for t in tensors), None
    known = told(report)
    for run, part in each(count, runs, workers(report, total)):
        census = part if before is None else before + part
        done += run.size
        yield Progress("numbers", done, total, run.tensor.name)
        before = None if run.last else census
        if run.last:
            report.censuses[run.tensor.name] = census
            yield from _moved(report, run.tensor, census, known.get(run.tensor.name, ()))
    yield from _flavours(report)


def _blocks(report: Report) -> Iterator[Event]:
    """The same of weights that stand in blocks, by the numbers that these stand for."""
    taken = [p for p in report.taken if is_blocked(p)]
    done, total = 0, sum(p.size for p in taken)
    for passport, census in each(census_of_values, taken, workers(report, COSTS * total), _into(report)):
        report.censuses[passport.weight.name] = census
        yield from _moved(report, passport.weight, census, OF_SCALES)
        done += passport.size
        yield Progress("blocks", done, total, passport.module)


def _into(report: Report) -> tuple[str, ...]:
    """Where a census looks: in the formats that were asked for alone, since each costs two passes."""
    return tuple(dict.fromkeys(d.format for d in report.asked.to if d.how == "cast"))


def _moved(report: Report, tensor: Stored, census: Census, known: Collection[str]) -> Iterator[Found]:
    """What is wrong with one tensor's numbers, there and where they go."""
    for finding in moving.findings(tensor, census):
        if finding.kind not in known:
            yield _found(report, AS_IT_IS, finding)
    for to in (d for d in report.asked.to if d.how != "recipe"):
        for finding in moving.findings(tensor, census, to.format or to.name):
            yield _found(report, f"to {to.name}", finding)


def told(report: Report) -> dict[str, tuple[str, ...]]:
    """Kinds of findings that a passport answers, by tensor: what bytes hold, and what its scales say by themselves."""
    return {
        tensor.name: ("flavour not recorded", *(OF_SCALES if role != "weight" else ()))
        for passport in report.passports
        for role, tensor in passport.tensors.items()
    }


def _flavours(report: Report) -> Iterator[Found]:
    """What all tensors of codes of one label say together, where none of them says it alone."""
    same: dict[str, list[Census]] = {}
    known = told(report)
    for tensor in report.chosen:
        census = report.censuses.get(tensor.name)
        labelled = tensor.format and not (tensor.format == "uint8" and tensor.name in known)
        if census is not None and census.codes is not None and tensor.role == "model" and labelled:
            same.setdefault(tensor.format, []).append(census)
    said = {found.finding.kind for found in report.found}
    for label, censuses in same.items():
        codes = np.sum([census.codes for census in censuses if census.codes is not None], axis=0)
        together = replace(censuses[0], codes=codes, elements=sum(census.elements for census in censuses))
        for finding in flavour_findings(label, together):
            if finding.kind not in said:
                yield _found(report, AS_IT_IS, finding)


@dataclass(frozen=True)
class Run:
    """A run of a tensor's bytes, whole elements: one task."""

    tensor: Stored
    skip: int
    size: int
    into: tuple[str, ...]

    @property
    def last(self) -> bool:
        return self.skip + self.size == self.tensor.size


def count(run: Run) -> Census:
    """The census of one run."""
    return census_of_run(run.tensor, run.skip, run.size, run.into)


def _online(report: Report) -> Iterator[Event]:
    """What quantizing the weights by each recipe that was asked for would do."""
    recipes = [d for d in report.asked.to if d.how == "recipe"]
    of_quantized = {tensor.name for passport in report.passports for tensor in passport.tensors.values()}
    weights = [t for t in report.chosen if online.is_weight(t) and t.name not in of_quantized]
    report.spared = [t.name for t in weights if online.is_spared(t.name)]
    taken = [t for t in weights if not online.is_spared(t.name)]
    for to in recipes:
        done, total = 0, sum(t.size for t in taken)
        for tensor, one in each(online.of_weight, taken, workers(report, COSTS * total), to):
            done += tensor.size
            report.online.append(one)
            for finding in online.findings_of(one, to):
                yield _found(report, f"to {to.name}", finding)
            yield Progress(f"quantizing by {to.name}", done, total, tensor.name)


def _against(report: Report) -> Iterator[Event]:
    """What the quantized weights stand for, against what they were made from."""
    asked = report.asked
    if asked.against is None:
        return
    yield Progress("headers of the original", 0, 0)
    original = open_checkpoint(asked.against, asked.torch_weights)
    taken = report.taken
    done, total = 0, sum(p.size for p in taken)
    shared = (report.passports, replace(original, temporary=None))
    for passport, one in each(compare_one, taken, workers(report, COSTS * total), *shared):
        report.compared.append(one)
        if one.finding:
            yield _found(report, f"against {asked.against}", one.finding)
        done += passport.size
        yield Progress("against the original", done, total, passport.module)
    if not any(one.original for one in report.compared):
        said = f"of {len(taken):,} quantized weights none has its original in {asked.against}"
        yield _found(report, f"against {asked.against}", Finding("nothing compared", said))


HEADERS: tuple[Stage, ...] = (_headers, _served, _logged)
NUMBERS: tuple[Stage, ...] = (_scales, _numbers, _blocks, _online, _against)
