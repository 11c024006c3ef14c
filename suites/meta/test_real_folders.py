# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that quantizers wrote themselves: what is wrong in two of them is found, and nothing in the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.report import Found

DATA = os.environ.get("NARROWGAUGE_DATA", "")
pytestmark = [
    pytest.mark.meta,
    pytest.mark.checkpoint,
    pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints that tools wrote"),
]

FOLDERS = [
    "ct_FP8", "ct_FP8_DYNAMIC", "ct_FP8_KV", "ct_MXFP4", "ct_MXFP8", "ct_NVFP4", "ct_W4A16", "ct_W8A8", "mo_FP8",
    "mo_FP8_PB", "mo_MXFP4", "mo_NVFP4", "quark_fp8_kv", "quark_mxfp4", "quark_ptpc_fp8",
]  # fmt: skip
#: kinds of what is wrong or doubtful, by folder; nothing in the others
FOUND: Mapping[str, set[str]] = {
    "ct_NVFP4": {"shards differ"},
    "ct_FP8_KV": {"scale negative", "scale zero", "scale implausible", "codes saturate", "KV scheme dropped"},
}


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_found_in_them(name: str) -> None:
    asked = Asked(Path(DATA, "quantised-checkpoints", name))
    if name == "ct_FP8_KV":
        asked = replace(asked, engine="vllm", kv_cache_dtype="fp8")
    said = [event for event in audit(asked) if isinstance(event, Found)]
    assert {f.finding.kind for f in said if f.level != "note"} == FOUND.get(name, set())
