"""The wide operations that are known, each with where it is written so, and its steps."""

from __future__ import annotations

from narrowgauge.contracts.wide import Held, Step, Wide, Y

#: what RMSNorm adds to the mean of the squares
EPSILON = 1e-6
#: what final logits are capped to, and scores of attention: Gemma 2 (its config.json: final_logit_softcapping 30,
#: attn_logit_softcapping 50)
FINAL_CAP, SCORE_CAP = 30.0, 50.0
#: what DeepSeek-V3 multiplies the weights of its experts by (its config.json: routed_scaling_factor)
ROUTED = 2.5

# --- steps that operations share -------------------------------------------------------------------------------------

_NORMAL: tuple[Step, ...] = (
    ("square_mean", "mean", "x"),
    ("plus", "mean", "mean", EPSILON),
    ("rsqrt", "scale", "mean"),
    ("times", "y", "x", "scale"),
)
_WEIGHTED: tuple[Step, ...] = (*_NORMAL, ("times", "y", "y", "weight"))
_EXPONENTIALS: tuple[Step, ...] = (("below_largest", "s", "s"), ("exp", "e", "s"), ("sum", "total", "e"))
_SHARES: tuple[Step, ...] = (*_EXPONENTIALS, ("over", "y", "e", "total"))
_RENORMALISED: tuple[Step, ...] = (("sum", "total", "weights"), ("over", "weights", "weights", "total"))
_WEIGHT = (Held("weight", "column"),)
_ROUTED = (Held("weights", "chosen", "float32"), Held("experts", "chosen", "int32"))
_TOKEN = (Held("token", "row", "int32"),)
_TURNS = (Held("cos", "half", "float32"), Held("sin", "half", "float32"))
_LOWEST = "of equal ones the lower index stands first"


def _after(residual: Step | None, norm: tuple[Step, ...]) -> tuple[Step, ...]:
    """A norm of x plus the residual, which is given back; rounded as the step says before that."""
    summed: tuple[Step, ...] = (("add", "x", "x", "residual"), ("copy", "residual", "x"))
    return (*summed, *(() if residual is None else (residual, ("copy", "residual", "x"))), *norm)


def _silu(name: str, about: str, source: str, *steps: Step) -> Wide:
    return Wide(
        name, about, source, (("part", "gate", "x", 0), ("part", "up", "x", 1), ("silu", "y", "gate"), *steps), parts=2
    )


_NORMS = (
    Wide(
        "rms_norm",
        f"x / sqrt(mean(x²) + {EPSILON:g}) · weight in float32, rounded once",
        "vLLM 0.33.0, layernorm_kernels.cu:93",
        _WEIGHTED,
        _WEIGHT,
    ),
    Wide(
        "rms_norm_twice_rounded",
        f"x / sqrt(mean(x²) + {EPSILON:g}) in float32, rounded; times weight, rounded again",
        "vLLM 0.33.0, fused_kernels/layernorm_utils.cuh:90,146,193; ir/ops/layernorm.py:14-24",
        (*_NORMAL, ("rounded", "y", "y"), ("times", "y", "y", "weight")),
        _WEIGHT,
    ),
    Wide(
        "rms_norm_one_more",
        f"x / sqrt(mean(x²) + {EPSILON:g}) · (1 + weight) in float32, rounded once: Gemma's",
        "SGLang 0.5.23, srt/layers/layernorm.py:1165-1169",
        (*_NORMAL, ("plus", "weight", "weight", 1.0), ("times", "y", "y", "weight")),
        _WEIGHT,
    ),
    Wide(
        "add_rms_norm",
        "x + residual in float32, normed as it is; the residual that is given back is rounded",
        "SGLang 0.5.23, srt/layers/layernorm.py:837-872",
        _after(None, _WEIGHTED),
        (*_WEIGHT, Held("residual")),
        (Held(Y), Held("residual")),
    ),
    Wide(
        "add_rms_norm_rounded",
        "x + residual, rounded to the source's format, given back so, and normed so",
        "SGLang 0.5.23, srt/layers/layernorm.py:1158-1169 (sum in the tensors' type)",
        _after(("rounded", "x", "x"), _WEIGHTED),
        (*_WEIGHT, Held("residual")),
        (Held(Y), Held("residual")),
    ),
    Wide(
        "add_rms_norm_float32",
        "x + residual in float32, the residual stream being float32 on both sides",
        "SGLang 0.5.23, srt/layers/layernorm.py:837-872 (fp32_residual)",
        _after(None, _WEIGHTED),
        (*_WEIGHT, Held("residual", format="float32")),
        (Held(Y), Held("residual", format="float32")),
    ),
)
_ACTIVATIONS = (
    _silu(
        "silu_mul",
        "gate / (1 + exp(-gate)) · up in float32, rounded once; gate is the first half of the columns",
        "the definition of SwiGLU",
        ("times", "y", "y", "up"),
    ),
    _silu(
        "silu_mul_twice_rounded",
        "gate / (1 + exp(-gate)) in float32, rounded; times up, rounded again",
        "vLLM 0.33.0, activation_kernels.cu (the activation is of the tensor's type)",
        ("rounded", "y", "y"),
        ("times", "y", "y", "up"),
    ),
    Wide(
        "soft_cap",
        f"{FINAL_CAP:g} · tanh(x / {FINAL_CAP:g}) in float32",
        "vLLM 0.33.0, model_executor/layers/logits_processor.py:113-116",
        (("soft_cap", "y", "x", FINAL_CAP),),
    ),
)
_ROTATIONS = (
    Wide(
        "rope_neox",
        "pairs of a column and the one half a row further, turned: a cos - b sin, b cos + a sin, in float32",
        "vLLM 0.33.0, model_executor/layers/rotary_embedding/common.py:135-173",
        (("rotated", "y", "x", "cos", "sin", "halves"),),
        _TURNS,
    ),
    Wide(
        "rope_interleaved",
        "pairs of neighbouring columns, turned: a cos - b sin, b cos + a sin, in float32",
        "vLLM 0.33.0, model_executor/layers/rotary_embedding/common.py:135-173",
        (("rotated", "y", "x", "cos", "sin", "pairs"),),
        _TURNS,
    ),
)
_SOFTMAXES = (
    Wide(
        "softmax",
        "exp(x - max) / sum(exp(x - max)) in float32",
        "vLLM 0.33.0, v1/sample/ops/topk_topp_sampler.py:309",
        (("copy", "s", "x"), *_SHARES),
    ),
    Wide(
        "log_softmax",
        "x - max - log(sum(exp(x - max))) in float32",
        "vLLM 0.33.0, v1/sample/sampler.py:370",
        (("copy", "s", "x"), *_EXPONENTIALS, ("log", "total", "total"), ("minus", "y", "s", "total", "x")),
    ),
    Wide(
        "capped_softmax",
        f"scores are capped, {SCORE_CAP:g} · tanh(x / {SCORE_CAP:g}); columns from lengths on are masked; softmax",
        "vLLM 0.33.0, v1/attention/ops/triton_attention_helpers.py:29 (cap), triton_decode_attention.py:155 (order)",
        (("soft_cap", "s", "x", SCORE_CAP), ("masked", "s", "s", "lengths"), *_SHARES),
        (Held("lengths", "row", "int32"),),
    ),
)
_SAMPLERS = (
    Wide(
        "greedy",
        f"the column of the largest logit; {_LOWEST}",
        "vLLM 0.33.0, v1/sample/sampler.py:303-306; torch.argmax gives the first of equal ones (its documentation)",
        (("top", "token", "", "x", 1, "lowest"),),
        outputs=_TOKEN,
        chosen=1,
    ),
    Wide(
        "sample",
        f"the column of the largest softmax(x / temperature) / noise in float32; {_LOWEST}",
        "vLLM 0.33.0, v1/sample/sampler.py:158,300; v1/sample/ops/topk_topp_sampler.py:365-370,597-603",
        (
            ("over", "s", "x", "temperature"),
            *_SHARES,
            ("over", "race", "y", "noise"),
            ("top", "token", "", "race", 1, "lowest", "", "noise"),
        ),
        (Held("temperature", "row", "float32"), Held("noise", "element", "float32")),
        _TOKEN,
        chosen=1,
    ),
)


def _router(name: str, about: str, source: str, *steps: Step, inputs: tuple[Held, ...] = (), chosen: int = 4) -> Wide:
    return Wide(name, about, source, steps, inputs, _ROUTED, chosen=chosen)


_ROUTERS = (
    _router(
        "router_softmax",
        f"softmax over all experts in float32, the four largest; {_LOWEST}",
        "SGLang 0.5.23, srt/layers/moe/topk.py:1134-1147; ties: kernels/ops/moe/moe_fused_gate.py:270",
        ("copy", "s", "x"),
        *_SHARES,
        ("top", "experts", "weights", "y", 4, "lowest"),
    ),
    _router(
        "router_softmax_renormalised",
        f"softmax over all experts in float32, the four largest, over their sum; {_LOWEST}",
        "SGLang 0.5.23, srt/layers/moe/topk.py:1134-1147; ties: kernels/ops/moe/moe_fused_gate.py:270",
        ("copy", "s", "x"),
        *_SHARES,
        ("top", "experts", "weights", "y", 4, "lowest"),
        *_RENORMALISED,
    ),
    _router(
        "router_chosen_softmax",
        "the four largest logits, and softmax over those in float32; of equal ones either may stand first",
        "SGLang 0.5.23, srt/layers/moe/topk.py:65-77 (sm_first False); torch.topk promises no order of equal ones",
        ("top", "experts", "s", "x", 4, "any"),
        *_EXPONENTIALS,
        ("over", "weights", "e", "total"),
    ),
    _router(
        "router_sigmoid",
        "sigmoid in float32; the four largest of sigmoid + bias, their sigmoids over their sum, "
        f"times {ROUTED:g}; {_LOWEST}",
        "vLLM 0.33.0, model_executor/layers/fused_moe/router/cpu_router.py:36-78, one group of experts; ties: "
        "SGLang 0.5.23, kernels/ops/moe/moe_fused_gate.py:270",
        ("sigmoid", "y", "x"),
        ("add_near", "chosen", "y", "bias"),
        ("top", "experts", "weights", "chosen", 4, "lowest", "y", "bias"),
        *_RENORMALISED,
        ("times", "weights", "weights", ROUTED),
        inputs=(Held("bias", "column", "float32"),),
    ),
)

WIDE: dict[str, Wide] = {
    wide.name: wide for wide in (*_NORMS, *_ACTIVATIONS, *_ROTATIONS, *_SOFTMAXES, *_SAMPLERS, *_ROUTERS)
}
