"""Faults of layouts: what each leaves in memory, from the second derivation and plain NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.faults.layouts import LAYOUT_FAULTS as FAULTS
from narrowgauge.reference.layouts import LAYOUTS, pack, storage_shape
from narrowgauge.suites.meta.layout_vectors import numbered
from narrowgauge.suites.meta.second_layouts import memory

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
BY_NAME = {fault.name: fault for fault in FAULTS}


def padded(codes: Array, rows: int, columns: int, fill: int = 0) -> Array:
    whole = np.full((rows, columns), fill, codes.dtype)
    whole[: codes.shape[0], : codes.shape[1]] = codes
    return whole


def by(name: str) -> Callable[[Array], bytes]:
    return lambda codes: memory(name, codes.tolist(), LAYOUTS[name].bits)


def plain(rows: int, columns: int) -> Callable[[Array], bytes]:
    """Codes of whole bytes row by row, on a padded grid."""
    return lambda codes: padded(codes, rows, columns).tobytes()


def again(name: str, rows: int, columns: int) -> Callable[[Array], bytes]:
    """The second derivation on its own memory, which is taken for the padded matrix."""

    def wrong(codes: Array) -> bytes:
        image = np.frombuffer(by(name)(codes), np.uint8)
        if LAYOUTS[name].bits == 4:
            image = np.stack([image & 15, image >> 4], axis=1)
        return by(name)(image.reshape(rows, columns))

    return wrong


def filled(name: str, rows: int, columns: int) -> Callable[[Array], bytes]:
    return lambda codes: by(name)(padded(codes, rows, columns, (1 << LAYOUTS[name].bits) - 1))


def shifted(name: str, step: int) -> Callable[[Array], bytes]:
    top = 1 << LAYOUTS[name].bits
    return lambda codes: by(name)(((codes.astype(int) + step) % top).astype(np.uint8))


def backwards(codes: Array) -> Array:
    """The columns of each eight in the order that undoes AWQ's."""
    return codes.reshape(len(codes), -1, 8)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(codes.shape)


def unaligned(codes: Array) -> bytes:
    columns: bytes = codes.T.tobytes()
    return columns + bytes(4 * codes.shape[1] * (-codes.shape[0] % 4))


#: fault, layout, rows, columns, the memory that it leaves
SEEN: list[tuple[str, str, int, int, Callable[[Array], bytes]]] = [
    ("nibbles_swapped", "nibbles_low_first", 3, 10, by("nibbles_high_first")),
    ("nibbles_swapped", "nibbles_high_first", 3, 10, by("nibbles_low_first")),
    ("planar_as_pairs", "nibbles_planar_32", 2, 64, by("nibbles_low_first")),
    ("planar_as_pairs", "nibbles_planar_16", 2, 32, by("nibbles_low_first")),
    ("pairs_as_planar", "nibbles_low_first", 2, 64, by("nibbles_planar_32")),
    ("six_bits_otherwise", "fp6_planes", 2, 8, by("fp6_dense")),
    ("six_bits_otherwise", "fp6_dense", 2, 8, by("fp6_planes")),
    ("swizzle_forgotten", "scales_128x4", 130, 5, plain(256, 8)),
    ("swizzle_forgotten", "scales_128x4_k8", 130, 5, plain(256, 8)),
    ("swizzle_forgotten", "scales_8x4", 9, 5, plain(16, 8)),
    ("swizzle_forgotten", "kv_scales_4x4", 8, 8, plain(8, 8)),
    ("swizzle_forgotten", "cdna4_mx_scales", 32, 16, plain(32, 16)),
    ("swizzle_forgotten", "hopper_mx_scales_4_warps", 130, 3, plain(256, 4)),
    ("swizzle_forgotten", "hopper_mx_scales_8_warps", 130, 3, plain(256, 4)),
    ("swizzle_forgotten", "hopper_mxfp4_values", 17, 70, lambda x: by("nibbles_low_first")(padded(x, 32, 128))),
    ("swizzle_forgotten", "hopper_mxfp4_values_mma2", 17, 70, lambda x: by("nibbles_low_first")(padded(x, 32, 128))),
    ("swizzle_twice", "scales_128x4", 130, 5, again("scales_128x4", 256, 8)),
    ("swizzle_twice", "scales_8x4", 9, 5, again("scales_8x4", 16, 8)),
    ("swizzle_twice", "cdna4_mx_scales", 32, 16, again("cdna4_mx_scales", 32, 16)),
    ("swizzle_twice", "hopper_mx_scales_4_warps", 130, 3, again("hopper_mx_scales_4_warps", 256, 4)),
    ("swizzle_twice", "hopper_mxfp4_values", 17, 70, again("hopper_mxfp4_values", 32, 128)),
    ("row_major_scales", "scales_column_major", 3, 5, plain(3, 5)),
    ("row_major_scales", "scales_tma_aligned", 3, 5, plain(4, 5)),
    ("row_major_scales", "ue8m0_int32", 3, 5, plain(4, 8)),
    ("stride_not_aligned", "scales_tma_aligned", 3, 5, unaligned),
    ("bytes_reversed", "ue8m0_int32", 3, 5, lambda x: np.frombuffer(by("ue8m0_int32")(x), "<u4").byteswap().tobytes()),
    ("awq_order_lost", "awq_4bit", 2, 16, by("gptq_zeros_4bit")),
    ("awq_order_lost", "awq_8bit", 2, 16, by("gptq_zeros_8bit")),
    ("awq_order_backwards", "awq_4bit", 2, 16, lambda x: by("gptq_zeros_4bit")(backwards(x))),
    ("zero_one_higher", "gptq_zeros_4bit", 2, 16, shifted("gptq_zeros_4bit", 1)),
    ("zero_two_higher", "gptq_zeros_4bit", 2, 16, shifted("gptq_zeros_4bit", 2)),
    ("zero_two_lower", "gptq_zeros_4bit", 2, 16, shifted("gptq_zeros_4bit", -2)),
    ("zero_one_higher", "gptq_zeros_8bit", 2, 16, shifted("gptq_zeros_8bit", 1)),
    ("zero_one_lower", "gptq_zeros_4bit", 2, 16, shifted("gptq_zeros_4bit", -1)),
    ("transposed", "scales_128x4", 5, 5, lambda x: by("scales_128x4")(x.T)),
    ("transposed", "gptq_4bit", 16, 16, lambda x: by("gptq_4bit")(x.T)),
    ("padding_left", "scales_128x4", 130, 5, filled("scales_128x4", 256, 8)),
    ("padding_left", "ue8m0_int32", 3, 5, filled("ue8m0_int32", 4, 8)),
    ("padding_left", "hopper_mxfp4_values", 17, 70, filled("hopper_mxfp4_values", 32, 128)),
    ("padding_left", "compressed_tensors_4bit", 3, 5, filled("compressed_tensors_4bit", 3, 8)),
]


@pytest.mark.parametrize(("fault", "name", "rows", "columns", "wrong"), SEEN)
def test_a_fault_leaves_the_memory_that_its_words_say(
    fault: str, name: str, rows: int, columns: int, wrong: Callable[[Array], bytes]
) -> None:
    layout = LAYOUTS[name]
    codes = numbered(layout.bits, rows, columns)
    right = pack(codes, layout)
    kept = right.copy()
    got = BY_NAME[f"layout.{fault}"].applied_to(right, layout, rows, columns)
    assert got is not None
    assert (got.shape, got.dtype) == (right.shape, right.dtype)
    assert got.tobytes() == wrong(codes) != right.tobytes()
    np.testing.assert_array_equal(right, kept)


def test_every_fault_is_seen_somewhere() -> None:
    assert {f"layout.{row[0]}" for row in SEEN} == set(BY_NAME)
    assert len(BY_NAME) == len(FAULTS)


NOT_SEEN = [
    ("swizzle_forgotten", "nibbles_low_first", 2, 4),  # nothing is swizzled
    ("swizzle_forgotten", "scales_8x4", 1, 4),  # one row of one tile stands as it is
    ("pairs_as_planar", "nibbles_low_first", 2, 34),  # 34 columns are no blocks of 32
    ("stride_not_aligned", "scales_tma_aligned", 4, 5),  # 4 rows are aligned
    ("transposed", "scales_128x4", 5, 6),  # a shape would show it
    ("padding_left", "scales_128x4", 128, 4),  # there is none
    ("padding_left", "scales_tma_aligned", 3, 5),  # unwritten by contract
    ("zero_one_higher", "gptq_4bit", 8, 8),  # holds no zero points
]


@pytest.mark.parametrize(("fault", "name", "rows", "columns"), NOT_SEEN)
def test_a_fault_that_changes_nothing_says_so(fault: str, name: str, rows: int, columns: int) -> None:
    storage = pack(numbered(LAYOUTS[name].bits, rows, columns), LAYOUTS[name])
    assert BY_NAME[f"layout.{fault}"].applied_to(storage, LAYOUTS[name], rows, columns) is None


#: what equal codes show: only what changes codes or padding
SHOWN_BY_EQUAL_CODES = {"layout.six_bits_otherwise", "layout.zero_one_higher", "layout.zero_one_lower"}
SHOWN_BY_EQUAL_CODES |= {"layout.zero_two_higher", "layout.zero_two_lower"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_equal_codes_hide_every_fault_of_place(name: str) -> None:
    """The reason why inputs must have a code of its own for each place: public log R25."""
    layout, (rows, columns) = LAYOUTS[name], (256, 256)
    storage = pack(np.full((rows, columns), 6, np.uint32 if layout.bits == 32 else np.uint8), layout)
    assert storage.shape == storage_shape(layout, rows, columns)
    seen = {fault.name for fault in FAULTS if fault.applied_to(storage, layout, rows, columns) is not None}
    hopper = {"layout.swizzle_forgotten", "layout.swizzle_twice"} if "mxfp4_values" in name else set()
    assert seen <= SHOWN_BY_EQUAL_CODES | hopper


def test_storage_of_another_shape_is_refused() -> None:
    with pytest.raises(BadInput, match="is stored as"):
        FAULTS[0].applied_to(np.zeros((3, 3), np.uint8), LAYOUTS["nibbles_low_first"], 2, 4)
