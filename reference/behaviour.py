"""A behaviour: a claim with everything looked up, and what is done before and after it.

The reference's own answer is the behaviour of the bare claim. A fault is an edit of a behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Cast, Claim, Quantize
from narrowgauge.contracts.policy import CastPolicy
from narrowgauge.contracts.recipe import Blocks, Evidence, Recipe
from narrowgauge.reference import policies, recipes
from narrowgauge.reference.fast_codec import cast
from narrowgauge.reference.quantize import quantize

Buffers = dict[str, Coded]
#: given the behaviour, what the last cast was given, and its codes: other codes
Patch = Callable[["Behaviour", Coded, Coded], Coded]
#: as ``quantize``: x, recipe, format, last cast, what is given beside x
Quantizer = Callable[[Coded, Recipe, str, Callable[[Coded], Coded], "Buffers | None"], Buffers]


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
    quantizer: Quantizer = quantize  #: what runs the recipe

    def run(self, x: Coded, given: Buffers | None = None) -> Buffers:
        """The outputs for one input tensor, and what a recipe is given beside it."""
        if self.recipe is None:
            outputs = {"codes": self.last_cast(x)}
        else:
            outputs = self.quantizer(x, self.recipe, self.format, self.last_cast, given)
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


def behaviour_of(claim: Claim) -> Behaviour:
    """The behaviour that a claim promises. Raises ``BadInput`` for an observation or what does not fit."""
    contract = claim.contract
    if isinstance(contract, Cast):
        return Behaviour(claim.source, claim.format, policies.resolve(contract.policy, claim.format))
    if isinstance(contract, Quantize):
        recipe = recipes.resolve(contract.recipe)
        policy = policies.resolve(recipe.destination(claim.format).cast, claim.format)
        return Behaviour(claim.source, claim.format, policy, recipe)
    raise BadInput(f"{claim}: an observation promises nothing; there is nothing to expect")


def resolved(claim: Claim) -> Claim:
    """The same claim with its recipe as data, for who has no catalogue. Raises ``BadInput`` for an unknown name."""
    if not isinstance(claim.contract, Quantize):
        return claim
    return replace(claim, contract=Quantize(recipes.resolve(claim.contract.recipe)))


def recipe_of(claim: Claim) -> Recipe | None:
    """The recipe that is claimed; None for a cast or an observation."""
    return recipes.resolve(claim.contract.recipe) if isinstance(claim.contract, Quantize) else None


def blocks_of(claim: Claim) -> Blocks | None:
    """What shares a scale; None for a cast or an observation."""
    recipe = recipe_of(claim)
    return None if recipe is None else recipe.blocks


def candidates(claim: Claim) -> list[Claim]:
    """The named rules that an observation is compared with, each as a claim: those that need nothing beside x."""
    if claim.operation == Cast.operation:
        return [Claim(Cast(name), claim.source, claim.format) for name in policies.fitting(claim.format)]
    return [
        Claim(Quantize(name), claim.source, claim.format)
        for name, recipe in recipes.RECIPES.items()
        if claim.format in {d.format for d in recipe.destinations} and not recipe.inputs
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
    if isinstance(contract, Cast) and isinstance(contract.policy, str):
        named = policies.policy_named(contract.policy)
        breaks = "a specification that it claims" if named.evidence == "specification" else "its own claim"
        return Standing(f"{named.name}: {named.authority}", named.evidence, breaks)
    if isinstance(contract, Quantize) and isinstance(contract.recipe, str):
        recipe = recipes.recipe_named(contract.recipe)
        breaks = "a specification that it claims" if recipe.evidence == "specification" else "its own claim"
        return Standing(f"{recipe.name}: {recipe.source}", recipe.evidence, breaks)
    return Standing("the kernel's own contract, given as data", "measured", "its own claim")
