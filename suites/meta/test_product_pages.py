# SPDX-License-Identifier: Apache-2.0
"""docs/products.md says of each product and accumulator what the catalogue says."""

from __future__ import annotations

import pytest

from narrowgauge.suites.meta.product_pages import MARK, PAGE, below

pytestmark = pytest.mark.meta


def test_the_page_is_as_it_would_be_written_now() -> None:
    assert PAGE.read_text(encoding="utf-8").split(MARK)[1] == below(), (
        "run python -m narrowgauge.suites.meta.product_pages"
    )
