"""narrowgauge: conformance and regression tests for low-precision numerics.

What a kernel owner needs is here: ``kernel``, ``Cast``, ``Quantize``, ``observe``, and ``CastPolicy`` and ``Recipe``
for a semantics of one's own. Importing this package imports neither torch nor the reference.
"""

from narrowgauge.contracts.kernels import kernel
from narrowgauge.contracts.operations import Cast, Quantize, observe
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Destination, Recipe
from narrowgauge.version import __version__

__all__ = ["Cast", "CastPolicy", "Destination", "Quantize", "Recipe", "__version__", "kernel", "observe"]
