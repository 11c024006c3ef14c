"""All probes together: what to launch, and the portrait that the answers make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.probes import extremes, integers, order, output, rounding, scales, splits, width
from narrowgauge.reference.probes.probe import Answers, Finding, Probe, rows_of, unsaid
from narrowgauge.reference.probes.rows import Key, Sheet, sheets
from narrowgauge.reference.probes.setting import Setting

#: in the order in which they are read: some need what others found
PROBES: tuple[Probe, ...] = (
    order.FINE_PROBE,
    order.COARSE_PROBE,
    width.PROBE,
    rounding.PROBE,
    order.REACH_PROBE,
    extremes.SUBNORMALS,
    extremes.RANGE,
    splits.PROBE,
    scales.PROBE,
    output.PROBE,
    integers.PROBE,
)
#: findings that follow from several probes, or from several launches
SCHEDULE = ("promotion", "split_k", "repeats")
HALF = "half"
#: K is long enough for windows of 128, and short enough to be cheap
LENGTH = 512
LEAST = 128
#: what probes of integers need is no more rows than these, since K is long
FEW = 16


@dataclass(frozen=True)
class Stage:
    """Launches at one length of K."""

    setting: Setting
    sheets: tuple[Sheet, ...]


def stages(setting: Setting, rows: int = 256) -> list[Stage]:
    """What to launch: everything at K; the search for stretches at K / 2 again; long sums of integers.

    Keys begin with the probe's name, those of the second stage with "half". Raises ``BadInput`` for a K that is too
    short.
    """
    if setting.k < LEAST or setting.k % LEAST:
        raise BadInput(f"K of {setting.k}: probes need a multiple of {LEAST}, {LEAST} at least; usual is {LENGTH}")
    named = {(probe.name, *key): row for probe in PROBES for key, row in rows_of(probe, setting).items()}
    found = [Stage(setting, tuple(sheets(setting, named, rows)))]
    if setting.k >= 2 * LEAST:
        half = setting.of_length(setting.k // 2)
        again = {(HALF, *key): row for key, row in rows_of(order.COARSE_PROBE, half).items()}
        found.append(Stage(half, tuple(sheets(half, again, rows))))
    if integers.suits(setting):
        long = setting.of_length(integers.LONG)
        whole = {(integers.PROBE.name, *key): row for key, row in rows_of(integers.PROBE, long).items()}
        found.append(Stage(long, tuple(sheets(long, whole, rows, FEW))))
    return found


@dataclass(frozen=True)
class Portrait:
    """What was found, by name, in the order of the probes."""

    setting: Setting
    findings: Mapping[str, Finding]

    @property
    def summary(self) -> str:
        """In a line: "13 bits, no promotion, chain of 32, scales per block"."""
        said = {name: f.value for name, f in self.findings.items() if f.value}
        words = [
            f"{said['width']} bits" if "width" in said else "",
            {"none": "no promotion"}.get(said.get("promotion", ""), f"sums of {said.get('promotion')} added up")
            if "promotion" in said
            else "",
            f"split-k of {said['split_k']}" if said.get("split_k", "none") != "none" else "",
            said.get("order", ""),
            f"scales {SITES.get(said['scales'], said['scales'])}" if "scales" in said else "",
            f"operands {said['operands']}" if "operands" in said else "",
            {"exact": "exact integers"}.get(said.get("integers", ""), ""),
            said.get("overflow", ""),
        ]
        return ", ".join(word for word in words if word) or "nothing could be asked"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "summary": self.summary,
            "a": self.setting.a.format,
            "b": self.setting.b.format,
            "out": self.setting.out,
            "k": self.setting.k,
            "findings": {name: finding.to_json() for name, finding in self.findings.items()},
        }


SITES = {"stretch": "per block", "sum": "at the end", "exact": "inside the unit", "operands": "in the operands"}


def portrait(setting: Setting, answers: Answers, again: Sequence[Answers] = ()) -> Portrait:
    """What the answers of all stages say; ``again``: those of the same launches, run again."""
    found: dict[str, Finding] = {}
    for probe in PROBES:
        own = of_probe(answers, probe.name)
        found |= {finding.name: finding for finding in probe.read(setting, own, found)}
    half = order.COARSE_PROBE.read(setting.of_length(setting.k // 2), of_probe(answers, HALF, "coarse"), {})
    found |= {f.name: f for f in (*_schedule(setting, found, half[0]), _repeated(answers, again))}
    return Portrait(setting, found)


def of_probe(answers: Answers, name: str, *kinds: str) -> dict[Key, float]:
    """The answers of one probe, by its own keys."""
    return {key[1:]: value for key, value in answers.items() if key[0] == name and (not kinds or key[1] in kinds)}


def _schedule(setting: Setting, found: Mapping[str, Finding], half: Finding) -> list[Finding]:
    """Stretches that stay as long as they are where K is halved are promoted; those that are halved too are splits."""
    whole = found["stretch"].value
    if not whole:
        return _from_reach(found)
    if whole == "none":
        return [
            Finding("promotion", "none", "the accumulator is never added to another"),
            Finding("split_k", "none", "K is summed in one piece"),
        ]
    if not whole.isdecimal():
        why = f"the order over K is no chain of stretches: {found['stretch'].words}"
        return [unsaid("promotion", why), unsaid("split_k", why)]
    length, parts = int(whole), setting.k // int(whole)
    if half.value == str(length // 2):
        return [
            Finding("promotion", "none", "stretches become shorter with K: they are parts of a split"),
            Finding("split_k", str(parts), f"K is summed in {parts} parts, which are added up"),
        ]
    if half.value == whole or (half.value == "none" and length == setting.k // 2):
        return [
            Finding("promotion", whole, f"every {length} products the sum is added to another"),
            Finding("split_k", "none", "stretches stay as long as they are when K is halved: no split"),
        ]
    why = f"stretches of {length} at K = {setting.k}, and {half.value or 'unknown ones'} at K = {setting.k // 2}"
    return [Finding("promotion", whole, why), unsaid("split_k", why)]


def _from_reach(found: Mapping[str, Finding]) -> list[Finding]:
    """What is known where the order cannot be seen: from which place on a small term is safe."""
    place = found["kept_from"].value
    if place.isdecimal():
        return [
            Finding("promotion", place, f"from k = {place} on, a small term is safe from a large one at 0"),
            unsaid("split_k", "a split would look like promotion"),
        ]
    if place == "never":
        return [Finding("promotion", "none", "a small term is lost wherever it stands"), unsaid("split_k", "not seen")]
    why = found["stretch"].words
    return [unsaid("promotion", why), unsaid("split_k", why)]


def _repeated(answers: Answers, again: Sequence[Answers]) -> Finding:
    if not again:
        return unsaid("repeats", "launched once")
    differing = {key for one in again for key, value in one.items() if repr(value) != repr(answers[key])}
    asked = len(again[0])
    if not differing:
        return Finding("repeats", "same", f"{asked} rows gave the same results in {len(again) + 1} launches")
    return Finding("repeats", "differ", f"{len(differing)} of {asked} rows changed within {len(again) + 1} launches")
