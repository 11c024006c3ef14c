"""Files of keys and values, and checkpoints with scales for them, for the tests of ``narrowgauge kv``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from narrowgauge.contracts.coded import Coded
from narrowgauge.reference.kv.effect import Effects
from narrowgauge.reference.kv.histogram import checked, histogram_of
from narrowgauge.reference.noise import noise
from narrowgauge.reference.recipes import recipe_named
from narrowgauge.suites.kv_stats import Stats, in_order, write_stats

Array = npt.NDArray[np.float32]
E4, E4Z, E5 = "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"
VLLM, HIP, HIP16, SGLANG = (
    "vllm.kv_fp8_tensor",
    "vllm.kv_fp8_tensor_rocm",
    "vllm.kv_fp8_tensor_rocm_float16",
    "sglang.kv_fp8",
)

#: largest magnitude of |K| and |V| of two layers, over that of the noise (3.5)
SIZES = {2: (1.0, 1.0), 10: (400.0, 0.0005)}


def layer(n: int) -> str:
    return f"model.layers.{n}.self_attn"


def tensor(size: float, seed: int) -> Coded:
    x = noise(64 * 64, seed).reshape(64, 64).astype(np.float32) * np.float32(size)
    return Coded("bfloat16", (x.view(np.uint32) >> 16).astype(np.uint16))


def kv_file_at(path: Path) -> Path:
    """Two layers of four heads: one harmless at a scale of 1, one whose K is far too large and V far too small."""
    layers = {
        layer(n): {"k": histogram_of(tensor(k, n), 4, rope="after"), "v": histogram_of(tensor(v, n + 1), 4)}
        for n, (k, v) in SIZES.items()
    }
    write_stats(path, Stats(in_order(layers), "tiny", 64, {"torch": "2.13"}))
    return path


def found(data: Any, name: str = "", part: str = "") -> list[str]:
    """Kinds of findings, of a part or of what is no part."""
    if not part:
        return [f["kind"] for f in data["findings"] if f["layer"] == name]
    return [f["kind"] for p in data["parts"] if (p["layer"], p["part"]) == (name, part) for f in p["findings"]]


F32 = np.float32


def checkpoint(folder: Path, scales: Mapping[str, Any], config: Any = None) -> Path:
    """A folder with scales alone, float32 of one number unless arrays are given."""
    folder.mkdir(exist_ok=True)
    tensors = {name: value if isinstance(value, np.ndarray) else np.array(value, F32) for name, value in scales.items()}
    (folder / "model.safetensors").write_bytes(save({"model.embed.weight": np.zeros((2, 2), F32), **tensors}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def as_format(x: Array, name: str) -> Coded:
    """Rows of float32 as bfloat16 (by ml_dtypes) or float16 (by numpy)."""
    if name == "float32":
        return Coded(name, np.ascontiguousarray(x, np.float32).view(np.uint32))
    with np.errstate(over="ignore"):
        narrow = x.astype(ml_dtypes.bfloat16 if name == "bfloat16" else np.float16)
    return Coded(name, narrow.view(np.uint16))


def effects(x: Coded, recipe: str = VLLM, fmt: str = E4) -> Effects:
    return Effects(checked(histogram_of(x), "x"), recipe_named(recipe), fmt)
