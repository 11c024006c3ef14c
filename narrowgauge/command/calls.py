"""What ``explain`` says of a call of an engine: which recipe it is, and where."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text

from narrowgauge.contracts.errors import BadInput
from narrowgauge.plugin.screen import Grid, Line
from narrowgauge.reference.recipes.dispatch import CALLS, FACTS, calls_of, in_words, possible


def is_call(what: str) -> bool:
    """Whether a text starts with the name of a call."""
    return what.split(" ")[0] in CALLS


def call(what: str, width: int) -> tuple[Any, list[Text]]:
    """``sglang.per_token_group_quant_fp8 arch=sm_90 ue8m0=yes``: what the call can still be. Raises ``BadInput``."""
    name, facts = facts_said(what, FACTS)
    lines = possible(name, facts)
    if not lines:
        raise BadInput(f"explain {what}: no recipe is known for that; explain {name} lists what is known")
    grid = Grid("", ["recipe", "where"])
    grid.lines += [Line([Text(line.recipe), Text(in_words(line))]) for line in lines]
    asked = sorted({fact for line in lines for fact in line.where if fact not in facts}) if len(lines) > 1 else []
    texts = [Text(f"{name}: a call of an engine", "bold"), *grid.texts(width)]
    texts += [Text(f"{fact}: {FACTS[fact]}") for fact in asked]
    data = {"name": name, "facts": facts, "recipes": [{"recipe": x.recipe, "where": dict(x.where)} for x in lines]}
    return data, texts


def facts_said(what: str, known: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The name that a text starts with, and what is said after it as NAME=VALUE. Raises ``BadInput``."""
    name, *said = what.split()
    facts = {}
    for part in said:
        fact, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"explain {name}: {part!r}; expected NAME=VALUE, where NAME is one of {', '.join(known)}")
        facts[fact] = value
    return name, facts


def called_as(recipe: str) -> list[tuple[str, str]]:
    """The calls that are a recipe, for its explanation."""
    return [("called as:", f"{name}, {in_words(line)}") for name, line in calls_of(recipe)]
