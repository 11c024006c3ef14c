# SPDX-License-Identifier: Apache-2.0
"""Real files against figures that were counted without us. They are not ours to ship: see docs/real-checkpoints.md."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.checkpoints.census import countable, take_census
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.suites.meta.real_files import REAL, RealFile

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
FOLDER = os.environ.get("NARROWGAUGE_REAL", "")
WHY = "NARROWGAUGE_REAL names no folder of installed packages with weights; docs/real-checkpoints.md says which"
FLOATS = ("float32", "float16")


@pytest.mark.skipif(not FOLDER, reason=WHY)
@pytest.mark.parametrize("file", REAL, ids=lambda f: f"{f.path}{' whole' * f.whole}")
def test_counts_are_those_of_numpy(file: RealFile) -> None:
    path = Path(FOLDER, file.path)
    if not path.exists():
        pytest.skip(f"{file.package} is not installed in NARROWGAUGE_REAL")
    checkpoint = open_checkpoint(path, torch_weights=True)
    tensors = [t for t in checkpoint.tensors.values() if t.format in FLOATS and (file.whole or t.role == "model")]
    counts = [take_census(t) for t in tensors if countable(t)]
    landed = [c.into["float16"] for c in counts if "float16" in c.into]  # of all but float16 itself
    assert (len(counts), sum(c.elements for c in counts)) == (file.tensors, file.values)
    assert sum(n.beyond for n in landed) == file.infinite
    assert sum(n.flushed for n in landed) == file.flushed
    assert max(c.amax for c in counts) == np.float32(file.largest)
    assert sum(n.subnormal for n in landed) == file.subnormal
