"""What can be said of scales without any numbers of K and V: what is given, and what an engine makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from narrowgauge.reference.kv.findings import Finding
from narrowgauge.reference.kv.spellings import ON_PURPOSE

#: scales of a layer, those that are there
Given = Mapping[str, Any]


def numbers(value: Any) -> tuple[float, ...]:
    """A scale, or one a head, as several; none where there is none."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, tuple) else (value,)


def of_given(layer: str, given: Given, others: bool) -> Iterator[Finding]:
    """What is wrong with the scales of one layer, whatever an engine does. ``others``: other layers have some."""
    sides = [side for side in ("k", "v", "kv") if side in given]
    for side in sides:
        each = numbers(given[side])
        for kind, wrong in (
            ("zero", [s for s in each if s == 0]),
            ("negative", [s for s in each if s < 0]),
            ("not a number", [s for s in each if not math.isfinite(s)]),
        ):
            if wrong:
                yield Finding(kind, f"the scale of {side.upper()} is {wrong[0]:g}", layer, side)
    if len({"k", "v"} & set(sides)) == 1:
        there = next(side for side in sides if side in "kv")
        yield Finding("one of the pair", f"a scale of {there.upper()} alone", layer, there)
    if not sides and others:
        yield Finding("missing here", "other layers have scales of K and V", layer)


def of_all(given: Mapping[str, Given]) -> Iterator[Finding]:
    """What the scales of all layers have in common. One layer alone shows nothing."""
    every = [each for each in given.values() if each]
    values = [numbers(each.get(side)) for each in every for side in ("k", "v", "kv") if side in each]
    if len(every) < 2:
        return
    if len(set(values)) == 1:
        same = ", ".join(f"{s:g}" for s in values[0][:4])
        yield Finding("all alike", f"K and V of {len(every)} layers have {same}. {ON_PURPOSE}")
    elif all("k" in each and "v" in each and numbers(each["k"]) == numbers(each["v"]) for each in every):
        yield Finding("K and V alike", f"in each of {len(every)} layers. {ON_PURPOSE}")


def of_declaration(declared: bool | None, held: bool, loaded: bool) -> Iterator[Finding]:
    """Configuration against tensors. ``held``: there are scales; ``loaded``: an engine takes them at all."""
    if held and not loaded:
        yield Finding("not loaded", "config.json has no quantization_config: no method of the engine loads scales")
    if declared and not held:
        yield Finding("promised", "the configuration asks for a narrow cache; no tensor is a scale of K or V")
    if held and declared is False:
        yield Finding("not declared", "kv_cache_scheme or kv_cache_quant_algo is there and empty")


def of_unity(layers: Sequence[str], format_name: str, measured: bool) -> Iterator[Finding]:
    """Layers whose K or V runs at 1. What was measured is judged by its numbers."""
    if not layers:
        return
    if not measured:
        yield Finding("unity", f"{len(layers)} layers, {layers[0]} the first. {ON_PURPOSE}")
    if "e5m2" in format_name:
        yield Finding("no engine warns", f"{len(layers)} layers run at 1 in {format_name}")
