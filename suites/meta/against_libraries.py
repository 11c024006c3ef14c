"""Every recipe of a library against the installed library, element by element.

Run: ``python -m narrowgauge.suites.meta.against_libraries [LIBRARY ...]``. It imports torch, and each library that it
finds. A library that is not there is said to be "not installed". It ends with 1 where anything differs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim, Quantize
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES

Array = npt.NDArray[Any]

LIBRARIES = ("torchao", "compressed_tensors", "modelopt", "quark", "microxcaling")
#: what is given to a recipe that takes it
GIVEN = {"scale": 0.0371, "global_scale": 37.3}
#: torch's names
SOURCES = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float16"}


@dataclass
class Count:
    """What was compared of one recipe, destination and source, and what differs."""

    recipe: str
    format: str
    source: str
    elements: int = 0
    differing: int = 0
    others: int = 0  #: scales and what else is returned
    others_differing: int = 0
    in_nan_blocks: int = 0  #: elements whose scale is NaN, in a format without NaN: their codes mean nothing

    @property
    def line(self) -> str:
        name = f"{self.recipe:44} {self.format:16} {self.source:9}"
        return (
            f"{name} {self.elements:8} {self.differing:7} {self.others:8} {self.others_differing:7} {self.in_nan_blocks:7}"
        )


def version(package: str) -> str | None:
    """That of an installed distribution; "source" for a package that was never installed; None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source" if importlib.util.find_spec(package) else None


def matrices(recipe: Recipe, format_name: str, source: str) -> Iterator[Coded]:
    """The suite's named rows, and what else its cases have for the recipe, without the empty ones."""
    claim = Claim(Quantize(recipe), source, format_name)
    for name, x in cases_for(claim, "standard").items():
        if x.data.size and name != "one_column":  # which libraries squeeze
            yield x


def compare(name: str, call: Any, format_name: str, source: str) -> Count:
    """One quantizer of a library and its recipe, on every matrix."""
    import torch

    recipe, count = RECIPES[name], Count(name, format_name, source)
    given = {key: np.full((1, 1), GIVEN[key], np.float32) for key in recipe.inputs}
    for x in matrices(recipe, format_name, source):
        patterns = torch.from_numpy(x.data.view(f"int{x.data.itemsize * 8}").copy())
        tensor = patterns.view(getattr(torch, SOURCES[source]))
        got = call(tensor, format_name, {key: torch.from_numpy(value) for key, value in given.items()})
        coded = {key: Coded("float32", value.view(np.uint32)) for key, value in given.items()}
        _add(count, got, quantize(x, recipe, format_name, given=coded), recipe)
    return count


def _add(count: Count, got: Mapping[str, Array], want: Mapping[str, Coded], recipe: Recipe) -> None:
    for key, value in want.items():
        if key == "codes":
            continue
        differs = _differing(got[key], value)
        count.others += differs.size
        count.others_differing += int(differs.sum())
    differs = _differing(got["codes"] if "codes" in got else got["elements"], want["codes"], "elements" in got)
    count.elements += differs.size
    if not np.isnan(decode_values(Coded(count.format, np.arange(2 ** 8, dtype=np.uint8)[: _codes(count.format)]))).any() and "scale" in want:
        lost = np.isnan(to_float32(want["scale"]))
        rows, columns = differs.shape
        lost = np.repeat(lost, -(-rows // lost.shape[0]), 0)[:rows]
        lost = np.repeat(lost, recipe.blocks.columns or columns, 1)[:, :columns]
        count.in_nan_blocks += int(lost.sum())
        count.elements -= int(lost.sum())
        differs = differs & ~lost
    count.differing += int(differs.sum())


def _codes(format_name: str) -> int:
    from narrowgauge.contracts.formats import format_named

    return format_named(format_name).code_count


def _differing(got: Array, want: Coded, values: bool = False) -> npt.NDArray[np.bool_]:
    """Bit for bit, but NaN as a class."""
    if values or want.format == "float32":
        wanted = to_float32(want)
        same = np.asarray(got, np.float32).view(np.uint32) == wanted.view(np.uint32)
        return ~(same | (np.isnan(got) & np.isnan(wanted)))
    if want.format in ("int32",):
        return np.asarray(got, np.int64) != decode_values(want)
    stored = np.asarray(got).astype(np.int64) & (_codes(want.format) - 1)
    ours = np.asarray(want.data).astype(np.int64) & (_codes(want.format) - 1)
    theirs = to_float32(Coded(want.format, stored.astype(want.data.dtype)))
    return ~((stored == ours) | (np.isnan(theirs) & np.isnan(to_float32(want))))


def report(library: str) -> Iterator[str | Count]:
    """A line about the library, then a count for each recipe, destination and source."""
    module = importlib.import_module(f"narrowgauge.suites.meta.libraries.{library}")
    found = version(module.PACKAGE)
    yield f"{module.PACKAGE} {found or 'not installed'}"
    for name, call in module.calls().items() if found else ():
        for destination in RECIPES[name].destinations:
            for source in SOURCES:
                try:
                    yield compare(name, call, destination.format, source)
                except Exception as error:
                    import os, traceback
                    if os.environ.get("TB"): traceback.print_exc()
                    yield f"{name} {destination.format} {source} refused {type(error).__name__}: {str(error)[:100]}"


def main(names: list[str]) -> int:
    """Prints everything; 1 where anything differs."""
    differing = 0
    for library in names or LIBRARIES:
        for line in report(library):
            print(line.line if isinstance(line, Count) else line, flush=True)
            differing += 0 if isinstance(line, str) else line.differing + line.others_differing
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
