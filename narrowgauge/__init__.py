"""narrowgauge: conformance and regression tests for low-precision numerics.

What a kernel owner needs is here: ``kernel``, the contracts ``Cast``, ``Quantize``, ``Dequantize``, ``Then``,
``KvWrite``, ``KvRead``, ``Attend``, ``Convert`` and ``observe``, and ``CastPolicy``, ``Recipe``, ``Cache`` and
``Conversion`` for a semantics of one's own. Importing this package imports neither torch nor the reference.
"""

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.contracts.conversion import Conversion, Held
from narrowgauge.contracts.kernels import kernel
from narrowgauge.contracts.operations import Attend, Cast, Convert,
    Matmul, Dequantize, KvRead, KvWrite, Quantize, Then, observe
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Blocks, Destination, Recipe
from narrowgauge.version import __version__

__all__ = [
    "Attend",
    "Blocks",
    "Buffer",
    "Cache",
    "Cast",
    "CastPolicy",
    "Conversion",
    "Convert",
    "Dequantize",
    "Destination",
    "Field",
    "Held",
    "KvRead",
    "KvWrite",
    "Part",
    "Quantize",
    "Recipe",
    "Then",
    "__version__",
    "kernel",
    "observe",
]
