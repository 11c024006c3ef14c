"""The scales of a key-value cache on their way into an engine: which arrive, and what is used of those that do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from narrowgauge.checkpoints.configured import Configuration, configuration
from narrowgauge.checkpoints.engines import VERSIONS, of_sglang, of_vllm
from narrowgauge.checkpoints.engines.loaders import Fate, Loader, Way, fate
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kv_scales import kv_tensors
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.targets import own_name
from narrowgauge.checkpoints.values import numbers
from narrowgauge.reference.kv.delivery import Scale, delivered
from narrowgauge.reference.kv.flags import flag_named, is_fnuz

LOADERS: Mapping[str, Mapping[str, Loader]] = {"vllm": of_vllm.LOADERS, "sglang": of_sglang.LOADERS}
WAYS: Mapping[str, Mapping[str, Way]] = {"vllm": of_vllm.WAYS, "sglang": of_sglang.WAYS}
#: what is taken for an architecture that is not known: the engine's usual way
_USUAL = {
    "vllm": Loader("", "", "mapper, scales may be left over"),
    "sglang": Loader("", "", "remapped, said"),
}
_V8, _S8 = "vllm/model_executor/layers/quantization/", "sglang/srt/layers/quantization/"
#: (engine, method) -> whose attention gets parameters for scales: "all"; "not latent": not that of MLA; "declared":
#: where the configuration asks for a narrow cache
TAKES: dict[tuple[str, str], tuple[str, str]] = {
    ("vllm", "fp8"): ("not latent", f"{_V8}fp8.py:206-207"),
    ("vllm", "compressed-tensors"): ("not latent", f"{_V8}compressed_tensors/compressed_tensors.py:213-214"),
    ("vllm", "quark"): ("not latent", f"{_V8}quark/quark.py:205-206"),
    ("vllm", "modelopt"): ("all", f"{_V8}modelopt.py:232-233"),
    ("vllm", "modelopt_fp4"): ("all", f"{_V8}modelopt.py:232-233"),
    ("vllm", "modelopt_mxfp8"): ("all", f"{_V8}modelopt.py:232-233"),
    ("vllm", "modelopt_mixed"): ("declared", f"{_V8}modelopt.py:1849-1852"),
    ("sglang", "fp8"): ("all", f"{_S8}fp8.py:474-475"),
    ("sglang", "compressed-tensors"): ("declared", f"{_S8}compressed_tensors/compressed_tensors.py:213-225"),
    ("sglang", "quark"): ("all", f"{_S8}quark/quark.py:485-486,523-525"),
    ("sglang", "modelopt_fp8"): ("declared", f"{_S8}modelopt_quant.py:347-348"),
    ("sglang", "modelopt_fp4"): ("all", f"{_S8}modelopt_quant.py:347-348,1637-1638"),
    ("sglang", "mxfp8"): ("all", f"{_S8}fp8.py:474-475"),
    ("sglang", "modelopt_mixed"): ("declared", f"{_S8}modelopt_quant.py:1076-1077"),
}
_LAYER = re.compile(r"(.*?layers\.\d+\.)")
_OUTCOMES = {
    "said": ("cache scales dropped", "the log says so once for each text, so that later layers go silently"),
    "silent": ("cache scales dropped", "and says nothing"),
    "ends": ("cache scales end loading", "KeyError or ValueError"),
}


def architecture_of(checkpoint: Checkpoint) -> str:
    """The first architecture of the configuration; "" where none is named."""
    named = checkpoint.config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def loader_of(checkpoint: Checkpoint, engine: str) -> Loader | None:
    """How the engine loads the checkpoint's architecture; None where it is not known here."""
    return LOADERS[engine].get(architecture_of(checkpoint))


def takes(engine: str, said: Configuration, loader: Loader) -> str:
    """Where the engine says that its attention has scales for this method; "" where it has none."""
    algorithm = str(said.said.get("quant_algo") or "").upper()
    family = "nvfp4" if "NVFP4" in algorithm else "mxfp8" if algorithm == "MXFP8" else ""
    whose, source = TAKES.get((engine, own_name(engine, said.method, family)), ("", ""))
    latent = loader.attention.endswith(("mla_attn", "attn_mqa"))
    if not whose or (whose == "not latent" and latent) or (whose == "declared" and not said.kv):
        return ""
    return source


def fates(checkpoint: Checkpoint, engine: str) -> dict[str, Fate]:
    """What becomes of each tensor that scales a cache, by its name."""
    said = configuration(checkpoint)
    loader = loader_of(checkpoint, engine) or _USUAL[engine]
    way = WAYS[engine][loader.way]
    if not said.method and engine == "vllm":  # without a method there is no mapper
        way = Way(tuple(step for step in way.steps if step not in ("map", "map and stack")), way.missing)
    have = bool(takes(engine, said, loader))
    found = {}
    for each in kv_tensors(checkpoint).values():
        for tensor in each.values():
            layer = (_LAYER.match(tensor.name) or ("", ""))[1]
            parameters = loader.parameters(engine, layer)
            parameters = parameters if have else parameters[-1:]
            bare = f"{layer}{loader.attention}"
            found[tensor.name] = fate(engine, way, tensor.name, parameters, said.method, bare)
    return found


def cache_findings(checkpoint: Checkpoint, engine: str, target: str, kv_cache_dtype: str) -> Iterator[Finding]:
    """Scales of the cache that do not arrive, and what is used instead. Reads one number of each that does."""
    found = fates(checkpoint, engine)
    if not found:
        return
    said, known = configuration(checkpoint), loader_of(checkpoint, engine)
    loader, architecture = known or _USUAL[engine], architecture_of(checkpoint) or "no architecture named"
    if known is None:
        text = f"{VERSIONS[engine]}: {architecture}; names are judged by the usual loader"
        yield Finding("architecture not known", text)
    for outcome, (kind, how) in _OUTCOMES.items():
        names = [name for name, each in found.items() if each.outcome == outcome]
        if not names:
            continue
        looked = found[names[0]].name
        if not takes(engine, said, loader):
            kind = "cache scales not looked at" if outcome != "ends" else kind
            how = f"its attention has no scale for {said.method or 'a checkpoint without quantization_config'}; {how}"
        by = f" ({loader.source})" if loader.source else ""
        text = f"{VERSIONS[engine]}, {architecture}: {len(names)} of {len(found)} scales of the cache, {names[0]} "
        yield Finding(kind, f"{text}the first; it looks for {looked}; {how}{by}", names[0], len(names))
    flag = kv_cache_dtype or ("fp8_e4m3" if said.kv else "")
    scaled = flag and flag_named(engine, flag).scale not in ("none", "token and head")
    if scaled and not any(each.outcome == "ends" for each in found.values()):
        yield from _used(checkpoint, engine, found, flag, is_fnuz(target), said)


def _used(
    checkpoint: Checkpoint, engine: str, found: Mapping[str, Fate], flag: str, fnuz: bool, said: Configuration
) -> Iterator[Finding]:
    """Layers for which the engine uses other numbers than stand in the file; FNUZ's doubling is as it should be."""
    method = "none"
    if said.method:
        own = said.method in ("compressed-tensors", "compressed_tensors") and engine == "vllm"
        method = "compressed_tensors" if own else "base"
    others: list[tuple[str, str]] = []
    for layer, tensors in kv_tensors(checkpoint).items():
        arrived = {side: _number(t) for side, t in tensors.items() if found[t.name].outcome == "loaded"}
        if {"k", "v", "kv"} & set(arrived) and not ("kv" in arrived and "k" in arrived):
            used = delivered(engine, arrived, flag, fnuz, method)
            there = {side: _number(tensor) for side, tensor in tensors.items()}
            given = {side: there.get(side, there.get("kv")) for side in ("k", "v")}
            times = 2 if fnuz and method == "base" else 1
            text = used.raised or _differences(given, {"k": used.k, "v": used.v}, times)
            if text:
                others.append((layer, text))
    if others:
        layer, text = others[0]
        yield Finding(
            "cache scales used otherwise",
            f"{engine}, --kv-cache-dtype {flag}: {len(others)} layers, {layer} the first: {text}",
            layer,
        )


def _number(tensor: Stored) -> Any:
    values = [float(value) for value in numbers(tensor)]
    return values[0] if len(values) == 1 else tuple(values)


def _differences(given: Mapping[str, Any], used: Mapping[str, Scale], times: int) -> str:
    """ "V runs at 0.5; the file has none", for each side that differs."""
    text = []
    for side, number in given.items():
        wanted = None if number is None else number * times if isinstance(number, float) else number
        if used[side] != wanted:
            has = "none" if number is None else f"{number:g}" if isinstance(number, float) else "one a head"
            runs = f"{used[side]:g}" if isinstance(used[side], float) else str(used[side])
            text.append(f"{side.upper()} runs at {runs}, the file has {has}")
    return "; ".join(text)
