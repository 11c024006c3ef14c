"""The compute path of a quantized weight on a GPU: which units, which way around, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from narrowgauge.checkpoints.engines.paths import (
    FAMILIES,
    MINIMUM,
    ON_AMD,
    OWN_NAMES,
    RULES,
    SCHEME_MINIMUM,
    SOURCES,
    WHERE,
    Becomes,
    Gpu,
)
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.passports import Passport
from narrowgauge.devices.targets import target_named

#: beginnings of names of schemes -> family; a longer one before a shorter that it begins with
_BEGINNINGS = (
    ("fp8_e8m0", "mxfp8"),
    ("fp8", "fp8"),
    ("mxfp4", "mxfp4"),
    ("mx_", "mxfp4"),
    ("nvfp4", "nvfp4"),
    ("int8_bits", ""),
    ("int8", "int8"),
    *((name, "int4") for name in ("gptq", "awq", "packed", "quark_int4", "int4", "w4afp8")),
)
#: families whose activations are in 16 bits anyway
_WEIGHTS_ALONE = ("int4", "fp4 weights", "fp8 weights")
#: fp8 whose bytes are FNUZ in the file: none of ``FAMILIES``, since no rule of an engine speaks of it
STORED_FNUZ = "fp8 stored as FNUZ"
#: what is said of a path -> kind of finding; none for units
KINDS: dict[Becomes, str] = {
    "weights only": "weights only on the target",
    "emulated": "emulated on the target",
    "converted": "converted for the target",
    "requantized": "requantized for the kernel",
    "refused": "refused on the target",
    "not known": "path not known",
}


@dataclass(frozen=True)
class Path:
    """What becomes of a family of formats on a target."""

    family: str  #: of ``FAMILIES``; "" where there is none for the scheme
    becomes: Becomes
    said: str
    source: str = ""

    def __str__(self) -> str:
        return self.becomes if self.becomes == "units" and not self.said else f"{self.becomes}: {self.said}"


def gpu_named(name: str) -> Gpu:
    """A target of ``devices.targets``, or "cpu". Raises ``BadInput`` with near names."""
    if name == "cpu":
        return Gpu(name, "cpu", 0)
    target = target_named(name)
    figures = re.fullmatch(r"(?:sm_|gfx)(\d+)([0-9a-f]*)", name)
    digits = figures[1] if figures else "0"
    # gfx942 is 9.4 with a stepping of 2, gfx1100 11.0, gfx90a 9.0
    capability = int(digits) if target.backend == "cuda" else int(digits[: 2 if digits[0] == "9" else 3])
    return Gpu(name, target.backend, capability)


def family_of(passport: Passport) -> str:
    """The family of formats that a passport belongs to; "" for one that is in none."""
    family = next((family for start, family in _BEGINNINGS if passport.scheme.name.startswith(start)), "")
    if family in ("mxfp4", "nvfp4") and passport.inputs == "none":
        return "fp4 weights"
    if passport.element.endswith("fnuz"):
        return STORED_FNUZ
    if family != "fp8":
        return family
    if passport.cutting is not None and passport.cutting.cut == "block":
        return "fp8 block"
    return "fp8 weights" if passport.inputs == "none" else "fp8"


def own_name(engine: str, method: str, family: str) -> str:
    """What the engine calls the method of a configuration."""
    names = OWN_NAMES.get((engine, method), {})
    return names.get(family, names.get("", method))


def path(family: str, method: str, engine: str, target: str) -> Path:
    """The path of a family, for a method of quantization ("" where the checkpoint names none)."""
    gpu = gpu_named(target)
    if family == STORED_FNUZ and not engine and gpu.backend != "cpu":
        native = "float8_e4m3fnuz" in target_named(target).hardware
        return Path(
            family, "units" if native else "emulated", "" if native else "no units of FNUZ", "devices/targets.py"
        )
    if family not in FAMILIES:
        return Path(family, "not known", "no rule for the format")
    if not engine:
        return _of_units(family, gpu)
    name = own_name(engine, method, family)
    refused = _refused(engine, name, family, gpu)
    if refused:
        return Path(family, "refused", *refused)
    for rule in RULES:
        fits = rule.engine == engine and family in rule.families and WHERE[rule.where](gpu)
        if fits and (not rule.methods or method in rule.methods):
            return Path(family, rule.becomes, rule.said, SOURCES[rule.source])
    return Path(family, "not known", f"no rule for {FAMILIES[family]} on {target}")


def _refused(engine: str, name: str, family: str, gpu: Gpu) -> tuple[str, str] | None:
    """Why the engine refuses the method on the target, and where it says so."""
    listed, source = ON_AMD[engine]
    if gpu.backend == "hip" and name and name not in listed:
        return f"{engine} does not take {name} on AMD", source
    asked = (MINIMUM.get((engine, name)), SCHEME_MINIMUM.get((engine, name, family)))
    least, source = max((each for each in asked if each), default=(0, ""))
    if gpu.backend != "cpu" and gpu.capability < least:
        return f"{name} asks for a capability of {least} there, {gpu.name} has {gpu.capability}", source
    return None


def _of_units(family: str, gpu: Gpu) -> Path:
    """What the units alone say, without an engine."""
    if family in ("int8", "int4") or gpu.backend == "cpu":
        return Path(family, "not known", "an engine decides")
    hardware = target_named(gpu.name).hardware
    source = "devices/targets.py"
    if family in ("fp8", "fp8 block", "fp8 weights"):
        if "float8_e4m3fn" in hardware:
            return Path(family, "units", "", source)
        fnuz = "float8_e4m3fnuz" in hardware
        return Path(family, "converted" if fnuz else "emulated", "FNUZ units" if fnuz else "no units of fp8", source)
    if family == "fp4 weights":
        return Path(family, "weights only", "as the checkpoint asks", source)
    native = WHERE["sm_100 and later"](gpu) or (family != "nvfp4" and WHERE["MX on AMD"](gpu))
    return Path(family, "units" if native else "emulated", "" if native else "no units of the format", source)


def path_of(passport: Passport, engine: str, target: str, method: str = "") -> str:
    """The path of one passport, for people."""
    return str(path(family_of(passport), method, engine, target))


def target_findings(passports: Iterable[Passport], method: str, engine: str, target: str) -> Iterator[Finding]:
    """A finding for each family of formats that does not run on units of its own."""
    modules: dict[str, list[str]] = {}
    for passport in passports:
        modules.setdefault(family_of(passport) or passport.scheme.name, []).append(passport.module)
    for family, names in modules.items():
        found = path(family, method, engine, target)
        if found.becomes == "units" or (family in _WEIGHTS_ALONE and found.becomes == "weights only"):
            continue
        by = f"{engine} on {target}" if engine else target
        where = f" ({found.source})" if found.source else ""
        said = f"{FAMILIES.get(family, family)}, {len(names)} modules, {names[0]} the first; {by}: {found.said}{where}"
        yield Finding(KINDS[found.becomes], said, names[0])
