"""Models whose attention is known well enough for a ceiling, as data: names of tensors, norms, the kind of rotation.

Read in vLLM 0.33.0 (vllm/model_executor/models and layers/rotary_embedding). A model that is none of these is refused,
since a ceiling that might not hold is worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from narrowgauge.contracts.errors import BadInput, unknown


@dataclass(frozen=True)
class Family:
    """How a layer of a model makes K and V."""

    norm: Literal["rms", "layer"] = "rms"
    one_more: bool = False  #: the gain of its norms is 1 + weight
    order: Literal["halves", "neighbours", ""] = "halves"  #: of pairs that are rotated; "" where nothing is
    rotated: float = 1.0  #: the part of a head that is rotated, where the configuration does not say
    key_norm: bool = False  #: K is normalised within each head
    layers: str = "layers"  #: what numbered layers stand behind
    before: str = "input_layernorm"
    attention: str = "self_attn"
    fused: str = ""  #: the projection to Q, K and V in one; "" where K and V have their own
    transposed: bool = False  #: whether its weight is [in, out]
    latent: bool = False  #: MLA


_LLAMA, _GEMMA, _MLA = Family(), Family(one_more=True), Family(order="neighbours", latent=True)
_QWEN3 = Family(key_norm=True)
_GEMMA3 = Family(one_more=True, key_norm=True)
#: model_type -> family
FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "granite": _LLAMA,
    "qwen2": _LLAMA,
    "qwen2_moe": _LLAMA,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "phi3": Family(fused="qkv_proj"),
    "glm4": Family(order="neighbours", rotated=0.5),
    "stablelm": Family(norm="layer", rotated=0.25),
    "gpt2": Family(
        norm="layer", order="", layers="h", before="ln_1", attention="attn", fused="c_attn", transposed=True
    ),
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
}


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that a ceiling needs."""

    family: Family
    hidden: int
    heads: int
    kv_heads: int
    head: int  #: size of a head; of MLA, of the positional keys
    rotated: int  #: of these, how many are rotated
    factor: float  #: what its kind of RoPE multiplies by
    rank: int = 0  #: width of MLA's latent vector


def shape_of(config: Mapping[str, Any], where: str) -> Shape:
    """The numbers of a configuration. Raises ``BadInput`` for an unknown model, or a number that is missing."""
    text = config.get("text_config")
    inner: Mapping[str, Any] = {**config, **text} if isinstance(text, Mapping) else config
    kind = inner.get("model_type")
    if kind not in FAMILIES:
        raise unknown("model_type", str(kind), FAMILIES, where)
    family = FAMILIES[kind]
    hidden = _whole(inner, where, "hidden_size", "n_embd")
    heads = _whole(inner, where, "num_attention_heads", "n_head")
    if family.latent:
        rank, head = _whole(inner, where, "kv_lora_rank"), _whole(inner, where, "qk_rope_head_dim")
        return Shape(family, hidden, heads, 1, head, head, rope_factor(inner, where, mla=True), rank)
    kv_heads = _whole(inner, where, "num_key_value_heads", default=heads)
    head = _whole(inner, where, "head_dim", default=hidden // heads)
    part = _rope(inner).get("partial_rotary_factor", inner.get("partial_rotary_factor", family.rotated))
    if not isinstance(part, int | float) or not 0 < part <= 1:
        raise BadInput(f"{where}: partial_rotary_factor {part!r}; expected a number above 0 and up to 1")
    rotated = int(head * part) if family.order else 0
    return Shape(family, hidden, heads, kv_heads, head, rotated, rope_factor(inner, where))


def _whole(config: Mapping[str, Any], where: str, *names: str, default: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    if not default:
        raise BadInput(f"{where} has no {' or '.join(names)}; expected a whole number above 0")
    return default


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(config.get(name), Mapping):
            found: Mapping[str, Any] = config[name]
            return found
    return {}


#: kinds of RoPE that turn and do nothing else, whatever their frequencies
TURNS = ("default", "linear", "dynamic", "ntk", "llama3", "proportional", "mrope")


def rope_factor(config: Mapping[str, Any], where: str, mla: bool = False) -> float:
    """What cosine and sine are multiplied by. Raises ``BadInput`` for a kind of RoPE that is not known.

    yarn: rotary_embedding/yarn_scaling_rope.py:37-46, deepseek_scaling_rope.py:50-57; longrope:
    phi3_long_rope_scaled_rope.py:62-80.
    """
    rope = _rope(config)
    inner = [each for each in rope.values() if isinstance(each, Mapping)]
    if inner:  # one for each kind of layer
        return max(rope_factor({"rope_parameters": each, **_lengths_of(config)}, where, mla) for each in inner)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in TURNS:
        return 1.0
    factor = _number(rope, where, "factor", 1.0)
    if kind in ("yarn", "deepseek_yarn"):
        attention = _number(rope, where, "attention_factor", 0.0)
        over = _number(rope, where, "mscale", 1.0 if mla else 0.0)
        under = _number(rope, where, "mscale_all_dim", 0.0)
        if attention:
            return attention
        return _yarn(factor, over) / _yarn(factor, under) if (over and under) or mla else _yarn(factor, 1.0)
    if kind in ("longrope", "su"):
        lengths = _lengths_of(config) | dict(rope)
        longest = _number(lengths, where, "max_position_embeddings", 0.0)
        first = _number(lengths, where, "original_max_position_embeddings", longest)
        grown = longest / first if first and longest else factor
        told = [_number(rope, where, name, 0.0) for name in ("attention_factor", "short_mscale", "long_mscale")]
        return max([*told, math.sqrt(1 + math.log(grown) / math.log(first)) if grown > 1 and first > 1 else 1.0])
    raise unknown("rope_type", str(kind), [*TURNS, "yarn", "deepseek_yarn", "longrope", "su"], where)


def _lengths_of(config: Mapping[str, Any]) -> dict[str, Any]:
    names = ("max_position_embeddings", "original_max_position_embeddings")
    return {name: config[name] for name in names if name in config}


def _yarn(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1


def _number(said: Mapping[str, Any], where: str, name: str, default: float) -> float:
    value = said.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadInput(f"{where}: {name} is {value!r}; expected a number")
    return float(value)
