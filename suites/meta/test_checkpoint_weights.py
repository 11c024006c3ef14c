# SPDX-License-Identifier: Apache-2.0
"""What the bytes of a quantized weight stand for: against straight loops, in pieces of any size."""

from __future__ import annotations

import os
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.checkpoints import blocks
from narrowgauge.checkpoints.dtypes import UNITS
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import Passport, passports
from narrowgauge.checkpoints.schemes import SCHEMES
from narrowgauge.checkpoints.values import readable, rows
from narrowgauge.checkpoints.zero_points import zero_points
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta import second_gguf
from narrowgauge.suites.meta.second_stored import CASES, Case
from narrowgauge.suites.meta.small_checkpoints import write

DATA = os.environ.get("NARROWGAUGE_DATA", "")
pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]

Array = npt.NDArray[Any]


def stored(folder: Path, case: Case) -> Checkpoint:
    """A case as a file of nothing but bytes, and what a header would say of it."""
    tensors, path = {}, folder / "model.safetensors"
    with open(path, "wb") as file:
        for suffix, (dtype, data) in case.tensors.items():
            name, start, unit = f"model.layers.0.x{suffix}", file.tell(), UNITS[dtype]
            file.write(np.ascontiguousarray(data).tobytes())
            tensors[name] = Stored(name, dtype, data.shape, path, start, data.nbytes, unit.format)
    return Checkpoint(folder, "safetensors", tensors, case.config)


def whole(passport: Passport, size: int = 1 << 20) -> Array:
    """All rows, put together by where they say they are."""
    found = np.full((prod(passport.shape[:-2]), *passport.shape[-2:]), np.nan)
    for piece in rows(passport, size):
        found[piece.which, piece.first : piece.first + len(piece.values)] = piece.values
    return found.reshape(passport.shape)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_straight_loops(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (passport,), _ = passports(stored(tmp_path, case))
    assert (passport.scheme.name, passport.shape) == (case.scheme, case.shape)
    n, columns = prod(case.shape[:-1]), case.shape[-1]
    expected = [[case.element(case.tensors, i, k) for k in range(columns)] for i in range(n)]
    assert np.array_equal(whole(passport), np.reshape(expected, case.shape))


@pytest.mark.parametrize("name", second_gguf.BLOCKS)
def test_blocks_are_those_of_straight_loops(name: str) -> None:
    """Random bytes, halves kept finite; and the sizes that the scheme declares."""
    size, second = second_gguf.BLOCKS[name]
    block = np.random.Generator(np.random.Philox(7)).integers(0, 256, (12, size)).astype(np.uint8)
    if name.startswith("gguf") and name != "gguf_mxfp4":
        for at in range(size):  # any two bytes may be a half: no exponent of ones
            block[:, at] &= np.uint8(0xBF) if second_gguf_halves(name, at) else np.uint8(0xFF)
    found = blocks.BLOCKS[name](block)
    assert np.array_equal(found, [second(bytes(each)) for each in block], equal_nan=True)
    assert (SCHEMES[name].block_bytes, SCHEMES[name].block_size) == (size, found.shape[1])


def second_gguf_halves(name: str, at: int) -> bool:
    """Whether a byte is the upper one of a float16."""
    places = {"gguf_q6_k": (209,), "gguf_q3_k": (109,), "gguf_q2_k": (81, 83)}
    return at in places.get(name, (1, 3) if name[-1] in "1k" else (1,))


def test_every_scheme_is_read_or_says_why() -> None:
    for scheme in SCHEMES.values():
        assert bool(scheme.unread) == (bool(scheme.block_size) and scheme.name not in blocks.BLOCKS) or scheme.parts


@pytest.mark.parametrize(
    "kind", ["gptq_actorder", "awq", "ct_W4A16_ASYM", "mo_W4A16_AWQ", "deepseek", "gpt_oss", "gguf"]
)
@pytest.mark.parametrize("size", [1, 700])
def test_pieces_of_any_size_are_the_same(kind: str, size: int, tmp_path: Path) -> None:
    """Where codes of several rows share a word, a piece starts on a whole one."""
    found, _ = passports(open_checkpoint(write(kind, tmp_path).folder))
    one = next(passport for passport in found if "down" in passport.module)
    assert np.array_equal(whole(one, size), whole(one))
    assert len(list(rows(one, size))) > len(list(rows(one)))


#: decibels from the same weights in int8 by rows: of e4m3 31, of e2m1 in 16 and 32 columns 20 and 19, of int4 in 128
#: columns 19. A step that is wrong, a scale of a neighbour or a nibble the other way round cost 10 dB at least
REAL = {"FP8": 31, "ptpc": 31, "fp8": 31, "MXFP8": 30, "NVFP4": 20, "MXFP4": 18, "mxfp4": 18, "W4A16": 18, "W8A8": 300}


@pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints that tools wrote")
def test_three_tools_wrote_the_same_weights() -> None:
    """compressed-tensors, ModelOpt and Quark were given one model: read by their own schemes it is one again."""
    found = {}
    for folder in sorted(Path(DATA, "quantised-checkpoints").glob("*/")):
        found[folder.name] = {each.module: whole(each) for each in passports(open_checkpoint(folder))[0]}
    del found["ct_FP8_KV"]  # its scales are memory that nobody wrote
    for name, weights in found.items():
        least = next(least for word, least in REAL.items() if word in name and not (word == "FP8" and "MX" in name))
        for module, w in weights.items():
            x = found["ct_W8A8"][module]
            error = float(np.square(x - w).sum())
            assert not error or 10 * np.log10(np.square(x).sum() / error) > least, name


def test_zero_points_are_numbers(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write("gptq_v1", tmp_path).folder)
    (first, *_), _ = passports(checkpoint)
    assert set(zero_points(first).reshape(-1)) == {8.0}


@pytest.mark.parametrize(
    ("role", "change"),
    [
        ("scale", {"shape": (3,), "size": 6}),
        ("scale", {"dtype": "I32", "format": "int32"}),
        ("second", {"shape": (5,), "size": 20}),
    ],
)
def test_what_cannot_be_read_says_so(role: str, change: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write("mo_NVFP4", tmp_path).folder)
    (first, *_), _ = passports(checkpoint)
    name = first.tensors[role].name
    other = replace(checkpoint, tensors={**checkpoint.tensors, name: replace(checkpoint.tensors[name], **change)})
    (first, *_), _ = passports(other)
    assert readable(first)
    with pytest.raises(BadInput, match="not read"):
        list(rows(first))
