"""Operations that a kernel computes in a wide format before it quantizes, as data; reference/wide.py has their numbers.

A result is rounded to the source's format, as engines do, so that a fused kernel gives what the two kernels after one
another give.
"""

from __future__ import annotations

from dataclasses import dataclass

#: what RMSNorm adds to the mean of the squares
EPSILON = 1e-6


@dataclass(frozen=True)
class Wide:
    """An operation on a matrix x [rows, n · columns] that gives [rows, columns]."""

    name: str
    about: str
    source: str
    inputs: tuple[str, ...] = ()  #: given beside x, in the source's format: a weight [1, columns]
    parts: int = 1  #: n: how many matrices stand side by side in x


WIDE: dict[str, Wide] = {
    wide.name: wide
    for wide in (
        Wide(
            "rms_norm",
            f"x / sqrt(mean(x²) + {EPSILON:g}) · weight in float32, rounded once",
            "vLLM 0.33.0, layernorm_kernels.cu:93",
            ("weight",),
        ),
        Wide(
            "rms_norm_twice_rounded",
            f"x / sqrt(mean(x²) + {EPSILON:g}) in float32, rounded; times weight, rounded again",
            "vLLM 0.33.0, fused_kernels/layernorm_utils.cuh:90,146,193",
            ("weight",),
        ),
        Wide(
            "silu_mul",
            "gate / (1 + exp(-gate)) · up in float32, rounded once; gate is the first half of the columns",
            "the definition of SwiGLU",
            parts=2,
        ),
        Wide(
            "silu_mul_twice_rounded",
            "gate / (1 + exp(-gate)) in float32, rounded; times up, rounded again",
            "vLLM 0.33.0, activation_kernels.cu (the activation is of the tensor's type)",
            parts=2,
        ),
    )
}
