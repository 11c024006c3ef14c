# SPDX-License-Identifier: Apache-2.0
"""What docs/kv-attention.md shows, counts and says of torch."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import narrowgauge
from narrowgauge.reference.compare import compare
from narrowgauge.reference.kv.arithmetic import coded
from narrowgauge.reference.kv.attention import attend, rounded
from narrowgauge.reference.kv.rule import Attention
from narrowgauge.suites.meta.marks import needs_torch
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


@needs_torch
def test_torch_lies_inside(tmp_path: Path) -> None:
    """A kernel that nobody here wrote. Its math path keeps weights in float32; its flash kernel rounds them."""
    q, k, v = 3 * in_bits(shaped(1, 4, 64), 6), in_bits(shaped(2, 70, 4, 64), 8), in_bits(shaped(3, 70, 4, 64), 8)
    np.savez(tmp_path / "given.npz", q=q, k=k, v=v)
    script = str(Path(__file__).with_name("torch_attention.py"))
    subprocess.run([sys.executable, script, str(tmp_path / "given.npz"), str(tmp_path / "found.npz")], check=True)
    for name, found in np.load(tmp_path / "found.npz").items():
        form, path = name.split()
        low, high = attend(q, k, v, Attention(0.125, weights=form if path == "flash" else "float32"))
        interval = {"out": rounded(low, high, form)}
        assert compare({"out": coded(found, form)}, interval).total == 0, name
        wrong = compare({"out": coded(found * (1 + 2.0**-6), form)}, interval)
        assert wrong.total > 0, name
