"""Models whose keys and values are made by hand from their definitions, with folders of their weights.

Nothing of ``reference.kv.ceiling`` is in them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.noise import noise
from narrowgauge.suites.kv_ceiling import Model, OfPart

Array = npt.NDArray[np.float64]
HIDDEN, KV, HEAD = 48, 2, 8


def random(*shape: int, seed: int, size: float = 1.0) -> Array:
    return noise(math.prod(shape), seed).reshape(shape) * size


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """A model's folder, weights float32."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    coded = {n: Coded("float32", np.ascontiguousarray(t, np.float32).view(np.uint32)) for n, t in tensors.items()}
    write(folder / "model.safetensors", coded, {}, typed=True)
    return folder


# --- models by hand --------------------------------------------------------------------------------------------------


def rms(h: Array, gain: Array) -> Array:
    found: Array = h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-6) * gain
    return found


def layer_norm(h: Array, gain: Array, shift: Array) -> Array:
    found: Array = (h - h.mean(axis=-1, keepdims=True)) / np.sqrt(h.var(axis=-1, keepdims=True) + 1e-6) * gain + shift
    return found


def rotate(k: Array, angles: Array, order: str) -> Array:
    """Heads [.., heads, d] turned by an angle for each pair; ``angles`` [.., pairs] may turn fewer than all."""
    out, n = k.copy(), angles.shape[-1]
    first, second = (np.arange(n), np.arange(n) + n) if order == "halves" else (2 * np.arange(n), 2 * np.arange(n) + 1)
    a, b = k[..., first], k[..., second]
    c, s = np.cos(angles)[..., None, :], np.sin(angles)[..., None, :]
    out[..., first], out[..., second] = a * c - b * s, b * c + a * s
    return out


BASE = {"hidden_size": HIDDEN, "num_attention_heads": 6, "num_key_value_heads": KV, "head_dim": HEAD}
P = "model.layers.0."


def weights(bias: bool = False, norm_bias: bool = False) -> dict[str, Array]:
    found = {
        f"{P}input_layernorm.weight": np.abs(random(HIDDEN, seed=1)) + 0.1,
        f"{P}self_attn.k_proj.weight": random(KV * HEAD, HIDDEN, seed=2, size=0.3),
        f"{P}self_attn.v_proj.weight": random(KV * HEAD, HIDDEN, seed=3, size=0.3),
    }
    if bias:
        found |= {f"{P}self_attn.{n}_proj.bias": random(KV * HEAD, seed=s) for n, s in (("k", 4), ("v", 5))}
    if norm_bias:
        found[f"{P}input_layernorm.bias"] = random(HIDDEN, seed=6)
    return {name: t.astype(np.float32).astype(np.float64) for name, t in found.items()}


Forward = Callable[[Array, Array], dict[str, Array]]


def llama(
    w: dict[str, Array], order: str = "halves", one_more: bool = False, pairs: int = HEAD // 2, k_norm: bool = False
) -> Forward:
    def forward(h: Array, angles: Array) -> dict[str, Array]:
        gain = w[f"{P}input_layernorm.weight"] + one_more
        shift = w.get(f"{P}input_layernorm.bias")
        x = rms(h, gain) if shift is None else layer_norm(h, gain, shift)
        k, v = (
            (x @ w[f"{P}self_attn.{n}_proj.weight"].T + w.get(f"{P}self_attn.{n}_proj.bias", 0)).reshape(
                len(h), KV, HEAD
            )
            for n in ("k", "v")
        )
        if k_norm:
            k = rms(k, w[f"{P}self_attn.k_norm.weight"] + one_more)
        return {"k": rotate(k, angles[:, :pairs], order), "v": v}

    return forward


MODELS: dict[str, tuple[dict[str, Any], dict[str, Array], Forward]] = {
    "llama": ({"model_type": "llama"}, (w := weights()), llama(w)),
    "qwen2, with bias": ({"model_type": "qwen2"}, (w := weights(bias=True)), llama(w)),
    "gemma, 1 + w": ({"model_type": "gemma"}, (w := weights()), llama(w, one_more=True)),
    "qwen3, K normalised": (
        {"model_type": "qwen3"},
        (w := weights() | {f"{P}self_attn.k_norm.weight": random(HEAD, seed=8)}),
        llama(w, k_norm=True),
    ),
    "glm4, neighbours, half": (
        {"model_type": "glm4"},
        (w := weights()),
        llama(w, "neighbours", pairs=HEAD // 4),
    ),
    "stablelm, LayerNorm": (
        {"model_type": "stablelm", "partial_rotary_factor": 0.5},
        (w := weights(norm_bias=True)),
        llama(w, pairs=HEAD // 4),
    ),
}


def ceilings(folder: Path) -> dict[str, OfPart]:
    found = list(Model(folder).ceilings())
    return {one.part: one for one in found}
