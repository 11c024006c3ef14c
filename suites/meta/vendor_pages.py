"""Writes the tables of docs/nvidia.md, docs/amd.md and docs/first-night-amd.md: machines, and what is open on AMD."""

from __future__ import annotations

from collections.abc import Iterator

from narrowgauge.ci.lanes import lane_named
from narrowgauge.devices.emulator.models.amd import models_of
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.units.registry import UNITS, UNKNOWN
from narrowgauge.suites.meta.pages import Page, table

#: words of a question that needs no answer: codes are compared with NaN as a class
NO_MATTER = ("which NaN", "payload")
#: so many instructions are named for one question
NAMED = 3


def machines(name: str) -> Iterator[str]:
    """The machines of a lane, and the variable that each one's label is."""
    lane = lane_named(name)
    rows = ((TARGETS[t].product, f"`{t}`", f"`{lane.runner(t)}`") for t in lane.targets)
    yield f"\n## Machines\n\nThe image is `{lane.image}` (ci/lanes.toml); each machine has {lane.shards} shards.\n"
    yield from table(("GPU", "ARCH", "variable"), rows)


def policies() -> Iterator[str]:
    """Policies that a document says, of AMD's targets."""
    found = [p for p in POLICIES.values() if p.evidence == "document" and "gfx" in p.applies]
    yield from table(("policy", "on", "says who"), ((f"`{p.name}`", p.applies, p.authority) for p in found))


def instructions() -> Iterator[str]:
    """By what the words of an instruction leave open: which ones, and where."""
    found: dict[str, dict[str, list[str]]] = {}
    for target in lane_named("rocm").targets:
        for model in models_of(target).values():
            for question in model.open.split("; "):
                if question and not question.startswith(NO_MATTER):
                    found.setdefault(question, {}).setdefault(model.name, []).append(target)
    rows = (
        (question, _names(list(at)), ", ".join(dict.fromkeys(t for on in at.values() for t in on)))
        for question, at in found.items()
    )
    yield from table(("open", "instructions", "on"), rows)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"`{name}`" for name in names[:NAMED]) + more


def units() -> Iterator[str]:
    """Matrix units of AMD's lane, as far as no recording says what they do."""
    targets = lane_named("rocm").targets
    rows = []
    for gap in UNKNOWN:
        if on := [t for t in gap.targets if t in targets]:
            rows.append((", ".join(on), "no model", gap.known))
    for unit in UNITS.values():
        on = [t for t in unit.targets if t in targets]
        if on and unit.grade != "recorded" and not unit.name.startswith("plain."):
            rows.append((", ".join(on), f"`{unit.name}`", f"{unit.grade}: {unit.source}"))
    yield from table(("on", "unit", "what is known, or says who"), rows)


def open_questions() -> str:
    parts = [
        "\n## What is open\n\n### Casts whose policy is a document\n",
        *policies(),
        "\n### Instructions whose words leave several results\n",
        *instructions(),
        "\n### Matrix units that nobody recorded\n",
        *units(),
    ]
    return "\n".join(parts) + "\n"


def _machines(lane: str) -> Page:
    file = {"cuda": "nvidia.md", "rocm": "amd.md"}[lane]
    return Page(file, "vendor_pages", lambda: "\n".join(machines(lane)) + "\n")


PAGES = (_machines("cuda"), _machines("rocm"), Page("first-night-amd.md", "vendor_pages", open_questions))

if __name__ == "__main__":
    for page in PAGES:
        page.write()
