"""Faults of converters of checkpoints: what was doubled, turned, swizzled or requantized, and what was not."""

from __future__ import annotations

import numpy as np

from narrowgauge.contracts.coded import Coded, Input
from narrowgauge.contracts.conversion import FIRST, Step
from narrowgauge.reference.convert.converting import Converting
from narrowgauge.reference.fast_codec import to_float32
from narrowgauge.reference.faults.conversion_edits import (
    ConversionEdit,
    both,
    first,
    gives,
    giving_buffer,
    instead,
    matrix,
    step,
    taking_buffer,
    twice,
    where,
    without,
)
from narrowgauge.reference.faults.fault import ConversionFault

_DOUBLES = (step("times", "scale"), step("plus", "scale"))


def _swaps_less(pair: str) -> ConversionEdit:
    """One code of a table is forgotten."""

    def less(found: Step) -> tuple[Step, ...]:
        name, buffer, pairs = found
        return ((name, buffer, " ".join(p for p in str(pairs).split() if p.split(":")[0] not in pair.split())),)

    return instead(step("swap", FIRST), less)


def _times(factor: float) -> ConversionEdit:
    """The scale that is given is so many times the right one."""

    def changed(value: Coded, _: Input) -> Coded:
        with np.errstate(all="ignore"):
            number = to_float32(value) * np.float32(factor)
        return Coded("float32", number.view(np.uint32))

    return where(_gives_float32("scale"), giving_buffer("scale", changed))


def _gives_float32(name: str):  # type: ignore[no-untyped-def]
    return lambda c: any(h.name == name and h.format == "float32" for h in c.conversion.gives)


def _is_requantized(converting: Converting) -> bool:
    return any(name == "quantized" for name, *_ in converting.conversion.steps)


def _keeps_format(converting: Converting) -> bool:
    return converting.source == converting.format


def _as_it_came(value: Coded, x: Input) -> Coded:
    return Coded(value.format, x.data)


def _through(format_name: str) -> ConversionEdit:
    def narrowed(found: Step) -> tuple[Step, ...]:
        return ((*found[:2], format_name, *found[3:]),)

    return where(_is_requantized, instead(step("values"), narrowed))


FAULTS: tuple[ConversionFault, ...] = (
    ConversionFault(
        "convert.scale_not_doubled", "SCALE-NOT-DOUBLED",
        first(without(step("times", "scale")), without(step("plus", "scale"))),
        "every weight is half of what it was (twice, on the way back)",
        "codes moved between OCP and FNUZ stand for half or twice as much, and the scale was kept",
        ("vllm#47201", "sglang#35111"),
    ),
    ConversionFault(
        "convert.scale_doubled_twice", "SCALE-DOUBLED-TWICE",
        first(twice(step("times", "scale")), twice(step("plus", "scale"))),
        "every weight is twice what it was",
        "the scale was doubled by the loader and again after it",
        (),
    ),
    ConversionFault(
        "convert.input_scale_not_doubled", "INPUT-SCALE",
        without(step("times", "input_scale")),
        "activations are clipped at half their range",
        "weights' scales were doubled for FNUZ and the static activation scale was not",
        ("vllm#47201",),
    ),
    ConversionFault(
        "convert.negative_zero_kept", "NEGATIVE-ZERO",
        _swaps_less("80"),
        "weights that were -0 are NaN, and whatever they meet",
        "byte 0x80, -0 in OCP and the NaN of FNUZ, was kept",
        ("vllm#47201",),
    ),
    ConversionFault(
        "convert.nan_lost", "NAN-LOST",
        _swaps_less("7f ff"),
        "a corrupt weight becomes ±240 and nothing shows it",
        "bytes 0x7F and 0xFF, NaN in OCP, are ±240 in FNUZ",
        (),
    ),
    ConversionFault(
        "convert.last_shard_scale", "LAST-SHARD",
        instead(step("largest"), lambda s: (("last", *s[1:]),)),
        "shards with larger scales are clipped",
        "the scale of the last fused shard is taken for all",
        (),
    ),
    ConversionFault(
        "convert.smallest_scale", "SMALLEST",
        instead(step("largest"), lambda s: (("smallest", *s[1:]),)),
        "shards with larger scales are clipped",
        "fused shards get the smallest scale, not the largest",
        (),
    ),
    ConversionFault(
        "convert.codes_not_requantized", "NOT-REQUANTIZED",
        where(both(_is_requantized, gives("scale"), _keeps_format), giving_buffer(FIRST, _as_it_came)),
        "weights are off by the ratio of the scales, up to 2 for powers of two",
        "the scale was changed and the codes were kept",
        ("transformers#47030", "sglang#28662"),
    ),
    ConversionFault(
        "convert.through_float16", "THROUGH-FLOAT16",
        _through("float16"),
        "weights beyond 65,504 are infinite, and small ones lose bits",
        "numbers pass through float16 between the two quantizations",
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
        "convert.not_reciprocal", "NOT-RECIPROCAL",
        without(step("reciprocal")),
        "every weight is off by the square of the global scale, 10^9 times",
        "a divisor was taken for a multiplier",
        ("modular#6600",),
    ),
    ConversionFault(
        "convert.scale_transposed", "SCALE-TRANSPOSED",
        taking_buffer("scale", matrix(lambda m: m.T if m.shape[0] == m.shape[1] else m)),
        "blocks get the scales of other blocks",
        "the matrix of scales is read as its transpose",
        (),
    ),
)  # fmt: skip
