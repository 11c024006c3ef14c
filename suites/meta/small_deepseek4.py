# SPDX-License-Identifier: Apache-2.0
"""A small DeepSeek-V4: two schemes in one model, DeepSeek's own names (vLLM 0.33.0 models/deepseek_v4: nvidia/model.py
605-668, attention.py 250-290, amd/model.py 1467-1514), and parameters that are called scale and scale no weight."""

from __future__ import annotations

from typing import Any

from narrowgauge.suites.meta import small_configs as configs
from narrowgauge.suites.meta.small_bytes import bf16, e8m0, f32
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_models import EXPERTS, HIDDEN, LAYERS, VOCAB, original
from narrowgauge.suites.meta.small_schemes import fp8, mxfp4

HEADS, HEAD_DIM, Q_RANK, O_RANK, GROUPS, EXPERT, STREAMS = 4, 64, 128, 80, 2, 160, 4
#: streams are mixed by a matrix of so many rows
MIXED = (2 + STREAMS) * STREAMS

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "expert_dtype": "fp4",
    "hc_eps": 1e-06,
    "hc_mult": STREAMS,
    "hc_sinkhorn_iters": 20,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "max_position_embeddings": 1048576,
    "model_type": "deepseek_v4",
    "moe_intermediate_size": EXPERT,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 1,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": 1,
    "o_groups": GROUPS,
    "o_lora_rank": O_RANK,
    "q_lora_rank": Q_RANK,
    "quantization_config": configs.deepseek(scale_fmt="ue8m0"),
    "rms_norm_eps": 1e-06,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "swiglu_limit": 10.0,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB,
}

#: blocks of 128 by 128 whose scale is stored as a power of two; experts of four bits in bytes that are called int8
BLOCKS = fp8("block", e8m0, 2, "scale", power=True)
FOUR = mxfp4("weight", "I8", "scale", "F8_E8M0")


def draft() -> Draft:
    found = Draft(config=CONFIG)
    found.keep("embed.weight", original("embed.weight", (VOCAB, HIDDEN)), bf16)
    found.keep("norm.weight", original("norm.weight", (HIDDEN,)), bf16)
    found.keep("head.weight", original("head.weight", (VOCAB, HIDDEN)), bf16)
    for i in range(LAYERS):
        _layer(found, f"layers.{i}")
    return found


def _layer(found: Draft, at: str) -> None:
    for name, width in (
        ("attn_norm", HIDDEN),
        ("ffn_norm", HIDDEN),
        ("attn.q_norm", Q_RANK),
        ("attn.kv_norm", HEAD_DIM),
    ):
        found.keep(f"{at}.{name}.weight", original(f"{at}.{name}.weight", (width,)), bf16)
    for part in ("attn", "ffn"):
        shapes: dict[str, tuple[int, ...]] = {"fn": (MIXED, STREAMS * HIDDEN), "base": (MIXED,), "scale": (3,)}
        for what, shape in shapes.items():
            found.keep(f"{at}.hc_{part}_{what}", original(f"{at}.hc_{part}_{what}", shape), f32)
    found.keep(f"{at}.attn.attn_sink", original(f"{at}.attn.attn_sink", (HEADS,)), f32)
    found.keep(f"{at}.ffn.gate.weight", original(f"{at}.ffn.gate.weight", (EXPERTS, HIDDEN)), bf16)
    found.keep(f"{at}.ffn.gate.bias", original(f"{at}.ffn.gate.bias", (EXPERTS,)), f32)
    linear = {
        "attn.wq_a": (Q_RANK, HIDDEN),
        "attn.wq_b": (HEADS * HEAD_DIM, Q_RANK),
        "attn.wkv": (HEAD_DIM, HIDDEN),
        "attn.wo_a": (GROUPS * O_RANK, HEADS * HEAD_DIM // GROUPS),
        "attn.wo_b": (HIDDEN, GROUPS * O_RANK),
    }
    for e in (*(f"experts.{e}" for e in range(EXPERTS)), "shared_experts"):
        linear |= {f"ffn.{e}.w1": (EXPERT, HIDDEN), f"ffn.{e}.w3": (EXPERT, HIDDEN), f"ffn.{e}.w2": (HIDDEN, EXPERT)}
    for path, shape in linear.items():
        found.quantize(f"{at}.{path}", original(f"{at}.{path}.weight", shape), FOUR if ".experts." in path else BLOCKS)
