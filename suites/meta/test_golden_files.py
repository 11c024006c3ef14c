"""Golden vectors and tensor files can be read by anybody, and are written whole or not at all."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from narrowgauge.contracts import files
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.golden import safetensors_file
from narrowgauge.golden.export import export
from narrowgauge.golden.manifest import VECTORS, problems
from narrowgauge.golden.safetensors_file import read, write
from narrowgauge.suites.meta.golden_sets import (
    CASTS,
    FAMILIES,
    NARROW,
    WIDE,
    Ints,
    assert_same,
    stored,
    whole_space,
)

pytestmark = pytest.mark.meta

# --- for others to read ----------------------------------------------------------------------------------------------


def by_hand(path: Path) -> dict[str, Ints]:
    """A safetensors reader as anybody would write it: 8 bytes of length, a JSON header, the data."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    types = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32}
    tensors: dict[str, Ints] = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            assert start % np.dtype(types[entry["dtype"]]).itemsize == 0, "a reader may map the file without copying"
            raw = np.frombuffer(content[8 + length :][start:end], types[entry["dtype"]])
            tensors[name] = raw.reshape(entry["shape"])
    return tensors


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported tables, in a folder that did not exist."""
    target = tmp_path_factory.mktemp("golden") / "a" / "b"
    written = export(VECTORS, target, kinds=["safetensors"])
    assert written == sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file())
    return target / "safetensors"


def test_exported_tables_need_no_library_of_ours(tables: Path) -> None:
    for family in FAMILIES.values():
        path = tables / f"{family.name}.safetensors"
        plain, own = safetensors.numpy.load_file(path), by_hand(path)
        assert plain.keys() == own.keys()
        for name, tensor in own.items():
            np.testing.assert_array_equal(plain[name], tensor)
        kept = {n: t.codes for n, t in stored(family).items()}
        if family in WIDE:
            kept = {n: t for n, t in kept.items() if n.startswith("float32.")}
        elif family.operation == "cast":
            assert own.keys() == {"bfloat16.codes", "float16.codes", "float32.first", "float32.code"}
            for source in NARROW:
                assert_same(own[f"{source}.codes"], whole_space(family, source), family.format)
            kept = {n: t for n, t in kept.items() if n.startswith("float32.")}
        for name, kept_codes in kept.items():
            np.testing.assert_array_equal(own[name], kept_codes)


#: what the specifications say of single inputs, looked up by hand; bfloat16 and float16 patterns of one value
KNOWN = [
    ("ocp_saturate-float8_e4m3fn", 1.0, 0x3F80, 0x3C00, 0x38),
    ("ocp_saturate-float8_e4m3fn", -1.0, 0xBF80, 0xBC00, 0xB8),
    ("ocp_saturate-float8_e4m3fn", 448.0, 0x43E0, 0x5F00, 0x7E),
    ("ocp_saturate-float8_e4m3fn", 1000.0, 0x447A, 0x63D0, 0x7E),
    ("ocp_saturate-float8_e4m3fn", -1000.0, 0xC47A, 0xE3D0, 0xFE),
    ("ocp_saturate-float8_e4m3fn", np.inf, 0x7F80, 0x7C00, 0x7E),
    ("ocp_saturate-float8_e4m3fn", -0.0, 0x8000, 0x8000, 0x80),
    ("ocp_saturate-float8_e4m3fn", 2.0**-6, 0x3C80, 0x2400, 0x08),
    ("ocp_saturate-float8_e4m3fn", 2.0**-9, 0x3B00, 0x1800, 0x01),
    ("ocp_saturate-float8_e4m3fn", 2.0**-10, 0x3A80, 0x1400, 0x00),  # the tie to zero
    ("ocp_saturate-float8_e4m3fn", 1.0625, 0x3F88, 0x3C40, 0x38),  # a tie: the even code is below
    ("ocp_saturate-float8_e4m3fn", 1.1875, 0x3F98, 0x3CC0, 0x3A),  # a tie: the even code is above
    ("ocp_nonsaturate-float8_e4m3fn", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", np.inf, 0x7F80, 0x7C00, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", 464.0, 0x43E8, 0x5F40, 0x7E),  # the tie to what would be 480
    ("ocp_nonsaturate-float8_e4m3fn", 466.0, 0x43E9, 0x5F48, 0x7F),
    ("ocp_nonsaturate-float8_e4m3fn", 448.0, 0x43E0, 0x5F00, 0x7E),
    ("fnuz_saturate-float8_e4m3fnuz", 1.0, 0x3F80, 0x3C00, 0x40),
    ("fnuz_saturate-float8_e4m3fnuz", -0.0, 0x8000, 0x8000, 0x00),
    ("fnuz_saturate-float8_e4m3fnuz", 240.0, 0x4370, 0x5B80, 0x7F),
    ("fnuz_saturate-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("fnuz_nonsaturate-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x80),
    ("fnuz_nonsaturate-float8_e4m3fnuz", -np.inf, 0xFF80, 0xFC00, 0x80),
    ("triton_amd_fnuz-float8_e4m3fnuz", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("triton_amd_fnuz-float8_e4m3fnuz", np.inf, 0x7F80, 0x7C00, 0x80),
    ("ocp_saturate-float8_e5m2", 1.0, 0x3F80, 0x3C00, 0x3C),
    ("ocp_saturate-float8_e5m2", 57344.0, 0x4760, 0x7B00, 0x7B),
    ("ocp_saturate-float8_e5m2", np.inf, 0x7F80, 0x7C00, 0x7B),
    ("ocp_nonsaturate-float8_e5m2", np.inf, 0x7F80, 0x7C00, 0x7C),
    ("ocp_nonsaturate-float8_e5m2", -np.inf, 0xFF80, 0xFC00, 0xFC),
    ("fnuz_saturate-float8_e5m2fnuz", 1.0, 0x3F80, 0x3C00, 0x40),
    ("fnuz_saturate-float8_e5m2fnuz", np.inf, 0x7F80, 0x7C00, 0x7F),
    ("fnuz_nonsaturate-float8_e5m2fnuz", np.inf, 0x7F80, 0x7C00, 0x80),
    ("ieee-float8_e4m3", 1.0, 0x3F80, 0x3C00, 0x38),
    ("ieee-float8_e4m3", 240.0, 0x4370, 0x5B80, 0x77),
    ("ieee-float8_e4m3", 1000.0, 0x447A, 0x63D0, 0x78),
    ("ieee-float8_e3m4", 1.0, 0x3F80, 0x3C00, 0x30),
    ("ieee-float8_e3m4", -1000.0, 0xC47A, 0xE3D0, 0xF0),
    ("ml_dtypes-float8_e4m3b11fnuz", 1.0, 0x3F80, 0x3C00, 0x58),
    ("ml_dtypes-float8_e4m3b11fnuz", 1000.0, 0x447A, 0x63D0, 0x80),
    ("ptx_ue8m0_rp_satfinite-float8_e8m0fnu", 1.0, 0x3F80, 0x3C00, 0x7F),
    ("ptx_ue8m0_rp_satfinite-float8_e8m0fnu", 1.0625, 0x3F88, 0x3C40, 0x80),
    ("ptx_ue8m0_rz_satfinite-float8_e8m0fnu", 1.0625, 0x3F88, 0x3C40, 0x7F),
    ("ptx_ue8m0_rz_satfinite-float8_e8m0fnu", np.inf, 0x7F80, 0x7C00, 0xFE),
    ("ptx_satfinite-float6_e2m3fn", 1.0, 0x3F80, 0x3C00, 0x08),
    ("ptx_satfinite-float6_e2m3fn", 1000.0, 0x447A, 0x63D0, 0x1F),
    ("ptx_satfinite-float6_e3m2fn", 1.0, 0x3F80, 0x3C00, 0x0C),
    ("ptx_satfinite-float6_e3m2fn", -1000.0, 0xC47A, 0xE3D0, 0x3F),
    ("ptx_satfinite-float4_e2m1fn", 1.0, 0x3F80, 0x3C00, 0x2),
    ("ptx_satfinite-float4_e2m1fn", 0.25, 0x3E80, 0x3400, 0x0),  # the tie to zero
    ("ptx_satfinite-float4_e2m1fn", 5.0, 0x40A0, 0x4500, 0x6),  # the tie of 4 and 6
    ("ptx_satfinite-float4_e2m1fn", -1000.0, 0xC47A, 0xE3D0, 0xF),
    ("ptx_satfinite-float4_e2m1fn", -0.0, 0x8000, 0x8000, 0x8),
    ("integer_nearest-int8", -1.0, 0xBF80, 0xBC00, 0xFF),
    ("integer_nearest-int8", 2.5, 0x4020, 0x4100, 0x02),
    ("integer_away-int8", 2.5, 0x4020, 0x4100, 0x03),
    ("integer_truncated-int8", -2.5, 0xC020, 0xC100, 0xFE),
    ("integer_nearest-int8", 1000.0, 0x447A, 0x63D0, 0x7F),
    ("integer_nearest-int8", -1000.0, 0xC47A, 0xE3D0, 0x80),
    ("integer_nearest-uint8", -1000.0, 0xC47A, 0xE3D0, 0x00),
    ("integer_nearest-uint8", np.inf, 0x7F80, 0x7C00, 0xFF),
    ("integer_nearest-int4", -1000.0, 0xC47A, 0xE3D0, 0x8),
    ("integer_nearest-uint4", 1000.0, 0x447A, 0x63D0, 0xF),
]


@pytest.mark.parametrize(("table", "value", "bfloat16", "float16", "code"), KNOWN)
def test_codes_that_the_specifications_give(
    tables: Path, table: str, value: float, bfloat16: int, float16: int, code: int
) -> None:
    as_float32 = np.array(bfloat16 << 16, np.uint32).view(np.float32)
    as_float16 = np.array(float16, np.uint16).view(np.float16)
    for pattern in (as_float32, as_float16):
        assert pattern == value
        assert np.signbit(pattern) == np.signbit(value)
    tensors = by_hand(tables / f"cast-{table}.safetensors")
    assert tensors["bfloat16.codes"][bfloat16] == code
    assert tensors["float16.codes"][float16] == code
    run = np.searchsorted(tensors["float32.first"], bfloat16 << 16, side="right") - 1
    assert tensors["float32.code"][run] == code


@pytest.mark.parametrize(
    ("format_name", "nan"),
    [
        ("float8_e4m3fn", {0x7F, 0xFF}),
        ("float8_e4m3fnuz", {0x80}),
        ("float8_e5m2fnuz", {0x80}),
        ("float8_e4m3b11fnuz", {0x80}),
        ("float8_e5m2", {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}),
        ("float8_e4m3", {*range(0x79, 0x80), *range(0xF9, 0x100)}),
        ("float8_e3m4", {*range(0x71, 0x80), *range(0xF1, 0x100)}),
        ("float8_e8m0fnu", {0xFF}),
    ],
)
def test_nan_stays_nan_in_every_table(tables: Path, format_name: str, nan: set[int]) -> None:
    found = [f for f in CASTS if f.format == format_name]
    assert found
    for family in found:
        tensors = by_hand(tables / f"{family.name}.safetensors")
        for source, infinity in (("bfloat16", 0x7F80), ("float16", 0x7C00)):
            codes = tensors[f"{source}.codes"]
            of_nan = np.concatenate([codes[infinity + 1 : 0x8000], codes[0x8000 + infinity + 1 :]])
            assert set(of_nan.tolist()) <= nan


def test_export_does_not_overwrite_the_vectors(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    shutil.copytree(VECTORS, folder)
    with pytest.raises(BadInput, match="would overwrite the vectors"):
        export(folder, folder / ".." / folder.name)
    assert problems(folder) == []


# --- the writer ------------------------------------------------------------------------------------------------------

DTYPES = {
    "float64": "F64", "float32": "F32", "tfloat32": "", "bfloat16": "BF16", "float16": "F16",
    "float8_e4m3fn": "F8_E4M3", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e4m3": "", "float8_e3m4": "", "float8_e4m3b11fnuz": "", "float8_e8m0fnu": "F8_E8M0",
    "float6_e2m3fn": "F6_E2M3", "float6_e3m2fn": "F6_E3M2", "float4_e2m1fn": "F4",
    "int8": "I8", "uint8": "U8", "int4": "", "uint4": "", "int32": "I32",
}  # fmt: skip
#: their files have several codes to a byte
PACKED = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
TYPED = [name for name, dtype in DTYPES.items() if dtype and name not in PACKED]


def some_codes(name: str) -> Coded:
    fmt = FORMATS[name]
    return Coded(name, np.array([i * 7919 % fmt.code_count for i in range(6)], fmt.storage).reshape(2, 3))


def one_of_each(names: Iterable[str] = FORMATS) -> dict[str, Coded]:
    made = {name: some_codes(name) for name in names}
    made["empty"] = Coded("float8_e4m3fn", np.zeros((0, 5), np.uint8))
    made["one"] = Coded("float8_e4m3fn", np.array(7, np.uint8))
    made["turned"] = Coded("float32", np.arange(6, dtype=np.uint32).reshape(2, 3).T)
    return made


@pytest.mark.parametrize("typed", [True, False])
def test_written_files_are_read_by_the_library(tmp_path: Path, typed: bool) -> None:
    path, tensors = tmp_path / "x.safetensors", one_of_each(TYPED if typed else FORMATS)
    write(path, tensors, {"a": 1}, typed=typed)
    found = dict(safetensors.deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        entry = found[name]
        assert entry["dtype"] == (DTYPES[tensor.format] if typed else f"U{8 * tensor.codes.dtype.itemsize}")
        assert entry["shape"] == list(tensor.shape)
        assert bytes(entry["data"]) == tensor.codes.tobytes()
        back = read(path).tensors[name].as_format(tensor.format)
        assert back.format == tensor.format
        np.testing.assert_array_equal(back.codes, tensor.codes)
    assert read(path).metadata == {"narrowgauge": '{"a": 1}'}
    if not typed:
        for name, array in safetensors.numpy.load_file(path).items():
            np.testing.assert_array_equal(array, tensors[name].codes)


def test_every_format_has_a_dtype_of_its_own_or_none() -> None:
    assert {f.name: f.safetensors for f in FORMATS.values()} == DTYPES
    named = [dtype for dtype in DTYPES.values() if dtype]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - set(TYPED)))
def test_a_format_that_cannot_be_written_typed_is_refused(tmp_path: Path, name: str) -> None:
    """Plain integers can always be."""
    path, tensors = tmp_path / "x.safetensors", {"t": some_codes(name)}
    words = "packed sub-byte tensors are not read yet; give codes as U8, one per byte" if name in PACKED else "no safe"
    with pytest.raises(BadInput, match=f"tensor 't' is {name}.*{words}") as raised:
        write(path, tensors, {}, typed=True)
    assert str(path) in str(raised.value)
    assert not path.exists()
    write(path, tensors, {}, typed=False)
    np.testing.assert_array_equal(read(path).tensors["t"].as_format(name).codes, tensors["t"].codes)


@pytest.mark.parametrize(("dtype", "bits"), [("F4", 4), ("F6_E2M3", 6), ("F6_E3M2", 6)])
def test_packed_tensors_are_refused(tmp_path: Path, dtype: str, bits: int) -> None:
    """Eight codes in four or six bytes, as the library has them."""
    path = raw_file(tmp_path / "x", {"t": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}, bytes(bits))
    assert len(safetensors.deserialize(path.read_bytes())) == 1  # type: ignore[no-untyped-call]
    with pytest.raises(BadInput, match=f"tensor 't' has dtype {dtype}; packed sub-byte tensors are not read") as raised:
        read(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", ["int8", "uint8"])
def test_bytes_are_plain_integers_and_int8_by_their_bits(tmp_path: Path, name: str) -> None:
    path, every = tmp_path / "x.safetensors", np.arange(256, dtype=np.uint8)
    write(path, {"t": Coded(name, every)}, {}, typed=True)
    stored_there = read(path).tensors["t"]
    assert stored_there.format == ""
    assert stored_there.data.tolist() == (every.view(np.int8) if name == "int8" else every).tolist()
    np.testing.assert_array_equal(stored_there.as_format(name).codes, every)
    for other in ("float8_e4m3fn", "int4"):  # the numbers of I8 are nobody else's codes
        assert stored_there.as_format(other).well_formed == (name == "uint8" and other != "int4")


def test_bytes_follow_from_the_content(tmp_path: Path) -> None:
    """Not from the order in which tensors or metadata were put together."""
    tensors = one_of_each()
    write(tmp_path / "a", tensors, {"x": 1, "y": 2}, typed=False)
    write(tmp_path / "b", dict(reversed(tensors.items())), {"y": 2, "x": 1}, typed=False)
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert struct.unpack("<Q", content[:8])[0] % 8 == 0
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("before", [None, b"what was there"])
@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(28, "No space left on device"), BadInput), (KeyboardInterrupt(), KeyboardInterrupt)]
)
def test_a_write_that_fails_leaves_no_part_of_a_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: bytes | None,
    error: BaseException,
    raised: type[BaseException],
) -> None:
    path = tmp_path / "x.safetensors"
    if before is not None:
        path.write_bytes(before)

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(files.os, "replace", fail)  # type: ignore[attr-defined]
    with pytest.raises(raised) as caught:
        write(path, one_of_each(), {}, typed=False)
    if raised is BadInput:
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert [p.name for p in tmp_path.iterdir()] == ([] if before is None else [path.name])
    assert before is None or path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "file" / "x.safetensors", tmp_path / "taken"):
        with pytest.raises(BadInput, match="cannot write") as raised:
            write(path, one_of_each(), {}, typed=False)
        assert str(path) in str(raised.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken"]


# --- the reader ------------------------------------------------------------------------------------------------------


def raw_file(path: Path, header: object, body: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.mark.parametrize("dtype", ["BOOL", "C64"])
def test_a_type_that_is_not_read_is_named(tmp_path: Path, dtype: str) -> None:
    width = 8 if dtype == "C64" else 1
    header = {"t": {"dtype": dtype, "shape": [1], "data_offsets": [0, width]}}
    with pytest.raises(BadInput, match=f"tensor 't' has dtype {dtype}; this version reads U8, .*F8_E4M3FNUZ") as raised:
        read(raw_file(tmp_path / "x", header, bytes(width)))
    assert str(tmp_path / "x") in str(raised.value)


@pytest.mark.parametrize("metadata", [None, {}, {"other": "1"}])
def test_a_file_of_somebody_else_is_read_and_has_no_metadata_of_ours(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    file = read(raw_file(tmp_path / "x", {"__metadata__": metadata}))
    assert file.tensors == {}
    with pytest.raises(BadInput, match="was not written by narrowgauge"):
        safetensors_file.metadata_of(file, tmp_path / "x")


@pytest.mark.parametrize("text", ["", "{", "3", "null", "[1]", '"a"', "[" * 100_000])
def test_unreadable_metadata_of_ours(tmp_path: Path, text: str) -> None:
    path = raw_file(tmp_path / "x", {"__metadata__": {"narrowgauge": text}})
    with pytest.raises(BadInput, match="was not written by narrowgauge"):
        safetensors_file.metadata_of(read(path), path)


@pytest.mark.parametrize("integer", sorted(safetensors_file.INTEGERS))
def test_every_integer_type_keeps_its_numbers(tmp_path: Path, integer: str) -> None:
    numbers = np.array([0, 1, 100, 127], f"<{integer[0].lower()}{int(integer[1:]) // 8}")
    header = {"t": {"dtype": integer, "shape": [2, 2], "data_offsets": [0, numbers.nbytes]}}
    tensor = read(raw_file(tmp_path / "x", header, numbers.tobytes())).tensors["t"]
    assert tensor.format == ""
    assert tensor.data.tolist() == [[0, 1], [100, 127]]
