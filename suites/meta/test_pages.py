# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ that are written from registries are as they would be written now, and no other page says it is."""

from __future__ import annotations

import re

import pytest

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.suites.meta import (
    audit_pages,
    conversion_pages,
    format_pages,
    format_pictures,
    kv_cache_pages,
    kv_pages,
    layout_pages,
    legal_pages,
    product_pages,
    recipe_pages,
    torch_products,
    torch_types,
    unit_pages,
)
from narrowgauge.suites.meta.pages import DOCS, Page, anchor, line, table

pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(not DOCS.exists(), reason="the package is installed without docs/"),
]

PAGES = (
    audit_pages.PAGE,
    conversion_pages.PAGE,
    *format_pages.PAGES,
    kv_cache_pages.PAGE,
    kv_pages.PAGE,
    layout_pages.PAGE,
    legal_pages.PAGE,
    product_pages.PAGE,
    recipe_pages.PAGE,
    torch_products.PAGE,
    torch_types.PAGE,
    unit_pages.PAGE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.file)
def test_the_page_is_as_it_would_be_written_now(page: Page) -> None:
    assert page.is_current(), f"run python -m narrowgauge.suites.meta.{page.writer}"


def test_every_page_with_a_mark_is_looked_at() -> None:
    """A page of something that is no more is stale too."""
    marked = re.compile(r"^<!-- below: written by python -m narrowgauge\.suites\.meta\.(\w+) -->$", re.MULTILINE)
    found = {
        (str(path.relative_to(DOCS)), writer)
        for path in DOCS.rglob("*.md")
        for writer in marked.findall(path.read_text(encoding="utf-8"))
    }
    assert found == {(page.file, page.writer) for page in PAGES}


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if format_pictures.drawn(fmt)])
def test_a_picture_shows_the_numbers_of_today(name: str) -> None:
    """By a digest of all of them that is kept in the file; its bytes change with matplotlib."""
    path = format_pages.picture_of(FORMATS[name])
    assert format_pictures.is_current(FORMATS[name], path), (
        "run python -m narrowgauge.suites.meta.format_pages pictures"
    )
    assert path.read_bytes().startswith(b"\x89PNG")


def test_pictures_of_nothing_are_noticed() -> None:
    found = {path.stem for path in (DOCS / "formats").glob("*.png")}
    assert found == {name for name, fmt in FORMATS.items() if format_pictures.drawn(fmt)}
    assert not format_pictures.is_current(FORMATS["int8"], format_pages.picture_of(FORMATS["uint8"]))
    assert sum(path.stat().st_size for path in DOCS.rglob("*.png")) < 1_000_000


def test_a_stale_page_is_noticed() -> None:
    """One letter more below the mark, and no mark at all."""
    right = recipe_pages.PAGE
    assert not Page(right.file, right.writer, lambda: right.below() + "x").is_current()
    assert not Page(right.file, "another_writer", right.below).is_current()
    assert not Page("no-such-page.md", right.writer, right.below).is_current()


def test_a_table_has_as_many_cells_as_headings() -> None:
    assert table(("a", "b"), [("1", "2|3"), ("4\n5", "")]) == ["| a | b |", "|---|---|", "| 1 | 2\\|3 |", "| 4 5 |  |"]
    assert line("x") == "| x |"


@pytest.mark.parametrize(
    ("heading", "found"),
    [
        ("vllm.fp8_per_token_dynamic", "vllmfp8_per_token_dynamic"),
        ("May it go to MI300?", "may-it-go-to-mi300"),
        ("a - b", "a---b"),
        ("`code`, and more", "code-and-more"),
    ],
)
def test_an_anchor_is_as_github_makes_it(heading: str, found: str) -> None:
    assert anchor(heading) == found
