"""Lines of ROCm's libraries, as torch hands them on. Their sources are reports: vllm#47201, sglang#35111."""

from __future__ import annotations

from narrowgauge.checkpoints.log_lines.line import Row

ROWS: tuple[Row, ...] = (
    (r"HIPBLAS_STATUS_NOT_SUPPORTED", "formats do not go together", "vllm#47201, sglang#35111", False),
)
