"""Targets: what code is made for. Adding an architecture is one entry of ``TARGETS``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import unknown

E4, E4Z = "float8_e4m3fn", "float8_e4m3fnuz"


@dataclass(frozen=True)
class Target:
    """A GPU architecture as Triton compiles for it. The formats follow the architecture, never the vendor."""

    name: str
    backend: Literal["cuda", "hip"]
    warp: int
    hardware: tuple[str, ...]  #: fp8 formats that an instruction converts to
    triton: tuple[str, ...]  #: fp8 formats that Triton 3.9 converts to, by instruction or in software
    product: str


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", "cuda", 32, (), (), "A100"),
        Target("sm_89", "cuda", 32, (E4,), (E4,), "L40S, RTX 4090"),
        Target("sm_90", "cuda", 32, (E4,), (E4,), "H100, H200"),
        Target("sm_100", "cuda", 32, (E4,), (E4,), "B200"),
        Target("sm_103", "cuda", 32, (E4,), (E4,), "B300"),
        Target("sm_120", "cuda", 32, (E4,), (E4,), "RTX 5090"),
        Target("gfx90a", "hip", 64, (), (E4, E4Z), "MI250"),
        Target("gfx942", "hip", 64, (E4Z,), (E4, E4Z), "MI300X, MI325X"),
        Target("gfx950", "hip", 64, (E4,), (E4, E4Z), "MI350X, MI355X"),
        Target("gfx1100", "hip", 32, (), (E4, E4Z), "RX 7900"),
        Target("gfx1200", "hip", 32, (E4,), (E4, E4Z), "RX 9060"),
        Target("gfx1201", "hip", 32, (E4,), (E4, E4Z), "RX 9070"),
        Target("gfx1250", "hip", 32, (E4,), (E4, E4Z), "MI400 series"),
    )
}


def target_named(name: str) -> Target:
    """The target of that name. Raises ``BadInput`` with near names."""
    if name not in TARGETS:
        raise unknown("target", name, TARGETS)
    return TARGETS[name]
