"""Which scales an engine uses for a key-value cache, of what a checkpoint gives: its guards (``kv.guards``), followed.

Which spellings of a scale's name arrive here at all is not said here. Numbers are float32, as the engines' tensors are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.reference.kv.flag import Flag
from narrowgauge.reference.kv.flags import flag_named
from narrowgauge.reference.kv.guards import CONDITIONS, ENGINES, F32, GIVEN, RULES, Facts, Rules

#: a number; one a head; None where there is none
Scale = float | tuple[float, ...] | None
#: scales of a layer
NAMES = ("k", "v", "q", "prob")
_ONE = np.ones((), np.float32)


@dataclass(frozen=True)
class Delivered:
    """The scales in use; all None where the engine ends instead. ``q`` and ``prob`` are None where it has none."""

    k: Scale
    v: Scale
    q: Scale
    prob: Scale
    warned: tuple[str, ...]  #: names of what is logged, of ``WARNINGS``
    raised: str  #: the exception and its gist; "" where there is none
    why: str
    source: str


def delivered(
    engine: str, given: Mapping[str, Any], cache_dtype: str, fnuz: bool = False, method: str = "base"
) -> Delivered:
    """What an engine uses for a layer, of the scales that a checkpoint gives.

    ``given`` has those that are there, of ``GIVEN``: a number, or numbers, one a head. ``cache_dtype`` is the engine's
    flag, ``fnuz`` whether its platform's fp8 is FNUZ (``flags.is_fnuz``), ``method`` one of ``METHODS``. Raises
    ``BadInput`` for another name or method, a flag that the engine does not have, or a scale that is no number. A
    doubled scale beyond float32 is infinite here; vLLM's copy on the host ends with a RuntimeError there.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if (engine, method) not in RULES:
        raise unknown("way to read scales", method, [m for e, m in RULES if e == engine], engine)
    return followed(RULES[engine, method], loaded(given, engine), flag_named(engine, cache_dtype), fnuz)


def loaded(given: Mapping[str, Any], where: str) -> dict[str, F32]:
    """Scales as float32, [] for one number and [heads] for several. Raises ``BadInput``."""
    scales = {}
    for name, value in given.items():
        if name not in GIVEN:
            raise unknown("scale", name, GIVEN, where)
        numbers = np.asarray(value)
        if numbers.dtype.kind not in "fiu" and numbers.size:
            raise BadInput(f"scale {name} of {where}: {value!r}; expected a number, or one a head")
        with np.errstate(over="ignore"):
            scales[name] = numbers.astype(np.float32).reshape(-1)
        if not scales[name].size:
            raise BadInput(f"scale {name} of {where} has no number; leave it out where the checkpoint has none")
    if "kv" in scales and "k" in scales:
        raise BadInput(f"scales of {where}: kv and k are both given, and both are loaded as K's; expected one of them")
    return {name: scale.reshape(()) if scale.size == 1 else scale for name, scale in scales.items()}


def followed(rules: Rules, given: Mapping[str, F32], flag: Flag, fnuz: bool) -> Delivered:
    """The guards, followed."""
    read = {"k" if name == "kv" else name: scale for name, scale in given.items() if name in rules.reads}
    has = {name: read.get(name, np.asarray(rules.missing, np.float32)) for name in NAMES}
    facts = Facts(**has, flag=flag.name, scale=flag.scale, given=bool(read))
    refused = [guard.raises for guard in rules.refuses if CONDITIONS[guard.when](facts)]
    if rules.heads and any(np.size(scale) > 1 for scale in read.values()):
        refused.append(rules.heads)
    if refused:
        return _ended(refused[0], rules)
    used: dict[str, F32] = {}
    why = []
    for chain in rules.chains:
        guard = next(guard for guard in chain.guards if CONDITIONS[guard.when](facts))
        if guard.raises:
            return _ended(guard.raises, rules)
        for name, source in zip(chain.scales, guard.takes, strict=True):
            used[name] = _ONE if source == "one" else _times(has[source], 2 if guard.doubled and fnuz else 1)
        why += [guard.why] if guard.why else []
    over = {"loaded": facts, "used": Facts(**has | used, flag=flag.name, scale=flag.scale, given=facts.given)}
    warned = tuple(w.name for w in rules.warns if CONDITIONS[w.when](over[w.over]))
    scales = {name: _plain(used[name]) if name in used else None for name in NAMES}
    return Delivered(**scales, warned=warned, raised="", why="; ".join(why), source=rules.source)


def _times(scale: F32, factor: int) -> F32:
    with np.errstate(over="ignore"):
        return np.asarray(scale * np.float32(factor), np.float32)


def _plain(scale: F32) -> Scale:
    return tuple(float(s) for s in scale) if np.ndim(scale) else float(scale)


def _ended(raised: str, rules: Rules) -> Delivered:
    return Delivered(None, None, None, None, (), raised, "", rules.source)
