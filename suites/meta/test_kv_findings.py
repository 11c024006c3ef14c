"""What is found of one part of a layer, from its histogram and the scale in use."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from narrowgauge.reference.kv.effect import Effects
from narrowgauge.reference.kv.findings import KINDS, judge_part
from narrowgauge.reference.kv.histogram import checked, histogram_of
from narrowgauge.reference.noise import noise
from narrowgauge.reference.recipes import recipe_named
from narrowgauge.suites.meta.kv_stats_sets import E4, E4Z, SGLANG, VLLM, Array, as_format

pytestmark = pytest.mark.meta


def kinds(
    x: Array, scale: float | tuple[float, ...] | None, given: object = 0.5, heads: int = 1, fmt: str = E4
) -> list[str]:
    held = checked(histogram_of(as_format(x, "bfloat16"), heads), "x")
    made = Effects(held, recipe_named(SGLANG if fmt == E4Z else VLLM), fmt)
    found = [finding.kind for finding in judge_part("layer", "k", made, given, scale).findings]
    assert set(found) <= KINDS.keys()
    return found


def test_every_finding_of_a_part() -> None:
    x = noise(8192, 1).reshape(64, 128).astype(np.float32)
    good = float(np.abs(x).max() / 448)
    assert kinds(x, good) == []
    assert kinds(x, 1.0, given=None) == ["unity is harmless here"]
    assert kinds(x * 2000, 1.0, given=None) == ["clips", "needs a scale"]
    assert kinds(x * np.float32(1 / 2000), 1.0, given=None) == ["flushes", "needs a scale"]
    assert kinds(x, good / 16) == ["clips", "the scale is off"]
    assert kinds(x * 2000, 1.0, fmt=E4Z) == ["loses", "needs a scale"]
    assert kinds(x, None) == []
    for unusable in (0.0, -1.0, np.nan, np.inf, 1e-300, 1e300):
        assert kinds(x, unusable) == ["unusable"]
    x[0, 0] = np.nan
    assert kinds(x, good) == ["not finite"]
    spread: Array = np.exp2(-(np.arange(8192.0) % 31)).astype(np.float32).reshape(64, 128)
    assert kinds(spread, 1.0) == ["flushes"]


def test_a_format_that_cannot() -> None:
    """One element is 600 times the others: int8 has no step for them, whatever the scale. e4m3 has."""
    x = noise(4096, 1).reshape(32, 128).astype(np.float32) * np.float32(0.5)
    x[0, 0] = 300
    found = {}
    for recipe, fmt in (("vllm.int8_static_tensor", "int8"), (VLLM, E4)):
        made = Effects(histogram_of(as_format(x, "bfloat16")), recipe_named(recipe), fmt)
        found[fmt] = [f.kind for f in judge_part("layer", "k", made, 0.5, made.by_amax).findings]
    assert found == {"int8": ["flushes", "no scale helps"], E4: []}


def test_heads_that_one_scale_does_not_fit() -> None:
    """The smallest normal value under the scale of amax 448 is 2^-6: a head needs 8 of them, 0.125."""
    x = noise(64 * 128, 1).reshape(64, 128).astype(np.float32)
    x /= np.abs(x).max()
    x[0, :32] = 448
    for largest, found in ((0.126, []), (0.124, ["a scale per head"])):
        x[:, 96:] *= np.float32(largest / np.abs(x[:, 96:]).max())
        assert [k for k in kinds(x, 1.0, heads=4) if k == "a scale per head"] == found
    x[:, 96:] = 0
    assert "a scale per head" not in kinds(x, 1.0, heads=4), "a head of zeros needs no scale"


def test_one_scale_a_head() -> None:
    x = noise(64 * 128, 1).reshape(64, 128).astype(np.float32)
    amax = np.abs(x.astype(ml_dtypes.bfloat16).astype(np.float32)).reshape(64, 4, 32).max(axis=(0, 2))
    fits = tuple(float(a) / 448 for a in amax)
    assert kinds(x, fits, heads=4) == ["not judged"]
    assert kinds(x, (fits[0] / 1.035, *fits[1:]), heads=4) == ["not judged"], "464 / 448 is 1.0357"
    assert kinds(x, (fits[0] / 1.037, *fits[1:]), heads=4) == ["clips"]
    assert kinds(x, fits[:2], heads=4) == ["not judged"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (2.0, "doubled for FNUZ"),
        (1 / 128, "calibrated for e5m2's largest value"),
        (1 / 448.0, "divided by 448 twice"),
        (None, "reciprocal"),
    ],
)
def test_a_scale_that_is_off_is_recognised(wrong: float | None, said: str) -> None:
    x = noise(8192, 1).reshape(64, 128).astype(np.float32) * np.float32(2.0**-7 if wrong == 2.0 else 1)
    held = Effects(
        histogram_of(as_format(x, "bfloat16")),
        recipe_named("vllm.int8_static_tensor" if wrong == 2.0 else VLLM),
        "int8" if wrong == 2.0 else E4,
    )
    scale = held.by_amax * wrong if wrong else 1 / held.by_amax
    (off,) = [f.said for f in judge_part("layer", "k", held, scale, scale).findings if f.kind == "the scale is off"]
    assert said in off
