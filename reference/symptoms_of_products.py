"""Symptoms of products of matrices: from what a user sees to the faults that do it."""

from __future__ import annotations

from narrowgauge.reference.symptom import Symptom

_NEXT = "Judge the product (Matmul): exact calls name the mistake; narrowgauge probe says what the accumulator is."
OF_PRODUCTS: tuple[Symptom, ...] = (
    Symptom(
        "a product is too small, or worse the longer K is",
        ("too small", "long k", "larger k", "accumulat", "accumulator", "promotion", "imprecise", "fast accum",
         "use_fast_accum", "14 bits", "13 bits", "fp22", "stops growing", "stops at 256"),
        "Sums are kept in too few bits: fp8 units of Ada and Hopper keep 13, and cut them toward zero, so that sums of "
        "one sign are always too small; float16 stops at 2048 times its least term, bfloat16 at 256 times.",
        (
            "product.accumulated_in_13_bits",
            "product.promotion_missing",
            "product.accumulated_in_float16",
            "product.accumulated_in_bfloat16",
            "product.tile_sums_in_float16",
            "product.tile_sums_in_bfloat16",
            "product.sums_wrap_at_16_bits",
        ),
        _NEXT,
    ),
    Symptom(
        "a product is a place or two off",
        ("tf32", "1024.5", "a place off", "place or two", "split-k", "split k", "splitk", "matmul precision"),
        "Something was rounded on the way: operands, scales, parts of a split K, or the result before its scale or "
        "bias.",
        (
            "product.operands_in_tfloat32",
            "product.operands_in_bfloat16",
            "product.operands_in_float16",
            "product.parts_in_the_results_type",
            "product.scales_in_bfloat16",
            "product.scales_in_float16",
            "product.scale_after_narrowing",
            "product.bias_after_rounding",
            "product.bias_before_rounding",
        ),
        _NEXT,
    ),
    Symptom(
        "a block-scaled product is finite nonsense",
        ("block scaled", "block-scaled", "blockwise", "scaled_mm", "rowwise", "one k tile", "weight_scale_inv",
         "64 instead of 288", "ue8m0 scales"),
        "A stretch of K, a row or a column is multiplied by a scale that is not its own. Uniform scales hide it, and "
        "so does a K of one block.",
        (
            "product.first_scales_for_all",
            "product.last_scales_for_all",
            "product.one_scale_for_two_blocks",
            "product.scales_of_half_blocks",
            "product.scales_of_the_next_block",
            "product.tail_by_the_scale_before",
            "product.weight_scales_transposed",
            "product.scales_of_axes_exchanged",
            "product.tensor_scale_taken_for_rows",
            "product.scales_raised_to_powers_of_two",
            "product.scales_cut_to_powers_of_two",
            "product.exponents_as_numbers",
        ),
        _NEXT,
    ),
    Symptom(
        "int8 or int4 layers are shifted, or nonsense with act-order",
        ("azp", "row sums", "w8a8", "w4a16", "act-order", "act_order", "g_idx", "desc_act", "asymmetric int8"),
        "A product of asymmetric codes is off by the zero point times a sum of weights; groups of K are looked up by "
        "an index, and by the wrong one.",
        (
            "product.row_sums_missing",
            "product.row_sums_not_multiplied",
            "product.row_sums_added",
            "product.zero_point_one_higher",
            "product.zero_point_one_lower",
            "product.zero_point_of_the_middle",
            "product.zero_point_not_scaled",
            "product.offset_left_out",
            "product.group_index_ignored",
            "product.group_index_of_the_next_k",
            "product.group_index_of_the_tile",
            "product.permuted_one_way",
        ),
        _NEXT,
    ),
    Symptom(
        "a product is wrong at odd sizes alone",
        ("odd k", "odd shape", "k is no multiple", "k tail", "m tail", "n tail", "missing tail", "nan at odd"),
        "A tile is wider than what is left of M, N or K: a part is left out, or foreign numbers take part, and 0 times "
        "NaN is NaN.",
        (
            "product.tail_of_k_left_out",
            "product.tail_of_k_reads_on",
            "product.padding_of_k_is_nan",
            "product.rows_left_out",
            "product.columns_left_out",
            "product.spills_into_the_next_row",
            "product.last_part_lost",
            "product.first_part_alone",
        ),
        _NEXT,
    ),
    Symptom(
        "a mixture of experts answers nonsense, or some tokens do",
        ("moe", "mixture", "expert", "some tokens", "grouped gemm", "router"),
        "Rows meet the matrix, or the scales, of another expert, or come back in another order.",
        (
            "product.first_expert_for_all",
            "product.expert_of_the_row_before",
            "product.next_expert",
            "product.expert_of_the_tile",
            "product.no_expert_is_the_first",
            "product.no_expert_is_the_last",
            "product.scales_of_the_first_expert",
            "product.scales_of_the_next_expert",
            "product.rows_in_order_of_experts",
        ),
        _NEXT,
    ),
    Symptom(
        "a layer is off by its bias, or its weight is turned",
        ("bias", "transpose", "transposed", "square weight", "bit pattern", "1e10"),
        "The bias is missing, doubled, scaled or taken by rows; a matrix is read by columns where it lies by rows; or "
        "bits are multiplied as integers.",
        (
            "product.bias_missing",
            "product.bias_twice",
            "product.bias_negated",
            "product.bias_scaled",
            "product.bias_by_rows",
            "product.weight_by_columns",
            "product.result_by_columns",
            "product.tiles_turned",
            "product.bit_patterns_multiplied",
        ),
        _NEXT,
    ),
)  # fmt: skip
