"""A key-value cache as it is used: which engine, which flag, where; and what that does to what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.kv_file import PARTS
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.devices.targets import target_named
from narrowgauge.reference.kv import provenance
from narrowgauge.reference.kv.delivery import Delivered, delivered
from narrowgauge.reference.kv.effect import Effects
from narrowgauge.reference.kv.findings import Finding, Judged, judge_part
from narrowgauge.reference.kv.flags import flag_named, is_fnuz, stored
from narrowgauge.reference.kv.guards import WARNINGS
from narrowgauge.reference.kv.histogram import Histogram
from narrowgauge.reference.recipes import RECIPES, recipe_named
from narrowgauge.suites.kv_scales import Given, Scales
from narrowgauge.suites.kv_stats import Stats

#: formats that can be asked for -> the flag of both engines that stores them, and a target that does
FORMATS = {
    "float8_e4m3fn": ("fp8_e4m3", "sm_90"),
    "float8_e4m3fnuz": ("fp8_e4m3", "gfx942"),
    "float8_e5m2": ("fp8_e5m2", "sm_90"),
}
#: a format of no engine's flag -> the recipe that stands for it
OF_NO_ENGINE = {"int8": "vllm.int8_static_tensor"}
ENGINES = ("vllm", "sglang")


@dataclass(frozen=True)
class Use:
    """How K and V are stored, and by whose rules a scale is delivered."""

    engine: str  #: "" where no engine has a rule: a scale is used as it is given
    flag: str
    target: str
    format: str
    recipe: Recipe
    says: str = ""  #: what is worth knowing of the flag on this target

    def __str__(self) -> str:
        by = f"{self.engine} --kv-cache-dtype {self.flag} on {self.target}: " if self.engine else ""
        return f"{by}{self.format}, written as {self.recipe.name}"

    def deliver(self, given: Given, method: str) -> Delivered:
        """The scales in use, of those that are given."""
        if self.engine:
            if (method == "json") and self.engine != "sglang":
                raise BadInput("a file of kv_cache.scaling_factor is SGLang's; give --engine sglang")
            return delivered(self.engine, given, self.flag, is_fnuz(self.target), method)
        shared = given.get("kv", 1.0)
        return Delivered(given.get("k", shared), given.get("v", shared), None, None, (), "", "as given", "")

    def recipe_for(self, histogram: Histogram, method: str) -> Recipe:
        """The writer's rule for elements of this format: HIP divides float16 in float16; a Python number multiplies."""
        special = f"{self.recipe.name}_float16" if histogram.format == "float16" else ""
        if method == "json":
            special = f"{self.recipe.name}_number"
        return RECIPES.get(special, self.recipe)


def use_of(engine: str, flag: str, format_name: str, target: str, writer: str) -> Use:
    """What is stored. A flag or a format is asked for, not both; "" is the default of each.

    Raises ``BadInput`` for an unknown name, a flag that is refused there, or whose cache takes no given scale.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if target:
        target_named(target)
    if flag and format_name:
        raise BadInput(f"--kv-cache-dtype {flag} and --format {format_name}; expected one of them")
    wanted = format_named(format_name or "float8_e4m3fn").name
    if not flag and wanted in OF_NO_ENGINE:
        return Use("", "", "", wanted, recipe_named(OF_NO_ENGINE[wanted]), "no engine's flag: scales as given")
    if not flag and wanted not in FORMATS:
        raise BadInput(f"--format {wanted}; expected {', '.join([*FORMATS, *OF_NO_ENGINE])}")
    default_flag, default_target = FORMATS[wanted]
    flag, target = flag or default_flag, target or default_target
    if flag_named(engine, flag).scale != "tensor":
        raise BadInput(f"--kv-cache-dtype {flag} of {engine} is given no scale of K and V: nothing here is a question")
    found = stored(engine, flag, target, writer)
    if found.refused or not found.recipe:
        raise BadInput(f"--kv-cache-dtype {flag} of {engine} on {target}: {found.says or 'nothing is stored'}")
    said = [found.says] if found.says else []
    if format_name and found.format != wanted:
        said.append(f"{flag} stores {found.format} on {target}, not {wanted}")
    return Use(engine, flag, target, found.format, recipe_named(found.recipe), "; ".join(said))


@dataclass(frozen=True)
class Report:
    """What is found."""

    use: Use
    scales: Scales
    delivered: Mapping[str, Delivered]  #: of each layer
    parts: tuple[Judged, ...]
    findings: tuple[Finding, ...]  #: of layers and of the whole; those of parts are theirs

    @property
    def every(self) -> tuple[Finding, ...]:
        """All findings, those of the whole first."""
        return (*self.findings, *(finding for part in self.parts for finding in part.findings))

    @property
    def wrong(self) -> bool:
        return any(finding.wrong for finding in self.every)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the engine logs."""
        return tuple(dict.fromkeys(WARNINGS[name] for each in self.delivered.values() for name in each.warned))

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": self.use.engine, "flag": self.use.flag, "target": self.use.target, "format": self.use.format,
            "recipe": self.use.recipe.name, "says": self.use.says, "scales": self.scales.source,
            "warnings": list(self.warnings), "findings": [f.to_json() for f in self.findings],
            "parts": [part.to_json() for part in self.parts],
        }  # fmt: skip


def report_on_scales(layers: list[str], scales: Scales, use: Use, measured: bool) -> Report:
    """What can be said of scales by themselves, for layers of these names. Raises ``BadInput`` where none fits."""
    method = scales.method(use.engine)
    given = {layer: scales.of(layer) for layer in layers}
    if scales.layers and not any(given.values()):
        raise BadInput(
            f"{scales.source} has scales for {', '.join([*scales.layers][:3])}, .., and no layer of them is one of "
            f"{', '.join(layers[:3])}, .."
        )
    found = {layer: use.deliver(each, method) for layer, each in given.items()}
    some = any(given.values())
    findings = [
        *provenance.of_declaration(scales.declared, bool(scales.layers), method != "none"),
        *(provenance.of_all(given) if scales.everywhere is None else ()),
        *provenance.of_unity([layer for layer, d in found.items() if 1.0 in (d.k, d.v)], use.format, measured),
    ]
    for layer, each in given.items():
        findings += provenance.of_given(layer, each, some)
        if found[layer].raised:
            findings.append(Finding("the engine ends", f"{use.engine}: {found[layer].raised}", layer))
    return Report(use, scales, found, (), tuple(findings))


def report_on(stats: Stats, scales: Scales, use: Use) -> Iterator[Report | Judged]:
    """Each part as it is judged, and in the end the report."""
    report = report_on_scales([*stats.layers], scales, use, measured=True)
    method, parts = scales.method(use.engine), []
    for layer, held in stats.layers.items():
        scale = report.delivered[layer]
        given = scales.of(layer)
        for part, histogram in held.items():
            side = PARTS[part]
            effects = Effects(histogram, use.recipe_for(histogram, method), use.format)
            own = given.get(side, given.get("kv"))
            parts.append(judge_part(layer, part, effects, own, scale.k if side == "k" else scale.v))
            yield parts[-1]
    yield replace(report, parts=tuple(parts))
