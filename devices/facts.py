"""What the child can say of its surroundings: versions, GPUs, and switches that change numbers. Runs in the child."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any


def facts() -> dict[str, Any]:
    """A JSON-able record for the ledger."""
    known: dict[str, Any] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {name: _version(name) for name in ("numpy", "ml_dtypes", "torch", "triton")},
        "triton_default_fp_fusion": os.environ.get("TRITON_DEFAULT_FP_FUSION", ""),
        "oracle_loaded": any(name.startswith("narrowgauge.reference") for name in sys.modules),
        "gpus": [],
    }
    try:
        import torch
    except ImportError:
        return known
    known["torch"] = {"version": torch.__version__, "git": torch.version.git_version}
    known["torch"] |= {"cuda": torch.version.cuda, "hip": torch.version.hip}
    known["switches"] = _switches(torch)
    known["gpus"] = _gpus(torch)
    return known


def _version(name: str) -> str:
    """Version of a distribution; Triton comes under several names."""
    for distribution in (name, f"pytorch-{name}", f"pytorch-{name}-rocm", f"{name}-rocm"):
        try:
            version = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        return version if distribution == name else f"{version} ({distribution})"
    return "not installed"


def _switches(torch: Any) -> dict[str, Any]:
    """torch's switches that lower precision."""
    matmul = torch.backends.cuda.matmul
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cuda_matmul_allow_tf32": bool(matmul.allow_tf32),
        "cudnn_allow_tf32": bool(torch.backends.cudnn.allow_tf32),
        "allow_fp16_reduced_precision_reduction": bool(matmul.allow_fp16_reduced_precision_reduction),
        "allow_bf16_reduced_precision_reduction": bool(matmul.allow_bf16_reduced_precision_reduction),
        "deterministic_algorithms": bool(torch.are_deterministic_algorithms_enabled()),
    }


def _gpus(torch: Any) -> list[dict[str, Any]]:
    """The GPUs that torch sees, with their architecture in the suite's words."""
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        if torch.version.hip is not None:
            vendor, arch = "hip", properties.gcnArchName.split(":")[0]
        else:
            vendor, arch = "cuda", f"sm_{properties.major}{properties.minor}"
        found.append({"vendor": vendor, "index": index, "arch": arch, "name": properties.name, "driver": _driver()})
    return found


def _driver() -> str:
    """The kernel driver's version, from where each vendor's driver publishes it."""
    for path in ("/proc/driver/nvidia/version", "/sys/module/amdgpu/version"):
        try:
            with open(path) as file:
                return file.readline().strip()
        except OSError:
            continue
    return ""
