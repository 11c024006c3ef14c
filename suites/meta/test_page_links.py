# SPDX-License-Identifier: Apache-2.0
"""Every relative link of every page leads to something, docs/README.md leads to every page, and counts are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.convert.catalogue import CONVERSIONS
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.kv.caches import CACHES
from narrowgauge.reference.layouts import LAYOUTS
from narrowgauge.reference.matmul.products import PRODUCTS
from narrowgauge.reference.policies import POLICIES
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.wide.catalogue import WIDE
from narrowgauge.suites.meta.page_links import anchors, links, pages, wrong
from narrowgauge.suites.meta.pages import DOCS, anchor

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


# --- what pages count ------------------------------------------------------------------------------------------------

#: a count in the README, in its words, and what is counted
COUNTED = (
    (r"(Twenty-\w+) formats", len(FORMATS)),
    (r"(Thirty-\w+) named cast policies", len(POLICIES)),
    (r"(\d+) quantizers as recipes", len(RECIPES)),
    (r"(\d+) layouts in memory", len(LAYOUTS)),
    (r"(\d+) key-value caches", len(CACHES)),
    (r"(\d+) conversions of checkpoints", len(CONVERSIONS)),
    (r"(\d+) products of matrices", len(PRODUCTS)),
    (r"(\d+) matrix units", len(UNITS)),
    (r"(\d+) wide operations", len(WIDE)),
    (r"(\d+) faults: of rounding", len(FAULTS)),
)
TENS, ONES = {"Twenty": 20, "Thirty": 30}, ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.mark.parametrize(("words", "count"), COUNTED)
def test_the_readme_counts_right(words: str, count: int) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## What is in it now")[1].split("\n## ")[0]
    (said,) = re.findall(words, " ".join(text.split()))
    tens, _, ones = said.partition("-")
    assert (int(said) if said.isdigit() else TENS[tens] + ONES.index(ones)) == count


def test_every_recipe_has_its_place_in_the_catalogue() -> None:
    assert {anchor(name) for name in RECIPES} <= anchors(DOCS / "recipes.md")
    assert len({anchor(name) for name in RECIPES}) == len(RECIPES)
