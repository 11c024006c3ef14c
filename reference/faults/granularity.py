"""Faults of which elements share a scale, and of which scale they get: ``granularity.*``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from narrowgauge.contracts.recipe import TENSOR, Blocks, Recipe
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.faults import edits, places
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.faults.places import OF_BLOCKS
from narrowgauge.reference.faults.recipe_edits import outputs
from narrowgauge.reference.faults.staged import looking, of_blocks, using
from narrowgauge.reference.steps import F32

_TOKENS = 1


def _grouped(r: Recipe) -> bool:
    """Whether a row has several blocks."""
    return r.blocks.columns > 1


def _two_wide(blocks: Blocks) -> Blocks:
    return Blocks(blocks.rows, 2 * blocks.columns, ragged=True)


def _in_halves(behaviour: Behaviour) -> Behaviour | None:
    """Blocks of half the width, of whose scales every second one is stored."""

    def halved(r: Recipe) -> Recipe | None:
        blocks = Blocks(r.blocks.rows, r.blocks.columns // 2, r.blocks.ragged)
        return replace(r, blocks=blocks) if r.blocks.columns >= 2 and r.blocks.columns % 2 == 0 else None

    changed = None if behaviour.recipe is None or behaviour.recipe.inputs else edits.recipe(halved)(behaviour)
    if changed is None:
        return None
    return replace(changed, after=(*changed.after, places.each(OF_BLOCKS, lambda grid: grid[:, ::2])))


def _largest(made: Buffers) -> Buffers | None:
    return made | {"scale": places.largest(made["scale"])} if "scale" in made else None


def _first(grid: F32) -> F32:
    return np.broadcast_to(grid[:1, :1], grid.shape) if grid.size else grid


FAULTS = (
    Fault(
        "granularity.whole_tensor",
        "GRANULARITY",
        looking(places.of_wider_blocks(lambda blocks: TENSOR), lambda r: r.blocks != TENSOR),
        "small rows and blocks lose bits or are zeros; all scales are the same",
        "the largest magnitude of the whole tensor is taken for each row or block",
        (),
        across_rows=True,
    ),
    Fault(
        "granularity.whole_row",
        "GRANULARITY",
        looking(places.of_wider_blocks(lambda b: Blocks(b.rows, 0, ragged=True)), _grouped),
        "small groups lose bits; all scales of a row are the same",
        "the largest magnitude of the whole row is taken for each group",
        (),
    ),
    Fault(
        "granularity.twice_as_wide",
        "GRANULARITY",
        looking(places.of_wider_blocks(_two_wide), _grouped),
        "of each two groups the smaller one loses bits; their scales are the same",
        "the kernel's tile is wider than the group, and has one scale",
        (),
    ),
    Fault(
        "granularity.in_halves",
        "GRANULARITY",
        _in_halves,
        "the second half of each group is off by a factor of its own",
        "groups are half as wide as they should be, 64 for 128, and every second scale is delivered",
        (),
    ),
    Fault(
        "granularity.half_of_the_block",
        "GRANULARITY",
        looking(places.of_elements(places.first_half_of_blocks)),
        "what is large in the second half of a block clips",
        "the reduction ends before the block does: lanes or a last partial result are left out",
        (),
    ),
    Fault(
        "granularity.part_of_the_tensor",
        "GRANULARITY",
        looking(places.of_elements(places.last_half_of_rows), lambda r: r.blocks.rows == 0),
        "what is large in the upper part of a tensor clips",
        "the largest magnitude is that of a part: of the local experts, or of the program that wrote last",
        ("vllm#26135",),
        across_rows=True,
    ),
    Fault(
        "granularity.first_scale_for_all",
        "GRANULARITY",
        using(of_blocks(_first), lambda r: r.blocks != TENSOR),
        "codes are right in the first block alone",
        "a pointer to scales is not advanced, or the mode for one scale is left on",
        ("aiter#1258",),
        across_rows=True,
    ),
    Fault(
        "granularity.first_of_two",
        "GRANULARITY",
        using(of_blocks(lambda grid: grid[:, np.arange(grid.shape[1]) // 2 * 2]), _grouped),
        "every second group is off by the ratio of its scale to that before: 64 where 288 is right",
        "the kernel's tile is twice as wide as the group, and loads one scale",
        ("sglang#39626",),
    ),
    Fault(
        "granularity.scale_of_the_row_before",
        "GRANULARITY",
        using(of_blocks(lambda grid: np.roll(grid, _TOKENS, axis=0)), lambda r: r.blocks.rows > 0),
        "values are off by the ratio of two rows' scales; uniform rows hide it",
        "the index of the row, or the step of a delayed scale, is off by one",
        (),
        across_rows=True,
    ),
    Fault(
        "granularity.scale_of_the_block_before",
        "GRANULARITY",
        using(of_blocks(lambda grid: np.roll(grid, 1, axis=1)), lambda r: r.blocks.columns > 0),
        "values are off by the ratio of two neighbours' scales; uniform groups hide it",
        "the index of the group is off by one",
        (),
    ),
    Fault(
        "granularity.stored_one_later",
        "GRANULARITY",
        outputs(
            places.each(OF_BLOCKS, lambda grid: np.roll(grid.ravel(), 1).reshape(grid.shape)),
            lambda r: r.blocks != TENSOR,
        ),
        "codes are right, and each block is read with the scale of the one before",
        "the store of the scale is off by one block",
        (),
        across_rows=True,
    ),
    Fault(
        "granularity.stored_by_columns",
        "GRANULARITY",
        outputs(places.each(OF_BLOCKS, places.by_columns), _grouped),
        "blocks are read with each other's scales; one row, or one group, is right",
        "scales are written column by column into a buffer that is read row by row",
        (),
        across_rows=True,
    ),
    Fault(
        "granularity.largest_stored",
        "GRANULARITY",
        outputs(_largest, lambda r: r.blocks != TENSOR),
        "parts whose own scale is smaller are inflated, by 1.25 in one report",
        "parts that were quantized by scales of their own are merged under the largest of them, codes as they were",
        ("vllm#54974", "TensorRT-LLM#14199"),
        across_rows=True,
    ),
)
