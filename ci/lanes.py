"""Lanes of the nightly run, as data. Strict in form: a key that nobody reads would promise what nobody does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from narrowgauge.ci.entries import read_toml
from narrowgauge.contracts.errors import BadInput, unknown

#: the suite's own lanes
OWN = Path(__file__).parent / "lanes.toml"
VENDORS = ("none", "cuda", "hip")
#: fields that may be empty
OPTIONAL = {"hosted", "image", "container"}


@dataclass(frozen=True)
class Lane:
    """One kind of machine, and what is judged there. ci/lanes.toml says what each field is."""

    name: str
    vendor: str
    targets: tuple[str, ...]
    devices: tuple[str, ...]
    depth: str
    shards: int
    workers: int
    minutes: int
    patience: int
    paths: tuple[str, ...]
    hosted: str
    image: str
    container: tuple[str, ...]
    days: int

    def runner(self, target: str) -> str:
        """The variable that a CI owner sets to the label of the machines of a target; "" where machines are hosted."""
        return "" if self.hosted else f"{target.upper()}_RUNNER"


def load(path: Path = OWN) -> dict[str, Lane]:
    """The lanes of a file, by name. Raises ``BadInput`` for a key or value that is not as it must be."""
    data = read_toml(path, "lanes")
    tables = data.get("lane")
    if set(data) != {"lane"} or not isinstance(tables, dict) or not tables:
        raise BadInput(f"lanes {path}: expected tables [lane.NAME] and nothing else, found {sorted(data)}")
    lanes = {name: _lane(name, entry, f"{path}, lane {name}") for name, entry in tables.items()}
    targets = [target for lane in lanes.values() for target in lane.targets]
    if twice := sorted({t for t in targets if targets.count(t) > 1}):
        raise BadInput(
            f"lanes {path}: {', '.join(twice)} in two lanes; an architecture's results would be counted twice"
        )
    return lanes


def lane_named(name: str, path: Path = OWN) -> Lane:
    """The lane of that name. Raises ``BadInput`` naming those that are."""
    lanes = load(path)
    if name not in lanes:
        raise unknown("lane", name, lanes)
    return lanes[name]


def _lane(name: str, entry: Any, where: str) -> Lane:
    types = get_type_hints(Lane)
    names = [f.name for f in fields(Lane) if f.name != "name"]
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: expected a table")
    if missing := [n for n in names if n not in entry]:
        raise BadInput(f"{where}: {', '.join(missing)} missing")
    if extra := sorted(set(entry) - set(names)):
        raise BadInput(f"{where}: unknown field {', '.join(extra)}; fields are {', '.join(names)}")
    values = {n: _value(n, entry[n], types[n], where) for n in names}
    if values["vendor"] not in VENDORS:
        raise BadInput(f"{where}: vendor = {values['vendor']!r}; expected one of {', '.join(VENDORS)}")
    if bool(values["hosted"]) == bool(values["image"]) or bool(values["image"]) != bool(values["container"]):
        raise BadInput(f"{where}: expected either hosted, or image and container; the other empty")
    return Lane(name=name, **values)


def _value(name: str, value: Any, expected: Any, where: str) -> Any:
    if name in OPTIONAL and value in ("", []):
        return "" if expected is str else ()
    if expected is int:
        if type(value) is not int or value < 1:
            raise BadInput(f"{where}: {name} = {value!r}; expected a whole number of at least 1")
        return value
    if expected is str:
        if not isinstance(value, str) or not value:
            raise BadInput(f"{where}: {name} = {value!r}; expected a text")
        return value
    if not isinstance(value, list) or not value or not all(isinstance(v, str) and v for v in value):
        raise BadInput(f"{where}: {name} = {value!r}; expected a list of texts")
    if len(set(value)) < len(value):
        raise BadInput(f"{where}: {name} = {value!r} names something twice")
    return tuple(value)
