"""What engines do to the weights of shards that they hold as one, and to names of their scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, prod

from narrowgauge.checkpoints.configured import Configuration
from narrowgauge.checkpoints.engines.loaders import Loader
from narrowgauge.checkpoints.engines.paths import WHERE
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.checkpoints.shards import FUSED
from narrowgauge.checkpoints.targets import gpu_named
from narrowgauge.checkpoints.values import numbers

_V8, _S8 = "vllm/model_executor/layers/quantization/", "sglang/srt/layers/quantization/"
_TENSORS = "compressed_tensors/schemes/compressed_tensors_w8a8_fp8.py"
#: from 65520 on a number is infinite in float16: from this scale on the code of 448 is
INFINITE_FROM = 65520 / 448
#: fused layers of which the scales are read, lest a model of many experts keeps the first findings waiting
MOST = 1000


@dataclass(frozen=True)
class Requantizes:
    """Where an engine quantizes shards of fp8 to the largest of their scales, after a product in float16."""

    methods: tuple[str, ...]
    where: tuple[str, ...]  #: names of ``paths.WHERE``; without a target the first that is CUDA counts
    source: str


_UNITS = ("sm_89 and later", "AMD")
#: where the rows of a shard keep a scale each, nothing is lost (SGLang's fp8 on CUDA before sm_120: fp8.py:1205-1215)
REQUANTIZES: dict[str, tuple[Requantizes, ...]] = {
    "vllm": (
        Requantizes(("fp8",), _UNITS, f"{_V8}fp8.py:394-402; {_V8}utils/fp8_utils.py:1454-1476"),
        Requantizes(("modelopt",), _UNITS, f"{_V8}modelopt.py:2178-2196"),
        Requantizes(("compressed-tensors",), _UNITS, f"{_V8}{_TENSORS}:148-156"),
        Requantizes(("quark",), _UNITS, f"{_V8}quark/schemes/quark_w8a8_fp8.py:82-105"),
    ),
    "sglang": (
        Requantizes(("fp8",), ("AMD",), f"{_S8}fp8.py:1230-1253"),
        Requantizes(("modelopt", "modelopt_fp8"), ("sm_89 and later",), f"{_S8}modelopt_quant.py:617-627"),
        Requantizes(("compressed-tensors",), _UNITS, f"{_S8}{_TENSORS}:147-165"),
    ),
}  # fmt: skip


def requantized_findings(
    passports: Sequence[Passport], said: Configuration, engine: str, target: str
) -> Iterator[Finding]:
    """Shards with a scale each that the engine quantizes again. Reads these scales."""
    row = next((r for r in REQUANTIZES[engine] if said.method.replace("_tensors", "-tensors") in r.methods), None)
    if row is None or (target and not any(WHERE[name](gpu_named(target)) for name in row.where)):
        return
    if not target and row.where[0] not in ("CUDA", "sm_89 and later"):
        return
    by_name = {passport.module: passport for passport in passports}
    ratios: list[tuple[float, str]] = []
    beyond: list[tuple[float, str]] = []
    every = list(_fused(by_name))
    for shards in every[:MOST]:
        scales = {shard.module: _scale(shard) for shard in shards}
        each = [scale for scale in scales.values() if scale is not None]
        if len(each) < 2 or len(each) < len(shards):
            continue
        beyond += [(scale, name) for name, scale in scales.items() if scale is not None and scale >= INFINITE_FROM]
        if len(set(each)) > 1:
            ratios.append((max(each) / min(each), shards[0].module))
    looked = f"; {MOST:,} of {len(every):,} looked at" if len(every) > MOST else ""
    if ratios:
        largest, name = max(ratios)
        text = f"{engine}: {len(ratios)} fused layers, {name} with the largest ratio of scales, {largest:.4g}"
        yield Finding("requantized to the largest", f"{text}{looked} ({row.source})", name)
    if beyond:
        largest, name = max(beyond)
        text = (
            f"{engine}: from a scale of {INFINITE_FROM:g} on 448 of them is infinite in float16; {name} has {largest:g}"
        )
        yield Finding("requantizing overflows", f"{text}{looked} ({row.source})", name)


def _fused(by_name: dict[str, Passport]) -> Iterator[list[Passport]]:
    for name in by_name:
        above, _, leaf = name.rpartition(".")
        for family in FUSED:
            if leaf == family[0]:
                yield [by_name[other] for part in family if (other := f"{above}.{part}") in by_name]


def _scale(passport: Passport) -> float | None:
    """The one scale of a weight of fp8; None where it has another, or one that is no number above 0."""
    tensor = passport.scale
    if passport.scheme.name != "fp8" or tensor is None or prod(tensor.shape) != 1:
        return None
    value = float(numbers(tensor)[0])
    return value if isfinite(value) and value > 0 else None


#: SGLang's loader of Llama and those that inherit it renames the first end to the second before anything else
RENAMED_AWAY = (".weight_scale_inv", ".weight_scale")
LLAMA = "sglang/srt/models/llama.py"
#: what the method fp8 calls its scales: in blocks by the first name, by the second otherwise
SCALE_NAMES = {"vllm": f"{_V8}fp8.py:318-339", "sglang": f"{_S8}fp8.py:680-696"}
#: compressed-tensors calls them by the second name alone, in blocks too
TENSORS_SCALE = {"vllm": f"{_V8}{_TENSORS}:130", "sglang": f"{_S8}{_TENSORS}:137"}


def renamed_findings(
    passports: Sequence[Passport], said: Configuration, engine: str, loader: Loader | None
) -> Iterator[Finding]:
    """Scales of fp8 (method fp8, and compressed-tensors) under another name than the method has, by file or by loader.

    SGLang's loader of models with latent attention finds both names (deepseek_weight_loader.py:89-97).
    """
    named = {"fp8": SCALE_NAMES, "compressed-tensors": TENSORS_SCALE}.get(said.method)
    if named is None or (loader is not None and loader.attention.endswith("attn_mqa")):
        return
    blocks = named is SCALE_NAMES and bool(said.said.get("weight_block_size"))
    wanted, other = RENAMED_AWAY if blocks else RENAMED_AWAY[::-1]
    names = [p.scale.name for p in passports if p.scale is not None and p.scheme.name.startswith("fp8")]
    shortens = engine == "sglang" and loader is not None and loader.source.startswith(LLAMA)
    if not shortens:
        kind, where, how = "scales of another name", named[engine], f"end as {other}"
        lost = [name for name in names if name.endswith(other)]
    else:
        kind, where = "scales renamed away", f"{LLAMA}:721-724; {SCALE_NAMES[engine]}"
        how = f"are looked for as {other} by the loader"
        lost = [name for name in names if name.endswith(RENAMED_AWAY)] if blocks else []
    if lost:
        size = "with weight_block_size " if blocks else "with no weight_block_size "
        size = size if named is SCALE_NAMES else ""
        text = f"{engine}: {len(lost)} tensors, {lost[0]} the first, {how}; {size}the method has {wanted}"
        yield Finding(kind, f"{text} ({where})", lost[0])
