"""Files of torch's: against the bytes that torch finds in them, and what its weights-only loader refuses."""

from __future__ import annotations

import importlib.util
import json
import mmap
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.checkpoints import of_torch
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.of_torch import Scratch
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.reading import all_elements, whole
from narrowgauge.checkpoints.source import Source
from narrowgauge.checkpoints.zip_records import records_of
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices.device import ROOT
from narrowgauge.devices.torch_files import Places
from narrowgauge.suites.meta.checkpoint_bytes import safetensors, zipped
from narrowgauge.suites.meta.marks import needs_torch
from narrowgauge.suites.meta.torch_checkpoints import make

pytestmark = pytest.mark.meta


@dataclass
class Made:
    """The files, what torch says of those of zip.pt and old.pth, and what was opened of the folder that has both."""

    folder: Path
    expected: dict[str, Any]
    found: Checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("torch")
    expected = make(folder)
    return Made(folder, expected, open_checkpoint(folder / "all", torch_weights=True))


@needs_torch
def test_every_byte_is_what_torch_has(made: Made) -> None:
    found = {name: [t.dtype, list(t.shape), whole(t).tobytes().hex()] for name, t in made.found.tensors.items()}
    assert {name: one for name, one in found.items() if name not in ("packed", "quantized")} == made.expected


@needs_torch
def test_a_zip_file_is_not_copied(made: Made) -> None:
    """All but what torch lays out anew stands in the file itself; a file from before zip files is copied."""
    tensors = made.found.tensors
    copied = {name for name, t in tensors.items() if t.path.parent != made.folder / "all" and "old." not in name}
    assert copied == {f"state_dict.{name}" for name in ("turned", "none", "conj", "expanded")}
    assert {t.path.name for name, t in tensors.items() if name.startswith("old.")} == {"copied"}
    assert tensors["state_dict.tied"].start == tensors["state_dict.float32"].start
    assert tensors["state_dict.float8_e4m3fnuz"].format == "float8_e4m3fnuz"


@needs_torch
def test_roles_in_a_file_of_training(made: Made) -> None:
    others = {name: t.role for name, t in made.found.tensors.items() if not name.startswith(("state_dict.", "old."))}
    assert others == {
        "optimizer.state.0.step": "optimizer", "optimizer.state.0.exp_avg": "optimizer", "parts.0": "model",
        "parts.1.0": "model", "packed": "model", "quantized": "model",
    }  # fmt: skip


@needs_torch
def test_tensors_that_are_no_plain_bytes(made: Made) -> None:
    assert made.found.unread == (
        "training_args.bin: arguments of a training run",
        "model.bin: no file of torch's",
        "sparse: sparse_coo, and not dense",
        "meta: without values, on the meta device",
        "repeated: a few values, repeated",
    )
    packed, quantized = made.found.tensors["packed"], made.found.tensors["quantized"]
    assert (packed.dtype, packed.shape, packed.format) == ("float4_e2m1fn_x2", (2, 6), "float4_e2m1fn")
    assert all_elements(packed).data.tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert (quantized.dtype, quantized.shape, quantized.format) == ("qint8", (2,), "int8")
    assert all_elements(quantized).data.tolist() == [2, 255]


@needs_torch
def test_shards_of_torch_by_their_index(made: Made) -> None:
    folder = made.folder / "sharded"
    where = {f"{letter}.weight": f"pytorch_model-0000{n}-of-00002.bin" for n, letter in ((1, "a"), (2, "b"))}
    said = {"metadata": {"total_size": 112}, "weight_map": where}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(said))
    found = open_checkpoint(folder, torch_weights=True)
    assert {name: t.path.name for name, t in found.tensors.items()} == where
    assert found.findings == ()
    place = Scratch().path
    assert not place.exists()


#: run with files: what the child's functions make of each, one JSON text a line
_TELL = """
import io, json, sys
sys.path.append(sys.argv[1])
from pathlib import Path
from narrowgauge.contracts.errors import BadInput
from narrowgauge.devices.torch_files import Writer, tell
for path in sys.argv[2:]:
    reports = []
    try:
        tell(Path(path), 0, path.endswith(".map"), Writer(io.BytesIO()), lambda **said: reports.append(said))
    except BadInput as error:
        reports = str(error)
    print(json.dumps(reports))
"""


@needs_torch
def test_what_is_never_loaded(made: Made) -> None:
    with pytest.raises(BadInput, match=r"own.pt: torch's weights-only loader refuses it.*: Unsupported.*somewhere.Own"):
        open_checkpoint(made.folder / "own.pt", torch_weights=True)


def lies(path: Path, report: dict[str, Any]) -> bool:
    """Whether a report of the child's is taken only where it names bytes of a record."""
    found = of_torch.Loaded()
    try:
        with Source(path) as source:
            size, records = source.size, records_of(source)
        of_torch.placed(report, found, [path], [records], path)
    except BadInput:
        return True
    return all(t.path == path and (report["file"] < 0 or t.start + t.size <= size) for t in found.tensors.values())


@needs_torch
def test_files_that_are_damaged(made: Made, tmp_path: Path) -> None:
    """A handful through the child's own functions, mapped or not: refused, or places that lie in a record."""
    content = (made.folder / "all" / "zip.pt").read_bytes()
    with Source(made.folder / "all" / "zip.pt") as source:
        pickle = next(record for record in records_of(source) if record.name.endswith("data.pkl"))
    damaged = {"deep": (made.folder / "deep.pt").read_bytes(), "whole": content}
    damaged |= {f"cut{n}": content[: len(content) * n // 7] for n in range(1, 7)}
    for n in range(24):
        at = pickle.start + n * pickle.size // 24
        damaged[f"flip{n}"] = content[:at] + bytes([content[at] ^ 1 << n % 8]) + content[at + 1 :]
    paths = []
    for name, one in damaged.items():
        for how in ("map", "copy"):
            paths.append(tmp_path / f"{name}.{how}")
            paths[-1].write_bytes(one)
    done = subprocess.run(
        [sys.executable, "-c", _TELL, ROOT, *map(str, paths)], capture_output=True, text=True, timeout=120, check=True
    )
    told = dict(zip(paths, map(json.loads, done.stdout.splitlines()), strict=True))
    for path, reports in told.items():
        if isinstance(reports, str):
            assert str(path) in reports or "levels deep" in reports
        else:
            assert all(lies(path, report) for report in reports)
    refused = [path.name for path, reports in told.items() if isinstance(reports, str)]
    assert {"deep.map", "deep.copy"} < set(refused)
    assert len(refused) > 20
    assert told[tmp_path / "whole.map"] != told[tmp_path / "whole.copy"]


def report(**fields: Any) -> Mapping[str, Any]:
    return {"name": "t", "dtype": "float32", "shape": [2], "file": 0, "start": 40, "size": 8} | fields


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"start": 39}, "byte 39: tensor 'v' of 8 bytes lies in no record of the zip file"),
        ({"start": 41}, "lies in no record"),
        ({"start": 1 << 62}, "lies in no record"),
        ({"size": 9}, r"is float32 \[2\] in 9 bytes"),
        ({"shape": [3]}, r"is float32 \[3\] in 8 bytes"),
        ({"shape": [1 << 62, 1 << 62], "size": 0}, "in 0 bytes"),
    ],
)
def test_places_that_the_child_may_not_say(fields: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(zipped({"a/data/0": bytes(8)}))
    with Source(path) as source:
        records = records_of(source)
    assert [(r.name, r.size, r.stored) for r in records] == [("a/data/0", 8, True)]
    found = of_torch.Loaded()
    start = records[0].start
    of_torch.placed(report(start=start), found, [path], [records], path)
    with pytest.raises(BadInput, match="two tensors have the name 't'"):
        of_torch.placed(report(start=start), found, [path], [records], path)
    of_torch.placed(report(name="u", dtype="float7"), found, [path], [records], path)
    assert found.unread == ["u: of float7, which is not known"]
    moved = {"start": fields["start"] - 40 + start} if "start" in fields else {"start": start}
    with pytest.raises(BadInput, match=reason.replace("byte 39", f"byte {start - 1}")):
        of_torch.placed(report(name="v", **(fields | moved)), found, [path], [records], path)


def test_a_record_that_leaves_the_file(tmp_path: Path) -> None:
    """By what its entry in the directory says."""
    content = zipped({"a/data/0": bytes(8)})
    entry = content.index(b"PK\1\2")
    sizes = entry + 20  # of the record: packed and not
    for number, at, reason in (
        (1 << 20, sizes, "expected 1,048,576 bytes of record"),
        (9, entry + 42, "expected the rec"),
    ):
        changed = content[:at] + struct.pack("<I", number) * (2 if at == sizes else 1)
        (tmp_path / "x").write_bytes(changed + content[len(changed) :])
        with Source(tmp_path / "x") as source, pytest.raises(BadInput, match=f"byte .*: {reason}"):
            records_of(source)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="/proc/self/maps is Linux's; files are copied without")
def test_an_address_in_a_part_of_a_file(tmp_path: Path) -> None:
    page = mmap.ALLOCATIONGRANULARITY
    path = tmp_path / "x"
    path.write_bytes(bytes(3 * page))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), page, access=mmap.ACCESS_READ, offset=page) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        places, address = Places(path), view.ctypes.data
        assert places.of(address + 5, 10) == page + 5
        assert places.of(address, page) == page
        assert places.of(address, page + 1) is None
        assert Places(Path(__file__)).of(address, 1) is None
        del view


def test_which_files_are_mapped(tmp_path: Path) -> None:
    """Not what is compressed, nor of another byte order."""
    for records, compress, expected in (
        ({"a/data/0": b"1" * 99, "a/byteorder": sys.byteorder.encode()}, False, True),
        ({"a/data/0": b"1" * 99}, False, True),
        ({"a/data/0": b"1" * 99}, True, False),
        ({"a/data/0": b"1" * 99, "a/byteorder": b"big"}, False, sys.byteorder == "big"),
    ):
        (tmp_path / "x").write_bytes(zipped(records, compress))
        with Source(tmp_path / "x") as source:
            assert of_torch.mappable(records_of(source)) is expected
    assert not of_torch.mappable(None)


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.pt").write_bytes(zipped({"a/data.pkl": b""}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Infrastructure, match="torch is not installed"):
        open_checkpoint(tmp_path / "x.pt", torch_weights=True)


def test_what_is_no_file_of_torch(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"CTranslate2")
    with pytest.raises(BadInput, match="byte 0: no file of torch's: it begins with b'CTra'"):
        open_checkpoint(tmp_path / "x.bin", torch_weights=True)
    (tmp_path / "y.bin").write_bytes(safetensors({"a": ("U8", [1], b"\1")}))
    with pytest.raises(BadInput, match="no file of torch's"):
        open_checkpoint(tmp_path / "y.bin", torch_weights=True)
