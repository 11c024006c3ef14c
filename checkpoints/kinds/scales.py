"""Kinds of findings about scales, zero points and how they fit their codes."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

SCALES: dict[str, Kind] = {}
