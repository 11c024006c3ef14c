"""What ``narrowgauge audit`` says on a screen."""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from narrowgauge.checkpoints.against import Compared
from narrowgauge.checkpoints.model import Role
from narrowgauge.checkpoints.online import OfWeight
from narrowgauge.checkpoints.report import LEVELS, Found, Group, Report, grouped, pattern_of
from narrowgauge.plugin.screen import Grid, Line, facts

STYLE = {"wrong": "bold red", "doubt": "yellow", "note": "dim"}
#: places of an element that stand in a line, entries of a list, and letters of a name's worth of them
PLACES, NAMED = 3, 2
#: columns from which what is said of a finding stands beside it: below it, sentences are read more easily
BESIDE = 240


def plain(text: str) -> str:
    """A stranger's text with escapes for what is not printable: a name can hold a terminal's control sequences."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_markdown(text: str) -> str:
    """A stranger's text for GitHub's Markdown: none of it becomes markup, HTML or a formula, and no cell ends early."""
    return re.sub(r"([\\`*_{}\[\]|~#$])", r"\\\1", html.escape(plain(text), quote=False))


def said_now(found: Found) -> Text:
    """A finding in one line, while the work goes on."""
    where = f" {found.finding.tensor}" if found.finding.tensor else ""
    text = Text(found.level, STYLE[found.level])
    return text + Text(plain(f"  {found.about}: {found.finding.kind}{where}: {found.finding.said}"))


def report_texts(report: Report, top: int, width: int) -> list[Text]:
    """The whole report, the verdict first."""
    groups = grouped(report)
    head = facts(((name, plain(said)) for name, said in about(report)), width, indent=0)
    texts = [*head]
    for level in LEVELS:
        mine = [g for g in groups if g.first.level == level]
        if mine:
            texts += [Text(), *_findings(level, mine, top, width)]
    if report.taken:
        texts += [Text(), *_passports(report, top, width)]
    if report.online:
        texts += [Text(), *_online(report.online, top, width)]
    if report.compared:
        texts += [Text(), *_compared(report.compared, top, width)]
    return texts


def about(report: Report) -> Iterator[tuple[str, str]]:
    """The verdict, and what was looked at, in pairs of a name and what is said."""
    yield "verdict", verdict(report)
    for answer in report.answers:
        yield answer.about, answer.said
    yield "checkpoint", f"{report.asked.path}: {_contents(report)}"
    c = report.configuration
    if c.method:
        by = f", by {c.producer}" if c.producer else ""
        yield "quantized", f"{c.method}, as {c.where} says{by}"
    w = report.weighed
    if w.parameters:
        yield (
            "size",
            (
                f"{w.parameters:,} parameters, {w.each:.4g} bytes each; {_bytes(w.size)} of weights"
                + (f"; quantized: {w.quantized:,} at {w.each_quantized:.4g} bytes" if w.quantized else "")
            ),
        )
        yield (
            "decode floor",
            (
                f"{_time(w.floor(report.asked.bandwidth))} a token, where all weights are read once at "
                f"{report.asked.bandwidth:g} TB/s"
            ),
        )
    for path, count in Counter(report.paths[p.module] for p in report.taken if p.module in report.paths).items():
        yield "compute path", f"{count:,} quantized tensors: {path}"
    yield from not_read(report)


def verdict(report: Report) -> str:
    """One line: whether it survives what was asked, and whether something is wrong with it without that."""
    moved = [a for a in report.answers if a.about.startswith("to ") or a.about == report.served]
    said = []
    if lost := [a.about for a in moved if not a.survives]:
        said.append(f"does not survive: {', '.join(lost)}")
    if wrong := [a.about for a in report.answers if a not in moved and not a.survives]:
        said.append(f"something is wrong: {', '.join(wrong)}")
    if not said:
        said.append(f"survives: {', '.join(a.about for a in moved)}" if moved else "nothing is wrong")
    return "; ".join(said + (["numbers were not read"] if report.asked.headers_only else []))


def not_read(report: Report) -> Iterator[tuple[str, str]]:
    """What was passed over, and what was not understood."""
    if report.checkpoint.unread:
        yield "not read", listed(report.checkpoint.unread)
    every = len(report.checkpoint.tensors)
    if len(report.chosen) < every:
        yield "not looked at", f"{every - len(report.chosen):,} of {every:,} tensors, by --only {report.asked.only}"
    if report.spared and report.online:
        yield "left as they are", f"{listed(report.spared)}: engines quantize linear layers"
    strange = Counter(p.scheme.unread for p in report.taken if p.scheme.unread)
    for why, count in strange.items():
        yield "not understood", f"{count:,} quantized tensors: {why}"


def _contents(report: Report) -> str:
    tensors = report.checkpoint.tensors.values()
    roles = Counter(t.role for t in tensors)
    files = len({t.path for t in tensors})
    parts = ", ".join(f"{roles[r]:,} {said}" for r, said in _ROLE.items() if roles[r])
    return (
        f"{report.checkpoint.kind}, {files:,} file{'s' * (files > 1)}, {parts}; {_bytes(sum(t.size for t in tensors))}"
    )


_ROLE: dict[Role, str] = {"model": "tensors of the model", "optimizer": "of an optimizer", "other": "of neither"}


def listed(names: Sequence[str]) -> str:
    """The first of several names, and how many more there are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def where(group: Group) -> str:
    """Which tensors a group of findings is about."""
    names = list(dict.fromkeys(f.finding.tensor for f in group.members))
    if len(names) == 1:
        return names[0]
    return f"{len(names):,} × {group.pattern}" if group.pattern else f"{len(names):,} tensors"


def places(found: Found) -> str:
    """The first places of a finding: ``[3, 5] = inf``."""
    return ", ".join(f"[{', '.join(map(str, p.index))}] {p.value}" for p in found.finding.places[:PLACES])


def _findings(level: str, groups: Sequence[Group], top: int, width: int) -> list[Text]:
    grid = Grid("", [level, "about", "tensor", "elements"], beside_from=BESIDE)
    for group in groups[:top]:
        cells = (group.kind, group.about, where(group), f"{group.count:,}" if group.count else "")
        grid.lines.append(Line([Text(plain(cell)) for cell in cells], plain(_said(group))))
    texts = grid.texts(width)
    texts[0].stylize(STYLE[level], 0, len(level))
    return [*texts, *_more(len(groups) - top, "kinds of findings")]


def _said(group: Group) -> str:
    """What the worst finding of a group says, whom else it is about, and what to do."""
    first = group.first
    at = f" ({places(first)})" if first.finding.places else ""
    other = "" if first.role == "model" else f" [{first.role}: not loaded by engines]"
    names = [f.finding.tensor for f in group.members]
    worst = f"{names[0]}: " if len(names) > 1 else ""
    rest = f"; also {listed(names[1:])}" if len(names) > 1 else ""
    return f"{worst}{first.finding.said}{at}{rest}{other}. {first.remedy}"


def _passports(report: Report, top: int, width: int) -> list[Text]:
    grid = Grid("", ["quantized", "scheme", "scaled", "granularity", "bits"])
    same = passport_groups(report)
    for (pattern, *said, _), count in list(same.items())[:top]:
        name = pattern if count == 1 else f"{count:,} × {pattern}"
        grid.lines.append(Line([Text(plain(cell)) for cell in (name, *said)]))
    return [*grid.texts(width), *_more(len(same) - top, "kinds of quantized tensors")]


def passport_groups(report: Report) -> dict[tuple[str, ...], int]:
    """Passports that say the same, of names that differ by numbers alone, with how many they are; of one its name."""
    same: dict[tuple[str, ...], list[str]] = {}
    for p in report.taken:
        said = (p.scheme.says, p.scaled, p.granularity, f"{p.bits:.4g}", report.paths.get(p.module, ""))
        same.setdefault((pattern_of(p.module), *said), []).append(p.module)
    return {(key[0] if len(names) > 1 else names[0], *key[1:]): len(names) for key, names in same.items()}


def _online(online: Sequence[OfWeight], top: int, width: int) -> list[Text]:
    grid = Grid("", ["worst weights", "by", "SQNR", "clipped", "flushed"])
    ranked = worst_first(online)
    for one in ranked[:top]:
        grid.lines.append(Line([Text(plain(c)) for c in online_cells(one)], plain(one.refused)))
    return [*grid.texts(width), *_more(len(ranked) - top, "weights")]


def worst_first(online: Sequence[OfWeight]) -> list[OfWeight]:
    """Weights under recipes, the worst first."""
    return sorted(online, key=lambda one: one.worst_first)


def online_cells(one: OfWeight) -> tuple[str, ...]:
    """Cells of a weight under a recipe."""
    if one.measured is None:
        return one.tensor, one.to, "refused", "-", "-"
    counts = one.measured.counts
    return one.tensor, one.to, one.measured.words, f"{counts['clipped']:,}", f"{counts['flushed']:,}"


def _compared(compared: Sequence[Compared], top: int, width: int) -> list[Text]:
    grid = Grid("", ["against the original", "SQNR", "usual", "cosine", "largest error"])
    ranked = sorted(compared, key=lambda one: (not one.lost, one.sqnr - one.expected))
    for one in ranked[:top]:
        grid.lines.append(Line([Text(plain(cell)) for cell in compared_cells(one)]))
    return [*grid.texts(width), *_more(len(ranked) - top, "weights")]


def compared_cells(one: Compared) -> tuple[str, ...]:
    """Cells of a weight beside its original; the worst are those furthest below what is usual."""
    if not one.original:
        return one.module, "not compared", "-", "-", "-"
    kept = f"{one.sqnr:.1f} dB" if one.sqnr < math.inf or not one.lost else "nothing kept"
    lost = f", {one.lost:,} lost" if one.lost else ""
    return one.module, f"{kept}{lost}", f"{one.expected:.1f} dB", f"{one.cosine:.4f}", f"{one.most:.3g}"


def _more(count: int, what: str) -> list[Text]:
    return [Text(f"… and {count:,} {what} more (--top, or --json for all)")] if count > 0 else []


def _bytes(count: float) -> str:
    """Decimal, as vendors count memory and files."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:,.4g} GB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"
