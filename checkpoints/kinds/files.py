"""Kinds of findings about what stands in which file."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

FILES: dict[str, Kind] = {}
