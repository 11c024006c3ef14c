"""How checkpoints spell the scales of a key-value cache, as data. Which engine takes which is another matter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """A tensor whose name is that of the attention module and this behind it."""

    suffix: str
    scale: str  #: of ``delivery.GIVEN``
    by: str  #: who writes it so


def _pairs(k: str, v: str, by: str) -> tuple[Spelling, Spelling]:
    return Spelling(k, "k", by), Spelling(v, "v", by)


#: a longer suffix before a shorter one that it ends with
SPELLINGS = (
    *_pairs(".k_proj.k_scale", ".v_proj.v_scale", "ModelOpt 0.47 (Hugging Face export)"),
    *_pairs(".k_proj.output_scale", ".v_proj.output_scale", "Quark 0.13 (quark), AutoFP8"),
    *_pairs(".qkv_proj.k_scale", ".qkv_proj.v_scale", "fused projections"),
    *_pairs(".qkqkv_proj.k_scale", ".qkqkv_proj.v_scale", "Qwen3-MoE as some wrote it"),
    *_pairs(".k_cache.scale", ".v_cache.scale", "HYV3"),
    *_pairs(".v_proj.k_scale", ".k_proj.v_scale", "nobody; vLLM takes the scale's letter, SGLang drops it"),
    *_pairs(".attn.k_scale", ".attn.v_scale", "vLLM's own names"),
    *_pairs(".k_scale", ".v_scale", "compressed-tensors 0.20, Quark 0.13 (fp8)"),
    Spelling(".kv_cache_scaling_factor", "kv", "TensorRT-LLM, older ModelOpt"),
    Spelling(".kv_scale", "kv", "AutoFP8, deprecated"),
    Spelling(".q_proj.output_scale", "q", "Quark 0.13 (quark)"),
    Spelling(".q_proj.q_scale", "q", "nobody"),
    Spelling(".attn.q_scale", "q", "vLLM's own names"),
    Spelling(".q_scale", "q", "vLLM"),
    Spelling(".q.scale", "q", "HYV3"),
    Spelling(".prob_output_scale", "prob", "Quark"),
)

#: why a scale of exactly 1, or the same scale everywhere, may be meant
ON_PURPOSE = (
    "ModelOpt's exports for TensorRT-LLM and Megatron hold the scale to at least 1 (0.47, quant_utils.py:373-405), and "
    "its Hugging Face export writes the calibrated one; Quark gives K and V the larger of both"
)


def read(name: str) -> tuple[str, Spelling] | None:
    """The attention module that a tensor's name belongs to, and how its scale is spelled; None for another tensor."""
    for spelling in SPELLINGS:
        if name.endswith(spelling.suffix) and len(name) > len(spelling.suffix):
            return name.removesuffix(spelling.suffix), spelling
    return None
