"""Shapes, layers and dtypes of a checkpoint against the sizes that config.json names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.passports import Passport

#: model types that vLLM 0.33.0 refuses in float16 (vllm/config/model.py:2398-2403)
NOT_IN_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")
#: names of stored dtypes in configurations
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
#: sizes that every model has, as whole numbers above 0, and what none reaches
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "vocab_size")  # fmt: skip
_MOST = 1 << 31
_LAYER = re.compile(r"(.*?\b(?:layers|h|blocks?))\.(\d{1,6})\.")
_NOT_TEXT = ("vis", "audio", "encoder", "projector")

Sizes = Mapping[str, Any]


def size_findings(checkpoint: Checkpoint, passports: Sequence[Passport], to_float16: bool = False) -> Iterator[Finding]:
    """By headers alone. ``to_float16``: whether the model is to run in float16."""
    config = checkpoint.config
    inner = config.get("text_config")
    sizes: dict[str, Any] = {**config, **inner} if isinstance(inner, dict) else dict(config)
    if checkpoint.kind == "gguf" or not sizes:
        return
    if wrong := [f"{key} is {str(sizes[key])[:40]}" for key in _SIZES if not _is_size(sizes.get(key))]:
        yield Finding("configuration unusable", f"{', '.join(wrong)}; expected whole numbers above 0")
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items() if tensor.role == "model"}
    mine = {tensor.name for passport in passports for tensor in passport.tensors.values()}
    shapes = {name: shape for name, shape in shapes.items() if name not in mine}
    shapes |= {f"{passport.module}.weight": passport.shape[-2:] for passport in passports}
    yield from _shapes(shapes, sizes)
    yield from _layers(shapes, sizes)
    yield from _head(shapes, sizes)
    yield from _dtypes(checkpoint, mine, sizes)
    named = {str(section.get("model_type")) for section in (config, sizes)}
    half = to_float16 or _dtype(sizes) == "float16"
    if half and (refused := sorted(named & set(NOT_IN_FLOAT16))):
        yield Finding("float16 refused", f"model_type is {refused[0]!r}")


def _is_size(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST)


def _dtype(sizes: Sizes) -> str:
    return str(sizes.get("torch_dtype") or sizes.get("dtype") or "").removeprefix("torch.")


def _heads(key: str) -> Callable[[Sizes], set[int]]:
    def of(sizes: Sizes) -> set[int]:
        heads, hidden = sizes.get("num_attention_heads"), sizes.get("hidden_size")
        mine = sizes.get(key) or heads
        if not isinstance(heads, int) or not isinstance(mine, int) or not heads:
            return set()
        width = sizes.get("head_dim") or (hidden // heads if isinstance(hidden, int) else None)
        gated = bool(sizes.get("attn_output_gate")) and key == "num_attention_heads"
        return {mine * width, *({2 * mine * width} if gated else ())} if isinstance(width, int) else set()

    return of


def _of(*keys: str) -> Callable[[Sizes], set[int]]:
    return lambda sizes: {value for key in keys if isinstance(value := sizes.get(key), int)}


_HIDDEN, _VOCABULARY = _of("hidden_size"), _of("vocab_size")
_INNER = _of("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size")
#: end of a name -> rows and columns
_SHAPES: Mapping[str, tuple[Callable[[Sizes], set[int]], Callable[[Sizes], set[int]]]] = {
    "embed_tokens.weight": (_VOCABULARY, _HIDDEN),
    "lm_head.weight": (_VOCABULARY, _HIDDEN),
    "self_attn.q_proj.weight": (_heads("num_attention_heads"), _HIDDEN),
    "self_attn.k_proj.weight": (_heads("num_key_value_heads"), _HIDDEN),
    "self_attn.v_proj.weight": (_heads("num_key_value_heads"), _HIDDEN),
    "self_attn.o_proj.weight": (_HIDDEN, _heads("num_attention_heads")),
    "mlp.gate_proj.weight": (_INNER, _HIDDEN),
    "mlp.up_proj.weight": (_INNER, _HIDDEN),
    "mlp.down_proj.weight": (_HIDDEN, _INNER),
    # of experts in one tensor those that are quantized: plain ones are stored both ways round
    "experts.gate_up_proj.weight": (lambda sizes: {2 * inner for inner in _INNER(sizes)}, _HIDDEN),
    "experts.down_proj.weight": (_HIDDEN, _INNER),
}
#: keys of models whose heads are not all alike: their attention is not checked
_OTHER_HEADS = ("kv_lora_rank", "q_lora_rank", "global_head_dim", "num_global_key_value_heads", "block_configs",
                "swa_head_dim", "v_head_dim", "num_kv_shared_layers")  # fmt: skip


def _shapes(shapes: Mapping[str, tuple[int, ...]], sizes: Sizes) -> Iterator[Finding]:
    other_heads = any(sizes.get(key) for key in _OTHER_HEADS)
    wrong = []
    for name, shape in shapes.items():
        end = ".".join(name.split(".")[-3:])
        expected = _SHAPES.get(end) or _SHAPES.get(".".join(name.split(".")[-2:]))
        if expected is None or len(shape) != 2 or any(word in name for word in _NOT_TEXT):
            continue
        if other_heads and "self_attn" in name:
            continue
        asked = tuple(of(sizes) for of in expected)
        if any(known and size not in known for size, known in zip(shape, asked, strict=True)):
            wanted = " x ".join(" or ".join(map(str, sorted(known))) or "any" for known in asked)
            wrong.append((name, f"{list(shape)}; the configuration makes it {wanted}"))
    if wrong:
        more = f"; {len(wrong)} in all" if len(wrong) > 1 else ""
        yield Finding("shape disagrees", wrong[0][1] + more, wrong[0][0])


def _layers(shapes: Mapping[str, tuple[int, ...]], sizes: Sizes) -> Iterator[Finding]:
    count = next((sizes[key] for key in ("num_hidden_layers", "n_layer") if isinstance(sizes.get(key), int)), None)
    there: dict[str, set[int]] = {}
    for name in shapes:
        found = _LAYER.match(name)
        if found and not any(word in found[1] for word in _NOT_TEXT):
            there.setdefault(found[1], set()).add(int(found[2]))
    if count is None or not there:
        return
    stem, numbers = max(there.items(), key=lambda each: len(each[1]))
    draft = {number for number in numbers if f"{stem}.{number}.eh_proj.weight" in shapes}
    more = sizes.get("num_nextn_predict_layers") or 0
    extra = {n for n in numbers - draft if n >= count + (more if isinstance(more, int) else 0)}
    missing = [n for n in range(min(count, 1 << 16)) if n not in numbers]
    if extra or missing:
        said = f"num_hidden_layers is {count}; {stem}.* has {len(numbers)}"
        said += f", without number {missing[0]}" if missing else f", up to number {max(extra)}"
        yield Finding("layers disagree", said)


def _head(shapes: Mapping[str, tuple[int, ...]], sizes: Sizes) -> Iterator[Finding]:
    tied = sizes.get("tie_word_embeddings")
    heads = [name for name in shapes if name.endswith("lm_head.weight")]
    causal = "ForCausalLM" in str(sizes.get("architectures"))
    if tied is False and causal and not heads and any(name.endswith("embed_tokens.weight") for name in shapes):
        yield Finding("head missing", "no tensor lm_head.weight")
    if tied is True and heads:
        yield Finding("tied and stored", f"{heads[0]} {list(shapes[heads[0]])}", heads[0])


def _dtypes(checkpoint: Checkpoint, mine: set[str], sizes: Sizes) -> Iterator[Finding]:
    asked = _dtype(sizes)
    counts: Counter[str] = Counter()
    for name, tensor in checkpoint.tensors.items():
        if tensor.role == "model" and name not in mine and tensor.dtype in _DTYPES and len(tensor.shape) >= 2:
            counts[_DTYPES[tensor.dtype]] += prod(tensor.shape)
    if counts and asked in _DTYPES.values() and (most := counts.most_common(1)[0])[0] != asked:
        yield Finding("dtype disagrees", f"config.json has {asked}; {most[1]:,} of {counts.total():,} plain numbers of "
                      f"matrices are {most[0]}")  # fmt: skip
