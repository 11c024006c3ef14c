"""What an audit is asked, and which combinations of questions cannot be answered together."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.targets import gpu_named
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.contracts.formats import FORMATS, NO_FORMAT, format_named
from narrowgauge.contracts.recipe import Recipe
from narrowgauge.devices.targets import TARGETS
from narrowgauge.reference.kv.flags import FLAGS, flag_named, is_fnuz
from narrowgauge.reference.recipes import RECIPES, recipe_named

#: whose rules can be asked for
ENGINES = tuple(FLAGS)
#: the word for bytes of OCP formats that go to a GPU of FNUZ
FNUZ = "fnuz"
#: floats that hold a sign, and are narrower than float32: what --to NAME can be beside recipes
TO_FORMATS = tuple(
    f.name for f in FORMATS.values() if f.signed and f.family not in ("integer", "exponent") and f.bits <= 16
)
#: terabytes a second of an H100's memory, which decode floors are told for
BANDWIDTH = 3.35


@dataclass(frozen=True)
class Destination:
    """Where the numbers are to go."""

    name: str  #: as reports name it
    how: Literal["cast", "fnuz", "recipe"]
    format: str = ""  #: of a cast, and of a recipe's codes
    recipe: Recipe | None = None


@dataclass(frozen=True)
class Asked:
    """Everything that a run of ``narrowgauge audit`` was told."""

    path: Path
    to: tuple[Destination, ...] = ()
    target: str = ""  #: "" where the audit is about no GPU
    engine: str = ""
    kv_cache_dtype: str = ""
    against: Path | None = None
    log: Path | None = None
    torch_weights: bool = False
    bandwidth: float = BANDWIDTH
    workers: int = 1
    only: str = ""
    headers_only: bool = False

    def __post_init__(self) -> None:
        """Raises ``BadInput`` for what cannot be, or does not go together."""
        if self.engine and self.engine not in ENGINES:
            raise unknown("engine", self.engine, ENGINES)
        if self.target:
            gpu_named(self.target)
        if self.kv_cache_dtype and self.engine:
            flag_named(self.engine, self.kv_cache_dtype)
        elif self.kv_cache_dtype and not any(self.kv_cache_dtype in flags for flags in FLAGS.values()):
            raise unknown("--kv-cache-dtype", self.kv_cache_dtype, {name for flags in FLAGS.values() for name in flags})
        if not 0 < self.bandwidth < float("inf"):
            raise BadInput(
                f"--bandwidth {self.bandwidth:g}; expected terabytes a second, more than 0: 3.35 for an H100"
            )
        if self.workers < 1:
            raise BadInput(f"--workers {self.workers}; expected 1 or more")
        self._check_destinations()
        if self.against is not None and self.against.resolve() == self.path.resolve():
            raise BadInput(f"--against {self.against} is the checkpoint itself; give the folder it was made from")

    def _check_destinations(self) -> None:
        if self.headers_only:
            needs = [f"--to {d.name}" for d in self.to] + ([f"--against {self.against}"] if self.against else [])
            if needs:
                raise BadInput(f"{needs[0]} needs the tensors; leave out --headers-only, or {needs[0]}")
        to_fnuz = any(d.how == "fnuz" for d in self.to)
        if to_fnuz and self.target and not is_fnuz(self.target):
            raise BadInput(
                f"--to fnuz with --target {self.target}, whose fp8 is not FNUZ; "
                f"leave one out, or give {' or '.join(t for t in TARGETS if is_fnuz(t))}"
            )

    def wants(self, tensor: Stored) -> bool:
        """Whether ``--only`` lets a tensor through: a part of its name, or a pattern with ``*`` and ``?``."""
        if not self.only or self.only in tensor.name:
            return True
        return fnmatch.fnmatchcase(tensor.name, self.only)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path), "to": [d.name for d in self.to], "target": self.target, "engine": self.engine,
            "kv_cache_dtype": self.kv_cache_dtype, "against": str(self.against or ""), "log": str(self.log or ""),
            "torch_weights": self.torch_weights, "bandwidth_tb_s": self.bandwidth, "only": self.only,
            "headers_only": self.headers_only,
        }  # fmt: skip

    def words(self) -> list[str]:
        """The options, as they are typed: how to ask the same again."""
        options = [f"--to={d.name}" for d in self.to]
        for option, value in (
            ("target", self.target), ("engine", self.engine), ("kv-cache-dtype", self.kv_cache_dtype),
            ("against", self.against), ("log", self.log), ("only", self.only),
        ):  # fmt: skip
            options += [f"--{option}={value}"] if value else []
        options += ["--torch-weights"] if self.torch_weights else []
        options += [f"--bandwidth={self.bandwidth:g}"] if self.bandwidth != BANDWIDTH else []
        return options + (["--headers-only"] if self.headers_only else [])


def destinations(words: Sequence[str], target: str = "") -> tuple[Destination, ...]:
    """``--to``, each: ``fnuz``, a format, or a recipe, ``RECIPE:FORMAT`` where it has several destinations.

    Without a format a recipe goes to the first of its destinations; on a target of FNUZ to the first that is FNUZ, if
    it has one. Raises ``BadInput`` with near names.
    """
    return tuple(dict.fromkeys(_destination(word, target) for word in words))


def _destination(word: str, target: str) -> Destination:
    if word.lower() == FNUZ:
        return Destination(FNUZ, "fnuz")
    name, _, format_name = word.partition(":")
    if name in RECIPES:
        return _of_recipe(recipe_named(name), format_name, target)
    if "." in name and not name.startswith(("torch.", "tl.")):
        raise unknown("--to", name, RECIPES)
    try:
        fmt = format_named(word)
    except BadInput:
        if word.lower() in NO_FORMAT:
            raise
        raise unknown("--to", word, (FNUZ, *TO_FORMATS, *RECIPES), aliases=_ALIASES) from None
    if fmt.name not in TO_FORMATS:
        raise BadInput(
            f"--to {word}: nothing is cast to {fmt.name} without a scale; give {', '.join(TO_FORMATS)} or a recipe"
        )
    return Destination(fmt.name, "cast", fmt.name)


_ALIASES = {alias: f.name for f in FORMATS.values() if f.name in TO_FORMATS for alias in f.aliases}


def _of_recipe(recipe: Recipe, format_name: str, target: str) -> Destination:
    formats = [d.format for d in recipe.destinations]
    if format_name:
        chosen = recipe.destination(format_named(format_name).name).format
    else:
        fitting = [f for f in formats if f.endswith(FNUZ)] if target and is_fnuz(target) else []
        chosen = (fitting or formats)[0]
    return Destination(recipe.name if len(formats) == 1 else f"{recipe.name}:{chosen}", "recipe", chosen, recipe)
