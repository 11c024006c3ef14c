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
from narrowgauge.contracts.formats import Format, format_named
from narrowgauge.contracts.operations import Claim, Quantize
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.reference.codec import nan_code
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

LIBRARIES = ("torchao", "compressed_tensors", "modelopt", "quark", "microxcaling")
#: what is given to a recipe that takes it
GIVEN = {"scale": 0.0371, "global_scale": 37.3}


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
    meaningless: int = 0  #: elements that no code of the format stands for: see ``_meaningful``

    @property
    def line(self) -> str:
        name = f"{self.recipe:44} {self.format:16} {self.source:9}"
        return f"{name} {self.elements:8} {self.differing:7} {self.others:8} {self.others_differing:7} {self.meaningless:7}"


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
        tensor = patterns.view(getattr(torch, source))
        got = call(tensor, format_name, {key: torch.from_numpy(value) for key, value in given.items()})
        coded = {key: Coded("float32", value.view(np.uint32)) for key, value in given.items()}
        _add(count, got, quantize(x, recipe, format_name, given=coded), recipe)
    return count


def _add(count: Count, got: Mapping[str, Array], want: Mapping[str, Coded], recipe: Recipe) -> None:
    for key in want.keys() - {"codes"}:
        differs = _differing(got[key], want[key])
        count.others += differs.size
        count.others_differing += int(differs.sum())
    differs = (
        _differing(got["codes"], want["codes"]) if "codes" in got else _values_differ(got["elements"], want["codes"])
    )
    means = _meaningful(got, want, recipe, format_named(count.format))
    count.elements += int(means.sum())
    count.meaningless += int((~means).sum())
    count.differing += int((differs & means).sum())


def _meaningful(got: Mapping[str, Array], want: Mapping[str, Coded], recipe: Recipe, fmt: Format) -> Mask:
    """Where a code stands for a number.

    In fp4, fp6 and integers a NaN has no code, and in fp4 and fp6 what is in a block whose scale is NaN has none. Of a
    library that answers dequantized numbers an infinity is left out too, where it is only the dequantized one's.
    """
    means = np.ones(want["codes"].shape, np.bool_)
    if "elements" in got and (nan_code(fmt) < 0 or recipe.blocks.columns == 32):
        means &= ~np.isnan(got["elements"]) | np.isnan(to_float32(want["codes"]))
    if "scale" in want and nan_code(fmt) < 0 and fmt.family != "integer":
        lost = np.isnan(to_float32(want["scale"]))
        rows, columns = (
            b or size for b, size in zip((recipe.blocks.rows, recipe.blocks.columns), means.shape, strict=True)
        )
        means &= ~lost.repeat(rows, 0).repeat(columns, 1)[: means.shape[0], : means.shape[1]]
    return means


def _values_differ(got: Array, want: Coded) -> Mask:
    """Bit for bit, but NaN as a class; and of integers, zero without its sign."""
    wanted, found = to_float32(want), np.asarray(got, np.float32)
    if format_named(want.format).family == "integer":
        found = found + np.float32(0)
    same: Mask = found.view(np.uint32) == wanted.view(np.uint32)
    return ~(same | (np.isnan(found) & np.isnan(wanted)))


def _differing(got: Array, want: Coded) -> Mask:
    """Code for code, but NaN as a class."""
    if want.format == "float32":
        return _values_differ(got, want)
    if want.format == "int32":
        return np.asarray(got, np.int64) != decode_values(want)
    low = format_named(want.format).code_count - 1  # 4-bit codes come with their sign, in bytes
    stored = Coded(want.format, (np.asarray(got).astype(np.int64) & low).astype(want.data.dtype))
    same: Mask = stored.data == (want.data & low)
    return ~(same | (np.isnan(to_float32(stored)) & np.isnan(to_float32(want))))


def report(library: str) -> Iterator[str | Count]:
    """A line about the library, then a count for each recipe, destination and source."""
    module = importlib.import_module(f"narrowgauge.suites.meta.libraries.{library}")
    found = version(module.PACKAGE)
    yield f"{module.PACKAGE} {found or 'not installed'}"
    for name, call in module.calls().items() if found else ():
        for destination in RECIPES[name].destinations:
            for source in module.SOURCES:
                try:
                    yield compare(name, call, destination.format, source)
                except Exception as error:
                    import os
                    import traceback

                    if os.environ.get("TB"):
                        traceback.print_exc()
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
