"""What dtype released versions of torch give (torch_types.json): how it is recorded, and the page that shows it.

To add a version, in an environment that has it, and then here:

    python suites/meta/measure_types.py > types.json
    python -m narrowgauge.suites.meta.torch_types record WHEEL HOW types.json

``python -m narrowgauge.suites.meta.torch_types`` alone writes the tables of docs/torch-types.md.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.version import Version

from narrowgauge.suites.meta.measure_types import ASKED, NARROW, OTHERS
from narrowgauge.suites.meta.pages import Page
from narrowgauge.suites.meta.proof import table
from narrowgauge.suites.meta.versions import Wheel

DATA = Path(__file__).with_name("torch_types.json")
#: what is asked -> what is given (a dtype, or "!" and an error) -> the versions that give it
Answers = dict[str, dict[str, tuple[str, ...]]]


@dataclass(frozen=True)
class Types:
    """The whole of torch_types.json."""

    wheels: tuple[Wheel, ...]
    answers: Answers

    @property
    def versions(self) -> list[str]:
        """In order of release."""
        return sorted((w.version for w in self.wheels), key=Version)

    def of(self, version: str) -> dict[str, str]:
        """What one version gives."""
        return {asked: given for asked, each in self.answers.items() for given, by in each.items() if version in by}


def load() -> Types:
    """What was recorded."""
    held = json.loads(DATA.read_text(encoding="utf-8"))
    answers = {asked: {g: tuple(v) for g, v in each.items()} for asked, each in held["answers"].items()}
    return Types(tuple(Wheel(**w) for w in held["wheels"]), answers)


def recorded(types: Types, wheel: Wheel, found: Mapping[str, str]) -> Types:
    """The same with what one version gave; what was recorded of it before is forgotten."""
    answers: Answers = {}
    for asked in dict.fromkeys((*types.answers, *found)):
        each = {g: [v for v in by if v != wheel.version] for g, by in types.answers.get(asked, {}).items()}
        if asked in found:
            each.setdefault(found[asked], []).append(wheel.version)
        kept = {g: tuple(sorted(by, key=Version)) for g, by in each.items() if by}
        answers |= {asked: kept} if kept else {}
    wheels = [w for w in types.wheels if w.version != wheel.version]
    return Types(tuple(sorted((*wheels, wheel), key=lambda w: Version(w.version))), answers)


def news(types: Types, version: str, found: Mapping[str, str]) -> str:
    """What a version gives that was not recorded of it; "" where there is nothing."""
    known = types.of(version)
    if not known:
        return f"torch {version} was never measured. Record it: the head of suites/meta/torch_types.py says how"
    changed = [a for a in dict.fromkeys((*known, *found)) if known.get(a) != found.get(a)]
    told = "; ".join(f"{a}: {known.get(a, 'not asked')}, now {found.get(a, 'not asked')}" for a in changed[:5])
    return f"torch {version} does not give what was recorded of it: {told}" if changed else ""


# --- the page --------------------------------------------------------------------------------------------------------


def below(types: Types) -> str:
    """All that stands below the mark."""
    return "\n" + "\n".join(_lines(types)) + "\n"


def _lines(types: Types) -> Iterator[str]:
    last = types.versions[-1]
    given = types.of(last)
    yield f"Of torch {last}; what other versions give otherwise stands at the end."
    yield from ("", "## Two tensors: torch.promote_types", "", _grid("promote", given), "")
    yield from ("## A tensor, and a tensor of no dimension", "", _grid("0-dim", given), "")
    yield from ("## Results of operations", "", _operations(given), "", "## Versions", "")
    yield table(("torch", "measured", "on"), ((w.version, w.measured, w.how) for w in types.wheels))
    changed = [(a, g, ", ".join(by)) for a, each in types.answers.items() if len(each) > 1 for g, by in each.items()]
    yield from ("", table(("asked", "gives", "versions"), changed) if changed else "No answer differs between them.")


def _grid(kind: str, given: Mapping[str, str]) -> str:
    """A row for each narrow dtype, those of one row together: what it gives with each other dtype, a dash where it
    raises."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in NARROW:
        cells = tuple(_cell(given.get(f"{kind} {one} {other}", "!")) for other in OTHERS if other != one)
        own = "itself" if len(set(cells)) == 1 and cells[0] == _short(one) else ""
        only = "only with itself" if set(cells) == {"–"} else own
        full = [_cell(given.get(f"{kind} {one} {other}", "!")) for other in OTHERS]
        rows.setdefault((only,) * len(OTHERS) if only else tuple(full), []).append(one)
    said = ((", ".join(map(_short, names)), *_spread(cells)) for cells, names in rows.items())
    return table(("", *(_short(o) for o in OTHERS)), said)


def _spread(cells: tuple[str, ...]) -> tuple[str, ...]:
    """A word that would stand in every cell stands in the first."""
    return (cells[0], *("" for _ in cells[1:])) if len(set(cells)) == 1 else cells


def _cell(given: str) -> str:
    return "–" if given.startswith("!") else _short(given)


def _short(name: str) -> str:
    return name.removeprefix("float8_").removeprefix("float4_").replace("bfloat", "bf").replace("float", "fp")


def _operations(given: Mapping[str, str]) -> str:
    """A row for each operation; formats that give the same stand together."""
    names = [a.removesuffix(" float32") for a in given if a.endswith(" float32") and a.split()[0] not in _PAIRS]
    fp8 = [n for n in ASKED if n not in ("bfloat16", "float16", "float32")]
    rows = []
    for operation in names:
        narrow: dict[str, list[str]] = {}
        for name in fp8:
            result = given[f"{operation} {name}"]
            if not result.startswith("!"):
                narrow.setdefault("itself" if result == name else _short(result), []).append(_short(name))
        said = [f"{', '.join(of)}: {result}" for result, of in narrow.items()]
        wide = [given[f"{operation} {n}"] for n in ("bfloat16", "float16", "float32")]
        rows.append((operation, *("–" if w.startswith("!") else _short(w) for w in wide), "; ".join(said) or "–"))
    return table(("operation", "of bf16", "of fp16", "of fp32", "of fp8, e8m0, fp4"), rows)


_PAIRS = ("promote", "0-dim", "number")


PAGE = Page("torch-types.md", "torch_types", lambda: below(load()))


def main(arguments: list[str]) -> None:
    """Record a version, or write the page."""
    types = load() if DATA.exists() else Types((), {})
    if arguments:
        _, wheel, how, file = arguments
        measured = json.loads(Path(file).read_text(encoding="utf-8"))
        version = measured["version"].split("+")[0]
        types = recorded(types, Wheel("torch", version, wheel, str(datetime.date.today()), how), measured["found"])
        held = {"wheels": [asdict(w) for w in types.wheels], "answers": types.answers}
        DATA.write_text(json.dumps(held, indent=0) + "\n", encoding="utf-8")
    PAGE.write()


if __name__ == "__main__":
    main(sys.argv[1:])
