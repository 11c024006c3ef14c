# SPDX-License-Identifier: Apache-2.0
"""Every relative link of every page leads to something, and docs/README.md leads to every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from narrowgauge.suites.meta.page_links import anchors, links, pages, wrong
from narrowgauge.suites.meta.pages import DOCS

ROOT, INDEX = DOCS.parent, DOCS / "README.md"
pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(not DOCS.exists(), reason="the package is installed without docs/"),
]


def test_every_relative_link_leads_to_something() -> None:
    found = pages(ROOT)
    assert {ROOT / "README.md", ROOT / "CONTRIBUTING.md", INDEX} <= set(found)
    broken = ((page, wrong(page, link)) for page in found for link in links(page))
    assert [f"{page.relative_to(ROOT)}: {why}" for page, why in broken if why] == []


def test_the_index_has_every_page_of_its_folder() -> None:
    listed = {(DOCS / link).resolve() for link in links(INDEX) if "#" not in link and link.endswith(".md")}
    assert set(DOCS.glob("*.md")) - {INDEX} <= listed


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, left = set(), [INDEX]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        files = (link.partition("#")[0] for link in links(page))
        left += [(page.parent / file).resolve() for file in files if ":" not in file]
    assert set(DOCS.rglob("*.md")) - seen == set()


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/README.md" in set(links(ROOT / "README.md"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see [a](b.md) and ![p](q.png)", ["b.md", "q.png"]),
        ("`[a](b.md)` [c](d.md#e)", ["d.md#e"]),
        ("```text\n[a](b.md)\n```\n[x [y]](z.md)", ["z.md"]),
        ("[a](https://x.y/z_(w))", ["https://x.y/z_(w)"]),
    ],
)
def test_links_are_found(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert list(links(page)) == found


def test_what_leads_nowhere_is_said(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("# One `two`\n\n## Same\n\n## Same\n\n```\n# no heading\n```\n", encoding="utf-8")
    other.write_text("", encoding="utf-8")
    assert anchors(page) == {"one-two", "same", "same-1"}
    right = ("#one-two", "page.md#same-1", "other.md", "https://nowhere.example/#x", "../" + tmp_path.name)
    assert [wrong(page, link) for link in right] == [""] * len(right)
    assert wrong(page, "gone.md") == "gone.md: there is no such file"
    assert wrong(page, "#same-2") == "#same-2: page.md has no such heading"
    assert wrong(page, "other.md#x") == "other.md#x: other.md has no such heading"
