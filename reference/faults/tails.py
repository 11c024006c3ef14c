"""Faults of what a kernel's tiles do not divide: ``tail.*``."""

from __future__ import annotations

from narrowgauge.contracts.recipe import TENSOR, Recipe
from narrowgauge.reference.faults import places
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.places import OF_BLOCKS
from narrowgauge.reference.faults.recipe_edits import outputs
from narrowgauge.reference.faults.staged import looking


def _of_rows(r: Recipe) -> bool:
    return r.blocks.rows == 1


FAULTS = (
    Fault(
        "tail.left_out_of_amax",
        "TAIL",
        looking(places.of_elements(places.whole_vectors)),
        "what is large in the last columns clips, where their number is no multiple of 32",
        "the reduction runs over whole vectors",
        (),
    ),
    Fault(
        "tail.reads_the_next_row",
        "TAIL",
        looking(
            places.of_elements(places.read_beyond), lambda r: _of_rows(r) or (r.blocks.ragged and r.blocks.columns > 0)
        ),
        "scales of some rows are too large, where the tile is wider than the row: finite, and a little less accurate",
        "the load of the tail is not masked, and what stands behind the row takes part in its largest magnitude",
        ("flashinfer#3057", "triton#630"),
        across_rows=True,
    ),
    Fault(
        "tail.columns_not_quantized",
        "TAIL",
        outputs(places.each(("codes",), places.tail_columns_zero)),
        "the last columns are zeros, where their number is no multiple of 32",
        "the loop over columns runs over whole vectors, and the output was zero before",
        (),
    ),
    Fault(
        "tail.rows_not_quantized",
        "TAIL",
        outputs(places.each(("codes", *OF_BLOCKS), places.tail_rows_zero), _of_rows),
        "the last rows are zeros, where their number is no multiple of 32",
        "the grid has one program for each whole tile of rows",
        (),
        across_rows=True,
    ),
    Fault(
        "tail.last_scale_missing",
        "TAIL",
        outputs(places.each(OF_BLOCKS, places.without_last), lambda r: r.blocks != TENSOR),
        "the last block of each row, or the last row, is zeros when it is read",
        "the store of scales is masked by one block too few",
        (),
        across_rows=True,
    ),
    Fault(
        "tail.spills_into_the_next_row",
        "TAIL",
        outputs(places.each(("codes",), places.spilt), _of_rows),
        "the first columns of every row but the first are zeros",
        "the store of the tail is not masked: what lies beyond a row's end is written over the next row",
        ("kernels-community#1153",),
        across_rows=True,
    ),
)
