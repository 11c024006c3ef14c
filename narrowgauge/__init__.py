"""narrowgauge: conformance and regression tests for low-precision numerics.

What a kernel owner needs is here: ``kernel``, the contracts ``Cast``, ``Quantize``, ``Dequantize``, ``Then`` and
``observe``, and ``CastPolicy`` and ``Recipe`` for a semantics of one's own. Importing this package imports neither
torch nor the reference.
"""

from narrowgauge.contracts.kernels import kernel
from narrowgauge.contracts.operations import Cast, Dequantize, Quantize, Then, observe
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Blocks, Destination, Recipe
from narrowgauge.version import __version__

__all__ = [
    "Blocks",
    "Cast",
    "CastPolicy",
    "Dequantize",
    "Destination",
    "Quantize",
    "Recipe",
    "Then",
    "__version__",
    "kernel",
    "observe",
]
