"""Which way vLLM 0.33.0 loads an architecture, read from its loaders and run (suites/meta/engines/load_names.py).

Most models leave the scales to the engine's loader and its mapper. Where a model fuses its projections in the same
pass, ``k_proj.output_scale`` of Quark is ``qkv_proj.output_scale`` before the mapper's ends are looked at, and loading
ends. The models with latent attention have a loader of their own below the engine's: the mapper has renamed to
``.attn.k_scale`` when the function comes, which looks for ``.attn.attn.k_scale``: no spelling of any scale arrives.
"""

from __future__ import annotations

from narrowgauge.checkpoints.engines.loaders import Loader, Way

#: the steps, and what follows where no parameter is found
WAYS = {
    "mapper and fusing at once": Way(("map and stack",), "ends", left_over=True),
    "mapper, then function": Way(("map", "remap"), "ends"),
    "mapper": Way(("map",), "ends"),
    "mapper, scales may be left over": Way(("map",), "ends", left_over=True),
    "mapper, then function, silent": Way(("map", "remap"), "silent"),
}

#: architecture, lines of its loader, way; where it is not the usual one, the module that has the scales
_ROWS: tuple[tuple[str, ...], ...] = (
    ("Cohere2ForCausalLM", "commandr.py:474-476", "mapper and fusing at once"),
    ("Cohere2MoeForCausalLM", "cohere2_moe.py:764-766", "mapper and fusing at once"),
    ("CohereForCausalLM", "commandr.py:474-476", "mapper and fusing at once"),
    ("DeepseekV2ForCausalLM", "deepseek_v2.py:1996-1998", "mapper, then function", "self_attn.mla_attn.mla_attn"),
    ("DeepseekV3ForCausalLM", "deepseek_v2.py:1996-1998", "mapper, then function", "self_attn.mla_attn.mla_attn"),
    ("Ernie4_5_MoeForCausalLM", "ernie45_moe.py:631-633", "mapper"),
    ("Exaone4ForCausalLM", "exaone4.py:448-450", "mapper and fusing at once"),
    ("ExaoneMoEForCausalLM", "exaone_moe.py:551-568", "mapper and fusing at once"),
    ("ExaoneMoeForCausalLM", "exaone_moe.py:551-568", "mapper and fusing at once"),
    ("FalconH1ForCausalLM", "falcon_h1.py:645-647", "mapper and fusing at once"),
    ("Gemma2ForCausalLM", "gemma2.py:371-373", "mapper and fusing at once"),
    ("Gemma3ForCausalLM", "gemma3.py:431-433", "mapper and fusing at once"),
    ("GemmaForCausalLM", "gemma.py:393-395", "mapper and fusing at once"),
    ("Glm4ForCausalLM", "glm4.py:300-302", "mapper"),
    ("Glm4MoeForCausalLM", "glm4_moe.py:614-616", "mapper"),
    ("GraniteForCausalLM", "granite.py:487-489", "mapper, scales may be left over"),
    ("GraniteMoeForCausalLM", "granitemoe.py:463-465", "mapper, scales may be left over"),
    ("GraniteMoeHybridForCausalLM", "granitemoehybrid.py:708-710", "mapper"),
    ("GraniteMoeSharedForCausalLM", "granitemoeshared.py:300-302", "mapper, scales may be left over"),
    ("InternLM3ForCausalLM", "llama.py:559-561", "mapper, scales may be left over"),
    ("Lfm2ForCausalLM", "lfm2.py:629-631", "mapper"),
    ("Lfm2MoeForCausalLM", "lfm2_moe.py:666-668", "mapper"),
    ("LlamaForCausalLM", "llama.py:559-561", "mapper, scales may be left over"),
    ("MiMoForCausalLM", "mimo.py:126-128", "mapper, scales may be left over"),
    ("MiMoV2FlashForCausalLM", "mimo_v2.py:1120-1122", "mapper, then function, silent"),
    ("MiMoV2ForCausalLM", "mimo_v2.py:1120-1122", "mapper, then function, silent"),
    ("MiniCPMForCausalLM", "minicpm.py:652-654", "mapper"),
    ("MiniMaxM2ForCausalLM", "minimax_m2.py:486-488", "mapper"),
    ("Ministral3ForCausalLM", "mistral.py:285-290", "mapper, scales may be left over"),
    ("MistralForCausalLM", "mistral.py:285-290", "mapper, scales may be left over"),
    ("MixtralForCausalLM", "mixtral.py:486-488", "mapper, scales may be left over"),
    ("NemotronForCausalLM", "nemotron.py:471-473", "mapper and fusing at once"),
    ("NemotronHForCausalLM", "nemotron_h.py:918-920", "mapper and fusing at once", "mixer.attn"),
    ("OlmoeForCausalLM", "olmoe.py:403-405", "mapper and fusing at once"),
    ("PhiMoEForCausalLM", "phimoe.py:583-585", "mapper and fusing at once"),
    ("Qwen2ForCausalLM", "qwen2.py:519-521", "mapper, scales may be left over"),
    ("Qwen2MoeForCausalLM", "qwen2_moe.py:497-510", "mapper and fusing at once"),
    ("Qwen3ForCausalLM", "qwen3.py:346-348", "mapper"),
    ("Qwen3MoeForCausalLM", "qwen3_moe.py:657-659", "mapper, scales may be left over"),
    ("Qwen3NextForCausalLM", "qwen3_next.py:924-926", "mapper"),
    ("Qwen3_5ForCausalLM", "qwen3_5.py:438-440", "mapper, scales may be left over"),
    ("Qwen3_5MoeForCausalLM", "qwen3_5.py:438-440", "mapper, scales may be left over"),
    ("StableLmForCausalLM", "stablelm.py:327-329", "mapper and fusing at once"),
)
#: by architecture
LOADERS = {row[0]: Loader(row[0], f"vllm/model_executor/models/{row[1]}", *row[2:]) for row in _ROWS}
