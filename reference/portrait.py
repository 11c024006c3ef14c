"""What a cast does at the edge of its range, in the values it really returned."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.codec import WIDEST_TABLE, largest, unrestricted
from narrowgauge.reference.fast_codec import decode_values


def probes(format_name: str) -> dict[str, float]:
    """Name and value of each place where casts of a format part; none for float32 and wider, whose end is no cast's."""
    fmt = format_named(format_name)
    if fmt.bits > WIDEST_TABLE:
        return {}
    top = largest(fmt)
    last, beyond = unrestricted(np.array([top, top + 1], np.int64), fmt)
    tie = (last + beyond) / 2
    return {f"tie {tie:g}": tie, "1000": 1000.0, "inf": np.inf, "-inf": -np.inf, "nan": np.nan, "-0": -0.0}


def portrait(x: Coded, codes: Coded) -> dict[str, str]:
    """For each probe that is among the inputs, what came out: "448", "nan", "-0" …"""
    stored = Coded(codes.format, codes.data.astype(format_named(codes.format).storage))  # it may have come wider
    value, result = decode_values(x).ravel(), decode_values(stored).ravel()
    found = {}
    for name, probe in probes(codes.format).items():
        same = np.isnan(value) if np.isnan(probe) else (value == probe) & (np.signbit(value) == np.signbit(probe))
        if same.any():
            kinds = dict.fromkeys(f"{r:g}" for r in result[same])
            found[name] = " or ".join(kinds) if len(kinds) < 4 else f"{len(kinds)} different values"
    return found
