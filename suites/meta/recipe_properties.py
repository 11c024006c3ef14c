# SPDX-License-Identifier: Apache-2.0
"""What properties a recipe has by its steps: read off them, with what is peculiar to one declared beside its reason.

Nothing here was fitted to what the reference gives; test_recipe_properties.py holds the reference to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.recipe import Destination, Recipe
from narrowgauge.reference.dequantized import code_values, dequantized, multipliers
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.reference.steps import named
from narrowgauge.suites.meta.recipe_scales import GIVEN, GLOBAL, ROUNDING, Bounded, bounded

F64 = npt.NDArray[np.float64]
#: one rounding to float32 is at most this part of the result; twice as much is allowed for, so that products of
#: (1 + U) and what float64 rounds in the comparison itself are covered
U = 2.0**-24
#: recipes that cut toward zero where the others go to the nearest code
CUTTING = {"aiter.int8_triton", "aiter.int8_triton_tensor", "aiter.int8_triton_static", "vllm.int8_group",
           "vllm.int8_group_triton", "sglang.int8_group", "sglang.int8_group_triton"}  # fmt: skip
_HALF_A_CODE = {
    "torchao.int8_row", "torchao.int4_group", "compressed_tensors.int8_channel", "compressed_tensors.int8_tensor",
    "compressed_tensors.int4_group", "compressed_tensors.int4_channel", "gptq.uint4_symmetric",
    "gptq.uint4_symmetric_bf16",
}  # fmt: skip
_EIGHT_BELOW = {"vllm.uint4b8", "vllm.uint4b8_bf16"}
#: quantizing what was dequantized gives other codes, or another scale
NOT_IDEMPOTENT = {
    **dict.fromkeys(CUTTING, "cut toward zero: a whole number that comes back an ulp smaller loses one"),
    **dict.fromkeys(_HALF_A_CODE, "the largest magnitude is 127.5 or 7.5 codes, and comes back as 127 or 8, 7 or 8"),
    "compressed_tensors.mxfp8": "the rule is that of E2M1: from 1.75 on the power is the next, and 448 is 1.75 * 2^8",
}
#: -x gives other numbers than those of x turned round
NOT_SYMMETRIC = {
    **dict.fromkeys(_HALF_A_CODE, "the largest magnitude is 127.5 or 7.5 codes: 127 or 7 above zero, 128 or 8 below"),
    **dict.fromkeys(_EIGHT_BELOW, "7 codes above zero and 8 below"),
}
#: whose largest elements may lie beyond the last code
CLIPPING = (
    _HALF_A_CODE
    | _EIGHT_BELOW
    | {  # the power of two is rounded down: up to twice what it holds
        "ocp.mxfp8_e4m3", "ocp.mxfp8_e5m2", "ocp.mxfp6_e2m3", "ocp.mxfp6_e3m2", "ocp.mxfp4", "ocp.mxint8",
        "torchao.mx_floor", "quark.mx_floor", "quark.mxint8_floor", "microxcaling.mx_nearest", "microxcaling.mx_even",
        "microxcaling.mxint8_nearest", "microxcaling.mxint8_even", "triton_kernels.mxfp8_down",
        "triton_kernels.mxfp4_down", "vllm.triton_kernels_mxfp4_down",
    }
    | {  # to the nearer of two powers, nearly: up to 7 of 6 in E2M1
        "torchao.mx_even_1", "torchao.mx_even_2", "torchao.mx_even_3", "quark.mxfp4_even", "quark.mx_even_2",
        "quark.mx_even_3", "quark.mxint8_even", "vllm.mxfp4_cuda", "vllm.mxfp4_triton", "aiter.mxfp4_triton",
        "sglang.mxfp4_rne", "compressed_tensors.mxfp4", "compressed_tensors.mxfp6",
    }
    | {  # to the nearest number of E4M3: up to 6.4 of 6
        "nvidia.nvfp4_divisor", "nvidia.nvfp4_multiplier", "torchao.nvfp4",
        "torchao.nvfp4_two_levels", "compressed_tensors.nvfp4", "modelopt.nvfp4", "transformer_engine.nvfp4",
    }
)  # fmt: skip
#: whose largest elements take at most the lower half of the last binade: the power of two is that above amax itself
WASTING = {"torchao.mx_ceil", "quark.mx_ceil", "quark.mxint8_ceil"}
#: outside the span of magnitudes that their steps bear, codes are off by more than half a step
ASTRAY = {
    "sglang.fp8_group_ue8m0_float16": "the reciprocal of the scale is rounded to float16: above 65504 it is infinite",
    **dict.fromkeys(
        ("triton_kernels.mxfp8_down", "triton_kernels.mxfp4_down", "vllm.triton_kernels_mxfp4_down",
         "vllm.mxfp4_cuda", "vllm.mxfp4_triton"), "a power below 2^-126 is 0 once its mantissa is cleared",
    ),
    **{name: "2^-127 is stored, or divided by, and 2^-126 the other way" for name in RECIPES
       if name.startswith(("torchao.mx_", "quark.mx"))},
}  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """A recipe at one of its destinations."""

    recipe: Recipe
    destination: Destination

    def __str__(self) -> str:
        return f"{self.recipe.name}-{self.destination.format}"

    # --- read off the steps ------------------------------------------------------------------------------------------

    @cached_property
    def bounded(self) -> dict[str, Bounded]:
        return bounded(self.recipe, self.destination)

    @property
    def reader(self) -> Bounded:
        """What a code is multiplied by."""
        return self.bounded["reader"]

    @cached_property
    def _step_names(self) -> list[tuple[str, tuple[float | str, ...]]]:
        chains = (*dict(self.recipe.steps).values(), self.recipe.element)
        return [named(step) for chain in chains for step in chain[1:]]

    @cached_property
    def slack(self) -> float:
        """The part of x by which all roundings on the way may move it: an element is x times a number that is made of
        the block's, a reader multiplies by another one, and each step of both rounds at most once. A scale of 16 bits
        is stored after elements were divided by it."""
        total = 2 * U  # of the bound's reciprocal, and of what was given
        kept = self.recipe.scale_format
        for name, operands in self._step_names:
            if name == "round" and kept in operands:  # as it is stored: elements and reader have the same
                continue
            total += ROUNDING.get(str(operands[0]), U) if name == "round" else U
        return 2 * total + (ROUNDING[kept] if kept in ("float16", "bfloat16") else 0)

    @cached_property
    def span(self) -> tuple[float, float]:
        """From which to which magnitude of a block every value of the recipe follows it."""
        spans = [value.span for value in self.bounded.values()]
        return max(low for low, _ in spans), min(high for _, high in spans)

    @property
    def floor(self) -> float:
        """The largest magnitude of a block from which on its scale follows it, and below which it stays; or 0."""
        stored = self.bounded["stored"]
        return stored.floor if stored.power == 1 else 0.0

    @property
    def reach(self) -> float | None:
        """The largest number of codes that |x| can be; None where a given number or a zero point decides it."""
        if "zero_point" in self.bounded or not self.reader.between[0]:
            return None
        return 1 / self.reader.between[0]

    @property
    def fill(self) -> float:
        """The least that a block's largest |x| is in codes: what is below it wastes them."""
        return 1 / self.reader.between[1]

    @property
    def top(self) -> float:
        """The largest code, less what stands for 0, on the side where that is less."""
        zero = 8 if self.destination.format == "uint4" else 0
        return min(self.destination.bound, float(self._ladder[-1])) - zero

    # --- runs --------------------------------------------------------------------------------------------------------

    def given(self, k: int = 0) -> dict[str, Coded]:
        out = {}
        for name in self.recipe.inputs:
            if name == "zero_point":
                out[name] = Coded("int32", np.array([[GIVEN[name]]], np.uint32))
            else:
                power = self.bounded[name].power
                number = GLOBAL[power < 0] if name == "global_scale" else GIVEN[name]
                value = np.ldexp(np.float32(number), k * power)
                out[name] = Coded("float32", np.array([[value]], np.float32).view(np.uint32))
        return out

    def run(self, x: npt.NDArray[np.float32], k: int = 0) -> dict[str, Coded]:
        """Quantized, with what is given for data times 2^k."""
        coded = Coded("float32", np.ascontiguousarray(x, np.float32).view(np.uint32))
        return quantize(coded, self.recipe, self.destination.format, given=self.given(k))

    def per_element(self, value: F64, shape: tuple[int, ...]) -> F64:
        """A number of each block as one of each element."""
        rows, columns = self.recipe.blocks.rows or shape[0], self.recipe.blocks.columns or shape[1]
        if value.shape == (1, 1):
            return np.broadcast_to(value, shape)
        return value[np.arange(shape[0])[:, None] // rows, np.arange(shape[1])[None] // columns]

    def step(self, done: dict[str, Coded]) -> F64:
        """What one unit of a code stands for, of each element: what the reader multiplies by."""
        return self.per_element(multipliers(done, self.recipe, self.given()), done["codes"].shape)

    def numbers(self, done: dict[str, Coded]) -> F64:
        """Codes as numbers, less what stands for 0."""
        return code_values(done, self.recipe, self.given())

    def values(self, done: dict[str, Coded]) -> F64:
        """What a reader gets, exact but for the quotient by a global scale."""
        return dequantized(done, self.recipe, self.given())

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

    def astray(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        """Elements that are further from what their code stands for than half a step, and roundings."""
        done = self.run(x)
        low, high = self.cells(done)
        step, zero = self.step(done), decode_values(done["codes"]) - self.numbers(done)
        # what is added for the zero point is rounded too: to no more than 2^-24 of 256 codes
        room = self.slack * (np.abs(x) + (256 * step if zero.any() else 0))
        with np.errstate(invalid="ignore"):
            held: npt.NDArray[np.bool_] = (x >= (low - zero) * step - room) & (x <= (high - zero) * step + room)
        return ~held


SUBJECTS = tuple(Subject(recipe, d) for recipe in RECIPES.values() for d in recipe.destinations)
