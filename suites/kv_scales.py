"""The scales of a key-value cache that somebody gives: in a checkpoint, in a JSON file, or as numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.objects import object_at
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import all_elements
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.kv.spellings import read
from narrowgauge.suites.kv_stats import number_of

#: a number, or one a head
Scale = float | tuple[float, ...]
#: of the scales of a layer, those that are there: k, v, kv, q, prob
Given = Mapping[str, Scale]


@dataclass(frozen=True)
class Scales:
    """What is given for each layer."""

    source: str  #: for people
    kind: str  #: "nothing", "numbers", "checkpoint" or "json"
    everywhere: Given | None = None  #: for every layer, whatever its name
    layers: dict[str, dict[str, Scale]] = field(default_factory=dict)
    spelled: tuple[str, ...] = ()  #: who writes names as these are
    producer: str = ""  #: the tool that a checkpoint names
    quantized: str | None = None  #: the quant_method of its configuration, "" without one; None without configuration
    declared: bool | None = None  #: whether its configuration asks for a narrow cache; None where it does not say

    def of(self, layer: str) -> Given:
        """By the layer's name, or else by its number; nothing where neither is there."""
        if self.everywhere is not None:
            return self.everywhere
        if layer in self.layers:
            return self.layers[layer]
        number = number_of(layer)
        same = [given for name, given in self.layers.items() if number is not None and number_of(name) == number]
        return same[0] if len(same) == 1 else {}

    def method(self, engine: str) -> str:
        """How an engine reads these: a name of ``delivery.METHODS``."""
        if self.kind == "json":
            return "json"
        if self.quantized == "" or self.kind == "nothing":
            return "none"
        return "compressed_tensors" if self.quantized == "compressed-tensors" and engine == "vllm" else "base"


NOTHING = Scales("none given", "nothing")


def read_scales(text: str) -> Scales:
    """Scales from a folder of safetensors files, one such file, a JSON file, or ``k=0.02,v=0.01``.

    Raises ``BadInput`` for what is none of these, or holds what cannot be a scale.
    """
    path = Path(text)
    if path.is_dir() or path.suffix == ".safetensors":
        return _of_checkpoint(path)
    if path.suffix == ".json":
        return _of_json(path)
    if "=" in text:
        return _of_numbers(text)
    raise BadInput(
        f"--scales {text}: no folder; expected a checkpoint's folder, a .safetensors or .json file, or k=..,v=.."
    )


def _of_numbers(text: str) -> Scales:
    given: dict[str, Scale] = {}
    for word in text.split(","):
        name, _, number = word.strip().partition("=")
        if name not in ("k", "v", "kv") or name in given:
            raise BadInput(f"--scales {text}: {name!r}; expected k=NUMBER and v=NUMBER, each once, or kv=NUMBER")
        given[name] = _number(f"--scales {text}", number)
    if "kv" in given and len(given) > 1:
        raise BadInput(f"--scales {text}: kv stands for both; expected it alone")
    return Scales(text, "numbers", everywhere=given)


def _number(where: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"{where}: {value!r} is no number") from None


def _of_json(path: Path) -> Scales:
    """SGLang's file for --quantization-param-path, or LAYER -> {"k": .., "v": ..}."""
    if not path.is_file():
        raise BadInput(f"no file {path}")
    found = object_at(path)
    if "kv_cache" in found:
        return _of_params(path, found["kv_cache"])
    layers = found.get("layers", found)
    if not isinstance(layers, dict) or not layers:
        raise BadInput(f"{path} names no layer; expected LAYER: {{'k': NUMBER, 'v': NUMBER}}")
    given: dict[str, dict[str, Scale]] = {}
    for name, pair in layers.items():
        if not isinstance(pair, dict) or not pair or not set(pair) <= {"k", "v"}:
            raise BadInput(f"{path}: layer {name!r}: {json.dumps(pair)[:60]}; expected {{'k': NUMBER, 'v': NUMBER}}")
        given[name] = {side: _number(f"{path}: layer {name!r}, {side}", number) for side, number in pair.items()}
    return Scales(str(path), "numbers", layers=given)


def _of_params(path: Path, cache: Any) -> Scales:
    """One number for K and V of each layer, by rank (SGLang 0.5.23, srt/model_loader/weight_utils.py:1861-1933)."""
    ranks = cache.get("scaling_factor") if isinstance(cache, dict) else None
    if not isinstance(ranks, dict) or not ranks or not all(isinstance(each, dict) and each for each in ranks.values()):
        raise BadInput(f"{path}: expected kv_cache.scaling_factor: RANK -> LAYER -> NUMBER")
    if cache.get("dtype") != "float8_e4m3fn":
        raise BadInput(
            f"{path}: kv_cache.dtype is {cache.get('dtype')!r}; SGLang takes 'float8_e4m3fn' alone, else 1.0"
        )
    first = next(iter(ranks.values()))
    if any(each != first for each in ranks.values()):
        raise BadInput(f"{path}: ranks have different scales; look at each rank by a file of its own")
    layers: dict[str, dict[str, Scale]] = {
        f"layer {n}": {"kv": _number(f"{path}: layer {n}", number)} for n, number in first.items()
    }
    return Scales(str(path), "json", layers=layers)


def _of_checkpoint(path: Path) -> Scales:
    """Every tensor whose name is a spelling of a scale, and what the configuration says."""
    found = open_checkpoint(path)
    layers: dict[str, dict[str, Scale]] = {}
    spelled: dict[str, None] = {}
    for name, stored in found.tensors.items():
        if (place := read(name)) is None:
            continue
        layer, spelling = place
        if spelling.scale in layers.setdefault(layer, {}):
            raise BadInput(f"{path}: layer {layer!r} has two tensors for the scale of {spelling.scale}")
        values = tuple(float(v) for v in decode_values(all_elements(stored)))
        if not values:
            raise BadInput(f"{path}: tensor {name!r} holds no number")
        layers[layer][spelling.scale] = values[0] if len(values) == 1 else values
        spelled[spelling.by] = None
    config, older = found.config, found.others.get("hf_quant_config.json", {})
    said = config.get("quantization_config")
    producer, method, declared = _told(said if isinstance(said, dict) else {}, older)
    if not method and not config:
        return Scales(str(path), "checkpoint", None, layers, tuple(spelled))
    return Scales(str(path), "checkpoint", None, layers, tuple(spelled), producer, method, declared)


def _told(said: Mapping[str, Any], older: Mapping[str, Any]) -> tuple[str, str, bool | None]:
    """Who made a checkpoint, how it is quantized, and whether it asks for a narrow cache."""
    inner = older.get("quantization")
    inner = inner if isinstance(inner, dict) else {}
    maker = said.get("producer") or older.get("producer")
    producer = " ".join(map(str, maker.values())) if isinstance(maker, dict) else ""
    method = str(said.get("quant_method") or ("modelopt" if inner else ""))
    asks = [said[key] for key in ("kv_cache_scheme", "kv_cache_quant_config") if key in said]
    asks += [inner[key] for key in ("kv_cache_quant_algo",) if key in inner]
    return producer, method, any(map(bool, asks)) if asks else None
