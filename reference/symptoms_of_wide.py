"""Symptoms of operations that must stay wide: from what a user sees to the faults that do it."""

from __future__ import annotations

from narrowgauge.reference.symptom import Symptom

_NEXT = "Judge the operation by itself (WideOp), or before its quantizer (Then): docs/wide.md has each, and its faults."


def _of(*names: str) -> tuple[str, ...]:
    return tuple(f"wide.{name}" for name in names)


OF_WIDE: tuple[Symptom, ...] = (
    Symptom(
        "a norm whose rows are of another size",
        ("norm whose rows", "rmsnorm", "rms norm", "layernorm", "variance", "epsilon", "rows too large"),
        "Squares were summed in too few bits, or overflowed float16 (an element above 255 is enough); the mean is over "
        "another count; the epsilon or the weight is not where it belongs.",
        _of(
            "squares_summed_in_bfloat16", "squares_in_float16", "mean_in_float16", "mean_in_bfloat16",
            "mean_over_padded_columns", "sum_for_mean", "last_column_not_squared", "mean_taken_off", "epsilon_missing",
            "epsilon_outside_the_root", "epsilon_of_1e_5", "weight_missing", "one_more_forgotten",
            "one_more_than_the_weight", "one_more_in_16_bits", "rounded_before_weight", "not_rounded_before_weight",
        ),
        _NEXT,
    ),
    Symptom(
        "worse from layer to layer",
        ("layer to layer", "residual", "residual stream", "deep layers", "grows with depth"),
        "The residual stream is what all layers add to: rounded to 16 bits, or added in another place, it loses some "
        "in every layer.",
        _of(
            "residual_not_added", "residual_added_after_norm", "residual_given_back_as_it_came",
            "residual_rounded_before_norm", "residual_not_rounded_before_norm", "residual_taken_in_16_bits",
            "gate_and_up_swapped", "sigmoid_for_silu", "activation_rounded", "taken_in_bfloat16",
            "result_through_bfloat16", "nan_dropped", "infinity_clamped",
        ),
        _NEXT,
    ),
    Symptom(
        "another token, or the same one always",
        ("another token", "different token", "greedy", "argmax", "logits tie", "tied logits", "temperature",
         "sampling"),
        "Logits that were apart are equal once they are in 16 bits, and who comes first is chosen; or temperature and "
        "noise do not do what they should.",
        _of(
            "last_of_equal_ones", "logits_in_float16", "temperature_ignored", "temperature_multiplied", "noise_ignored",
            "noise_multiplied", "shares_sampled_in_16_bits", "cap_forgotten", "cap_not_multiplied", "cap_twice",
            "capped_in_16_bits",
        ),
        _NEXT,
    ),
    Symptom(
        "shares of a softmax that do not add up to 1",
        ("softmax", "add up to 1", "log prob", "logprobs", "masked", "leaks"),
        "The largest logit is not taken off, the sum is kept in too few bits or left out, the base is another, or the "
        "mask and the cap are in the wrong order.",
        _of(
            "largest_not_taken_off", "summed_in_bfloat16", "summed_in_float16", "base_2_for_e", "logarithm_to_base_2",
            "powers_in_16_bits", "not_divided_by_the_sum", "capped_after_the_mask", "mask_forgotten",
            "mask_one_further",
        ),
        _NEXT,
    ),
    Symptom(
        "fluent at first, then lost",
        ("then lost", "fluent at first", "rope", "rotary", "long context is worse", "positions"),
        "Positions are turned by another angle: pairs of the other kind, the wrong way, or cosines of 16 bits, "
        "which are worse the further a token stands.",
        _of(
            "pairs_of_the_other_kind", "turned_backwards", "cos_and_sin_swapped", "cos_in_16_bits",
            "rotated_in_16_bits",
        ),
        _NEXT,
    ),
    Symptom(
        "other experts, or experts of other weight",
        ("other experts", "router", "moe", "top-k", "topk", "renormalise", "expert load"),
        "Scores tie or part in 16 bits, a bias meant for the choice is in the weights, or the chosen weights are not "
        "divided by their sum.",
        _of(
            "not_renormalised", "renormalised", "last_of_equal_experts", "shares_chosen_in_16_bits",
            "weights_in_16_bits", "bias_in_the_weights", "bias_ignored", "factor_forgotten", "softmax_for_sigmoid",
        ),
        _NEXT,
    ),
)  # fmt: skip
