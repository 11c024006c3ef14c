"""Faults of how a product's sums are kept: in too few bits, in the wrong type, without a part. ``product.*``"""

from __future__ import annotations

from functools import partial

from narrowgauge.reference.faults import product_models as models
from narrowgauge.reference.faults import product_operand_edits as operands
from narrowgauge.reference.faults import product_sum_edits as p
from narrowgauge.reference.faults.fault import ProductFault

_WIDTH = (
    "DeepGEMM#37", "DeepGEMM#50", "DeepGEMM#176", "DeepSeek-V3#197", "DeepSeek-V3#847", "SageAttention#287",
    "triton#2300", "cutlass#1329", "ao#2377", "xla#6168",
)  # fmt: skip

FAULTS = (
    ProductFault(
        "product.accumulated_in_13_bits",
        "ACCUMULATOR",
        p.thirteen_bits(promoted=False),
        "small terms after large ones are lost: sums of one sign are too small, by percents at K of some thousands",
        "the sum stays in the matrix unit, which keeps 13 bits of fraction for fp8 on Ada and Hopper, over all of K",
        _WIDTH,
    ),
    ProductFault(
        "product.promotion_missing",
        "ACCUMULATOR",
        p.thirteen_bits(promoted=True),
        "sums of one sign are too small, the more the longer K is",
        "partial sums are not added up in float32 every 128 of K as the claim promises: a flag is at its default, or "
        "an addition was folded into the product",
        ("triton#8056",),
    ),
    ProductFault(
        "product.accumulated_in_float16",
        "ACCUMULATOR",
        p.kept_in("float16"),
        "sums stop growing at 2048 times the least term, and are infinite beyond 65504",
        "sums are kept in float16",
        ("llama.cpp#17746", "llama.cpp#18614", "llama.cpp#13991", "llama.cpp#17558"),
    ),
    ProductFault(
        "product.accumulated_in_bfloat16",
        "ACCUMULATOR",
        p.kept_in("bfloat16"),
        "sums of ones stop at 256",
        "sums are kept in bfloat16, the type of the operands",
        ("ml_dtypes#63", "mlx#3909", "executorch#20089", "jax#17792"),
    ),
    ProductFault(
        "product.accumulated_in_the_operands_type",
        "ACCUMULATOR",
        p.accumulated_in_operands_type,
        "sums of ones stop at 16 in e4m3; beyond 448 they are NaN",
        "sums are kept in fp8, the type of the operands",
        ("ml_dtypes#63",),
    ),
    ProductFault(
        "product.tile_sums_in_float16",
        "ACCUMULATOR",
        p.in_steps(partial(models.tile_sums, "float16")),
        "a place off, by the size of the tiles; infinite where the sum of one tile is beyond 65504",
        "each tile's product is given in float16, and the tiles are added up in float32",
        (),
    ),
    ProductFault(
        "product.tile_sums_in_bfloat16",
        "ACCUMULATOR",
        p.in_steps(partial(models.tile_sums, "bfloat16")),
        "a few places off, by the size of the tiles",
        "each tile's product is given in bfloat16, and the tiles are added up in float32",
        (),
    ),
    ProductFault(
        "product.parts_in_the_results_type",
        "ACCUMULATOR",
        p.parts_in_the_results_type,
        "off by places of the result's type, by how K is split; small results of large parts by 40 %",
        "K is split, and the partial sums are stored in the type of the result before they are added",
        ("modular#7165", "FlagGems#5876", "composable_kernel#2271"),
    ),
    ProductFault(
        "product.last_part_lost",
        "TAIL",
        p.parts_kept(lambda part, last: part < max(last, 1)),
        "what the last part of K adds is missing",
        "the sum over the parts of a split K ends one too early, or the grid has one program too few",
        (),
    ),
    ProductFault(
        "product.first_part_alone",
        "TAIL",
        p.parts_kept(lambda part, last: part == 0, least=3),
        "what all parts of K but the first add is missing",
        "partial sums overwrite each other, or are not added up",
        (),
    ),
    ProductFault(
        "product.operands_in_tfloat32",
        "ROUND",
        operands.operands_rounded("tfloat32"),
        "one part in two thousand is off: 1024.5 times 1 is 1024 or 1025",
        "float32 operands enter a tf32 unit, the default of Triton and of old torch",
        ("triton#8654", "triton#5895", "triton#6227", "pytorch#53635", "pytorch#61890", "pytorch#67384",
         "pytorch#75778", "pytorch#78275"),
    ),
    ProductFault(
        "product.operands_in_bfloat16",
        "ROUND",
        operands.operands_rounded("bfloat16"),
        "one part in 256 is off",
        "operands are cast to bfloat16 before the product",
        (),
    ),
    ProductFault(
        "product.operands_in_float16",
        "ROUND",
        operands.operands_rounded("float16"),
        "large activations are infinite, small ones are zeros",
        "operands are cast to float16 before the product",
        ("llama.cpp#26044", "llama.cpp#27016"),
    ),
    ProductFault(
        "product.subnormal_operands_flushed",
        "SUBNORMAL",
        operands.subnormals_flushed,
        "what small operands add is missing",
        "the unit takes subnormal operands of 16 bits for zeros, as CDNA2's does, where it should not",
        (),
    ),
    ProductFault(
        "product.weights_in_the_other_type",
        "ROUND",
        operands.weights_in_the_other_type,
        "one part in 256 is off, or large weights are infinite",
        "weights of four bits are made wide in bfloat16 where activations are float16, or the reverse",
        (),
    ),
    ProductFault(
        "product.bit_patterns_multiplied",
        "DECODE",
        operands.bit_patterns,
        "results around 1e10 for operands around 1",
        "the bits of bfloat16 are multiplied as integers: Triton's interpreter does so",
        ("triton#11584", "triton#11585"),
    ),
    ProductFault(
        "product.sums_wrap_at_16_bits",
        "ACCUMULATOR",
        p.wrapped(16),
        "results jump by 65536 where sums are large",
        "integer sums are kept in 16 bits",
        (),
    ),
)  # fmt: skip
