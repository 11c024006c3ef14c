"""Where scales are applied, in which order and as what they are kept, and how far a block reaches along K."""

from __future__ import annotations

import math

from narrowgauge.reference.probes.probe import Answers, Finding, Findings, Probe, kept, unsaid
from narrowgauge.reference.probes.rows import Key, Row, Rows, Scales
from narrowgauge.reference.probes.scale_rows import product, starts, telling
from narrowgauge.reference.probes.scalings import Sums
from narrowgauge.reference.probes.setting import Setting, Side


def _rows(setting: Setting) -> Rows:
    rows: dict[Key, Row | None] = {("way", n): _row(setting, each) for n, each in enumerate(telling(setting)[0])}
    for name, side in (("a", setting.a), ("b", setting.b)):
        if side.scales and side.along and side.along < setting.k:
            rows |= {("reach", name, k): _reach(setting, name, k) for k in _edges(setting, side)}
    return kept(rows)


def _row(setting: Setting, asked: Sums) -> Row:
    """Both sums as powers of two, one behind the other in blocks of their own."""
    begins = starts(setting)
    terms = []
    for place, start in enumerate(begins):
        for n, part in enumerate(asked.parts(place)):
            factors = product(setting, *part)
            assert factors is not None  # as of _held
            terms.append((start + n, *factors))
    return Row(tuple(terms), *_scales(setting, asked, begins))


def _scales(setting: Setting, asked: Sums, begins: tuple[int, int]) -> tuple[Scales, Scales]:
    found: list[dict[int, float]] = []
    for side, pair, last in ((setting.a, asked.a, asked.last[0]), (setting.b, asked.b, asked.last[1])):
        if not side.scales:
            found.append({})
        elif not side.along:
            found.append({0: pair[0]})
        else:
            found.append(
                {(setting.k - 1) // side.along: last} | {s // side.along: p for s, p in zip(begins, pair, strict=True)}
            )
    one, other = (tuple(sorted((k, s) for k, s in each.items() if s != 1)) for each in found)
    return one, other


def _edges(setting: Setting, side: Side) -> list[int]:
    """Places around the ends of the second block, and all through K."""
    near = {n * side.along + d for n in (1, 2) for d in (-1, 0)} | {side.along // 2, side.along * 3 // 2}
    return sorted(k for k in near | set(range(0, setting.k, 16)) if 0 <= k < setting.k)


def _reach(setting: Setting, name: str, k: int) -> Row | None:
    """One product, and 2 as the scale of the second block."""
    factors, second = setting.factors(1.0), ((1, 2.0),)
    if factors is None:
        return None
    return Row(((k, *factors),), second if name == "a" else (), second if name == "b" else ())


# --- reading ---------------------------------------------------------------------------------------------------------

SITES = {
    "sum": "once, to the sum over all of K",
    "stretch": "to the sum of each block of K",
    "first": "the first block's, to all of K",
    "last": "the last block's, to all of K",
    "ignored": "not at all",
    "operands": "to each operand, before the product",
    "exact": "exactly, inside the product",
}
FUSED = {False: "multiplied, then added", True: "multiplied and added in one rounding"}


def _read(setting: Setting, answers: Answers, found: Findings) -> list[Finding]:
    names = ("scales", "scale_order", "scale_kept", "scale_added", "scale_block")
    if not (setting.a.scales or setting.b.scales):
        return [unsaid(name, "the kernel takes no scales") for name in names]
    asked, ways = telling(setting)
    got = [answers["way", n] for n in range(len(asked))]
    fits = [way for way, want in ways.items() if all(map(_same, got, want))]
    block = _block(setting, answers)
    if not fits:
        raw = {"results": " ".join(f"{value!r}" for value in got)}
        return [Finding("scales", "other", "applied in no known way", raw), *(unsaid(n, "") for n in names[1:4]), block]
    sites = dict.fromkeys(way.site for way in fits)
    words = "; or, with the same results, ".join(SITES[site] for site in sites)
    entering = dict.fromkeys(way.enters for way in fits if way.site == "operands")
    value = " or ".join(sites)
    return [
        Finding("scales", value, words, {"enters": ", ".join(entering)} if entering else {}),
        _choice("scale_order", [way.order for way in fits], "{}"),
        _choice("scale_kept", [way.kept_in for way in fits if way.site != "ignored"], "scales are kept as {}"),
        _choice("scale_added", [FUSED[way.fused] for way in fits if way.site == "stretch"], "{}"),
        block,
    ]


def _same(got: float, want: float | None) -> bool:
    return want is None or got == want or (math.isnan(got) and math.isnan(want))


def _choice(name: str, options: list[str], words: str) -> Finding:
    """What all ways that fit have in common."""
    said = [option for option in dict.fromkeys(options) if option]
    if not said:
        return unsaid(name, "nothing to choose where scales are applied like this")
    if len(said) > 2:
        return unsaid(name, f"the results are the same for {', '.join(said)}")
    return Finding(name, " or ".join(said), words.format(" or ".join(said)))


def _block(setting: Setting, answers: Answers) -> Finding:
    said = {}
    for name, side in (("a", setting.a), ("b", setting.b)):
        doubled = sorted(int(str(key[2])) for key, v in answers.items() if key[:2] == ("reach", name) and v == 2)
        if not any(key[:2] == ("reach", name) for key in answers):
            continue
        want = [k for k in _edges(setting, side) if k // side.along == 1]
        said[name] = (
            str(side.along) if doubled == want else f"from {doubled[0]} to {doubled[-1]}" if doubled else "none"
        )
    if not said:
        return unsaid("scale_block", "one scale for all of K")
    value = " and ".join(dict.fromkeys(said.values()))
    return Finding("scale_block", value, f"a scale reaches along K: {', '.join(f'{n} {s}' for n, s in said.items())}")


PROBE = Probe(
    "scales",
    "Where, in which order and in which precision are scales applied?",
    ("scales", "scale_order", "scale_kept", "scale_added", "scale_block"),
    _rows,
    _read,
    "scales",
)
