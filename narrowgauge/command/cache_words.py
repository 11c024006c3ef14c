"""What ``explain`` says of a cache of the catalogue: its parts, its buffers, its slots."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from rich.text import Text

from narrowgauge.contracts.cache import Cache, Part
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Attend, Claim, KvRead, KvWrite
from narrowgauge.plugin.screen import facts
from narrowgauge.reference.judge import check_claim
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.kv.slots import slots_named
from narrowgauge.reference.kv.words import axes, element, padding
from narrowgauge.reference.recipes import RECIPES

#: the format of tokens in the claims that are shown
WIDE = "bfloat16"


def described(name: str, width: int) -> tuple[Any, list[Text]]:
    """A cache of the catalogue, as data and in lines."""
    cache = CACHES[name]
    which, becomes = padding(slots_named(cache.slots))
    rows = [
        ("parts", "; ".join(_part(part) for part in cache.parts)),
        *((buffer.name, f"{element(cache, buffer)}, {_fields(cache, place)}") for place, buffer in
          enumerate(cache.buffers)),
        ("pages of", f"{', '.join(map(str, cache.blocks))} slots"),
        ("padding", f"{which}: {becomes}"),
        ("claims", ", ".join(_claims(cache))),
        ("read in", cache.source),
    ]  # fmt: skip
    return dataclasses.asdict(cache), [Text(f"{name}: a key-value cache"), *facts(rows, width)]


def _claims(cache: Cache) -> list[str]:
    """What can be claimed of it, each for the first of its formats."""
    recipe = next((RECIPES[part.recipe] for part in cache.parts if part.recipe), None)
    held = recipe.destinations[0].format if recipe else WIDE
    found = [str(Claim(KvWrite(cache.name), WIDE, held)), str(Claim(KvRead(cache.name), held, WIDE))]
    attention = Claim(Attend(cache.name), held, WIDE)
    with contextlib.suppress(BadInput):
        check_claim(attention)
        found.append(str(attention))
    return found


def _part(part: Part) -> str:
    given = "".join(f", given {part.scaled_by}_{name}" for name in (RECIPES[part.recipe].inputs if part.recipe else ()))
    first = f", after {part.first}" if part.first else ""
    how = f"by {part.recipe}" if part.recipe else f"in {part.keeps}" if part.keeps else "as it is"
    return f"{part.name} {how}{first}{given}"


def _fields(cache: Cache, place: int) -> str:
    buffer = cache.buffers[place]
    if len(buffer.fields) == 1:
        return f"[{axes(cache, buffer.fields[0])}]"
    return f"for each {buffer.per} " + ", then ".join(f"{f.of} [{axes(cache, f)}]" for f in buffer.fields)
