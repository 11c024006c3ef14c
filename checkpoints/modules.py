"""Modules of a checkpoint against what the configuration says of each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from narrowgauge.checkpoints.configured import Configuration, configuration, configurations, unusable
from narrowgauge.checkpoints.cutting import Cutting
from narrowgauge.checkpoints.families import Asked
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.methods import method_findings
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.passports import Passport, unclaimed
from narrowgauge.checkpoints.patterns import is_regular, matches
from narrowgauge.checkpoints.values import readable
from narrowgauge.checkpoints.zero_points import zero_points
from narrowgauge.contracts.formats import FORMATS

#: names of layers that no configuration needs to leave out: they are no linear layers, or engines keep them as they are
KEPT = frozenset((
    "gate", "router", "lm_head", "head", "shared_head", "wte", "wpe", "eh_proj", "score", "classifier", "weights_proj",
    "x_proj", "dt_proj", "rotary_emb",
))  # fmt: skip
#: the same by a part of a name
KEPT_PARTS = ("embed", "norm", "conv", "visual", "vision", "patch", "lora", "audio")
#: a tensor of so many elements of a narrow integer type may be codes; of a float type any may
_MANY = 1024
_NARROW = ("F8_", "F6_", "F4", "I8", "U8")
_NAMED = 3


def module_findings(checkpoint: Checkpoint, passports: Sequence[Passport]) -> Iterator[Finding]:
    """By headers and configuration, and one tensor of zero points. Of many modules with one thing, one finding."""
    said = configuration(checkpoint)
    yield from method_findings(said)
    for key, value in unusable(checkpoint.config):
        yield Finding("configuration unusable", f"{key} is {str(value)[:40]!r}, of type {type(value).__name__}")
    yield from _of_files(checkpoint, said)
    if checkpoint.kind != "gguf":
        yield from _left_out(checkpoint, said, passports)
        yield from _in_name_only(checkpoint, said, passports)
        yield from _otherwise(passports)
        yield from _alone(checkpoint, said, passports)
        yield from _entries(checkpoint, said)
    yield from _strays(checkpoint, passports)
    gptq = [passport for passport in passports if passport.scheme.name.startswith("gptq")]
    if gptq and "checkpoint_format" not in said.keys and not _in_the_middle(gptq[0]):
        yield from _together("zeros version not said", [(each.weight.name, "read as gptq: less 1") for each in gptq])


def _in_the_middle(passport: Passport) -> bool:
    """Whether zero points, read so, are what symmetric quantization has: then the version is what it is read as."""
    if not (passport.asked and passport.asked.symmetric) or readable(passport):
        return False
    return set(np.unique(zero_points(passport))) == {float(1 << FORMATS[passport.element].bits - 1)}


def _together(kind: str, each: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """One finding of several modules: (tensor, what is so)."""
    if each:
        more = f"; {len(each)} in all" if len(each) > 1 else ""
        yield Finding(kind, f"{each[0][1]}{more}", each[0][0])


def _of_files(checkpoint: Checkpoint, said: Configuration) -> Iterator[Finding]:
    """Places that say different things."""
    status = said.said.get("quantization_status")
    if isinstance(status, str) and status != "compressed":
        yield Finding("not compressed", f"quantization_status is {status!r} in {said.where}")
    for other in list(configurations(checkpoint))[1:]:
        first, second = _asked_first(said), _asked_first(other)
        if first and second and (first.element, first.cut) != (second.element, second.cut):
            yield Finding(
                "configuration disagrees",
                f"{said.where} has {_words(first)}, {other.where} has {_words(second)}",
            )


def _asked_first(said: Configuration) -> Asked | None:
    return said.groups[0][1] if said.groups else None


def _words(asked: Asked) -> str:
    return f"{asked.element or 'an element that is not said'}, {asked.cut or 'no granularity'}"


def _left_out(checkpoint: Checkpoint, said: Configuration, passports: Sequence[Passport]) -> Iterator[Finding]:
    hugging_face = {"architectures", "model_type"} & set(checkpoint.config)
    if not hugging_face or not said.understood:
        return  # files alone; or a method of which only the name is known
    found = []
    for passport in passports:
        if passport.asked is None and not (passport.scheme.alone and not said.method):
            entry = said.ignored(passport.module)
            why = f"{said.where} leaves it out by {entry!r}" if entry is not None else "no target names it"
            why = why if said.where else "config.json says nothing of it"
            found.append((passport.weight.name, f"{passport.scheme.says}; {why}"))
    yield from _together("quantized and ignored", found)


def _alone(checkpoint: Checkpoint, said: Configuration, passports: Sequence[Passport]) -> Iterator[Finding]:
    """A folder of codes that nothing explains. One file is often looked at by itself."""
    codes = [passport.weight.name for passport in passports if not passport.scheme.alone]
    if codes and not checkpoint.config and not said.where and checkpoint.path.is_dir():
        yield from _together("no configuration", [(name, "told from names alone") for name in codes])


def _in_name_only(checkpoint: Checkpoint, said: Configuration, passports: Sequence[Passport]) -> Iterator[Finding]:
    mine = {passport.module for passport in passports}
    found: dict[str, list[tuple[str, str]]] = {"quantized in name only": [], "configuration disagrees": []}
    for tensor in checkpoint.tensors.values():
        module = tensor.name.removesuffix(".weight")
        if tensor.role != "model" or module == tensor.name or module in mine or len(tensor.shape) != 2:
            continue
        if _kept(module) or (asked := said.of(module)) is None or not asked.element:
            continue
        what = f"{tensor.dtype}, and {said.where} has it as {asked.element}"
        if tensor.dtype in ("BF16", "F16", "F32"):
            found["quantized in name only"].append((tensor.name, what))
        elif tensor.dtype == "U8":  # bytes with a scale, which no scheme has so
            found["configuration disagrees"].append((tensor.name, what))
    for kind, each in found.items():
        yield from _together(kind, each)


def _kept(module: str) -> bool:
    words = module.split(".")
    return any(word in KEPT or any(part in word for part in KEPT_PARTS) for word in words)


#: what formats of codes are called in configurations
_ELEMENTS = {"uint4": "int4", "uint8": "int8", "float8_e4m3fnuz": "float8_e4m3fn", "float8_e5m2fnuz": "float8_e5m2"}


def _otherwise(passports: Sequence[Passport]) -> Iterator[Finding]:
    found: dict[str, list[tuple[str, str]]] = {}
    for passport in passports:
        for what, said in _differences(passport):
            found.setdefault(what, []).append((passport.weight.name, said))
    for each in found.values():
        yield from _together("configuration disagrees", each)


def _differences(passport: Passport) -> Iterator[tuple[str, str]]:
    asked, cutting = passport.asked, passport.cutting
    if asked is None:
        return
    element = _ELEMENTS.get(passport.element, passport.element)
    if asked.element and asked.element != element:
        yield "element", f"its codes are {element}; the configuration has {asked.element}"
        return
    sizes = passport.shape[-2:]
    if cutting is not None and asked.cut in ("tensor", "row"):
        grid = (1, 1) if asked.cut == "tensor" else Cutting(1, 0).grid(*sizes)
        if cutting.grid(*sizes) != grid:
            yield "cut", f"its scales are {cutting.says}; the configuration has one a {asked.cut}"
    scale = passport.scheme.part("scale")
    if scale is not None and asked.scale and asked.scale != (scale.format or "float"):
        yield "scale", f"its scales are {scale.format or 'floats'}; the configuration has {asked.scale}"
    if asked.symmetric is True and "zeros" in passport.tensors and passport.scheme.name.startswith("packed"):
        yield "symmetric", "it has zero points; the configuration says symmetric"


def _entries(checkpoint: Checkpoint, said: Configuration) -> Iterator[Finding]:
    """Entries of what is left out that name nothing, or are no patterns."""
    names = list(dict.fromkeys(name.rpartition(".")[0] or name for name in checkpoint.tensors))
    every = "\n".join(f".{name}." for name in names)
    nothing = []
    for entry in said.ignore:
        if not is_regular(entry):
            yield Finding("pattern is none", f"{entry!r} in {said.where}")
        elif not _names_any(entry, names, every, said.parts):
            nothing.append(entry)
    tied = checkpoint.config.get("tie_word_embeddings")
    nothing = [entry for entry in nothing if not (tied and entry.endswith("lm_head"))]
    if nothing:
        shown = ", ".join(map(repr, nothing[:_NAMED])) + (" …" if len(nothing) > _NAMED else "")
        yield Finding("ignore names nothing", f"{len(nothing)} of {len(said.ignore)} in {said.where}: {shown}")


def _names_any(entry: str, names: Iterable[str], every: str, parts: bool) -> bool:
    if entry.startswith("re:") or "*" in entry:
        return any(matches(entry, name) or matches(entry, name.rpartition(".")[0]) for name in names)
    return (entry if parts else f".{entry}.") in every


def _strays(checkpoint: Checkpoint, passports: Sequence[Passport]) -> Iterator[Finding]:
    """Scales without codes, and narrow tensors that belong to nothing."""
    orphans = list(unclaimed(checkpoint, list(passports)))
    yield from _together("scale orphaned", [(t.name, f"{t.dtype} {list(t.shape)}") for t in orphans])
    known = {t.name for t in orphans} | {t.name for passport in passports for t in passport.tensors.values()}
    found = [(t.name, f"{t.dtype} {list(t.shape)}") for t in _narrow(checkpoint.tensors) if t.name not in known]
    yield from _together("low bits unexplained", found)


def _narrow(tensors: Mapping[str, Stored]) -> Iterator[Stored]:
    for tensor in tensors.values():
        matrix = tensor.role == "model" and len(tensor.shape) >= 2
        if matrix and tensor.dtype.startswith(_NARROW) and (tensor.dtype not in ("I8", "U8") or tensor.size >= _MANY):
            yield tensor
