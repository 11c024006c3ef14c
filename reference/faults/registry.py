"""Every fault by name. One entry each, in the module of its family: an edit of the right behaviour, and its texts."""

from __future__ import annotations

from narrowgauge.contracts.errors import unknown
from narrowgauge.reference.faults import (
    casts,
    conversions,
    decoding,
    elements,
    exponents,
    flavours,
    granularity,
    integers,
    kv_attention,
    kv_copies,
    kv_layouts,
    kv_pages,
    kv_scales,
    kv_slots,
    layouts,
    levels,
    limits,
    product_ends,
    product_operands,
    product_scales,
    product_sums,
    reading,
    requantizing,
    rounding,
    scales,
    specials,
    tails,
    wide,
    wide_choices,
    wide_elements,
    zeros,
)
from narrowgauge.reference.faults.fault import AnyFault

#: in this order faults that cannot be told apart are named
_FAMILIES = (
    casts, rounding, limits, specials, flavours, exponents, integers, decoding,
    scales, elements, zeros, levels, granularity, tails, reading, layouts,
    kv_scales, kv_copies, kv_layouts, kv_slots, kv_pages, kv_attention, conversions, requantizing,
    product_scales, product_sums, product_operands, product_ends,
    wide, wide_elements, wide_choices,
)  # fmt: skip

FAULTS: dict[str, AnyFault] = {fault.name: fault for family in _FAMILIES for fault in family.FAULTS}


def fault_named(name: str) -> AnyFault:
    """The fault of that name. Raises ``BadInput`` with near names."""
    if name not in FAULTS:
        raise unknown("fault", name, FAULTS)
    return FAULTS[name]
