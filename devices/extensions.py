"""What a wrapper needs and an emulated device has not: compiled extensions, operators of a GPU. Runs in the child.

Such a call says nothing about the kernel: it is "not executed", never "raised".
"""

from __future__ import annotations

import re
import traceback

#: what a message says where code for a GPU was asked for, with what is missing as ``name``
_MISSING = tuple(
    map(
        re.compile,
        (
            r"'_OpNamespace' '(?P<space>[^']+)' object has no attribute '(?P<name>[^']+)'",
            r"Could not run '(?P<name>[^']+)' with arguments from the 'CPU' backend",
            r"\"(?P<name>\w+)_cpu\" not implemented for",
            r"Could not find schema for (?P<name>[\w:]+)",
            r"(?P<name>\S+\.so[.\d]*): cannot open shared object file",
            r"Tried to instantiate dummy base class (?P<name>\w+)",
            r"type (?P<name>torch\.cuda\.\w+) not available",
            r"(?P<name>Torch not compiled with CUDA enabled)",
            r"(?P<name>Cannot get CUDA generator)",
            r"(?P<name>No (CUDA|HIP) GPUs are available|Found no NVIDIA driver)",
        ),
    )
)


def missing(error: BaseException, target: str) -> str:
    """Why a call could not be executed on an emulated target, where it asked for compiled code of a GPU; else ""."""
    what = _what(error)
    if not what:
        return ""
    return (
        f"extension {what}: emulated:{target} runs Triton kernels and torch's own operators on the CPU, no other code"
    )


def _what(error: BaseException) -> str:
    text = str(error)
    for pattern in _MISSING:
        if found := pattern.search(text):
            space = found.groupdict().get("space")
            return f"torch.ops.{space}.{found['name']}" if space else found["name"]
    if isinstance(error, ImportError):
        return f"{error.name or 'to import'} ({text})"
    frames = traceback.extract_tb(error.__traceback__)
    if any(frame.filename.endswith("torch/utils/cpp_extension.py") for frame in frames):
        return f"to build ({type(error).__name__}: {text.splitlines()[0] if text else ''})"
    return ""
