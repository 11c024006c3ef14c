"""What each fault of a quantizer makes of a small matrix: numbers by hand, from the words of the fault.

A probe is a recipe, rows of a matrix (padded with zeros), and single outputs with the value that the fault gives. Rows
are chosen so that scales are powers of two, and codes exact, wherever the fault itself does not forbid it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim

#: recipes of the probes: name, destination, columns
TOKEN = ("vllm.fp8_per_token_dynamic", "float8_e4m3fn", 4)  # amax / 448, at least 1 / (448 * 512); x / scale
CTA = ("sglang.fp8_per_token_cta", "float8_e4m3fn", 4)  # amax / 448; x * (1 / scale)
GROUP = ("sglang.fp8_group", "float8_e4m3fn", 512)  # amax of 128, at least 1e-10, * (1 / 448); x * (448 / amax)
TENSOR = ("sglang.fp8_per_tensor_dynamic", "float8_e4m3fn", 4)
OCP = ("ocp.mxfp8_e4m3", "float8_e4m3fn", 128)  # amax of 32 * 2^-8, rounded down
NVIDIA = ("nvidia.mxfp8_e4m3", "float8_e4m3fn", 128)  # amax of 32 / 448, rounded up
FP4 = ("ocp.mxfp4", "float4_e2m1fn", 32)
EVEN = ("quark.mxfp4_even", "float4_e2m1fn", 32)
NVFP4 = ("nvidia.nvfp4_divisor", "float4_e2m1fn", 32)  # 2688 / amax of all; amax of 16 / 6 * that
INT8 = ("vllm.int8_per_token_dynamic", "int8", 4)  # amax / 127; x * (127 / amax)
HALF = ("compressed_tensors.int8_channel", "int8", 4)  # amax / 127.5
AZP = ("vllm.int8_per_token_dynamic_azp", "int8", 4)  # (max - min) / 255; -128 - min / scale, rounded
MXINT8 = ("ocp.mxint8", "int8", 32)
NATIVE = ("vllm.fp8_native_token", "float8_e4m3fn", 4)
TRITON = ("sglang.fp8_group_triton_row_major", "float8_e4m3fn", 128)

Recipe = tuple[str, str, int]
NAN, INF = float("nan"), float("inf")
F32 = np.float32
#: four groups of 128, each with its largest magnitude first: scales 1, 2, 4, 8, and 16 to 128 below
_EIGHT = [[448.0 * 2 ** (4 * row + group) * (at == 0) for group in range(4) for at in range(128)] for row in range(2)]
#: a group whose largest magnitude stands in its second half
_LATE = [[*[224.0] * 64, 448.0, *[320.0] * 63]]


def blocks(each: int, *amaxes: float) -> list[float]:
    """A row of blocks, of which the first element is the only one that is not zero."""
    return [value for amax in amaxes for value in (amax, *[0.0] * (each - 1))]


@dataclass(frozen=True)
class Probe:
    """``want``: of an output, at an index, the value that the fault gives there."""

    fault: str
    recipe: Recipe
    rows: Sequence[Sequence[float]]
    want: dict[tuple[str, int, int], float]

    @property
    def claim(self) -> Claim:
        return Claim.parse(f"quantize/{self.recipe[0]}/float32/{self.recipe[1]}")

    @property
    def x(self) -> Coded:
        columns = max(self.recipe[2], *(len(row) for row in self.rows))
        matrix = np.array([[*row, *[0.0] * (columns - len(row))] for row in self.rows], np.float32)
        return Coded("float32", matrix.view(np.uint32))


def codes(**at: float) -> dict[tuple[str, int, int], float]:
    """``c0_1``: the value of the code in row 0, column 1; ``s0_1`` of the scale, ``z``, ``g`` likewise."""
    names = {"c": "codes", "s": "scale", "z": "zero_point", "g": "global_scale"}
    return {(names[k[0]], *map(int, k[1:].split("_"))): v for k, v in at.items()}  # type: ignore[misc]


def _p(fault: str, recipe: Recipe, rows: Sequence[Sequence[float]], **at: float) -> Probe:
    return Probe(fault, recipe, rows, codes(**at))


_TWO = [[896.0, 96.0]]  #: scale 2
_MX = [blocks(32, 448.0, 672.0, 448.0, 448.0)]  #: over 448: 1, 1.5, 1, 1
#: the tensor's scale is 2, the first block's 12 / 6 * 2 = 4; so 4 becomes 4 * 2 / 4 = 2
_LEVELS = [[12.0, 4.0, *[0.0] * 14, 1344.0]]

PROBES = (
    # --- scales
    _p("scale.inverted", CTA, _TWO, s0_0=0.5, c0_1=48),
    _p("scale.unity", CTA, _TWO, s0_0=1, c0_1=48),
    _p("scale.squared", CTA, _TWO, s0_0=4, c0_1=48),
    _p("scale.reciprocal_multiplied", CTA, [[3.0]], s0_0=float(F32(3) * (F32(1) / F32(448)))),
    _p("scale.divided_by_the_bound", GROUP, [[7.3]], s0_0=float(F32(7.3) / F32(448))),
    _p("scale.reciprocal_of_encode", CTA, [[0.7], [1e-37]], s0_0=float(F32(1) / (F32(448) / F32(0.7))), s1_0=0),
    _p("scale.minimum_missing", TOKEN, [[0.0]], s0_0=0, c0_0=448),  # fmin drops the NaN of 0 / 0
    _p("scale.minimum_too_large", TOKEN, [[2.0**-20]], s0_0=float(F32(1e-4))),
    _p("scale.minimum_too_small", TOKEN, [[0.0]], s0_0=float(F32(1e-12))),
    _p("scale.amax_in_bfloat16", CTA, [[449.0]], s0_0=1, c0_0=448),  # 449 lies between 448 and 450, and 448 is even
    _p("scale.amax_in_float16", CTA, [[70000.0, 7.0]], s0_0=INF, c0_1=0),
    _p("scale.amax_without_magnitude", CTA, [[-896.0, 448.0]], s0_0=1, c0_0=-448, c0_1=448),
    _p("scale.rounded_to_bfloat16", CTA, [[449.0, 1.0625]], s0_0=1, c0_1=1),  # by 449 / 448 it is 1.0601: 1.125 is far
    _p("scale.stored_in_bfloat16", CTA, [[449.0, 449.0 / 2]], s0_0=1, c0_0=448, c0_1=224),
    _p("scale.codes_not_requantized", NVIDIA, [[300.0]], s0_0=1, c0_0=448),
    _p("scale.codes_not_requantized", CTA, [[300.0]], s0_0=1, c0_0=448),
    # 101 / (300 / 448) is 150.8, whose code is 144; that is 96.4, whose code by 1 is 96; right is 104
    _p("scale.quantized_twice", NVIDIA, [[300.0, 101.0]], s0_0=1, c0_1=96),
    _p("scale.written_in_another_format", OCP, [[256.0]], s0_0=2.0 ** (0x38 - 127)),
    _p("scale.overflow_to_nan", NVFP4, [blocks(16, 3.0, 0.0)], s0_1=NAN),
    _p("zero.block_of_one", NVFP4, [blocks(16, 3.0, 0.0)], s0_1=448),
    # --- elements
    _p("element.not_scaled", CTA, _TWO, s0_0=2, c0_1=96),
    _p("element.scaled_twice", CTA, _TWO, s0_0=2, c0_1=24),
    _p("element.multiplied_for_divided", CTA, _TWO, s0_0=2, c0_1=192),
    _p("element.nan_to_lower_bound", TOKEN, [[448.0, NAN]], c0_1=-448, s0_0=1),
    _p("element.nan_to_upper_bound", TRITON, [[448.0, NAN]], c0_1=448, s0_0=1),
    _p("element.nan_kept", TOKEN, [[448.0, NAN]], c0_1=NAN, s0_0=1),
    _p("element.clamp_missing", TOKEN, [[INF]], c0_0=NAN, s0_0=INF),
    # --- zero and NaN
    _p("zero.guard_missing", NVFP4, [blocks(16, 6.0, 0.0)], s0_1=0, c0_16=6),  # e2m1 has no NaN: it is the largest
    _p("zero.scale_of_one", CTA, [[0.0]], s0_0=1),
    _p("zero.reciprocal_flushed", CTA, [[448.0 * 2.0**-127, 2.0**-127]], s0_0=2.0**-127, c0_1=448),  # right is 1
    _p("nan.dropped_by_amax", OCP, [[1.0, NAN, 2.0]], s0_0=2.0**-7, c0_0=128, c0_1=NAN),
    _p("nan.kept_by_amax", CTA, [[1.0, NAN]], s0_0=NAN, c0_0=448),
    _p("nan.becomes_the_minimum", NATIVE, [[1.0, NAN]], s0_0=float(F32(1) / (F32(448) * F32(512))), c0_0=448),
    # --- two levels
    _p("global.left_out", NVFP4, _LEVELS, g0_0=2, s0_0=2, c0_0=6, c0_1=2),
    _p("global.left_out_of_scales", NVFP4, _LEVELS, g0_0=2, s0_0=2, c0_0=6, c0_1=4),
    _p("global.left_out_of_codes", NVFP4, _LEVELS, g0_0=2, s0_0=4, c0_0=3, c0_1=1),
    _p("global.inverted", NVFP4, _LEVELS, g0_0=2, s0_0=1, c0_0=6, c0_1=2),
    _p("global.applied_twice", NVFP4, _LEVELS, g0_0=2, s0_0=8, c0_0=6, c0_1=2),
    _p("global.stored_inverted", NVFP4, _LEVELS, g0_0=0.5, s0_0=4, c0_0=6, c0_1=2),
    _p("global.smallest_scale_raised", NVFP4, [blocks(16, 6.0, 0.0)], s0_1=2.0**-9, c0_16=0),
    # --- granularity: the scales are 1, 2, 4, 8 and 16, 32, 64, 128
    _p("granularity.whole_tensor", GROUP, _EIGHT, s0_0=128, s1_3=128, c0_0=3.5, c1_384=448),
    _p("granularity.whole_row", GROUP, _EIGHT, s0_0=8, s1_0=128, c0_0=56, c0_384=448),
    _p("granularity.twice_as_wide", GROUP, _EIGHT, s0_0=2, s0_1=2, s0_2=8, c0_0=224, c0_128=448),
    _p("granularity.in_halves", GROUP, _LATE, s0_0=0.5, c0_0=448, c0_64=448, c0_65=320),
    _p("granularity.half_of_the_block", GROUP, _LATE, s0_0=0.5, c0_0=448, c0_65=448),
    _p("granularity.part_of_the_tensor", TENSOR, [[896.0, 448.0], [448.0, 0.0]], s0_0=1, c0_0=448),
    _p("granularity.first_scale_for_all", GROUP, [blocks(128, 448.0, 224.0)], s0_1=0.5, c0_0=448, c0_128=224),
    _p("granularity.first_scale_for_all", CTA, [[448.0], [224.0]], s1_0=0.5, c1_0=224),
    _p("granularity.first_of_two", GROUP, [blocks(128, 448.0, 224.0, 56.0, 28.0)], s0_1=0.5, c0_128=224, c0_384=224),
    _p("granularity.scale_of_the_row_before", CTA, [[448.0], [224.0], [28.0]], s1_0=0.5, c1_0=224, c2_0=56),
    _p(
        "granularity.scale_of_the_block_before",
        GROUP,
        [blocks(128, 448.0, 224.0, 28.0)],
        s0_1=0.5,
        c0_128=224,
        c0_256=56,
    ),
    _p("granularity.stored_one_later", GROUP, _EIGHT, s0_0=128, s0_1=1, s1_0=8, c0_128=448),
    _p("granularity.stored_by_columns", GROUP, _EIGHT, s0_1=16, s0_2=2, s1_0=4, s1_3=128, c0_128=448),
    _p("granularity.largest_stored", CTA, [[448.0], [896.0]], s0_0=2, s1_0=2, c0_0=448),
    # --- tails: 33 columns are one vector of 32 and one more; the next power of two is 64
    _p("tail.left_out_of_amax", CTA, [[448.0, *[0.0] * 31, 896.0]], s0_0=1, c0_32=448),
    _p("tail.reads_the_next_row", CTA, [[448.0, *[0.0] * 32], [1.0, 896.0, *[0.0] * 30, 9e9]], s0_0=2, c0_0=224),
    _p("tail.columns_not_quantized", CTA, [[448.0, *[0.0] * 30, 7.0, 448.0]], s0_0=1, c0_31=7, c0_32=0),
    _p("tail.rows_not_quantized", CTA, [[448.0]] * 33, s31_0=1, c31_0=448, s32_0=0, c32_0=0),
    _p("tail.last_scale_missing", CTA, [[448.0], [448.0]], s0_0=1, s1_0=0, c1_0=448),
    _p("tail.last_scale_missing", GROUP, _EIGHT, s0_2=4, s0_3=0, s1_3=0, c0_384=448),
    _p("tail.spills_into_the_next_row", CTA, [[*[448.0] * 33]] * 2, c0_0=448, c1_30=0, c1_31=448),
    # --- powers of two
    _p("e8m0.rounded_down", NVIDIA, [[300.0]], s0_0=0.5, c0_0=448),
    _p("e8m0.rounded_up", OCP, [[257.0]], s0_0=2),
    _p("e8m0.rounded_to_nearest", NVIDIA, [[4.8046875, 4.00390625]], s0_0=2.0**-7, c0_0=448, c0_1=448),
    _p("e8m0.ties_to_even", NVIDIA, [blocks(32, 672.0, 1344.0)], s0_0=2, s0_1=2, c0_32=448),
    _p("e8m0.rule_of_ocp", EVEN, [[1.75]], s0_0=2.0**-2, c0_0=6),
    _p("e8m0.rule_of_nvidia", FP4, [[6.5], [6.0]], s0_0=2, c0_0=3, s1_0=1),
    _p("e8m0.rule_of_quark", FP4, [[1.75], [6.5], [7.0]], s0_0=0.5, s1_0=1, s2_0=2),
    _p("e8m0.exponent_of_elements_left_out", OCP, [[256.0]], s0_0=256, c0_0=1),
    _p("e8m0.one_higher", OCP, [[256.0], [NAN]], s0_0=2, c0_0=256, s1_0=NAN),
    _p("e8m0.one_lower", OCP, [[256.0], [0.0]], s0_0=0.5, c0_0=256, s1_0=2.0**-127),
    _p("e8m0.read_by_a_shift", OCP, [[0.0], [1.0, NAN]], s0_0=2.0**-127, c0_0=NAN, c1_0=0),
    _p("e8m0.fraction_leaks", NVIDIA, _MX, s0_0=NAN, s0_1=2, s0_2=1, s0_3=1),
    # --- integers
    _p("integer.half_of_the_range", INT8, [[127.5, -127.5]], s0_0=1, c0_0=127, c0_1=-128),
    _p("integer.largest_code", HALF, [[127.0]], s0_0=1, c0_0=127),
    _p("integer.lowest_code", INT8, [[128.0, -128.0]], s0_0=1, c0_0=127, c0_1=-128),
    _p("integer.lowest_reached", MXINT8, [[-1.9999, 1.0]], s0_0=1, c0_0=-128, c0_1=64),
    _p("integer.unsigned_written", INT8, [[127.0, 0.0, -1.0]], s0_0=1, c0_0=-1, c0_1=-128, c0_2=127),
    _p("integer.zero_point_negated", AZP, [[255.0, 100.0, -0.0]], z0_0=-128, c0_1=127, c0_2=127),
    _p("integer.zero_point_stored_negated", AZP, [[255.0, 100.0]], z0_0=128, c0_1=-28),
    _p("integer.zero_point_one_higher", AZP, [[255.0, 100.0]], z0_0=-127, c0_0=127, c0_1=-27),
    _p("integer.zero_point_left_out", AZP, [[255.0, 100.0]], z0_0=-128, c0_0=127, c0_1=100),
    _p("integer.zero_point_before_rounding", AZP, [[254.0, -1.0, 0.5]], z0_0=-127, c0_2=-126),
    _p("integer.zero_point_after_clamp", AZP, [[255.0, 200.0]], z0_0=-128, c0_1=-1),
    _p("integer.zero_point_of_256_steps", AZP, [[256.0, 1.0]], s0_0=1, c0_1=-127, c0_0=127),
)
