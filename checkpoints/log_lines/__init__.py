"""Lines that engines log while they start, and that tell trouble which nobody else tells."""

from __future__ import annotations

from narrowgauge.checkpoints.log_lines import rocm, sglang, vllm
from narrowgauge.checkpoints.log_lines.line import Line

LINES: tuple[Line, ...] = (
    *(Line("vllm", *row) for row in vllm.ROWS),
    *(Line("sglang", *row) for row in sglang.ROWS),
    *(Line("rocm", *row) for row in rocm.ROWS),
)
