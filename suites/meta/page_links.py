"""Links and headings of pages in Markdown: where a relative link leads, and whether there is such a place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from narrowgauge.suites.meta.pages import anchor

#: folders that are nobody's pages: what tools leave, and environments
_ASIDE = {".git", ".tox", ".venv", "venv", "build", "dist", "node_modules", ".narrowgauge", ".pytest_cache"}
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\))?[^()\s]*)\)")


def pages(root: Path) -> list[Path]:
    """Every page below a folder."""
    found = (p for p in root.rglob("*.md") if not _ASIDE & set(p.relative_to(root).parts))
    return sorted(p for p in found if not any(part.startswith(".") for part in p.relative_to(root).parts))


def links(page: Path) -> Iterator[str]:
    """Targets of all links and pictures of a page; what stands in code is none."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    yield from _LINK.findall(re.sub(r"`[^`\n]*`", "code", text))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Where a page can be entered: its headings, a second one of a name with -1 behind it, and so on."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = anchor(re.sub(r"[`*]", "", plain))
        count = counts.get(name, 0)
        found.add(f"{name}-{count}" if count else name)
        counts[name] = count + 1
    return frozenset(found)


def wrong(page: Path, target: str) -> str:
    """What is wrong with a relative link of a page; "" where it leads to something."""
    if re.match(r"[a-z]+:", target):
        return ""
    path, _, place = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.exists():
        return f"{target}: there is no such file"
    if place and place not in anchors(found):
        return f"{target}: {found.name} has no such heading"
    return ""
