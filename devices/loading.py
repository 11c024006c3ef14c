"""Load a plug-in file or module and find the kernels in it. Runs in the child."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import ATTRIBUTE, Backend, Conversion, Kernel, Plugged


@dataclass(frozen=True)
class Loaded:
    """A kernel's function with its record."""

    function: Callable[..., Any]
    plugged: Plugged


def load(origin: str) -> dict[str, Loaded]:
    """The kernels of a file (a path that ends in .py) or of a module (a dotted name), by name."""
    module = import_file(Path(origin)) if origin.endswith(".py") else _import_module(origin)
    distribution = distribution_of(module)
    found: dict[str, Loaded] = {}
    for function in vars(module).values():
        record = getattr(function, ATTRIBUTE, None)
        if not isinstance(record, Kernel):
            continue
        if record.name in found and found[record.name].function is not function:
            raise BadInput(f"{origin} holds two kernels named {record.name!r}; give one of the functions another name")
        backend = _backend(module) if record.backend == "auto" else record.backend
        conversion = _conversion(module, backend) if record.conversion == "auto" else record.conversion
        library = _library(record.library) if record.library else distribution
        own = module.__name__.startswith("narrowgauge.kernels_under_test.")
        record = replace(record, backend=backend, conversion=conversion)
        found[record.name] = Loaded(function, Plugged(record, origin, library, own))
    if not found:
        raise BadInput(f"{origin} holds no kernel: nothing in it is marked with @narrowgauge.kernel")
    return found


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise BadInput(
            f"no module {name!r}; the working directory is not searched: give the file's path, or install its package"
        ) from None


def import_file(path: Path) -> ModuleType:
    """The module of a file, under a name of its own. Raises ``BadInput`` where there is no file."""
    if not path.is_file():
        raise BadInput(f"no file {path}")
    # The name carries a hash of the path: two plug-ins named kernels.py are two modules.
    name = f"narrowgauge_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # what lies beside the plug-in is the plug-in's
    spec.loader.exec_module(module)
    return module


def _backend(module: ModuleType) -> Backend:
    """``triton`` where a Triton kernel is in reach, compiled or interpreted, else ``torch``."""
    return "triton" if _jitted(module) else "torch"


def _conversion(module: ModuleType, backend: Backend) -> Conversion:
    """``native`` for Triton kernels whose source names a narrow type to convert to: not for the interpreter."""
    if backend != "triton":
        return "soft"
    source = "".join(str(getattr(getattr(f, "fn", f), "src", "")) or _source_of(f) for f in _jitted(module))
    return "native" if _NARROW.search(source) else "soft"


#: what a conversion by hardware looks like in a Triton kernel: a narrow type's name, or the type of a pointer
_NARROW = re.compile(r"float8|bfloat16|\bfp8|element_ty")


def _source_of(jitted: object) -> str:
    try:
        return inspect.getsource(getattr(jitted, "fn", jitted))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def _jitted(module: ModuleType) -> list[object]:
    """Triton kernels in a module, and in those that it imports or takes functions from."""
    types = {"JITFunction", "InterpretedFunction", "Autotuner", "Heuristics"}
    found: list[object] = []
    seen, waiting = set[str](), [module]
    while waiting:
        current = waiting.pop()
        if current.__name__ in seen or current.__name__.partition(".")[0] in _NOT_SEARCHED:
            continue
        seen.add(current.__name__)
        for value in list(vars(current).values()):
            if type(value).__name__ in types:
                found.append(value)
            elif isinstance(value, ModuleType):
                waiting.append(value)
            elif (home := sys.modules.get(str(getattr(value, "__module__", None)))) is not None:
                waiting.append(home)
    return found


#: packages in which nobody's kernels are; the standard library is left out too
_NOT_SEARCHED = {"torch", "triton", "numpy", "ml_dtypes", *sys.stdlib_module_names}


def _library(name: str) -> dict[str, str]:
    try:
        return {"name": name, "version": importlib.metadata.version(name)}
    except importlib.metadata.PackageNotFoundError:
        return {"name": name, "version": "not installed"}


def distribution_of(module: ModuleType) -> dict[str, str]:
    """Where a module's code comes from: installed distribution, git commit, hash of its file; what there is."""
    path = Path(module.__file__ or "").absolute()
    known = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    package = module.__name__.partition(".")[0]
    names = _distributions().get(package, [])
    if names:
        known |= _library(names[0])
    commit = _commit(path.parent)
    if commit:
        changed = _git(path.parent, "status", "--porcelain", "--", path.name)
        known["git"] = commit + ("+changed" if changed else "")
    return known


@cache
def _distributions() -> Mapping[str, list[str]]:
    """The installed distributions of each package: once, since the lists of all their files are read for it."""
    return importlib.metadata.packages_distributions()


@cache
def _commit(folder: Path) -> str:
    return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
