# SPDX-License-Identifier: Apache-2.0
"""What properties a recipe has by its steps: read off them, with what is peculiar to one declared beside its reason.

Nothing here was fitted to what the reference gives; test_recipe_properties.py holds the reference to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Chain, Destination, Recipe
from narrowgauge.reference.fast_codec import decode_values, to_float32
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES

F64 = npt.NDArray[np.float64]
#: one rounding to float32 is at most this part of the result; twice as much is allowed for, so that products of
#: (1 + U) and what float64 rounds in the comparison itself are covered
U = 2.0**-24
#: what a code stands for besides its value
UNITS = {"ocp.mxint8": 2.0**-6}
#: what is given beside x: the static recipes then hold to their range on rows of magnitude 2^6 and less
GIVEN = {"scale": 0.6, "global_scale": 16.0, "upper_bound": 3.0, "zero_point": 5}
#: with x times 2^k, what each value beside it becomes 2^(k * n) times. A given global scale takes all of it on itself.
POWERS = {"scale": 1, "upper_bound": 1, "zero_point": 0, "global_scale": -1}
OWN_POWERS: dict[str, dict[str, int]] = {
    # the scale of the tensor follows x, and those of the blocks are parts of it
    "nvidia.nvfp4_divisor": {"scale": 0, "global_scale": -1},
    "nvidia.nvfp4_multiplier": {"scale": 0, "global_scale": 1},
    "vllm.nvfp4": {"scale": 0, "global_scale": -1},
    "vllm.nvfp4_emulated": {"scale": 0, "global_scale": -1},
}
#: recipes that cut toward zero where the others go to the nearest code
CUTTING = ("aiter.int8_triton", "vllm.int8_group", "vllm.int8_group_triton")
#: quantizing what was dequantized gives other codes, or another scale
NOT_IDEMPOTENT = {
    **dict.fromkeys(CUTTING, "cut toward zero: a whole number that comes back an ulp smaller loses one"),
    **{
        f"compressed_tensors.{name}": "the largest magnitude is 127.5 or 7.5 codes, and comes back as 127 or 8, 7 or 8"
        for name in ("int8_channel", "int8_tensor", "int4_group", "int4_channel")
    },
}
#: -x gives other codes than those of x turned round
NOT_SYMMETRIC = {
    **{
        name: "a zero point: one end of the range is -128 or 0, the other 127 or 15"
        for name, recipe in RECIPES.items()
        if "zero_point" in recipe.inputs or "zero_point" in dict(recipe.steps)
    },
    **{
        f"compressed_tensors.{name}": "the largest magnitude is 127.5 or 7.5 codes: 127 above zero, -128 below"
        for name in ("int8_channel", "int8_tensor", "int4_group", "int4_channel")
    },
}
_CEILINGS = ("e8m0_ceil", "e8m0_rceil")
_BY_LOG2 = "exp2_ceil_log2"


@dataclass(frozen=True)
class Subject:
    """A recipe at one of its destinations."""

    recipe: Recipe
    destination: Destination

    def __str__(self) -> str:
        return f"{self.recipe.name}-{self.destination.format}"

    # --- read off the steps ------------------------------------------------------------------------------------------

    @cached_property
    def _chains(self) -> dict[str, Chain]:
        return dict(self.recipe.steps)

    def _steps(self) -> Iterator[tuple[str, tuple[float | str, ...]]]:
        for chain in (*self._chains.values(), self.recipe.element):
            for step in chain[1:]:
                yield (step, ()) if isinstance(step, str) else (str(step[0]), tuple(step[1:]))

    @property
    def slack(self) -> float:
        """The part of x by which all roundings on the way may move it: an element is x times a number that is made of
        the block's, a reader multiplies by another one, and each step of both rounds at most once."""
        total = 2 * U  # of the bound's reciprocal, and of what was given
        for name, operands in self._steps():
            total += {"round": 2.0**-9 if "bfloat16" in operands else 0.0}.get(name, U)
        return 2 * total

    @property
    def power_of_two(self) -> bool:
        """Whether the scale is rounded up to a power of two: then its half may do for what was dequantized."""
        names = {name for name, _ in self._steps()}
        return self.recipe.scale_cast in _CEILINGS or bool(names & {"ceil_pow2", _BY_LOG2})

    @property
    def by_logarithm(self) -> bool:
        """Whether that power is found by a logarithm in float32, which may round down to a whole number."""
        return any(name == _BY_LOG2 for name, _ in self._steps())

    @property
    def floor(self) -> float:
        """The largest magnitude of a block from which on its scale follows it; 0 where it always does.

        A constant that a chain holds a value to, divided by what the value is of the block's magnitude, or of its
        range, which is no smaller where it takes in zero. Below the bound times 2^-127 E8M0 has no scale of its own.
        """
        bound = self.destination.bound
        found = (
            bound * UNITS.get(self.recipe.name, 1.0) * 2.0**-127
            if self.recipe.scale_format == "float8_e8m0fnu"
            else 0.0
        )
        if self.recipe.scale_format == "float8_e4m3fn":  # it ends where that format does: data stay far from there
            return found
        for chain in self._chains.values():
            if chain[0] not in ("amax", "max"):
                continue
            part = 1.0
            for step in chain[1:]:
                name, operand = (step[0], step[1]) if isinstance(step, tuple) else (step, None)
                number = bound if operand == "bound" else operand
                if name == "div" and isinstance(number, float):
                    part /= number
                elif name == "mul":
                    part *= 1 / bound if operand == "1/bound" else float(operand or 0)
                elif name in ("at_least", "at_least_or_nan") and operand != 0.0:
                    least = 1 / (512 * bound) if operand == "minimum" else float(operand or 0)
                    found = max(found, least / part)
                elif name == "rdiv":
                    break
        return found

    @property
    def reach(self) -> float | None:
        """The largest |x| over scale * unit that finite data can have; None where a given number or a zero point
        decides it."""
        recipe, bound = self.recipe, self.destination.bound
        if "zero_point" in self._chains or (recipe.inputs and recipe.scale_format != "float8_e4m3fn"):
            return None
        if recipe.scale_cast == "e8m0_floor":
            chain = self._chains["scale"]
            if chain[1:] and chain[1][0] == "even_pow2":  # from 1.75 * 2^j on the power is 2^(j + 1), a quarter of it
                return 7.0
            return 2.0 / float(chain[1][1]) / UNITS.get(recipe.name, 1.0)  # less than 2 powers, each 2^-emax
        if recipe.scale_format == "float8_e4m3fn":  # rounded to nearest: no more than a 16th of it below
            return bound / (1 - 2.0**-4)
        if self.by_logarithm:  # a whole number below 128 swallows at most half an ulp of it, 2^-18, of the logarithm
            return float(bound * 2.0 ** (2.0**-18))
        return bound

    @property
    def fill(self) -> float:
        """The least that a block's largest |x| over scale * unit is, above the floor: what is below it wastes codes."""
        recipe, bound = self.recipe, self.destination.bound
        if self.power_of_two:  # more than half: half of it would have done
            return float(np.nextafter(bound / 2, bound))
        if recipe.scale_format == "float8_e4m3fn":
            return bound / (1 + 2.0**-4)
        reach = self.reach
        assert reach is not None
        return reach / 2 if recipe.scale_cast == "e8m0_floor" else bound  # a power of two is exact, or half of it

    # --- runs --------------------------------------------------------------------------------------------------------

    def given(self, k: int = 0) -> dict[str, Coded]:
        powers = POWERS | OWN_POWERS.get(self.recipe.name, {})
        out = {}
        for name in self.recipe.inputs:
            if name == "zero_point":
                out[name] = Coded("int32", np.array([[GIVEN[name]]], np.uint32))
            else:
                value = np.ldexp(np.float32(GIVEN[name]), k * powers[name])
                out[name] = Coded("float32", np.array([[value]], np.float32).view(np.uint32))
        return out

    def run(self, x: npt.NDArray[np.float32], k: int = 0) -> dict[str, Coded]:
        """Quantized, with what is given for data times 2^k."""
        coded = Coded("float32", np.ascontiguousarray(x, np.float32).view(np.uint32))
        return quantize(coded, self.recipe, self.destination.format, given=self.given(k))

    def follows(self, name: str) -> int:
        """With x times 2^k, an output is 2^(k * this) times what it was."""
        return (POWERS | OWN_POWERS.get(self.recipe.name, {}))[name]

    def per_element(self, value: F64, shape: tuple[int, ...]) -> F64:
        """A number of each block as one of each element."""
        rows, columns = self.recipe.blocks.rows or shape[0], self.recipe.blocks.columns or shape[1]
        if value.shape == (1, 1):
            return np.broadcast_to(value, shape)
        return value[np.arange(shape[0])[:, None] // rows, np.arange(shape[1])[None] // columns]

    def step(self, done: dict[str, Coded]) -> F64:
        """What one unit of a code stands for, of each element: scale, global scale and unit."""
        outputs = self.given() | done
        shape, name = done["codes"].shape, self.recipe.name
        total = to_float32(outputs["scale"]).astype(np.float64) * UNITS.get(name, 1.0)
        if "global_scale" in outputs and name != "transformer_engine.fp8_delayed":
            factor = to_float32(outputs["global_scale"]).astype(np.float64)
            total = total * factor if name == "nvidia.nvfp4_multiplier" else total / factor
        return self.per_element(total, shape)

    def numbers(self, done: dict[str, Coded]) -> F64:
        """Codes as numbers, less the zero point."""
        codes = decode_values(done["codes"])
        zero = (self.given() | done).get("zero_point")
        return codes if zero is None else codes - self.per_element(decode_values(zero), codes.shape)

    def values(self, done: dict[str, Coded]) -> F64:
        """What a reader gets, exact but for the quotient by a global scale."""
        return self.numbers(done) * self.step(done)

    # --- cells -------------------------------------------------------------------------------------------------------

    @cached_property
    def _ladder(self) -> F64:
        fmt = format_named(self.destination.format)
        codes = decode_values(Coded(fmt.name, np.arange(fmt.code_count).astype(fmt.storage)))
        return np.unique(codes[np.isfinite(codes)])

    def cells(self, done: dict[str, Coded]) -> tuple[F64, F64]:
        """From where to where numbers become each code: half way to its neighbours, or for a cut to the next one
        away from zero. Without end at the ends of the format, and from the bound on."""
        ladder, codes = self._ladder, decode_values(done["codes"])
        at = np.searchsorted(ladder, codes)
        below, above = ladder[np.maximum(at - 1, 0)], ladder[np.minimum(at + 1, ladder.size - 1)]
        if self.recipe.name in CUTTING:
            low, high = np.where(codes > 0, codes, below), np.where(codes < 0, codes, above)
        else:
            low, high = (below + codes) / 2, (codes + above) / 2
        top = min(self.destination.bound, ladder[-1])
        low = np.where((codes == ladder[0]) | (codes <= -top), -np.inf, low)
        return low, np.where((codes == ladder[-1]) | (codes >= top), np.inf, high)


SUBJECTS = tuple(Subject(recipe, d) for recipe in RECIPES.values() for d in recipe.destinations)
