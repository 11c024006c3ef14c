"""What is found about the scales of a cache: by numbers, from a histogram, and by what is given alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.kv.effect import Effect, Effects
from narrowgauge.reference.landmarks import has_subnormals, smallest_normal
from narrowgauge.reference.measures import spacing
from narrowgauge.reference.number_line import value_of


@dataclass(frozen=True)
class Threshold:
    """From where on something is a finding."""

    value: float
    words: str

    @property
    def said(self) -> str:
        return self.words.format(f"{self.value:g}")


THRESHOLDS = {
    "loss": Threshold(3.0, "the scale in use costs more than {} dB of SQNR against the best of the grid"),
    "enough": Threshold(40.0, "an SQNR above {0} dB counts as {0} dB"),
    "clipped": Threshold(1e-5, "more than {} of the elements are clipped"),
    "flushed": Threshold(1e-2, "more than {} of those that are not 0 become 0"),
    "poor": Threshold(20.0, "the SQNR is below {} dB under the best scale"),
    "head": Threshold(
        8.0,
        "a head's largest magnitude is below {0} times the smallest normal value under the good scale (of an integer "
        "format: below the largest over {0})",
    ),
}

#: level, and what it means. Of level "wrong" one is enough for the exit code of findings; "note" is said, no more
KINDS: dict[str, tuple[str, str]] = {
    "needs a scale": ("wrong", "the scale in use is 1, or none was given, and it costs more decibels than it may"),
    "the scale is off": ("wrong", "the scale that is given costs more decibels than it may"),
    "clips": ("wrong", "more elements than may be lie beyond the largest value and come back smaller"),
    "flushes": ("wrong", "more elements than may be are not 0 and come back as 0"),
    "loses": ("wrong", "elements come back as NaN or infinity, which they were not"),
    "no scale helps": ("wrong", "under the best scale for the whole layer the error is still large"),
    "not finite": ("wrong", "K or V has NaN or infinities before anything is quantized"),
    "unity is harmless here": ("note", "the scale in use is 1, and the numbers do not suffer from it"),
    "a scale per head": ("note", "a head is so much smaller than the largest that it gets few of the format's values"),
    "not judged": ("note", "one scale a head is given, and a histogram of all heads cannot be put under it"),
    "unusable": ("wrong", "the engine divides by a scale that is not a finite number above 0"),
    "the engine ends": ("wrong", "with these scales the engine raises an exception"),
    "unity": ("wrong", "the scale in use is 1 and nothing was measured: it may be meant, and it may be missing"),
    "no engine warns": ("note", "a cache of e5m2 runs at 1 without a line in the log"),
    "zero": ("wrong", "a scale of exactly 0"),
    "negative": ("wrong", "a scale below 0"),
    "not a number": ("wrong", "a scale that is NaN or infinite"),
    "one of the pair": ("wrong", "a scale for one of K and V, and none for the other"),
    "missing here": ("wrong", "other layers have scales and this one has none"),
    "not loaded": ("wrong", "the checkpoint holds scales, and its configuration makes the engine pass them over"),
    "promised": ("wrong", "the configuration asks for a narrow cache, and the checkpoint holds no scale for it"),
    "not declared": ("note", "the checkpoint holds scales, and its configuration says that the cache is not narrow"),
    "all alike": ("note", "every layer has the same scale: a floor or a default, rather than a calibration"),
    "K and V alike": ("note", "K and V of every layer share their scale: some exporters take the larger of both"),
}


@dataclass(frozen=True)
class Finding:
    """Something found, about a part of a layer, a layer, or ("") the whole."""

    kind: str
    said: str
    layer: str = ""
    part: str = ""

    @property
    def wrong(self) -> bool:
        return KINDS[self.kind][0] == "wrong"

    def to_json(self) -> dict[str, str]:
        return {
            "kind": self.kind,
            "level": KINDS[self.kind][0],
            "said": self.said,
            "layer": self.layer,
            "part": self.part,
        }


@dataclass(frozen=True)
class Judged:
    """A part of a layer under the scale in use and under good ones."""

    layer: str
    part: str
    effects: Effects
    given: Any  #: what was given for it: a number, one a head, or None
    scale: float | tuple[float, ...] | None  #: in use; None where the engine ends
    used: Effect | None  #: None where one scale a head is in use, none, or one that is no finite number above 0
    by_amax: Effect
    best: Effect
    findings: tuple[Finding, ...] = field(default=())

    @property
    def good(self) -> Effect:
        """The scale of the largest magnitude, which clips nothing; the best one where that loses more than it may."""
        lost = sum(self.best.sqnr) / 2 - sum(self.by_amax.sqnr) / 2
        return self.best if lost > THRESHOLDS["loss"].value else self.by_amax

    @property
    def loss(self) -> float:
        """Decibels that the scale in use surely costs against the best; 0 where none, or where it is not known."""
        if self.used is None:
            return 0.0
        best, used = (min(sqnr, THRESHOLDS["enough"].value) for sqnr in (self.best.sqnr[0], self.used.sqnr[1]))
        return max(0.0, best - used) if best > used else 0.0

    @property
    def worst_first(self) -> tuple[float, ...]:
        """Ascending from the worst."""
        lost = self.used.share("lost") if self.used else 0.0
        return (-lost, -self.loss, -(self.used.share("clipped") if self.used else 0.0))

    def to_json(self) -> dict[str, Any]:
        h = self.effects.histogram
        return {
            "layer": self.layer, "part": self.part, "elements": h.elements, "nan": h.nan, "inf": h.inf,
            "amax": [float(a) for a in h.amax], "seen": h.place, "rope": h.rope, "given": self.given,
            "scale": self.scale, "recipe": self.effects.recipe.name,
            "in_use": self.used and self.used.to_json(), "by_amax": self.by_amax.to_json(),
            "best": self.best.to_json(), "good_scale": self.good.scale,
            "loss_db": self.loss if np.isfinite(self.loss) else None,
            "findings": [finding.to_json() for finding in self.findings],
        }  # fmt: skip


def judge_part(layer: str, part: str, effects: Effects, given: Any, scale: float | tuple[float, ...] | None) -> Judged:
    """Everything about one part. ``scale`` is the one in use, as ``delivery.delivered`` has it."""
    used = effects.at(scale) if isinstance(scale, float) and _usable(scale) else None
    one = Judged(layer, part, effects, given, scale, used, effects.at(effects.by_amax), effects.best)
    findings = tuple(Finding(kind, said, layer, part) for kind, said in (*_by_numbers(one), *_by_heads(one)))
    return Judged(layer, part, effects, given, scale, used, one.by_amax, one.best, findings)


def _usable(scale: float) -> bool:
    with np.errstate(over="ignore"):
        return bool(0 < np.float32(scale) < np.inf)


def _by_numbers(one: Judged) -> Iterator[tuple[str, str]]:
    histogram, used = one.effects.histogram, one.used
    if histogram.nan or histogram.inf:
        yield "not finite", f"{histogram.nan:,} NaN and {histogram.inf:,} infinities of {histogram.elements:,} elements"
    if isinstance(one.scale, float) and used is None:
        yield "unusable", f"the scale in use is {one.scale:g}; take {one.good.scale:.4g}"
    if used is not None and used.finite:
        harm = list(_harm(one, used))
        yield from harm
        if used.scale == 1.0 and not harm:
            yield "unity is harmless here", f"{decibels(used)} at 1, {decibels(one.best)} at {one.best.scale:.3g}"
    if one.best.sqnr[1] < THRESHOLDS["poor"].value and one.best.nonzero:
        yield "no scale helps", f"{decibels(one.best)} under the best scale, {one.best.scale:.3g}"


def _harm(one: Judged, used: Effect) -> Iterator[tuple[str, str]]:
    good = one.good
    if lost := used.counts["lost"][0]:
        yield "loses", f"{lost:,} of {used.finite:,} elements come back as NaN or infinity"
    for kind, name in (("clips", "clipped"), ("flushes", "flushed")):
        if used.share(name) > THRESHOLDS[name].value:
            every = used.nonzero if name == "flushed" else used.finite
            under = f"{_percent(good.share(name))} under {good.scale:.3g}"
            yield kind, f"{used.counts[name][0]:,} of {every:,}, {_percent(used.share(name))} ({under})"
    if one.loss > THRESHOLDS["loss"].value or (lost and not one.best.counts["lost"][1]):
        kind = "needs a scale" if one.given is None or used.scale == 1.0 else "the scale is off"
        said = (
            f"{decibels(used)} at {used.scale:.4g}, {decibels(one.best)} at {one.best.scale:.4g}; take {good.scale:.4g}"
        )
        yield kind, said + "".join(f" ({hint})" for hint in _hints(used.scale, one))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


#: what a scale over the good one tells, to within a quarter of an octave; and whether its reciprocal is meant
RATIOS = (
    (2.0, "twice the good one: doubled for FNUZ, and read as OCP?"),
    (0.5, "half the good one: meant for FNUZ before it is doubled, or halved for it?"),
    (448 / 57344, "2^-7 of the good one: calibrated for e5m2's largest value, and the cache is e4m3?"),
    (57344 / 448, "2^7 times the good one: calibrated for e4m3's largest value, and the cache is e5m2?"),
    (1 / 448.0, "1/448 of the good one: divided by 448 twice?"),
)


def _hints(scale: float, one: Judged) -> Iterator[str]:
    """What the scale in use may have been, if it is the good one times or under something known."""
    good = one.by_amax.scale
    if scale == 1.0 or scale <= 0:
        return
    if abs(np.log2(scale * good)) < 0.25 and abs(np.log2(scale / good)) > 1:
        yield "the reciprocal of the good one"
    for ratio, said in RATIOS:
        if abs(np.log2(scale / good / ratio)) < 0.25:
            yield said


def decibels(effect: Effect) -> str:
    """An interval in few letters."""
    low, high = effect.sqnr
    if low == high:
        return "exact" if low == np.inf else f"{low:.1f} dB"
    return f"{low:.1f} to {high:.1f} dB"


def _by_heads(one: Judged) -> Iterator[tuple[str, str]]:
    """Heads that one scale for all does not fit: by their largest magnitudes alone."""
    amax = one.effects.histogram.amax.astype(np.float64)
    if isinstance(one.scale, tuple):
        yield from _under_own(one, amax)
        return
    held = amax[amax > 0]
    if held.size < 2:
        return
    least = _least(one.effects) * one.good.scale
    small = int((held < least).sum())
    if small:
        said = (
            f"{small} of {held.size} heads have a largest magnitude below {least:.3g}, the largest is {held.max():.3g}"
        )
        yield "a scale per head", said


def _least(effects: Effects) -> float:
    """The magnitude, in units of the scale, from which on a head's values have the format's precision for a while."""
    fmt, threshold = format_named(effects.format), THRESHOLDS["head"].value
    if has_subnormals(fmt):
        return value_of(smallest_normal(fmt), fmt) * threshold
    return effects.recipe.destination(effects.format).bound / threshold


def _under_own(one: Judged, amax: Any) -> Iterator[tuple[str, str]]:
    """Heads that their own scale clips: what is within half of the last step is rounded, as everywhere."""
    scales = np.array(one.scale, np.float64)
    if scales.shape != amax.shape:
        yield "not judged", f"{scales.size} scales and {amax.size} heads"
        return
    bound = np.asarray(one.effects.recipe.destination(one.effects.format).bound)
    beyond = amax > scales * (bound + spacing(bound, format_named(one.effects.format)) / 2)
    if beyond.any():
        yield "clips", f"{int(beyond.sum())} of {amax.size} heads have magnitudes beyond their own scale's range"
    else:
        yield "not judged", "one scale a head: none of them clips, and flushing is not known"
