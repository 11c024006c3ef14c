"""Which devices this machine has. No GPU is a normal case."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.devices.device import Device
from narrowgauge.devices.targets import EMULATED, TARGETS

#: hides every GPU from a child that must not see one
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
#: device files of which one exists wherever a driver for the vendor's GPUs is loaded
DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
#: what is compiled for on a machine that names no device
EMULATED_BY_DEFAULT = ("sm_90", "gfx942", "gfx950")


def host() -> Device:
    """The CPU: torch and numpy kernels."""
    return Device("host", "host", "executed", dict(NO_GPU), note="torch and numpy on the CPU")


def interpreter() -> Device:
    """Triton's interpreter: Triton kernels on the CPU."""
    return Device(
        "interpreter",
        "interpreter",
        "interpreted",
        NO_GPU | {"TRITON_INTERPRET": "1"},
        note="Triton kernels on the CPU; its own fp8 and bf16 casts are wrong (see the canary)",
    )


def emulated(target: str) -> Device:
    """A Triton driver that compiles for a target without its hardware. Raises ``BadInput`` for an unknown one."""
    if target not in EMULATED:
        raise unknown("target", target, EMULATED, f"device 'emulated:{target}'")
    code = "PTX" if TARGETS[target].backend == "cuda" else "LLVM IR"
    note = f"compiles for {target} ({TARGETS[target].product}) and executes the {code} on the CPU"
    return Device(f"emulated:{target}", f"emulated-{target}", "emulated", dict(NO_GPU), emulates=target, note=note)


@cache
def gpus() -> tuple[Device, ...]:
    """Every CUDA and HIP GPU that torch sees, one device each."""
    if not any(Path(p).exists() for p in DRIVERS) or importlib.util.find_spec("torch") is None:
        return ()
    look = Device("discovery", "discovery", "executed")
    try:
        found: list[dict[str, Any]] = look.facts().get("gpus", [])
    finally:
        look.close()
    return tuple(
        Device(
            id=f"{'hip' if gpu['vendor'] == 'hip' else 'cuda'}:{gpu['index']}",
            target=gpu["arch"],
            how="executed",
            environment=pinned(gpu["vendor"], gpu["index"], os.environ),
            note=gpu["name"],
        )
        for gpu in found
    )


def pinned(vendor: str, index: int, caller: Any) -> dict[str, str]:
    """The environment in which a child sees only the index-th GPU of those that the caller sees."""

    def token(variable: str) -> str | None:
        listed = [t.strip() for t in caller.get(variable, "").split(",") if t.strip()]
        return listed[index] if index < len(listed) else None

    if vendor != "hip":
        return {"CUDA_VISIBLE_DEVICES": token("CUDA_VISIBLE_DEVICES") or str(index)}
    # ROCr filters first and HIP counts what is left; filtering in both by the same list would select twice.
    if (outer := token("ROCR_VISIBLE_DEVICES")) is not None:
        return {"ROCR_VISIBLE_DEVICES": outer, "HIP_VISIBLE_DEVICES": "0"}
    chosen = token("HIP_VISIBLE_DEVICES") or token("CUDA_VISIBLE_DEVICES") or str(index)
    return {"HIP_VISIBLE_DEVICES": chosen, "CUDA_VISIBLE_DEVICES": chosen}


def has_triton() -> bool:
    """Whether Triton is installed (it is not on a Mac)."""
    return importlib.util.find_spec("triton") is not None


def default_devices(targets: Sequence[str] = EMULATED_BY_DEFAULT) -> list[Device]:
    """The devices of a run that names none: the host, and what Triton offers here, with these emulated ``targets``."""
    triton = [interpreter(), *(emulated(t) for t in targets)] if has_triton() else []
    return [host(), *triton, *gpus()]


def all_devices() -> list[Device]:
    """Every device that can be named on this machine."""
    return default_devices(EMULATED)


def device_named(name: str) -> Device:
    """The device of that id. Raises ``BadInput`` naming those that exist."""
    for device in all_devices():
        if device.id == name:
            return device
    if name.startswith("emulated:") and has_triton():
        emulated(name.removeprefix("emulated:"))  # says which targets there are
    kind = name.partition(":")[0]
    if kind in ("cuda", "hip") and not gpus():
        raise BadInput(
            f"no device {name!r}: torch sees no GPU on this machine; 'narrowgauge devices' lists what there is"
        )
    if kind in ("interpreter", "emulated") and not has_triton():
        raise BadInput(f"no device {name!r}: triton is not installed")
    raise unknown("device", name, (d.id for d in all_devices()))
