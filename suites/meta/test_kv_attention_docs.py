# SPDX-License-Identifier: Apache-2.0
"""What docs/kv-attention.md shows and counts."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import narrowgauge
from narrowgauge.reference.kv.attention import attend
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.suites.meta.test_kv_attention import in_bits, shaped

pytestmark = pytest.mark.meta

PAGE = (Path(narrowgauge.__file__).parents[1] / "docs" / "kv-attention.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE)


def test_the_example_runs() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"(?:^    .*\n|^\n)+", PAGE, re.MULTILINE)
    code = next(block for block in blocks if "import" in block)
    exec(textwrap.dedent(code), names)
    assert names["codes"].low.shape == (8, 64)
    assert names["codes"].exact


def half_width(keys: int, width: int, weights: str) -> str:
    """Median over noise, q as bfloat16 and the rest as e4m3 holds it, in ulps of bfloat16; one digit."""
    columns = min(width, 512)
    query, cache = in_bits(shaped(1, 8, width), 8), in_bits(shaped(2, keys, 1, width), 4)
    values = in_bits(shaped(3, keys, 1, columns), 4)
    low, high = attend(query, cache, values, Attention(float(np.float32(width**-0.5)), weights=weights))
    ulp = np.exp2(np.floor(np.log2(np.abs(low + high) / 2)) - 7)
    return f"{float(f'{np.median((high - low) / 2 / ulp):.1g}'):g}"


@pytest.mark.parametrize(("keys", "rest"), ROWS)
def test_the_table_of_widths(keys: str, rest: str) -> None:
    found = [half_width(int(keys), width, to) for width in (64, 576) for to in ("float32", "bfloat16")]
    assert found == rest.split(" | ")


def test_the_table_has_rows() -> None:
    assert len(ROWS) == 6
