"""The capture of keys and values: small torch models of our own, in a process of theirs, against their raw tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.devices.device import ROOT
from narrowgauge.golden.safetensors_file import read
from narrowgauge.reference.kv.histogram import Histogram, histogram_of
from narrowgauge.suites.kv_stats import read_stats
from narrowgauge.suites.meta.command_sets import as_json
from narrowgauge.suites.meta.kv_programs import MODELS, PROGRAM
from narrowgauge.suites.meta.marks import needs_torch

pytestmark = [pytest.mark.meta, needs_torch, pytest.mark.usefixtures("plain_terminal")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kv")
    (made / "models.py").write_text(textwrap.dedent(MODELS))
    return made


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What the program said, once it has written its files."""
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(folder / "program.py"), str(folder)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ROOT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def same(got: Histogram, want: Histogram) -> None:
    for name in ("codes", "counts", "amax"):
        assert getattr(got, name).tolist() == getattr(want, name).tolist(), name
    assert (got.nan, got.inf, got.format) == (want.nan, want.inf, want.format)


def raw(folder: Path, name: str, part: str, heads: int) -> Histogram:
    """By our own counting of the tensor that the program kept."""
    held = read(folder / f"{name}.raw.safetensors").tensors[part]
    return histogram_of(Coded(held.format, held.data), heads)


#: file, layer, part, heads, place, rope
SEEN = [
    ("cached", "layers.0", "k", 2, "cache", "after"),
    ("cached", "layers.0", "v", 2, "cache", "none"),
    ("plain", "layers.0", "k", 2, "projection", "before"),
    ("plain", "layers.0", "v", 2, "projection", "none"),
    ("masked", "layers.0", "k", 2, "cache", "none"),
    ("masked", "layers.0", "v", 2, "cache", "none"),
    ("fused", "layers.0", "k", 2, "projection", "none"),
    ("fused", "layers.0", "v", 2, "projection", "none"),
    ("grouped", "layers.0", "k", 2, "projection", "none"),
    ("grouped", "layers.0", "v", 2, "projection", "none"),
    ("latent", "layers.0", "latent", 1, "norm", "none"),
    ("latent", "layers.0", "rope", 1, "projection", "before"),
    ("chosen", "one", "k", 2, "projection", "none"),
    ("chosen", "two", "v", 2, "projection", "none"),
]


@pytest.mark.parametrize(("name", "layer", "part", "heads", "place", "rope"), SEEN)
def test_every_element_is_counted_once(
    name: str, layer: str, part: str, heads: int, place: str, rope: str, folder: Path, told: dict[str, Any]
) -> None:
    found = read_stats(folder / f"{name}.safetensors").layers[layer][part]
    want = raw(folder, name, part, heads)
    same(found, want)
    assert (found.place, found.rope) == (place, rope)
    if name == "masked" and part == "k":
        assert (found.nan, found.inf) == (8, 8)


def test_what_is_said_of_a_file(folder: Path, told: dict[str, Any]) -> None:
    stats = read_stats(folder / "cached.safetensors")
    assert (stats.model, stats.tokens, list(stats.layers)) == ("cached", 12, ["layers.0", "layers.1"])
    assert stats.made_by.keys() >= {"python", "torch"}
    assert read_stats(folder / "masked.safetensors").tokens == 8
    assert read_stats(folder / "plain.safetensors").model == "Model"


def test_nothing_stays_on_model_or_cache(told: dict[str, Any]) -> None:
    assert told["cached"] == [4, 0, False]
    assert told["again"] is True
    assert told["raised"] == [0, 20], "what was seen of a call that raised was seen"


def test_what_is_refused(told: dict[str, Any]) -> None:
    reasons = {
        "nothing": "Model has no projection of keys and values that is known by name (k_proj with v_proj, wk with wv,",
        "order": "query_key_value has K and V of each head side by side in some models and apart in others",
        "heads": "the numbers of heads are not known (0 of Q, 2 of K)",
        "rank": "is MLA, and the width of its latent vector is not known; give config= with kv_lora_rank",
        "module": "modules['one']: the model has no module 'no'",
        "keys": "modules['one'] has k; expected k and v, or qkv and order",
        "word": "order 'mixed'; expected concatenated or grouped",
        "unseen": "nothing was seen",
        "mixed": "2 heads of bfloat16, projection, after 2 heads of float32, projection",
        "columns": "16 columns are no whole number of 3 heads",
    }
    assert told["refused"].keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in told["refused"][name], name


def test_the_command_runs_a_module(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two batches of ten tokens; nothing here needs a scale."""
    kept = folder / "kept.safetensors"
    data = as_json(["kv", f"{folder}/models.py:build", "--capture", str(kept)], capsys)
    assert (data["stats"]["tokens"], data["stats"]["layers"]) == (20, 2)
    assert [(p["layer"], p["part"], p["rope"]) for p in data["parts"]] == [
        (f"layers.{n}", part, rope) for n in (0, 1) for part, rope in (("k", "before"), ("v", "none"))
    ]
    assert all(np.isfinite(p["in_use"]["sqnr_db"]).all() for p in data["parts"])
    assert read_stats(kept).tokens == 20
