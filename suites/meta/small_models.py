# SPDX-License-Identifier: Apache-2.0
"""Small models: real names of modules, real keys of config.json, and the weights that all files are made of."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from narrowgauge.suites.meta.small_bytes import Array, bf16, value_of

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS, EXPERTS = 128, 256, 4, 2, 32, 64, 2, 2

TOGETHER = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


@dataclass(frozen=True)
class Model:
    """Modules of a model. ``linear``: path -> (N, K), what tools quantize; ``kept``: name -> shape, what they leave.

    ``together``: how the end of a path reads after those are fused that share an input (q, k, v): the same for each.
    """

    config: Mapping[str, Any]
    linear: Mapping[str, tuple[int, int]]
    kept: Mapping[str, tuple[int, ...]]
    together: Mapping[str, str] = field(default_factory=lambda: TOGETHER)

    def input_of(self, path: str) -> str:
        """The same word for all linear layers that read the same input."""
        head, _, last = path.rpartition(".")
        return f"{head}.{self.together.get(last, last)}"


def original(name: str, shape: tuple[int, ...]) -> Array:
    """The bfloat16 weight of that name, in float64; the same in every kind of file."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    x = random.standard_normal(shape)
    return value_of(bf16(1 + 0.1 * x if "norm" in name else 0.02 * x))


def activation_scale(word: str) -> float:
    """A plausible static scale of an input: a largest magnitude near 4, over 448."""
    return float(np.random.default_rng(zlib.crc32(word.encode())).uniform(0.006, 0.012))


# ---------------- Llama, and Phi-3 with the same parts fused


def _attention(at: str, hidden: int = HIDDEN) -> Iterator[tuple[str, tuple[int, int]]]:
    width = hidden // HEADS
    for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        yield f"{at}.self_attn.{part}_proj", (heads * width, hidden)
    yield f"{at}.self_attn.o_proj", (hidden, HEADS * width)


def _mlp(at: str, hidden: int, wide: int) -> Iterator[tuple[str, tuple[int, int]]]:
    for part in ("gate", "up"):
        yield f"{at}.{part}_proj", (wide, hidden)
    yield f"{at}.down_proj", (hidden, wide)


def _around(hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    kept: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (VOCAB, hidden),
    }
    for i in range(LAYERS):
        kept[f"model.layers.{i}.input_layernorm.weight"] = (hidden,)
        kept[f"model.layers.{i}.post_attention_layernorm.weight"] = (hidden,)
    return kept


def llama_config(hidden: int = HIDDEN, wide: int = INTERMEDIATE) -> dict[str, Any]:
    """As transformers 5.24 writes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": "bfloat16",
        "eos_token_id": 2,
        "head_dim": hidden // HEADS,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": wide,
        "max_position_embeddings": 2048,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": None,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "tie_word_embeddings": False,
        "transformers_version": "5.24.0",
        "use_cache": True,
        "vocab_size": VOCAB,
    }


def llama(hidden: int = HIDDEN, wide: int = INTERMEDIATE) -> Model:
    linear: dict[str, tuple[int, int]] = {}
    for i in range(LAYERS):
        linear |= _attention(f"model.layers.{i}", hidden)
        linear |= _mlp(f"model.layers.{i}.mlp", hidden, wide)
    return Model(llama_config(hidden, wide), linear, _around(hidden))


def phi3() -> Model:
    """q, k, v in one tensor, gate and up in another."""
    linear: dict[str, tuple[int, int]] = {}
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        linear[f"{at}.self_attn.qkv_proj"] = ((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN)
        linear[f"{at}.self_attn.o_proj"] = (HIDDEN, HIDDEN)
        linear[f"{at}.mlp.gate_up_proj"] = (2 * INTERMEDIATE, HIDDEN)
        linear[f"{at}.mlp.down_proj"] = (HIDDEN, INTERMEDIATE)
    gone = {"attention_bias", "head_dim", "mlp_bias", "pretraining_tp"}
    config = {k: v for k, v in llama_config().items() if k not in gone}
    config |= {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 2048}
    return Model(config, linear, _around())


# ---------------- mixtures of experts


def mixtral() -> Model:
    linear: dict[str, tuple[int, int]] = {}
    kept = _around()
    for i in range(LAYERS):
        linear |= _attention(f"model.layers.{i}")
        kept[f"model.layers.{i}.block_sparse_moe.gate.weight"] = (EXPERTS, HIDDEN)
        for e in range(EXPERTS):
            at = f"model.layers.{i}.block_sparse_moe.experts.{e}"
            linear |= {f"{at}.w1": (INTERMEDIATE, HIDDEN), f"{at}.w3": (INTERMEDIATE, HIDDEN)}
            linear[f"{at}.w2"] = (HIDDEN, INTERMEDIATE)
    gone = {"attention_bias", "mlp_bias", "pretraining_tp"}
    config = {k: v for k, v in llama_config().items() if k not in gone}
    config |= {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_experts_per_tok": 2,
        "num_local_experts": EXPERTS,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        "sliding_window": None,
    }
    return Model(config, linear, kept, TOGETHER | {"w1": "w13", "w3": "w13"})


def qwen3_moe() -> Model:
    linear: dict[str, tuple[int, int]] = {}
    kept = _around()
    for i in range(LAYERS):
        at = f"model.layers.{i}"
        linear |= _attention(at)
        kept |= {f"{at}.self_attn.q_norm.weight": (HEAD_DIM,), f"{at}.self_attn.k_norm.weight": (HEAD_DIM,)}
        kept[f"{at}.mlp.gate.weight"] = (EXPERTS, HIDDEN)
        for e in range(EXPERTS):
            linear |= _mlp(f"{at}.mlp.experts.{e}", HIDDEN, HIDDEN)
    gone = {"mlp_bias", "pretraining_tp"}
    config = {k: v for k, v in llama_config().items() if k not in gone}
    config |= {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": HIDDEN,
        "norm_topk_prob": True,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
    }
    return Model(config, linear, kept)


# ---------------- DeepSeek-V3

Q_RANK, KV_RANK, NOPE, ROPE, V_DIM, EXPERT = 128, 128, 32, 16, 32, 160


def deepseek() -> Model:
    """One dense layer, one of experts, one that predicts a token more. 144, 192 and 160 are no multiples of 128."""
    linear: dict[str, tuple[int, int]] = {}
    kept = _around()
    for i in range(LAYERS + 1):
        at = f"model.layers.{i}"
        linear |= {
            f"{at}.self_attn.q_a_proj": (Q_RANK, HIDDEN),
            f"{at}.self_attn.q_b_proj": (HEADS * (NOPE + ROPE), Q_RANK),
            f"{at}.self_attn.kv_a_proj_with_mqa": (KV_RANK + ROPE, HIDDEN),
            f"{at}.self_attn.kv_b_proj": (HEADS * (NOPE + V_DIM), KV_RANK),
            f"{at}.self_attn.o_proj": (HIDDEN, HEADS * V_DIM),
        }
        kept |= {
            f"{at}.input_layernorm.weight": (HIDDEN,),
            f"{at}.post_attention_layernorm.weight": (HIDDEN,),
            f"{at}.self_attn.q_a_layernorm.weight": (Q_RANK,),
            f"{at}.self_attn.kv_a_layernorm.weight": (KV_RANK,),
        }
        if i == 0:
            linear |= _mlp(f"{at}.mlp", HIDDEN, INTERMEDIATE)
            continue
        for e in range(EXPERTS):
            linear |= _mlp(f"{at}.mlp.experts.{e}", HIDDEN, EXPERT)
        linear |= _mlp(f"{at}.mlp.shared_experts", HIDDEN, EXPERT)
        kept[f"{at}.mlp.gate.weight"] = (EXPERTS, HIDDEN)
        kept[f"{at}.mlp.gate.e_score_correction_bias"] = (EXPERTS,)
    at = f"model.layers.{LAYERS}"
    kept |= {f"{at}.embed_tokens.weight": (VOCAB, HIDDEN), f"{at}.shared_head.head.weight": (VOCAB, HIDDEN)}
    kept |= {f"{at}.{norm}.weight": (HIDDEN,) for norm in ("enorm", "hnorm", "shared_head.norm")}
    kept[f"{at}.eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
    return Model(DEEPSEEK_CONFIG, linear, kept)


DEEPSEEK_CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INTERMEDIATE,
    "kv_lora_rank": KV_RANK,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": EXPERT,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 1,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": HEADS,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": Q_RANK,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": V_DIM,
    "vocab_size": VOCAB,
}
