"""Ceilings of the kinds of models that are known, and ``narrowgauge kv --weights``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.checkpoints import reading
from narrowgauge.contracts.coded import Coded
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.kv.families import FAMILIES, rope_factor, shape_of
from narrowgauge.suites.kv_ceiling import Model, OfPart
from narrowgauge.suites.kv_use import use_of
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.kv_models import (
    BASE,
    HEAD,
    HIDDEN,
    P,
    ceilings,
    random,
    save,
    weights,
)

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


def test_fused_and_transposed(tmp_path: Path) -> None:
    """GPT-2 [in, out] and Phi-3 [out, in] of the same numbers as apart."""
    q = random(6 * HEAD, HIDDEN, seed=30)
    w = weights()
    apart = ceilings(save(tmp_path / "a", BASE | {"model_type": "llama"}, w))
    fused = np.concatenate([q, w[f"{P}self_attn.k_proj.weight"], w[f"{P}self_attn.v_proj.weight"]])
    one = {f"{P}input_layernorm.weight": w[f"{P}input_layernorm.weight"], f"{P}self_attn.qkv_proj.weight": fused}
    phi = ceilings(save(tmp_path / "b", BASE | {"model_type": "phi3"}, one))
    for part in "kv":
        assert phi[part].heads.tolist() == apart[part].heads.tolist()
    k, v = random(HIDDEN, HIDDEN, seed=31), random(HIDDEN, HIDDEN, seed=32)
    gpt = {
        "h.0.ln_1.weight": np.ones(HIDDEN), "h.0.ln_1.bias": np.zeros(HIDDEN),
        "h.0.attn.c_attn.weight": np.concatenate([q, k, v]).T, "h.0.attn.c_attn.bias": np.arange(3.0 * HIDDEN),
    }  # fmt: skip
    found = ceilings(save(tmp_path / "c", {"model_type": "gpt2", "n_embd": HIDDEN, "n_head": 6}, gpt))
    for part, rows, start in (("k", k, HIDDEN), ("v", v, 2 * HIDDEN)):
        rows = rows.astype(np.float32).astype(np.float64)
        centred = rows - rows.mean(axis=1, keepdims=True)
        want = np.linalg.norm(centred, axis=1) * math.sqrt(HIDDEN) + start + np.arange(HIDDEN)
        assert found[part].exact == pytest.approx(want.max(), rel=1e-9)


def test_latent_attention(tmp_path: Path) -> None:
    """The latent vector is normalised: its gain times the root of its width; 6 positional keys turn as neighbours."""
    config = {
        "model_type": "deepseek_v2",
        "hidden_size": HIDDEN,
        "num_attention_heads": 4,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 6,
    }
    gain, proj = random(16, seed=40), random(22, HIDDEN, seed=41)
    w = {
        f"{P}input_layernorm.weight": np.ones(HIDDEN), f"{P}self_attn.kv_a_layernorm.weight": gain,
        f"{P}self_attn.kv_a_proj_with_mqa.weight": proj,
    }  # fmt: skip
    found = ceilings(save(tmp_path / "m", config, w))
    assert found["latent"].exact == pytest.approx(float(np.abs(gain.astype(np.float32)).max()) * 4)
    pairs = proj.astype(np.float32).astype(np.float64)[16:].reshape(3, 2, HIDDEN)
    largest = max(float(np.linalg.svd(pair, compute_uv=False)[0]) for pair in pairs)
    assert found["rope"].exact == pytest.approx(largest * math.sqrt(HIDDEN))


@pytest.mark.parametrize(
    ("rope", "mla", "factor"),
    [
        ({}, False, 1.0),
        ({"rope_scaling": None}, False, 1.0),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, False, 1.0),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, False, 1.0),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, False, 0.1 * math.log(4) + 1),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5}}, False, 1.5),
        (
            {"rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 0.5}},
            True,
            (0.1 * math.log(40) + 1) / (0.05 * math.log(40) + 1),
        ),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope"},
            },
            False,
            math.sqrt(1 + math.log(32) / math.log(4096)),
        ),
        (
            {"rope_parameters": {"full": {"rope_type": "yarn", "factor": 2.0}, "sliding": {"rope_type": "default"}}},
            False,
            0.1 * math.log(2) + 1,
        ),
    ],
)
def test_what_kinds_of_rope_multiply_by(rope: dict[str, Any], mla: bool, factor: float) -> None:
    assert rope_factor(rope, "config.json", mla) == pytest.approx(factor)


def test_the_factor_is_in_the_ceiling_of_keys(tmp_path: Path) -> None:
    w = weights()
    one = ceilings(save(tmp_path / "a", BASE | {"model_type": "llama"}, w))
    more = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5}}
    other = ceilings(save(tmp_path / "b", BASE | {"model_type": "llama"} | more, w))
    assert other["k"].exact == pytest.approx(1.5 * one["k"].exact)
    assert other["v"].exact == one["v"].exact


def test_the_table_of_families_is_whole() -> None:
    for kind in FAMILIES:
        config = BASE | {"model_type": kind, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "n_embd": 48, "n_head": 6}
        shape = shape_of(config, "config.json")
        assert shape.rotated % 2 == 0
        assert (shape.rank > 0) == shape.family.latent
    assert shape_of({"model_type": "gemma3", "text_config": BASE | {"model_type": "gemma3_text"}}, "x").hidden == HIDDEN


def llama_folder(folder: Path, size: float) -> Path:
    w = weights()
    second = {name.replace("layers.0", "layers.10"): t * (100 if "proj" in name else 1) for name, t in w.items()}
    every = {name: t * (size if "proj" in name else 1) for name, t in (w | second).items()}
    return save(folder, BASE | {"model_type": "llama"}, every)


def test_the_command_says_ceiling_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = llama_folder(tmp_path / "m", 1.0)
    start = ["kv", "--weights", str(folder)]
    text = said([*start, "--scales", "k=0.5,v=0.5"], capsys)
    assert text.startswith("ceiling, not an estimate no input exceeds it, and real ones may stay far below")
    assert "2 of 4 parts cannot clip, whatever the input; nothing is wrong with the scales of 2 layers" in text
    assert text.count("cannot clip") == 3
    assert text.count("may clip") == 2
    data = as_json([*start, "--scales", "k=2000,v=0.001"], capsys)
    assert data["label"] == "ceiling, not an estimate"
    assert [(one["layer"], one["part"], one["may_clip"]) for one in data["ceilings"]] == [
        (f"model.layers.{n}.self_attn", part, part == "v") for n in (0, 10) for part in "kv"
    ]
    ratio = data["ceilings"][2]["ceiling"] / data["ceilings"][0]["ceiling"]
    assert ratio == pytest.approx(100, rel=1e-5)


def test_unity_that_nobody_measured_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = llama_folder(tmp_path / "m", 0.001)
    text = said(["kv", "--weights", str(folder)], capsys, code=1)
    assert "4 of 4 parts cannot clip, whatever the input; 0 of 2 layers: unity" in text
    assert "unity 2 layers, model.layers.0.self_attn the first. ModelOpt's exports for TensorRT-LLM" in text
    text = said(["kv", "--weights", str(folder), "--format", "e5m2"], capsys, code=1)
    assert "no engine warns 2 layers run at 1 in float8_e5m2" in text


def test_a_ceiling_within_half_a_step_of_the_end_does_not_clip(tmp_path: Path) -> None:
    use = use_of("vllm", "", "", "", "native")
    for largest, clips in ((464.0, False), (464.1, True)):
        one = OfPart("l", "k", largest, np.array([1.0, largest]))
        assert one.clips(use, 1.0) is clips
        assert one.clips(use, (1.0, 1.0)) is clips
        assert one.clips(use, (1e-6, 1.0)) is True


def test_weights_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pieces of three rows the same comes out."""
    folder = llama_folder(tmp_path / "m", 1.0)
    whole = [one.heads.tolist() for one in Model(folder).ceilings()]
    monkeypatch.setattr(reading, "PIECE", 3 * HIDDEN * 4)
    assert [one.heads.tolist() for one in Model(folder).ceilings()] == whole


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"model_type": "lama"}, {}, "unknown model_type 'lama'"),
    ({"hidden_size": "48"}, {}, "has no hidden_size or n_embd"),
    ({"rope_scaling": {"type": "spiral"}}, {}, "unknown rope_type 'spiral'"),
    ({"rope_scaling": {"type": "yarn", "factor": "4"}}, {}, "factor is '4'; expected a number"),
    ({"partial_rotary_factor": 2}, {}, "partial_rotary_factor 2; expected a number above 0 and up to 1"),
    ({"head_dim": 16}, {}, "k_proj.weight' is [16, 48]; expected 32 outputs of 48"),
    ({}, {f"{P}self_attn.k_proj.weight": None}, "has no tensor 'model.layers.0.self_attn.k_proj.weight'"),
    ({}, {f"{P}self_attn.k_norm.weight": np.ones(8)}, "k_norm.weight' is not known in such a model"),
    ({}, {f"{P}input_layernorm.weight": np.ones(7)}, "has 7 numbers; expected 48"),
    ({}, {f"{P}self_attn.v_proj.weight": np.full((16, 48), np.inf)}, "has NaN or infinities"),
]


@pytest.mark.parametrize(("config", "tensors", "reason"), REFUSED)
def test_what_has_no_ceiling(
    config: dict[str, Any], tensors: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {name: t for name, t in (weights() | tensors).items() if t is not None}
    folder = save(tmp_path / "m", BASE | {"model_type": "llama"} | config, every)
    assert reason in refused(["kv", "--weights", str(folder)], capsys)


def test_quantized_weights_and_folders_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "m", BASE | {"model_type": "llama"}, weights())
    coded = {n: Coded("float8_e4m3fn", t.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)) for n, t in weights().items()}
    write(folder / "model.safetensors", coded, {}, typed=True)
    assert "is float8_e4m3fn; expected bfloat16, float16, float32" in refused(["kv", "--weights", str(folder)], capsys)
    assert "has no config.json" in refused(["kv", "--weights", str(tmp_path / "none")], capsys)
    assert "--picture is for what was seen" in refused(["kv", "--weights", str(folder), "--picture", "x.png"], capsys)
    assert "and not both" in refused(["kv", "x.safetensors", "--weights", str(folder)], capsys)
