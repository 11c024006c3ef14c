"""Kinds of findings about what the configuration says against what the tensors are."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

CONFIG: dict[str, Kind] = {}
