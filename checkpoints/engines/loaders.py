"""What becomes of a tensor's name in a model's own loader: a few steps, which differ from model to model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from narrowgauge.checkpoints.engines import remaps
from narrowgauge.checkpoints.engines.remaps import LEFT_OVER, STACKED, Outcome, Renamed

#: "map": vLLM's mapper; "map and stack": with the model's own in one pass; "remap": the engine's function;
#: "remap else": of names without parameter alone; "rename": the way's own pairs; "stack": projections into one,
#: wherever their name occurs, within another name too
Step = Literal["map", "map and stack", "remap", "remap else", "rename", "stack"]


@dataclass(frozen=True)
class Fate:
    """What becomes of a tensor: loaded into a parameter, dropped, or the end of loading."""

    outcome: Outcome
    name: str  #: the parameter, or the name that was not found


@dataclass(frozen=True)
class Way:
    """The steps of a loader, and what follows where no parameter has the name."""

    steps: tuple[Step, ...]
    missing: Outcome  #: where no parameter has the name after the last step
    unstacked: Outcome | Literal["on"] = "on"  #: the same of a fused name; "on": the next step gets it
    left_over: bool = False  #: vLLM's loader: names that end as ``LEFT_OVER`` may be missing
    renames: tuple[tuple[str, str], ...] = ()  #: of the step "rename", in order
    whole: tuple[str, ...] = ()  #: ends of names that "stack" leaves alone
    passes: tuple[str, ...] = ()  #: ends of names that are dropped silently where there is no parameter


@dataclass(frozen=True)
class Loader:
    """How an engine loads an architecture."""

    architecture: str
    source: str  #: file and lines
    way: str  #: a name of the engine's ways
    attention: str = "self_attn.attn"  #: the module that has the cache's scales, from the layer on

    @property
    def module(self) -> str:
        """What a checkpoint calls the attention: the same, or what the loader strips."""
        return self.attention.rpartition(".attn")[0].partition(".")[0] or "self_attn"

    def parameters(self, engine: str, layer: str) -> list[str]:
        """The scales that the attention of a layer ("model.layers.0.") has, and one projection."""
        scales = SCALES[engine]
        fused = "" if self.attention == "attn" else f"{self.module}."
        return [*(f"{layer}{self.attention}.{scale}_scale" for scale in scales), f"{layer}{fused}qkv_proj.weight"]


#: the scales that an engine's attention has where a method of the cache is there
SCALES = {"vllm": ("k", "v", "q", "prob"), "sglang": ("k", "v")}
REMAPS: dict[str, Callable[[str, Collection[str]], Renamed]] = {"vllm": remaps.vllm, "sglang": remaps.sglang}


def fate(engine: str, way: Way, name: str, parameters: Collection[str], method: str, bare: str = "") -> Fate:
    """What a loader makes of ``name``, for a model with these ``parameters``, by a quantization ``method``.

    ``bare`` is a module that the model has although no parameter is below it.
    """
    for step in way.steps:
        if step == "rename":
            for was, becomes in way.renames:
                name = name.replace(was, becomes)
        elif step == "remap" or (step == "remap else" and name not in parameters):
            renamed = REMAPS[engine](name, parameters)
            if renamed.name is None:
                return Fate("said", renamed.looked_for)
            name = renamed.name
        elif step in ("map", "map and stack"):
            name = remaps.mapped(name, method, step == "map and stack")
        elif step == "stack":
            name, ended = _stacked(way, name, parameters)
            if ended:
                return ended
    if name in parameters:
        return Fate("loaded", name)
    if way.passes and name.endswith(way.passes):
        return Fate("silent", name)
    if way.left_over and name.endswith(LEFT_OVER) and _reached(name, (*parameters, f"{bare}.")):
        return Fate("silent", name)
    return Fate(way.missing, name)


def _stacked(way: Way, name: str, parameters: Collection[str]) -> tuple[str, Fate | None]:
    """The loop over fused projections: the first that is found decides, unless a missing one lets it go on."""
    if way.whole and name.endswith(way.whole):
        return name, None
    for projection in STACKED:
        if projection in name:
            name = name.replace(projection, "qkv_proj")
            if name in parameters:
                return name, Fate("loaded", name)
            if way.unstacked != "on" and not (way.passes and name.endswith(way.passes)):
                return name, Fate(way.unstacked, name)
    return name, None


def _reached(name: str, parameters: Collection[str]) -> bool:
    """Whether the model has the module: a name is passed over by its end only where its module is reached."""
    module = name.rpartition(".")[0] + "."
    return any(parameter.startswith(module) for parameter in parameters)
