"""JSON files, read strictly: an error has its byte, a name stands once, and every number is one that can be used."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from narrowgauge.checkpoints.source import Source, refused, short
from narrowgauge.contracts.errors import BadInput

#: bytes of a JSON file that is no mistake, levels of lists in it, and digits of a whole number that is still a float
LONGEST, DEEPEST, DIGITS = 1 << 25, 100, 300
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?|[{}\[\]]|-?Infinity|NaN|-?\d[\d.eE+-]*', re.DOTALL)
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Number(Exception):
    """A number that is none."""


class _Twice(Exception):
    """A name that an object has two times."""


def parsed(content: bytes, path: Path, start: int = 0, configuration: bool = False) -> Any:
    """What JSON text says, which stands in a file from byte ``start`` on.

    ``configuration``: Infinity is a number, as in the configurations that Python writes, and what nests deeper than
    anybody needs is refused. Raises ``BadInput`` with the byte for all that is no JSON, and for NaN, numbers that no
    float holds, names that stand twice and lone surrogates.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise refused(path, start + error.start, "expected JSON in UTF-8") from None
    decoder = json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=_float,
        parse_int=_whole,
        parse_constant=_infinite if configuration else _none,
    )

    def at(place: int) -> int:
        return start + len(text[:place].encode())

    try:
        found = decoder.decode(text)
        if configuration and _deeper(found):
            raise RecursionError
    except json.JSONDecodeError as error:
        raise refused(path, at(error.pos), f"this is no JSON: {error.msg}") from None
    except _Number as error:
        place = next((p for kind, p in _tokens(text) if kind == str(error)), 0)
        raise refused(path, at(place), f"{short(str(error))} is no number that can be used") from None
    except _Twice as error:
        raise refused(path, at(_second(text)), f"the name {short(str(error))} stands twice in one object") from None
    except RecursionError:
        raise refused(path, at(_too_deep(text)), f"JSON more than {DEEPEST} levels deep") from None
    if _LONE.search(content):
        _refuse_lone(found, path, start)
    return found


def object_at(path: Path) -> dict[str, Any]:
    """A JSON object in a file; empty where there is no such file. Raises ``BadInput`` for anything else."""
    return object_in(text_of(path), path) if os.path.lexists(path) else {}


def text_of(path: Path) -> bytes:
    """The bytes of a JSON file. Raises ``BadInput`` for one that is too long to be one, or cannot be read."""
    with Source(path) as source:
        if source.size > LONGEST:
            raise BadInput(f"{path} has {source.size:,} bytes; a configuration has at most {LONGEST:,}")
        return source.read(0, source.size, "JSON")


def object_in(content: bytes, path: Path) -> dict[str, Any]:
    """The object that a configuration's text is; ``path`` is for errors. Raises ``BadInput`` as ``parsed`` does."""
    return as_object(parsed(content, path, configuration=True), path)


def as_object(found: Any, path: Path) -> dict[str, Any]:
    """What was parsed, where it is an object. Raises ``BadInput`` where it is not."""
    if not isinstance(found, dict):
        raise refused(path, 0, f"expected a JSON object, and this is {_kind(found)}")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        raise _Twice(next(name for name, times in counted.items() if times > 1))
    return found


def _float(text: str) -> float:
    if math.isinf(found := float(text)):
        raise _Number(text)
    return found


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise _Number(text)
    return int(text)


def _none(text: str) -> float:
    raise _Number(text)


def _infinite(text: str) -> float:
    if text == "NaN":
        raise _Number(text)
    return float(text)


# --- where it is: a second, slow look at text that was refused --------------------------------------------------------


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Brackets, numbers, names (with their colon) and texts, each with its place."""
    for match in _TOKENS.finditer(text):
        yield match[0], match.start()


def _second(text: str) -> int:
    """Where a name stands for the second time in its object."""
    open_: list[set[str]] = []
    for token, place in _tokens(text):
        if token in "{[":
            open_.append(set())
        elif token in "}]":
            open_.pop()
        elif token.endswith(":") and open_:
            name = json.loads(token[:-1])
            if name in open_[-1]:
                return place
            open_[-1].add(name)
    return 0


def _too_deep(text: str) -> int:
    """Where lists and objects go beyond the deepest level."""
    depth = 0
    for token, place in _tokens(text):
        depth += (token in "{[") - (token in "}]")
        if depth > DEEPEST:
            return place
    return 0


def _deeper(found: Any) -> bool:
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
    return any(isinstance(one, dict | list) for one in level)


def _inside(found: Any) -> list[Any]:
    return list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []


def _refuse_lone(found: Any, path: Path, start: int) -> None:
    """A lone surrogate is no character: it can neither be printed nor written."""
    left = [found]
    while left:
        one = left.pop()
        left += [*_inside(one), *(one if isinstance(one, dict) else ())]
        if isinstance(one, str) and any("\ud800" <= letter <= "\udfff" for letter in one):
            raise refused(
                path, start, f"the text {one.encode(errors='backslashreplace').decode()[:60]!r} is no Unicode"
            )


def _kind(found: Any) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(found), "a number")
