"""Symptoms of checkpoints that were converted: from what a user sees to the faults that do it."""

from __future__ import annotations

from narrowgauge.reference.symptom import Symptom

_NEXT = "Audit the files (narrowgauge audit), and judge the converter (Convert, docs/conversions.md)."
OF_CHECKPOINTS: tuple[Symptom, ...] = (
    Symptom(
        "a model is worse on MI300 than elsewhere, or its weights are off by a factor of two",
        ("weights on mi300", "worse on mi300", "gfx942 weights", "weights are off by a factor of two", "fnuz weights"),
        "A byte of OCP stands for half as much in FNUZ. Codes and scales must be converted together, once.",
        (
            "convert.not_converted",
            "convert.scale_not_doubled",
            "convert.scale_doubled_twice",
            "convert.scale_the_other_way",
            "convert.input_scale_not_doubled",
            "convert.cast_by_value",
            "convert.cast_by_value_and_scaled",
            "convert.exponent_one_higher",
        ),
        _NEXT,
    ),
    Symptom(
        "NaN after weights were converted, or a NaN that is gone afterwards",
        ("nan after", "nan weights", "after loading", "0x80", "0x7f", "nan is gone", "corrupt weight"),
        "0x80 is -0 in OCP and the NaN of FNUZ; 0x7F and 0xFF are the NaNs of OCP and ±240 in FNUZ; 255 is E8M0's.",
        (
            "convert.negative_zero_kept",
            "convert.nan_lost",
            "convert.largest_is_nan",
            "convert.nan_is_zero",
            "convert.exponent_saturates",
            "convert.nan_kept_for_infinity",
        ),
        _NEXT,
    ),
    Symptom(
        "fused layers are wrong: q, k, v or gate and up",
        ("fused", "qkv", "gate_up", "gate and up", "gate", "shard", "tensor parallel", "experts"),
        "Shards that were quantized apart have scales of their own, and one kernel takes one for all of them.",
        (
            "convert.last_shard_for_all",
            "convert.first_shard_for_all",
            "convert.smallest_for_largest",
            "convert.next_shard_scale",
            "convert.shard_boundary_off_by_one",
            "convert.equal_shards",
            "convert.sentinel_taken_for_a_scale",
            "convert.codes_of_shards_kept",
            "convert.block_scales_of_shards_kept",
            "convert.rows_not_parted",
            "convert.scales_not_parted",
        ),
        _NEXT,
    ),
    Symptom(
        "fluent nonsense after a checkpoint was converted or requantized",
        (
            "converted",
            "requantized",
            "requantised",
            "fluent nonsense",
            "gibberish",
            "blackwell",
            "ue8m0",
            "awq",
            "gptq",
        ),
        "Codes and scales no longer belong together: one of them was changed, turned or packed, and the other was not.",
        (
            "convert.codes_not_requantized",
            "convert.scale_not_applied",
            "convert.scale_applied_twice",
            "convert.block_scales_transposed",
            "convert.next_block_scale",
            "convert.first_block_for_all",
            "convert.reciprocal_missing",
            "convert.scale_inverted",
            "convert.offset_missing",
            "convert.group_index_of_half",
        ),
        _NEXT,
    ),
    Symptom(
        "a converted checkpoint is a little worse, or its report counts otherwise",
        ("a little worse", "slightly worse", "a step off", "counts otherwise", "counts", "float16 detour"),
        "Numbers passed through 16 bits on their way, or not where the engine's do; or what was lost is counted "
        "otherwise.",
        (
            "convert.through_float16",
            "convert.through_bfloat16",
            "convert.through_float32",
            "convert.infinities_counted",
            "convert.zeros_counted",
            "convert.last_place_for_first",
        ),
        _NEXT,
    ),
)
