"""Which way SGLang 0.5.23 loads an architecture, read from its loaders and run (suites/meta/engines/load_names.py).

Every model has a loader of its own. Those that never call the function that renames drop the scales of K and V, most of
them without a word. Those that fuse projections first turn ``k_proj.k_scale`` into ``qkv_proj.k_scale``, or
``qkqkv_proj.k_scale``, and look for that.
"""

from __future__ import annotations

from narrowgauge.checkpoints.engines.loaders import Loader, Way

#: the steps, and what follows where no parameter is found
WAYS = {
    "fused, then remapped, ends": Way(("stack", "remap"), "ends", unstacked="ends"),
    "not remapped, silent": Way((), "silent"),
    "remapped, silent": Way(("remap",), "silent"),
    "not remapped, ends": Way((), "ends"),
    "renamed, said": Way(
        ("rename",), "said", renames=(("k_proj.k_scale", "attn_mqa.k_scale"), ("v_proj.v_scale", "attn_mqa.v_scale"))
    ),
    "remapped, ends": Way(("remap",), "ends"),
    "fused, then remapped, silent": Way(("stack", "remap"), "silent"),
    "remapped, said": Way(("remap",), "said"),
    "not remapped, said": Way((), "said"),
    "not remapped, kv_scale passes, ends": Way((), "ends", passes=(".kv_scale",)),
    "others fused, then remapped, silent": Way(
        ("stack", "remap"), "silent", unstacked="silent", whole=(".k_scale", ".v_scale")
    ),
    "fused, then remapped, said": Way(("stack", "remap"), "said", unstacked="said"),
    "not remapped, fused ends, said": Way(("stack",), "said", unstacked="ends", passes=(".kv_scale",)),
    "remapped, where there is none, silent": Way(("remap else", "stack"), "silent", unstacked="silent"),
    "remapped, fused ends, said": Way(("remap", "stack"), "said", unstacked="ends"),
    "stripped, ends": Way(
        ("rename",),
        "ends",
        renames=((".self_attn", ""), (".k_proj.k_scale", ".attn.k_scale"), (".v_proj.v_scale", ".attn.v_scale")),
    ),
    "not remapped, scales pass, said": Way((), "said", passes=(".k_scale", ".v_scale")),
    "stripped, said": Way(
        ("rename",),
        "said",
        renames=(
            (".self_attn.k_proj.k_scale", ".attn.k_scale"),
            (".self_attn.v_proj.v_scale", ".attn.v_scale"),
            (".self_attn.k_scale", ".attn.k_scale"),
            (".self_attn.v_scale", ".attn.v_scale"),
            (".self_attn", ""),
        ),
    ),
    "stripped, scales pass, said": Way(
        ("rename",),
        "said",
        renames=(
            (".self_attn.k_proj.k_scale", ".attn.k_scale"),
            (".self_attn.v_proj.v_scale", ".attn.v_scale"),
            (".self_attn.k_scale", ".attn.k_scale"),
            (".self_attn.v_scale", ".attn.v_scale"),
            (".self_attn", ""),
        ),
        passes=(".k_scale", ".v_scale"),
    ),
    "not remapped, fused ends, silent": Way(("stack",), "silent", unstacked="ends"),
}

#: architecture, lines of its loader, way; where it is not the usual one, the module that has the scales
_ROWS: tuple[tuple[str, ...], ...] = (
    ("Cohere2ForCausalLM", "commandr.py:387-426", "fused, then remapped, ends"),
    ("Cohere2MoeForCausalLM", "cohere2_moe.py:553-641", "not remapped, silent"),
    ("CohereForCausalLM", "commandr.py:387-426", "fused, then remapped, ends"),
    ("DeciLMForCausalLM", "nemotron_nas.py:394-455", "remapped, silent"),
    ("DeepseekForCausalLM", "deepseek.py:476-517", "not remapped, ends"),
    ("DeepseekV2ForCausalLM", "deepseek_v2.py:3436-3437", "renamed, said", "self_attn.attn_mqa"),
    ("DeepseekV32ForCausalLM", "deepseek_v2.py:3436-3437", "renamed, said", "self_attn.attn_mqa"),
    ("DeepseekV3ForCausalLM", "deepseek_v2.py:3436-3437", "renamed, said", "self_attn.attn_mqa"),
    ("Ernie4_5_ForCausalLM", "ernie4.py:343-364", "not remapped, ends"),
    ("Ernie4_5_MoeForCausalLM", "ernie4.py:371-431", "not remapped, ends"),
    ("Exaone4ForCausalLM", "exaone4.py:551-626", "remapped, silent"),
    ("ExaoneForCausalLM", "exaone.py:334-373", "not remapped, ends"),
    ("ExaoneMoEForCausalLM", "exaone_moe.py:756-856", "not remapped, silent"),
    ("ExaoneMoeForCausalLM", "exaone_moe.py:756-856", "not remapped, silent"),
    ("Gemma2ForCausalLM", "gemma2.py:460-499", "fused, then remapped, ends"),
    ("Gemma3ForCausalLM", "gemma3_causal.py:858-915", "remapped, ends"),
    ("Gemma3nForCausalLM", "gemma3n_causal.py:965-1012", "fused, then remapped, silent"),
    ("Gemma4ForCausalLM", "gemma4_causal.py:1258-1451", "remapped, said"),
    ("GemmaForCausalLM", "gemma.py:372-410", "not remapped, ends"),
    ("Glm4ForCausalLM", "glm4.py:576-637", "not remapped, said"),
    ("Glm4MoeForCausalLM", "glm4_moe.py:1071-1248", "not remapped, silent"),
    ("Glm4MoeLiteForCausalLM", "glm4_moe_lite.py:834-1081", "not remapped, silent"),
    ("GlmMoeDsaForCausalLM", "deepseek_v2.py:3436-3437", "renamed, said", "self_attn.attn_mqa"),
    ("GptOssForCausalLM", "gpt_oss.py:898-925", "not remapped, silent"),
    ("GraniteForCausalLM", "granite.py:424-474", "not remapped, kv_scale passes, ends"),
    ("GraniteMoeHybridForCausalLM", "granitemoehybrid.py:590-736", "not remapped, ends"),
    ("Grok1ForCausalLM", "grok.py:780-895", "not remapped, ends"),
    ("HYV3ForCausalLM", "hunyuan_v3.py:542-623", "not remapped, silent"),
    ("InternLM3ForCausalLM", "llama.py:701-706", "remapped, said"),
    ("Lfm2ForCausalLM", "lfm2.py:751-811", "not remapped, silent"),
    ("Lfm2MoeForCausalLM", "lfm2_moe.py:664-851", "not remapped, silent"),
    ("Llama4ForCausalLM", "llama.py:701-706", "remapped, said"),
    ("LlamaForCausalLM", "llama.py:701-706", "remapped, said"),
    ("MiMoForCausalLM", "mimo.py:99-143", "not remapped, ends"),
    ("MiniCPMForCausalLM", "minicpm.py:563-623", "not remapped, ends"),
    ("MiniMaxM2ForCausalLM", "minimax_m2.py:1113-1224", "others fused, then remapped, silent"),
    ("MiniMaxM3SparseForCausalLM", "minimax_m3.py:2123-2247", "fused, then remapped, said"),
    ("Ministral3ForCausalLM", "llama.py:701-706", "remapped, said"),
    ("MistralForCausalLM", "llama.py:701-706", "remapped, said"),
    ("MixtralForCausalLM", "mixtral.py:392-479", "not remapped, fused ends, said"),
    ("NemotronHForCausalLM", "nemotron_h.py:1236-1354", "remapped, where there is none, silent", "mixer.attn"),
    ("Olmo2ForCausalLM", "olmo2.py:443-482", "not remapped, ends"),
    ("OlmoForCausalLM", "olmo.py:342-378", "not remapped, ends"),
    ("Phi3ForCausalLM", "llama.py:701-706", "remapped, said"),
    ("PhiForCausalLM", "phi.py:277-316", "not remapped, silent"),
    ("PhiMoEForCausalLM", "phimoe.py:500-555", "fused, then remapped, ends"),
    ("Qwen2ForCausalLM", "qwen2.py:643-649", "not remapped, said"),
    ("Qwen2MoeForCausalLM", "qwen2_moe.py:1324-1408", "not remapped, silent"),
    ("Qwen3ForCausalLM", "qwen3.py:685-760", "remapped, fused ends, said"),
    ("Qwen3MoeForCausalLM", "qwen3_moe.py:1157-1287", "not remapped, silent"),
    ("Qwen3NextForCausalLM", "qwen3_next.py:1138-1276", "stripped, ends", "attn"),
    ("Qwen3VLForConditionalGeneration", "qwen3_vl.py:1690-1772", "not remapped, silent"),
    ("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe.py:214-401", "not remapped, scales pass, said"),
    ("Qwen3_5ForConditionalGeneration", "qwen3_5.py:2448-2555", "stripped, said", "attn"),
    ("Qwen3_5MoeForConditionalGeneration", "qwen3_5.py:2659-2971", "stripped, scales pass, said", "attn"),
    ("StableLmForCausalLM", "stablelm.py:313-347", "not remapped, ends"),
    ("Starcoder2ForCausalLM", "starcoder2.py:318-350", "not remapped, fused ends, silent"),
    ("XverseForCausalLM", "xverse.py:333-380", "not remapped, ends"),
)
#: by architecture
LOADERS = {row[0]: Loader(row[0], f"sglang/srt/models/{row[1]}", *row[2:]) for row in _ROWS}
