"""``narrowgauge kv``: which layers of a model need scales for a narrow key-value cache."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from narrowgauge.command import kv_ceilings, kv_picture, pictures
from narrowgauge.command.kv_words import about_use, finding_lines, verdict_of
from narrowgauge.command.shared import add_json, print_json
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices.capturing import capture
from narrowgauge.devices.targets import TARGETS
from narrowgauge.plugin.screen import Grid, Line, facts, screen, show
from narrowgauge.reference.kv.effect import GRID_WORDS, Effect
from narrowgauge.reference.kv.findings import THRESHOLDS, Judged, decibels
from narrowgauge.reference.kv.flag import WRITERS
from narrowgauge.suites.kv_scales import NOTHING, read_scales
from narrowgauge.suites.kv_stats import Stats, merge_stats, read_stats, write_stats
from narrowgauge.suites.kv_use import ENGINES, FORMATS, OF_NO_ENGINE, Report, report_on, use_of

#: layers that are shown
TOP = 20


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "kv",
        help="which layers of a model need scales for a narrow key-value cache",
        description="From histograms of |K| and |V| and the scales that are given: what an engine uses for each layer, "
        "what that clips and flushes, the signal to noise ratio, and what a good scale would be (docs/kv.md). "
        "FILE.py:FUNCTION returns a torch module and batches, which are run in a process of their own; "
        "FILE.safetensors holds histograms that were taken before, several of one model are added up. "
        "--weights needs neither: a ceiling for |K| and |V| from the weights alone.",
    )
    parser.add_argument("stats", nargs="*", metavar="FILE.py:FUNCTION|FILE.safetensors", help="a module, or histograms")
    parser.add_argument("--scales", metavar="FOLDER|FILE|k=..,v=..", help="default: none, and the engine's own default")
    parser.add_argument("--engine", default="vllm", choices=ENGINES, help="whose rules (default: vllm)")
    parser.add_argument("--kv-cache-dtype", default="", metavar="FLAG", help="the engine's flag (default: fp8_e4m3)")
    formats = ", ".join([*FORMATS, *OF_NO_ENGINE])
    parser.add_argument("--format", default="", help=f"in place of a flag: {formats}")
    parser.add_argument("--target", default="", metavar="T", help=f"default: sm_90; {', '.join(TARGETS)}")
    parser.add_argument("--writer", default="native", choices=WRITERS, help="of vLLM's two (default: native)")
    parser.add_argument("--weights", type=Path, metavar="FOLDER", help="a model: its ceilings")
    parser.add_argument("--batches", type=Path, metavar="FILE", help="safetensors: each tensor is a batch")
    parser.add_argument("--capture", type=Path, metavar="FILE", help="keep what was seen, or added up, in a file")
    parser.add_argument("--top", type=int, default=TOP, metavar="N", help=f"layers to show (default: {TOP})")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it into a .png or .svg file")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    if bool(arguments.stats) == bool(arguments.weights):
        raise BadInput("give a module or files of histograms, or --weights FOLDER, and not both")
    if arguments.top < 1:
        raise BadInput(f"--top {arguments.top}; expected 1 or more")
    use = use_of(arguments.engine, arguments.kv_cache_dtype, arguments.format, arguments.target, arguments.writer)
    scales = read_scales(arguments.scales) if arguments.scales else NOTHING
    if arguments.weights:
        for option in ("batches", "capture", "picture"):
            if getattr(arguments, option):
                raise BadInput(f"--{option} is for what was seen of a model; --weights sees nothing but weights")
        return kv_ceilings.run(arguments.weights, scales, use, arguments.top, arguments.json)
    if arguments.picture:
        pictures.check(arguments.picture, "--picture")
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        stats = _stats(arguments, progress)
        task = progress.add_task("judging", total=sum(map(len, stats.layers.values())))
        for found in report_on(stats, scales, use):
            if isinstance(found, Judged):
                progress.update(task, advance=1, description=f"judging {found.layer}")
            else:
                report = found
    ranked = _ranked(report)
    if arguments.json:
        print_json({"stats": stats.about(), **report.to_json()})
    else:
        show(screen(), _texts(stats, report, ranked, arguments.top, screen().width))
    if arguments.picture:
        kv_picture.draw(ranked, f"{stats.model}: {use}", arguments.picture)
        if not arguments.json:
            print(f"picture written to {arguments.picture}")
    return Exit.FAILED if report.wrong else Exit.OK


def _stats(arguments: argparse.Namespace, progress: Progress) -> Stats:
    """What was seen: in files, or of a module that is run now."""
    modules = [text for text in arguments.stats if text.rpartition(":")[0].endswith(".py")]
    if modules and len(arguments.stats) > 1:
        raise BadInput(f"{modules[0]} and more; expected one module, or files")
    if not modules:
        if arguments.batches:
            raise BadInput(f"--batches is for a module that is run: FILE.py:FUNCTION; got {arguments.stats[0]}")
        stats = merge_stats([(path, read_stats(path)) for path in map(Path, arguments.stats)])
        if arguments.capture:
            write_stats(arguments.capture, stats)
        return stats
    file, _, function = modules[0].rpartition(":")
    task = progress.add_task("running the module", total=None)
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.capture or Path(folder) / "kv.safetensors"
        capture(
            Path(file), function, out, 0, arguments.batches,
            lambda number, of: progress.update(task, completed=number, total=of), "kv",
        )  # fmt: skip
        progress.remove_task(task)
        return read_stats(out)


def _ranked(report: Report) -> list[list[Judged]]:
    """Layers, each with its parts, the worst first."""
    layers: dict[str, list[Judged]] = {}
    for part in report.parts:
        layers.setdefault(part.layer, []).append(part)
    return sorted(layers.values(), key=lambda parts: min(part.worst_first for part in parts))


# --- the text --------------------------------------------------------------------------------------------------------


def _texts(stats: Stats, report: Report, ranked: Sequence[Sequence[Judged]], top: int, width: int) -> list[Text]:
    seen = Counter((part.effects.histogram.place, part.effects.histogram.rope) for part in report.parts)
    places = ", ".join(f"{n} {_PLACE[place]}{_ROPE[rope]}" for (place, rope), n in seen.items())
    grid = Grid("", ["layer", "", "scale", "SQNR", "clipped", "flushed", "good scale", "SQNR "], "findings")
    for parts in ranked[:top]:
        grid.lines += [_line(one, first=number == 0) for number, one in enumerate(parts)]
    more = len(ranked) - top
    last = [Text(f"… and {more} layers more (--top, or --json for all)")] if more > 0 else []
    head = facts(
        [
            ("verdict", verdict_of(report, len(ranked))),
            *about_use(report.use, report.scales, report.warnings),
            ("seen", f"{stats.model or 'a model'}, {stats.tokens:,} tokens; {places}"),
            *finding_lines(report.findings),
            ("good scale", f"the largest magnitude over the format's largest value, or the best of {GRID_WORDS}"),
            ("thresholds", "; ".join(threshold.said for threshold in THRESHOLDS.values())),
        ],
        width,
        indent=0,
    )
    return [*head, Text(), *grid.texts(width), *last]


_PLACE = {"cache": "seen at the cache", "projection": "at projections", "norm": "at norms"}
_ROPE = {"after": " after RoPE", "before": " before RoPE", "none": ""}


def _line(one: Judged, first: bool) -> Line:
    used = one.used
    scale = "one a head" if isinstance(one.scale, tuple) else "none" if one.scale is None else f"{one.scale:.4g}"
    cells = [
        one.layer if first else "", one.part.upper(), scale, decibels(used) if used else "-", _count(used, "clipped"),
        _count(used, "flushed"), f"{one.good.scale:.4g}", decibels(one.good),
    ]  # fmt: skip
    return Line([Text(cell) for cell in cells], "; ".join(f"{f.kind}: {f.said}" for f in one.findings))


def _count(used: Effect | None, kind: str) -> str:
    """How many, surely to perhaps."""
    if used is None or not used.counts[kind][1]:
        return "-"
    low, high = used.counts[kind]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
