"""Faults of zero points, of groups of K, of experts, and of how operands and results lie in memory. ``product.*``"""

from __future__ import annotations

import numpy as np

from narrowgauge.reference.faults import product_call_edits as p
from narrowgauge.reference.faults import product_scale_edits as s
from narrowgauge.reference.faults import product_ways as ways
from narrowgauge.reference.faults.fault import ProductFault

_ZERO_POINTS = (
    ProductFault(
        "product.row_sums_missing",
        "ZERO-POINT",
        s.zero_points(lambda zero: 0 * zero, "a"),
        "every column is shifted by the zero point times the sum of its weights; weights that sum to 0 hide it",
        "asymmetric activations are multiplied as symmetric ones: the sums of the weights are not taken off",
        (),
    ),
    ProductFault(
        "product.row_sums_not_multiplied",
        "ZERO-POINT",
        s.zero_points(lambda zero: 0 * zero + 1, "a"),
        "every column is shifted by the sum of its weights times the zero point less 1",
        "sums of the weights are taken off without the zero point: those of the static case hold it already",
        (),
    ),
    ProductFault(
        "product.row_sums_added",
        "ZERO-POINT",
        s.zero_points(lambda zero: -zero, "a"),
        "every column is shifted by twice the zero point times the sum of its weights",
        "the sign of the zero point is that of another convention",
        (),
    ),
    ProductFault(
        "product.zero_point_one_higher",
        "ZERO-POINT",
        s.zero_points(lambda zero: zero + 1),
        "every weight is shifted by one scale: '!!!!' or nonsense",
        "1 is added to a zero point that is stored as it is (GPTQ v2)",
        ("vllm#38966",),
    ),
    ProductFault(
        "product.zero_point_one_lower",
        "ZERO-POINT",
        s.zero_points(lambda zero: zero - 1),
        "every weight is shifted by one scale",
        "1 is not added to a zero point that is stored less one (GPTQ v1)",
        (),
    ),
    ProductFault(
        "product.zero_point_of_the_middle",
        "ZERO-POINT",
        s.zero_points(lambda zero: 0 * zero + 8),
        "every weight is shifted by so many scales as its zero point is from the middle",
        "the kernel for symmetric codes, which takes 8 of 16 for zero, is used for asymmetric ones",
        (),
    ),
    ProductFault(
        "product.zero_point_not_scaled",
        "ZERO-POINT",
        s.zero_point_not_scaled,
        "every weight is shifted by nearly its zero point: nonsense",
        "the zero point is taken off after the scale was multiplied in",
        (),
    ),
    ProductFault(
        "product.offset_left_out",
        "ZERO-POINT",
        s.offset_left_out,
        "every weight is shifted by 8 of its scales: nonsense",
        "codes with an offset are taken for unsigned numbers",
        (),
    ),
    ProductFault(
        "product.group_index_ignored",
        "GRANULARITY",
        p.indexed(p.groups(lambda index, group: np.arange(index.size) // group)),
        "nonsense for checkpoints with act-order; right without",
        "the group of a row of the weight is taken to be k // 128 where g_idx says another",
        (),
    ),
    ProductFault(
        "product.group_index_of_the_next_k",
        "GRANULARITY",
        p.groups(lambda index, group: np.roll(index, -1)),
        "each row of the weight has the scale of the next one's group",
        "g_idx is read one place too far",
        (),
    ),
    ProductFault(
        "product.group_index_of_the_tile",
        "GRANULARITY",
        ways.in_tiles(p.groups_of_the_tile, ways.TILES),
        "right in the first tile of K alone",
        "g_idx is read by the place in the tile, and not by k",
        (),
    ),
    ProductFault(
        "product.permuted_one_way",
        "LAYOUT",
        p.permuted_one_way,
        "nonsense for checkpoints with act-order",
        "activations are sorted by g_idx, and rows of the weight are not",
        (),
    ),
)

_EXPERTS = (
    ProductFault(
        "product.first_expert_for_all",
        "EXPERT",
        p.experts(lambda expert, count: np.where(expert < 0, expert, 0)),
        "right for the rows of the first expert alone",
        "the pointer to the weights is not moved by the expert",
        (),
    ),
    ProductFault(
        "product.expert_of_the_row_before",
        "EXPERT",
        p.experts(lambda expert, count: np.roll(expert, 1)),
        "rows at the border of two experts are wrong",
        "the index of the row is one off in the table of experts",
        (),
    ),
    ProductFault(
        "product.next_expert",
        "EXPERT",
        p.experts(lambda expert, count: np.where(expert < 0, expert, (expert + 1) % count)),
        "every row is multiplied by another expert's weights",
        "experts are counted from 1 on one side, or a rank's first expert is one off",
        (),
    ),
    ProductFault(
        "product.expert_of_the_tile",
        "EXPERT",
        ways.in_tiles(p.expert_of_the_tile, ways.ROWS),
        "rows are multiplied by the expert of the first row of their tile",
        "rows were not sorted and padded by expert before tiles were cut",
        (),
    ),
    ProductFault(
        "product.no_expert_is_the_first",
        "EXPERT",
        p.experts(lambda expert, count: np.maximum(expert, 0)),
        "rows of experts that live elsewhere are not zeros, and are counted twice",
        "an expert of -1 is clamped to 0",
        (),
    ),
    ProductFault(
        "product.no_expert_is_the_last",
        "EXPERT",
        p.experts(lambda expert, count: expert % count),
        "rows of experts that live elsewhere are not zeros, and are counted twice",
        "an expert of -1 is used as an index, and wraps",
        (),
    ),
    ProductFault(
        "product.scales_of_the_first_expert",
        "EXPERT",
        p.scales_of_experts(lambda expert, count: np.zeros_like(expert)),
        "rows of all experts but the first are off by a ratio of scales",
        "the pointer to the weights' scales is not moved by the expert",
        (),
    ),
    ProductFault(
        "product.scales_of_the_next_expert",
        "EXPERT",
        p.scales_of_experts(lambda expert, count: (expert + 1) % count),
        "rows are off by the ratio of two experts' scales",
        "weights and scales are indexed by two tables that do not agree",
        (),
    ),
    ProductFault(
        "product.rows_in_order_of_experts",
        "EXPERT",
        p.rows_in_order_of_experts,
        "tokens have each other's outputs",
        "rows were sorted by expert for the product and not put back",
        (),
    ),
)

_LAYOUT = (
    ProductFault(
        "product.weight_by_columns",
        "LAYOUT",
        p.weight_by_columns,
        "nonsense for square weights; for others a shape that should have been refused",
        "whether to transpose is decided by comparing shapes, or a flag is lost: [N, K] is read as [K, N]",
        ("vllm#44110",),
    ),
    ProductFault(
        "product.result_by_columns",
        "LAYOUT",
        p.result_by_columns,
        "elements of the result have changed places",
        "the result is stored by columns: strides are exchanged, or tiles are turned before the store",
        (),
    ),
    ProductFault(
        "product.tiles_turned",
        "LAYOUT",
        ways.both(ways.in_tiles(p.weight_turned, ways.SQUARES), ways.in_tiles(p.result_turned, ways.SQUARES)),
        "nonsense: elements have changed places within square tiles",
        "a tile of the weight, or of the result, is stored at transposed addresses",
        ("pith-train#74",),
    ),
)

FAULTS = (*_ZERO_POINTS, *_EXPERTS, *_LAYOUT)
