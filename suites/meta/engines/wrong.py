# SPDX-License-Identifier: Apache-2.0
"""The wrong conversions beside the second derivation: run as a program, a line of JSON for each."""

from __future__ import annotations

import importlib
import json
import warnings
from functools import cache
from typing import Any

import numpy as np

from narrowgauge.suites.meta.conversion_sets import SETS, Patterns, differences
from narrowgauge.suites.meta.second_conversions import CONVERSIONS


def tensors(conversion: str, given: Patterns) -> dict[str, Any]:
    """As the wrong conversions take them: float32 and bfloat16 by value, all else as stored."""
    import torch

    found: dict[str, Any] = {}
    for name, array in given.items():
        array = np.ascontiguousarray(array)
        if array.dtype == np.uint32:
            found["x" if name == "codes" else name] = torch.from_numpy(array.view(np.float32).copy())
        elif name == "codes" and array.dtype == np.uint16:
            wide = torch.float16 if conversion == "bfloat16_counted" else torch.bfloat16
            found["x"] = torch.from_numpy(array.view(np.int16).copy()).view(wide)
        else:
            found[name] = torch.from_numpy((array.view(np.int16) if array.dtype == np.uint16 else array).copy())
    return found


def patterns(made: Any) -> Patterns:
    """As the second derivation gives them."""
    import torch

    found = {}
    for name, value in made.items():
        value = value.detach().contiguous()
        if value.dtype in (torch.float32, torch.bfloat16):
            width = value.element_size()
            value = value.view(torch.int32 if width == 4 else torch.int16).numpy().view(f"u{width}")
        else:
            value = value.numpy().view(np.uint16) if value.dtype == torch.int16 else value.numpy()
        found[name] = value
    return found


def listed() -> dict[str, Any]:
    """The wrong conversions, of three files that fill one list."""
    found: dict[str, Any] = {}
    for name in ("wrong_conversions", "wrong_blocks", "wrong_fours"):
        found |= importlib.import_module(f"narrowgauge.suites.meta.mutant_kernels.{name}").WRONG
    return found


@cache
def some(conversion: str) -> list[tuple[Patterns, Patterns]]:
    """At most some 10 sets of a conversion, and the right answers."""
    sets = list(SETS[conversion]())
    return [(given, CONVERSIONS[conversion](given)) for given in sets[:: len(sets) // 10 | 1]]


def main() -> None:
    warnings.simplefilter("ignore")
    for name, one in listed().items():
        sets, seen, first = some(one.of), 0, ""
        for given, right in sets:
            what = list(differences(one.of, patterns(one.run(tensors(one.of, given))), right))
            seen += bool(what)
            first = first or "; ".join(what)
        told = {"name": name, "of": one.of, "imitates": one.imitates, "reports": one.reports}
        print(json.dumps({**told, "sets": len(sets), "seen": seen, "first": first}))


if __name__ == "__main__":
    main()
