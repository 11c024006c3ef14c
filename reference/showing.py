"""Single elements in words."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.reference.fast_codec import decode_values


def show(element: Coded) -> str:
    """A single element as value and bits: ``448 (0x7e)``."""
    fmt = format_named(element.format)
    code = int(element.data)
    if not 0 <= code < fmt.code_count:
        return f"{code:#x}, no code"
    value = float(decode_values(Coded(fmt.name, np.array([code], fmt.storage)))[0])
    return f"{value:.9g} ({code:#0{2 + fmt.bits // 4}x})"
