# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the configuration, in the index, and between them and the tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from narrowgauge.suites.meta.small_bytes import bf16, f32
from narrowgauge.suites.meta.small_drafts import Draft
from narrowgauge.suites.meta.small_flaw import DOWN, Flaw, configured, each, nothing, unconfigured, without

GROUP = ("quantization_config", "config_groups", "group_0")


def plain(path: str) -> Callable[[Draft], None]:
    """A weight as it was before quantization, and no scales."""

    def edit(draft: Draft) -> None:
        for name in [n for n in draft.tensors if n.startswith(path + ".")]:
            del draft.tensors[name]
        draft.tensors[f"{path}.weight"] = bf16(draft.originals[f"{path}.weight"])

    return edit


def other_algo(draft: Draft) -> None:
    """hf_quant_config.json of another export."""
    content = draft.others["hf_quant_config.json"]
    draft.others["hf_quant_config.json"] = content | {"quantization": content["quantization"] | {"quant_algo": "NVFP4"}}


def index(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "model.safetensors.index.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return edit


def shard_gone(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def shard_again(folder: Path) -> None:
    """The second shard once more, as a third."""
    third = folder / "model-00003-of-00003.safetensors"
    third.write_bytes((folder / "model-00002-of-00003.safetensors").read_bytes())


def shard_cut(folder: Path) -> None:
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _promise(content: dict[str, Any]) -> None:
    content["weight_map"]["model.layers.1.mlp.extra.weight"] = "model-00001-of-00003.safetensors"


def _halve(content: dict[str, Any]) -> None:
    content["metadata"]["total_size"] //= 2


def _twice(draft: Draft) -> None:
    draft.tensors["lm_head.weight"] = f32(draft.originals["lm_head.weight"] * 2)


#: "" for a finding: the folder is refused with an error that names the file
REFUSED = ("",)
DTYPE = ("dtype disagrees",)

CONFIG: dict[str, Flaw] = {
    "shard missing": Flaw("bf16_sharded", nothing, REFUSED, after=shard_gone),
    "shard cut": Flaw("bf16_sharded", nothing, REFUSED, after=shard_cut),
    "tensor in two shards": Flaw("bf16_sharded", nothing, REFUSED, after=shard_again),
    "index names what is not there": Flaw(
        "bf16_sharded", nothing, ("index names absent tensors",), after=index(_promise)
    ),
    "index of another size": Flaw("bf16_sharded", nothing, ("index size",), after=index(_halve)),
    "float16 in the configuration": Flaw("bf16", configured("dtype", value="float16"), DTYPE),
    "Gemma in float16": Flaw(
        "bf16",
        each(configured("model_type", value="gemma3_text"), configured("architectures", value=["Gemma3ForCausalLM"])),
        ("float16 refused",),
        {"to": "float16"},
        row="RANGE1601",
    ),
    "layers that are not there": Flaw("bf16", configured("num_hidden_layers", value=3), ("layers disagree",)),
    "layers too many": Flaw("bf16", configured("num_hidden_layers", value=1), ("layers disagree",)),
    "hidden size of another": Flaw("bf16", configured("hidden_size", value=256), ("shape disagrees",)),
    "vocabulary of another": Flaw("bf16", configured("vocab_size", value=128), ("shape disagrees",)),
    "heads of another": Flaw("bf16", configured("num_key_value_heads", value=4), ("shape disagrees",)),
    "no head": Flaw("bf16", without("lm_head.weight"), ("head missing",)),
    "tied, and another head stored": Flaw(
        "bf16", each(configured("tie_word_embeddings", value=True), _twice), ("tied and stored",)
    ),
    "quantized and ignored": Flaw(
        "ct_FP8",
        configured("quantization_config", "ignore", value=["lm_head", DOWN]),
        ("quantized and ignored",),
    ),
    "quantized without a word": Flaw("ct_FP8", unconfigured("quantization_config"), ("quantized and ignored",)),
    "plain, and said to be quantized": Flaw("ct_FP8", plain(DOWN), ("quantized in name only",)),
    "ignore names nothing": Flaw(
        "ct_FP8", configured("quantization_config", "ignore", value=["lm_head", "lm_heat"]), ("ignore names nothing",)
    ),
    "ignore is no pattern": Flaw(
        "ct_FP8", configured("quantization_config", "ignore", value=["lm_head", "re:("]), ("pattern is none",)
    ),
    "eight bits said, four stored": Flaw(
        "ct_NVFP4", configured(*GROUP, "weights", "num_bits", value=8), ("configuration disagrees",)
    ),
    "four bits said, eight stored": Flaw(
        "mo_FP8", configured("quantization_config", "quant_algo", value="NVFP4"), ("configuration disagrees",)
    ),
    "two configurations that differ": Flaw("mo_FP8", other_algo, ("configuration disagrees",)),
    "a method of nobody": Flaw(
        "bf16", configured("quantization_config", value={"quant_method": "superq"}), ("method not understood",)
    ),
    "not compressed": Flaw(
        "ct_FP8", configured("quantization_config", "quantization_status", value="frozen"), ("not compressed",)
    ),
}
