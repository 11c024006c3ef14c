"""Load a plug-in file or module and find the kernels in it. Runs in the child."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.kernels import ATTRIBUTE, Kernel, Plugged


@dataclass(frozen=True)
class Loaded:
    """A kernel's function with its record."""

    function: Callable[..., Any]
    plugged: Plugged


def load(origin: str) -> dict[str, Loaded]:
    """The kernels of a file (a path that ends in .py) or of a module (a dotted name), by name."""
    module = _import_file(Path(origin)) if origin.endswith(".py") else importlib.import_module(origin)
    distribution = distribution_of(module)
    found: dict[str, Loaded] = {}
    for function in vars(module).values():
        record = getattr(function, ATTRIBUTE, None)
        if not isinstance(record, Kernel) or function.__module__ != module.__name__:
            continue
        record = replace(record, backend=_backend(module)) if record.backend == "auto" else record
        library = _library(record.library) if record.library else distribution
        own = module.__name__.startswith("narrowgauge.kernels_under_test.")
        found[record.name] = Loaded(function, Plugged(record, origin, library, own))
    if not found:
        raise BadInput(f"{origin} holds no kernel: no function in it is marked with @narrowgauge.kernel")
    return found


def _import_file(path: Path) -> ModuleType:
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


def _backend(module: ModuleType) -> Any:
    """``triton`` for a module that holds a Triton kernel, compiled or interpreted, else ``torch``."""
    triton_types = {"JITFunction", "InterpretedFunction", "Autotuner", "Heuristics"}
    return "triton" if any(type(v).__name__ in triton_types for v in vars(module).values()) else "torch"


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
    names = importlib.metadata.packages_distributions().get(package, [])
    if names:
        known |= _library(names[0])
    commit = _git(path.parent, "rev-parse", "HEAD")
    if commit:
        changed = _git(path.parent, "status", "--porcelain", "--", path.name)
        known["git"] = commit + ("+changed" if changed else "")
    return known


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", folder, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
