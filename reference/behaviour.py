"""A behaviour: a claim with everything looked up, and what is done before and after it.

The reference's own answer is the behaviour of the bare claim. A fault is an edit of a behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from narrowgauge.contracts.cache import Cache
from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.conversion import Conversion
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import (
    Attend,
    Cast,
    Claim,
    Convert,
    Dequantize,
    KvWrite,
    Matmul,
    Observe,
    OfCache,
    Quantize,
    Then,
    WideOp,
)
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.product import Operand
from narrowgauge.contracts.recipe import Blocks, Evidence, Recipe
from narrowgauge.contracts.wide import Wide
from narrowgauge.reference import policies, recipes
from narrowgauge.reference.convert import catalogue
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.convert.plain import quantizer_named
from narrowgauge.reference.dequantize import dequantize
from narrowgauge.reference.fast_codec import cast, decode_values
from narrowgauge.reference.kv import caches
from narrowgauge.reference.kv.before import before_named
from narrowgauge.reference.kv.paged import Paged
from narrowgauge.reference.kv.slots import slots_named
from narrowgauge.reference.matmul import products
from narrowgauge.reference.matmul.accumulators import DISPUTED, accumulator_named, least_exact
from narrowgauge.reference.matmul.multiplying import Multiplying
from narrowgauge.reference.staged import PLAIN
from narrowgauge.reference.wide.run import resolve_wide, wide_result
from narrowgauge.reference.wide.widening import Widening

Buffers = dict[str, Coded]
#: given the behaviour, what the last cast was given, and its codes: other codes
Patch = Callable[["Behaviour", Coded, Coded], Coded]
#: x with what is given beside it, recipe, format, last cast
Quantizer = Callable[[Coded, Recipe, str, Callable[[Coded], Coded]], Buffers]


@dataclass(frozen=True)
class Behaviour:
    """A rule, and what a fault does to it. A cast has no recipe; a quantizer's policy is that of its last step."""

    source: str
    format: str
    policy: CastPolicy
    recipe: Recipe | None = None
    before: tuple[Callable[[Coded], Coded], ...] = ()  #: each changes what the last cast is given
    written: str = ""  #: the format whose codes are really written, under the label of ``format``
    patched: tuple[Patch, ...] = ()  #: each changes the codes of the last cast
    after: tuple[Callable[[Buffers], Buffers], ...] = ()  #: each changes the outputs
    quantizer: Quantizer = PLAIN  #: what runs the recipe
    received: tuple[Callable[[Coded], Coded], ...] = ()  #: each changes what comes in
    reads: bool = False  #: codes become values, and not values codes
    layouts: tuple[tuple[str, str], ...] = ()  #: name of a buffer, and its packing
    first: str | Wide = ""  #: the operation whose result is quantized

    @property
    def by_rows(self) -> bool:
        """Whether what comes out of a row depends on that row alone, and on what is given."""
        return self.recipe is None or self.recipe.by_rows

    def run(self, x: Coded) -> Buffers:
        """The outputs for one input tensor, and what comes beside it. After an operation that leaves bits open, one of
        those that may be."""
        for change in self.received:
            x = change(x)
        if self.first:
            x = Input(x.format, wide_result(x, self.first)[0].data, given_with(x))
        if self.recipe is None:
            outputs = {"codes": self.last_cast(x)}
        elif self.reads:
            outputs = {"codes": dequantize(x, self.recipe, self.format, self.last_cast)}
        else:
            outputs = self.quantizer(x, self.recipe, self.format, self.last_cast)
        return self.finished(outputs)

    def finished(self, outputs: Buffers) -> Buffers:
        """The outputs after what is changed in them."""
        for change in self.after:
            outputs = change(outputs)
        return outputs

    def last_cast(self, x: Coded) -> Coded:
        """Codes of values, in the buffer's format by its label."""
        for change in self.before:
            x = change(x)
        codes = Coded(self.format, cast(x, self.written or self.format, self.policy).data)
        for patch in self.patched:
            codes = patch(self, x, codes)
        return codes


#: a behaviour of each kind: of a tensor, of a cache, of a checkpoint's buffers, of two matrices, of a wide operation
Promised = Behaviour | Paged | Converting | Multiplying | Widening


def promised(claim: Claim) -> Promised:
    """The behaviour that a claim promises. Raises ``BadInput`` for an observation or what does not fit."""
    if isinstance(claim.contract, Convert):
        return converting_of(claim)
    if isinstance(claim.contract, Matmul):
        return multiplying_of(claim)
    if isinstance(claim.contract, WideOp):
        return widening_of(claim)
    return paged_behaviour(claim) if isinstance(claim.contract, OfCache) else behaviour_of(claim)


def paged_behaviour(claim: Claim) -> Paged:
    """The behaviour that a claim on a cache promises. Raises ``BadInput`` for what does not fit."""
    contract = claim.contract
    assert isinstance(contract, OfCache)
    cache = caches.resolve(contract.cache)
    if isinstance(contract, Attend):
        _check_attended(claim, cache)
    writes = isinstance(contract, KvWrite)
    held = claim.format if writes else claim.source
    values = "float32" if isinstance(contract, Attend) else claim.format
    parts = []
    for part in cache.parts:
        source = claim.source if writes else held
        if part.recipe:
            of = Quantize(part.recipe) if writes else Dequantize(part.recipe)
            parts.append((part.name, behaviour_of(Claim(of, source, held if writes else values))))
        else:  # kept bit for bit in a format of its own
            kept = part.keeps or held
            policy, ends = (part.cast, (claim.source, kept)) if writes else ("ieee", (kept, values))
            kept_as_it_is = replace(behaviour_of(Claim(Cast(policy), *ends)), patched=(_nan_as_it_came,))
            parts.append((part.name, kept_as_it_is))
    return Paged(cache, contract, claim.source, claim.format, tuple(parts), slots_named(cache.slots))


def converting_of(claim: Claim) -> Converting:
    """The behaviour that a claim on a conversion promises. Raises ``BadInput`` for formats that it does not have."""
    contract = claim.contract
    assert isinstance(contract, Convert)
    conversion = catalogue.resolve(contract.conversion)
    conversion.check(claim.source, claim.format)
    return Converting(conversion, claim.source, claim.format, _quantizer_of(conversion, claim))


def widening_of(claim: Claim) -> Widening:
    """The behaviour that a claim on a wide operation promises. Raises ``BadInput`` for formats that do not fit."""
    contract = claim.contract
    assert isinstance(contract, WideOp)
    wide = resolve_wide(contract.wide, f"claim {claim}")
    wide.check(claim.source, claim.format)
    return Widening(wide, claim.source, claim.format)


#: units that flush subnormal operands do so in 16 bits; narrower ones are kept by all
_NEVER_FLUSHED = 8


def multiplying_of(claim: Claim) -> Multiplying:
    """The behaviour that a claim on a product promises. Raises ``BadInput`` for formats that it does not have, and for
    an accumulator that there is not."""
    contract = claim.contract
    assert isinstance(contract, Matmul)
    product = products.resolve(contract.product)
    product.check(claim.source, claim.format)
    b = product.b.format or claim.source
    entering = product.entering(claim.source)
    named = contract.accumulator or product.accumulator
    accumulator = accumulator_named(named) if named else least_exact("", *entering)
    if all(format_named(name).bits <= _NEVER_FLUSHED for name in entering):
        accumulator = replace(accumulator, flushes=False)
    sides = (_operand_of(product.a, claim.source), _operand_of(product.b, b))
    # whole numbers of 32 bits are not rounded: they wrap (reference/matmul/run.py)
    policy = CastPolicy() if claim.format == "int32" else policies.resolve(product.cast, claim.format)
    rounding = Behaviour("float64", claim.format, policy)
    return Multiplying(product, claim.source, claim.format, accumulator, *sides, rounding)


def claim_on(claim: Claim, target: str) -> Claim:
    """The claim as it is held on a target: a product whose accumulator nobody names has that of the target's least
    exact unit."""
    contract = claim.contract
    if not isinstance(contract, Matmul) or contract.accumulator:
        return claim
    product = products.resolve(contract.product)
    if product.accumulator:
        return claim
    least = least_exact(target, *product.entering(claim.source))
    return replace(claim, contract=replace(contract, accumulator=least.name))


def _operand_of(operand: Operand, codes: str) -> Behaviour:
    """What reads an operand: its codes become the numbers that enter the product."""
    if not operand.recipe:
        return behaviour_of(Claim(Cast("ieee"), codes, operand.enters or "float32"))
    return behaviour_of(Claim(Dequantize(operand.recipe, operand.layouts), codes, operand.enters or "float32"))


#: steps whose first operand is the format to which numbers are rounded
_THROUGH = ("values", "shifted")


def _quantizer_of(conversion: Conversion, claim: Claim) -> Behaviour | None:
    """What makes codes of a conversion's numbers, in the format in which they come to it; None where no step does."""
    through = claim.source
    for name, *operands in conversion.steps:
        if name in _THROUGH:
            through = str(operands[0])
        if name == "quantized":
            return behaviour_of(Claim(Quantize(quantizer_named(str(operands[0]))), through, claim.format))
        if name == "as_codes":
            return behaviour_of(Claim(Cast(str(operands[0])), through, claim.format))
    return None


def _check_attended(claim: Claim, cache: Cache) -> None:
    """Raise ``BadInput`` for a cache of which no attention is derived."""
    if not {"v", "latent"} & {part.name for part in cache.parts}:
        raise BadInput(f"{claim}: cache {cache.name!r} keeps no values; expected one with a part 'v' or 'latent'")
    if turned := [part.name for part in cache.parts if part.first and before_named(part.first).undone]:
        raise BadInput(
            f"{claim}: {', '.join(turned)} of cache {cache.name!r} are rotated, and by how much a kernel's rotation "
            "may round is not derived; claim a KvRead, which is exact"
        )


def _nan_as_it_came(behaviour: Behaviour, x: Coded, codes: Coded) -> Coded:
    """Codes of the format that came with the bits of every NaN: a copy is no conversion, which would quiet it."""
    if x.format != codes.format or behaviour.written not in ("", x.format):
        return codes
    nan = np.isnan(decode_values(codes)) & np.isnan(decode_values(x))
    return Coded(codes.format, np.where(nan, x.data, codes.data))


def behaviour_of(claim: Claim) -> Behaviour:
    """The same for a claim on a tensor, and none on a cache."""
    contract = claim.contract
    if isinstance(contract, OfCache | Convert | Matmul | WideOp):
        raise BadInput(
            f"{claim}: expected a cast, a quantizer or a reader; other contracts have behaviours of their own kinds"
        )
    if isinstance(contract, Cast):
        return Behaviour(claim.source, claim.format, policies.resolve(contract.policy, claim.format))
    if isinstance(contract, Observe):
        raise BadInput(f"{claim}: an observation promises nothing; there is nothing to expect")
    recipe, packed = recipes.resolve(contract.recipe), tuple(claim.layouts.items())
    if isinstance(contract, Dequantize):
        recipe.destination(claim.source)
        return Behaviour(
            claim.source, claim.format, policies.resolve("ieee", claim.format), recipe, reads=True, layouts=packed
        )
    policy = policies.resolve(recipe.destination(claim.format).cast, claim.format)
    first = contract.first if isinstance(contract, Then) else ""
    return Behaviour(claim.source, claim.format, policy, recipe, first=first, layouts=packed)


def resolved(claim: Claim) -> Claim:
    """The same claim with its recipe as data, for who has no catalogue. Raises ``BadInput`` for an unknown name."""
    if isinstance(claim.contract, Convert):
        return replace(claim, contract=Convert(catalogue.resolve(claim.contract.conversion)))
    if isinstance(claim.contract, Matmul):
        return replace(claim, contract=replace(claim.contract, product=products.resolve(claim.contract.product)))
    if isinstance(claim.contract, WideOp):
        return replace(claim, contract=WideOp(resolve_wide(claim.contract.wide, f"claim {claim}")))
    recipe = recipe_of(claim)
    if isinstance(claim.contract, OfCache):
        return replace(claim, contract=replace(claim.contract, cache=caches.resolve(claim.contract.cache)))
    if recipe is None or isinstance(claim.contract, Cast | Observe):
        return claim
    return replace(claim, contract=replace(claim.contract, recipe=recipe))


def recipe_of(claim: Claim) -> Recipe | None:
    """The recipe that is claimed; None for a cast, an observation, a conversion, or a cache, whose parts have their
    own."""
    contract = claim.contract
    return recipes.resolve(contract.recipe) if isinstance(contract, Quantize | Dequantize | Then) else None


def blocks_of(claim: Claim) -> Blocks | None:
    """What shares a scale; None where there is no recipe."""
    recipe = recipe_of(claim)
    return None if recipe is None else recipe.blocks


def candidates(claim: Claim) -> list[Claim]:
    """The named rules that an observation is compared with, each as a claim: those that need just what it is given."""
    if claim.operation == Cast.operation:
        return [Claim(Cast(name), claim.source, claim.format) for name in policies.fitting(claim.format)]
    return [
        Claim(Quantize(name), claim.source, claim.format)
        for name, recipe in recipes.RECIPES.items()
        if claim.format in {d.format for d in recipe.destinations} and set(recipe.inputs) == set(claim.inputs)
    ]


@dataclass(frozen=True)
class Standing:
    """What an expectation rests on."""

    authority: str
    evidence: Evidence
    breaks: str  #: what a kernel that differs breaks


def standing_of(claim: Claim) -> Standing:
    """On whose word the expectation of a claim rests."""
    contract = claim.contract
    if isinstance(contract, Convert):
        known = catalogue.resolve(contract.conversion)
        breaks = "a specification that it claims" if known.evidence == "specification" else "its own claim"
        return Standing(f"{known.name}: {known.source}", known.evidence, breaks)
    if isinstance(contract, Matmul):
        product = products.resolve(contract.product)
        breaks = "a specification that it claims" if product.evidence == "specification" else "its own claim"
        if (kept := multiplying_of(claim).accumulator).grade in DISPUTED:
            return Standing(f"{product.name}: {product.source}; sums: {kept.about}", "document", breaks)
        return Standing(f"{product.name}: {product.source}", product.evidence, breaks)
    if isinstance(contract, WideOp):
        wide = resolve_wide(contract.wide, f"claim {claim}")
        return Standing(f"{wide.name}: {wide.source}", wide.evidence, "its own claim")
    if isinstance(contract, OfCache):
        cache = caches.resolve(contract.cache)
        return Standing(f"{cache.name}: {cache.source}", "source", "its own claim")
    if isinstance(contract, Cast) and isinstance(contract.policy, str):
        named = policies.policy_named(contract.policy)
        breaks = "a specification that it claims" if named.evidence == "specification" else "its own claim"
        return Standing(f"{named.name}: {named.authority}", named.evidence, breaks)
    recipe = recipe_of(claim)
    if recipe is not None and recipes.RECIPES.get(recipe.name) == recipe:
        breaks = "a specification that it claims" if recipe.evidence == "specification" else "its own claim"
        return Standing(f"{recipe.name}: {recipe.source}", recipe.evidence, breaks)
    return Standing("the kernel's own contract, given as data", "measured", "its own claim")
