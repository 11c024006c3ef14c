"""Products of matrices as data: what both operands are, where their scales are applied, what is added at the end.

``y[m, n] = sum over k of a[m, k] · b[n, k]``. a comes as x [M, K]; b as [N, K], or as [K, N] where the engine stores it
so. Codes are multiplied as the numbers that they stand for, less a zero point; scales belong to blocks of either
operand, and are applied where ``scaled`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Evidence

#: where scales meet the products: a sum over all of K, then both scales, in float32; the sum of each stretch of K that
#: has one pair of scales, times both, added up in float32; inside a matrix unit, exactly; before, where an operand
#: is made wide, and rounded to the format in which it enters the product
Scaled = Literal["sum", "stretches", "unit", "operands"]
#: where a bias is added: in float32, before the one rounding; or to the rounded result, which is rounded again
Added = Literal["", "wide", "narrow"]
#: names of what a kernel is given beside x and what the recipes of both operands store
B, BIAS, EXPERTS, EXPERT_COUNT, GROUP_INDEX = "b", "bias", "experts", "expert_count", "group_index"


@dataclass(frozen=True)
class Operand:
    """One side of a product. ``recipe`` says what its codes stand for and in which blocks; "" for plain numbers."""

    recipe: str = ""
    format: str = ""  #: of its codes; "" for the claim's source
    enters: str = ""  #: format to which its dequantized numbers are rounded before the product; "" for the codes' own
    by_rows: bool = True  #: its matrix is [M or N, K], as a recipe of rows has it; False for [K, N]
    whole: bool = False  #: blocks divide its axes in the engine, although the recipe lets the last be smaller
    indexed: bool = False  #: ``b_group_index`` int32 [1, K] says which block of scales along K each k belongs to
    layouts: tuple[tuple[str, str], ...] = ()  #: name of a buffer ("codes", "scale", "zero_point"), and its packing


@dataclass(frozen=True)
class Product:
    """One engine's product of matrices.

    A kernel is given a as x, ``b``, and of each operand what its recipe stores: ``a_scale``, ``b_scale``,
    ``a_zero_point``, ``b_global_scale`` … in the shapes that the recipe gives them, a scale of a whole tensor
    [1, 1]. ``bias`` is [1, N] in the format of the result. Of a grouped product row m is multiplied by the matrix of
    its expert, ``experts`` int32 [1, M]: b is [E · N, K] then, the experts below one another, and so are its scales;
    ``bias`` is [E, N]; ``expert_count`` int32 [1, 1] is E. Rows of expert -1 give zeros.
    """

    name: str
    formats: tuple[tuple[str, str], ...]  #: pairs: that of a's codes, that of the result
    a: Operand
    b: Operand
    scaled: Scaled
    source: str  #: file and lines of the engine; or clause of a specification
    bias: Added = ""
    grouped: bool = False  #: rows belong to experts
    cast: str = "ieee"  #: the policy of the last rounding
    accumulator: str = ""  #: what sums are kept in, where a contract says nothing else; "" for what a target has
    evidence: Evidence = "source"

    def __post_init__(self) -> None:
        for one, other in self.formats:
            if format_named(one).name != one or format_named(other).name != other:
                raise BadInput(f"product {self.name!r}: formats {one!r}, {other!r}; expected their own names")
        if self.scaled == "operands" and not (self.a.enters or self.b.enters):
            raise BadInput(f"product {self.name!r}: scaled before the product, but no operand says as what it enters")

    def entering(self, source: str) -> tuple[str, str]:
        """The formats in which both operands enter the product, where a's codes are of ``source``."""
        return self.a.enters or self.a.format or source, self.b.enters or self.b.format or source

    def check(self, source: str, format_name: str) -> None:
        """Raise ``BadInput`` for formats that this product does not have."""
        if (source, format_name) not in self.formats:
            known = ", ".join(f"{one} to {other}" for one, other in self.formats)
            raise BadInput(f"product {self.name!r} does not make {format_name} of {source}; it makes {known}")
