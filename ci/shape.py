"""Whether what was read from JSON is what a dataclass says it is: readers take nothing for granted."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def _looked_up(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


#: types of the fields of a dataclass; looked up once
_hints: Callable[[Any], dict[str, Any]] = functools.cache(_looked_up)


def misfits(value: Any) -> list[str]:
    """Names of the fields of a dataclass that are not of their types."""
    return [name for name, hint in _hints(type(value)).items() if not fits(getattr(value, name), hint)]


def check(value: Any, what: str) -> None:
    """Raise ``TypeError`` naming the fields that are not of their types."""
    if wrong := misfits(value):
        raise TypeError(f"{what} has a {' and '.join(wrong)} that is not as it must be")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; of a dataclass, with all that is in it."""
    if hint is str or hint is bool or hint is int:
        return type(value) is hint
    if hint is float:
        return type(value) in (int, float)
    if hint is Any:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is Union or origin is types.UnionType:
        return any(fits(value, one) for one in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(k, arguments[0]) and fits(v, arguments[1]) for k, v in value.items()
        )
    return isinstance(value, hint) and (not is_dataclass(hint) or not misfits(value))
