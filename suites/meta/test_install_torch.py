"""Which torch an environment is given: its own, else a CPU build, and the plain wheel only where that is asked for."""

from __future__ import annotations

import importlib.util
import platform

import pytest

from narrowgauge.ci import install_torch
from narrowgauge.suites.meta.engine_files import BUILDKITE, CI, GITHUB

pytestmark = pytest.mark.meta

PLAIN, BUILD = f"torch=={install_torch.TORCH}", f"torch=={install_torch.TORCH}+cpu"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pip is asked for, on a Linux machine without torch, Triton or GPU, whose index has plain wheels alone."""
    found: list[str] = []

    def pip(requirement: str) -> bool:
        found.append(requirement)
        return not requirement.endswith("+cpu")

    monkeypatch.setattr(install_torch, "_pip", pip)
    monkeypatch.setattr(install_torch, "DRIVERS", ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("NARROWGAUGE_TORCH", raising=False)
    return found


def test_gigabytes_of_cuda_are_not_fetched_by_themselves(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert install_torch.main() == 0
    assert asked == [BUILD]
    assert "NARROWGAUGE_TORCH=any" in capsys.readouterr().out


def test_a_machine_that_nobody_sets_up_gets_the_plain_wheel(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NARROWGAUGE_TORCH", "any")
    assert install_torch.main() == 0
    assert asked == [BUILD, PLAIN, f"triton=={install_torch.TRITON}"]
    assert all("NARROWGAUGE_TORCH: any\n" in path.read_text() for path in (GITHUB, BUILDKITE))


def test_a_gpus_own_torch_is_never_fetched(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_torch, "DRIVERS", (str(CI),))
    monkeypatch.setenv("NARROWGAUGE_TORCH", "any")
    assert install_torch.main() == 1
    assert asked == []


def test_what_is_there_stays(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert install_torch.main() == 0
    assert asked == []
