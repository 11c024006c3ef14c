"""What a configuration says of quantization: of which modules, in which element, how it is scaled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from narrowgauge.checkpoints.families import FAMILIES, Asked, Said, of_names
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.patterns import Patterns

#: targets that are classes of torch and not names: every linear layer
_CLASSES = ("Linear", "Attention", "LlamaAttention")


@dataclass(frozen=True)
class Configuration:
    """What config.json, or a file beside it, says."""

    method: str = ""  #: quant_method; "" where nothing is said
    where: str = ""  #: the file, and the key
    said: Said = field(default_factory=dict)
    groups: tuple[tuple[tuple[str, ...], Asked], ...] = ()  #: targets, and what is asked of them; the first counts
    ignore: tuple[str, ...] = ()
    parts: bool = False  #: an entry of ``ignore`` counts as a part of a name, whatever it begins and ends at
    kv: bool | None = None  #: whether scales of a key-value cache are promised; None where it is not said
    understood: bool = True  #: whether a module of no group is said to be plain
    keys: Mapping[str, str] = field(default_factory=dict)  #: what ``Scheme.when`` looks at
    producer: str = ""

    def ignored(self, module: str) -> str | None:
        """The entry of ``ignore`` that names a module; None where there is none."""
        found = self._ignore.first(module)
        return None if found is None else self.ignore[found]

    def of(self, module: str) -> Asked | None:
        """What is asked of a module. None for one that is not quantized, or of which nothing is said."""
        if self._ignore.first(module) is not None:
            return None
        found = self._targets.first(module)
        return None if found is None else self._flat[found][1]

    @cached_property
    def _ignore(self) -> Patterns:
        return Patterns(self.ignore, self.parts)

    @cached_property
    def _flat(self) -> tuple[tuple[str, Asked], ...]:
        return tuple((target, asked) for targets, asked in self.groups for target in targets)

    @cached_property
    def _targets(self) -> Patterns:
        return Patterns(tuple("*" if target in _CLASSES else target for target, _ in self._flat))


def unusable(config: Said) -> Iterator[tuple[str, Any]]:
    """Keys of quantization whose values are no objects, and a method that is no name."""
    for key in ("quantization_config", "compression_config"):
        value = config.get(key)
        if value is not None and not isinstance(value, dict):
            yield key, value
        elif isinstance(value, dict) and not isinstance(value.get("quant_method", ""), str):
            yield f"{key}.quant_method", value["quant_method"]


def configuration(checkpoint: Checkpoint) -> Configuration:
    """What is said, by the first place that says anything."""
    return next(configurations(checkpoint), Configuration())


def configurations(checkpoint: Checkpoint) -> Iterator[Configuration]:
    """What each place says, in the order in which engines look."""
    for where, said in _places(checkpoint):
        method = _method(where, said)
        inner = said["quantization"] if isinstance(said.get("quantization"), dict) else said
        family = next((read for names, read in FAMILIES if method in names), of_names)
        found, producer = family({**_beside(checkpoint.config), **inner}), said.get("producer")
        yield Configuration(
            method,
            where,
            inner,
            found.groups,
            found.ignore,
            found.parts,
            found.kv,
            found.understood,
            {"quant_method": method, **found.keys},
            " ".join(map(str, producer.values())) if isinstance(producer, dict) else "",
        )


def _beside(config: Said) -> dict[str, Any]:
    """What stands in config.json itself: of DeepSeek V4 how experts are stored, fp4 where nothing is said.

    (vLLM models/deepseek_v4/quant_config.py:89-103)
    """
    four = "fp4" if config.get("model_type") == "deepseek_v4" else None
    experts = config.get("expert_dtype", four)
    return {} if experts is None else {"expert_dtype": experts}


def _places(checkpoint: Checkpoint) -> Iterator[tuple[str, dict[str, Any]]]:
    sections = [("config.json", checkpoint.config)]
    sections += [
        (f"config.json {key}", checkpoint.config[key])
        for key in ("text_config", "llm_config", "language_config")
        if isinstance(checkpoint.config.get(key), dict)
    ]
    for where, section in sections:
        for key in ("quantization_config", "compression_config"):
            if isinstance(section.get(key), dict) and section[key]:
                yield f"{where} {key}", section[key]
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        found = checkpoint.others.get(name)
        if isinstance(found, dict) and found:
            yield name, dict(found)


def _method(where: str, said: Said) -> str:
    method = said.get("quant_method")
    if isinstance(method, str) and method:
        return method
    if where == "hf_quant_config.json" or "quant_algo" in said:
        return "modelopt"
    if {"group_size", "bits"} <= set(said) <= {"group_size", "bits", "mode"}:
        return f"mlx_q{said['bits']}"  # as SGLang tells them (srt/layers/quantization/mlx.py:63-100)
    if "zero_point" in said or "w_bit" in said:
        return "awq"
    if "desc_act" in said or where == "quantize_config.json":
        return "gptq"
    return "compressed-tensors" if "config_groups" in said else "not said"
