"""Faults of which tokens a reader gathers: ``kv_page.*``, of readers of values and of attention."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.reference.faults import kv_edits as kv
from narrowgauge.reference.faults.fault import PagedFault
from narrowgauge.reference.faults.kv_edits import PagedEdit, Paging, by_page
from narrowgauge.reference.kv.call import Numbers, sizes_of
from narrowgauge.reference.kv.paged import Paged

_COMMON_BLOCK = 16


def _row(step: int) -> PagedEdit:
    """The row of the table of another sequence."""
    return by_page(lambda p, n, page, place: (p.table[(n + step) % len(p.table)][page], place))


def _in_pages_of(block: int | float) -> PagedEdit:
    def change(p: Paging, n: int, page: Numbers, place: Numbers) -> tuple[Numbers, Numbers]:
        token, other = page * p.block + place, block if isinstance(block, int) else max(int(p.block * block), 1)
        index = np.minimum(token // other, p.table.shape[1] - 1)
        return p.table[n][index], token % other

    return by_page(change)


def _shifted(step: int) -> PagedEdit:
    """Tokens are read from the slot before or after, of the same page."""

    def change(p: Paging, n: int, page: Numbers, place: Numbers) -> tuple[Numbers, Numbers]:
        token = np.maximum(page * p.block + place + step, 0)
        index = np.minimum(token // p.block, p.table.shape[1] - 1)
        return p.table[n][index], token % p.block

    return by_page(change)


def _transposed(p: Paging, n: int, page: Numbers, place: Numbers) -> tuple[Numbers, Numbers]:
    return p.table.ravel()[page * len(p.table) + n], place


def _far_pages_empty(paged: Paged, x: Input) -> Coded:
    """Zeros for what stands in the third page and later."""
    start = 2 * sizes_of(x.given).block

    def near(value: Coded) -> Coded:
        data = value.data.copy()
        data[start:] = 0
        return Coded(value.format, data)

    names = [n for n in kv.kept(paged) if n in x.given]
    return Input(x.format, near(x).data, {**x.given, **{n: near(x.given[n]) for n in names}})


FAULTS = (
    PagedFault(
        "kv_page.logical_for_physical",
        "PAGE",
        by_page(lambda p, n, page, place: (page, place)),
        "right for the first request of a service alone, then other requests' tokens",
        "the number of a page in its sequence is taken for its number in the cache: the table is not read",
        (),
    ),
    PagedFault(
        "kv_page.table_transposed",
        "PAGE",
        by_page(_transposed),
        "right with one sequence; else requests read each other's pages",
        "the table is indexed [page, sequence] where it is [sequence, page]",
        (),
    ),
    PagedFault(
        "kv_page.of_the_first_sequence",
        "PAGE",
        by_page(lambda p, n, page, place: (p.table[0][page], place)),
        "every request reads the tokens of the first one",
        "the stride between rows of the table is left out",
        (),
    ),
    PagedFault(
        "kv_page.of_the_sequence_before",
        "PAGE",
        _row(-1),
        "each request reads the tokens of another one",
        "the row of the table is one off",
        (),
    ),
    PagedFault(
        "kv_page.of_the_sequence_after",
        "PAGE",
        _row(1),
        "each request reads the tokens of another one",
        "the row of the table is one off",
        (),
    ),
    PagedFault(
        "kv_page.first_page_for_all",
        "PAGE",
        by_page(lambda p, n, page, place: (p.table[n][np.zeros_like(page)], place)),
        "right for short requests; long ones read their first page again and again",
        "the index into the table is not advanced",
        (),
    ),
    PagedFault(
        "kv_page.places_left_out",
        "PAGE",
        by_page(lambda p, n, page, place: (p.table[n][page], np.zeros_like(place))),
        "the first token of each page stands for all of it",
        "the place in the page is not added to the address",
        (),
    ),
    PagedFault(
        "kv_page.pages_of_16",
        "PAGE",
        _in_pages_of(_COMMON_BLOCK),
        "right where a page has 16 slots",
        "the number of slots in a page is a constant, 16, and not the cache's",
        (),
    ),
    PagedFault(
        "kv_page.half_as_long",
        "PAGE",
        _in_pages_of(0.5),
        "the upper halves of pages are never read",
        "page and place are computed for half the number of slots in a page",
        (),
    ),
    PagedFault(
        "kv_page.twice_as_long",
        "PAGE",
        _in_pages_of(2.0),
        "every second page is read from beyond the one before",
        "page and place are computed for twice the number of slots in a page",
        (),
    ),
    PagedFault(
        "kv_page.one_token_later",
        "PAGE",
        _shifted(1),
        "each token is read as the next one, the last as what stands behind it",
        "positions are counted from 1",
        (),
    ),
    PagedFault(
        "kv_page.one_token_earlier",
        "PAGE",
        _shifted(-1),
        "each token is read as the one before, the newest is missing",
        "positions are one behind",
        (),
    ),
    PagedFault(
        "kv_page.beyond_32_bits",
        "INDEX",
        kv.where(kv.reads, kv.taking(_far_pages_empty)),
        "right in small caches; in large ones what lies beyond 2 GiB reads as exact zeros",
        "an offset is computed in 32 bits, and a bounded load gives 0 beyond (here: the third page and later)",
        ("vllm#52109",),
    ),
)
