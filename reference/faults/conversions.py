"""Faults of converters of checkpoints: what was doubled, inverted, requantized, merged, and what was not."""

from __future__ import annotations

from typing import Any

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import FIRST, Step
from narrowgauge.reference.convert.converting import Buffers
from narrowgauge.reference.convert.steps import float32, int32
from narrowgauge.reference.convert.work import WIDTHS
from narrowgauge.reference.fast_codec import cast, decode_values, to_float32
from narrowgauge.reference.faults.conversion_edits import (
    ConversionEdit,
    both,
    first,
    from_format,
    gives,
    giving,
    giving_buffer,
    has,
    instead,
    keeps_format,
    matrix,
    step,
    taking_buffer,
    twice,
    where,
    without,
)
from narrowgauge.reference.faults.fault import ConversionFault
from narrowgauge.reference.policies import resolve

_OCP, _FNUZ = from_format("float8_e4m3fn"), from_format("float8_e4m3fnuz")
_REQUANTIZES, _MERGES = has("quantized"), has("of_rows")


# --- by bytes --------------------------------------------------------------------------------------------------------


def _swaps_less(codes: str) -> ConversionEdit:
    """Some codes of a table are forgotten."""

    def less(found: Step) -> tuple[Step, ...]:
        name, buffer, pairs = found
        return ((name, buffer, " ".join(p for p in str(pairs).split() if p.split(":")[0] not in codes.split())),)

    return instead(step("swap", FIRST), less)


def _times(name: str, factor: float) -> ConversionEdit:
    """What is given is so many times the right one."""

    def changed(value: Coded, _: Input) -> Coded:
        with np.errstate(all="ignore"):
            return float32(to_float32(value) * np.float32(factor))

    return where(gives(name, "float32"), giving_buffer(name, changed))


def _by_value(outputs: Buffers, x: Input) -> Buffers:
    """The codes' own numbers are cast to the other flavour, as if nothing scaled them."""
    fmt = outputs[FIRST].format
    policy = resolve("fnuz_saturate" if fmt.endswith("fnuz") else "ocp_saturate", fmt)
    return {**outputs, FIRST: cast(Coded(x.format, x.data), fmt, policy)}


def _by_value_alone(outputs: Buffers, x: Input) -> Buffers:
    return _by_value(outputs, x) | {name: x.given[name] for name in outputs if name in x.given}


_BY_BYTES = (
    ConversionFault(
        "convert.scale_not_doubled", "SCALE-NOT-DOUBLED",
        first(without(step("times", "scale")), without(step("plus", "scale"))),
        "every weight is half of what it was, or twice on the way back",
        "codes moved between OCP and FNUZ stand for half or twice as much, and the scale was kept",
        ("vllm#47201", "sglang#35111"),
    ),
    ConversionFault(
        "convert.scale_doubled_twice", "SCALE-DOUBLED-TWICE",
        first(twice(step("times", "scale")), twice(step("plus", "scale"))),
        "every weight is twice what it was: a factor of two for each load",
        "the scale was doubled at load, and again when weights were loaded anew",
        ("sglang#28963",),
    ),
    ConversionFault(
        "convert.scale_the_other_way", "SCALE-WRONG-WAY",
        where(has("relabel"), _times("scale", 0.25)),
        "every weight is a quarter of what it was",
        "the scale was halved where it had to be doubled",
        (),
    ),
    ConversionFault(
        "convert.input_scale_not_doubled", "INPUT-SCALE",
        without(step("times", "input_scale")),
        "activations are clipped at half of their range",
        "the scales of weights were doubled for FNUZ and the static scale of activations was not",
        ("sglang#29590",),
    ),
    ConversionFault(
        "convert.negative_zero_kept", "NEGATIVE-ZERO",
        where(_OCP, _swaps_less("80")),
        "weights that were -0 are NaN, and so is every row of outputs that meets one",
        "byte 0x80, which is -0 in OCP and the NaN of FNUZ, was kept",
        (),
    ),
    ConversionFault(
        "convert.nan_lost", "NAN-LOST",
        where(_OCP, _swaps_less("7f ff")),
        "a corrupt weight becomes ±240, and nothing shows it",
        "bytes 0x7F and 0xFF, the NaNs of OCP, are ±240 in FNUZ and were kept",
        (),
    ),
    ConversionFault(
        "convert.negative_nan_lost", "NAN-LOST",
        where(_OCP, _swaps_less("ff")),
        "a corrupt weight becomes -240, and nothing shows it",
        "0x7F alone was known as the NaN of OCP, and 0xFF was kept",
        (),
    ),
    ConversionFault(
        "convert.nan_cleaned", "NAN-LOST",
        where(_OCP, instead(step("swap", FIRST, "80:00 7f:80 ff:80"), lambda s: ((*s[:2], "80:00 7f:00 ff:00"),))),
        "a corrupt weight becomes 0, and nothing shows it",
        "NaN was made 0 with -0",
        (),
    ),
    ConversionFault(
        "convert.exponent_goes_round", "EXPONENT",
        instead(step("plus", "scale"), lambda s: (("round_the_end", *s[1:3]),)),
        "a block whose scale is NaN becomes 2^-127 times its codes",
        "the byte of the exponent was raised without a bound: 255 becomes 0",
        (),
    ),
    ConversionFault(
        "convert.exponent_doubled", "EXPONENT",
        instead(step("plus", "scale"), lambda s: (("times_two", s[1]),)),
        "blocks are NaN or off by powers of two of all sizes",
        "the byte of the exponent was doubled as a number, where one more is twice as much",
        (),
    ),
    ConversionFault(
        "convert.largest_is_nan", "LARGEST-IS-NAN",
        where(_FNUZ, _swaps_less("7f ff")),
        "the largest weights are NaN",
        "bytes 0x7F and 0xFF, ±240 in FNUZ, are the NaNs of OCP and were kept",
        (),
    ),
    ConversionFault(
        "convert.nan_is_zero", "NAN-LOST",
        where(_FNUZ, _swaps_less("80")),
        "a corrupt weight becomes -0, and nothing shows it",
        "byte 0x80, the NaN of FNUZ, is -0 in OCP and was kept",
        (),
    ),
    ConversionFault(
        "convert.exponent_saturates", "NAN-LOST",
        instead(step("plus", "scale", 1, 0, 255), lambda s: ((*s[:4], 254),)),
        "a block whose scale is NaN gets a number",
        "255, the NaN of E8M0, was clamped to 254 with the numbers",
        (),
    ),
    ConversionFault(
        "convert.cast_by_value", "BY-VALUE",
        where(has("relabel"), giving(_by_value_alone)),
        "weights above 240 times the scale are clipped, small ones change",
        "each code was cast by its number to the other flavour, and the scale was kept",
        (),
    ),
    ConversionFault(
        "convert.cast_by_value_and_scaled", "BY-VALUE",
        where(has("relabel"), giving(_by_value)),
        "every weight is twice what it was, and those above 240 times the scale are clipped",
        "each code was cast by its number to the other flavour, and the scale was doubled as for bytes",
        (),
    ),
    ConversionFault(
        "convert.not_converted", "NOT-CONVERTED",
        where(has("relabel"), giving(lambda outputs, x: {
            name: Coded(value.format, (x.data if name == FIRST else x.given[name].data))
            for name, value in outputs.items()
        })),
        "every weight is half of what it was; -0 is NaN",
        "OCP bytes were taken for FNUZ ones, and nothing was done",
        ("vllm#47201",),
    ),
)  # fmt: skip


# --- fused shards ----------------------------------------------------------------------------------------------------


def _of_shard(number: int) -> ConversionEdit:
    """That of one shard in place of the largest."""
    return first(
        instead(step("largest", "scale"), lambda s: (("shard", "scale", number),)),
        instead(step("largest", "global_scale"), lambda s: (("shard", "global_scale", number),)),
    )


def _widths(change: Any) -> ConversionEdit:
    def changed(value: Coded, x: Input) -> Coded:
        rows = change(np.asarray(decode_values(value), np.int64).ravel(), x.shape[0])
        return int32(np.asarray(rows)[:, None])

    return where(_MERGES, taking_buffer(WIDTHS, changed))


def _one_row_more(widths: Any, rows: int) -> Any:
    """Every boundary is a row further down."""
    ends = np.minimum(np.cumsum(widths) + 1, rows)
    ends[-1] = rows
    return np.diff(ends, prepend=0)


def _equal(widths: Any, rows: int) -> Any:
    ends = np.arange(1, len(widths) + 1) * rows // max(1, len(widths))
    return np.diff(ends, prepend=0)


def _read_by_the_first(found: Step) -> tuple[Step, ...]:
    return (("shard", "scale", 0), ("of_one", "scale"), found, ("taken_again", "scale"))


_next = matrix(lambda m: np.roll(m, -1, axis=0))
_SHARDS = (
    ConversionFault(
        "convert.last_shard_for_all", "SHARD",
        _of_shard(-1),
        "shards with larger scales are clipped; the last one is right",
        "the scale of the last fused shard is taken for all",
        (),
    ),
    ConversionFault(
        "convert.first_shard_for_all", "SHARD",
        _of_shard(0),
        "shards with larger scales are clipped; the first one is right",
        "the scale of the first fused shard is taken for all",
        (),
    ),
    ConversionFault(
        "convert.smallest_for_largest", "SHARD",
        first(
            instead(step("largest", "scale"), lambda s: (("smallest", "scale"),)),
            instead(step("largest", "global_scale"), lambda s: (("smallest", "global_scale"),)),
        ),
        "all shards but the smallest are clipped, or off by the ratio of scales",
        "the smallest of the shards' scales is taken; or the largest of their reciprocals",
        (),
    ),
    ConversionFault(
        "convert.next_shard_scale", "SHARD",
        where(_MERGES, taking_buffer("scale", _next)),
        "every shard is off by the ratio of two scales",
        "each shard is read under the scale of the next one",
        (),
    ),
    ConversionFault(
        "convert.previous_shard_scale", "SHARD",
        where(_MERGES, taking_buffer("scale", matrix(lambda m: np.roll(m, 1, axis=0)))),
        "every shard is off by the ratio of two scales",
        "each shard is read under the scale of the one before",
        (),
    ),
    ConversionFault(
        "convert.all_read_by_the_first", "SHARD",
        instead(step("copied", "scale", "own"), _read_by_the_first),
        "every shard but the first is off by the ratio of two scales",
        "all rows are read under the scale of the first shard, and then put under the largest",
        (),
    ),
    ConversionFault(
        "convert.divided_by_its_scale", "SHARD",
        instead(step("copied", "scale", "own"), lambda s: (s, ("reciprocal", "own"))),
        "weights are off by the square of their scale",
        "codes were divided by their scale: weight_scale_inv was taken at its word",
        (),
    ),
    ConversionFault(
        "convert.smallest_global", "SHARD",
        instead(step("one_global"), lambda s: (("one_global", "smallest"),)),
        "block scales of the larger shards saturate",
        "the smallest of the shards' global scales is made the common one",
        (),
    ),
    ConversionFault(
        "convert.rescaled_the_wrong_way", "SHARD",
        instead(step("one_global"), lambda s: (("one_global", "largest", "from"),)),
        "codes of the smaller shards saturate or vanish",
        "block scales were multiplied by common over own global scale",
        (),
    ),
    ConversionFault(
        "convert.shard_boundary_off_by_one", "SHARD",
        _widths(_one_row_more),
        "one row of each shard but the first is off by the ratio of two scales",
        "the boundaries between shards are a row too far down",
        (),
    ),
    ConversionFault(
        "convert.equal_shards", "SHARD",
        _widths(_equal),
        "rows of k and v are off by the ratio of two scales; right where q, k and v are of one size",
        "shards are taken for equal parts of the rows",
        (),
    ),
    ConversionFault(
        "convert.sentinel_taken_for_a_scale", "SHARD",
        without(step("taken_where_one_scale_came")),
        "weights of layers that were fused on disk are garbage",
        "scales that were never loaded, float32's least number, are taken for scales",
        (),
    ),
    ConversionFault(
        "convert.codes_of_shards_kept", "NOT-REQUANTIZED",
        where(both(has("one_global"), keeps_format), giving_buffer(FIRST, lambda v, x: Coded(v.format, x.data))),
        "codes are off by what the rounding of block scales changed",
        "block scales were rescaled to one global scale, and the codes kept",
        (),
    ),
    ConversionFault(
        "convert.block_scales_of_shards_kept", "SHARD",
        where(has("one_global"), giving(lambda outputs, x: {
            **outputs, FIRST: Coded(outputs[FIRST].format, x.data), "scale": x.given["scale"],
        })),
        "every shard but one is off by the ratio of the global scales",
        "one global scale is stored for all shards, and their block scales were not rescaled to it",
        ("vllm#54974", "TensorRT-LLM#14199", "vllm#47972"),
    ),
)  # fmt: skip

FAULTS = (*_BY_BYTES, *_SHARDS)
