# SPDX-License-Identifier: Apache-2.0
"""Weights against the original's: what a correct quantization keeps, and which mistake is named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.checkpoints.against import Compared, compare, compare_one
from narrowgauge.checkpoints.ideal import grid_of, nearest
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.suites.meta.small_checkpoints import FLAWS, write, write_original

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("originals")


def original_of(kind: str, root: Path) -> Checkpoint:
    folder = root / kind
    return open_checkpoint(folder if folder.exists() else write_original(kind, folder))


def compared(kind: str, folder: Path, root: Path, flaw: str = "") -> list[Compared]:
    mine = passports(open_checkpoint(write(kind, folder, flaw).folder))[0]
    return list(compare(mine, original_of(kind, root)))


@pytest.mark.parametrize(
    "kind", ["ct_FP8", "ct_FP8_FUSED", "ct_NVFP4", "ct_W8A8", "awq", "gptq_actorder", "mo_W4A16_AWQ", "quark_mx17",
             "gpt_oss", "gguf", "deepseek", "int8_rows"]
)  # fmt: skip
def test_a_correct_one_keeps_what_the_nearest_keeps(kind: str, tmp_path: Path, root: Path) -> None:
    """Within 1.5 dB: the writers of small checkpoints round to the nearest too, under scales that are rounded."""
    found = compared(kind, tmp_path, root)
    assert found
    assert all(each.finding is None for each in found)
    assert max(abs(each.sqnr - each.expected) for each in found) < 1.5
    assert all(each.cosine > 0.97 for each in found)


#: flaw -> words of what is named
NAMED = {
    "factor two": "times the original's",
    "scale not doubled": "of the OCP flavour and labelled FNUZ",
    "scale inverted": "the scale is the reciprocal",
    "block scales inverted": "the scale is the reciprocal",
    "nibbles the other way round": "the other way round",
    "nibbles of gpt-oss the other way round": "the other way round",
    "pairs in GGUF's MXFP4": "each byte holds neighbours",
    "AWQ in plain order": "not in that of AWQ",
    "GPTQ v2 called v1": "as they are .* and read as less 1",
    "GPTQ v1 called v2": "less 1 .* and read as they are",
    "scales swizzled": "order of a kernel",
    "transposed weight": "the matrix is turned",
    "gate and up exchanged": "these are the weights of model.layers.1.mlp.(up|gate)_proj",
    "E5M2 labelled E4M3": "bytes are E5M2 and labelled E4M3",
    "int4 without its offset": "two's complement and read as offset",
    "scales swizzled twice": "twice in the order of a kernel",
    "wrong shard's scale": "with other scales for the same codes",
    "scales rounded up without new codes": "with other scales for the same codes|times the original's",
}


@pytest.mark.parametrize("flaw", NAMED)
def test_the_mistake_that_restores_is_named(flaw: str, tmp_path: Path, root: Path) -> None:
    found = [each.finding for each in compared(FLAWS[flaw].kind, tmp_path, root, flaw) if each.finding is not None]
    assert found
    assert {each.kind for each in found} == {"weights lost"}
    assert all(re.search(NAMED[flaw], each.said) for each in found)


def test_one_row_alone_is_seen(tmp_path: Path, root: Path) -> None:
    """A row whose scale is a quarter too large: the whole matrix loses 2 dB by it, the row 20."""
    folder = write("ct_FP8_DYNAMIC", tmp_path).folder
    mine = passports(open_checkpoint(folder))[0]
    one = next(each for each in mine if "down" in each.module)
    assert one.scale is not None
    every = np.fromfile(one.scale.path, "<u2", one.shape[0], offset=one.scale.start)
    larger = (every.astype(np.uint32) << 16).view(np.float32)[5:6] * np.float32(1.25)
    with open(one.scale.path, "r+b") as file:
        file.seek(one.scale.start + 2 * 5)
        file.write((larger.view(np.uint32) >> 16).astype("<u2").tobytes())
    found = compare_one(one, mine, original_of("ct_FP8_DYNAMIC", root))
    assert found.sqnr > found.expected - 4
    assert found.finding is not None
    assert found.finding.kind == "weights lost"
    assert found.finding.places[0].index == (5,)
    assert "row 5 " in found.finding.said


def test_columns_of_other_sizes_are_no_mistake(tmp_path: Path, root: Path) -> None:
    """AWQ multiplies columns and divides in the layer before: the original's are the original's times that."""
    mine = passports(open_checkpoint(write("awq", tmp_path / "awq").folder))[0]
    original = original_of("awq", root)
    one = next(each for each in mine if "down" in each.module)
    tensor = original.tensors[f"{one.module}.weight"]
    path = tmp_path / "scaled"
    raw = np.fromfile(tensor.path, "<u2", tensor.size // 2, offset=tensor.start).astype(np.uint32) << 16
    factors = 2.0 ** (np.arange(one.shape[1]) % 5 - 2)
    scaled = raw.view(np.float32).reshape(one.shape) * factors.astype(np.float32)
    scaled.astype("<f4").tofile(path)
    name = tensor.name
    other = replace(original, tensors={name: Stored(name, "F32", one.shape, path, 0, scaled.size * 4, "float32")})
    finding = compare_one(one, mine, other).finding
    assert finding is not None
    assert finding.kind == "weights rescaled"


@pytest.mark.parametrize("kind", ["ct_FP8", "awq", "gptq_v2", "mo_W4A16_AWQ"])
def test_an_original_that_is_quantized_is_read_too(kind: str, tmp_path: Path) -> None:
    """As fp8 is the original of fp4: of the same file nothing is lost, of another what both lose."""
    original = open_checkpoint(write(kind, tmp_path / "original").folder)
    same = list(compare(passports(original)[0], original))
    assert same
    assert all(each.sqnr == np.inf for each in same)
    other = list(compare(passports(open_checkpoint(write("mo_NVFP4", tmp_path / "nvfp4").folder))[0], original))
    assert all(each.finding is None and 15 < each.sqnr < each.expected + 1 for each in other)


@pytest.mark.parametrize("heads", [0, 4])
def test_gguf_against_the_names_of_hugging_face(heads: int, tmp_path: Path, root: Path) -> None:
    """q by its other name, and with the halves of each head interleaved, as llama.cpp stores Llama's."""
    mine = passports(open_checkpoint(write("gguf", tmp_path / "gguf").folder))[0]
    one = next(each for each in mine if "attn_q" in each.module)
    stored = original_of("gguf", root).tensors[one.module]
    raw = np.fromfile(stored.path, "<u2", stored.size // 2, offset=stored.start).reshape(one.shape)
    if heads:  # row 2j + s of a head here is row s d/2 + j there
        width = one.shape[0] // heads
        there = [r // width * width + r % 2 * (width // 2) + r % width // 2 for r in range(one.shape[0])]
        apart = np.empty_like(raw)
        apart[there] = raw
        raw = apart
    path = tmp_path / "hf"
    raw.tofile(path)
    name = f"model.layers.{one.module.split('.')[1]}.self_attn.q_proj.weight"
    other = Stored(name, "BF16", one.shape, path, 0, raw.nbytes, "bfloat16")
    found = compare_one(one, mine, Checkpoint(tmp_path, "safetensors", {name: other}, {"num_attention_heads": 4}))
    assert found.finding is None
    assert (found.original, abs(found.sqnr - found.expected) < 1.5) == (name, True)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    mine = passports(open_checkpoint(write("ct_FP8", tmp_path / "a").folder))[0]
    finding = compare_one(mine[0], mine, Checkpoint(tmp_path, "safetensors", {})).finding
    assert finding is not None
    assert finding.kind == "not compared"


def test_the_nearest_by_straight_loops(tmp_path: Path) -> None:
    """Of each number the nearest of all that a code can be under its group's scale, and no other is nearer."""
    for kind in ("ct_NVFP4", "ct_W4A16", "ct_MXFP4", "ct_FP8_BLOCK"):
        one = passports(open_checkpoint(write(kind, tmp_path / kind).folder))[0][0]
        grid, rows, columns = grid_of(one)
        rows, columns = rows or 128, columns or 256
        x = np.random.Generator(np.random.Philox(3)).standard_normal((128, 256))
        found = nearest(x, one, 0.0)
        top = (grid.numbers[-1] - grid.numbers[0]) / 2
        for n, k in ((0, 0), (5, 17), (100, 255), (127, 128)):
            down, across = n // rows * rows, k // columns * columns
            group = x[down : down + rows, across : across + columns]
            scale = np.abs(group).max() / top
            if grid.powers:
                scale = 2.0 ** (np.floor(np.log2(scale * top)) - np.floor(np.log2(top)))
            assert found[n, k] == min((number * scale for number in grid.numbers), key=lambda each: abs(each - x[n, k]))
