"""Faults of layouts: ``layout.*``. Each turns the right memory image into the one that a wrong kernel leaves.

They edit storage. In the registry each stands as an edit of a behaviour whose buffers are packed: what a quantizer
returns, or what a reader takes its input for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.layout import Layout
from narrowgauge.reference.behaviour import Behaviour, Buffers
from narrowgauge.reference.faults.edits import Edit, on_buffers
from narrowgauge.reference.faults.fault import Fault
from narrowgauge.reference.layouts import LAYOUTS
from narrowgauge.reference.layouts.mapping import Array, grid, storage_shape
from narrowgauge.reference.layouts.packing import memory_of, pack_grid, unpack_grid
from narrowgauge.reference.packings import Packing, packing_named

#: bytes in address order, layout, rows, columns -> the wrong bytes, or None where the fault cannot exist
MemoryEdit = Callable[[Array, Layout, int, int], Array | None]


@dataclass(frozen=True)
class LayoutFault:
    """A mistake in where codes are put."""

    name: str  #: layout.what
    code: str  #: stands first in a failure message, in brackets
    edit: MemoryEdit
    symptom: str  #: what a user sees
    cause: str  #: what was done wrong
    reports: tuple[str, ...]  #: public reports that say just this; empty where we know of none
    misread: MemoryEdit | None = (
        None  #: a reader's way to make it, where that is another: the image that it takes it for
    )

    def applied_to(self, storage: Array, layout: Layout, rows: int, columns: int, reads: bool = False) -> Array | None:
        """The faulty storage, of the same shape and dtype, or None where this fault cannot exist or changes nothing.

        Raises ``BadInput`` as ``unpack`` does.
        """
        memory = memory_of(storage, layout, rows, columns)
        edit = self.misread if reads and self.misread is not None else self.edit
        wrong = edit(memory, layout, rows, columns)
        if wrong is None or np.array_equal(wrong, memory):
            return None
        elements = np.ascontiguousarray(wrong).view(storage.dtype.newbyteorder("<"))
        return elements.astype(storage.dtype, copy=False).reshape(storage.shape)


# fmt: off
#: layouts whose codes do not stand in the order of rows and columns
SWIZZLED = (
    "scales_128x4", "scales_128x4_k8", "scales_8x4", "kv_scales_4x4", "cdna4_mx_scales", "hopper_mx_scales_4_warps",
    "hopper_mx_scales_8_warps", "hopper_mxfp4_values", "hopper_mxfp4_values_mma2",
)
# fmt: on
COLUMN_MAJOR = ("scales_column_major", "scales_tma_aligned", "ue8m0_int32")
PLANAR = ("nibbles_planar_32", "nibbles_planar_16")
AWQ = ("awq_4bit", "awq_8bit")
ZEROS = ("gptq_zeros_4bit", "gptq_zeros_8bit")


def _dense(codes: Array, bits: int) -> Array:
    """Codes in a row without gaps, the lowest bits first, as bytes."""
    if bits in (4, 6):
        return pack_grid(codes.reshape(1, -1), LAYOUTS["nibbles_low_first" if bits == 4 else "fp6_dense"])
    return codes.reshape(-1).astype(f"<u{bits // 8}").view(np.uint8)


def _grid_codes(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    return unpack_grid(memory, layout, grid(layout, rows, columns))


def within(names: tuple[str, ...], edit: MemoryEdit) -> MemoryEdit:
    """The edit, for those layouts alone."""
    return lambda memory, layout, rows, columns: edit(memory, layout, rows, columns) if layout.name in names else None


def row_by_row(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    """The padded grid is written row by row, each word filled from its low end."""
    return _dense(_grid_codes(memory, layout, rows, columns), layout.bits)


def read_row_by_row(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    """The image is read as codes row by row, each word from its low end: the reverse of ``row_by_row``."""
    shape = grid(layout, rows, columns)
    plain = {4: "nibbles_low_first", 6: "fp6_dense"}.get(layout.bits)
    if plain is None:
        return pack_grid(memory.view(f"<u{layout.bits // 8}").reshape(shape), layout)
    codes = unpack_grid(memory, LAYOUTS[plain], (1, shape[0] * shape[1]))
    return pack_grid(codes.reshape(shape), layout)


def twice(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    """The image is taken for a matrix in plain order and packed again."""
    shape = grid(layout, rows, columns)
    if layout.bits == 8:
        return pack_grid(memory.reshape(shape), layout)
    return pack_grid(unpack_grid(memory, LAYOUTS["nibbles_low_first"], (1, shape[0] * shape[1])).reshape(shape), layout)


def written_as(pairs: Mapping[str, str], reads: bool = False) -> MemoryEdit:
    """The codes are written by another layout, by the one that stands beside the right one, where it fits; or read by
    it, which is the reverse."""

    def edit(memory: Array, layout: Layout, rows: int, columns: int) -> Array | None:
        other = LAYOUTS.get(pairs.get(layout.name, ""))
        if other is None:
            return None
        try:
            shape = grid(other, rows, columns)
        except BadInput:  # these sizes have no place in the other layout
            return None
        first, last = (other, layout) if reads else (layout, other)
        return pack_grid(unpack_grid(memory, first, shape), last)

    return edit


def transposed(memory: Array, layout: Layout, rows: int, columns: int) -> Array | None:
    """The matrix is packed as its transpose, which no shape shows where it is square."""
    if rows != columns:
        return None
    codes = _grid_codes(memory, layout, rows, columns)
    codes[:rows, :columns] = codes[:rows, :columns].T.copy()
    return pack_grid(codes, layout)


def unaligned(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    """Columns follow each other at a stride of the rows themselves, not of the rows rounded up."""
    columns_of_words = memory.reshape(storage_shape(layout, rows, columns)[0], -1)
    close = columns_of_words[:, : rows * layout.word_bytes].reshape(-1)
    return np.concatenate([close, np.zeros(memory.size - close.size, np.uint8)])


def moved_by(step: int) -> MemoryEdit:
    """Each code is higher by ``step``, around the end of its bits."""

    def edit(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
        codes = _grid_codes(memory, layout, rows, columns).astype(np.int64) + step
        return pack_grid((codes & ((1 << layout.bits) - 1)).astype(np.uint8), layout)

    return edit


def padding_left(memory: Array, layout: Layout, rows: int, columns: int) -> Array | None:
    """Every bit of the padding is 1, as a test poisons it; where padding must be 0."""
    if layout.padding != "zero":
        return None
    codes = _grid_codes(memory, layout, rows, columns)
    garbage = np.full_like(codes, (1 << layout.bits) - 1)
    garbage[:rows, :columns] = codes[:rows, :columns]
    return pack_grid(garbage, layout)


def words_reversed(memory: Array, layout: Layout, rows: int, columns: int) -> Array:
    """The bytes of each word stand the other way round."""
    return np.ascontiguousarray(memory.reshape(-1, layout.word_bytes)[:, ::-1]).reshape(-1)


def again(edit: Callable[[Array, Layout, int, int], Array]) -> MemoryEdit:
    """The edit, two times."""
    return lambda memory, layout, rows, columns: edit(edit(memory, layout, rows, columns), layout, rows, columns)


LAYOUT_FAULTS = (
    LayoutFault(
        "layout.nibbles_swapped",
        "LAYOUT",
        written_as({"nibbles_low_first": "nibbles_high_first", "nibbles_high_first": "nibbles_low_first"}),
        "neighbours change places: values are right in size and wrong in place, answers are fluent nonsense",
        "the even element is put into the other nibble than the format says",
        ("triton#5197",),
    ),
    LayoutFault(
        "layout.planar_as_pairs",
        "LAYOUT",
        within(PLANAR, row_by_row),
        "fluent nonsense on files of others, while own files work: 30 of 32 elements stand elsewhere",
        "a byte holds elements 2i and 2i+1 where the format wants i and i+16 (or i+8)",
        ("imp#567",),
        misread=within(PLANAR, read_row_by_row),
    ),
    LayoutFault(
        "layout.pairs_as_planar",
        "LAYOUT",
        written_as({"nibbles_low_first": "nibbles_planar_32"}),
        "fluent nonsense: 30 of 32 elements stand elsewhere",
        "a byte holds elements i and i+16 where the format wants 2i and 2i+1",
        (),
        misread=written_as({"nibbles_low_first": "nibbles_planar_32"}, reads=True),
    ),
    LayoutFault(
        "layout.six_bits_otherwise",
        "LAYOUT",
        written_as({"fp6_planes": "fp6_dense", "fp6_dense": "fp6_planes"}),
        "values are of the wrong size throughout",
        "planes of 2 and 4 bits where four codes stand one after the other in 24 bits, or the reverse",
        (),
    ),
    LayoutFault(
        "layout.swizzle_forgotten",
        "LAYOUT",
        within(SWIZZLED, row_by_row),
        "each block gets another block's scale; uniform scales hide it completely",
        "written row by row where the consumer reads tiles, or tiles are read row by row",
        ("vllm#50084",),
        misread=within(SWIZZLED, read_row_by_row),
    ),
    LayoutFault(
        "layout.swizzle_twice",
        "LAYOUT",
        within(SWIZZLED, twice),
        "right after the first load, nonsense after the second; uniform scales hide it",
        "what is in tile order already is put in tile order again (weights loaded again, or swizzled by two layers)",
        ("sglang#28963", "modular#6600"),
    ),
    LayoutFault(
        "layout.row_major_scales",
        "LAYOUT",
        within(COLUMN_MAJOR, row_by_row),
        "rows get each other's scales; one row, or one group, is right",
        "scales are written row by row where the consumer reads column by column",
        (),
        misread=within(COLUMN_MAJOR, read_row_by_row),
    ),
    LayoutFault(
        "layout.stride_not_aligned",
        "LAYOUT",
        within(COLUMN_MAJOR, unaligned),
        "right where the number of rows is a multiple of 4, else every group but the first is shifted",
        "columns stand at a stride of M where the consumer expects M rounded up to 4",
        (),
    ),
    LayoutFault(
        "layout.bytes_reversed",
        "LAYOUT",
        within(("ue8m0_int32",), words_reversed),
        "groups 0 to 3 get the scales of groups 3 to 0",
        "group 0 is put into the highest byte of the word",
        (),
    ),
    LayoutFault(
        "layout.awq_order_lost",
        "LAYOUT",
        within(AWQ, row_by_row),
        "columns change places within each eight: fluent nonsense",
        "packed in plain order, or unpacked without undoing 0, 2, 4, 6, 1, 3, 5, 7",
        (),
        misread=within(AWQ, read_row_by_row),
    ),
    LayoutFault(
        "layout.awq_order_backwards",
        "LAYOUT",
        within(AWQ, again(row_by_row)),
        "columns change places within each eight: fluent nonsense",
        "the order of AWQ's nibbles was applied the other way round: 0, 4, 1, 5, 2, 6, 3, 7",
        (),
        misread=within(AWQ, again(read_row_by_row)),
    ),
    LayoutFault(
        "layout.zero_one_higher",
        "ZERO",
        within(ZEROS, moved_by(1)),
        "every weight is shifted by one scale: '!!!!' or nonsense",
        "the zero point itself is stored (GPTQ v2) under a tag that says v1, whose reader adds 1",
        ("vllm#38966",),
    ),
    LayoutFault(
        "layout.zero_one_lower",
        "ZERO",
        within(ZEROS, moved_by(-1)),
        "every weight is shifted by one scale; where the zero point is 0, by 15",
        "zero - 1 is stored (GPTQ v1) where the reader takes what it finds; 0 - 1 becomes 15",
        ("GPTQModel#2350",),
    ),
    LayoutFault(
        "layout.zero_two_lower",
        "ZERO",
        within(ZEROS, moved_by(-2)),
        "every weight is shifted by two scales",
        "1 was taken from the stored zero point of GPTQ v1 where it had to be added for v2",
        (),
    ),
    LayoutFault(
        "layout.zero_two_higher",
        "ZERO",
        within(ZEROS, moved_by(2)),
        "every weight is shifted by two scales",
        "1 was added to the stored zero point of GPTQ v2 where it had to be taken away for v1",
        (),
    ),
    LayoutFault(
        "layout.transposed",
        "LAYOUT",
        transposed,
        "nonsense for square weights alone",
        "whether to transpose is decided by comparing shapes, which says nothing where N == K",
        ("vllm#44110",),
    ),
    LayoutFault(
        "layout.padding_left",
        "PADTAIL",
        padding_left,
        "NaN or noise at sizes that do not divide (hidden 2880), right at others",
        "padding is allocated and not written, and the consumer reads it",
        ("TransformerEngine#3070",),
    ),
)


def in_memory(fault: LayoutFault) -> Edit:
    """The fault in every packed buffer for which it can exist: of a quantizer after it, of a reader before it."""

    def edit(behaviour: Behaviour) -> Behaviour | None:
        if not behaviour.layouts:
            return None
        packings = {name: packing_named(text) for name, text in behaviour.layouts}

        def spoilt(buffers: Buffers) -> Buffers:
            held = ((name, packing) for name, packing in packings.items() if name in buffers)
            return buffers | {name: _spoilt(buffers[name], p, fault, behaviour.reads) for name, p in held}

        return on_buffers(behaviour, spoilt)

    return edit


def _spoilt(value: Coded, packing: Packing, fault: LayoutFault, reads: bool) -> Coded:
    """What a matrix is after a faulty way through memory; itself where the fault cannot exist there."""
    shape = value.shape[::-1] if packing.transposed else value.shape
    right = packing.pack(value)
    rows, columns = shape
    wrong = fault.applied_to(right.data, packing.layout, rows, columns, reads)
    return value if wrong is None else packing.unpack(Coded(right.format, wrong), value)[0]


#: Padding holds no codes: it is looked at with the form of a buffer, and never comes to be explained.
FAULTS = tuple(
    Fault(f.name, f.code, in_memory(f), f.symptom, f.cause, f.reports)
    for f in LAYOUT_FAULTS
    if f.edit is not padding_left
)
