"""Ceilings from weights: no hidden vector exceeds them, and one built against them reaches them."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.kv.ceiling import allowance, normed
from narrowgauge.suites.meta.kv_models import (
    BASE,
    HEAD,
    HIDDEN,
    KV,
    MODELS,
    Array,
    Forward,
    P,
    ceilings,
    llama,
    random,
    rms,
    rotate,
    save,
    weights,
)

pytestmark = pytest.mark.meta


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
    largest = {part: np.zeros(KV) for part in "kv"}
    for h, angles in attacks(forward):
        for part, values in forward(h, angles).items():
            by_head = np.abs(values).max(axis=(0, 2))
            assert (by_head <= found[part].heads).all(), (part, by_head, found[part].heads)
            largest[part] = np.maximum(largest[part], by_head)
    for part, reached in largest.items():
        assert reached.max() <= found[part].exact * (1 + 1e-12)
        # with a bias, or the shift of a norm, two lengths are added that need not point the same way; K's norm hides h
        loose = part == "k" and any(word in name for word in ("bias", "LayerNorm", "K normalised"))
        assert (reached >= (0.8 if loose else 0.99) * found[part].heads).all(), (part, reached, found[part])


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
    """The fastest pair turns by 1 radian a token, so 200 positions come within 0.02 of any angle."""
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
    """Two equal rows: the pair can reach sqrt(2) of one. Two rows at right angles, of one length: 1, not sqrt(2).

    Of GLM-4 the first half of a head is turned, as neighbours: the rows 4 and 5 are no pair, 2 and 3 are one.
    """
    found = {}
    cases = {
        "equal": ("llama", 0, 4, 0), "across": ("llama", 0, 4, 1),
        "neighbours": ("glm4", 2, 3, 0), "apart": ("glm4", 4, 5, 0),
    }  # fmt: skip
    for name, (kind, one, other, second) in cases.items():
        k = np.zeros((KV * HEAD, HIDDEN))
        k[one, 0] = k[other, second] = 1
        tensors = weights() | {f"{P}self_attn.k_proj.weight": k, f"{P}input_layernorm.weight": np.ones(HIDDEN)}
        found[name] = ceilings(save(tmp_path / name, BASE | {"model_type": kind}, tensors))["k"].exact
    assert found["equal"] == found["neighbours"] == pytest.approx(math.sqrt(2 * HIDDEN))
    assert found["across"] == found["apart"] == pytest.approx(math.sqrt(HIDDEN))


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
