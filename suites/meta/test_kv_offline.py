"""Calls on caches judged from files: a program that knows nothing of narrowgauge, and files that are not right."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from narrowgauge import command
from narrowgauge.contracts.coded import Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.operations import Claim
from narrowgauge.contracts.verdict import Exit
from narrowgauge.reference.expected import expected
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.kv.call import HELD
from narrowgauge.reference.memory import in_memory, to_memory
from narrowgauge.suites.judging import Judged
from narrowgauge.suites.meta.offline_program import Array, Tensors, save
from narrowgauge.suites.offline import judge_files, read_inputs, write_inputs

pytestmark = pytest.mark.meta
#: of a file's header, and of what its metadata says
Change = Callable[[dict[str, Any], dict[str, Any]], None]
WRITE = "kv_write/vllm.flash_fp8/bfloat16/float8_e4m3fn"
DTYPES: dict[str, Any] = {
    "F32": np.float32, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "I32": np.int32, "U8": np.uint8,
}  # fmt: skip


# --- a program that knows nothing of us ------------------------------------------------------------------------------


def load(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors of an inputs file, and what its metadata says."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    said = json.loads(header.pop("__metadata__")["narrowgauge"])
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        raw = np.frombuffer(content[8 + length :][start:end], DTYPES[entry["dtype"]])
        tensors[name] = raw.reshape(entry["shape"]).copy()
    return tensors, said


def write_to_cache(inputs: Path, padding_too: bool = False, of_k: bool = False) -> Tensors:
    """vLLM's store of K and V as fp8, in numpy: the caches of each case after it."""
    tensors, said = load(inputs)
    outputs: Tensors = {}
    for case in said["cases"]:
        block = int(said["numbers"][case]["block_size"])
        for part, rows in (("k", tensors[f"{case}.x"]), ("v", tensors[f"{case}.v"])):
            cache = tensors[f"{case}.{part}_cache"]
            scale = tensors[f"{case}.{'k' if of_k else part}_scale"]
            for row, slot in zip(rows, tensors[f"{case}.slot_mapping"], strict=True):
                if slot >= 0 or padding_too:
                    with np.errstate(all="ignore"):
                        quotient = np.clip(row.astype(np.float32) / scale, -448, 448)
                        cache[slot // block, slot % block] = quotient.astype(cache.dtype)
            outputs[f"{case}.{part}_cache"] = ("F8_E4M3", cache.view(np.uint8))
    return outputs


def judged(inputs: Path, outputs: Tensors) -> list[Judged]:
    return judge_files(inputs, save(inputs.parent / "out.safetensors", outputs), "theirs", "gfx942")


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    path = tmp_path / "in.safetensors"
    write_inputs(Claim.parse(WRITE), "smoke", path)
    return path


def test_a_program_that_writes_is_judged(asked: Path) -> None:
    found = judged(asked, write_to_cache(asked))
    assert {one.row.case for one in found} >= {"scattered", "repeated", "in_order", "all_padding", "no_tokens"}
    assert {one.row.result for one in found} == {"passed"}
    assert {one.row.claim for one in found} == {WRITE}
    assert {one.row.how for one in found} == {"replayed"}


def test_codes_may_come_as_bytes(asked: Path) -> None:
    outputs = {name: ("U8", array) for name, (_, array) in write_to_cache(asked).items()}
    assert {one.row.result for one in judged(asked, outputs)} == {"passed"}


@pytest.mark.parametrize(
    ("mistake", "shown"),
    [({"of_k": True}, {"scattered", "in_order"}), ({"padding_too": True}, {"scattered", "all_padding"})],
)
def test_a_program_that_writes_wrongly_is_named(mistake: dict[str, bool], shown: set[str], asked: Path) -> None:
    found = {one.row.case: one for one in judged(asked, write_to_cache(asked, **mistake))}
    assert found["no_tokens"].row.result == "passed"
    assert {case for case, one in found.items() if one.row.result == "failed"} >= shown
    for case in shown:
        assert found[case].row.left == 0, found[case].message
        assert found[case].row.faults, found[case].message


# --- every cache -----------------------------------------------------------------------------------------------------

EVERY = [
    "kv_write/vllm.flash_copy/float16/float16",
    "kv_write/vllm.flash_fp8_head_hnd/float16/float8_e4m3fn",
    "kv_write/vllm.paged_fp8_rocm/bfloat16/float8_e4m3fnuz",
    "kv_write/vllm.int4_token_head/bfloat16/uint4",
    "kv_write/vllm.nvfp4/bfloat16/float4_e2m1fn",
    "kv_write/vllm.flash_fp8_rope/bfloat16/float8_e4m3fn",
    "kv_write/vllm.fp8_ds_mla/bfloat16/float8_e4m3fn",
    "kv_write/sglang.mxfp8/bfloat16/float8_e4m3fn",
    "kv_write/sglang.copy_vectorized/bfloat16/bfloat16",
    "kv_read/vllm.interleaved_fp8_triton/float8_e4m3fn/float16",
    "kv_read/vllm.int8_token_head/int8/bfloat16",
    "kv_read/vllm.indexer_tiled/float8_e4m3fn/bfloat16",
    "kv_read/sglang.nvfp4_native/float4_e2m1fn/bfloat16",
    "attend/vllm.mla_fp8/float8_e4m3fn/bfloat16",
    "attend/vllm.flash_fp8+soft_cap:30/float8_e5m2/float16",
]


@pytest.mark.parametrize("text", EVERY)
def test_a_file_holds_what_a_live_run_is_given(text: str, tmp_path: Path) -> None:
    """And what is expected, put into a file as a kernel would leave it, passes."""
    claim, inputs = Claim.parse(text), tmp_path / "in.safetensors"
    live = cases_for(claim, "smoke")
    shapes = write_inputs(claim, "smoke", inputs)
    read, cases = read_inputs(inputs)
    assert str(read) == text
    assert cases.keys() == live.keys() == shapes.keys()
    outputs: Tensors = {}
    for name, x in cases.items():
        assert isinstance(x, Input)
        assert x.digest() == live[name].digest(), name
        assert to_memory(claim, x).shape == shapes[name]
        low = {n: interval.low for n, interval in expected(claim, x).items()}
        after = Input(x.format, x.data, {**x.given, **{HELD + n: v for n, v in low.items()}})
        there = given_with(to_memory(claim, after)) if claim.operation == "kv_write" else low
        for output in in_memory(claim, x).outputs:
            data = there[output].data
            outputs[f"{name}.{output}"] = ({1: "U8", 2: "U16", 4: "U32"}[data.itemsize], data)
    assert {one.row.result for one in judged(inputs, outputs)} == {"passed"}


# --- files that are not right ----------------------------------------------------------------------------------------


def change_header(path: Path, change: Change) -> None:
    """Change the header of a file, and what the metadata in it says."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    said = json.loads(header["__metadata__"]["narrowgauge"])
    change(header, said)
    header["__metadata__"]["narrowgauge"] = json.dumps(said)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def extent(name: str, value: object) -> Change:
    return lambda header, said: said["shapes"]["scattered"].__setitem__(name, value)


def shape(name: str, value: list[int]) -> Change:
    return lambda header, said: header[name].__setitem__("shape", value)


def without(name: str) -> Change:
    def change(header: dict[str, Any], said: dict[str, Any]) -> None:
        header["nobody"] = header.pop(name)

    return change


DAMAGES: dict[str, tuple[Change, str]] = {
    "no heads": (
        extent("heads", 0),
        "case 'scattered': its extent is {'block_size': 16, 'columns': {'k': 128, 'v': 128}, 'h",
    ),
    "half a page": (
        extent("slots", 8),
        "expected whole numbers above 0: heads, block_size, slots in whole pages, and columns of",
    ),
    "another size": (extent("slots", 96), "case 'scattered': k_cache is float8_e4m3fn [5, 16, 2, 64]; expected"),
    "a part missing": (extent("columns", {"k": 128}), "columns of k, v"),
    "another width": (
        extent("columns", {"k": 128, "v": 64}),
        "case 'scattered': v is bfloat16 [24, 2, 64]; expected bfloat16 [any",
    ),
    "more": (extent("more", 1), "case 'scattered': its extent is"),
    "no shapes": (lambda header, said: said.pop("shapes"), "case 'scattered': its extent is None"),
    "no shape": (lambda header, said: said["shapes"].pop("scattered"), "case 'scattered': its extent is None"),
    "no v": (without("scattered.v"), "holds no tensor 'scattered.v'"),
    "no scale": (without("scattered.v_scale"), "holds no tensor 'scattered.v_scale'"),
    "no heads in x": (
        shape("scattered.x", [24, 128]),
        "case 'scattered': x is bfloat16 [24, 128]; expected bfloat16 [any, 2, 64]",
    ),
    "other heads": (
        shape("scattered.x", [12, 4, 64]),
        "case 'scattered': x is bfloat16 [12, 4, 64]; expected bfloat16 [any, 2",
    ),
    "other pages": (
        shape("scattered.v_cache", [10, 8, 2, 64]),
        "case 'scattered': v_cache is float8_e4m3fn [10, 8, 2, 64]; exp",
    ),
    "slots as a matrix": (
        shape("scattered.slot_mapping", [2, 12]),
        "case 'scattered': slot_mapping is int32 [2, 12]; expected int32 [",
    ),
    "another format": (
        lambda header, said: header["scattered.k_cache"].__setitem__("dtype", "F8_E5M2"),
        "'scattered.k_cache' came",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_inputs_file_is_told(kind: str, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = DAMAGES[kind]
    out = save(asked.parent / "out.safetensors", write_to_cache(asked))
    change_header(asked, change)
    assert command.main(["judge", str(asked), str(out)]) == Exit.BAD_INPUT
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(asked) in said.err
    assert words in said.err


@pytest.mark.parametrize(
    ("tensor", "at", "number", "words"),
    [
        ("scattered.slot_mapping", 1, 80, "case 'scattered': slot_mapping[1] is 80; expected a slot from 0 to 79"),
        ("permuted.block_table", 1, 99, "case 'permuted': table[0, 0]"),
        ("permuted.seq_lens", 1, 99, "case 'permuted': lengths[1] is 99; expected 0 to"),
    ],
)
def test_numbers_outside_a_cache_are_told(tensor: str, at: int, number: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "in.safetensors"
    claim = WRITE if tensor.startswith("scattered") else "attend/vllm.flash_fp8/float8_e4m3fn/bfloat16"
    write_inputs(Claim.parse(claim), "smoke", path)
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    start = 8 + length + json.loads(content[8 : 8 + length])[tensor]["data_offsets"][0]
    if "table" in tensor:
        at = 0
    content[start + 4 * at : start + 4 * at + 4] = struct.pack("<i", number)
    path.write_bytes(content)
    with pytest.raises(BadInput) as raised:
        read_inputs(path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)


def test_a_query_of_other_sequences_is_told(tmp_path: Path) -> None:
    """Ten of four heads are as many numbers as five of eight."""
    path = tmp_path / "in.safetensors"
    write_inputs(Claim.parse("attend/vllm.flash_fp8/float8_e4m3fn/bfloat16"), "smoke", path)
    change_header(path, shape("permuted.query", [10, 4, 64]))
    with pytest.raises(BadInput, match="case 'permuted': query is of 10 sequences; seq_lens of 5"):
        read_inputs(path)


def test_outputs_of_another_form(asked: Path) -> None:
    right = write_to_cache(asked)
    kind, cache = right["scattered.v_cache"]
    wrong: list[tuple[Tensors, str]] = [
        ({n: v for n, v in right.items() if n != "scattered.v_cache"}, "v_cache was not returned"),
        (right | {"scattered.v_cache": ("F8_E5M2", cache)}, "v_cache: it is float8_e5m2; expected float8_e4m3fn"),
        (right | {"scattered.v_cache": (kind, cache[:4])}, "v_cache: uint8 [4, 16, 2, 64]; expected uint8 [5, 16, 2"),
        (right | {"scattered.v_cache": ("U16", cache.astype(np.uint16))}, "v_cache: uint16 [5, 16, 2, 64]; expected u"),
    ]
    for outputs, words in wrong:
        found = {one.row.case: one for one in judged(asked, outputs)}
        assert found.pop("scattered").message.startswith("[FORM] theirs (bfloat16 to float8_e4m3fn) on gfx942"), words
        assert {one.row.result for one in found.values()} == {"passed"}
    for outputs, words in wrong:
        assert any(words in each for each in judged(asked, outputs)[0].row.malformed), words
    with pytest.raises(BadInput, match=r"out\.safetensors holds scattered\.codes; expected .*scattered\.k_cache"):
        judged(asked, right | {"scattered.codes": right["scattered.v_cache"]})
    none = {name: value for name, value in right.items() if not name.startswith("scattered")}
    assert judged(asked, none)[0].row.result == "not_executed"


def test_the_command_says_what_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "in.safetensors")
    assert command.main(["inputs", WRITE, "-o", path]) == Exit.OK
    said = capsys.readouterr().out
    assert "scattered.x [24, 2, 64]  ->  scattered.k_cache (float8_e4m3fn), scattered.v_cache (float8_e4m3fn)\n" in said
    assert "caches come back whole, as they are after the write; numbers that go with a case" in said
    assert command.main(["inputs", "attend/vllm.flash_fp8/float8_e4m3fn/bfloat16", "-o", path, "--json"]) == Exit.OK
    said = json.loads(capsys.readouterr().out)
    assert said["outputs"] == {"output": "bfloat16"}


@pytest.mark.parametrize("words", [["inputs", WRITE, "--stream"], ["judge", "--stream", WRITE, "-"]])
def test_a_stream_is_for_casts_alone(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(words) == Exit.BAD_INPUT
    assert f"{WRITE}: a stream carries single values, so it is for casts alone" in capsys.readouterr().err
