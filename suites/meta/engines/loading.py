"""Single files of an engine, imported without the rest of it: what they import besides is a stand-in.

An engine needs a GPU, or a build, to be imported as a whole. The files that quantize need a platform that answers a few
questions, and nothing else of what they import.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class StandIn:
    """Called, asked or subclassed, it gives another; a decorator of its leaves a function as it is."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        alone = len(arguments) == 1 and not named and callable(arguments[0])
        return arguments[0] if alone else StandIn()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __getitem__(self, key: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (object,)


class _Module(types.ModuleType):
    """A module that stands in for one of the engine's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class Engine(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The package of an engine, of which the named modules are its own and all others stand in.

    ``answers`` are attributes of those that stand in, by module.
    """

    def __init__(self, package: str, own: Sequence[str], answers: dict[str, dict[str, Any]]) -> None:
        self.package, self.own, self.answers = package, [f"{package}.{name}" for name in own], answers
        self.folder = folder_of(package)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] != self.package:
            return None
        if name in self.own and self.folder is not None:
            place = self.folder.joinpath(*name.split(".")[1:])
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        module.__dict__.update(self.answers.get(spec.name.partition(".")[2], {}))
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass

    def module(self, name: str) -> Any:
        """One of its own modules."""
        return importlib.import_module(f"{self.package}.{name}")


def folder_of(package: str) -> Path | None:
    """Where a package lies, which is not imported for it; None where it is not installed."""
    spec = importlib.machinery.PathFinder.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
