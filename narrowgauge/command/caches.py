"""What ``explain kv.ENGINE`` says: what a flag stores where, which scales are in use, what a token takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.text import Text

from narrowgauge.command.calls import facts_said
from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.devices.targets import target_named
from narrowgauge.plugin.screen import Grid, Line, facts
from narrowgauge.reference.kv.delivery import Delivered, Scale, delivered
from narrowgauge.reference.kv.flag import SCALES, WRITERS, Flag
from narrowgauge.reference.kv.flags import FLAGS, VERSIONS, Stored, flag_named, is_fnuz, possibly_stored
from narrowgauge.reference.kv.footprint import KINDS, bytes_per_token
from narrowgauge.reference.kv.guards import GIVEN, METHODS, RULES, WARNINGS

CACHES = tuple(f"kv.{engine}" for engine in FLAGS)
SIZES = ("layers", "heads", "head_size", "head_size_v")
#: what can be said of a cache
FACTS = {
    "flag": "what --kv-cache-dtype is given",
    "target": "the target, as in narrowgauge devices: sm_90, gfx942",
    "writer": ", or ".join(WRITERS),
    "method": ", ".join(METHODS),
    **dict.fromkeys(GIVEN, "a scale of the checkpoint: a number, several by commas (one a head), or missing"),
    **dict.fromkeys(SIZES, "a number, for the bytes"),
}
#: what the bytes are said for, where nothing is said: a dense model's layer, and a latent one
DENSE, LATENT = (
    {"layers": 1, "heads": 8, "head_size": 128},
    {"layers": 1, "heads": 1, "head_size": 512, "head_size_v": 64},
)


def is_cache(what: str) -> bool:
    """Whether a text starts with the name of an engine's cache."""
    return what.split(" ")[0] in CACHES


def cache(what: str, width: int) -> tuple[Any, list[Text]]:
    """``kv.vllm flag=fp8_e5m2 target=gfx942 k=missing``: what is stored, and the scales in use. Raises ``BadInput``."""
    name, said = facts_said(what, FACTS)
    for fact in said:
        if fact not in FACTS:
            raise unknown("fact of a cache", fact, FACTS, name)
    engine = name.partition(".")[2]
    if "flag" not in said:
        return _flags(name, engine, said, width)
    flag = flag_named(engine, said["flag"])
    if "target" not in said:
        return _rows(name, engine, flag, said, width)
    target = target_named(said["target"]).name
    stored = possibly_stored(engine, flag.name, target, said.get("writer"))
    scales = _scales(engine, flag, is_fnuz(target), said)
    size, sizes = _bytes(flag, said)
    data: dict[str, Any] = {"name": name, "flag": flag.name, "target": target, "bytes": size, "sizes": sizes}
    data |= {"stored": [asdict(one) for one in stored], "scales": {m: asdict(one) for m, one in scales.items()}}
    texts = [Text(f"{engine} {VERSIONS[engine]}, --kv-cache-dtype {flag.name} on {target}", "bold")]
    for one in stored:
        texts += facts(_stored(one), width)
    texts += facts(_taken(flag, size, sizes), width)
    return data, [*texts, *_scale_texts(scales, width)]


# --- without a flag, without a target --------------------------------------------------------------------------------


def _flags(name: str, engine: str, said: Mapping[str, str], width: int) -> tuple[Any, list[Text]]:
    if said:
        raise BadInput(f"explain {name}: {', '.join(said)} without flag=; known: {', '.join(FLAGS[engine])}")
    grid = Grid("", ["flag", "scales", "bytes"])
    rows = []
    for flag in FLAGS[engine].values():
        size, sizes = _bytes(flag, {})
        rows.append({"flag": flag.name, "storage": flag.storage, "scale": flag.scale, "bytes": size, "sizes": sizes})
        grid.lines.append(Line([Text(flag.name), Text(flag.scale), Text(str(size or "not described"))]))
    texts = [Text(f"{name}: what --kv-cache-dtype of {engine} {VERSIONS[engine]} can be", "bold"), *grid.texts(width)]
    texts += facts([*((f"{kind}:", words) for kind, words in SCALES.items()), ("bytes:", _shapes())], width)
    return {"name": name, "version": VERSIONS[engine], "flags": rows}, texts


def _shapes() -> str:
    dense, latent = (" ".join(f"{fact}={size}" for fact, size in sizes.items()) for sizes in (DENSE, LATENT))
    return f"of a token in a layer: {dense}; of latent rows {latent}"


def _rows(name: str, engine: str, flag: Flag, said: Mapping[str, str], width: int) -> tuple[Any, list[Text]]:
    if set(said) - {"flag"}:
        raise BadInput(f"explain {name} flag={flag.name}: the rest depends on target=, which is not said")
    grid = Grid("", ["targets", "writer", "stores", "recipe"])
    for row in flag.rows:
        stores = "refused" if row.refused else row.stores or "its own"
        grid.lines.append(Line([Text(row.targets), Text(row.writer), Text(stores), Text(row.recipe)], row.says))
    head = Text(f"{engine} {VERSIONS[engine]}, --kv-cache-dtype {flag.name}: the first row that matches", "bold")
    said_of = [("scales:", SCALES[flag.scale])] + ([("besides:", flag.says)] if flag.says else [])
    return {"name": name} | asdict(flag), [head, *grid.texts(width), *facts(said_of, width)]


# --- with both -------------------------------------------------------------------------------------------------------


def _stored(one: Stored) -> list[tuple[str, str]]:
    by = "" if one.writer == "any" else f" (writer: {one.writer})"
    said = [(f"stored{by}:", "refused" if one.refused else one.format or "codes of its own"), ("recipe:", one.recipe)]
    return [(fact, words) for fact, words in (*said, ("besides:", one.says), ("read in:", one.source)) if words]


def _taken(flag: Flag, size: int | None, sizes: Mapping[str, int]) -> list[tuple[str, str]]:
    shape = " ".join(f"{fact}={number}" for fact, number in sizes.items())
    taken = f"{size:,} a token, scales counted ({shape})" if size else "not described"
    return [("scales:", SCALES[flag.scale]), ("bytes:", taken)]


def _bytes(flag: Flag, said: Mapping[str, str]) -> tuple[int | None, dict[str, int]]:
    """Bytes of a token, and the sizes for which; None where the kind is not described."""
    if not flag.kind:
        return None, {}
    sizes = dict(LATENT if KINDS[flag.kind].latent else DENSE)
    sizes |= {fact: _whole(fact, said[fact]) for fact in SIZES if fact in said}
    return bytes_per_token(flag.kind, **sizes), sizes


def _whole(fact: str, word: str) -> int:
    if not word.isdecimal():
        raise BadInput(f"{fact}={word}; expected a whole number")
    return int(word)


def _scales(engine: str, flag: Flag, fnuz: bool, said: Mapping[str, str]) -> dict[str, Delivered]:
    """By way of reading them: the one that is said, or all that the engine has."""
    given = {name: _numbers(name, said[name]) for name in GIVEN if said.get(name, "missing") != "missing"}
    methods = [said["method"]] if "method" in said else [m for e, m in RULES if e == engine]
    return {method: delivered(engine, given, flag.name, fnuz, method) for method in methods}


def _numbers(name: str, word: str) -> list[float]:
    try:
        return [float(number) for number in word.split(",")]
    except ValueError:
        raise BadInput(f"{name}={word}; expected a number, several by commas, or missing") from None


def _scale_texts(scales: Mapping[str, Delivered], width: int) -> list[Text]:
    grid = Grid("", ["checkpoint read as", "K", "V", "Q"])
    for method, one in scales.items():
        said = "; ".join([one.raised or one.why, *(f"logs: {WARNINGS[name]}" for name in one.warned)]).strip("; ")
        cells = ["ends"] * 3 if one.raised else list(map(_number, (one.k, one.v, one.q)))
        grid.lines.append(Line([Text(method), *map(Text, cells)], said))
    known = [(f"{method}:", METHODS[method]) for method in scales]
    return [Text(), *grid.texts(width), *facts(known, width)]


def _number(scale: Scale) -> str:
    if scale is None:
        return "none"
    return ", ".join(f"{s:.6g}" for s in (scale if isinstance(scale, tuple) else (scale,)))
