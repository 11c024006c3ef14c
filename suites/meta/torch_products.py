"""What torch's own products did where they were measured (torch_products.json): how it is recorded, and the page.

    python -m narrowgauge.suites.meta.measure_products > found.json                                  # beside a torch
    python -m narrowgauge.suites.meta.torch_products record WHEEL HOW found.json

``python -m narrowgauge.suites.meta.torch_products`` alone writes the tables of docs/torch-products.md.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import Version

from narrowgauge.kernels_under_test.torch_switches import SWITCHES, Switch
from narrowgauge.suites.meta.pages import Page
from narrowgauge.suites.meta.proof import table

DATA = Path(__file__).with_name("torch_products.json")
#: what one run of measure_products.py printed, with the wheel's name, the day, and how
Measured = dict[str, Any]
#: what is an answer, and not where it was asked
ANSWERS = ("products", "scaled", "others", "switches")


def load() -> list[Measured]:
    """What was recorded, in order of release."""
    held: list[Measured] = json.loads(DATA.read_text(encoding="utf-8"))
    return held


def recorded(held: list[Measured], found: Measured) -> list[Measured]:
    """The same with one more, in place of one of the same version and processor."""
    kept = [m for m in held if (m["version"], m["cpu"]) != (found["version"], found["cpu"])]
    return sorted((*kept, found), key=lambda m: (Version(m["version"]), m["cpu"]))


def news(held: list[Measured], found: Measured) -> str:
    """What differs from what was recorded of this version on such a processor; "" where nothing was."""
    for known in held:
        if (known["version"], known["cpu"]) == (found["version"].split("+")[0], found["cpu"]):
            wrong = [f"{a}: {known[a]}, now {found[a]}" for a in ANSWERS if known[a] != found[a]]
            return "\n".join(wrong)
    return ""


def against_the_claims(found: Measured) -> list[str]:
    """What no processor may do, by what the kernels of kernels_under_test/torch_gemm.py claim."""
    wrong = []
    for name, each in found["products"].items():
        for asked, given in (("bits", "23"), ("with a bias", "rounded once"), ("4,096 ones", "4096")):
            if each[asked] != given:
                wrong.append(f"{name}: {asked} {each[asked]}, want {given}")
    amx = "AMX" in found["cpu"].split()
    for name, given in found["switches"].items():
        switch = SWITCHES[name]
        changes = switch.cpu if amx else ""
        allowed = ("float32", *((changes,) if changes else ()))
        kind = given.removeprefix("operands ").removeprefix("sums ")
        if not given.startswith("raises") and kind.split(",")[0] not in allowed:
            wrong.append(f"{name}: {given}, want {' or '.join(allowed)}")
    return wrong


# --- the page --------------------------------------------------------------------------------------------------------


def below(held: list[Measured]) -> str:
    """All that stands below the mark."""
    return "\n" + "\n".join(_lines(held)) + "\n"


def _lines(held: list[Measured]) -> Iterator[str]:
    last = held[-1]
    where = "; ".join(f"{m['version']} ({m['how']}, {m['cpu']}, {m['measured']})" for m in held)
    yield f"Measured with torch {where}. What is shown is {last['version']}; {_differing(held)}."
    yield from ("", "## Plain numbers", "")
    asked = list(next(iter(last["products"].values())))
    yield table(("of", *asked), ((name, *each.values()) for name, each in last["products"].items()))
    yield from ("", "bits: how far below 256 a term may stand and still be there when -256 follows.", "")
    yield from ("## Scaled, whole, grouped", "")
    scaled = [(f"_scaled_mm, scales of a {n}: scaled is", given) for n, given in last["scaled"].items()]
    yield table(("asked", "answer"), [*scaled, *last["others"].items()])
    yield from ("", "## Switches", "")
    head = ("switch", "setting", "about", "on CUDA it may change", "on a CPU with AMX", "measured on this CPU")
    yield table(head, (_row(s, last["switches"][s.name]) for s in SWITCHES.values()))


def _row(s: Switch, measured: str) -> tuple[str, ...]:
    setter = s.path.rpartition("/")[2]
    setting = f"`torch.{setter}({s.value!r})`" if "/" in s.path else f"`torch.{s.path} = {s.value!r}`"
    return s.name, setting, f"{s.source} operands", s.cuda or "nothing", s.cpu or "nothing", measured


def _differing(held: list[Measured]) -> str:
    different = {m["version"] for m in held if any(m[a] != held[-1][a] for a in ANSWERS)}
    return f"{', '.join(sorted(different))} differs" if different else "no answer differs between them"


PAGE = Page("torch-products.md", "torch_products", lambda: below(load()))


def main(arguments: list[str]) -> None:
    """Record a version, or write the page."""
    held = load() if DATA.exists() else []
    if arguments:
        _, wheel, how, file = arguments
        found = json.loads(Path(file).read_text(encoding="utf-8"))
        of = {
            "version": found["version"].split("+")[0],
            "wheel": wheel,
            "measured": str(datetime.date.today()),
            "how": how,
        }
        held = recorded(held, found | of)
        DATA.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    PAGE.write()


if __name__ == "__main__":
    main(sys.argv[1:])
