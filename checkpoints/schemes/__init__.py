"""Every scheme, by name: ``SCHEMES``. Where tensors fit several, the earlier one is meant."""

from __future__ import annotations

from narrowgauge.checkpoints.schemes import eights, fours, gguf, integers
from narrowgauge.checkpoints.schemes.scheme import Part, Scheme

SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme for scheme in (*eights.SCHEMES, *fours.SCHEMES, *integers.SCHEMES, *gguf.SCHEMES)
}

__all__ = ["SCHEMES", "Part", "Scheme"]
