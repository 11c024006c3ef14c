"""NVFP4, four over six: each block of 16 is quantized twice, its largest magnitude at 6 and at 4; the closer one stays.

Near 6 the codes of E2M1 are 2 apart, near 4 they are 1 apart. Source: vLLM, nvfp4_kv_cache_kernels.cu
(cvt_warp_fp16_to_fp4_4over6), around the catalogue's vllm.nvfp4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.recipe import Destination, Recipe
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.quantize import block_values, quantize, statistics
from narrowgauge.reference.recipes import recipe_named
from narrowgauge.reference.steps import STEPS

F32 = npt.NDArray[np.float32]
FORMAT = "float4_e2m1fn"
SIX = recipe_named("vllm.nvfp4")
#: the same steps, with the largest magnitude at 4
FOUR = replace(SIX, name="vllm.nvfp4_at_4", destinations=(Destination(FORMAT, 4.0, "ptx_satfinite"),))


def quantize_4over6(x: Coded, given: Mapping[str, Coded], threads: int = 1) -> dict[str, Coded]:
    """``codes`` float4_e2m1fn [rows, columns], ``scale`` float8_e4m3fn [rows, columns / 16]: the better candidate's.

    ``given`` has the global scale, [1, 1]. A block takes 4 where its error is smaller, and 6 where the two are equal
    or an error is NaN. ``threads`` (1 or 2) add up a block: the order of the sum is theirs, see ``errors``. Raises
    ``BadInput`` as ``quantize`` does.
    """
    six, four = (quantize(x, recipe, FORMAT, given=given) for recipe in (SIX, FOUR))
    takes4 = errors(x, four["codes"], FOUR, given, threads) < errors(x, six["codes"], SIX, given, threads)
    wide = np.repeat(takes4, SIX.blocks.columns, axis=1)
    return {
        "codes": Coded(FORMAT, np.where(wide, four["codes"].data, six["codes"].data)),
        "scale": Coded(six["scale"].format, np.where(takes4, four["scale"].data, six["scale"].data)),
    }


def errors(x: Coded, codes: Coded, recipe: Recipe, given: Mapping[str, Coded], threads: int = 1) -> F32:
    """The squared error of each block as the kernel adds it up, float32 [rows, columns / 16].

    A code stands for its value times the approximate reciprocal of what x was multiplied by; a block whose multiplier
    is 0 for nothing. Pairs of squares are added, and the pairs one after another, each step rounded: one thread holds
    all 16 elements, or two hold 8 each and add their sums. A compiler that fuses products and sums gives other last
    bits, and where two errors are as close as that another choice; this is the order that the source states.
    """
    if threads not in (1, 2):
        raise BadInput(f"four over six: {threads} threads to a block; expected 1 or 2")
    matrix = to_float32(x)
    with np.errstate(all="ignore"):
        encode = block_values(statistics(matrix, recipe), recipe, FORMAT, x.format, given)["encode"]
        multiplier = np.where(encode == 0, np.float32(0), STEPS["recip_approx"](encode)).astype(np.float32)
        blocks = matrix.reshape(*encode.shape, -1)
        difference = to_float32(codes).reshape(blocks.shape) * multiplier[..., None] - blocks
        squares = np.square(difference).reshape(*encode.shape, threads, -1, 2)
        pairs = squares[..., 0] + squares[..., 1]
        total = np.zeros(pairs.shape[:-1], np.float32)
        for i in range(pairs.shape[-1]):
            total = total + pairs[..., i]
        return np.asarray(total.sum(axis=-1, dtype=np.float32) if threads == 2 else total[..., 0], np.float32)
