"""Scales of a key-value cache in a checkpoint: which layers have them, what the configuration promises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from narrowgauge.checkpoints.configured import configuration, configurations
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.values import has_numbers, numbers
from narrowgauge.reference.kv import provenance, spellings

_ATTENTION = re.compile(r"(.*)\.(?:k_proj|qkv_proj|kv_a_proj_with_mqa|query_key_value)\.[a-z_]*weight[a-z_]*$")
_NOT_TEXT = ("vis", "audio", "encoder")
#: what ``reference.kv.provenance`` calls what an audit finds too
_SAME = {"zero": "scale zero", "negative": "scale negative", "not a number": "scale not finite"}


def kv_tensors(checkpoint: Checkpoint) -> dict[str, dict[str, Stored]]:
    """Layer -> k, v, kv, q or prob -> the tensor that scales it."""
    found: dict[str, dict[str, Stored]] = {}
    for name, tensor in checkpoint.tensors.items():
        if tensor.role == "model" and (read := spellings.read(name)) is not None and has_numbers(tensor):
            found.setdefault(_layer(read[0]), {})[read[1].scale] = tensor
    return found


def _layer(path: str) -> str:
    return path.removesuffix(".attn")


def kv_findings(checkpoint: Checkpoint, kv_cache_dtype: str = "") -> Iterator[Finding]:
    """What is wrong with them. Reads one number of each; ``kv_cache_dtype`` as an engine's flag has it."""
    tensors = kv_tensors(checkpoint)
    layers = [found[1] for name in checkpoint.tensors if (found := _ATTENTION.match(name))]
    layers = [layer for layer in dict.fromkeys(layers) if not any(word in layer for word in _NOT_TEXT)]
    having = {layer: each for layer, each in tensors.items() if {"k", "v", "kv"} & set(each)}
    yield from _promised(checkpoint, bool(having), kv_cache_dtype)
    if having:
        partial = [layer for layer in layers if layer not in having]
        partial += [layer for layer, each in having.items() if "kv" not in each and not {"k", "v"} <= set(each)]
        if partial:
            said = f"{len(partial)} of {max(len(layers), len(having))} layers lack one, {partial[0]} the first"
            yield Finding("KV scales in part", said)
        yield from _numbers(having, configuration(checkpoint).producer)


def _promised(checkpoint: Checkpoint, held: bool, kv_cache_dtype: str) -> Iterator[Finding]:
    said = configuration(checkpoint)
    places = [place for place in configurations(checkpoint) if place.kv is not None]
    narrow = kv_cache_dtype.startswith(("fp8", "int8", "nvfp4"))
    asked = [place.where for place in places if place.kv]
    if held and places and not asked:
        yield Finding("KV scales not declared", f"{places[0].where} has none")
    if held or not (asked or narrow):
        return
    by = asked[0] if asked else f"--kv-cache-dtype {kv_cache_dtype}"
    if said.method in ("compressed-tensors", "compressed_tensors") and not said.kv:
        version = said.said.get("version", "not said")
        yield Finding(
            "KV scheme dropped", f"{by} asks for it; {said.where} (version {version}) has kv_cache_scheme null"
        )
    elif asked:
        yield Finding("KV scales promised", f"{by} asks for them")
    else:
        yield Finding("KV scales absent", f"{by} asks for them")


def _numbers(having: Mapping[str, Mapping[str, Stored]], producer: str) -> Iterator[Finding]:
    given = {layer: {side: tuple(numbers(t).tolist()) for side, t in each.items()} for layer, each in having.items()}
    for layer, each in given.items():
        for found in provenance.of_given(layer, each, True):
            if found.kind in _SAME:
                yield Finding(_SAME[found.kind], found.said, having[layer][found.part].name, 1)
    every = [value for each in given.values() for side, values in each.items() if side in "kv" for value in values]
    by = f", written by {producer}" if producer else ""
    if every and all(value == 1 for value in every):
        yield Finding("unity KV scales", f"{len(given)} layers{by}. {spellings.ON_PURPOSE}")
    else:
        for found in provenance.of_all(given):
            yield Finding("KV scales alike", found.said)
