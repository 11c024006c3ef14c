# SPDX-License-Identifier: Apache-2.0
"""Files that torch.save writes, through torch in a child: its names are paths with "/" into nested dictionaries."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from narrowgauge.suites.meta.small_bytes import Raw, write_safetensors

CHILD = """
import sys, torch
from safetensors.torch import load_file
tree = {}
for name, tensor in load_file(sys.argv[1]).items():
    at = tree
    *parents, last = name.split("/")
    for key in parents:
        at = at.setdefault(int(key) if key.isdigit() else key, {})
    at[last] = tensor.clone()
torch.save(tree, sys.argv[2])
"""


def save(path: Path, tensors: Mapping[str, Raw]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.safetensors"
        write_safetensors(source, tensors)
        subprocess.run([sys.executable, "-c", CHILD, str(source), str(path)], check=True, timeout=120)
