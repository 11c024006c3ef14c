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
#: largest of float16 through which codes of e4m3 go: a scale above this makes 448 of them infinite
LARGEST_SCALE = 65504 / 448


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
    for shards in _fused(by_name):
        scales = {shard.module: _scale(shard) for shard in shards}
        each = [scale for scale in scales.values() if scale is not None]
        if len(each) < 2 or len(each) < len(shards):
            continue
        beyond += [(scale, name) for name, scale in scales.items() if scale is not None and scale > LARGEST_SCALE]
        if len(set(each)) > 1:
            ratios.append((max(each) / min(each), shards[0].module))
    if ratios:
        largest, name = max(ratios)
        said_of = f"{len(ratios)} fused layers, {name} with the largest ratio of scales, {largest:.4g} ({row.source})"
        yield Finding("requantized to the largest", f"{engine}: {said_of}", name, len(ratios))
    if beyond:
        largest, name = max(beyond)
        text = f"{engine}: scales above {LARGEST_SCALE:.5g} times 448 are infinite in float16; {name} has {largest:g}"
        yield Finding("requantizing overflows", f"{text} ({row.source})", name, len(beyond))


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


#: SGLang's loader of Llama and those that inherit it renames these ends before anything else
#: (sglang/srt/models/llama.py:721-724); its fp8 method has block scales under the first name (fp8.py:689)
RENAMED_AWAY = (".weight_scale_inv", ".weight_scale")
_LLAMA = "sglang/srt/models/llama.py"


def renamed_findings(passports: Sequence[Passport], said: Configuration, loader: Loader | None) -> Iterator[Finding]:
    """Block scales of fp8 that the model's loader renames to a name that the method does not have."""
    if said.method != "fp8" or loader is None or not loader.source.startswith(_LLAMA):
        return
    was, becomes = RENAMED_AWAY
    names = [
        p.scale.name for p in passports if p.scale and p.scale.name.endswith(was) and said.said.get("weight_block_size")
    ]
    if names:
        text = f"sglang, {loader.architecture}: {len(names)} tensors, {names[0]} the first, are looked for as {becomes}"
        where = f"{_LLAMA}:721-724; {_S8}fp8.py:689"
        yield Finding("scales renamed away", f"{text}; the method has {was} ({where})", names[0], len(names))
