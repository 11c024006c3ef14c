"""Folders of models: which files are read, indexes, parts, configurations, and what is no checkpoint at all."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.objects import object_at
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.checkpoint_bytes import Block, entry, gguf, refusal, safetensors

pytestmark = pytest.mark.meta

ONE, TWO, THREE = (safetensors({name: ("U8", [1], b"\1")}) for name in ("one", "two", "three"))
A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
TEXT = json.dumps({"metadata": {"total_size": 2}, "weight_map": {"one": A, "two": B}}).encode()


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """A folder with these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def index(said: Any) -> dict[str, bytes]:
    return {A: ONE, B: TWO, INDEX: said if isinstance(said, bytes) else json.dumps(said).encode()}


@pytest.mark.parametrize("given", [".", INDEX])
def test_shards_by_their_index(given: str, tmp_path: Path) -> None:
    lay(tmp_path, {A: ONE, B: TWO, INDEX: TEXT, "other.safetensors": THREE, "config.json": b'{"a": 1}'})
    found = open_checkpoint(tmp_path / given)
    assert {name: one.path.name for name, one in found.tensors.items()} == {"one": A, "two": B}
    assert (found.config, found.findings) == ({"a": 1}, ())
    assert found.unread == ("other.safetensors: the index does not name it",)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "byte 0: an index needs a weight_map"),
        ({"weight_map": []}, "byte 0: an index needs a weight_map"),
        ({"weight_map": {"one": 3}}, "byte 16: tensor 'one' needs the name of a file"),
        ({"weight_map": {"one": []}}, "byte 16: tensor 'one' needs the name of a file"),
        ({"weight_map": {"one": "../x.safetensors"}}, "byte 16: tensor 'one' needs the name of a file"),
        ({"weight_map": {"one": "a\0b"}}, "byte 16: tensor 'one' needs the name of a file"),
        ({"weight_map": {"one": A, "two": "m.safetensors"}}, "byte 66: the file 'm.safetensors' that"),
        ({"weight_map": {"one": "n" * 5000}}, "(5,000 letters) that it names is missing"),
        (b'{"weight_map": {"one": "a", "one": "b"}}', "byte 28: the name 'one' stands twice"),
        (b"[1]", "byte 0: expected a JSON object, and this is a list"),
        (b'{"weight_map"', "byte 13: this is no JSON"),
    ],
)  # fmt: skip
def test_indexes_that_are_wrong(said: Any, reason: str, tmp_path: Path) -> None:
    lay(tmp_path, index(said))
    assert reason in refusal(tmp_path)
    assert refusal(tmp_path).startswith(f"{tmp_path / INDEX}, byte ")


def test_indexes_that_do_not_fit(tmp_path: Path) -> None:
    """The files are read; what the index has wrong is found."""
    said = {"metadata": {"total_size": 7}, "weight_map": {"one": B, "gone": A, "lost": A}}
    found = open_checkpoint(lay(tmp_path, index(said)))
    assert [(f.kind, f.tensor, f.said) for f in found.findings] == [
        ("index names absent tensors", "gone", f"{INDEX}: 2 tensors, gone, lost"),
        ("index names another file", "one", f"{INDEX}: 1 tensors, one"),
        ("index lacks tensors", "two", f"{INDEX}: 1 tensors, two"),
        ("index size", "", f"{INDEX} says 7 bytes; the tensors have 2"),
    ]
    assert all(f.kind in KINDS for f in found.findings)


@pytest.mark.parametrize("total", [2, 2.0, None, "two", 1e300])
def test_total_sizes_that_say_nothing_wrong(total: Any, tmp_path: Path) -> None:
    said = {"metadata": {"total_size": total}, "weight_map": {"one": A, "two": B}}
    assert open_checkpoint(lay(tmp_path, index(said))).findings == ()


def test_several_indexes(tmp_path: Path) -> None:
    variant = json.dumps({"weight_map": {"three": "v.safetensors"}}).encode()
    lay(tmp_path, index(TEXT) | {"v.safetensors": THREE, "v.safetensors.index.json": variant})
    assert list(open_checkpoint(tmp_path).tensors) == ["one", "two"]
    assert list(open_checkpoint(tmp_path / "v.safetensors.index.json").tensors) == ["three"]
    (tmp_path / INDEX).rename(tmp_path / "w.safetensors.index.json")
    assert "has several indexes: v.safetensors.index.json, w.safetensors.index.json" in refusal(tmp_path)


def test_a_folder_without_index(tmp_path: Path) -> None:
    lay(tmp_path, {A: ONE, "x.safetensors": THREE})
    assert "has 1 of 00002 parts of model.safetensors: part 00002 is missing" in refusal(tmp_path)
    lay(tmp_path, {B: TWO})
    assert list(open_checkpoint(tmp_path).tensors) == ["one", "two", "three"]
    lay(tmp_path, {B: ONE})
    assert refusal(tmp_path) == f"{tmp_path / B}, byte {len(ONE) - 1}: tensor 'one' is in {A} too; give one file"
    assert list(open_checkpoint(tmp_path / A).tensors) == ["one"]


def test_what_is_passed_over(tmp_path: Path) -> None:
    files = {
        "model.safetensors": ONE,
        "m.gguf": b"",
        "pytorch_model.bin": b"",
        "m.onnx": b"",
        "unet/u.safetensors": b"",
    }
    lay(tmp_path, files | {"consolidated.safetensors": TWO, "tokenizer.bin.txt": b"", "empty/x": b""})
    assert open_checkpoint(tmp_path).unread == (
        "consolidated.safetensors: the model again in its first names; give the file itself to read it",
        "m.gguf: the safetensors files are read in its place",
        "m.onnx: a kind of weights that is not read here",
        "pytorch_model.bin: the safetensors files are read in its place",
        "unet/: a folder of weights of its own; give it to read it",
    )
    (tmp_path / "model.safetensors").unlink()
    assert list(open_checkpoint(tmp_path).tensors) == ["two"]
    assert not any("consolidated" in name for name in open_checkpoint(tmp_path).unread)


def test_folders_without_weights(tmp_path: Path) -> None:
    lay(tmp_path, {"config.json": b"{}", "m.onnx": b"", "unet/u.safetensors": b""})
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path} holds no weights: no file that ends in .safetensors, .gguf, .bin, .pt")
    assert said.endswith("it has m.onnx, which is not read here; there are weights in unet: give one of these")


def part(number: int, count: int, name: str) -> bytes:
    split = [entry("split.no", 2, struct.pack("<H", number)), entry("split.count", 2, struct.pack("<H", count))]
    split.append(entry("split.tensors.count", 5, struct.pack("<i", 2)))
    return gguf(split, [Block(name, 24, (1,), b"\1")])


def test_gguf_in_parts(tmp_path: Path) -> None:
    files = {f"m-0000{n + 1}-of-00002.gguf": part(n, 2, "ab"[n]) for n in (0, 1)}
    lay(tmp_path, files | {"mmproj-m.gguf": b""})
    for given in (tmp_path, *(tmp_path / name for name in files)):
        assert list(open_checkpoint(given).tensors) == ["a", "b"]
    assert open_checkpoint(tmp_path).unread[0].startswith("mmproj-m.gguf: the projector of another modality")
    lay(tmp_path, {"m-Q8.gguf": part(0, 2, "a")})
    assert "holds several models: m-00001-of-00002.gguf, m-Q8.gguf; give one file" in refusal(tmp_path)
    assert "split.count says 2 files of this model, and there are 1" in refusal(tmp_path / "m-Q8.gguf")
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    assert "has 1 of 00002 parts of m.gguf: part 00001 is missing" in refusal(tmp_path / "m-00002-of-00002.gguf")


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_configurations(tmp_path: Path) -> None:
    files = {
        "model.safetensors": ONE,
        "config.json": b'{"time_step_limit": [0.0, Infinity], "model_max_length": 1000000000000000019884624838656}',
        "hf_quant_config.json": b'{"quantization": {}}',
        "modules.json": b"[]",
        "tokenizer.json": b"{",
        "eval.json": b'{"loss": NaN}',
    }
    found = open_checkpoint(lay(tmp_path, files))
    assert found.config == {"time_step_limit": [0.0, float("inf")], "model_max_length": 1000000000000000019884624838656}
    assert found.others == {"hf_quant_config.json": {"quantization": {}}}
    assert [(f.kind, f.said) for f in found.findings] == [
        ("JSON not read", f"{tmp_path / 'eval.json'}, byte 9: 'NaN' is no number that can be used")
    ]
    alone = open_checkpoint(tmp_path / "model.safetensors")
    assert (alone.config, alone.others, alone.findings) == (found.config, found.others, ())


BROKEN = [
    (b"", 0, "this is no JSON"),
    (b"[]", 0, "expected a JSON object, and this is a list"),
    (b'{"a": 1,}', 8, "this is no JSON"),
    ('{"ö": tru}'.encode(), 7, "this is no JSON"),
    (b'{"a": "\xff"}', 7, "expected JSON in UTF-8"),
    (b'{"a": "NaN", "b": NaN}', 18, "'NaN' is no number"),
    (b'{"a": 1e999}', 6, "'1e999' is no number"),
    (b'{"a": [1, ' + b"1" * 400 + b"]}", 10, "(400 letters) is no number"),
    (b'{"a": [1, -' + b"1" * 5000 + b"]}", 10, "(5,001 letters) is no number"),
    (b'{"a": {"b": 1, "c": {"b": 1}, "b": 2}}', 30, "the name 'b' stands twice in one object"),
    (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 105, "JSON more than 100 levels deep"),
    (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", 105, "JSON more than 100 levels deep"),
    (b'{"a": "\\ud83d"}', 0, r"the text '\\ud83d' is no Unicode"),
    (b'{"\\ud83d": 1}', 0, r"the text '\\ud83d' is no Unicode"),
]


@pytest.mark.parametrize(("content", "at", "reason"), BROKEN, ids=[f"{r} {len(c)}" for c, _, r in BROKEN])
@pytest.mark.parametrize("name", ["config.json", "quantize_config.json"])
def test_configurations_that_are_none(name: str, content: bytes, at: int, reason: str, tmp_path: Path) -> None:
    lay(tmp_path, {"m.safetensors": ONE, name: content})
    found = refusal(tmp_path)
    assert found.startswith(f"{tmp_path / name}, byte {at}: ")
    assert reason in found


def test_json_that_is_fine(tmp_path: Path) -> None:
    content = b'{"a": ' + b"[" * 98 + b"]" * 98 + b', "pair": "\\ud83d\\ude00", "b": {"b": {}}, "c": -0.0, "d": 1e300}'
    found = object_at(lay(tmp_path, {"x.json": content}) / "x.json")
    assert (found["pair"], found["b"], found["d"]) == ("\U0001f600", {"b": {}}, 1e300)
    assert object_at(tmp_path / "none.json") == {}


def test_a_configuration_of_any_length(tmp_path: Path) -> None:
    lay(tmp_path, {"m.safetensors": ONE})
    with open(tmp_path / "config.json", "wb") as file:
        file.truncate(1 << 40)
    assert "has 1,099,511,627,776 bytes; a configuration has at most" in refusal(tmp_path)


# --- what is no file --------------------------------------------------------------------------------------------------


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    loop = tmp_path / "loop.safetensors"
    loop.symlink_to(loop)
    assert f"cannot read {loop}: Too many levels of symbolic links" == refusal(loop)
    assert f"cannot read {loop}: Too many levels of symbolic links" == refusal(tmp_path)
    for path in (tmp_path / "none", tmp_path / ("n" * 300), Path(f"{tmp_path}/a\0b")):
        assert refusal(path).startswith(f"cannot read {path}: ")
    folder = tmp_path / "f"
    (folder / "model.safetensors").mkdir(parents=True)
    assert refusal(folder) == f"{folder / 'model.safetensors'} is no regular file"
    assert "holds no weights" in refusal(folder / "model.safetensors")
    below = lay(tmp_path / "g", {"m.safetensors": ONE}) / "m.safetensors" / "model"
    assert refusal(below) == f"cannot read {below}: Not a directory"
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert refusal(pipe) == f"{pipe} is no regular file"
    assert refusal(Path("/dev/zero")) == "/dev/zero is no regular file"
    lay(tmp_path / "c", {"m.safetensors": ONE})
    (tmp_path / "c" / "config.json").symlink_to(tmp_path / "none")
    assert refusal(tmp_path / "c").startswith(f"cannot read {tmp_path / 'c' / 'config.json'}: ")


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the system's refusal is played."""
    path = lay(tmp_path, {"m.safetensors": ONE}) / "m.safetensors"

    def refuse(*given: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert refusal(path) == f"cannot read {path}: Permission denied"
    monkeypatch.setattr(os, "listdir", refuse)
    assert refusal(tmp_path) == f"cannot read {tmp_path}: Permission denied"


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As in the cache of a hub, where names are links to blobs."""
    lay(tmp_path, {"blobs/1": ONE})
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.safetensors").symlink_to("../blobs/1")
    assert list(open_checkpoint(tmp_path / "snapshot").tensors) == ["one"]


def test_pickles_are_not_opened_unasked(tmp_path: Path) -> None:
    for name, content in (("m.bin", b"\x80\x02}."), ("m.safetensors", b"PK\3\4" + bytes(30))):
        path = lay(tmp_path, {name: content}) / name
        with pytest.raises(BadInput, match=r"holds a pickle, which can run code .* with --torch-weights it is"):
            open_checkpoint(path)
    (tmp_path / "m.safetensors").unlink()
    assert "m.bin holds a pickle" in refusal(tmp_path)
