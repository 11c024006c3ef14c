"""The file of a key-value capture, by whoever wrote it, and every way in which it can be wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from narrowgauge.suites.kv_scales import NOTHING
from narrowgauge.suites.kv_stats import Stats, number_of, read_stats, write_stats
from narrowgauge.suites.meta.command_sets import as_json, refused
from narrowgauge.suites.meta.kv_stats_sets import F32, found, layer

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


def test_a_file_comes_back_as_it_was(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of the same make one with twice the counts, and the same decibels."""
    out = tmp_path / "sum.safetensors"
    one, two = (
        as_json(["kv", *[str(kv_file)] * n, *(["--capture", str(out)] if n == 2 else [])], capsys, code=1)
        for n in (1, 2)
    )
    first, second = read_stats(kv_file), read_stats(out)
    for name, parts in first.layers.items():
        for part, h in parts.items():
            other = second.layers[name][part]
            assert (2 * h.counts).tolist() == other.counts.tolist()
            assert (h.codes.tolist(), h.amax.tolist(), h.place, h.rope) == (
                other.codes.tolist(),
                other.amax.tolist(),
                other.place,
                other.rope,
            )
    assert (second.tokens, second.model, second.made_by) == (128, "tiny", {"torch": "2.13"})
    for a, b in zip(one["parts"], two["parts"], strict=True):
        assert a["in_use"]["sqnr_db"] == pytest.approx(b["in_use"]["sqnr_db"])
        assert 2 * a["elements"] == b["elements"]
    assert list(first.layers) == [layer(2), layer(10)], "by number, not by letter"


def test_files_that_do_not_go_together(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = read_stats(kv_file)
    other = tmp_path / "other.safetensors"
    write_stats(other, Stats({layer(2): stats.layers[layer(2)]}, "tiny", 1, {}))
    assert "do not have the same layers and parts" in refused(["kv", str(kv_file), str(other)], capsys)
    write_stats(other, Stats(stats.layers, "large", 1, {}))
    assert "is of model 'tiny' and" in refused(["kv", str(kv_file), str(other)], capsys)


def test_numbers_of_layers() -> None:
    names = ("model.layers.12.self_attn", "h.3", "layer 7", "7", "attention", "conv2d.x", "a_4_b")
    assert [number_of(name) for name in names] == [12, 3, 7, 7, None, None, 4]
    assert NOTHING.of("layer 1") == {}


#: a file by hand, as docs/kv.md has it: 3 elements of 1, 2 of 448, one NaN; 2 heads
SAID = {"format": "bfloat16", "nan": 1, "inf": 0, "place": "cache", "rope": "after"}


def by_hand(path: Path, tensors: Mapping[str, Any] | None = None, said: Any = SAID, **about: Any) -> Path:
    held = {
        "a.k.codes": np.array([0x3F80, 0x43E0], np.int16), "a.k.counts": np.array([3, 2], np.int64),
        "a.k.amax": np.array([1, 448], F32), **(tensors or {}),
    }  # fmt: skip
    said = {"kind": "kv", "version": 1, "model": "m", "tokens": 3, "layers": {"a": {"k": said}}, **about}
    path.write_bytes(save({n: t for n, t in held.items() if t is not None}, {"narrowgauge": json.dumps(said)}))
    return path


def test_a_file_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["kv", str(by_hand(tmp_path / "x.safetensors"))], capsys, code=1)
    (part,) = data["parts"]
    assert (part["elements"], part["nan"], part["amax"], part["in_use"]["counts"]["clipped"]) == (
        6,
        1,
        [1.0, 448.0],
        [0, 0],
    )
    assert found(data, "a", "k") == ["not finite", "unity is harmless here"]
    least = {"format": "float16"}
    tensors = {
        "a.k.codes": np.array([0x3C00], np.uint64),
        "a.k.counts": np.array([9], np.uint8),
        "a.k.amax": np.ones(1, F32),
    }
    data = as_json(["kv", str(by_hand(tmp_path / "y.safetensors", tensors, least, tokens=0))], capsys)
    assert data["parts"][0]["elements"] == 9
    data = as_json(["kv", str(tmp_path / "y.safetensors"), "--target", "gfx942"], capsys)
    assert data["parts"][0]["recipe"] == "vllm.kv_fp8_tensor_rocm_float16", "HIP divides float16 in float16"


I64 = np.int64
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"kind": "capture"}, "is a file of kind 'capture'; expected 'kv'"),
    ({"version": 2}, "has version 2; this program reads version 1"),
    ({"layers": {}}, "names no layer"),
    ({"layers": {"a": {"q": SAID}}}, "layer 'a': expected an object with parts of k, v, latent, rope"),
    ({"model": 3}, "need 'model' (a text)"),
    ({"tokens": -1}, "need 'model' (a text), 'tokens' (a number)"),
    ({"made_by": {"x": 1}}, "'made_by' (names to texts)"),
    ({"said": {}}, "expected an object with 'format'"),
    ({"said": SAID | {"format": "float64"}}, "elements of 'float64'; expected bfloat16, float16, float32"),
    ({"said": SAID | {"nan": 1.5}}, "'nan' and 'inf' are numbers of elements"),
    ({"said": SAID | {"place": "disk"}}, "place 'disk'; expected cache, projection, norm"),
    ({"said": SAID | {"rope": "half"}}, "rope 'half'; expected after, before, none"),
    ({"tensors": {"a.k.counts": None}}, "no tensor 'a.k.counts'"),
    ({"tensors": {"b.k.codes": np.zeros(1, I64)}}, "tensor 'b.k.codes' belongs to no layer and part"),
    ({"tensors": {"a.k.codes": np.array([1.0, 2.0], F32)}}, "tensor 'a.k.codes' is float32; expected integers"),
    ({"tensors": {"a.k.counts": np.array([2**63, 1], np.uint64)}}, "numbers of 2^63 and more"),
    ({"tensors": {"a.k.counts": np.array([3], I64)}}, "codes [2] and counts [1]; expected one list each"),
    ({"tensors": {"a.k.codes": np.array([0x43E0, 0x3F80], I64)}}, "not in ascending order, each once"),
    ({"tensors": {"a.k.codes": np.array([0x43E0, 0x43E0], I64)}}, "not in ascending order, each once"),
    (
        {"tensors": {"a.k.codes": np.array([0x3F80, 0x7F80], I64)}},
        "codes from 16256 to 32640; finite magnitudes of bfloat16",
    ),
    ({"tensors": {"a.k.codes": np.array([-1, 0x43E0], I64)}}, "codes from -1"),
    ({"tensors": {"a.k.counts": np.array([0, 2], I64)}}, "a count below 1"),
    ({"tensors": {"a.k.counts": np.array([2**53, 2], I64)}}, "more than 2^53 elements"),
    ({"tensors": {"a.k.amax": np.array([1, 448], np.float64)}}, "amax is float64; expected float32"),
    ({"tensors": {"a.k.amax": np.array([[1, 448]], F32)}}, "amax has shape [1, 2]; expected [heads]"),
    ({"tensors": {"a.k.amax": np.array([1, np.inf], F32)}}, "amax that is negative, infinite or NaN"),
    ({"tensors": {"a.k.amax": np.array([1, 447], F32)}}, "the largest amax is 447, which is not in the last bin"),
    (
        {"tensors": {"a.k.amax": np.array([1, 450], F32)}, "said": SAID | {"format": "float32"}},
        "the largest amax is 450",
    ),
]


@pytest.mark.parametrize(("change", "reason"), BROKEN, ids=[str(n) for n in range(len(BROKEN))])
def test_files_that_are_wrong(
    change: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = by_hand(tmp_path / "x.safetensors", **change)
    assert reason in refused(["kv", str(path)], capsys)


def test_files_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.safetensors"
    assert "cannot read" in refused(["kv", str(path)], capsys)
    path.write_bytes(b"12345678abc")
    assert "is not a whole safetensors file" in refused(["kv", str(path)], capsys)
    path.write_bytes(save({"x": np.zeros(1, F32)}))
    assert "was not written by narrowgauge" in refused(["kv", str(path)], capsys)
