"""Who may import whom (docs/design.md, "Rooms"), read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import narrowgauge

pytestmark = pytest.mark.meta

PACKAGE = Path(narrowgauge.__file__).parent
#: per room, what it may import besides the standard library and itself: rooms as narrowgauge.X, packages by name
ALLOWED: dict[str, set[str]] = {
    "contracts": {"numpy"},
    "reference": {"narrowgauge.contracts", "numpy"},
    "checkpoints": {"narrowgauge.contracts", "narrowgauge.reference", "narrowgauge.devices", "numpy"},
    "golden": {"narrowgauge.contracts", "narrowgauge.reference", "numpy", "safetensors"},
    "kernels_under_test": {"narrowgauge", "narrowgauge.contracts", "torch", "triton", "numpy", "ml_dtypes", "gfloat"},
    "devices": {"narrowgauge", "narrowgauge.contracts", "numpy"},
    "lint": {"narrowgauge.contracts"},
    "ci": {"narrowgauge.contracts", "narrowgauge.version", "packaging", "jinja2", "pytest_split"},
}
#: modules of devices that run in the child, and may import torch and Triton inside functions
IN_THE_CHILD = {
    "autotuning",
    "capture",
    "capture_kv",
    "child",
    "facts",
    "fresh_memory",
    "kv_tally",
    "loading",
    "machine_code",
    "running",
    "torch_files",
    "torch_gpu",
    "triton_driver",
}
HEAVY = {"torch", "triton"}


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Modules that a file imports, with line, and whether the import stands inside a function."""
    tree = ast.parse(path.read_text())
    inner = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in inner
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            yield node.module or "", node.lineno, id(node) in inner


def room_of(module: str) -> str:
    """``narrowgauge.reference.codec`` is in ``narrowgauge.reference``; ``numpy.typing`` is ``numpy``."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "narrowgauge" else parts[0]


def files(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def all_files() -> list[Path]:
    """Every file of the package: rglob does not follow the links by which a checkout has the rooms."""
    rooms = [p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"]
    return [*sorted(PACKAGE.glob("*.py")), *(p for room in sorted(rooms) for p in files(room))]


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    wrong = []
    for path in files(room):
        for module, line, inner in imports(path):
            source = room_of(module)
            standard = source in sys.stdlib_module_names
            child = (
                room == "devices"
                and path.stem in IN_THE_CHILD
                and inner
                and source in (HEAVY | {"ml_dtypes", "safetensors"})
            )
            if not (standard or source == f"narrowgauge.{room}" or source in ALLOWED[room] or child):
                wrong.append(f"{room}/{path.name}:{line} imports {module}")
    assert files(room)
    assert wrong == []


def test_nothing_is_imported_by_a_generic_name() -> None:
    """``import reference`` would find somebody else's folder first."""
    rooms = {p.name for p in PACKAGE.iterdir() if p.is_dir()}
    wrong = [
        f"{path}:{line} imports {module}"
        for path in all_files()
        for module, line, _ in imports(path)
        if module.split(".")[0] in rooms
    ]
    assert wrong == []


def test_the_parent_imports_neither_torch_nor_triton() -> None:
    """Everything but what runs in a child, imported in a fresh process."""
    code = (
        "import sys, importlib, pkgutil, narrowgauge\n"
        "skip = ('kernels_under_test.', 'mutant_kernels.', 'plugged.', '__main__')\n"
        "for m in pkgutil.walk_packages(narrowgauge.__path__, 'narrowgauge.'):\n"
        "    if not any(s in m.name for s in skip): importlib.import_module(m.name)\n"
        "print(sorted({'torch', 'triton'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_does_not_import_the_reference() -> None:
    code = "import sys, narrowgauge; print([m for m in sys.modules if m.startswith('narrowgauge.reference')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_files_can_be_read_in_a_sitting() -> None:
    long = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in all_files()}
    assert len(long) > 100
    assert {name: lines for name, lines in long.items() if lines > 450} == {}
