# SPDX-License-Identifier: Apache-2.0
"""Wrong products of matrices: each kernel says its mistake, and where that was reported."""

from __future__ import annotations

import re

import pytest

from narrowgauge.suites.meta.wrong_products_table import WRONG

pytestmark = pytest.mark.meta

#: a report's number, a file and lines, an entry of the facts, a vendor's note; or that no report is known
SOURCE = re.compile(r"\w#\d+|\.(py|cu):\d+|the facts|note on|no report of just this is known")


@pytest.mark.parametrize("name", WRONG)
def test_words_say_the_mistake_and_the_report(name: str) -> None:
    assert re.search(r"[:;] |\. ", WRONG[name].words)
    assert SOURCE.search(WRONG[name].words), WRONG[name].words
