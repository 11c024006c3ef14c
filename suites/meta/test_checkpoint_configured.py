# SPDX-License-Identifier: Apache-2.0
"""What a configuration says of quantization: which method, of which modules; and what it cannot be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.checkpoints.against_config import config_findings
from narrowgauge.checkpoints.configured import Configuration, configuration
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.methods import METHODS, SPELLED, method_findings
from narrowgauge.checkpoints.model import Checkpoint
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.checkpoints.patterns import Patterns, matches
from narrowgauge.checkpoints.schemes import SCHEMES
from narrowgauge.suites.meta.engines.loading import folder_of
from narrowgauge.suites.meta.small_checkpoints import write

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


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"quantization_config": "fp8"}, "configuration unusable"),
        ({"quantization_config": {"quant_method": 5, "config_groups": {}}}, "configuration unusable"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": []}}, "quantized and ignored"),
        ({"hidden_size": "abc"}, "configuration unusable"),
        ({"num_attention_heads": 0}, "configuration unusable"),
        ({"num_hidden_layers": 10**30}, "configuration unusable"),
    ],
)
def test_a_value_that_is_none_is_said(change: dict[str, Any], kind: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write("ct_FP8", tmp_path).folder)
    found = all_found(replace(checkpoint, config={**checkpoint.config, **change}))
    assert kind in {finding.kind for finding in found}


def test_a_folder_of_codes_without_a_configuration(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write("ct_FP8", tmp_path).folder)
    told = [finding.kind for finding in all_found(replace(checkpoint, config={}, others={}))]
    assert told.count("no configuration") == 1
    file = next(tmp_path.glob("*.safetensors"))  # one file is looked at by itself
    assert "no configuration" not in {f.kind for f in all_found(replace(checkpoint, path=file, config={}, others={}))}


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
