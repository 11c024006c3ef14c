"""Fixtures that several tests of the suite itself use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowgauge.contracts.kernels import Plugged
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.devices.device import Device
from narrowgauge.golden import manifest
from narrowgauge.golden.families import Family
from narrowgauge.golden.manifest import VECTORS
from narrowgauge.suites import supervising
from narrowgauge.suites.meta.golden_changes import FEW
from narrowgauge.suites.meta.kv_stats_sets import kv_file_at
from narrowgauge.suites.offline import write_inputs

MUTANTS = Path(__file__).absolute().parent / "mutant_kernels"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the vectors that a test may damage."""
    copy = tmp_path / "vectors"
    shutil.copytree(VECTORS, copy)
    return copy


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Family]:
    """The generator makes a few families alone, and whatever a test puts here besides."""
    chosen = list(FEW)
    monkeypatch.setattr(manifest, "families", lambda: iter(chosen))
    return chosen


@pytest.fixture
def old(few: list[Family], tmp_path: Path) -> Path:
    """The vectors of a few families, as they are."""
    folder = tmp_path / "old"
    manifest.regenerate(folder)
    return folder


@pytest.fixture(scope="module")
def host() -> Iterator[Device]:
    """The host, for a module of tests."""
    device = discovery.host()
    yield device
    device.close()


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Device]:
    """Triton's interpreter, for a module of tests."""
    device = discovery.interpreter()
    yield device
    device.close()


@pytest.fixture(scope="module")
def broken(host: Device) -> dict[str, Plugged]:
    """The kernels that give no usable answer, by name."""
    return {p.kernel.name: p for p in host.describe(str(MUTANTS / "broken.py"))}


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """An inputs file of a cast from bfloat16: cases "edges" and "every_code"."""
    path = tmp_path / "in.safetensors"
    write_inputs(Claim.parse("cast/ocp_saturate/bfloat16/float8_e4m3fn"), "smoke", path)
    return path


@pytest.fixture(scope="session")
def kv_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of magnitudes of keys and values; nobody changes it."""
    return kv_file_at(tmp_path_factory.mktemp("kv") / "kv.safetensors")


@pytest.fixture
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The surroundings of whoever runs the tests do not change what is printed."""
    for name in ("FORCE_COLOR", "COLUMNS", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def quick_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a lane look often whether they are over, and ask no git for the commit."""
    monkeypatch.setattr(supervising, "LOOK", 0.02)
    monkeypatch.setenv("NARROWGAUGE_COMMIT", "c" * 40)
