"""Why a test of the suite itself cannot run on some machine."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

from narrowgauge.devices.discovery import has_triton

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed: the kernels of these tests cannot run"
)
needs_triton = pytest.mark.skipif(
    not has_triton(),
    reason="triton is not installed: its kernels cannot be called, and nothing compiles for a target",
)
needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed: nothing can be drawn"
)
COMPILER = next(
    (path for name in (os.environ.get("CXX"), "g++", "clang++") if name and (path := shutil.which(name))), ""
)
needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C++ compiler: none of $CXX, g++, clang++ is on the path")
RUSTC = shutil.which("rustc") or ""
needs_rust = pytest.mark.skipif(not RUSTC, reason="no Rust compiler: rustc is not on the path")
