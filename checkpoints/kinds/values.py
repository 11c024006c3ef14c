"""Kinds of findings about the numbers in tensors, now and after a conversion."""

from __future__ import annotations

from narrowgauge.checkpoints.findings import Kind

VALUES: dict[str, Kind] = {}
