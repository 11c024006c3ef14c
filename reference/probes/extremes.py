"""Numbers at the ends of ranges: subnormal operands and results, and sums beyond what float16 holds."""

from __future__ import annotations

import math
from collections.abc import Mapping

from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Row, Rows, row
from narrowgauge.reference.probes.setting import Setting, Side


def _subnormals(setting: Setting) -> dict[str, tuple[Row | None, float]]:
    """By name a row and what it gives where nothing is flushed."""
    found: dict[str, tuple[Row | None, float]] = {}
    for name, side, other in (("a", setting.a, setting.b), ("b", setting.b, setting.a)):
        small, partner = side.least, _partner(setting, side, other)
        if side.is_normal(small) or partner is None:
            continue
        pair = (small, partner) if name == "a" else (partner, small)
        found[name] = (Row(((0, *pair),)), small * partner)
    result = _least_normal(setting.out) / 2
    if setting.returns(result * 2) and setting.out not in ("int32",):
        found["result"] = (_normal_row(setting, result), result)
    return found


def _partner(setting: Setting, side: Side, other: Side) -> float | None:
    """A power of two with which the least number of a side gives a normal result."""
    candidates = sorted((e for e in other.exponents if other.is_normal(2.0**e)), key=abs)
    return next((2.0**e for e in candidates if setting.returns(side.least * 2.0**e)), None)


def _normal_row(setting: Setting, product: float) -> Row | None:
    factors = setting.factors(product)
    if factors is None or not (setting.a.is_normal(factors[0]) and setting.b.is_normal(factors[1])):
        return None
    return Row(((0, *factors),))


def _least_normal(format_name: str) -> float:
    return math.ldexp(1.0, 1 - format_named(format_name).bias)


def _subnormal_rows(setting: Setting) -> Rows:
    return kept({(name,): each for name, (each, _) in _subnormals(setting).items()})


#: what is flushed, and what is said of it
FLUSHED: Mapping[tuple[str, ...], str] = {
    (): "kept",
    ("a", "b"): "inputs flushed",
    ("a", "b", "result"): "flushed",
    ("result",): "results flushed",
}


def _read_subnormals(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    want = {name: value for name, (_, value) in _subnormals(setting).items() if (name,) in answers}
    if not want:
        return [unsaid("subnormals", f"{setting.a.format}, {setting.b.format} and {setting.out} have none to ask for")]
    got = {name: answers[(name,)] for name in want}
    raw = {name: f"{value:g}, want {want[name]:g}" for name, value in got.items()}
    if strange := [name for name in want if got[name] not in (0, want[name])]:
        return [Finding("subnormals", "other", f"subnormal {', '.join(strange)} give wrong numbers", raw)]
    zero = tuple(name for name in want if got[name] == 0)
    whole = tuple(name for name in ("a", "b", "result") if name in want)
    value = FLUSHED.get(zero, f"flushed: {', '.join(zero)}") if zero != whole or not zero else "flushed"
    asked = {"a": "a's numbers", "b": "b's numbers", "result": "results"}
    return [Finding("subnormals", value, f"of {', '.join(asked[name] for name in want)}: {value}", raw)]


SUBNORMALS = Probe(
    "subnormals", "Are subnormal operands and results kept?", ("subnormals",), _subnormal_rows, _read_subnormals
)


# --- range -----------------------------------------------------------------------------------------------------------

#: half of what is beyond a float16: two of it overflow there
HALF = 2.0**15


def _range_rows(setting: Setting) -> Rows:
    return kept({("float16",): _beyond(setting)})


def _beyond(setting: Setting) -> Row | None:
    """Eight times so much of either sign that the sum is beyond float16 in the middle, and 0 at the end."""
    step = next((HALF / n for n in (1, 2, 4) if setting.factors(HALF / n) and setting.factors(-HALF / n)), None)
    if step is None:
        return None
    count = int(2 * HALF / step)
    up, down = (range(start, start + 32 * count, 32) for start in (0, setting.k // 2))
    if up[-1] >= setting.k // 2:
        return None
    return row(setting, dict.fromkeys(up, step) | dict.fromkeys(down, -step))


def _read_range(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    if ("float16",) not in answers:
        return [unsaid("range", f"{setting.a.format} x {setting.b.format} give no sum beyond float16")]
    value = answers[("float16",)]
    if value == 0:
        return [Finding("range", "float32", "a sum of 65,536 on the way comes back: more range than float16")]
    return [Finding("range", "float16", f"a sum of 65,536 on the way gives {value:g}: kept in float16 at some place")]


RANGE = Probe("range", "May a sum on its way be beyond float16?", ("range",), _range_rows, _read_range)
