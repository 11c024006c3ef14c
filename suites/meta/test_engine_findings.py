"""What an audit says of an engine and a target: small checkpoints, changed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.checkpoints.engines import VERSIONS, fused
from narrowgauge.checkpoints.engines.caches import TAKES
from narrowgauge.checkpoints.engines.findings import engine_findings
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.small_bytes import Raw, f32, write_safetensors
from narrowgauge.suites.meta.small_checkpoints import draft_of
from narrowgauge.suites.meta.small_drafts import Draft

pytestmark = pytest.mark.meta

Edit = Callable[[Draft], None]


def said(tmp_path: Path, kind: str, engine: str, target: str = "", flag: str = "", *edits: Edit) -> dict[str, Finding]:
    """Findings by kind; each kind is there once."""
    made = draft_of(kind)
    for edit in edits:
        edit(made)
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps(made.config))
    write_safetensors(tmp_path / "model.safetensors", made.tensors)
    checkpoint = open_checkpoint(tmp_path)
    found = list(engine_findings(checkpoint, passports(checkpoint)[0], engine, target, flag))
    assert all(finding.kind in KINDS for finding in found)
    assert len({finding.kind for finding in found}) == len(found)
    return {finding.kind: finding for finding in found}


def architecture(name: str) -> Edit:
    def edit(made: Draft) -> None:
        made.config["architectures"] = [name]

    return edit


def quantization(**changes: Any) -> Edit:
    def edit(made: Draft) -> None:
        made.config["quantization_config"] = made.config["quantization_config"] | changes

    return edit


def unquantized(made: Draft) -> None:
    del made.config["quantization_config"]


def without(end: str) -> Edit:
    def edit(made: Draft) -> None:
        for name in [name for name in made.tensors if name.endswith(end)]:
            del made.tensors[name]

    return edit


def renamed(end: str, becomes: str) -> Edit:
    def edit(made: Draft) -> None:
        for name in [name for name in made.tensors if name.endswith(end)]:
            made.tensors[name.removesuffix(end) + becomes] = made.tensors.pop(name)

    return edit


def scales(**values: float) -> Edit:
    """The weights' scales, by the projection's name."""

    def edit(made: Draft) -> None:
        for name, raw in made.tensors.items():
            projection = name.split(".")[-2]
            if name.endswith(".weight_scale") and projection in values:
                made.tensors[name] = f32(np.full(raw.shape, values[projection], np.float32))

    return edit


DROPPED, ENDS, BLIND = "cache scales dropped", "cache scales end loading", "cache scales not looked at"
#: kind of checkpoint, engine, changes, kind of finding ("" for none of these) and how many scales it counts; the small
#: Llama has two layers
CACHES: tuple[tuple[str, str, tuple[Edit, ...], str, int], ...] = (
    ("mo_FP8", "vllm", (), "", 0),
    ("mo_FP8", "sglang", (), "", 0),
    ("ct_FP8_KV", "vllm", (), "", 0),
    ("quark_fp8_kv", "vllm", (), "", 0),
    ("quark_fp8_kv", "vllm", (architecture("Gemma2ForCausalLM"),), ENDS, 4),
    ("mo_FP8", "vllm", (architecture("Gemma2ForCausalLM"),), "", 0),
    ("mo_FP8", "sglang", (architecture("Gemma2ForCausalLM"),), ENDS, 4),
    ("mo_FP8", "sglang", (architecture("Qwen3MoeForCausalLM"),), DROPPED, 4),
    ("mo_FP8", "vllm", (architecture("DeepseekV3ForCausalLM"),), DROPPED, 4),
    ("mo_FP8", "sglang", (renamed(".v_proj.v_scale", ".k_proj.v_scale"),), DROPPED, 2),
    # a method without one for the cache, an attention that is another class, a cache that is not declared
    ("quark_fp8_kv", "vllm", (architecture("DeepseekV3ForCausalLM"),), BLIND, 4),
    ("mo_FP8", "sglang", (quantization(kv_cache_scheme=None),), BLIND, 4),
    ("mo_FP8", "sglang", (unquantized,), BLIND, 4),
    ("mo_FP8", "vllm", (unquantized,), ENDS, 4),
    ("mo_FP8", "vllm", (quantization(quant_method="inc"),), BLIND, 4),
    ("ct_FP8", "vllm", (), "", 0),
)


@pytest.mark.parametrize("number", range(len(CACHES)))
def test_scales_of_the_cache_on_their_way(number: int, tmp_path: Path) -> None:
    kind, engine, edits, expected, count = CACHES[number]
    found = said(tmp_path, kind, engine, "", "", *edits)
    assert set(found) & {DROPPED, ENDS, BLIND} == ({expected} if expected else set())
    assert "architecture not known" not in found
    if expected:
        assert found[expected].count == count
        assert found[expected].said.startswith(f"{VERSIONS[engine]}, ")
        assert "_scale the first; it looks for model.layers." in found[expected].said


def test_what_is_said_of_a_dropped_scale(tmp_path: Path) -> None:
    found = said(tmp_path, "mo_FP8", "vllm", "", "", architecture("DeepseekV3ForCausalLM"))[DROPPED].said
    assert "looks for model.layers.0.self_attn.attn.attn.k_scale" in found or "attn.attn.v_scale" in found
    assert "once for each text" in found
    assert "vllm/model_executor/models/deepseek_v2.py:1996-1998" in found
    assert (
        "and says nothing"
        in said(tmp_path, "mo_FP8", "sglang", "", "", architecture("Qwen3MoeForCausalLM"))[DROPPED].said
    )


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    """The usual loader is taken, and said; where no scale is there nothing depends on it."""
    found = said(
        tmp_path, "mo_FP8", "sglang", "", "", architecture("NobodyForCausalLM"), renamed(".k_scale", ".q_scale")
    )
    assert {"architecture not known", DROPPED} <= set(found)
    assert "NobodyForCausalLM; names are judged by the usual loader" in found["architecture not known"].said
    assert said(tmp_path, "ct_W4A16", "vllm", "", "", architecture("NobodyForCausalLM")) == {}


OTHERWISE = "cache scales used otherwise"


@pytest.mark.parametrize(
    ("kind", "engine", "target", "flag", "edits", "text"),
    [
        ("mo_FP8", "vllm", "", "fp8_e4m3", (), ""),
        ("mo_FP8", "vllm", "gfx942", "fp8_e4m3", (), ""),  # doubled, as FNUZ asks
        ("mo_FP8", "vllm", "", "fp8_e4m3", (without(".v_scale"),), "V runs at"),
        ("mo_FP8", "vllm", "", "fp8_e4m3", (without(".k_scale"),), "AssertionError"),
        ("mo_FP8", "vllm", "", "", (without(".v_scale"),), "V runs at"),  # the configuration declares fp8
        ("ct_FP8_KV", "vllm", "", "fp8_e4m3", (without(".v_scale"),), "V runs at 1, the file has none"),
        ("mo_FP8", "vllm", "", "fp8_e5m2", (), "ValueError"),
        ("mo_FP8", "vllm", "", "bfloat16", (), ""),  # nobody needs them
        ("mo_FP8", "vllm", "", "fp8_per_token_head", (), ""),  # nor here: the kernel finds its own
        ("mo_FP8", "sglang", "", "fp8_e4m3", (without(".v_scale"),), "V runs at"),
        # the one scale of old is both, and doubled as both
        ("mo_FP8", "vllm", "gfx942", "fp8_e4m3", (without(".v_scale"), renamed(".k_proj.k_scale", ".kv_scale")), ""),
        # V's at K's projection: vLLM takes it for V's
        ("mo_FP8", "vllm", "", "fp8_e4m3", (renamed(".v_proj.v_scale", ".k_proj.v_scale"),), ""),
        # one that is dropped, and one that ends it
        ("mo_FP8", "sglang", "", "fp8_e4m3", (renamed(".v_proj.v_scale", ".k_proj.v_scale"),), "V runs at"),
        ("mo_FP8", "vllm", "", "fp8_e4m3", (renamed(".v_proj.v_scale", ".v_proj.output_scale"),), ""),
    ],
)  # fmt: skip
def test_scales_of_the_cache_in_use(
    kind: str, engine: str, target: str, flag: str, edits: tuple[Edit, ...], text: str, tmp_path: Path
) -> None:
    found = said(tmp_path, kind, engine, target, flag, *edits)
    assert (OTHERWISE in found) == bool(text)
    if text:
        assert text in found[OTHERWISE].said
        assert ": 2 layers, model.layers.0.self_attn" in found[OTHERWISE].said


EACH = {"q_proj": 0.5, "k_proj": 0.25, "v_proj": 2.0, "gate_proj": 1.0, "up_proj": 1.0}
LARGEST, BEYOND = "requantized to the largest", "requantizing overflows"


@pytest.mark.parametrize(
    ("kind", "engine", "target", "values", "kinds"),
    [
        ("mo_FP8", "vllm", "", EACH, {LARGEST}),
        ("mo_FP8", "vllm", "sm_90", EACH, {LARGEST}),
        ("mo_FP8", "vllm", "sm_80", EACH, set()),  # Marlin
        ("mo_FP8", "sglang", "sm_90", EACH, {LARGEST}),
        ("mo_FP8", "vllm", "", dict.fromkeys(EACH, 0.5), set()),
        ("mo_FP8", "vllm", "", dict.fromkeys(EACH, float(np.nextafter(np.float32(146.25), 0))), set()),
        ("mo_FP8", "vllm", "", dict.fromkeys(EACH, 146.25), {BEYOND}),
        ("mo_FP8", "vllm", "", EACH | {"v_proj": 147.0}, {LARGEST, BEYOND}),
        ("ct_FP8_DYNAMIC", "vllm", "", {}, set()),  # a scale a row: each shard keeps its own
        ("ct_FP8_FUSED", "vllm", "", {"qkv_proj": 147.0, "gate_up_proj": 147.0}, set()),  # fused in the file
    ],
)
def test_shards_that_are_requantized(
    kind: str, engine: str, target: str, values: dict[str, float], kinds: set[str], tmp_path: Path
) -> None:
    found = said(tmp_path, kind, engine, target, "", scales(**values))
    assert set(found) & {LARGEST, BEYOND} == kinds
    if LARGEST in kinds:
        ratio = max(values[p] for p in ("q_proj", "k_proj", "v_proj")) / 0.25
        assert f"2 fused layers, model.layers.0.self_attn.q_proj with the largest ratio of scales, {ratio:.4g}" in (
            found[LARGEST].said.replace("layers.1", "layers.0")
        )


def test_a_shard_without_its_like_is_not_requantized(tmp_path: Path) -> None:
    lone = (
        scales(gate_proj=147.0),
        *(without(f".{p}.{end}") for p in ("up_proj",) for end in ("weight", "weight_scale")),
    )
    assert BEYOND not in said(tmp_path, "mo_FP8", "vllm", "", "", *lone)


def test_where_448_of_a_scale_leave_float16() -> None:
    """In float32 and then rounded, as torch multiplies a tensor of float16 by a number of float32."""
    edge = np.float32(fused.INFINITE_FROM)
    with np.errstate(over="ignore"):
        assert np.isinf(np.float16(np.float32(448) * edge))
    assert np.float16(np.float32(448) * np.nextafter(edge, np.float32(0))) == 65504


def test_of_many_layers_the_first_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "MOST", 1)
    found = said(tmp_path, "mo_FP8", "vllm", "", "", scales(**EACH | {"up_proj": 2.0}))[LARGEST].said
    assert "vllm: 1 fused layers, " in found
    assert "; 1 of 4 looked at" in found


AWAY, ANOTHER = "scales renamed away", "scales of another name"
LLAMA, QWEN = architecture("LlamaForCausalLM"), architecture("Qwen3ForCausalLM")
#: the small DeepSeek has scales of blocks, weight_scale_inv, and a method fp8 with weight_block_size
INV, PLAIN, NO_BLOCKS = ".weight_scale_inv", ".weight_scale", quantization(weight_block_size=None)


@pytest.mark.parametrize(
    ("engine", "edits", "kind"),
    [
        ("sglang", (), ""),
        ("vllm", (), ""),
        ("sglang", (LLAMA,), AWAY),
        ("sglang", (LLAMA, renamed(INV, PLAIN)), AWAY),
        ("sglang", (LLAMA, NO_BLOCKS), ""),
        ("sglang", (LLAMA, quantization(quant_method="quark")), ""),
        ("vllm", (LLAMA,), ""),
        ("sglang", (QWEN,), ""),
        ("sglang", (QWEN, renamed(INV, PLAIN)), ANOTHER),
        ("vllm", (renamed(INV, PLAIN),), ANOTHER),
        ("sglang", (renamed(INV, PLAIN),), ""),  # finds both names
        ("vllm", (NO_BLOCKS,), ANOTHER),
        ("vllm", (NO_BLOCKS, renamed(INV, PLAIN)), ""),
    ],
)
def test_scales_under_another_name(engine: str, edits: tuple[Edit, ...], kind: str, tmp_path: Path) -> None:
    found = said(tmp_path, "deepseek", engine, "", "", *edits)
    assert set(found) & {AWAY, ANOTHER} == ({kind} if kind else set())
    if kind:
        number = sum(name.endswith(INV) for name in draft_of("deepseek").tensors)
        assert f"{engine}: {number} tensors, " in found[kind].said


@pytest.mark.parametrize(
    ("engine", "edits", "kind"),
    [
        ("vllm", (), ""),
        ("vllm", (renamed(PLAIN, INV),), ANOTHER),
        ("sglang", (renamed(PLAIN, INV),), ""),  # its loader of Llama renames them back
        ("sglang", (QWEN, renamed(PLAIN, INV)), ANOTHER),
    ],
)
def test_scales_of_compressed_tensors_under_another_name(
    engine: str, edits: tuple[Edit, ...], kind: str, tmp_path: Path
) -> None:
    assert set(said(tmp_path, "ct_FP8", engine, "", "", *edits)) & {AWAY, ANOTHER} == ({kind} if kind else set())


def hybrid(made: Draft) -> None:
    """A module of MXFP4 beside: its scales have a name of their own."""
    made.tensors["model.layers.0.extra.weight"] = Raw("U8", (4, 16), bytes(64))
    made.tensors["model.layers.0.extra.weight_scale"] = Raw("U8", (4, 1), bytes(4))


def test_scales_of_another_scheme_have_their_own_names(tmp_path: Path) -> None:
    assert ANOTHER not in said(tmp_path, "deepseek", "vllm", "", "", hybrid)


def weights_alone(made: Draft) -> None:
    made.config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = None


@pytest.mark.parametrize(("kind", "target"), [("ct_FP8", "sm_80"), ("ct_NVFP4", "sm_90")])
def test_weights_alone_are_no_finding_where_they_are_asked_for(kind: str, target: str, tmp_path: Path) -> None:
    found = "weights only on the target"
    assert found in said(tmp_path, kind, "vllm", target)
    alone = (weights_alone, without(".input_scale"), without(".input_global_scale"))
    assert found not in said(tmp_path, kind, "vllm", target, "", *alone)


@pytest.mark.parametrize(
    ("kind", "engine", "target", "found"),
    [
        ("mo_FP8", "", "gfx942", "converted for the target"),
        ("mo_FP8", "vllm", "gfx942", "converted for the target"),
        ("mo_FP8", "sglang", "gfx942", "refused on the target"),
        ("mo_FP8", "vllm", "sm_80", "weights only on the target"),
        ("mo_FP8", "vllm", "sm_75", "refused on the target"),
        ("mo_FP8", "vllm", "sm_90", ""),
        ("mo_FP8", "vllm", "gfx90a", "refused on the target"),
        ("deepseek", "vllm", "sm_90", "requantized for the kernel"),
        ("deepseek", "sglang", "sm_90", ""),
        ("deepseek", "sglang", "sm_100", "requantized for the kernel"),
        ("quark_mxfp4", "vllm", "gfx942", "emulated on the target"),
        ("quark_mxfp4", "vllm", "gfx950", ""),
        ("ct_NVFP4", "sglang", "sm_90", "weights only on the target"),
        ("ct_NVFP4", "vllm", "sm_100", ""),
        ("ct_W4A16", "vllm", "sm_80", ""),
        ("bf16", "vllm", "sm_75", ""),
    ],
)
def test_targets(kind: str, engine: str, target: str, found: str, tmp_path: Path) -> None:
    every = said(tmp_path, kind, engine, target)
    about = {name for name in every if name.endswith(("the target", "the kernel")) or name == "path not known"}
    assert about == ({found} if found else set())
    if found:
        assert f", {len(passports(open_checkpoint(tmp_path))[0])} modules, " in every[found].said


@pytest.mark.parametrize(
    ("kind", "changes", "vllm", "sglang"),
    [
        ("ct_FP8", {"quant_method": "w8a8_fp8"}, False, True),
        ("ct_FP8", {"quant_method": "torchao"}, True, False),
        ("ct_FP8", {"quant_method": "of nobody"}, True, True),  # passports say so
        ("mo_FP8", {}, True, True),
        ("mo_FP8", {"quant_algo": "fp8"}, True, False),
        ("ct_FP8", {"quant_algo": "anything"}, True, True),  # a key of ModelOpt's
        ("mo_FP8_PB", {}, True, False),  # fp8_pb_wo: vLLM puts it in capitals
        ("mo_MXFP8", {}, True, True),
        ("mo_MXFP4", {}, False, False),
        ("mo_W4A16_AWQ", {}, False, False),
        ("mo_NVFP4", {"quant_algo": "NVFP4_AWQ"}, False, True),
    ],
)
def test_methods_that_an_engine_does_not_know(
    kind: str, changes: dict[str, str], vllm: bool, sglang: bool, tmp_path: Path
) -> None:
    for engine, known in (("vllm", vllm), ("sglang", sglang)):
        for target in ("", "sm_80"):
            found = said(tmp_path, kind, engine, target, "", quantization(**changes))
            assert ("engine does not know the method" in found) != known, (engine, target)
            assert known or not any(name.endswith("the target") for name in found), "there is nothing to compute"


def test_a_cache_of_modelopt_in_sglang(tmp_path: Path) -> None:
    """Of NVFP4 the algorithm of the cache is "auto" where nothing is said, and scales are taken."""
    undeclared = quantization(kv_cache_scheme=None)
    assert BLIND in said(tmp_path, "mo_FP8", "sglang", "", "", undeclared)
    assert BLIND not in said(tmp_path, "mo_NVFP4", "sglang", "", "", undeclared)


def test_unknown_targets_and_flags(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="unknown target 'gfx943'; did you mean"):
        said(tmp_path, "mo_FP8", "vllm", "gfx943")
    with pytest.raises(BadInput, match="unknown --kv-cache-dtype 'fp9' in vllm"):
        said(tmp_path, "mo_FP8", "vllm", "", "fp9")


def test_nothing_is_said_without_engine_and_target(tmp_path: Path) -> None:
    assert said(tmp_path, "mo_FP8", "") == {}


def test_methods_that_take_scales_are_of_three_kinds() -> None:
    assert {whose for whose, _ in TAKES.values()} == {"all", "not latent", "declared"}
