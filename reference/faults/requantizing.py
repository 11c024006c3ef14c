"""Faults of converters that read one quantization and write another, and of those that reorder or count."""

from __future__ import annotations

from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import FIRST, Step
from narrowgauge.reference.convert.converting import Buffers, Converting
from narrowgauge.reference.convert.steps import float32, int32, lost, lost_in_rows
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.faults.conversion_edits import (
    ConversionEdit,
    both,
    first,
    gives,
    giving,
    giving_buffer,
    has,
    instead,
    keeps_format,
    matrix,
    step,
    takes,
    taking_buffer,
    where,
    without,
)
from narrowgauge.reference.faults.fault import ConversionFault
from narrowgauge.reference.policies import resolve

#: what a scale that multiplies is called
SCALES = ("scale", "weight_scale", "weight_scale_inv")
_REQUANTIZES, _READS = has("quantized"), has("values")


def _through(format_name: str) -> ConversionEdit:
    return where(_REQUANTIZES, instead(step("values"), lambda s: ((s[0], format_name, *s[2:]),)))


def _as_a_gpu(found: Step) -> tuple[Step, ...]:
    """Only where the scale has a copy of its own: the stored one stays."""
    if len(found) < 3:
        return (found,)
    return (("rounded", found[2], "float16"), (found[0], "float16", found[2]))


def _other_blocks(change: Any) -> ConversionEdit:
    """The scales that come are those of other blocks; the grid keeps its shape, and is read by another size."""

    def edit(converting: Converting) -> Converting | None:
        blocks = converting.conversion.blocks
        return None if blocks.rows in (0, 1) else taking_buffer("scale", matrix(change))(converting)

    return where(_READS, edit)


def _square_transposed(grid: Any) -> Any:
    return grid.T if grid.shape[0] == grid.shape[1] else grid


def _inverse(value: Coded, _: Input) -> Coded:
    with np.errstate(all="ignore"):
        return float32(np.float32(1) / to_float32(value))


def _takes_e8m0(converting: Converting) -> bool:
    return any(h.name == "scale" and h.format == "float8_e8m0fnu" for h in converting.conversion.takes)


def _global_multiplied(outputs: Buffers, x: Input) -> Buffers:
    """Block scales times the global scale that is given, rounded to their format."""
    scale = outputs["scale"]
    with np.errstate(all="ignore"):
        exact = decode_values(scale) * decode_values(outputs["global_scale"])
    value = Coded("float64", np.ascontiguousarray(exact).view(np.uint64))
    return {**outputs, "scale": cast(value, scale.format, resolve("ocp_saturate", scale.format))}


def _last_places(outputs: Buffers, x: Input) -> Buffers:
    """The column of the last of each row, not of the first."""
    found = dict(outputs)
    for name, mask in lost(Coded(x.format, x.data), outputs[FIRST]).items():
        first = f"first_{name}"
        place = decode_values(lost_in_rows(name, mask[:, ::-1])[first])
        found[first] = int32(np.where(place < 0, -1, mask.shape[1] - 1 - place))
    return found


def _counting(name: str, which: Any) -> ConversionEdit:
    def changed(outputs: Buffers, x: Input) -> Buffers:
        mask = which(decode_values(Coded(x.format, x.data)), decode_values(outputs[FIRST]))
        return outputs | lost_in_rows(name, mask)

    return where(gives(name, "int32"), giving(changed))


FAULTS = (
    ConversionFault(
        "convert.codes_not_requantized", "NOT-REQUANTIZED",
        where(
            both(_REQUANTIZES, gives("scale"), keeps_format),
            giving_buffer(FIRST, lambda value, x: Coded(value.format, x.data)),
        ),
        "weights are off by the ratio of old and new scale: up to twice for powers of two",
        "the scale was changed, and the codes were kept",
        ("transformers#47030", "sglang#28662", "sglang#13960"),
    ),
    ConversionFault(
        "convert.through_float16", "THROUGH-FLOAT16",
        _through("float16"),
        "weights beyond 65,504 are infinite, and small ones lose bits",
        "numbers pass through float16 between the two quantizations",
        (),
    ),
    ConversionFault(
        "convert.through_float16_on_a_gpu", "THROUGH-FLOAT16",
        where(_REQUANTIZES, instead(step("values"), _as_a_gpu)),
        "weights beyond 65,504 are infinite, scales below 2^-24 are 0",
        "scale and product pass through float16, as torch does on a GPU with a 0-dimensional scale",
        (),
    ),
    ConversionFault(
        "convert.through_bfloat16", "THROUGH-BFLOAT16",
        _through("bfloat16"),
        "some codes are a step off",
        "numbers pass through bfloat16 between the two quantizations",
        (),
    ),
    ConversionFault(
        "convert.through_float32", "THROUGH-FLOAT32",
        _through("float32"),
        "some codes are a step off what the engine's own converter gives",
        "numbers do not pass through the 16-bit format that the engine's converter has between",
        (),
    ),
    ConversionFault(
        "convert.scale_not_applied", "SCALE",
        where(both(_READS, _REQUANTIZES), instead(step("values"), lambda s: (("unscaled", s[1]),))),
        "relative sizes of blocks are lost",
        "codes were requantized as numbers, without the scale that they had",
        (),
    ),
    ConversionFault(
        "convert.scale_applied_twice", "SCALE",
        where(takes("scale"), instead(step("values"), lambda s: (s, ("scaled_again", *s[1:])))),
        "weights of blocks with small scales vanish",
        "codes were multiplied by their scale two times",
        (),
    ),
    ConversionFault(
        "convert.block_scales_transposed", "BLOCK",
        _other_blocks(_square_transposed),
        "nonsense for square weights alone",
        "the matrix of block scales is read as its transpose",
        ("vllm#44110",),
    ),
    ConversionFault(
        "convert.next_block_scale", "BLOCK",
        _other_blocks(lambda grid: np.roll(grid, -1, axis=1)),
        "every block is off by the ratio of two scales",
        "each block is read under the scale of its neighbour",
        (),
    ),
    ConversionFault(
        "convert.first_block_for_all", "BLOCK",
        _other_blocks(lambda grid: np.broadcast_to(grid[:1, :1], grid.shape) if grid.size else grid),
        "every block but the first is off by the ratio of two scales",
        "the scale of the first block is taken for the whole tensor",
        (),
    ),
    ConversionFault(
        "convert.reciprocal_missing", "GLOBAL",
        without(step("reciprocal")),
        "every weight is off by the square of the global scale, 10^7 to 10^9 times",
        "a divisor was taken for a multiplier, or the reverse",
        ("modular#6600",),
    ),
    ConversionFault(
        "convert.block_scales_times_global", "GLOBAL",
        where(has("reciprocal"), giving(_global_multiplied)),
        "every weight is off by the global scale",
        "the global scale was inverted, and multiplied into the block scales as well",
        (),
    ),
    ConversionFault(
        "convert.byte_taken_for_a_number", "SCALE-BYTE",
        where(_takes_e8m0, instead(step("values"), lambda s: (("as_number", "scale"), s))),
        "blocks are up to 2^120 times too large or too small",
        "the byte of an E8M0 scale was multiplied by as a number",
        (),
    ),
    ConversionFault(
        "convert.e8m0_by_a_shift", "SCALE-BYTE",
        where(_takes_e8m0, instead(step("values"), lambda s: (("by_shift", "scale"), s))),
        "blocks of scale 2^-127 are 0, and those whose scale is NaN infinite",
        "the byte of an E8M0 scale was shifted into the exponent of a float32",
        (),
    ),
    ConversionFault(
        "convert.nearest_exponent", "EXPONENT",
        instead(step("exponent_of"), lambda s: ((*s[:3], "nearest"),)),
        "scales of half the blocks are twice what the library stores",
        "the logarithm was rounded to the nearest, not down",
        (),
    ),
    ConversionFault(
        "convert.bias_not_added", "EXPONENT",
        instead(step("signed_exponent"), lambda s: (("as_e8m0", s[1]),)),
        "every block is off by 2^127, or NaN",
        "signed exponents were taken for biased ones",
        (),
    ),
    ConversionFault(
        "convert.scale_inverted", "SCALE",
        first(*(where(gives(name, "float32"), giving_buffer(name, _inverse)) for name in SCALES)),
        "every weight is off by the square of its scale",
        "the reciprocal of the scale is stored: weight_scale_inv, which is a multiplier, was inverted by its name",
        (),
    ),
    ConversionFault(
        "convert.offset_missing", "OFFSET",
        instead(step("flip", FIRST), lambda s: (("flip", FIRST, 0),)),
        "every weight is off by eight steps",
        "two's complement was packed where the format stores offset binary, or the reverse",
        (),
    ),
    ConversionFault(
        "convert.exponent_one_higher", "EXPONENT",
        instead(step("exponent_of"), lambda s: ((*s[:2], 128),)),
        "every block is twice what it was",
        "exponents were stored with another bias than 127",
        (),
    ),
    ConversionFault(
        "convert.nan_kept_for_infinity", "NAN",
        without(step("infinite_for_nan")),
        "a block whose scale is byte 255 is NaN where the library makes it infinite",
        "byte 255 was read as the NaN that it is by the specification, and not as the library reads it",
        (),
    ),
    ConversionFault(
        "convert.group_index_of_half", "GROUP",
        instead(step("group_index"), lambda s: (("group_index", 64),)),
        "weights beyond the first group get other groups' scales",
        "the group index counts groups of half the size",
        (),
    ),
    ConversionFault(
        "convert.rows_not_parted", "INTERLEAVED",
        where(has("part_rows"), without(step("part_rows"))),
        "gate and up are mixed: fluent nonsense",
        "rows of gate and up, which stand in turn, are taken for two halves",
        (),
    ),
    ConversionFault(
        "convert.scales_not_parted", "INTERLEAVED",
        without(step("part_rows", "scale")),
        "each row gets another row's scales; uniform scales hide it",
        "rows of codes were parted into gate and up, and the rows of scales were not",
        (),
    ),
    ConversionFault(
        "convert.infinities_counted", "COUNT",
        _counting("overflowed", lambda before, after: np.isinf(after)),
        "values that were infinite already count as overflow",
        "what is infinite afterwards is counted, whatever it was",
        (),
    ),
    ConversionFault(
        "convert.not_finite_counted", "COUNT",
        _counting("overflowed", lambda before, after: ~np.isfinite(after)),
        "NaN that was there counts as overflow",
        "what is not finite afterwards is counted, whatever it was",
        (),
    ),
    ConversionFault(
        "convert.zeros_counted", "COUNT",
        _counting("flushed", lambda before, after: after == 0),
        "zeros count as flushed",
        "what is 0 afterwards is counted, whatever it was",
        (),
    ),
    ConversionFault(
        "convert.last_place_for_first", "COUNT",
        where(gives("first_flushed", "int32"), giving(_last_places)),
        "the report points at another element",
        "the last place that is lost is told, not the first",
        (),
    ),
)  # fmt: skip
