"""Faults of what is left at the ends of a product: tails of tiles, bias, the last rounding. ``product.*``"""

from __future__ import annotations

from narrowgauge.reference.faults import product_end_edits as p
from narrowgauge.reference.faults.fault import ProductFault
from narrowgauge.reference.faults.product_ways import ROWS, TILES, in_tiles

_TAILS = (
    ProductFault(
        "product.tail_of_k_left_out",
        "TAIL",
        in_tiles(p.tail_left_out, (*TILES, 8, 4, 2)),
        "right where K is a whole number of tiles; else the last terms are missing",
        "the loop runs over K // tile tiles",
        (),
    ),
    ProductFault(
        "product.one_k_left_out",
        "TAIL",
        p.one_k_left_out,
        "one term of each sum is missing: a little off at large K",
        "the loop begins at 1, or ends one too early",
        (),
    ),
    ProductFault(
        "product.tail_of_k_reads_on",
        "TAIL",
        in_tiles(p.tail_reads_on, TILES),
        "right where K is a whole number of tiles; else foreign terms are added",
        "loads of the last tile of K are not masked, and both operands go on with their next row",
        ("triton#630",),
    ),
    ProductFault(
        "product.padding_of_k_is_nan",
        "PADTAIL",
        p.padding_is_nan,
        "NaN everywhere where K is no whole number of tiles, by what stood in memory",
        "one operand's tail is masked to 0 and the other's is not: 0 times NaN is NaN",
        (),
    ),
    ProductFault(
        "product.zeros_skipped",
        "NAN",
        p.zeros_skipped,
        "NaN and infinity of one operand are gone where the other is 0",
        "terms with a zero are left out of the sum, as sparse kernels do: 0 times NaN is NaN",
        (),
    ),
    ProductFault(
        "product.rows_left_out",
        "TAIL",
        in_tiles(p.left_out(0), ROWS),
        "the last rows are zeros, where M is no whole number of tiles",
        "the grid has one program for each whole tile of rows",
        (),
    ),
    ProductFault(
        "product.columns_left_out",
        "TAIL",
        in_tiles(p.left_out(1), ROWS),
        "the last columns are zeros, where N is no whole number of tiles",
        "the grid has one program for each whole tile of columns",
        (),
    ),
    ProductFault(
        "product.spills_into_the_next_row",
        "TAIL",
        p.spilt,
        "the first columns of rows are wrong where N is no whole number of tiles",
        "the store of the last tile of columns is not masked, and runs into the next row",
        ("kernels-community#1153", "kernels-community#1154"),
    ),
)

_EPILOGUE = (
    ProductFault(
        "product.bias_missing",
        "BIAS",
        p.bias(lambda bias: 0 * bias),
        "every column is off by its bias",
        "the bias is not loaded: its flag is not passed on",
        (),
    ),
    ProductFault(
        "product.bias_twice",
        "BIAS",
        p.bias(lambda bias: 2 * bias),
        "every column is off by its bias",
        "the bias is added by the kernel and by its caller, or by both halves of a split K",
        (),
    ),
    ProductFault(
        "product.bias_negated",
        "BIAS",
        p.bias(lambda bias: -bias),
        "every column is off by twice its bias",
        "the bias is subtracted",
        (),
    ),
    ProductFault(
        "product.bias_scaled",
        "BIAS",
        p.bias_scaled,
        "the bias hardly counts",
        "the bias is added to the sum before the scales are applied",
        (),
    ),
    ProductFault(
        "product.bias_by_rows",
        "BIAS",
        p.bias_by_rows,
        "rows are shifted, each by the bias of a column",
        "the bias is loaded by the row of the result",
        (),
    ),
    ProductFault(
        "product.bias_of_the_first_tile",
        "BIAS",
        in_tiles(p.bias_of_the_first_tile, ROWS),
        "columns beyond the first tile are off by the difference of two biases",
        "the bias is loaded by the place in the tile of columns",
        (),
    ),
    ProductFault(
        "product.bias_after_rounding",
        "ROUND",
        p.bias_after_rounding,
        "one place off now and then",
        "the result is rounded, and the bias added to it and rounded again",
        (),
    ),
    ProductFault(
        "product.bias_before_rounding",
        "ROUND",
        p.bias_before_rounding,
        "one place off now and then",
        "the bias is added in float32 where the engine adds it to the rounded result",
        (),
    ),
)

FAULTS = (*_TAILS, *_EPILOGUE)
