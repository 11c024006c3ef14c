"""Writes the second half of docs/audit.md: every kind of finding, from the declarations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from narrowgauge.checkpoints.findings import Kind
from narrowgauge.checkpoints.kinds import GROUPS
from narrowgauge.checkpoints.methods import METHODS, Method
from narrowgauge.checkpoints.report import LEVELS
from narrowgauge.suites.meta.pages import Page, table

#: what each file of kinds is about, in the order of the page
TITLES = {
    "files": "Files",
    "config": "Configuration against tensors",
    "scales": "Scales and codes",
    "values": "Numbers, and where they go",
    "online": "Weights under a recipe",
    "against": "Weights against the original's",
    "engines": "Engines, targets and lines of logs",
}


def kinds(title: str, group: Mapping[str, Kind]) -> Iterator[str]:
    """The kinds of one subject: what is wrong first."""
    yield f"### {title}\n"
    ordered = sorted(group.items(), key=lambda item: (LEVELS.index(item[1].level), item[0]))
    rows = ((name, kind.level, kind.meaning, kind.remedy) for name, kind in ordered)
    yield from table(("finding", "level", "what is so", "what to do"), rows)
    yield ""


def below() -> str:
    """All that stands below the mark."""
    lines = ["", "## Every kind of finding\n"]
    for name, title in TITLES.items():
        lines += kinds(title, GROUPS[name])
    lines += methods()
    return "\n".join(lines).rstrip() + "\n"


def methods() -> Iterator[str]:
    """Every quant_method, and what of it is read."""
    yield "## Methods of quantization\n"
    yield "What `quant_method` can say. Of one that is not read an audit says so, and what its tensors are by name.\n"
    rows = ((f"`{n}`", ", ".join(method.engines) or "neither engine", _read(method)) for n, method in METHODS.items())
    yield from table(("method", "taken by", "read"), rows)
    yield ""


def _read(method: Method) -> str:
    if method.unread:
        return f"no: {method.unread}"
    if method.online:
        return "nothing is in the file: the engine quantizes plain weights while it loads them (`--to RECIPE`)"
    return f"yes, but for {method.in_part}" if method.in_part else "yes"


PAGE = Page("audit.md", "audit_pages", below)

if __name__ == "__main__":
    PAGE.write()
