"""From what a user sees to the faults that do it. Adding a symptom is one entry of ``SYMPTOMS``."""

from __future__ import annotations

import re

from narrowgauge.reference.symptom import Symptom
from narrowgauge.reference.symptoms_of_caches import OF_CACHES
from narrowgauge.reference.symptoms_of_checkpoints import OF_CHECKPOINTS
from narrowgauge.reference.symptoms_of_products import OF_PRODUCTS
from narrowgauge.reference.symptoms_of_wide import OF_WIDE

SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        "the service answers '!!!!' or nothing at all",
        ("!!!!", "!!!", "empty", "exclamation", "nan", "nothing"),
        "The logits are NaN, and the argmax of NaN is token 0, which in many vocabularies is '!'. One NaN in a hidden "
        "state reaches every position after it through the next product and the softmax.",
        (
            "cast.overflow_to_nan",
            "cast.infinity_to_nan",
            "cast.limit_before_rounding",
            "cast.overflow_above_the_largest",
            "scale.minimum_missing",
            "fnuz.negative_underflow_is_nan",
            "decode.finite_as_nan",
            "e8m0.underflow_is_nan",
            "e8m0.zero_is_nan",
            "e8m0.negative_is_nan",
            "scale.overflow_to_nan",
            "scale.reciprocal_of_encode",
            "scale.amax_in_float16",
            "element.clamp_missing",
            "element.nan_kept",
            "zero.guard_missing",
            "zero.reciprocal_flushed",
            "nan.kept_by_amax",
            "e8m0.read_by_a_shift",
            "e8m0.fraction_leaks",
            "integer.zero_point_one_higher",
        ),
        "Judge the quantizer and the cast of the layer where the first NaN appears; ask what its overflow policy is.",
    ),
    Symptom(
        "values are half or twice what they should be",
        ("half", "twice", "double", "factor 2", "factor two", "x2", "1/2"),
        "FNUZ and OCP codes of one value differ by one exponent step: of the 256 codes of e4m3, 252 read as the "
        "other format are off by exactly two (246 of e5m2), 0 stays, the rest swap NaN, -0, infinity and the largest "
        "values. If only some values are off, an exponent "
        "step was lost in rounding, or the scale of their block is another power of two.",
        (
            "fnuz.ocp_codes_written",
            "fnuz.ocp_codes_with_nan_sign",
            "fnuz.ocp_codes_repaired",
            "fnuz.ocp_codes_of_clamped",
            "fnuz.fnuz_codes_written",
            "fnuz.read_as_ocp",
            "fnuz.ocp_read_as_fnuz",
            "cast.carry_lost",
            "cast.subnormals_halved",
            "e8m0.lowest_binade_up",
            "e8m0.ties_to_even",
            "e8m0.log2_in_float32",
            "e8m0.rounded_log2",
            "e8m0.one_higher",
            "e8m0.one_lower",
            "e8m0.rule_of_quark",
            "scale.amax_in_bfloat16",
            "read.exponent_one_too_low",
            "read.exponent_one_too_high",
        ),
        "Find where the buffer's format is recorded and who reads it; run the suite with -m fnuz.",
    ),
    Symptom(
        "fluent text that is nonsense",
        ("garbage", "nonsense", "gibberish", "fluent", "repetition", "repeats"),
        "Magnitudes are wrong by a constant or a scale does not belong to its data; cosine similarity does not see it.",
        (
            "scale.inverted",
            "scale.unity",
            "fnuz.ocp_codes_written",
            "fnuz.fnuz_codes_written",
            "fnuz.read_as_ocp",
            "fnuz.ocp_read_as_fnuz",
            "cast.e4m3_and_e5m2_confused",
            "cast.overflow_wraps",
            "cast.magnitude_of_negative",
            "cast.sign_lost",
            "e8m0.negative_to_smallest",
            "scale.squared",
            "scale.written_in_another_format",
            "scale.codes_not_requantized",
            "element.scaled_twice",
            "element.multiplied_for_divided",
            "global.inverted",
            "global.stored_inverted",
            "integer.unsigned_written",
            "read.scale_ignored",
            "read.scale_inverted",
            "read.scale_twice",
            "read.global_ignored",
            "read.global_inverted",
            "read.global_twice",
            "layout.nibbles_swapped",
            "layout.planar_as_pairs",
            "layout.pairs_as_planar",
            "layout.six_bits_otherwise",
            "layout.awq_order_lost",
            "layout.awq_order_backwards",
            "layout.transposed",
        ),
        "Compare scales with amax / 448 row by row; give the kernel rows of known, different magnitude.",
    ),
    Symptom(
        "negative numbers become positive",
        ("negative number", "become positive", "sign is lost", "lose their sign", "absolute value"),
        "The sign was dropped before the cast, or the format has none and the cast took the magnitude.",
        ("cast.magnitude_of_negative",),
        "Judge the cast on the case 'every_code' of a 16-bit source, which has each value with both signs.",
    ),
    Symptom(
        "small values are gone",
        ("zero", "zeros", "vanish", "underflow", "flush", "small values", "sparse", "negative zero"),
        "Values below the smallest normal, or below half of the smallest subnormal times the scale, became zero, or a "
        "zero lost its sign.",
        (
            "cast.subnormals_flushed",
            "cast.subnormals_flushed_before_rounding",
            "cast.subnormals_flushed_without_sign",
            "cast.source_subnormals_flushed",
            "decode.scale_code_0_is_zero",
            "cast.nan_to_zero",
            "cast.negative_zero_lost",
            "cast.exact_negative_zero_lost",
            "scale.unity",
            "scale.minimum_too_large",
            "scale.minimum_too_small",
            "element.not_scaled",
            "zero.scale_of_one",
            "zero.block_of_one",
            "global.left_out",
            "global.left_out_of_scales",
            "global.left_out_of_codes",
            "global.applied_twice",
            "global.smallest_scale_raised",
            "granularity.whole_tensor",
            "granularity.whole_row",
            "granularity.twice_as_wide",
            "e8m0.exponent_of_elements_left_out",
        ),
        "Judge the cast on the case 'edges'; look whether the scale in use is 1.0.",
    ),
    Symptom(
        "accuracy drops a little and nothing is obviously wrong",
        ("accuracy", "perplexity", "slightly", "drop", "worse", "gsm8k", "off by one", "ulp"),
        "One code in a few dozen is its neighbour: rounding is biased, or happens twice, or the scale is an ulp off.",
        (
            "cast.truncates",
            "cast.ties_away",
            "cast.ties_toward_zero",
            "cast.ties_up",
            "cast.ties_away_in_subnormals",
            "cast.rounds_up",
            "cast.rounds_down",
            "cast.double_rounding_float16",
            "cast.double_rounding_bfloat16",
            "cast.double_rounding_float32",
            "cast.subnormals_rounded_twice",
            "cast.subnormals_lose_sticky_bits",
            "integer.half_added_in_float32",
            "integer.floor_of_half_added",
            "e8m0.rounded_up",
            "scale.reciprocal_multiplied",
            "scale.divided_by_the_bound",
            "scale.quantized_twice",
            "scale.rounded_to_bfloat16",
            "scale.stored_in_bfloat16",
            "element.by_reciprocal",
            "element.divided",
            "element.rounding_left_out",
            "e8m0.rule_of_nvidia",
            "integer.half_of_the_range",
            "integer.largest_code",
            "integer.zero_point_before_rounding",
            "integer.lowest_reached",
            "read.scale_rounded_to_bfloat16",
            "read.scale_rounded_to_float16",
        ),
        "Random data hides ties; judge on the structured cases and compare codes, not floats.",
    ),
    Symptom(
        "the largest values are cut off",
        ("clip", "clipped", "saturate", "saturates", "plateau", "cut off", "448", "240", "224", "outlier"),
        "Finite overflow became the largest number, or values were clamped to the largest one of another format, or "
        "its bound was used to make the scale.",
        (
            "cast.overflow_saturates",
            "cast.infinity_saturates",
            "cast.clamped_to_57344",
            "cast.clamped_to_448",
            "cast.clamped_to_240",
            "cast.clamped_to_224",
            "cast.clamped_to_30",
            "integer.lowest_left_out",
            "e8m0.rounded_down",
            "e8m0.rounded_to_nearest",
            "e8m0.fraction_masked",
            "scale.448_for_fnuz",
            "scale.format_maximum_for_224",
            "scale.amax_without_magnitude",
            "nan.becomes_the_minimum",
            "granularity.half_of_the_block",
            "granularity.part_of_the_tensor",
            "e8m0.rule_of_ocp",
            "integer.lowest_code",
            "integer.zero_point_of_256_steps",
            "tail.left_out_of_amax",
        ),
        "Check which maximum the scale was made with: 448 for OCP, 240 or by policy 224 for FNUZ.",
    ),
    Symptom(
        "tiny values come out large",
        ("tiny", "spike", "spikes", "comes out large", "come out large"),
        "A shift count wrapped, or the smallest codes were read by the formula of the others: what should be next to "
        "zero is not.",
        ("cast.shift_modulo_64", "cast.shift_modulo_32", "decode.subnormals_as_normals"),
        "Judge the cast on the case 'stratified', which has every exponent; for a cast that widens, on 'every_code'.",
    ),
    Symptom(
        "a NaN that went in never came out",
        ("nan lost", "nan swallowed", "no nan", "hidden nan", "nan_to_num", "never came out"),
        "A clamp or a maximum returned the number where one operand was NaN: the error goes on as a plausible value.",
        (
            "cast.nan_to_max",
            "cast.nan_to_min",
            "cast.nan_to_signed_max",
            "cast.nan_to_zero",
            "cast.nan_by_its_bits",
            "decode.specials_as_numbers",
            "element.nan_to_upper_bound",
            "element.nan_to_lower_bound",
            "nan.dropped_by_amax",
        ),
        "Look at the order of fmin and fmax before the cast, and at what the amax reduction does with NaN.",
    ),
    Symptom(
        "some rows, groups or blocks are off, each by a factor of its own",
        ("some rows", "some groups", "some blocks", "group", "per token", "neighbour", "inflated", "1.25"),
        "Codes and scales do not belong together: a block is read, or was made, with another block's scale. Uniform "
        "scales hide it completely, and so do tensors of one row or one group.",
        (
            "granularity.in_halves",
            "granularity.first_scale_for_all",
            "granularity.first_of_two",
            "granularity.scale_of_the_row_before",
            "granularity.scale_of_the_block_before",
            "granularity.stored_one_later",
            "granularity.stored_by_columns",
            "granularity.largest_stored",
            "scale.codes_not_requantized",
            "scale.stored_in_bfloat16",
            "read.scale_of_the_block_before",
            "read.scale_of_the_row_before",
            "read.first_scale_for_all",
            "layout.swizzle_forgotten",
            "layout.swizzle_twice",
            "layout.row_major_scales",
            "layout.stride_not_aligned",
            "layout.bytes_reversed",
        ),
        "Give the kernel rows and groups of distinct magnitudes, powers of two: the scales that come back are the map.",
    ),
    Symptom(
        "only the last rows or columns are wrong, or the first of each row",
        ("tail", "last row", "last column", "odd size", "multiple of", "padding", "2880"),
        "A tile is wider than what is left: a load that is not masked brings foreign values into the scale, a store "
        "that is not masked runs into the next row, or the rest is left out.",
        (
            "tail.left_out_of_amax",
            "tail.reads_the_next_row",
            "tail.columns_not_quantized",
            "tail.rows_not_quantized",
            "tail.last_scale_missing",
            "tail.spills_into_the_next_row",
        ),
        "Judge the quantizer at sizes that its tiles do not divide: the case 'rows_131'.",
    ),
    Symptom(
        "integer weights or activations are shifted",
        ("shifted", "zero point", "asymmetric", "azp", "offset", "gptq", "awq"),
        "The zero point is of another convention: its sign, one more or less, or when it is added.",
        (
            "integer.zero_point_negated",
            "integer.zero_point_stored_negated",
            "integer.zero_point_one_higher",
            "integer.zero_point_left_out",
            "integer.zero_point_before_rounding",
            "integer.zero_point_after_clamp",
            "integer.zero_point_of_256_steps",
            "integer.unsigned_written",
            "read.zero_point_ignored",
            "read.zero_point_added",
            "layout.zero_one_higher",
            "layout.zero_one_lower",
            "layout.zero_two_higher",
            "layout.zero_two_lower",
        ),
        "Give the kernel rows that are all positive, and all negative: the codes at the ends of the range tell.",
    ),
    *OF_CACHES,
    *OF_CHECKPOINTS,
    *OF_PRODUCTS,
    *OF_WIDE,
)


def matching(text: str) -> list[Symptom]:
    """Symptoms that a user's words may mean, best first."""
    asked = text.lower().strip()
    scored = [(_score(s, asked), s) for s in SYMPTOMS]
    return [s for score, s in sorted(scored, key=lambda pair: -pair[0]) if score]


def _score(symptom: Symptom, asked: str) -> int:
    """Letters of the symptom's words in what was typed, so that "nan swallowed" outweighs "nan"; 1 for a part."""
    typed = sum(len(word) for word in symptom.words if _begins_in(word, asked))
    return typed or int(any(_is_part(asked, word) for word in symptom.words))


def _begins_in(word: str, asked: str) -> bool:
    """Whether a word begins in a text, where a word can begin: "nan" does not in "finance", "drop" does in "drops"."""
    start = r"(?<![\w.])" if word[0].isalnum() else ""
    return re.search(start + re.escape(word), asked) is not None


def _is_part(asked: str, word: str) -> bool:
    return (len(asked) > 2 and asked in word) or (asked != "" and set(asked) == set(word))
