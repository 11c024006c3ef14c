"""Layouts: ``LAYOUTS`` by name, ``pack``, ``unpack``, ``storage_shape``; zero points as formats store them."""

from __future__ import annotations

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.layout import Layout
from narrowgauge.reference.layouts import codes, scales
from narrowgauge.reference.layouts.mapping import storage_shape
from narrowgauge.reference.layouts.packing import PaddingCodes, Unpacked, element_indices, pack, unpack
from narrowgauge.reference.layouts.zeros import ZERO_POINTS, stored_zeros, zero_points_named, zeros_of

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (*codes.LAYOUTS, *scales.LAYOUTS)}


def layout_named(name: str) -> Layout:
    """The layout of that name. Raises ``BadInput`` with near names."""
    if name not in LAYOUTS:
        raise unknown("layout", name, LAYOUTS)
    return LAYOUTS[name]


__all__ = [
    "LAYOUTS",
    "ZERO_POINTS",
    "PaddingCodes",
    "Unpacked",
    "element_indices",
    "layout_named",
    "pack",
    "storage_shape",
    "stored_zeros",
    "unpack",
    "zero_points_named",
    "zeros_of",
]
