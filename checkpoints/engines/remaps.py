"""How engines rename the scales of a key-value cache, exactly: patterns in their order, and what they say.

vLLM has two ways. Its loader renames by the quantization method's patterns
(vllm/model_executor/layers/quantization/base_config.py:219-252, fp8.py:210-222, quark/quark.py:951-961), and a name
that still fits nothing ends it, unless its end is one that may be missing. Models with a loader of their own call a
function (vllm/model_executor/model_loader/weight_utils.py:1722-1831) that drops a name without a parameter and says so
once for each text, so that later layers go silently. SGLang has the function alone
(sglang/srt/model_loader/weight_utils.py:1779-1857).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

#: "loaded": into ``name``; "said": dropped, with a line of the log; "silent": dropped without; "ends": an exception
Outcome = Literal["loaded", "said", "silent", "ends"]


@dataclass(frozen=True)
class Renamed:
    """A name after a function that renames; ``name`` is None where it is dropped, which is said."""

    name: str | None
    looked_for: str  #: the name that the engine looked for; equal to ``name`` where there is one


#: vLLM's patterns of every method, in order, each applied to what the one before it left
MAPPER = (
    (re.compile(r"\.kv_scale$"), ".attn.k_scale"),
    (re.compile(r"\.self_attn\.[kv]_proj\.([kv])_scale$"), r".self_attn.attn.\1_scale"),
    (re.compile(r"\.self_attn\.qk(?:qk)?v_proj\.([kv])_scale$"), r".self_attn.attn.\1_scale"),
    (re.compile(r"\.mixer\.[kv]_proj\.([kv])_scale$"), r".mixer.attn.\1_scale"),
    (re.compile(r"\.self_attn\.q\.scale$"), ".self_attn.attn.q_scale"),
    (re.compile(r"\.self_attn\.([kv])_cache\.scale$"), r".self_attn.attn.\1_scale"),
    (re.compile(r"(?<!\.attn)\.([qkv])_scale$"), r".attn.\1_scale"),
    (re.compile(r"(?<!\.attn)\.([qkv])_zero_point$"), r".attn.\1_zero_point"),
)
#: ends that "fp8" and "quark" have besides; the last of the mapper, after the stacking of projections
MAPPER_ENDS = (
    (".k_proj.output_scale", ".attn.k_scale"),
    (".v_proj.output_scale", ".attn.v_scale"),
    (".q_proj.output_scale", ".attn.q_scale"),
    (".self_attn.prob_output_scale", ".self_attn.attn.prob_scale"),
)
WITH_ENDS = ("fp8", "deepseek_v4_fp8", "quark")
#: what may be left over in vLLM's loader, whatever the method: said at the level of debug (base_config.py:112-119)
LEFT_OVER = (".q_scale", ".k_scale", ".v_scale", ".q_zero_point", ".k_zero_point", ".v_zero_point")
#: the projections that engines fuse into one, in the order in which they look for them
STACKED = ("q_proj", "k_proj", "v_proj")


def mapped(name: str, method: str, stacks: bool) -> str:
    """A name after vLLM's mapper; ``stacks``: the model's own mapper fuses projections in the same pass."""
    for pattern, to in MAPPER:
        name = pattern.sub(to, name)
    if stacks:
        name = stacked(name)
    for end, becomes in MAPPER_ENDS if method in WITH_ENDS else ():
        if name.endswith(end):
            name = name.removesuffix(end) + becomes
    return name


def stacked(name: str) -> str:
    """A name with ``.k_proj`` and its kind as ``.qkv_proj``, each once, one after the other."""
    for projection in STACKED:
        name = name.replace(f".{projection}", ".qkv_proj", 1)
    return name


#: ends at which vLLM's function looks at its patterns at all
_ENDS = tuple(f".{side}_{kind}" for kind in ("scale", "zero_point") for side in "kvq")
_ENDS += (".q.scale", ".k_cache.scale", ".v_cache.scale")


def _patterns(attention: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return (
        (re.compile(r"\.self_attn\.([kv])_proj\.([kv])_scale$"), rf".self_attn.{attention}.\2_scale"),
        (re.compile(r"\.self_attn\.qkv_proj\.([kv])_scale$"), r".self_attn.attn.\1_scale"),
        (re.compile(r"\.self_attn\.qkqkv_proj\.([kv])_scale$"), r".self_attn.attn.\1_scale"),
        (re.compile(r"\.mixer\.[kv]_proj\.([kv])_scale$"), r".mixer.attn.\1_scale"),
        (re.compile(r"\.self_attn\.q\.scale$"), ".self_attn.attn.q_scale"),
        (re.compile(r"\.self_attn\.([kv])_cache\.scale$"), r".self_attn.attn.\1_scale"),
        (re.compile(r"\.([qkv])_scale$"), r".attn.\1_scale"),
        (re.compile(r"\.([qkv])_zero_point$"), r".attn.\1_zero_point"),
    )


#: by whether the model has latent attention
PATTERNS = {False: _patterns("attn"), True: _patterns("mla_attn.mla_attn")}


def vllm(name: str, parameters: Collection[str]) -> Renamed:
    """vLLM's function: the first pattern that is found decides, and its parameter has to be there."""
    if name in parameters:
        return Renamed(name, name)
    if name.endswith(".kv_scale"):
        return _there(name.replace(".kv_scale", ".attn.k_scale"), parameters)
    if name.endswith(_ENDS):
        for pattern, to in PATTERNS[any("mla_attn" in each for each in parameters)]:
            if pattern.search(name):
                return _there(pattern.sub(to, name), parameters)
    return Renamed(name, name)


#: SGLang replaces these ends without a look at the parameters (weight_utils.py:1846-1854)
SGLANG_ENDS = (
    (".q_proj.output_scale", ".attn.q_scale"),
    (".k_proj.output_scale", ".attn.k_scale"),
    (".v_proj.output_scale", ".attn.v_scale"),
    ("self_attn.prob_output_scale", ".attn.prob_scale"),
)


def sglang(name: str, parameters: Collection[str]) -> Renamed:
    """SGLang's function. It renames ``.attn.k_scale`` too, to a second ``.attn``, which no model has."""
    if name.endswith(".kv_scale"):
        return _there(name.replace(".kv_scale", ".attn.k_scale"), parameters)
    for side in "kv":
        end = f".{side}_scale"
        if name.endswith(end):
            own = [p for p in (".self_attn.", ".mixer.") if f"{p}{side}_proj{end}" in name]
            was, becomes = (f"{own[0]}{side}_proj{end}", f"{own[0]}attn{end}") if own else (end, f".attn{end}")
            return _there(name.replace(was, becomes), parameters)
    for end, becomes in SGLANG_ENDS:
        if name.endswith(end):
            name = name.replace(end, becomes)
            return Renamed(name, name)
    return Renamed(name, name)


def _there(name: str, parameters: Collection[str]) -> Renamed:
    return Renamed(name if name in parameters else None, name)
