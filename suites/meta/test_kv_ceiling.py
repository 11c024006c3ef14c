"""Ceilings from weights: no hidden vector exceeds them, and one built against them reaches them.

The models here are forward passes written by hand from the models' definitions; nothing of ``kv.ceiling`` is in them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden import shards
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.kv.ceiling import allowance, normed
from narrowgauge.reference.kv.families import FAMILIES, rope_factor, shape_of
from narrowgauge.reference.noise import noise
from narrowgauge.suites.kv_ceiling import Model, OfPart
from narrowgauge.suites.kv_use import use_of
from narrowgauge.suites.meta.command_sets import as_json, refused, said

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

Array = npt.NDArray[np.float64]
HIDDEN, KV, HEAD = 48, 2, 8


def random(*shape: int, seed: int, size: float = 1.0) -> Array:
    return noise(math.prod(shape), seed).reshape(shape) * size


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """A model's folder, weights float32."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    coded = {n: Coded("float32", np.ascontiguousarray(t, np.float32).view(np.uint32)) for n, t in tensors.items()}
    write(folder / "model.safetensors", coded, {}, typed=True)
    return folder


# --- models by hand --------------------------------------------------------------------------------------------------


def rms(h: Array, gain: Array) -> Array:
    return h / np.sqrt(np.mean(h * h, axis=-1, keepdims=True) + 1e-6) * gain


def layer_norm(h: Array, gain: Array, shift: Array) -> Array:
    return (h - h.mean(axis=-1, keepdims=True)) / np.sqrt(h.var(axis=-1, keepdims=True) + 1e-6) * gain + shift


def rotate(k: Array, angles: Array, order: str) -> Array:
    """Heads [.., heads, d] turned by an angle for each pair; ``angles`` [.., pairs] may turn fewer than all."""
    out, n = k.copy(), angles.shape[-1]
    first, second = (np.arange(n), np.arange(n) + n) if order == "halves" else (2 * np.arange(n), 2 * np.arange(n) + 1)
    a, b = k[..., first], k[..., second]
    c, s = np.cos(angles)[..., None, :], np.sin(angles)[..., None, :]
    out[..., first], out[..., second] = a * c - b * s, b * c + a * s
    return out


BASE = {"hidden_size": HIDDEN, "num_attention_heads": 6, "num_key_value_heads": KV, "head_dim": HEAD}
P = "model.layers.0."


def weights(bias: bool = False, norm_bias: bool = False) -> dict[str, Array]:
    found = {
        f"{P}input_layernorm.weight": np.abs(random(HIDDEN, seed=1)) + 0.1,
        f"{P}self_attn.k_proj.weight": random(KV * HEAD, HIDDEN, seed=2, size=0.3),
        f"{P}self_attn.v_proj.weight": random(KV * HEAD, HIDDEN, seed=3, size=0.3),
    }
    if bias:
        found |= {f"{P}self_attn.{n}_proj.bias": random(KV * HEAD, seed=s) for n, s in (("k", 4), ("v", 5))}
    if norm_bias:
        found[f"{P}input_layernorm.bias"] = random(HIDDEN, seed=6)
    return {name: t.astype(np.float32).astype(np.float64) for name, t in found.items()}


Forward = Callable[[Array, Array], dict[str, Array]]


def llama(
    w: dict[str, Array], order: str = "halves", one_more: bool = False, pairs: int = HEAD // 2, k_norm: bool = False
) -> Forward:
    def forward(h: Array, angles: Array) -> dict[str, Array]:
        gain = w[f"{P}input_layernorm.weight"] + one_more
        shift = w.get(f"{P}input_layernorm.bias")
        x = rms(h, gain) if shift is None else layer_norm(h, gain, shift)
        k, v = (
            (x @ w[f"{P}self_attn.{n}_proj.weight"].T + w.get(f"{P}self_attn.{n}_proj.bias", 0)).reshape(
                len(h), KV, HEAD
            )
            for n in ("k", "v")
        )
        if k_norm:
            k = rms(k, w[f"{P}self_attn.k_norm.weight"] + one_more)
        return {"k": rotate(k, angles[:, :pairs], order), "v": v}

    return forward


MODELS: dict[str, tuple[dict[str, Any], dict[str, Array], Forward]] = {
    "llama": ({"model_type": "llama"}, (w := weights()), llama(w)),
    "qwen2, with bias": ({"model_type": "qwen2"}, (w := weights(bias=True)), llama(w)),
    "gemma, 1 + w": ({"model_type": "gemma"}, (w := weights()), llama(w, one_more=True)),
    "qwen3, K normalised": (
        {"model_type": "qwen3"},
        (w := weights() | {f"{P}self_attn.k_norm.weight": random(HEAD, seed=8)}),
        llama(w, k_norm=True),
    ),
    "glm4, neighbours, half": (
        {"model_type": "glm4"},
        (w := weights(bias=True)),
        llama(w, "neighbours", pairs=HEAD // 4),
    ),
    "stablelm, LayerNorm": (
        {"model_type": "stablelm", "partial_rotary_factor": 0.5},
        (w := weights(norm_bias=True)),
        llama(w, pairs=HEAD // 4),
    ),
}


def ceilings(folder: Path) -> dict[str, OfPart]:
    found = list(Model(folder).ceilings())
    return {one.part: one for one in found}


def attacks(forward: Forward, steps: int = 60) -> list[tuple[Array, Array]]:
    """Hidden vectors with angles: random ones, spikes, constants with noise, and for each output and several angles the
    vector of steepest ascent, found by finite differences."""
    h = [random(400, HIDDEN, seed=20), np.eye(HIDDEN) * 1e4, 7 + random(50, HIDDEN, seed=21, size=1e-3)]
    every = np.concatenate(h)
    found = [(every, random(len(every), HEAD // 2, seed=22, size=3))]
    for angle in np.linspace(0, 2 * np.pi, steps, endpoint=False):
        angles = np.full((HIDDEN + 1, HEAD // 2), angle)
        for sign in (1.0, -1.0):
            # the slope at a large vector of no direction: outputs are affine in the normalised vector
            start = np.concatenate([np.zeros((1, HIDDEN)), np.eye(HIDDEN)]) * 1e-9
            out = forward(start, angles)
            for values in out.values():
                slope = (values[1:] - values[:1]).reshape(HIDDEN, -1).T * sign
                found.append(
                    (slope / np.abs(slope).max(axis=1, keepdims=True) * 1e6, np.full((len(slope), HEAD // 2), angle))
                )
    return found


@pytest.mark.parametrize("name", MODELS)
def test_nothing_exceeds_a_ceiling_and_something_reaches_it(name: str, tmp_path: Path) -> None:
    config, tensors, forward = MODELS[name]
    found = ceilings(save(tmp_path / "m", BASE | config, tensors))
    largest = dict.fromkeys("kv", 0.0)
    for h, angles in attacks(forward):
        for part, values in forward(h, angles).items():
            by_head = np.abs(values).max(axis=(0, 2))
            assert (by_head <= found[part].heads).all(), (part, by_head, found[part].heads)
            largest[part] = max(largest[part], float(by_head.max()))
    for part, reached in largest.items():
        assert reached <= found[part].exact * (1 + 1e-12)
        # with a bias, or the shift of a norm, two lengths are added that need not point the same way; K's norm hides h
        loose = part == "k" and any(word in name for word in ("bias", "glm4", "LayerNorm", "K normalised"))
        assert reached >= (0.8 if loose else 0.99) * found[part].exact, (part, reached, found[part].exact)


def test_the_norm_of_keys_is_reached() -> None:
    """K of length sqrt(8) along one element, at any angle."""
    gain = random(HEAD, seed=8)
    found = normed(gain, 1, HEAD, "halves", 1.0).exact[0]
    k = np.eye(HEAD)[:, None, :] * 1e6
    reached = np.zeros(HEAD)
    for angle in np.linspace(0, np.pi, 200):
        reached = np.maximum(
            reached, np.abs(rotate(rms(k, gain), np.full((HEAD, HEAD // 2), angle), "halves")).max(axis=(0, 1))
        )
    assert (reached <= found * (1 + 1e-12)).all()
    assert (reached >= 0.999 * found).all()


def test_positions_of_a_real_rotation_come_near(tmp_path: Path) -> None:
    """The fastest pair turns by 1 radian a token, so 200 positions come within 0.02 of any angle: its ceiling is reached."""
    tensors = weights()
    k = tensors[f"{P}self_attn.k_proj.weight"]
    k[[i for i in range(KV * HEAD) if i % HEAD not in (0, HEAD // 2)]] *= 0.01
    found = ceilings(save(tmp_path / "m", BASE | {"model_type": "llama"}, tensors))
    rows = (k * tensors[f"{P}input_layernorm.weight"])[[0, HEAD // 2]]
    best = np.linalg.svd(rows)[2][:2]
    positions = np.arange(200.0)[:, None] * 10000.0 ** (-np.arange(HEAD // 2) / (HEAD // 2))
    forward = llama(tensors)
    reached = max(float(np.abs(forward(np.tile(b * 1e6, (200, 1)), positions)["k"][:, 0]).max()) for b in best)
    assert 0.999 * found["k"].heads[0] / (1 + allowance("float32", HIDDEN)) <= reached <= found["k"].heads[0]


def test_pairs_are_bounded_together(tmp_path: Path) -> None:
    """Two equal rows: the pair can reach sqrt(2) of one. Two rows at right angles, of one length: 1, not sqrt(2)."""
    found = {}
    for name, second in (("equal", 0), ("across", 1)):
        k = np.zeros((KV * HEAD, HIDDEN))
        k[0, 0] = k[HEAD // 2, second] = 1
        tensors = weights() | {f"{P}self_attn.k_proj.weight": k, f"{P}input_layernorm.weight": np.ones(HIDDEN)}
        found[name] = ceilings(save(tmp_path / name, BASE | {"model_type": "llama"}, tensors))["k"].exact
    assert found["equal"] == pytest.approx(math.sqrt(2 * HIDDEN))
    assert found["across"] == pytest.approx(math.sqrt(HIDDEN))


def test_a_layer_norm_has_no_mean(tmp_path: Path) -> None:
    """A row of equal numbers gives 0 after a LayerNorm, and its shift alone remains."""
    tensors = weights(norm_bias=True) | {
        f"{P}input_layernorm.weight": np.ones(HIDDEN),
        f"{P}self_attn.v_proj.weight": np.full((KV * HEAD, HIDDEN), 0.5),
    }
    found = ceilings(save(tmp_path / "m", BASE | {"model_type": "stablelm"}, tensors))["v"]
    assert found.exact == pytest.approx(abs(0.5 * tensors[f"{P}input_layernorm.bias"].sum()))
    assert found.largest > found.exact


def test_arithmetic_of_bfloat16_stays_below(tmp_path: Path) -> None:
    """Every step rounded to bfloat16, from the vectors that reach the ceiling: above it without the allowance."""
    tensors = {n: t.astype(ml_dtypes.bfloat16).astype(np.float64) for n, t in weights().items()}
    # rows of equal signs and sizes, so that roundings can all go one way
    tensors[f"{P}self_attn.v_proj.weight"][:] = 1.0
    tensors[f"{P}input_layernorm.weight"][:] = 1 + 2.0**-7
    folder = save(tmp_path / "m", BASE | {"model_type": "llama"}, tensors)
    coded = {n: Coded("bfloat16", t.astype(ml_dtypes.bfloat16).view(np.uint16)) for n, t in tensors.items()}
    write(folder / "model.safetensors", coded, {}, typed=True)
    found = ceilings(folder)

    def to(x: Array) -> Array:
        return x.astype(ml_dtypes.bfloat16).astype(np.float64)

    h = np.concatenate([np.ones((1, HIDDEN)), random(2000, HIDDEN, seed=9) * 0.01 + 1])
    h[1:, ::3] *= 1 - 2.0**-7
    x = to(to(rms(h, np.ones(HIDDEN))) * tensors[f"{P}input_layernorm.weight"])
    v = to(x @ tensors[f"{P}self_attn.v_proj.weight"].T)
    assert np.abs(v).max() <= found["v"].largest
    assert np.abs(v).max() > found["v"].exact


def test_the_allowance_by_hand() -> None:
    """bfloat16: eight roundings of 2^-8; sums of 48 terms are next to nothing."""
    assert allowance("bfloat16", 48) == pytest.approx((1 + 2.0**-8) ** 8 * (1 + 48 * 2.0**-24) ** 3 - 1, rel=1e-6)
    assert 0.0316 < allowance("bfloat16", 8192) < 0.034


# --- kinds of models -------------------------------------------------------------------------------------------------


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


# --- the command -----------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(shards, "PIECE", 3 * HIDDEN * 4)
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


def test_headers_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    whole = save(tmp_path, {}, weights()).joinpath("model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").unlink()
    for content, reason in (
        (b"", "its header would have"),
        (whole[:4], "its header would have"),
        (whole[:-8], "does not lie within the file"),
        (whole[:8] + b"[" + whole[9:], "its header is no JSON"),
        ((2).to_bytes(8, "little") + b"[]", "its header is no JSON object"),
        (whole.replace(b'"dtype":"F32"', b'"dtipe":"F32"'), "has no dtype, shape and data_offsets"),
        (whole.replace(b'"shape":[48]', b'"shape":[47]'), "in 192 bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=reason):
            shards.Shards(tmp_path)
    path.write_bytes(whole)
    (tmp_path / "y.safetensors").write_bytes(whole)
    with pytest.raises(BadInput, match="is in .*x.safetensors and in .*y.safetensors"):
        shards.Shards(tmp_path)
