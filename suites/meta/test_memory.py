# SPDX-License-Identifier: Apache-2.0
"""Between the matrices of a claim and what stands in memory: both ways, against the second derivation of layouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded, Input, given_with
from narrowgauge.contracts.errors import BadInput
from narrowgauge.contracts.formats import format_named
from narrowgauge.contracts.operations import Claim
from narrowgauge.reference.expected import expected
from narrowgauge.reference.form import shaped
from narrowgauge.reference.inputs import cases_for
from narrowgauge.reference.judge import check_claim, judge
from narrowgauge.reference.layouts import LAYOUTS
from narrowgauge.reference.memory import (
    fits,
    from_memory,
    in_memory,
    read_memory,
    sent_formats,
    to_memory,
)
from narrowgauge.reference.noise import scrambled
from narrowgauge.reference.packings import packing_named
from narrowgauge.suites.meta.offline_program import judged
from narrowgauge.suites.meta.second_layouts import memory
from narrowgauge.suites.offline import read_inputs, write_inputs

pytestmark = pytest.mark.meta

Array = npt.NDArray[Any]
#: claims of every kind of packing: by rows, by columns, turned, with conventions, padded with 0, padded with anything
QUANTIZERS = (
    "quantize/vllm.uint4b8@codes:gptq_4bit/float16/uint4",
    "quantize/awq.uint4@codes:awq_4bit,zero_point:awq_4bit~awq_4bit/float16/uint4",
    "quantize/gptq.uint4_asymmetric@codes:gptq_4bit,zero_point:gptq_zeros_4bit~gptq_v2_4bit/float16/uint4",
    "quantize/vllm.uint4b8@codes:compressed_tensors_4bit^T/float16/uint4",
    "quantize/ocp.mxfp4@codes:nibbles_low_first,scale:scales_128x4/bfloat16/float4_e2m1fn",
    "quantize/ocp.mxfp6_e2m3@codes:fp6_dense/bfloat16/float6_e2m3fn",
    "quantize/ocp.mxfp8_e4m3@scale:ue8m0_int32/bfloat16/float8_e4m3fn",
    "quantize/vllm.fp8_group@scale:scales_tma_aligned/float32/float8_e4m3fn",
    "quantize/vllm.fp8_group@scale:scales_column_major/float32/float8_e4m3fn",
)
READERS = (
    "dequantize/vllm.uint4b8@codes:gptq_4bit/uint4/float16",
    "dequantize/awq.uint4@codes:awq_4bit,zero_point:awq_4bit~awq_4bit/uint4/float16",
    "dequantize/gptq.uint4_asymmetric@codes:gptq_4bit,zero_point:gptq_zeros_4bit~gptq_v1_4bit/uint4/float16",
    "dequantize/ocp.mxfp4@codes:nibbles_high_first,scale:scales_128x4/float4_e2m1fn/bfloat16",
    "dequantize/vllm.fp8_group@scale:scales_tma_aligned/float8_e4m3fn/float32",
)
#: what a convention adds to a zero point before it is stored
ADDED = {"gptq_v1_4bit": -1, "gptq_v2_4bit": 0, "awq_4bit": 0}
SHAPE = (128, 256)


def image(text: str, value: Array) -> bytes:
    """What stands in memory, by the second derivation. The text is as a claim writes it."""
    name, _, convention = text.partition("~")
    codes = value.view(np.int32) + ADDED[convention] if convention else value
    matrix = codes.T if name.endswith("^T") else codes
    layout = name.removesuffix("^T")
    return memory(layout, matrix.tolist(), LAYOUTS[layout].bits)


def outputs_of(claim: Claim, shape: tuple[int, int] = SHAPE) -> tuple[Coded, dict[str, Coded]]:
    """An input that is not looked at, and outputs of the right form with codes without pattern."""
    x = Coded(claim.source, np.zeros(shape, format_named(claim.source).storage))
    found = {}
    for number, (name, want) in enumerate(shaped(claim, shape).items()):
        fmt = format_named(want.format)
        top = 16 if name == "zero_point" else fmt.code_count
        numbers = scrambled(want.low.data.size, number) >> np.uint64(20)
        found[name] = Coded(fmt.name, (numbers % np.uint64(top)).astype(fmt.storage).reshape(want.low.shape))
    return x, found


def flat(claim: Claim, name: str, content: bytes) -> Coded:
    """Bytes as the elements of memory that a kernel returns."""
    element = packing_named(claim.layouts[name]).element
    return Coded(element, np.frombuffer(bytearray(content), format_named(element).storage))


@pytest.mark.parametrize("text", QUANTIZERS)
def test_what_a_quantizer_leaves_in_memory_is_read(text: str) -> None:
    claim = Claim.parse(text)
    check_claim(claim)
    x, matrices = outputs_of(claim)
    images = {name: flat(claim, name, image(packed, matrices[name].data)) for name, packed in claim.layouts.items()}
    assert fits(claim, x)
    found, wrong = from_memory(claim, x, matrices | images)
    assert wrong == ()
    for name, value in matrices.items():
        assert (found[name].format, found[name].data.dtype) == (value.format, value.data.dtype)
        assert found[name].data.tolist() == value.data.tolist(), name
        if name in images:
            packed = packing_named(claim.layouts[name]).pack(value)
            assert packed.data.tobytes() == images[name].data.tobytes(), name
    assert dict(in_memory(claim, x).outputs) == {n: images.get(n, v).format for n, v in matrices.items()}


@pytest.mark.parametrize("text", READERS)
def test_what_a_reader_is_given_is_packed_and_read_back(text: str) -> None:
    claim = Claim.parse(text)
    check_claim(claim)
    for x in cases_for(claim, "smoke").values():
        sent = to_memory(claim, x)
        parts = {"codes": (x, sent), **{n: (v, given_with(sent)[n]) for n, v in given_with(x).items()}}
        for name, (value, packed) in parts.items():
            if name in claim.layouts:
                assert packed.data.tobytes() == image(claim.layouts[name], value.data), name
            else:
                assert packed.data.tolist() == value.data.tolist()
        formats = sent_formats(claim)
        assert {"x": sent.format, **{n: v.format for n, v in given_with(sent).items()}} == formats
        codes, beside = read_memory(claim, (x.shape[0], x.shape[1]), sent, given_with(sent))
        assert Input(codes.format, codes.data, beside).digest() == x.digest()


def test_a_claim_without_layouts_is_left_alone() -> None:
    claim = Claim.parse("dequantize/ocp.mxfp4/float4_e2m1fn/bfloat16")
    x = next(iter(cases_for(claim, "smoke").values()))
    assert to_memory(claim, x) is x
    plain = Claim.parse("quantize/ocp.mxfp4/bfloat16/float4_e2m1fn")
    matrix, outputs = outputs_of(plain)
    assert from_memory(plain, matrix, outputs) == (outputs, ())


# --- what is wrong with an image -------------------------------------------------------------------------------------


def test_padding_that_is_not_0_is_named() -> None:
    """Of a 128 by 4 tile of 256 / 32 = 8 scales a row, 100 rows leave 28: their bytes must be 0."""
    claim = Claim.parse("quantize/ocp.mxfp4@scale:scales_128x4/bfloat16/float4_e2m1fn")
    x, matrices = outputs_of(claim, (100, 256))
    right = image("scales_128x4", matrices["scale"].data)
    assert from_memory(claim, x, matrices | {"scale": flat(claim, "scale", right)})[1] == ()
    spoiled = bytearray(right)
    last = max(i for i, byte in enumerate(image("scales_128x4", np.full((128, 8), 1))) if byte)
    spoiled[last] = 7
    found, (said,) = from_memory(claim, x, matrices | {"scale": flat(claim, "scale", bytes(spoiled))})
    assert said.startswith("scale: padding: 1 of 224 codes of padding are not 0, first in element 1023 of the memory")
    assert found["scale"].data.tolist() == matrices["scale"].data.tolist()
    assert judge(claim, x, found, (said,)).result == "failed"


def test_padding_that_the_engine_leaves_may_be_anything() -> None:
    claim = Claim.parse("quantize/vllm.fp8_group@scale:scales_tma_aligned/float32/float8_e4m3fn")
    x, matrices = outputs_of(claim, (3, 256))
    words = np.frombuffer(image("scales_tma_aligned", matrices["scale"].data), np.uint32).copy()
    words[3] = 0xDEADBEEF  # rows are padded to 4
    found, wrong = from_memory(claim, x, matrices | {"scale": Coded("int32", words)})
    assert wrong == ()
    assert found["scale"].data.tolist() == matrices["scale"].data.tolist()
    assert in_memory(claim, x).loose == ("scale",)


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (Coded("int32", np.zeros(2047, np.uint32)), r"codes: .*128 rows and 128 columns is stored as .*not \(2047,\)"),
        (Coded("uint8", np.zeros(8192, np.uint8)), "codes: .*storage must be a NumPy array of int32, not uint8"),
        (Coded("float32", np.zeros(2048, np.float32)), "codes: .*array of int32, not float32"),
    ],
)
def test_an_image_of_another_size_is_named_and_left_out(buffer: Coded, words: str) -> None:
    claim = Claim.parse("quantize/vllm.uint4b8@codes:gptq_4bit/float16/uint4")
    x, matrices = outputs_of(claim, (128, 128))
    found, (said,) = from_memory(claim, x, matrices | {"codes": buffer})
    assert "codes" not in found
    with pytest.raises(BadInput, match=words):
        raise BadInput(said)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("quantize/ocp.mxfp8_e4m3@codes:nibbles_low_first/float32/float8_e4m3fn",
         "layout 'nibbles_low_first' holds codes of 4 bits; codes is float8_e4m3fn, of 8"),
        ("quantize/vllm.fp8_group@scale:scales_128x4/float32/float8_e4m3fn", "of 8 bits; scale is float32, of 32"),
        ("quantize/vllm.uint4b8@zero_point:gptq_zeros_4bit~gptq_v1_4bit/float16/uint4",
         "'zero_point' has a layout; the contract has codes, scale"),
        ("quantize/awq.uint4@zero_point:awq_4bit/float16/uint4", "zero points, and they alone, are stored by a"),
        ("quantize/awq.uint4@codes:awq_4bit~awq_4bit/float16/uint4", "zero points, and they alone, are stored by a"),
        ("quantize/awq.uint4@zero_point:awq_4bit~awq_8bit/float16/uint4", "holds codes of 4 bits; zero_point"),
        ("quantize/vllm.uint4b8@codes:gptq_4bits/float16/uint4", "'gptq_4bits'; did you mean gptq_4bit"),
        ("quantize/awq.uint4@zero_point:awq_4bit~awq/float16/uint4", "zero-point convention 'awq'"),
    ],
)  # fmt: skip
def test_layouts_that_a_claim_cannot_have(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check_claim(Claim.parse(text))


def test_a_zero_point_without_a_place_is_refused() -> None:
    """GPTQ's first convention stores z - 1 of 4 bits: 1 to 16."""
    packing = packing_named("gptq_zeros_4bit~gptq_v1_4bit")
    zeros = np.full((1, 8), 16, np.uint32)
    assert packing.pack(Coded("int32", zeros)).data.tolist() == [[0xFFFFFFFF]]
    for bad in (0, 17):
        zeros[0, 3] = bad
        with pytest.raises(BadInput, match=rf"gptq_v1_4bit.*go from 1 to 16; {bad} at \(0, 3\) has no place"):
            packing.pack(Coded("int32", zeros))


def test_a_matrix_that_no_layout_holds_does_not_fit() -> None:
    claim = Claim.parse("quantize/vllm.uint4b8@codes:gptq_4bit/float16/uint4")
    turned = Claim.parse("quantize/vllm.uint4b8@codes:gptq_4bit^T/float16/uint4")
    tall, wide = (Coded("float16", np.zeros(shape, np.uint16)) for shape in ((128, 3), (129, 8)))
    assert [fits(claim, tall), fits(claim, wide)] == [True, False]
    assert [fits(turned, tall), fits(turned, wide)] == [False, True]


def test_padding_of_what_a_reader_is_given_is_named_too() -> None:
    claim = Claim.parse(READERS[3])
    x = next(iter(cases_for(claim, "smoke").values()))
    sent = to_memory(claim, x)
    scale = given_with(sent)["scale"]
    spoiled = scale.data.copy()
    spoiled.reshape(-1)[-1] = 1
    given = {**given_with(sent), "scale": Coded(scale.format, spoiled)}
    with pytest.raises(BadInput, match=r"scale: padding: 1 of \d+ codes of padding are not 0"):
        read_memory(claim, (x.shape[0], x.shape[1]), sent, given)


# --- through files ---------------------------------------------------------------------------------------------------


def written(path: Path) -> dict[str, Array]:
    """Tensors of an inputs file as bytes, by a reader of a dozen lines."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    held = json.loads(content[8 : 8 + length])
    held.pop("__metadata__")
    body = content[8 + length :]
    return {n: np.frombuffer(body[slice(*entry["data_offsets"])], np.uint8) for n, entry in held.items()}


@pytest.mark.parametrize("text", READERS)
def test_a_packed_reader_is_asked_and_judged_by_files(text: str, tmp_path: Path) -> None:
    claim, path = Claim.parse(text), tmp_path / "in.safetensors"
    shapes = write_inputs(claim, "smoke", path)
    live = cases_for(claim, "smoke")
    tensors = written(path)
    read, cases = read_inputs(path)
    assert str(read) == text
    for case, x in live.items():
        assert cases[case].digest() == x.digest()
        parts = {"codes": x, **given_with(x)}
        for name, packed in claim.layouts.items():
            stored = tensors[f"{case}.{'x' if name == 'codes' else name}"]
            assert stored.tobytes() == image(packed, parts[name].data)
    right = {f"{case}.codes": expected(claim, x)["codes"].low.data for case, x in live.items()}
    plain = {name: (f"U{8 * array.itemsize}", array) for name, array in right.items()}
    assert {one.row.result for one in judged(path, plain)} == {"passed"}
    assert set(shapes) == set(live)
    swapped = {
        name: (dtype, array.reshape(-1, 2)[:, ::-1].reshape(array.shape)) for name, (dtype, array) in plain.items()
    }
    found = {one.row.case: one.row.result for one in judged(path, swapped)}
    assert found == {case: "failed" if x.data.size else "passed" for case, x in live.items()}


@pytest.mark.parametrize(
    "text", ["cast/ocp_saturate/float4_e2m1fn/float8_e4m3fn", "dequantize/ocp.mxfp4/float4_e2m1fn/float32"]
)
def test_codes_of_4_bits_that_are_not_packed_go_one_to_a_byte(text: str, tmp_path: Path) -> None:
    claim, path = Claim.parse(text), tmp_path / "in.safetensors"
    write_inputs(claim, "smoke", path)
    tensors = written(path)
    read, cases = read_inputs(path)
    assert str(read) == text
    for case, x in cases_for(claim, "smoke").items():
        assert tensors[f"{case}.x"].tobytes() == x.data.tobytes()
        assert cases[case].digest() == x.digest()


def test_an_inputs_file_whose_image_was_cut_names_the_case(tmp_path: Path) -> None:
    text, path = READERS[0], tmp_path / "in.safetensors"
    shapes = write_inputs(Claim.parse(text), "smoke", path)
    case, (rows, columns) = next(iter(shapes.items()))
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length]
    for old, new, words in (
        (f"[{rows}, {columns}]", f"[{rows + 8}, {columns}]", f"case '{case}'.*is stored as"),
        (f"[{rows}, {columns}]", "[1]", f"no shape .*for '{case}'"),
    ):
        changed = header.replace(old.encode(), new.encode(), 1)
        assert changed != header
        path.write_bytes(len(changed).to_bytes(8, "little") + changed + content[8 + length :])
        with pytest.raises(BadInput, match=words):
            read_inputs(path)
