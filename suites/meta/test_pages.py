# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ that are written from registries are as they would be written now, and no other page says it is."""

from __future__ import annotations

import re

import pytest

from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.faults.applicability import Applicability
from narrowgauge.reference.faults.registry import FAULTS
from narrowgauge.reference.faults.reports import link_of
from narrowgauge.reference.symptoms import SYMPTOMS
from narrowgauge.suites.meta import (
    audit_pages,
    conversion_pages,
    fault_pages,
    fault_places,
    format_pages,
    format_pictures,
    kv_cache_pages,
    kv_pages,
    layout_pages,
    legal_pages,
    porting_pages,
    product_pages,
    recipe_pages,
    torch_products,
    torch_types,
    unit_pages,
    vendor_pages,
)
from narrowgauge.suites.meta.pages import DOCS, Page, anchor, line, table

pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(not DOCS.exists(), reason="the package is installed without docs/"),
]

PAGES = (
    audit_pages.PAGE,
    conversion_pages.PAGE,
    *fault_pages.PAGES,
    *format_pages.PAGES,
    kv_cache_pages.PAGE,
    kv_pages.PAGE,
    layout_pages.PAGE,
    legal_pages.PAGE,
    porting_pages.PAGE,
    product_pages.PAGE,
    recipe_pages.PAGE,
    torch_products.PAGE,
    torch_types.PAGE,
    unit_pages.PAGE,
    *vendor_pages.PAGES,
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


# --- faults and symptoms ---------------------------------------------------------------------------------------------

#: repositories of which several have the name, and none is known to be meant
WHOSE = {"pto-isa", "1bit-MONSTER", "pith-train"}


def test_every_fault_stands_on_one_page() -> None:
    named = [fault.name for family in fault_pages.FAMILIES for fault in fault_pages.of(family)]
    assert sorted(named) == sorted(FAULTS)
    assert set(fault_places.load()) == set(FAULTS)


def test_a_report_is_a_link_or_says_how_it_is_known() -> None:
    assert link_of("triton#8322") == "https://github.com/triton-lang/triton/issues/8322"
    assert link_of("ROCm/TransformerEngine#485") == "https://github.com/ROCm/TransformerEngine/issues/485"
    assert link_of("gfloat e8m0, measured") == link_of("nobody-knows#1") == link_of("triton#later") == ""
    unlinked = {report for fault in FAULTS.values() for report in fault.reports if not link_of(report)}
    reports = {report for report in unlinked if not report.endswith((", measured", ", read"))}
    assert {report.partition("#")[0] for report in reports} == WHOSE


def test_where_a_fault_shows_is_said_of_what_was_found() -> None:
    found = [
        Applicability("quantize/ocp.mxfp4/float32/float4_e2m1fn", "shows", 7, 1000, "rows_128"),
        Applicability("cast/ocp_saturate/float32/float8_e4m3fn", "shows", 1234, 5678, "edges"),
        Applicability("cast/ocp_saturate/bfloat16/float8_e5m2", "not shown", 0, 5678, "edges"),
        Applicability("cast/ieee/float8_e5m2/bfloat16", "equivalent", 0, 256, "every_code"),
    ]
    assert fault_places.places_of(found) == {
        "shows in": "quantizers of `ocp.mxfp4`; casts to `float8_e4m3fn`",
        "cases": "`rows_128`, `edges`",
        "example": "`cast/ocp_saturate/float32/float8_e4m3fn`, case `edges`: 1,234 of 5,678 outputs differ",
        "never shows in": "1 casts, by every input that there is",
    }
    assert fault_places.places_of(found[2:3]) == {"shows in": ""}


def test_a_symptom_is_asked_for_by_a_word_that_leads_to_it() -> None:
    words = {s.title: fault_pages.asked(s) for s in SYMPTOMS}
    assert words["values are half or twice what they should be"] == "twice", "half alone is float16"
