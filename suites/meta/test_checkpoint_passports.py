# SPDX-License-Identifier: Apache-2.0
"""Passports: which scheme, how it is scaled, what it takes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from narrowgauge.checkpoints.against_config import config_findings
from narrowgauge.checkpoints.bytes import weigh
from narrowgauge.checkpoints.cutting import Cutting, cutting
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import Passport, passports
from narrowgauge.checkpoints.schemes import SCHEMES
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.layouts import LAYOUTS, ZERO_POINTS
from narrowgauge.suites.meta.small_checkpoints import FLAWS, write

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
DATA = os.environ.get("NARROWGAUGE_DATA", "")

# ---------------- schemes


def test_what_a_scheme_names_exists() -> None:
    for scheme in SCHEMES.values():
        assert not scheme.packing or scheme.packing in LAYOUTS
        assert not scheme.zeros or scheme.zeros in ZERO_POINTS
        assert not scheme.element or scheme.element in FORMATS or scheme.name.startswith("gguf")
        assert all(not part.format or part.format in FORMATS for part in scheme.parts)


#: kind -> scheme, granularity, inputs, bits a parameter of its down_proj
FOUND: dict[str, tuple[str, str, str, float]] = {
    "ct_FP8": ("fp8", "one a tensor", "static", 8 + 16 / 32768),
    "ct_FP8_DYNAMIC": ("fp8", "one a row", "dynamic", 8 + 16 / 256),
    "ct_FP8_BLOCK": ("fp8", "blocks of 128 x 128", "dynamic", 8 + 16 / 128 / 128),
    "ct_NVFP4": ("nvfp4_packed", "groups of 16 columns", "static, and dynamic in groups", 4.5 + 32 / 32768),
    "ct_MXFP4": ("mxfp4_packed", "groups of 32 columns", "dynamic", 4.25),
    "ct_MXFP8": ("fp8_e8m0", "groups of 32 columns", "dynamic", 8.25),
    "ct_W4A16": ("packed_symmetric_4bit", "groups of 128 columns", "none", 4 + 16 / 128 + 128 / 32768),
    "ct_W8A8": ("int8", "one a row", "dynamic", 8 + 16 / 256),
    "mo_NVFP4": ("nvfp4", "groups of 16 columns", "static", 4.5 + 32 / 32768),
    "mo_FP8_PB": ("fp8", "blocks of 128 x 128", "none", 8 + 32 / 128 / 128),
    "mo_MXFP4": ("mxfp4", "groups of 32 columns", "not said", 4.25),
    "quark_ptpc_fp8": ("fp8", "one a row", "dynamic", 8 + 16 / 256),
    "quark_mxfp4": ("mxfp4", "groups of 32 columns", "dynamic", 4.25),
    "quark_mx17": ("mx_interleaved", "blocks of 32", "static", 4.25),
    "awq": ("awq_4bit", "groups of 128 columns", "none", 4 + 16 / 128 + 4 / 128),
    "gptq_v2": ("gptq_v2_4bit", "groups of 128 columns", "none", 4 + 16 / 128 + 4 / 128 + 32 / 128),
}


def down(checkpoint: Checkpoint) -> Passport:
    return next(each for each in passports(checkpoint)[0] if each.module.endswith("layers.0.mlp.down_proj"))


@pytest.mark.parametrize("kind", FOUND)
def test_the_passport_of_each_kind(kind: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write(kind, tmp_path).folder)
    found = down(checkpoint)
    assert found.shape == (128, 256)
    assert (found.scheme.name, found.granularity, found.inputs, found.bits) == FOUND[kind]
    assert found.known == "configuration"
    assert passports(checkpoint)[1] == []
    assert json.loads(json.dumps(found.to_json()))["bytes"] == found.size


@pytest.mark.parametrize(
    ("flaw", "kind"),
    [
        ("E8M0 as numbers", "scale of another type"),
        ("one expert without input scale", "scale missing"),
        ("group index missing", "order missing"),
        ("zero points packed along K", "blocks do not fit"),
        ("E4M3 scales labelled uint8", "scale stored as uint8"),
    ],
)
def test_what_does_not_fit_is_found_by_headers(flaw: str, kind: str, tmp_path: Path) -> None:
    """With the scheme that the configuration asks for: by shapes alone another might fit better."""
    checkpoint = open_checkpoint(write(FLAWS[flaw].kind, tmp_path, flaw).folder)
    assert {finding.kind for finding in passports(checkpoint)[1]} == {kind}


#: kinds that names alone do not tell: which zero points, and a scale within codes that look like plain bytes
SAID = {"gptq_v2": "gptq_v1_4bit", "quark_mx17": "mxfp4"}


@pytest.mark.parametrize("kind", FOUND)
def test_names_and_shapes_alone_tell_the_same(kind: str, tmp_path: Path) -> None:
    checkpoint = replace(open_checkpoint(write(kind, tmp_path).folder), config={}, others={})
    found = down(checkpoint)
    assert found.scheme.name == SAID.get(kind, FOUND[kind][0])
    assert found.known == "names alone"


@pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints that tools wrote")
def test_the_passports_of_real_tools() -> None:
    found = {}
    for folder in sorted(Path(DATA, "quantised-checkpoints").glob("*/")):
        each, wrong = passports(open_checkpoint(folder))
        assert (len(each), wrong) == (7, [])
        (found[folder.name],) = {passport.scheme.name for passport in each}
    assert found == {
        "ct_FP8": "fp8", "ct_FP8_DYNAMIC": "fp8", "ct_FP8_KV": "fp8", "ct_MXFP4": "mxfp4_packed",
        "ct_MXFP8": "fp8_e8m0", "ct_NVFP4": "nvfp4_packed", "ct_W4A16": "packed_symmetric_4bit", "ct_W8A8": "int8",
        "mo_FP8": "fp8", "mo_FP8_PB": "fp8", "mo_MXFP4": "mxfp4", "mo_NVFP4": "nvfp4", "quark_fp8_kv": "fp8",
        "quark_mxfp4": "mxfp4", "quark_ptpc_fp8": "fp8",
    }  # fmt: skip


# ---------------- granularity


@pytest.mark.parametrize(
    ("shape", "scale", "transposed", "hint", "expected"),
    [
        ((300, 256), (3, 2), False, (0, 0), Cutting(128, 128)),  # the last block is cut
        ((192, 128), (2, 1), False, (128, 128), Cutting(128, 128)),
        ((256, 512), (2, 1, 4, 1), False, (0, 0), Cutting(128, 128)),
        ((256, 512), (256,), False, (0, 0), Cutting(1, 0)),
        ((256, 512), (256, 1), False, (0, 0), Cutting(1, 0)),
        ((256, 512), (), False, (0, 0), Cutting(0, 0)),
        ((256, 512), (1,), False, (0, 0), Cutting(0, 0)),
        ((256, 512), (256, 4), False, (0, 0), Cutting(1, 128)),
        ((256, 512), (4, 256), True, (0, 0), Cutting(1, 128)),
        ((256, 512), (1, 256), True, (0, 0), Cutting(1, 0)),
        ((4, 256, 512), (4, 256, 16), False, (0, 0), Cutting(1, 32)),
        ((4, 256, 512), (4,), False, (0, 0), Cutting(0, 0)),
        ((256, 512), (2, 4), False, (64, 64), Cutting(128, 128)),  # not what is said: told by who asks
        ((96, 160), (3, 5), False, (0, 0), Cutting(32, 32)),
        ((90, 70), (9, 7), False, (0, 0), Cutting(10, 10)),
        ((256, 512), (255,), False, (0, 0), None),
        ((256, 512), (7, 4), False, (0, 0), None),
        ((256, 512), (2, 2, 4), False, (0, 0), None),
    ],
)
def test_the_shape_of_a_scale_says_how_it_cuts(
    shape: tuple[int, ...], scale: tuple[int, ...], transposed: bool, hint: tuple[int, int], expected: Cutting | None
) -> None:
    assert cutting(shape, scale, transposed, hint) == expected


# ---------------- bytes


def of_sizes(tmp_path: Path, **tensors: tuple[str, tuple[int, ...], int]) -> Checkpoint:
    """A checkpoint of headers alone."""
    path = tmp_path / "model.safetensors"
    every = {name.replace("__", "."): each for name, each in tensors.items()}
    found = {name: Stored(name, dtype, shape, path, 0, size, "") for name, (dtype, shape, size) in every.items()}
    return Checkpoint(tmp_path, "safetensors", found)


def test_bytes_per_parameter_are_the_known_figures(tmp_path: Path) -> None:
    """int4 with a float16 scale for each 128: 0.516 bytes; MXFP4 and NVFP4: 4.25 and 4.5 bits."""
    n, k = 4096, 4096
    figures = {
        "int4": ("I32", k // 8, "F16", k // 128, 2),
        "mxfp4": ("U8", k // 2, "U8", k // 32, 1),
        "nvfp4": ("U8", k // 2, "F8_E4M3", k // 16, 1),
    }
    found = {}
    for name, (dtype, width, scale, groups, size) in figures.items():
        weight, scales = (dtype, (n, width), n * k // 2), (scale, (n, groups), n * groups * size)
        checkpoint = of_sizes(tmp_path, x__weight_packed=weight, x__weight_scale=scales)
        mine = passports(checkpoint)[0]
        found[name] = weigh(checkpoint, mine)
        assert found[name].parameters == n * k
    assert round(found["int4"].each_quantized, 3) == 0.516
    assert 8 * found["mxfp4"].each_quantized == 4.25
    assert 8 * found["nvfp4"].each_quantized == 4.5


def test_the_decode_floor_is_the_known_figure(tmp_path: Path) -> None:
    """7.5 G parameters of bfloat16 at 3.35 TB/s: 4.48 ms a token."""
    checkpoint = of_sizes(tmp_path, x__weight=("BF16", (75000, 100000), 15_000_000_000))
    found = weigh(checkpoint, passports(checkpoint)[0])
    assert found.each == 2.0
    assert round(1000 * found.floor(3.35), 2) == 4.48
    assert round(found.to_json(3.35)["decode_floor_ms"], 2) == 4.48


def test_an_optimizer_weighs_nothing(tmp_path: Path) -> None:
    checkpoint = of_sizes(tmp_path, x__weight=("F32", (10, 10), 400), y__weight=("F32", (10, 10), 400))
    moved = replace(checkpoint.tensors["y.weight"], role="optimizer")
    assert weigh(replace(checkpoint, tensors={**checkpoint.tensors, "y.weight": moved}), []).size == 400


@pytest.mark.parametrize("shape", [(1,), (), (128,), (128, 1)])
def test_bytes_with_a_scale_of_their_own_rows_are_no_nibbles(shape: tuple[int, ...], tmp_path: Path) -> None:
    """They may be fp8 of either flavour, or integers: nothing says so, and nothing is made of them."""
    checkpoint = of_sizes(tmp_path, a__weight=("U8", (128, 256), 1 << 15), a__weight_scale=("F32", shape, 4))
    assert passports(checkpoint) == ([], [])
    assert [finding.kind for finding in config_findings(checkpoint, [])] == ["low bits unexplained"]
