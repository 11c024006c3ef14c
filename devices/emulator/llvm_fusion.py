"""Which products the code generator fuses with a sum: its rule, and the check of the rule against what it made.

LLVM's DAG combiner (visitFADDForFMACombine, visitFSUBForFMACombine) works on one basic block. AMD's target asks for
aggressive fusion, so every product that is an operand of a sum in its own block is fused, however many uses it has. Of
two products, that on the left; that on the right where the left one has more uses. A part taken out of a vector of
products is a product where the target has no packed float32, and vectors are taken apart first; else it is left alone.

Sums that are not fused stay additions, which are counted in the AMDGCN text. Where their number is another, the rule
did not hold, or something else was rearranged, and ``settled`` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from narrowgauge.devices.emulator.llvm_text import Value

#: additions in AMDGCN text, by the width of the number and whether there are two
_ADDITION = re.compile(r"^\s.*?\b[vs]_(?P<two>pk_)?(?:add|sub|subrev)(?:_num)?_(?P<kind>f16|f32|f64|bf16)(?:_|\b)")
_DUAL = re.compile(r"\bv_dual_(?:add|sub|subrev)_(f32)(?:_|\b)")
#: products pass through these: a sum of what comes out may or may not be fused
THROUGH = ("fneg", "extractelement", "insertelement", "shufflevector", "fpext", "bitcast", "select", "fptrunc")
#: targets that multiply and add two float32 at once
PACKED = ("gfx90a", "gfx942", "gfx950", "gfx1250")
#: functions of float32 that the code generator writes out, and how many additions that takes; of others unknown
EXPANDED = {
    "llvm.exp2.f32": 1, "llvm.log2.f32": 1, "llvm.exp.f32": 2, "llvm.log.f32": 2, "llvm.log10.f32": 2,
    "llvm.sqrt.f32": 0,
}  # fmt: skip
UNKNOWN = ("llvm.exp", "llvm.log", "llvm.pow", "llvm.sin", "llvm.cos", "llvm.sqrt", "frem")
_TWO = {"half": 0x4000, "float": 0x40000000, "double": 0x4000000000000000, "bfloat": 0x4000}
_KINDS = {"half": "f16", "float": "f32", "double": "f64", "bfloat": "bf16"}


@dataclass(frozen=True)
class Product:
    """A result of fmul, or the negative of one, in the block where it was computed."""

    first: Value
    second: Value
    negative: bool
    block: str


@dataclass(frozen=True)
class Fused:
    """A sum as one operation: product + other, each with the sign it is taken with."""

    product: Product
    negate_product: bool
    other: Value
    negate_other: bool
    promised: set[str] = field(default_factory=set)  #: fast-math flags of the sum


@dataclass
class Products:
    """The products of a kernel, and the sums that were left as they are."""

    uses: Mapping[str, int]  #: how often a name stands in the text, its definition left out
    bf16: bool = False  #: whether the target computes with bfloat16; else each operation is one of float32, rounded
    known: dict[str, Product] = field(default_factory=dict)
    separate: Counter[str] = field(default_factory=Counter)  #: additions that stay, by kind
    near: dict[str, str] = field(default_factory=dict)  #: what a product went through, and its block
    candidates: int = 0  #: sums of a product, or of what one went through
    countable: bool = True  #: whether all other additions are known

    def multiplied(self, name: str, product: Product) -> None:
        """Note a product. One with 2.0 becomes a sum of two equal ones, which is exact and never fused."""
        kind = product.second[0].kind
        if all(part.constant == _TWO.get(kind) for part in product.second):
            self.separate[_KINDS[kind]] += len(product.second)
        else:
            self.known[name] = product

    def sum(self, opcode: str, block: str, names: tuple[str, str], values: tuple[Value, Value]) -> Fused | None:
        """What becomes of fadd or fsub of two operands: a fused operation, or None."""
        kind = _KINDS[values[0][0].kind]
        if kind == "bf16" and not self.bf16:
            self.separate["f32"] += len(values[0])
            return None
        left, right = (self._here(name, block) for name in names)
        if left or right or block in (self.near.get(names[0]), self.near.get(names[1])):
            self.candidates += 1
        if left and right and self.uses[names[0]] > self.uses[names[1]]:
            left = None
        minus = opcode == "fsub"
        if left:
            return Fused(left, left.negative, values[1], minus)
        if right:
            return Fused(right, right.negative != minus, values[0], False)
        self.separate[kind] += len(values[0])
        return None

    def _here(self, name: str, block: str) -> Product | None:
        product = self.known.get(name)
        return product if product is not None and product.block == block else None

    def settled(self, amdgcn: str) -> bool:
        """Whether the code generator left just these additions."""
        return not self.candidates or (self.countable and additions(amdgcn) == +self.separate)

    def called(self, name: str) -> None:
        """Note an opcode or function that the code generator may write out with additions."""
        if name in EXPANDED:
            self.separate["f32"] += EXPANDED[name]
        elif name.startswith(UNKNOWN):
            self.countable = False


def additions(amdgcn: str) -> Counter[str]:
    """How many additions of floating-point numbers the text has, by kind; a packed one counts twice."""
    found: Counter[str] = Counter()
    for line in amdgcn.splitlines():
        code = line.partition(";")[0].partition("//")[0]
        if dual := _DUAL.findall(code):
            found["f32"] += len(dual)
        elif match := _ADDITION.match(code):
            found[match["kind"]] += 2 if match["two"] else 1
    return found
