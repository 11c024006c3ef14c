"""Accumulators as data: in what a unit keeps a sum of products, and so how far the sum may be off.

An accumulator stands for every order of the sum that its units may take, any tree and any split of K. Adding one is one
entry of ``ACCUMULATORS``; which one a target's least exact unit is, one entry of ``_LEAST``. docs/bounds.md has the
theorem that each family rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from narrowgauge.contracts.errors import unknown
from narrowgauge.contracts.formats import format_named

#: how one step adds. ``nearest``: two numbers, or a number and exact products, to nearest even. ``fused``: some
#: products and a number, each cut toward zero at F bits below the largest exponent; the sum cut, or rounded. ``any``:
#: one of both. ``floored``: CDNA3's. ``whole``: integers. ``exact``: no error before the last rounding
Family = Literal["nearest", "fused", "any", "floored", "whole", "exact"]
#: what an entry rests on: mathematics; answers of real GPUs; published models; a report; nothing but likeness
Grade = Literal["definition", "recorded", "models", "report", "assumed"]


@dataclass(frozen=True)
class Accumulator:
    """In what sums are kept."""

    name: str
    about: str
    family: Family
    exact_bits: int  #: p: integers whose magnitudes sum to less than 2^p are added without error in any order
    stored: int  #: m: fraction bits of the number that is kept from step to step
    fraction: int = 0  #: F: bits below the largest exponent at which terms of a fused step are cut
    length: int = 1  #: L: products of the shortest fused step
    promote_every: int = 0  #: so many products at most are added before the sum goes to a float32; 0 for never
    joined_every: int = 0  #: so many products at least stand between two float32 additions of partial sums; 0: none
    one_sign: bool = False  #: ``exact_bits`` holds for products of one sign alone
    flushes: bool = False  #: subnormal operands of 16 bits may be read as 0
    cut: bool = True  #: the result of a fused step is cut toward zero, else rounded to nearest
    least: float = 2.0**-126  #: what one step may lose absolutely, subnormal numbers and flushing
    largest: float = float.fromhex("0x1.fffffep+127")  #: beyond this it is infinite
    grade: Grade = "definition"
    source: str = ""

    @property
    def whole(self) -> bool:
        """Whether sums are integers, which become float32 before they meet a scale."""
        return self.family == "whole"

    @property
    def keeps_the_largest(self) -> bool:
        """Whether the term of the largest exponent is never cut: fp8 has at most 8 fraction bits in a product, formats
        of 16 bits 20, and the number that is kept has m."""
        return self.family in ("fused", "any") and self.stored <= self.fraction

    @property
    def only_cuts(self) -> bool:
        """Whether each step but a join of partial sums cuts toward zero, so that no sum of one sign grows."""
        return self.family == "fused" and self.cut and self.keeps_the_largest


_R = "recorded answers, ../shared/data/matrix-unit-recordings (Khattak and Mikaitis, arXiv 2512.07004)"
_X = "MMA-Sim, Xie et al., arXiv 2511.10909"
_HALF, _HALF_MOST = 2.0**-25, 65504.0

ACCUMULATORS: dict[str, Accumulator] = {
    a.name: a
    for a in (
        Accumulator("exact", "no error before the last rounding", "exact", 53, 52),
        Accumulator("float32_nearest", "float32 sums to nearest even, any tree, fused with the products or not",
                    "nearest", 24, 23, source="IEEE 754-2019"),
        Accumulator("float32", "float32 sums to nearest even in any tree, CDNA1 and CDNA3, and every fused unit of 23 "
                    "bits and more, 4 products and more", "any", 24, 23, 23, 4, joined_every=16,
                    grade="recorded", source=_R),
        Accumulator("float32_flushed", "the same, and CDNA2, which reads subnormal operands of 16 bits as 0", "any",
                    24, 23, 23, 4, joined_every=16, flushes=True, grade="recorded", source=_R),
        Accumulator("tensor_core_23", "Volta: 4 products, 23 bits", "fused", 24, 23, 23, 4, joined_every=16,
                    grade="recorded", source=_R),
        Accumulator("tensor_core_24", "Turing, Ampere, Ada: 8 products of 16 bits or 4 of tfloat32, 24 bits", "fused",
                    24, 23, 24, 4, joined_every=16, grade="recorded", source=_R),
        Accumulator("tensor_core_25", "Hopper, Blackwell: 16 products of 16 bits, 8 of tfloat32, 32 of fp8, 25 bits",
                    "fused", 24, 23, 25, 8, joined_every=16, grade="recorded", source=_R),
        Accumulator("cdna3", "CDNA3: terms cut at 24 bits, sums floored, then nearest even", "floored", 24, 23, 24, 4,
                    joined_every=16, grade="models", source=_X),
        Accumulator("tensor_core_13", "fp8 of Ada (16 products) and of Hopper's wgmma (32): 13 bits", "fused", 14, 13,
                    13, 16, joined_every=32, grade="recorded", source=_R),
        *(Accumulator(f"promoted_{every}", f"13 bits within {every} products, float32 above", "fused", 14, 13, 13, 16,
                      promote_every=every, joined_every=every, grade="recorded",
                      source=f"{_R}; promotion: Triton 3.9, backends/nvidia/compiler.py, max_num_imprecise_acc")
          for every in (32, 64, 128)),
        Accumulator("float16", "float16 sums in any tree, and fused units that round to float16 each step, fp8's of 13 "
                    "bits among them", "any", 11, 10, 13, 4, joined_every=16, flushes=True, cut=False, least=_HALF,
                    largest=_HALF_MOST, grade="recorded", source=_R),
        Accumulator("bfloat16", "bfloat16 sums to nearest even, any tree", "nearest", 8, 7, flushes=True,
                    source="the upper half of IEEE 754 binary32"),
        Accumulator("int32", "two's complement sums of 32 bits, which wrap", "whole", 31, 30, least=0.0,
                    largest=2.0**31 - 1, source="PTX ISA, mma: .s32 accumulators wrap without .satfinite"),
        Accumulator("rdna3", "RDNA3 WMMA: steps of 2 products, a term of the other sign is off by one unit more",
                    "fused", 24, 23, 22, 2, joined_every=16, one_sign=True, flushes=True, grade="report",
                    source="ROCm/rocm-systems #12056 (gfx1151, 12 million cases)"),
    )
}  # fmt: skip
#: held to what every known unit gives, where nobody has published what the target's own do: a mismatch blames nobody
_ASSUMED = "assumed_float32"
ACCUMULATORS[_ASSUMED] = replace(
    ACCUMULATORS["float32_flushed"],
    name=_ASSUMED,
    about="units of which nobody has published a model, held to what all others give",
    grade="assumed",
    source="",
)
#: grades of which a mismatch is disputed, and blames nobody
DISPUTED: tuple[Grade, ...] = ("assumed", "report")

_FP8_BITS = 8


@dataclass(frozen=True)
class _Least:
    """The least exact unit of some targets for operands that are no integers."""

    targets: tuple[str, ...]  #: beginnings of names
    fp8: str  #: the accumulator where fp8 meets fp8 or narrower
    others: str
    grade: Grade = "recorded"


#: the first whose beginning fits counts; without a target every unit of which a model is published counts, so neither
#: RDNA3 nor RDNA4 nor CDNA4
_ANY = _Least((), "tensor_core_13", "float32_flushed")
_LEAST = (
    _Least(("sm_89", "sm_90"), "tensor_core_13", "float32"),
    _Least(("sm_103", "sm_110", "sm_121"), _ASSUMED, _ASSUMED, "assumed"),  # as sm_100 and sm_120
    _Least(("gfx11",), "rdna3", "rdna3", "report"),  # fp8 becomes float16 or bfloat16 there
    _Least(("gfx950", "gfx12"), _ASSUMED, _ASSUMED, "assumed"),  # nobody has published what these do
    _Least(("gfx90a",), "float32", "float32_flushed", "models"),
    _Least(("gfx9",), "float32", "float32", "models"),
    _Least(("sm_", "host", "interpreter"), "float32", "float32"),
)


def accumulator_named(name: str) -> Accumulator:
    """The accumulator of that name. Raises ``BadInput`` with near names."""
    if name not in ACCUMULATORS:
        raise unknown("accumulator", name, ACCUMULATORS)
    return ACCUMULATORS[name]


def least_exact(target: str, a_format: str, b_format: str) -> Accumulator:
    """The least exact accumulator that operands of these formats may meet on a target (``sm_90``, ``gfx942``).

    ``""`` stands for no definite target: every unit of which a model is published. The formats are those in which
    operands enter the product. ``grade`` is that of the choice: "assumed" where nobody has published what the target's
    units do. Raises ``BadInput`` for a target that is none.
    """
    formats = (format_named(a_format), format_named(b_format))
    if all(fmt.family == "integer" for fmt in formats):
        return ACCUMULATORS["int32"]
    least = _ANY if not target else next((one for one in _LEAST if target.startswith(one.targets)), None)
    if least is None:
        raise unknown("target", target, [name for one in _LEAST for name in one.targets], "least_exact(...)")
    # A unit of 13 bits takes fp8 alone; narrower floats may have been made fp8 before, without loss.
    fp8 = any(fmt.bits == _FP8_BITS for fmt in formats) and all(
        fmt.exponent and fmt.bits <= _FP8_BITS for fmt in formats
    )
    return replace(ACCUMULATORS[least.fp8 if fp8 else least.others], grade=least.grade)
