"""What a tensor does in a model, by its name: what follows if its values become infinite or zero."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """What a lost value does, in words that follow the figures; "" where it is like any other weight."""

    infinite: str
    zero: str = ""  #: only where one zero more is grave
    scale: bool = False  #: whether it scales others: engines keep most such in float32, whatever the model's dtype


_SCALE = Part(
    "every number that it scales becomes infinite or NaN", "every number that it scales becomes 0", scale=True
)
#: the first that matches decides
PARTS: tuple[tuple[str, Part], ...] = (
    # torch's BatchNorm divides by sqrt(running_var + eps), eps 1e-5, and adds its bias
    (
        r"running_var$",
        Part(
            "their channels become constant, x / sqrt(inf) is 0, and no NaN says so",
            "their channels are divided by sqrt(eps) alone",
        ),
    ),
    (r"running_mean$", Part("their channels become infinite or NaN")),
    (r"(^|[._])scales?(_inv|_2)?$", _SCALE),
    (r"(k|v|q|prob)_scale$", _SCALE),
    (r"(norm|ln|bn)[a-z0-9_]*\.weight$", Part("their channels become infinite, and NaN after the next sum")),
    (r"bias$", Part("their outputs are infinite, whatever comes in")),
)
_PARTS = tuple((re.compile(pattern, re.IGNORECASE), part) for pattern, part in PARTS)
_OTHER = Part("what they meet becomes infinite or NaN")


def part_of(name: str) -> Part:
    """What a tensor of that name does."""
    return next((part for pattern, part in _PARTS if pattern.search(name)), _OTHER)
