"""Faults of operations that must be wide: ``wide.*``. Activations and rotations, and what any of them may lose."""

from __future__ import annotations

from narrowgauge.reference.faults.fault import WideFault
from narrowgauge.reference.faults.wide_edits import (
    after,
    at_first,
    at_last,
    before,
    both,
    gives,
    instead,
    lacks,
    operand,
    step,
    then,
    where,
    wider_than,
)
from narrowgauge.reference.wide.widening import Widening

_ACTIVATIONS = (
    WideFault(
        "wide.gate_and_up_swapped", "HALVES-SWAPPED",
        then(operand(step("part", "gate"), 3, 1), operand(step("part", "up"), 3, 0)),
        "nothing that a gate opens is what it should be",
        "gate is taken from the second half, up from the first",
        (),
    ),
    WideFault(
        "wide.sigmoid_for_silu", "ACTIVATION",
        instead(step("silu"), lambda s: (("sigmoid", *s[1:]),)),
        "every element misses its gate",
        "the sigmoid of the gate is not multiplied by the gate",
        (),
    ),
    WideFault(
        "wide.activation_rounded", "ROUNDED-TWICE",
        where(both(lacks("rounded", "y"), wider_than("float32")), after(step("silu"), ("rounded", "y", "y"))),
        "some elements are off by their last bit",
        "the activation is rounded before it meets up, and again after that",
        (),
    ),
    WideFault(
        "wide.cap_forgotten", "SOFT-CAP",
        instead(step("soft_cap"), lambda s: (("copy", *s[1:3]),)),
        "large logits stay large: the model is surer than it was trained to be",
        "logits are not capped",
        (),
    ),
    WideFault(
        "wide.cap_not_multiplied", "SOFT-CAP",
        instead(step("soft_cap"), lambda s: (s, ("times", s[1], s[1], 1 / float(s[3])))),
        "all logits lie between -1 and 1",
        "tanh(x / cap) is not multiplied by the cap again",
        (),
    ),
    WideFault(
        "wide.cap_twice", "SOFT-CAP",
        instead(step("soft_cap"), lambda s: (s, (s[0], s[1], s[1], s[3]))),
        "logits are smaller than they should be, the large ones by a quarter",
        "logits are capped by two kernels, one after the other",
        (),
    ),
    WideFault(
        "wide.capped_in_16_bits", "NARROW-LOGITS",
        where(wider_than("bfloat16"), before(step("soft_cap"), ("rounded", "x", "x", "bfloat16"))),
        "logits that were apart are equal",
        "logits are rounded to bfloat16 before they are capped",
        (),
    ),
)  # fmt: skip

_ROTATED = step("rotated")
_ROTATIONS = (
    WideFault(
        "wide.pairs_of_the_other_kind", "ROPE-PAIRS",
        instead(_ROTATED, lambda s: ((*s[:-1], "pairs" if s[-1] == "halves" else "halves"),)),
        "positions mean nothing: fluent at first, then lost",
        "neighbours are turned where the halves of a row are pairs, or the other way round",
        (),
    ),
    WideFault(
        "wide.turned_backwards", "ROPE-SIGN",
        before(_ROTATED, ("negated", "sin", "sin")),
        "positions count backwards",
        "the sign of the sine is wrong",
        (),
    ),
    WideFault(
        "wide.cos_and_sin_swapped", "ROPE-SIGN",
        instead(_ROTATED, lambda s: ((*s[:3], s[4], s[3], s[5]),)),
        "positions mean nothing",
        "the halves of the cache of cosines and sines are swapped",
        (),
    ),
    WideFault(
        "wide.cos_in_16_bits", "NARROW-ANGLE",
        before(_ROTATED, ("rounded", "cos", "cos", "bfloat16"), ("rounded", "sin", "sin", "bfloat16")),
        "elements are off by up to one part in 256; long contexts are worse",
        "cosines and sines are kept in bfloat16",
        (),
    ),
    WideFault(
        "wide.rotated_in_16_bits", "NARROW-PRODUCT",
        where(wider_than("float32"), instead(_ROTATED, lambda s: (("rotated_in", *s[1:]),))),
        "elements are off by some of their last bits, more where two products cancel",
        "the products and their sum are made in the format of x",
        (),
    ),
)  # fmt: skip


def _comes_wider(widening: Widening) -> bool:
    return widening.format != "bfloat16"


_ENDS = (
    WideFault(
        "wide.nan_dropped", "NAN-LOST",
        at_first(("without_nan", "x", "x")),
        "a NaN is gone, and what it says of the layer before with it",
        "NaN in x is taken for 0",
        (),
    ),
    WideFault(
        "wide.infinity_clamped", "INFINITY-LOST",
        at_first(("clamped", "x", "x", 65504.0)),
        "an infinity becomes an ordinary number",
        "x is clamped to the largest number of float16",
        (),
    ),
    WideFault(
        "wide.taken_in_bfloat16", "NARROW-INPUT",
        where(wider_than("bfloat16"), at_first(("rounded", "x", "x", "bfloat16"))),
        "all is as of a narrower input: logits that were apart are equal",
        "x is converted to bfloat16 before anything is computed",
        (),
    ),
    WideFault(
        "wide.result_through_bfloat16", "ROUNDED-TWICE",
        where(both(gives("y"), _comes_wider), at_last(("rounded", "y", "y", "bfloat16"))),
        "the lower bits of results are 0",
        "results are rounded to bfloat16 on the way out",
        (),
    ),
)  # fmt: skip

FAULTS = (*_ACTIVATIONS, *_ROTATIONS, *_ENDS)
