"""Targets: what code is made for. Adding an architecture is one entry of ``TARGETS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import unknown

E4, E5 = "float8_e4m3fn", "float8_e5m2"
E4Z, E5Z = "float8_e4m3fnuz", "float8_e5m2fnuz"
OCP, FNUZ = (E4, E5), (E4Z, E5Z)


@dataclass(frozen=True)
class Target:
    """A GPU architecture as Triton compiles for it. The formats follow the architecture, never the vendor.

    What Triton 3.9 does is what stands in the code that it compiles (suites/portability/test_native_facts.py). It casts
    to no format of 4 or 6 bits on any target.
    """

    name: str
    backend: Literal["cuda", "hip"]
    warp: int
    hardware: tuple[str, ...]  #: fp8 formats that an instruction converts to
    instruction: tuple[str, ...]  #: of these, those for which Triton 3.9 uses it
    software: tuple[str, ...]  #: fp8 formats that Triton 3.9 converts to by integer operations
    bfloat16: bool  #: whether Triton 3.9 converts float32 to bfloat16 by an instruction, or by integer operations
    product: str
    emulated: bool = True  #: whether it is offered as an emulated target

    @property
    def triton(self) -> tuple[str, ...]:
        """fp8 formats that Triton 3.9 converts to at all; it refuses the others."""
        return (*self.instruction, *self.software)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_75", "cuda", 32, (), (), (), False, "T4", emulated=False),
        Target("sm_80", "cuda", 32, (), (), (E5,), True, "A100"),
        Target("sm_86", "cuda", 32, (), (), (E5,), True, "A10, RTX 3090", emulated=False),
        Target("sm_89", "cuda", 32, OCP, OCP, (), True, "L40S, RTX 4090"),
        Target("sm_90", "cuda", 32, OCP, OCP, (), True, "H100, H200"),
        Target("sm_100", "cuda", 32, OCP, OCP, (), True, "B200"),
        Target("sm_103", "cuda", 32, OCP, OCP, (), True, "B300"),
        Target("sm_120", "cuda", 32, OCP, OCP, (), True, "RTX 5090"),
        Target("sm_121", "cuda", 32, OCP, OCP, (), True, "GB10", emulated=False),
        Target("gfx90a", "hip", 64, (), (), (*OCP, *FNUZ), False, "MI250"),
        # Triton 3.9 knows neither of the two early ones.
        Target("gfx940", "hip", 64, FNUZ, (), (), False, "MI300 (early silicon)", emulated=False),
        Target("gfx941", "hip", 64, FNUZ, (), (), False, "MI300 (early silicon)", emulated=False),
        Target("gfx942", "hip", 64, FNUZ, FNUZ, OCP, False, "MI300X, MI325X"),
        Target("gfx950", "hip", 64, OCP, OCP, FNUZ, True, "MI350X, MI355X"),
        Target("gfx1100", "hip", 32, (), (), (*OCP, *FNUZ), False, "RX 7900"),
        Target("gfx1151", "hip", 32, (), (), (*OCP, *FNUZ), False, "Ryzen AI Max", emulated=False),
        Target("gfx1200", "hip", 32, OCP, (), (*OCP, *FNUZ), False, "RX 9060"),
        Target("gfx1201", "hip", 32, OCP, (), (*OCP, *FNUZ), False, "RX 9070"),
        Target("gfx1250", "hip", 32, OCP, OCP, FNUZ, True, "not released"),
    )
}

#: what an emulated device can stand for
EMULATED = tuple(name for name, target in TARGETS.items() if target.emulated)


def target_named(name: str) -> Target:
    """The target of that name. Raises ``BadInput`` with near names."""
    if name not in TARGETS:
        raise unknown("target", name, TARGETS, aliases=_products())
    return TARGETS[name]


def _products() -> dict[str, str]:
    """Names of products, and what is common to several (MI300 of MI300X) -> the last target that has them."""
    found = {}
    for target in TARGETS.values():
        for product in target.product.partition(" (")[0].split(", "):
            found[product] = found[product.rstrip("X")] = target.name
    return found


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
