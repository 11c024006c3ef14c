"""A small set of golden vectors, and changes of it, for the tests of ``golden diff``."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden import sets
from narrowgauge.golden.difference import Difference, OfFile, difference
from narrowgauge.golden.families import Family
from narrowgauge.golden.manifest import NAME, metadata_for
from narrowgauge.golden.reasons import Reasons
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.policies import POLICIES
from narrowgauge.suites.meta.golden_sets import FAMILIES, SATURATING

NAMES = (
    "cast-ocp_saturate-float8_e4m3fn",
    "cast-ieee-float16",
    "decode-int4",
    "stochastic-ml_dtypes-float4_e2m1fn",
)
FEW = [FAMILIES[name] for name in NAMES]


def change(monkeypatch: pytest.MonkeyPatch, rule: str, fmt: str, **choices: Any) -> None:
    """Another choice in a named policy at one format."""
    named = POLICIES[rule].by_format
    monkeypatch.setitem(named, fmt, dataclasses.replace(named[fmt], **choices))


def parted(old: Path, new: Path | None = None, reasons: Reasons | None = None) -> Difference:
    return difference(sets.at(old), sets.at(new) if new else sets.generated(), reasons or Reasons(), first=3)


def only(found: Difference) -> OfFile:
    (file,) = found.files
    return file


def forged(folder: Path, tensors: dict[str, Coded], family: Family = SATURATING) -> Path:
    """Other tensors in a family's file of a copy, which the copied manifest vouches for."""
    path = folder / f"{family.name}.safetensors"
    write(path, tensors, metadata_for(family), typed=False)
    said = json.loads((folder / NAME).read_text())
    entry = said["files"][path.name]
    entry |= {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}
    (folder / NAME).write_text(json.dumps(said))
    return folder


def copied(old: Path) -> Path:
    return Path(shutil.copytree(old, old.with_name("new")))
