"""Every recipe of an engine against the engine's own source, where that runs without a GPU.

Run: ``python -m narrowgauge.suites.meta.against_engines [--page FILE] [RECIPE ...]``. It asks for torch and Triton, and
for vLLM and SGLang where they can be found; of these it reads single files (``suites.meta.engines.loading``), so that
unpacked wheels in the path are enough. What torch computes runs on the CPU; a Triton kernel runs as compiled for a
target, by the emulator. Each line is a recipe: what was compared and what differs, or why nothing was. It ends with 1
where anything differs. ``--page`` writes the same as docs/recipes-checked.md has it.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim, Quantize
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.meta.engines.calls import FNUZ, NVIDIA, OCP, TORCH, Array, Call
from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.engines.unrun import UNRUN, of_engines

ENGINES = ("vllm", "sglang")
DEVICES = (TORCH, OCP, FNUZ, NVIDIA)
#: what is given to a recipe that asks for it
GIVEN = {"scale": 0.0371, "upper_bound": 3.0, "global_scale": 37.3}


@dataclass
class Count:
    """What was compared of one call and one source format, and what differs."""

    recipe: str
    format: str
    source: str
    device: str
    elements: int = 0
    differing: int = 0
    others: int = 0  #: scales, and what else comes beside codes
    others_differing: int = 0
    left_out: str = ""  #: why rows that are not finite were left out
    example: str = ""
    refused: str = ""  #: what the call raised


def versions() -> dict[str, str]:
    """Of everything that took part; "unpacked" for what has a folder and no distribution, "not installed" else."""
    found = {}
    for name in ("torch", "triton", *ENGINES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = _unpacked(name)
    return found


def _unpacked(name: str) -> str:
    folder = folder_of(name)
    if folder is None:
        return "not installed"
    for line in (folder / "_version.py").read_text().splitlines() if (folder / "_version.py").exists() else ():
        if line.startswith("__version__ = ") and line.count("'") == 2:
            return line.split("'")[1]
    return "unpacked"


def inputs(call: Call, source: str) -> Iterator[tuple[str, Coded]]:
    """The named rows of the suites that the recipe takes."""
    claim = Claim(Quantize(RECIPES[call.recipe]), source, call.format)
    for name, x in cases_for(claim, "standard").items():
        x = Coded(x.format, x.data[call.kept(to_float32(x))])
        blocks, data = RECIPES[call.recipe].blocks, x.data
        if blocks.columns == 1:  # a weight's groups run down its columns
            data = data.T
        if blocks.rows > 1 and data.size:
            data = np.resize(data, (-(-len(data) // blocks.rows) * blocks.rows, data.shape[1]))
        if data.size and data.shape[1] % (32 if blocks.columns != 1 else 1) == 0:
            yield name, Coded(x.format, np.ascontiguousarray(data))


def compared(call: Call, source: str) -> Count:
    """One call from one source format, on every input."""
    import torch

    recipe = RECIPES[call.recipe]
    count = Count(call.recipe, call.format, source, call.device, left_out=call.left_out)
    given = {name: np.full((1, 1), GIVEN[name], np.float32) for name in recipe.inputs}
    for name, x in inputs(call, source):
        patterns = torch.from_numpy(x.data.view(f"int{x.data.itemsize * 8}").copy())
        tensor = patterns.view(getattr(torch, source))
        try:
            got = call.run(tensor, {key: torch.from_numpy(value.copy()) for key, value in given.items()})
        except Exception as error:
            count.refused = f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            return count
        want = quantize(
            x, recipe, call.format, given={k: Coded("float32", v.view(np.uint32)) for k, v in given.items()}
        )
        _add(count, name, x, got, want, given)
    return count


def _add(
    count: Count, name: str, x: Coded, got: Mapping[str, Array], want: dict[str, Coded], given: Mapping[str, Array]
) -> None:
    """Compare what a call returned, by codes or by the values that it returns instead."""
    codes = want.pop("codes")
    if "dequantized" in got:
        theirs, ours = (
            got["dequantized"],
            to_float32(codes) * np.repeat(to_float32(want.pop("scale")) / given["global_scale"], 16, axis=1),
        )
        differs = _numbers(theirs, ours)
    elif "values" in got:
        theirs, ours = got["values"], to_float32(codes)
        differs = _numbers(theirs, ours)
    else:
        theirs, ours = got["codes"], codes.data
        differs = _codes(theirs, codes)
    count.elements += differs.size
    count.differing += int(differs.sum())
    _example(
        count,
        f"{name}, x {to_float32(x)[tuple(np.argwhere(differs)[0])]:.9g}" if differs.any() else "",
        differs,
        theirs,
        ours,
    )
    for key, value in want.items():
        beside = got["scale values"] if "values" in got else got[key]
        wrong = _numbers(beside, to_float32(value)) if "values" in got else _codes(beside, value)
        count.others += wrong.size
        count.others_differing += int(wrong.sum())
        _example(count, f"{name}, {key}", wrong, beside, value.data)


def _example(count: Count, where: str, wrong: Array, theirs: Array, ours: Array) -> None:
    """The first place that differs, where there is none yet."""
    if wrong.any() and not count.example:
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        count.example = f"{where}: [{row}, {column}] is {theirs[row, column]}, not {ours[row, column]}"


def _numbers(got: Array, want: Array) -> Array:
    """Bit for bit, NaN as a class."""
    same = np.asarray(got, np.float32).view(np.uint32) == np.asarray(want, np.float32).view(np.uint32)
    return np.asarray(~(same | (np.isnan(got) & np.isnan(want))))


def _codes(got: Array, want: Coded) -> Array:
    if want.format == "float32":
        return _numbers(got, to_float32(want))
    if want.format == "int32":
        return np.asarray(np.asarray(got, np.int64) != decode_values(want).astype(np.int64))
    mask = format_named(want.format).code_count - 1
    theirs, ours = np.asarray(got).astype(np.int64) & mask, np.asarray(want.data).astype(np.int64) & mask
    numbers = to_float32(Coded(want.format, theirs.astype(want.data.dtype)))
    return np.asarray(~((theirs == ours) | (np.isnan(numbers) & np.isnan(to_float32(want)))))


def run(device: str, wanted: list[str]) -> Iterator[Count]:
    """In a process of its own: every call of a device."""
    if device != TORCH:
        from narrowgauge.devices import triton_driver

        triton_driver.install(device).begin("first")
    for engine in ENGINES:
        if folder_of(engine) is None:
            continue
        for call in importlib.import_module(f"narrowgauge.suites.meta.engines.{engine}").calls(device):
            if not wanted or call.recipe in wanted:
                yield from (compared(call, source) for source in call.sources)


def main(arguments: list[str]) -> int:
    """Prints everything; 1 where anything differs."""
    if arguments[:1] == ["--device"]:
        for count in run(arguments[1], arguments[2:]):
            print(json.dumps(asdict(count)), flush=True)
        return 0
    page = Path(arguments[1]) if arguments[:1] == ["--page"] else None
    wanted = arguments[2:] if page else arguments
    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    counts: list[Count] = []
    ended = 0
    for device in DEVICES:
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--device", device, *wanted]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        found = [Count(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
        print("\n".join(line_of(count) for count in found), flush=True)
        counts, ended = counts + found, ended + done.returncode
    seen = {count.recipe for count in counts}
    missing = {name: UNRUN.get(name, "its engine is not installed") for name in of_engines(RECIPES) if name not in seen}
    for name, reason in missing.items() if not wanted else ():
        print(f"{name:38} not run: {reason}")
    if page:
        page.write_text(page_of(counts, missing))
    return int(bool(ended) or any(c.differing or c.others_differing or c.refused for c in counts))


def line_of(count: Count) -> str:
    """A count as a line."""
    head = f"{count.recipe:38} {count.format:16} {count.source:9} {count.device:7}"
    if count.refused:
        return f"{head} refused: {count.refused}"
    others = f"{count.others_differing} of {count.others} others"
    said = f"{head} {count.differing} of {count.elements} codes and {others} differ"
    more = (f"left out: {count.left_out}" if count.left_out else "", count.example)
    return "; ".join((said, *filter(None, more)))


def page_of(counts: list[Count], missing: Mapping[str, str]) -> str:
    """docs/recipes-checked.md: versions, what was run, and what was not."""
    rows = [
        "# Engines' recipes against the engines' own sources",
        "",
        "Written by `python -m narrowgauge.suites.meta.against_engines --page docs/recipes-checked.md`, "
        f"{datetime.now(UTC):%Y-%m-%d}: "
        + ", ".join(f"{name} {version}" for name, version in versions().items())
        + ". cpu: torch on x86; the others: Triton kernels as compiled for that target, run by the emulator. NaN is "
        "one code. Inputs: the named rows of the suites.",
        "",
        "| recipe | to | from | on | codes | differ | scales and more | differ | left out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for key, found in _together(counts).items():
        sources = ", ".join(count.source for count in found)
        sums = [sum(getattr(c, n) for c in found) for n in ("elements", "differing", "others", "others_differing")]
        left = found[0].refused or found[0].left_out
        rows.append("| " + " | ".join((key[0], key[1], sources, key[2], *map(str, sums), left)) + " |")
    rows += ["", "## Not run", "", "| recipe | why |", "|---|---|"]
    return "\n".join([*rows, *(f"| {name} | {reason} |" for name, reason in missing.items()), ""])


def _together(counts: list[Count]) -> dict[tuple[str, str, str], list[Count]]:
    """Counts of one call, whatever the source."""
    found: dict[tuple[str, str, str], list[Count]] = {}
    for count in counts:
        found.setdefault((count.recipe, count.format, count.device), []).append(count)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
