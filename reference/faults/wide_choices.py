"""Faults of operations that weigh and choose: ``wide.*``. Softmax, samplers, routers."""

from __future__ import annotations

from narrowgauge.reference.faults.fault import WideFault
from narrowgauge.reference.faults.wide_edits import (
    Steps,
    after,
    at_first,
    at_last,
    before,
    both,
    gives,
    has,
    instead,
    lacks,
    operand,
    step,
    steps,
    then,
    where,
    wider_than,
    without,
)

_SUM, _EXP, _SHARE = step("sum", "total", "e"), step("exp"), step("over", "y", "e", "total")
_TOP = step("top")
_CAP, _MASK = step("soft_cap", "s"), step("masked")


def _swapped(old: Steps) -> Steps:
    """The mask, and then the cap."""
    cap = next((s for s in old if _CAP(s)), None)
    mask = next((s for s in old if _MASK(s)), None)
    if cap is None or mask is None:
        return old
    rest = tuple(s for s in old if s not in (cap, mask))
    return (("masked", "s", cap[2], mask[3]), ("soft_cap", "s", "s", cap[3]), *rest)


#: a token, and shares of a sum, do not show by what all numbers of their row were divided
_SHOWS_SHARES = both(lacks("top", "token"), lacks("sum", "total", "weights"))
_SOFTMAXES = (
    WideFault(
        "wide.largest_not_taken_off", "EXP-OVERFLOW",
        without(step("below_largest")),
        "rows with a logit above 88 are NaN; all others are right",
        "exp of the logits themselves, which float32 does not hold above 88.7",
        (),
    ),
    WideFault(
        "wide.summed_in_bfloat16", "NARROW-SUM",
        where(_SHOWS_SHARES, instead(_SUM, lambda s: (("sum_in", *s[1:], "bfloat16"),))),
        "shares of long rows add up to more than 1: a sum of 4,096 ones stops at 256",
        "the powers are summed in bfloat16, one after the other",
        (),
    ),
    WideFault(
        "wide.summed_in_float16", "NARROW-SUM",
        where(_SHOWS_SHARES, instead(_SUM, lambda s: (("sum_in", *s[1:], "float16"),))),
        "shares of long rows add up to more than 1: a sum of 4,096 ones stops at 2,048",
        "the powers are summed in float16, one after the other",
        (),
    ),
    WideFault(
        "wide.base_2_for_e", "BASE-2",
        instead(_EXP, lambda s: (("exp2", *s[1:]),)),
        "all shares lie closer together",
        "2 is raised to the scores, without the factor log2 e",
        (),
    ),
    WideFault(
        "wide.logarithm_to_base_2", "BASE-2",
        instead(step("log"), lambda s: (("log2", *s[1:]),)),
        "log probabilities of a row are all off by the same number",
        "the logarithm of the sum is that to base 2",
        (),
    ),
    WideFault(
        "wide.powers_in_16_bits", "NARROW-SHARE",
        after(_EXP, ("rounded", "e", "e", "bfloat16")),
        "shares are off by up to one part in 256",
        "powers are rounded to bfloat16 before they are summed and divided",
        (),
    ),
    WideFault(
        "wide.not_divided_by_the_sum", "NOT-NORMALISED",
        where(_SHOWS_SHARES, instead(_SHARE, lambda s: (("copy", "y", "e"),))),
        "the largest share of every row is 1",
        "the powers are not divided by their sum",
        (),
    ),
    WideFault(
        "wide.capped_after_the_mask", "SOFT-CAP",
        steps(_swapped),
        "what is masked has a share: attention leaks from padding and from the future",
        "the cap makes a number of the mask's -infinity",
        (),
    ),
    WideFault(
        "wide.mask_forgotten", "MASK",
        without(_MASK),
        "what stands behind the end of a sequence has a share",
        "columns beyond the length are not masked",
        (),
    ),
    WideFault(
        "wide.mask_one_further", "MASK",
        before(_MASK, ("longer", "lengths", "lengths", 1.0)),
        "one column too many has a share",
        "the mask compares with ≤ where < is right",
        (),
    ),
)  # fmt: skip

_SAMPLERS = (
    WideFault(
        "wide.last_of_equal_ones", "TIE",
        operand(step("top", "token"), 5, "highest"),
        "another token where logits are equal",
        "of equal ones the last is taken",
        (),
    ),
    WideFault(
        "wide.logits_in_float16", "NARROW-LOGITS",
        where(both(wider_than("float16"), has("top", "token")), at_first(("rounded", "x", "x", "float16"))),
        "logits that were apart are equal, and those beyond 65,504 infinite",
        "logits are converted to float16 before the largest is sought",
        (),
    ),
    WideFault(
        "wide.temperature_ignored", "TEMPERATURE",
        instead(step("over", "s", "x", "temperature"), lambda s: (("copy", "s", "x"),)),
        "all requests are sampled at temperature 1",
        "logits are not divided by the temperature",
        (),
    ),
    WideFault(
        "wide.temperature_multiplied", "TEMPERATURE",
        instead(step("over", "s", "x", "temperature"), lambda s: (("times", *s[1:]),)),
        "a high temperature gives the safest tokens",
        "logits are multiplied by the temperature",
        (),
    ),
    WideFault(
        "wide.noise_ignored", "NOISE",
        instead(step("over", "race"), lambda s: (("copy", "race", "y"),)),
        "sampling is greedy",
        "shares are not divided by the noise",
        (),
    ),
    WideFault(
        "wide.noise_multiplied", "NOISE",
        instead(step("over", "race"), lambda s: (("times", *s[1:]),)),
        "tokens are not drawn by their shares: those of large noise win",
        "shares are multiplied by the noise, and not divided",
        (),
    ),
    WideFault(
        "wide.shares_sampled_in_16_bits", "NARROW-SHARE",
        before(step("over", "race"), ("rounded", "y", "y", "bfloat16")),
        "another token where two lie close together",
        "shares are rounded to bfloat16 before the draw",
        (),
    ),
)  # fmt: skip

_ROUTED = gives("weights")
_RENORMALISES = has("sum", "total", "weights")
_ROUTERS = (
    WideFault(
        "wide.not_renormalised", "RENORMALISED",
        then(without(step("sum", "total", "weights")), without(step("over", "weights", "weights"))),
        "what comes out of the experts is too small, by what the others' shares are",
        "the chosen shares are not divided by their sum",
        (),
    ),
    WideFault(
        "wide.renormalised", "RENORMALISED",
        where(both(_ROUTED, lambda w: not _RENORMALISES(w), has("over", "y")),
              at_last(("sum", "total", "weights"), ("over", "weights", "weights", "total"))),
        "what comes out of the experts is too large",
        "the chosen shares are divided by their sum, or softmax comes after the choice, where shares of all are wanted",
        (),
    ),
    WideFault(
        "wide.last_of_equal_experts", "TIE",
        where(_ROUTED, operand(step("top", "experts", "weights"), 5, "highest")),
        "other experts where logits are equal",
        "of equal ones the higher index stands first",
        (),
    ),
    WideFault(
        "wide.shares_chosen_in_16_bits", "NARROW-SHARE",
        where(both(_ROUTED, has("over", "y")), after(step("over", "y"), ("rounded", "y", "y", "bfloat16"))),
        "other experts where shares lie close together",
        "shares are rounded to bfloat16 before the choice",
        (),
    ),
    WideFault(
        "wide.weights_in_16_bits", "NARROW-SHARE",
        where(_ROUTED, at_last(("rounded", "weights", "weights", "bfloat16"))),
        "weights of experts are off by up to one part in 256",
        "weights are rounded to bfloat16, and called float32",
        (),
    ),
    WideFault(
        "wide.bias_in_the_weights", "ROUTER-BIAS",
        where(has("add_near", "chosen"), instead(_TOP, lambda s: ((*s[:6], "chosen", *s[7:]),))),
        "experts weigh what only their choice should",
        "weights are taken from the scores with their bias",
        (),
    ),
    WideFault(
        "wide.bias_ignored", "ROUTER-BIAS",
        instead(step("add_near", "chosen"), lambda s: (("copy", "chosen", "y"),)),
        "the load of experts is not balanced as it was in training",
        "the correction bias is not added before the choice",
        (),
    ),
    WideFault(
        "wide.factor_forgotten", "ROUTER-FACTOR",
        without(step("times", "weights")),
        "what comes out of the experts is too small, by one factor for all",
        "weights are not multiplied by the routed scaling factor",
        (),
    ),
    WideFault(
        "wide.softmax_for_sigmoid", "ROUTER-SCORE",
        instead(step("sigmoid", "y", "x"), lambda s: (
            ("copy", "s", "x"), ("below_largest", "s", "s"), ("exp", "e", "s"), ("sum", "total", "e"),
            ("over", "y", "e", "total"),
        )),
        "other experts where the bias decides, and other weights",
        "scores are a softmax's",
        (),
    ),
)  # fmt: skip

FAULTS = (*_SOFTMAXES, *_SAMPLERS, *_ROUTERS)
