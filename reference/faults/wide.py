"""Faults of operations that must be wide: ``wide.*``. Norms and residuals."""

from __future__ import annotations

from narrowgauge.contracts.wide import Held
from narrowgauge.reference.faults.fault import WideFault
from narrowgauge.reference.faults.wide_edits import (
    after,
    at_last,
    before,
    both,
    gives,
    has,
    instead,
    lacks,
    step,
    takes,
    then,
    where,
    wider_than,
    without,
)
from narrowgauge.reference.wide.catalogue import EPSILON
from narrowgauge.reference.wide.widening import Widening

_MEAN, _PLUS, _WEIGH = step("square_mean"), step("plus", "mean"), step("times", "y", "y", "weight")
_NORMS = has("square_mean")

_SUMS = (
    WideFault(
        "wide.squares_summed_in_bfloat16", "NARROW-SUM",
        instead(_MEAN, lambda s: (("square_mean_in", *s[1:], "bfloat16"),)),
        "rows are too large: a sum of 4,096 ones stops at 256, and the row is four times what it should be",
        "the squares are summed in bfloat16, one after the other, and what is below half a unit is lost",
        (),
    ),
    WideFault(
        "wide.squares_in_float16", "SQUARE-OVERFLOW",
        instead(_MEAN, lambda s: (("square_mean_of_narrow", *s[1:], "float16"),)),
        "rows with an element above 255 are zeros, or NaN in that element; small elements do not count",
        "x is squared in float16, where 256² is infinite, and 1 / √∞ is 0",
        (),
    ),
    WideFault(
        "wide.mean_in_float16", "SQUARE-OVERFLOW",
        after(_MEAN, ("rounded", "mean", "mean", "float16")),
        "rows of large elements are zeros, and rows of small ones too large",
        "the mean of the squares is kept in float16: above 65,504 it is infinite, and 1 / √∞ is 0",
        (),
    ),
    WideFault(
        "wide.mean_in_bfloat16", "NARROW-SUM",
        after(_MEAN, ("rounded", "mean", "mean", "bfloat16")),
        "each row is off by up to one part in 512, all of its elements alike",
        "the mean of the squares is rounded to bfloat16",
        (),
    ),
    WideFault(
        "wide.mean_over_padded_columns", "WRONG-COUNT",
        after(_MEAN, ("scaled_mean", "mean", "mean", "padded")),
        "rows are too large where the columns are no power of two; right where they are",
        "the sum is divided by the columns of the block, with its padding",
        (),
    ),
    WideFault(
        "wide.sum_for_mean", "WRONG-COUNT",
        after(_MEAN, ("scaled_mean", "mean", "mean", "whole")),
        "rows are too small by the root of their length",
        "the sum of the squares was not divided by their number",
        (),
    ),
    WideFault(
        "wide.last_column_not_squared", "TAIL-DROPPED",
        instead(_MEAN, lambda s: (("square_mean_but_last", *s[1:]),)),
        "rows whose last element is large are too large",
        "the loop over columns ends before the last one",
        (),
    ),
    WideFault(
        "wide.mean_taken_off", "LAYER-NORM",
        where(_NORMS, before(_MEAN, ("centred", "x", "x"))),
        "rows are moved and stretched; right where their mean is 0",
        "the mean of the row is taken off, as LayerNorm does",
        (),
    ),
)  # fmt: skip

_EPSILONS = (
    WideFault(
        "wide.epsilon_missing", "EPSILON",
        without(_PLUS),
        "a row of zeros is NaN, and rows of small elements are too large",
        "nothing is added to the mean of the squares",
        (),
    ),
    WideFault(
        "wide.epsilon_outside_the_root", "EPSILON",
        then(without(_PLUS), instead(step("rsqrt"), lambda s: (("root_then_plus", *s[1:], EPSILON),))),
        "rows of small elements are too large",
        "ε is added to the root, and not under it",
        (),
    ),
    WideFault(
        "wide.epsilon_of_1e_5", "EPSILON",
        instead(_PLUS, lambda s: ((*s[:3], 1e-5),)),
        "rows of small elements are too small",
        "ε is 1e-5, a default of another model",
        (),
    ),
)  # fmt: skip

_WEIGHTS = (
    WideFault(
        "wide.weight_missing", "WEIGHT",
        without(_WEIGH),
        "columns are off by their weights",
        "the normed row is not multiplied by the weight",
        (),
    ),
    WideFault(
        "wide.rounded_before_weight", "ROUNDED-TWICE",
        where(both(lacks("rounded", "y", "y"), wider_than("float32")), before(_WEIGH, ("rounded", "y", "y"))),
        "some elements are off by their last bit",
        "the normed row is rounded to 16 bits before it meets the weight, and again after that",
        (),
    ),
    WideFault(
        "wide.not_rounded_before_weight", "ROUNDED-ONCE",
        where(wider_than("float32"), without(step("rounded", "y", "y"))),
        "some elements are off by their last bit from what the model was trained with",
        "what is rounded twice by contract stays in float32 until the end",
        (),
    ),
    WideFault(
        "wide.one_more_forgotten", "WEIGHT",
        without(step("plus", "weight")),
        "columns are off by their weight over one more than it; nearly all is 0 of a new model",
        "a weight that is stored less one is taken as it is",
        (),
    ),
    WideFault(
        "wide.one_more_than_the_weight", "WEIGHT",
        where(lacks("plus", "weight"), before(_WEIGH, ("plus", "weight", "weight", 1.0))),
        "columns are off by one more than their weight",
        "a weight that is stored whole is taken for one that is stored less one",
        (),
    ),
    WideFault(
        "wide.one_more_in_16_bits", "NARROW-WEIGHT",
        where(wider_than("float32"), after(step("plus", "weight"), ("rounded", "weight", "weight"))),
        "columns are off by up to one part in 512",
        "1 + weight is rounded to the weight's own format",
        (),
    ),
)  # fmt: skip

_ADDED = both(takes("residual"), gives("residual"))
_SUMMED = step("copy", "residual", "x")


def _streams(widening: Widening) -> bool:
    """The residual is float32 whatever x is."""
    return any(held == Held("residual", format="float32") for held in widening.wide.inputs)


_RESIDUALS = (
    WideFault(
        "wide.residual_not_added", "RESIDUAL",
        where(_ADDED, then(without(step("add", "x")), without(_SUMMED))),
        "each layer forgets those before it",
        "the residual is not added, and given back as it came",
        (),
    ),
    WideFault(
        "wide.residual_added_after_norm", "RESIDUAL",
        where(_ADDED, then(
            instead(step("add", "x"), lambda s: ()), without(_SUMMED), at_last(("add_near", "y", "y", "residual")),
            at_last(("copy", "residual", "y")),
        )),
        "activations grow from layer to layer, as of a model that norms behind its layers",
        "x is normed, and the residual added to that",
        (),
    ),
    WideFault(
        "wide.residual_given_back_as_it_came", "RESIDUAL",
        where(_ADDED, without(_SUMMED)),
        "the layer's own part is lost from the next layer on",
        "the sum is normed, and the residual is not written",
        (),
    ),
    WideFault(
        "wide.residual_rounded_before_norm", "NARROW-RESIDUAL",
        where(
            both(_ADDED, lacks("rounded", "x"), wider_than("float32")),
            after(step("add", "x"), ("rounded", "x", "x")),
        ),
        "some elements are off by their last bit; of a float32 residual the lower bits are gone in every layer",
        "the sum is made in the 16 bits of the tensors",
        (),
    ),
    WideFault(
        "wide.residual_not_rounded_before_norm", "WIDE-RESIDUAL",
        where(wider_than("float32"), without(step("rounded", "x", "x"))),
        "some elements are off by their last bit from what two kernels gave",
        "the sum is normed before it is rounded",
        (),
    ),
    WideFault(
        "wide.residual_taken_in_16_bits", "NARROW-RESIDUAL",
        where(
            both(_streams, wider_than("float32")), before(step("add", "x"), ("rounded", "residual", "residual"))
        ),
        "the residual stream loses its lower bits in every layer",
        "a float32 residual is rounded to the format of x before it is added",
        (),
    ),
)  # fmt: skip

FAULTS = (*_SUMS, *_EPSILONS, *_WEIGHTS, *_RESIDUALS)
