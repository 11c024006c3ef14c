"""Which products the code generator fuses with a sum: its rule, and the check of the rule against what it made.

LLVM's DAG combiner (visitFADDForFMACombine, visitFSUBForFMACombine) works on one basic block. AMD's target asks for
aggressive fusion, so every product that is an operand of a sum in its own block is fused, however many uses it has. Of
two products that on the left, if neither has another use. Else that on the right where the left one has more uses, of
those that are left when the combiner gets there, and uses in other blocks are one: both ways are run (all such sums one
way, then all the other). A part taken out of a vector of products is a product where the target has no packed float32,
and vectors are taken apart first; else it is left alone.

Sums that are not fused stay additions, which are counted in the AMDGCN text. Where their number is another, the rule
did not hold, or something else was rearranged, and ``settled`` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from narrowgauge.devices.emulator.llvm_text import Value

#: additions in AMDGCN text, by the width of the number and whether there are two
_ADDITION = re.compile(r"^\s.*?\b[vs]_(?P<two>pk_)?(?:add|sub|subrev)(?:_num)?_(?P<kind>f16|f32|f64|bf16)(?:_|\b)")
_VECTOR = re.compile(r"\.v\d+(?=f\d+$)")
_DUAL = re.compile(r"\bv_dual_(?:add|sub|subrev)_(f32)(?:_|\b)")
#: products pass through these: a sum of what comes out may or may not be fused
THROUGH = ("fneg", "extractelement", "insertelement", "shufflevector", "fpext", "bitcast", "select", "fptrunc")
#: targets that multiply and add two float32 at once
PACKED = ("gfx90a", "gfx942", "gfx950", "gfx1250")
#: what the code generator writes out, and the additions that it takes, of which kind; the same on all targets, as
#: suites/meta/test_emulator_llvm_fusion.py compiles them
EXPANDED: dict[str, tuple[str, int]] = {
    **{f"llvm.{name}.f32": ("f32", 2) for name in ("exp", "exp10", "log", "log10")},
    "llvm.exp2.f32": ("f32", 1), "llvm.log2.f32": ("f32", 1),
    "llvm.round.f32": ("f32", 2), "llvm.round.f64": ("f64", 2),
    "frem float": ("f32", 2), "frem double": ("f64", 2), "fdiv half": ("f32", 1),
    "sitofp i64 double": ("f64", 1), "uitofp i64 double": ("f64", 1),
}  # fmt: skip
TWO = {"half": 0x4000, "bfloat": 0x4000, "float": 0x40000000, "double": 0x4000 << 48}
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

    uses: dict[str, int]  #: how often a name stands in the text, its definition left out
    bf16: bool = False  #: whether the target computes with bfloat16; else each operation is one of float32, rounded
    known: dict[str, Product] = field(default_factory=dict)
    separate: Counter[str] = field(default_factory=Counter)  #: additions that stay, by kind
    near: dict[str, str] = field(default_factory=dict)  #: what a product went through, and its block
    doubled: dict[str, tuple[str, int]] = field(default_factory=dict)  #: kind and number of additions x + x for x * 2
    fused: Counter[str] = field(default_factory=Counter)  #: uses of a product that a fused sum took away
    right: bool = False  #: of two products that have other uses, take the right one
    choices: int = 0  #: how often there were two such products
    candidates: int = 0  #: sums of a product, or of what one went through

    def product(self, name: str, block: str, values: tuple[Value, Value]) -> None:
        """Note a product. One with 2 becomes x + x, unless fused sums are all that it is for."""
        self.known[name] = Product(values[0], values[1], False, block)
        kind = values[0][0].kind
        if twos := sum(TWO[kind] in (one.constant, other.constant) for one, other in zip(*values, strict=True)):
            self.doubled[name] = ("f32" if kind == "bfloat" and not self.bf16 else _KINDS[kind], twos)

    def sum(self, opcode: str, block: str, names: tuple[str, str], values: tuple[Value, Value]) -> Fused | None:
        """What becomes of fadd or fsub of two operands: a fused operation, or None."""
        kind = _KINDS[values[0][0].kind]
        if kind == "bf16" and not self.bf16:
            self.separate["f32"] += len(values[0])
            return None
        left, right = (self._here(name, block) for name in names)
        if left or right or block in (self.near.get(names[0]), self.near.get(names[1])):
            self.candidates += 1
        if left and right and names[0] != names[1] and max(self.uses[name] for name in names) > 1:
            self.choices += 1
            left = None if self.right else left
        minus = opcode == "fsub"
        if left or right:
            self.fused[names[0] if left else names[1]] += 1
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
        expected = Counter(self.separate)
        for name, (kind, count) in self.doubled.items():
            expected[kind] += count if self.uses[name] > self.fused[name] else 0
        return not self.candidates or additions(amdgcn) == +expected

    def called(self, name: str, count: int) -> None:
        """Note an opcode or function that the code generator may write out with additions, for so many numbers."""
        kind, each = EXPANDED.get(_VECTOR.sub(".", name), ("f32", 0))
        self.separate[kind] += count * each


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
