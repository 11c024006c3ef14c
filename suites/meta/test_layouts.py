"""Layouts: against a second derivation, against what libraries packed, there and back, padding, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.layout import Layout, dense
from narrowgauge.reference.layouts import (
    LAYOUTS,
    ZERO_POINTS,
    element_indices,
    layout_named,
    pack,
    storage_shape,
    stored_zeros,
    unpack,
    zero_points_named,
    zeros_of,
)
from narrowgauge.suites.meta import layout_vectors
from narrowgauge.suites.meta.layout_vectors import digest, numbered
from narrowgauge.suites.meta.second_layouts import SECOND, memory

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
#: sizes of all kinds: one element, none, whole tiles of some layouts, a row or a column more, wide and tall
SIZES = [(0, 0), (0, 8), (1, 1), (1, 16), (3, 129), (8, 8), (4, 32), (17, 70), (16, 64), (32, 72), (64, 16), (130, 5)]
SIZES += [(257, 9), (8, 96), (96, 8), (33, 3)]
#: multiples that a layout without padding asks for, by its engine's own checks; written out a second time
ASKED = {
    "nibbles_low_first": (1, 2),
    "nibbles_high_first": (1, 2),
    "nibbles_planar_32": (1, 32),
    "nibbles_planar_16": (1, 16),
    "fp6_planes": (1, 4),
    "fp6_dense": (1, 4),
    "gptq_4bit": (8, 1),
    "gptq_8bit": (4, 1),
    "gptq_zeros_4bit": (1, 8),
    "gptq_zeros_8bit": (1, 4),
    "awq_4bit": (1, 8),
    "awq_8bit": (1, 4),
    "scales_column_major": (1, 1),
    "kv_scales_4x4": (4, 4),
    "cdna4_mx_scales": (32, 8),
}


def bytes_of(storage: Array) -> bytes:
    return storage.astype(storage.dtype.newbyteorder("<")).tobytes()


def test_both_derivations_know_the_same_layouts() -> None:
    assert set(SECOND) == set(LAYOUTS)
    assert set(ASKED) == {name for name, layout in LAYOUTS.items() if layout.padding == "refused"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_second_derivation_gives_the_same_memory(name: str) -> None:
    layout, seen = LAYOUTS[name], 0
    for rows, columns in SIZES:
        by_rows, by_columns = ASKED.get(name, (1, 1))
        codes = numbered(layout.bits, rows, columns)
        if rows % by_rows or columns % by_columns:
            with pytest.raises(
                BadInput, match=r"has no padding: (rows|columns) must be a multiple of \d+, not \d+; pad"
            ):
                pack(codes, layout)
            continue
        seen += codes.size > 0
        storage = pack(codes, layout)
        assert storage.dtype == layout.storage_dtype
        assert storage.shape == storage_shape(layout, rows, columns)
        assert bytes_of(storage) == memory(name, codes.tolist(), layout.bits), (rows, columns)
    assert seen >= 2


@pytest.mark.parametrize(("name", "rows", "columns", "sha", "start", "who"), layout_vectors.RECORDED)
def test_libraries_packed_the_same(name: str, rows: int, columns: int, sha: str, start: str, who: str) -> None:
    storage = bytes_of(pack(numbered(LAYOUTS[name].bits, rows, columns), LAYOUTS[name]))
    assert (storage[:8].hex(), digest(storage)) == (start, sha), who


def test_gguf_packed_the_same() -> None:
    codes = numbered(4, 8, 64)
    codes[:, ::32] = 7
    codes[codes == 8] = 0
    storage = bytes_of(pack(codes, LAYOUTS["nibbles_planar_32"]))
    assert (digest(storage), storage[:8].hex()) == layout_vectors.GGUF_MXFP4


def test_places_that_public_reports_give() -> None:
    codes = np.array([[2, 15]], np.uint8)  # 1.0 and -6.0 of e2m1
    assert pack(codes, LAYOUTS["nibbles_low_first"]).tolist() == [[0xF2]]
    assert pack(codes, LAYOUTS["nibbles_high_first"]).tolist() == [[0x2F]]
    tile = element_indices(LAYOUTS["scales_128x4"], 128, 4)
    assert (tile[1, 0], tile[32, 0], tile[31, 3]) == (16, 4, 499)
    assert sum(tile.reshape(-1) == np.arange(512)) == 8
    ones = np.full((1, 4), 127, np.uint8)
    assert pack(ones, LAYOUTS["ue8m0_int32"]).tolist() == [[0x7F7F7F7F, 0, 0, 0]]


def fitting(layout: Layout, rows: int, columns: int) -> tuple[int, int]:
    by_rows, by_columns = ASKED.get(layout.name, (1, 1))
    return rows * by_rows, columns * by_columns


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**32 - 1))
def test_there_and_back_both_ways(name: str, rows: int, columns: int, seed: int) -> None:
    layout = LAYOUTS[name]
    rows, columns = fitting(layout, rows, columns)
    random = np.random.default_rng(seed)
    codes = random.integers(0, 1 << layout.bits, (rows, columns), np.uint32 if layout.bits == 32 else np.uint8)
    found = unpack(pack(codes, layout), layout, rows, columns)
    np.testing.assert_array_equal(found.codes, codes)
    assert found.codes.dtype == codes.dtype
    assert not found.padding.codes.any()

    # From any memory at all: what is read, padding included, packs to that memory again.
    shape = storage_shape(layout, rows, columns)
    image = np.frombuffer(random.bytes(int(np.prod(shape)) * layout.element_bytes), layout.storage_dtype).reshape(shape)
    read = unpack(image, layout, rows, columns)
    whole_rows = max([rows, *(int(r) + 1 for r in read.padding.rows)])
    whole_columns = max([columns, *(int(c) + 1 for c in read.padding.columns)])
    whole = np.zeros((whole_rows, whole_columns), codes.dtype)
    whole[:rows, :columns] = read.codes
    whole[read.padding.rows, read.padding.columns] = read.padding.codes
    np.testing.assert_array_equal(pack(whole, layout).reshape(-1), image.reshape(-1))


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in ASKED])
def test_padding_is_reported_where_it_stands(name: str) -> None:
    layout, (rows, columns), (place, size) = LAYOUTS[name], (3, 5), SECOND[name]
    codes = numbered(layout.bits, rows, columns)
    clean = pack(codes, layout)
    count = size(rows, columns) * 8 // layout.bits - codes.size
    assert count > 0
    padding = unpack(clean, layout, rows, columns).padding
    assert len(padding.codes) == count
    assert not padding.codes.any()
    for at in (0, count // 2, count - 1):
        row, column = int(padding.rows[at]), int(padding.columns[at])
        assert row >= rows or column >= columns
        byte, bit = place(row, column, 0, rows, columns)
        dirty = np.frombuffer(bytes_of(clean), np.uint8).copy()
        dirty[byte] |= 1 << bit
        found = unpack(dirty.view(clean.dtype), layout, rows, columns)
        np.testing.assert_array_equal(found.codes, codes)
        assert np.flatnonzero(found.padding.codes).tolist() == [at]
        assert found.padding.codes[at] == 1
        assert found.padding.elements[at] == byte // clean.dtype.itemsize
        assert found.padding.required == (None if name == "scales_tma_aligned" else 0)
        assert np.flatnonzero(found.padding.wrong).tolist() == ([] if name == "scales_tma_aligned" else [at])


WRONG_CODES = [
    (np.zeros((2, 2), np.int8), "codes must be a NumPy array of uint8, not int8"),
    ([[1, 2]], "not list"),
    (np.zeros(4, np.uint8), r"must be \[rows, columns\], not of shape \(4,\)"),
    (np.array([[0, 1], [3, 16]], np.uint8), "code 16 at row 1, column 1 has more than 4 bits; .* from 0 to 15"),
    (np.zeros((2, 3), np.uint8), "columns must be a multiple of 2, not 3; pad to 4 first"),
]


@pytest.mark.parametrize(("codes", "said"), WRONG_CODES)
def test_wrong_codes_are_refused(codes: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        pack(codes, LAYOUTS["nibbles_low_first"])


WRONG_STORAGE = [
    (np.zeros((2, 4), np.uint8), "storage must be a NumPy array of int32, not uint8; view its bits"),
    (np.zeros((2, 1), np.float32), "not float32"),
    ([0], "not list"),
    (np.zeros((1, 2), np.int32), r"2 rows and 8 columns is stored as \(2, 1\), not \(1, 2\); give the memory"),
    (np.zeros((2, 2), np.int32), r"not \(2, 2\)"),
]


@pytest.mark.parametrize(("storage", "said"), WRONG_STORAGE)
def test_wrong_storage_is_refused(storage: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        unpack(storage, LAYOUTS["awq_4bit"], 2, 8)


def test_the_sign_of_storage_and_its_strides_do_not_matter() -> None:
    codes = numbered(4, 6, 16)
    storage = pack(codes, LAYOUTS["awq_4bit"])
    strided = np.asfortranarray(storage).view()
    for form in (storage.view(np.uint32), storage.reshape(-1), strided, storage.astype(">i4")):
        np.testing.assert_array_equal(unpack(form, LAYOUTS["awq_4bit"], 6, 16).codes, codes)


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(BadInput, match=r"unknown layout 'scales_128x8'.*scales_128x4"):
        layout_named("scales_128x8")
    with pytest.raises(BadInput, match=r"unknown zero-point convention 'gptq_v1'.*gptq_v1_4bit"):
        zero_points_named("gptq_v1")
    assert layout_named("awq_4bit").name == "awq_4bit"
    with pytest.raises(BadInput, match="rows must be 0 or more, not -1"):
        storage_shape(LAYOUTS["scales_128x4"], -1, 4)


BROKEN = [
    ({"rows": "R:2"}, "must have just one digit without a size"),
    ({"rows": "R x:0"}, "digit 'x:0' .* whole number above 0"),
    ({"storage": ("R", "C C")}, "each must occur once"),
    ({"storage": ("R",)}, "each must occur once"),
    ({"slots": "", "storage": ("R", "C h")}, "slots '' are 1, the word has 2"),
    ({"word": ((0, 1, 2, 3), (3, 4, 5, 6))}, "each of its bits to one code of 4 bits"),
    ({"word": ((0, 1, 2), (3, 4, 5, 6, 7))}, "each of its bits to one code of 4 bits"),
    ({"storage_dtype": "int32"}, "whole elements of int32"),
]


@pytest.mark.parametrize(("changes", "said"), BROKEN)
def test_a_declaration_that_is_no_layout_is_refused(changes: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {
        "name": "x", "holds": "codes", "bits": 4, "rows": "R", "columns": "C h:2", "storage": ("R", "C"), "slots": "h",
        "word": dense(4, 2), "padding": "refused", "users": (), "source": "",
    }  # fmt: skip
    assert Layout(**right).word_bytes == 1
    with pytest.raises(BadInput, match=said):
        Layout(**right | changes)


def test_zero_points_are_stored_as_checkpoints_store_them() -> None:
    zeros = np.arange(1, 16)
    assert stored_zeros(zeros, ZERO_POINTS["gptq_v1_4bit"]).tolist() == list(range(15))
    assert stored_zeros(zeros, ZERO_POINTS["gptq_v2_4bit"]).tolist() == zeros.tolist()
    assert stored_zeros(zeros, ZERO_POINTS["awq_4bit"]).tolist() == zeros.tolist()
    assert stored_zeros(np.array([-8, 0, 7]), ZERO_POINTS["compressed_tensors_4bit"]).tolist() == [0, 8, 15]
    assert zeros_of(np.array([7, 15], np.uint8), ZERO_POINTS["gptq_v1_4bit"]).tolist() == [8, 16]
    assert zeros_of(np.array([8]), ZERO_POINTS["gptq_v2_4bit"]).tolist() == [8]


@pytest.mark.parametrize("name", [name for name, z in ZERO_POINTS.items() if z.constant is None])
def test_every_zero_point_comes_back(name: str) -> None:
    of = ZERO_POINTS[name]
    every = np.arange(of.lowest, of.highest + 1)
    assert len(every) == 1 << of.bits
    assert zeros_of(stored_zeros(every, of), of).tolist() == every.tolist()


WRONG_ZEROS = [
    ("gptq_v1_4bit", np.array([3, 0]), r"go from 1 to 16; 0 at \(1,\) has no place there"),
    ("gptq_v2_4bit", np.array([16]), "go from 0 to 15; 16"),
    ("compressed_tensors_8bit", np.array([-129]), "go from -128 to 127; -129"),
    ("awq_4bit", np.array([1.0]), "must be a NumPy array of integers, not float64"),
    ("uint4b8", np.array([8]), "stores no zero points: every one is 8; leave the tensor out"),
]


@pytest.mark.parametrize(("name", "zeros", "said"), WRONG_ZEROS)
def test_a_zero_point_without_a_place_is_refused(name: str, zeros: Array, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        stored_zeros(zeros, ZERO_POINTS[name])
