"""Headers of safetensors and GGUF files, by writers of our own and by the safetensors library, and what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors

from narrowgauge.checkpoints import of_safetensors
from narrowgauge.checkpoints.dtypes import GGML, SAFETENSORS, UNITS
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import pieces, whole
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.checkpoint_bytes import Plain, random_bytes, refusal, with_header
from narrowgauge.suites.meta.checkpoint_bytes import safetensors as written

pytestmark = pytest.mark.meta

#: bits of an element, from the documents: safetensors' README; the bits per weight that llama.cpp's quantize tool and
#: its pull requests give for each type of block
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6, "Q8_0": 8.5, "Q8_1": 9, "Q2_K": 2.625, "Q3_K": 3.4375,
    "Q4_K": 4.5, "Q5_K": 5.5, "Q6_K": 6.5625, "Q8_K": 9.125, "IQ2_XXS": 2.0625, "IQ2_XS": 2.3125, "IQ3_XXS": 3.0625,
    "IQ1_S": 1.5625, "IQ4_NL": 4.5, "IQ3_S": 3.4375, "IQ2_S": 2.5625, "IQ4_XS": 4.25, "IQ1_M": 1.75, "TQ1_0": 1.6875,
    "TQ2_0": 2.0625, "MXFP4": 4.25, "NVFP4": 4.5, "Q1_0": 1.125,
}  # fmt: skip
LITTLE = {"a": ("F32", [2, 3], bytes(range(24))), "b": ("I8", [5], b"\1\2\3\4\5"), "s": ("BF16", [], b"\x80\x3f")}


@pytest.mark.parametrize("name", sorted({*SAFETENSORS, *GGML.values()}))
def test_every_dtype_has_the_bits_that_are_documented(name: str) -> None:
    unit = UNITS[name]
    assert 8 * unit.bytes / unit.elements == BITS[name]


def every_dtype() -> dict[str, Plain]:
    """A tensor of each dtype that safetensors knows, and shapes of no, one and no elements."""
    tensors: dict[str, Plain] = {}
    for place, (name, unit) in enumerate(SAFETENSORS.items()):
        tensors[f"t.{name}"] = (name, [3, 4 * unit.elements], random_bytes(place, 12 * unit.bytes))
        if unit.elements == 1:
            tensors[f"scalar.{name}"] = (name, [], random_bytes(place + 100, unit.bytes))
            tensors[f"none.{name}"] = (name, [2, 0, 3], b"")
    return tensors


def test_the_library_reads_the_same_bytes(tmp_path: Path) -> None:
    """safetensors' own reader, in Rust, against ours: names, dtypes, shapes and every byte."""
    content = written(every_dtype(), {"format": "pt", "ö": "\u20ac"})
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    found = open_checkpoint(path)
    theirs = dict(safetensors.deserialize(content))  # type: ignore[no-untyped-call]
    assert found.tensors.keys() == theirs.keys()
    assert found.metadata == {"format": "pt", "ö": "\u20ac"}
    for name, one in found.tensors.items():
        assert (one.dtype, list(one.shape)) == (theirs[name]["dtype"], theirs[name]["shape"])
        assert whole(one).tobytes() == bytes(theirs[name]["data"]) == b"".join(p.tobytes() for p in pieces(one, 5))


ONE = {"dtype": "U8", "shape": [2]}
#: what both refuse: (what is wrong, the header, bytes behind it, a part of our reason)
WRONG: list[tuple[str, Any, int, str]] = [
    ("no JSON", b"{", 0, "this is no JSON"),
    ("a list", b"[]", 0, "is no JSON object"),
    ("not UTF-8", b'{"\xff": 1}', 0, "expected JSON in UTF-8"),
    ("no tensor", {"a": 3}, 0, "needs a dtype, a shape and two data_offsets"),
    ("no dtype", {"a": {"shape": [1], "data_offsets": [0, 4]}}, 4, "needs a dtype, a shape"),
    ("no shape", {"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4, "needs a dtype, a shape"),
    ("no offsets", {"a": {"dtype": "F32", "shape": [1]}}, 4, "needs a dtype, a shape"),
    ("one offset", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}, 4, "needs a dtype, a shape"),
    ("unknown dtype", {"a": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}, 4, "unknown dtype 'F9'"),
    ("dtype a number", {"a": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}}, 4, "needs a dtype"),
    ("negative", {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, 4, "whole numbers from 0 on"),
    ("a bool", {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, 4, "whole numbers from 0 on"),
    ("a fraction", {"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, 4, "whole numbers from 0 on"),
    ("2^64", {"a": {"dtype": "F32", "shape": [1 << 64], "data_offsets": [0, 4]}}, 4, "whole numbers from 0 on"),
    ("overflow", {"a": {"dtype": "F32", "shape": [1 << 40] * 2, "data_offsets": [0, 4]}}, 4, "impossible shape"),
    ("half a byte", {"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 2]}}, 2, "impossible shape"),
    ("too few", {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, 4, "8 bytes; its data_offsets"),
    ("too many", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}, 8, "4 bytes; its data_offsets"),
    ("backwards", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, 4, "4 bytes; its data_offsets"),
    ("cut off", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, 3, "and may be cut off"),
    ("outside", {"a": {"dtype": "F32", "shape": [1], "data_offsets": [1 << 62, (1 << 62) + 4]}}, 4, "may be cut off"),
    ("a hole first", {"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, 2, "nothing names the bytes"),
    ("a hole last", {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, 2, "the last 1 bytes"),
    ("overlapping", {"a": {**ONE, "data_offsets": [0, 2]}, "b": {**ONE, "data_offsets": [1, 3]}}, 3, "'b' overlaps"),
    ("metadata no text", {"__metadata__": {"a": 1}}, 0, "__metadata__ must hold texts"),
    ("a NaN", b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}', 4, "'NaN' is no number"),
    ("1e999", b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}', 4, "'1e999' is no number"),
    ("deep", b'{"a":' + b"[" * 100_000, 0, "JSON more than 100 levels deep"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "behind", "reason"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG])
def test_headers_that_break_a_rule(header: Any, behind: int, reason: str, tmp_path: Path) -> None:
    """Each is refused, with file and byte; the library refuses it too."""
    content = with_header(header if isinstance(header, bytes) else json.dumps(header).encode(), bytes(behind))
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput) as raised:
        open_checkpoint(path)
    assert reason in str(raised.value)
    assert str(raised.value).startswith(f"{path}, byte ")
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize(content)  # type: ignore[no-untyped-call]


#: what the library lets pass, and the format's README forbids, or what no other reader could take
STRICTER: list[tuple[bytes, int, str]] = [
    (b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
     61, "the name 'a' stands twice in one object"),
    (b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 27, "the name 'dtype' stands twice"),
    (b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 8, "is no Unicode"),
    (b'{"a":{"dtype":"U8","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}', 9, "impossible shape"),
    (b'{"a":{"dtype":"U8","shape":[1' + b",1" * 64 + b'],"data_offsets":[0,1]}}', 9, "impossible shape"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "at", "reason"), STRICTER)
def test_headers_that_no_reader_should_take(header: bytes, at: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(with_header(header, b"\1"))
    with pytest.raises(BadInput, match=f"byte {at}: .*{reason}"):
        open_checkpoint(path)


def test_an_error_says_where_a_name_stands(tmp_path: Path) -> None:
    """Of the second of two tensors, by its place in the header; a long name is cut."""
    name = "x" * 1000
    content = written({"a": ("U8", [1], b"\1"), name: ("Q8", [1], b"\2")})
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="1,000 letters") as raised:
        open_checkpoint(path)
    assert f"byte {content.index(name.encode()) - 1}: " in str(raised.value)
    assert len(str(raised.value)) < 600 + len(str(path))


BEGINNINGS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n": "a Git LFS pointer",
    b"<!DOCTYPE html><html></html>": "a page of the web",
    b"": "the file ends at 0",
    b"\x10\0\0\0\0\0\0": "the file ends at 7",
    b"\x10\0\0\0\0\0\0\0{}": "expected 16 bytes of a safetensors header; the file ends at 10",
    (100_000_001).to_bytes(8, "little") + b"{}": "a header of 100,000,001 bytes",
}


@pytest.mark.parametrize("content", BEGINNINGS)
def test_files_that_are_something_else(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=BEGINNINGS[content]):
        open_checkpoint(path)


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    content = written(LITTLE, {"format": "pt"})
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    assert len(open_checkpoint(path).tensors) == 3
    for end in reversed(range(len(content))):
        os.truncate(path, end)
        assert refusal(path).startswith(f"{path}, byte ")


def test_roles_by_names(tmp_path: Path) -> None:
    roles = {
        "model.layers.0.mlp.down_proj.weight": "model", "optimizer.state.0.exp_avg": "optimizer",
        "layer.weight.exp_avg_sq": "optimizer", "state.3.step": "optimizer", "optim.state.1.step": "optimizer",
        "transformer.step_embedding.weight": "model", "exp_avg_pool.weight": "model", "rng_state": "other",
        "lr_scheduler.last": "other", "epoch": "other", "optimizer_gate.weight": "model",
    }  # fmt: skip
    path = tmp_path / "m.safetensors"
    path.write_bytes(written(dict.fromkeys(roles, ("U8", [1], b"\1"))))
    assert {n: t.role for n, t in of_safetensors.tensors_of(path)[0].items()} == roles
