"""What ``explain legal`` says: in which format an operation of a transformer block may be computed or stored."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from narrowgauge.plugin.screen import Grid, Line, facts
from narrowgauge.reference.legal.operations import OPERATIONS, YES, Operation

#: the word that stands for the whole table
LEGAL = "legal"


def is_legal(what: str) -> bool:
    """Whether the table, or an operation of it, is asked for."""
    return what == LEGAL or what in OPERATIONS


def legal(what: str, width: int) -> tuple[Any, list[Text]]:
    """The table, or one operation with the numbers of its trials, as data and in lines."""
    asked = list(OPERATIONS.values()) if what == LEGAL else [OPERATIONS[what]]
    data = [_data(o) for o in asked]
    return (data, _table(asked, width)) if what == LEGAL else (data[0], _one(asked[0], width))


def _data(o: Operation) -> dict[str, Any]:
    trials = {name: o.trial(name)._asdict() for name in o.verdicts}
    return {"name": o.name, "does": o.does, "about": o.about, "reason": o.reason, "source": o.source, "trials": trials}


def _table(asked: list[Operation], width: int) -> list[Text]:
    """By verdict, since no screen has a column for each format."""
    grid = Grid("", ["operation", "does"], beside_from=100)
    grid.lines = [Line([Text(o.name, "bold"), Text(o.does)], _by_verdict(o)) for o in asked]
    said = 'a "no" has numbers that come out wrong: explain NAME shows them'
    return [Text("where a format may stand", "bold"), *grid.texts(width), Text(), *facts([("next:", said)], width)]


def _by_verdict(o: Operation) -> str:
    each = {v: [f for f, verdict in o.verdicts.items() if verdict == v] for v in o.verdicts.values()}
    return "; ".join(f"{verdict}: {', '.join(formats)}" for verdict, formats in each.items())


def _one(o: Operation, width: int) -> list[Text]:
    grid = Grid("", ["format", "verdict", "gives"])
    for name in o.verdicts:
        seen = o.trial(name)
        grid.lines.append(
            Line([Text(name), Text(seen.verdict, "" if seen.verdict == YES else "bold"), Text(seen.shown)])
        )
    said = [(f"{o.does}:", o.about), ("where it is lost:", o.reason), ("known from:", o.source)]
    return [Text(f"{o.name}: an operation", "bold"), *facts(said, width), Text(), *grid.texts(width)]
