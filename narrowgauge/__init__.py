"""narrowgauge: conformance and regression tests for low-precision numerics.

What a kernel owner needs is here: ``kernel``, the contracts ``Cast``, ``Quantize``, ``Dequantize``, ``Then``,
``KvWrite``, ``KvRead``, ``Attend``, ``Convert``, ``Matmul``, ``WideOp`` and ``observe``, and ``CastPolicy``,
``Recipe``, ``Cache``, ``Conversion`` and ``Product`` for a semantics of one's own. Importing this package imports
neither torch nor the reference.
"""

from narrowgauge.contracts.cache import Buffer, Cache, Field, Part
from narrowgauge.contracts.conversion import Conversion, Held
from narrowgauge.contracts.kernels import kernel
from narrowgauge.contracts.operations import (
    Attend,
    Cast,
    Convert,
    Dequantize,
    KvRead,
    KvWrite,
    Matmul,
    Quantize,
    Then,
    WideOp,
    observe,
)
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.product import Operand, Product
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
    "Matmul",
    "Operand",
    "Part",
    "Product",
    "Quantize",
    "Recipe",
    "Then",
    "WideOp",
    "__version__",
    "kernel",
    "observe",
]
