"""Targets: what code is made for. Adding an architecture is one entry of ``TARGETS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import unknown

E4, E4Z, E5 = "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2"


@dataclass(frozen=True)
class Target:
    """A GPU architecture as Triton compiles for it. The formats follow the architecture, never the vendor."""

    name: str
    backend: Literal["cuda", "hip"]
    warp: int
    hardware: tuple[str, ...]  #: fp8 formats that an instruction converts to
    triton: tuple[str, ...]  #: fp8 formats that Triton 3.9 converts to, by instruction or in software
    product: str
    emulated: bool = True  #: whether it is offered as an emulated target


#: NVIDIA: Triton converts to what the hardware has, and to e5m2 in software from sm_80 on. AMD: to both, in software
#: where the hardware has not.
_NV, _AMD = (E4,), (E4, E4Z)

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_75", "cuda", 32, (), (), "T4", emulated=False),
        Target("sm_80", "cuda", 32, (), (E5,), "A100"),
        Target("sm_86", "cuda", 32, (), (), "A10, RTX 3090", emulated=False),
        Target("sm_89", "cuda", 32, _NV, (*_NV, E5), "L40S, RTX 4090"),
        Target("sm_90", "cuda", 32, _NV, (*_NV, E5), "H100, H200"),
        Target("sm_100", "cuda", 32, _NV, (*_NV, E5), "B200"),
        Target("sm_103", "cuda", 32, _NV, (*_NV, E5), "B300"),
        Target("sm_120", "cuda", 32, _NV, (*_NV, E5), "RTX 5090"),
        Target("sm_121", "cuda", 32, _NV, (*_NV, E5), "GB10", emulated=False),
        Target("gfx90a", "hip", 64, (), _AMD, "MI250"),
        Target("gfx940", "hip", 64, (E4Z,), _AMD, "MI300 (early silicon)", emulated=False),
        Target("gfx941", "hip", 64, (E4Z,), _AMD, "MI300 (early silicon)", emulated=False),
        Target("gfx942", "hip", 64, (E4Z,), _AMD, "MI300X, MI325X"),
        Target("gfx950", "hip", 64, (E4,), _AMD, "MI350X, MI355X"),
        Target("gfx1100", "hip", 32, (), _AMD, "RX 7900"),
        Target("gfx1151", "hip", 32, (), _AMD, "Ryzen AI Max", emulated=False),
        Target("gfx1200", "hip", 32, (E4,), _AMD, "RX 9060"),
        Target("gfx1201", "hip", 32, (E4,), _AMD, "RX 9070"),
        Target("gfx1250", "hip", 32, (E4,), _AMD, "not released"),
    )
}

#: what an emulated device can stand for
EMULATED = tuple(name for name, target in TARGETS.items() if target.emulated)


def target_named(name: str) -> Target:
    """The target of that name. Raises ``BadInput`` with near names."""
    if name not in TARGETS:
        raise unknown("target", name, TARGETS)
    return TARGETS[name]


@dataclass(frozen=True)
class Limits:
    """What a program can ask of a target's product; compilers and wrappers choose by it."""

    shared: int  #: bytes of shared memory that one block may have
    units: int  #: multiprocessors or compute units as the runtime counts them; 0 where nothing is published


_KB = 1024
#: Shared memory: CUDA programming guide, "Technical Specifications per Compute Capability"; AMD's table "GPU hardware
#: specifications" (ROCm) and, for gfx1250, LLVM's AMDGPU targets. Units: of the product named first in ``TARGETS``,
#: from the vendors' white papers; of MI250 one of its two dies; RDNA's runtime counts pairs of compute units.
LIMITS: dict[str, Limits] = {
    "sm_80": Limits(163 * _KB, 108),
    "sm_89": Limits(99 * _KB, 142),
    "sm_90": Limits(227 * _KB, 132),
    "sm_100": Limits(227 * _KB, 148),
    "sm_103": Limits(227 * _KB, 160),
    "sm_120": Limits(99 * _KB, 170),
    "gfx90a": Limits(64 * _KB, 104),
    "gfx942": Limits(64 * _KB, 304),
    "gfx950": Limits(160 * _KB, 256),
    "gfx1100": Limits(64 * _KB, 48),
    "gfx1200": Limits(64 * _KB, 16),
    "gfx1201": Limits(64 * _KB, 32),
    "gfx1250": Limits(320 * _KB, 0),
}
