"""Which matrix units there are. Adding one is one entry of ``UNITS``; what is not known stands in ``UNKNOWN``.

Sources: [R] recorded answers of real GPUs, MATLAB-tensor-core, folder model_validation (docs/units.md says how they are
checked); [K] its models, Khattak and Mikaitis, arXiv 2512.07004; [X] MMA-Sim, Xie et al., arXiv 2511.10909, and
mmasim 2.1.1; [P] the PTX ISA.
"""

from __future__ import annotations

from narrowgauge.contracts.errors import BadInput, unknown
from narrowgauge.reference.units.families import Truncating, TruncatingGroups, TwoHalves
from narrowgauge.reference.units.unit import Unit, Unknown

F32, F16, BF16, TF32 = "float32", "float16", "bfloat16", "tfloat32"
FP8 = ("float8_e4m3fn", "float8_e5m2")
NARROW = (*FP8, "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
FP4 = ("float4_e2m1fn",)
AMPERE, ADA, HOPPER, B200, RTX = ("sm_80", "sm_86"), ("sm_89",), ("sm_90",), ("sm_100",), ("sm_120",)
T = Truncating

UNITS: dict[str, Unit] = {
    u.name: u
    for u in (
        Unit("hopper.qgmma", HOPPER, "wgmma m64nNk32 (QGMMA)", FP8, F32, T(32, 13, 13, -133), "recorded", "[R] c = 0; [X]", True),
        Unit("ampere.hmma", AMPERE, "mma.sync m16n8k16 (HMMA)", (F16, BF16), F32, T(8, 24, 23, -132), "recorded", "[R]"),
    )
}  # fmt: skip

UNKNOWN: tuple[Unknown, ...] = ()


def unit_named(name: str) -> Unit:
    """The unit of that name. Raises ``BadInput`` with near names."""
    if name not in UNITS:
        raise unknown("matrix unit", name, UNITS)
    return UNITS[name]


def units_for(target: str, a_format: str, b_format: str, out: str) -> tuple[Unit, ...]:
    """Every known unit of a target that multiplies such operands into such results, most usual first.

    Raises ``BadInput`` where there is none: which one a target has is never guessed.
    """
    found = tuple(u for u in UNITS.values() if target in u.targets and u.takes(a_format, b_format) and u.out == out)
    if not found:
        raise BadInput(f"no known matrix unit of {target} multiplies {a_format} by {b_format} into {out}")
    return found
