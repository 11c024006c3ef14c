"""Kinds of findings about what an engine or a target makes of it."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

ENGINES: dict[str, Kind] = {}
