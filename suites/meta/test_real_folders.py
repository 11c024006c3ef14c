# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that quantizers wrote themselves, of one random Llama: they agree with each other, and what is wrong in
two of them is found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.checkpoints.asked import Asked
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.checkpoints.report import Found
from narrowgauge.checkpoints.values import rows

DATA = os.environ.get("NARROWGAUGE_DATA", "")
pytestmark = [
    pytest.mark.meta,
    pytest.mark.checkpoint,
    pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints that tools wrote"),
]

#: decibels that each folder's weights keep of those in int8, and half a decibel of room: 43 dB of int8 hide 0.3 of 31
AGREE = {
    "ct_FP8": 31.2, "ct_FP8_DYNAMIC": 31.2, "mo_FP8": 31.2, "mo_FP8_PB": 31.2, "quark_fp8_kv": 31.2,
    "quark_ptpc_fp8": 31.2, "ct_MXFP8": 30.3, "ct_NVFP4": 20.2, "mo_NVFP4": 20.4, "quark_mxfp4": 19.0, "ct_MXFP4": 18.8,
    "mo_MXFP4": 18.5, "ct_W4A16": 18.6,
}  # fmt: skip
#: kinds of what is wrong or doubtful, by folder; nothing in the others
FOUND: Mapping[str, set[str]] = {
    "ct_NVFP4": {"shards differ"},
    "ct_FP8_KV": {"scale negative", "scale zero", "scale implausible", "codes saturate", "KV scheme dropped"},
}


def folder(name: str) -> Path:
    return Path(DATA, "quantised-checkpoints", name)


def weights(name: str) -> dict[str, npt.NDArray[np.float64]]:
    """Each quantized weight, dequantized."""
    made, _ = passports(open_checkpoint(folder(name)))
    return {p.module: np.concatenate([piece.values for piece in rows(p)]) for p in made}


@pytest.fixture(scope="module")
def finest() -> dict[str, npt.NDArray[np.float64]]:
    """Of W8A8, which is the nearest to what they all were made from."""
    return weights("ct_W8A8")


@pytest.mark.parametrize("name", AGREE)
def test_three_tools_agree_on_the_weights(name: str, finest: dict[str, npt.NDArray[np.float64]]) -> None:
    """No two of their layouts are alike, so a mistake in reading one would set it apart: by 20 dB and more."""
    found = weights(name)
    assert found.keys() == finest.keys()
    for module, x in finest.items():
        kept = 10 * np.log10(float((x**2).sum()) / float(((found[module] - x) ** 2).sum()))
        assert abs(kept - AGREE[name]) < 0.5, module


@pytest.mark.parametrize("name", [*AGREE, "ct_W8A8", "ct_FP8_KV"])
def test_what_is_found_in_them(name: str) -> None:
    asked = Asked(folder(name))
    if name == "ct_FP8_KV":
        asked = replace(asked, engine="vllm", kv_cache_dtype="fp8")
    said = [event for event in audit(asked) if isinstance(event, Found)]
    assert {f.finding.kind for f in said if f.level != "note"} == FOUND.get(name, set())
