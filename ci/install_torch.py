"""Give an environment torch and Triton, if it has none: a CPU build where the machine has no GPU.

A GPU image's own torch is never replaced. pip's own settings (index, find-links, certificate) are in force, so a
machine that offers a CPU build under its local version gets that one. NARROWGAUGE_TORCH=any takes the plain wheel where
there is none, with gigabytes of CUDA: for machines that a CI engine lends, which nobody can set up.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

#: what the suite's measured facts are tied to; another version is judged all the same
TORCH, TRITON = "2.13.0", "3.9.0"
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def main() -> int:
    """Install what is missing; never fail a run for the lack of torch, which the ledger then says."""
    if importlib.util.find_spec("torch") is not None:
        print("torch is there already and stays as it is")
    elif any(Path(p).exists() for p in DRIVERS):
        print(
            "this machine has a GPU and this environment has no torch. Install the build for your driver, or run "
            "'tox -e conformance-gpu', which takes the one of the machine's own Python."
        )
        return 1
    elif not _pip(f"torch=={TORCH}+cpu") and not _without_cuda():
        print(f"no CPU build of torch {TORCH} for Python {platform.python_version()}: torch kernels are not executed")
        return 0
    if platform.system() == "Linux" and importlib.util.find_spec("triton") is None and not _pip(f"triton=={TRITON}"):
        print(f"no Triton {TRITON} for this machine: Triton kernels are not executed")
    return 0


def _without_cuda() -> bool:
    """Elsewhere than on Linux for x86-64, the plain wheel is a CPU build."""
    if platform.system() == "Linux" and platform.machine() == "x86_64" and os.environ.get("NARROWGAUGE_TORCH") != "any":
        print(
            "pip finds no torch with a '+cpu' version, and the plain wheel would bring gigabytes of CUDA. Point pip at "
            "PyTorch's index of CPU builds (PIP_EXTRA_INDEX_URL; pytorch.org, 'Get Started', names it) and run again. "
            "NARROWGAUGE_TORCH=any takes the plain wheel."
        )
        return False
    return _pip(f"torch=={TORCH}")


def _pip(requirement: str) -> bool:
    print(f"pip install {requirement}", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
