# SPDX-License-Identifier: Apache-2.0
"""Passports: which scheme, how it is scaled, what it takes; and the configuration that says so."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.checkpoints.against_config import config_findings
from narrowgauge.checkpoints.bytes import weigh
from narrowgauge.checkpoints.configured import Configuration, configuration
from narrowgauge.checkpoints.cutting import Cutting, cutting
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.methods import METHODS, SPELLED, method_findings
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import Passport, passports
from narrowgauge.checkpoints.patterns import Patterns, matches
from narrowgauge.checkpoints.schemes import SCHEMES
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.reference.layouts import LAYOUTS, ZERO_POINTS
from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.small_checkpoints import FLAWS, write

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
DATA = os.environ.get("NARROWGAUGE_DATA", "")

# ---------------- methods

#: the lists of two releases, as an article has them
VLLM = {
    "awq",
    "auto_awq",
    "fp8",
    "fbgemm_fp8",
    "fp_quant",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mxfp8",
    "modelopt_mixed",
    "auto_gptq",
    "gptq",
    "gptq_marlin",
    "awq_marlin",
    "humming",
    "compressed-tensors",
    "experts_int8",
    "quark",
    "moe_wna16",
    "torchao",
    "inc",
    "mxfp4",
    "gpt_oss_mxfp4",
    "deepseek_v4_fp8",
    "online",
    "fp8_per_tensor",
    "fp8_per_block",
    "fp8_per_channel",
    "int8_per_channel_weight_only",
    "nvfp4_per_token",
    "mxfp8",
}
SGLANG = {
    "fp8",
    "mxfp8",
    "blockwise_int8",
    "modelopt",
    "modelopt_fp8",
    "modelopt_fp4",
    "nvfp4_online",
    "modelopt_mixed",
    "w8a8_int8",
    "w8a8_fp8",
    "awq",
    "awq_marlin",
    "bitsandbytes",
    "gguf",
    "gptq",
    "gptq_marlin",
    "moe_wna16",
    "compressed-tensors",
    "w4afp8",
    "petit_nvfp4",
    "quark",
    "quark_mxfp4",
    "auto-round",
    "auto-round-int8",
    "modelslim",
    "quark_int4fp8_moe",
    "humming",
    "mxfp_w4a8",
}
WILD = {
    "aqlm",
    "bitnet",
    "eetq",
    "higgs",
    "hqq",
    "quanto",
    "spqr",
    "vptq",
    "auto-round",
    "mxfp4",
    "gpt_oss_mxfp4",
}


def test_every_method_of_the_lists_is_known() -> None:
    assert {*VLLM, *SGLANG, *WILD} <= set(METHODS)
    assert {name for name, method in METHODS.items() if "vllm" in method.engines} >= VLLM
    assert {name for name, method in METHODS.items() if "sglang" in method.engines} >= SGLANG
    assert set(SPELLED.values()) <= set(METHODS)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_method_of_the_sources_is_known(engine: str) -> None:
    folder = folder_of(engine)
    if folder is None:
        pytest.skip(f"{engine} is not in the path: its list cannot be read")
    below = "model_executor/layers" if engine == "vllm" else "srt/layers"
    text = (folder / below / "quantization" / "__init__.py").read_text()
    literal = re.search(r"QuantizationMethods = Literal\[(.*?)\n\]", text, re.S)
    named = (
        re.findall(r'^ {4,12}"([\w-]+)"', literal[1], re.M)
        if literal
        else re.findall(r'^ +"([\w-]+)": \w+Config', text, re.M)
    )
    assert len(named) > 25
    assert set(named) == {name for name, method in METHODS.items() if engine in method.engines}


def test_a_method_reads_schemes_or_says_why() -> None:
    for name, method in METHODS.items():
        assert bool(method.reads) + method.online + bool(method.unread) == 1, name
        assert all(any(scheme.startswith(read) for scheme in SCHEMES) for read in method.reads), name


def kinds_of(said: Configuration) -> list[str]:
    return [finding.kind for finding in method_findings(said)]


def test_no_method_is_passed_over() -> None:
    assert kinds_of(Configuration()) == []
    assert kinds_of(Configuration("fp8", "config.json")) == []
    for name in ("superq", "not said", *(name for name, method in METHODS.items() if method.unread or method.online)):
        assert kinds_of(Configuration(name, "config.json")) == ["method not understood"]
    assert kinds_of(Configuration("modelslim", "config.json")) == ["method in part"]
    for method, said in (
        ("awq", {"version": "gemv"}),
        ("gptq", {"bits": 3}),
        ("compressed-tensors", {"sparsity_config": {"format": "sparse-24-bitmask"}}),
        ("bitsandbytes", {"load_in_4bit": True}),
    ):
        assert kinds_of(Configuration(method, "config.json", said)) == ["method in part"]
        assert kinds_of(Configuration(method, "config.json")) == []


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


# ---------------- configurations


@pytest.mark.parametrize(
    ("pattern", "module", "parts", "expected"),
    [
        ("lm_head", "lm_head", False, True),
        ("lm_head", "model.lm_head2", False, False),
        ("model.layers.1", "model.layers.1.mlp.up_proj", False, True),
        ("model.layers.1", "model.layers.10.mlp.up_proj", False, False),
        ("self_attn", "model.layers.1.self_attn.q_proj", False, True),
        ("attn", "model.layers.1.self_attn.q_proj", False, False),
        ("attn", "model.layers.1.self_attn.q_proj", True, True),
        ("re:.*gate$", "model.layers.1.mlp.gate", False, True),
        ("re:gate", "model.gate", False, False),  # from the beginning, as re.match
        ("re:(", "(", False, False),
        ("model.layers.*.self_attn", "model.layers.3.self_attn.q_proj", False, True),
        ("*lm_head", "model.lm_head", False, True),
    ],
)
def test_an_entry_names_modules(pattern: str, module: str, parts: bool, expected: bool) -> None:
    assert matches(pattern, module, parts) is expected
    assert (Configuration(ignore=(pattern,), parts=parts).ignored(module) is not None) is expected


@pytest.mark.parametrize(
    ("targets", "module", "number"),
    [
        (("a.b", "a.b.c"), "a.b.c", 0),
        (("a.b.c", "a.b"), "a.b.c", 0),
        (("re:.*c", "a.b"), "a.b.c", 0),
        (("a.b", "re:.*c"), "a.b.c", 0),
        (("x", "re:.*c", "a.b"), "a.b.c", 1),
        (("x", "y"), "a.b.c", None),
    ],
)
def test_the_first_of_several_counts(targets: tuple[str, ...], module: str, number: int | None) -> None:
    """Plain entries are looked up by their paths, and patterns are tried: the order is that of the configuration."""
    assert Patterns(targets).first(module) == number


def test_the_first_target_counts() -> None:
    said = {"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {
        "a": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
        "b": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 64, "strategy": "group"}},
    }}  # fmt: skip
    found = configuration(Checkpoint(Path(), "safetensors", {}, {"quantization_config": said}))
    down, up = found.of("model.layers.0.mlp.down_proj"), found.of("model.layers.0.mlp.up_proj")
    assert down is not None
    assert up is not None
    assert (down.element, down.cut) == ("float8_e4m3fn", "row")
    assert (up.element, up.cut, up.block) == ("int4", "group", (1, 64))
    assert found.of("lm_head") is None


@pytest.mark.parametrize(
    ("module", "said"),
    [("mlp.gate_proj", True), ("mlp.gate", False), ("self_attn.q_norm", False), ("self_attn.o_proj", True)],
)
def test_a_plain_layer_that_is_said_to_be_quantized(module: str, said: bool, tmp_path: Path) -> None:
    """A router stays as it is and needs no entry; gate_proj is no router."""
    checkpoint = open_checkpoint(write("ct_FP8", tmp_path).folder)
    name = f"model.layers.7.{module}.weight"
    plain = replace(checkpoint.tensors["lm_head.weight"], name=name)
    kinds = {f.kind for f in all_found(replace(checkpoint, tensors={**checkpoint.tensors, name: plain}))}
    assert ("quantized in name only" in kinds) == said


@pytest.mark.parametrize(
    ("said", "method", "asked"),
    [
        ({"group_size": 64, "bits": 4}, "mlx_q4", None),
        ({"w_bit": 4, "q_group_size": 128, "zero_point": True}, "awq", ("int4", "group", (1, 128))),
        ({"bits": 8, "group_size": -1, "desc_act": False, "sym": True}, "gptq", ("int8", "row", (1, 0))),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, "fp8", ("float8_e4m3fn", "group", (1, 32))),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", ("float8_e4m3fn", "block", (128, 128))),
        ({"quant_method": "mxfp8"}, "mxfp8", ("float8_e4m3fn", "group", (1, 32))),
        ({"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, "blockwise_int8",
         ("int8", "block", (128, 128))),
        ({"quant_method": "fbgemm_fp8"}, "fbgemm_fp8", ("float8_e4m3fn", "row", (0, 0))),
        ({"quant_algo": "NVFP4", "group_size": 32}, "modelopt", ("float4_e2m1fn", "group", (1, 32))),
    ],
)  # fmt: skip
def test_what_other_tools_write(said: dict[str, Any], method: str, asked: tuple[Any, ...] | None) -> None:
    found = configuration(Checkpoint(Path(), "safetensors", {}, {"quantization_config": said}))
    mine = found.of("model.layers.0.mlp.up_proj")
    assert found.method == method
    assert (mine and (mine.element, mine.cut, mine.block)) == asked


HOSTILE: tuple[Any, ...] = (None, True, -1, 1 << 70, float("nan"), "re:(", [], {}, [None], {"a": 1}, [{}], "float16")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value of a JSON stands."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = changed(value[path[0]], path[1:], to)
    return copied


def all_found(checkpoint: Checkpoint) -> list[Finding]:
    mine, wrong = passports(checkpoint)
    return [*wrong, *config_findings(checkpoint, mine, to_float16=True, kv_cache_dtype="fp8")]


@pytest.mark.parametrize("kind", ["ct_NVFP4", "mo_FP8", "quark_fp8_kv", "deepseek", "gptq_actorder", "gpt_oss"])
def test_no_value_of_a_configuration_breaks_anything(kind: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write(kind, tmp_path).folder)
    for number, path in enumerate(leaves(dict(checkpoint.config))):
        to = HOSTILE[number * 5 % len(HOSTILE)]
        all_found(replace(checkpoint, config=changed(dict(checkpoint.config), path, to)))
