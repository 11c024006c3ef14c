"""The scales that somebody gives: every spelling, where they come from, and what an engine makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden.safetensors_file import write
from narrowgauge.suites.kv_scales import read_scales
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.meta.kv_stats_sets import F32, SIZES, checkpoint, found, layer

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


@pytest.mark.parametrize(
    ("k", "v"),
    [
        (".k_scale", ".v_scale"),
        (".k_proj.k_scale", ".v_proj.v_scale"),
        (".k_proj.output_scale", ".v_proj.output_scale"),
        (".qkv_proj.k_scale", ".qkv_proj.v_scale"),
        (".k_cache.scale", ".v_cache.scale"),
        (".attn.k_scale", ".attn.v_scale"),
    ],
)
def test_every_spelling_of_a_pair(k: str, v: str, tmp_path: Path) -> None:
    given = {f"{layer(n)}{end}": value for n in SIZES for end, value in ((k, 0.5 + n), (v, 0.25 + n))}
    scales = read_scales(str(checkpoint(tmp_path / "c", given)))
    assert scales.of(layer(10)) == {"k": 10.5, "v": 10.25}
    assert scales.of(f"language_model.{layer(2)}") == {"k": 2.5, "v": 2.25}, "by its number"
    assert scales.of("layers.11.self_attn") == {}


def test_one_scale_for_both_and_other_dtypes(tmp_path: Path) -> None:
    for name in (".kv_scale", ".kv_cache_scaling_factor"):
        assert read_scales(str(checkpoint(tmp_path / name, {f"{layer(2)}{name}": 0.5}))).of(layer(2)) == {"kv": 0.5}
    folder = tmp_path / "half"
    folder.mkdir()
    half = {
        f"{layer(2)}.k_scale": Coded("bfloat16", np.array([0x3F00], np.uint16)),
        f"{layer(2)}.q_scale": Coded("float16", np.array([0x3C00], np.uint16)),
    }
    write(folder / "model.safetensors", half, {}, typed=True)
    assert read_scales(str(folder / "model.safetensors")).of(layer(2)) == {"k": 0.5, "q": 1.0}


def pairs(*numbers: float) -> dict[str, float]:
    """Scales of K and V of layer 2, then of layer 10."""
    names = (f"{n}.{side}_scale" for n in SIZES for side in "kv")
    return dict(zip(names, numbers, strict=True))


def config(method: str, **more: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method, **more}}


FP8, COMPRESSED = config("fp8"), config("compressed-tensors")
ENDS: tuple[Any, Any] = (None, None)
ONE = pairs(1, 1, 1, 1)
#: scales, configuration, options -> findings that are of no part, and scales in use of layer 10
PROVENANCE: dict[str, tuple[dict[str, float], Any, str, str, tuple[Any, Any]]] = {
    "as calibrated": (pairs(0.1, 0.2, 3, 4e-6), config("fp8", kv_cache_scheme={"num_bits": 8}), "", "", (3, 4e-6)),
    "and not said": (pairs(0.1, 0.2, 3, 4e-6), FP8, "", "", (3, 4e-6)),
    "zero": ({"10.k_scale": 0, "10.v_scale": 0}, FP8, "--engine sglang", "zero, missing here", (1, 1)),
    "zero in vLLM": ({"10.k_scale": 0, "10.v_scale": 0}, FP8, "", "zero, missing here, the engine ends", ENDS),
    "negative": ({"10.k_scale": -2, "10.v_scale": -1}, FP8, "", "negative, missing here", (1, 1)),
    "NaN": ({"10.k_scale": np.nan, "10.v_scale": 1}, FP8, "", "not a number, missing here, the engine ends", ENDS),
    "K alone": ({"10.k_scale": 0.5}, FP8, "", "one of the pair, missing here", (0.5, 0.5)),
    "V alone": ({"10.v_scale": 0.5}, FP8, "", "one of the pair, missing here, the engine ends", ENDS),
    "V alone, no guard": ({"10.v_scale": 0.5, "2.v_scale": 2}, COMPRESSED, "", "one of the pair", (1, 0.5)),
    "NaN, no guard": (pairs(1, 1, 2, np.nan), COMPRESSED, "", "not a number", (2, np.nan)),
    "all alike": (ONE, FP8, "", "all alike", (1, 1)),
    "K as V": (pairs(2, 2, 10, 10), FP8, "", "K and V alike", (10, 10)),
    "not loaded": (pairs(0.5, 0.1, 0.5, 0.25), {"model_type": "llama"}, "", "not loaded", (1, 1)),
    "promised": ({}, config("fp8", kv_cache_scheme={"num_bits": 8}), "", "promised", (1, 1)),
    "not declared": (
        pairs(0.5, 0.1, 0.5, 0.25), config("compressed-tensors", kv_cache_scheme=None), "", "not declared", (0.5, 0.25),
    ),
    "e5m2 of an fp8 checkpoint": (ONE, FP8, "--format e5m2", "the engine ends, all alike", ENDS),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVENANCE)
def test_provenance(name: str, kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scales, configuration, options, kinds, used = PROVENANCE[name]
    given = {f"model.layers.{key.replace('.', '.self_attn.')}": value for key, value in scales.items()}
    folder = checkpoint(tmp_path / "c", given, configuration)
    code = ends(["kv", str(kv_file), "--scales", str(folder), *options.split(), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert {f["kind"] for f in data["findings"]} == set(filter(None, kinds.split(", ")))
    in_use = tuple(p["scale"] and float(p["scale"]) for p in data["parts"] if p["layer"] == layer(10))
    assert in_use == pytest.approx(used, nan_ok=True)
    every = [*data["findings"], *(f for p in data["parts"] for f in p["findings"])]
    assert code == (1 if "wrong" in {f["level"] for f in every} else 0)
    if name == "all alike":
        assert "ModelOpt" in data["findings"][0]["said"]


def test_a_scale_for_each_head(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compressed-tensors has them; what can be said is whether a head's own scale clips it."""
    heads = {
        f"{layer(n)}.{s}_scale": np.full(4, size, F32)
        for n, pair in SIZES.items()
        for s, size in zip("kv", pair, strict=True)
    }
    folder = checkpoint(tmp_path / "c", heads, COMPRESSED)
    data = as_json(["kv", str(kv_file), "--scales", str(folder)], capsys)
    assert [found(data, layer(n), s) for n in SIZES for s in "kv"] == [["not judged"]] * 4
    assert data["parts"][0]["in_use"] is None
    checkpoint(folder, {**heads, f"{layer(10)}.k_scale": np.array([400, 400, 2, 400], F32)}, COMPRESSED)
    data = as_json(["kv", str(kv_file), "--scales", str(folder)], capsys, code=1)
    assert found(data, layer(10), "k") == ["clips"]
    assert "one a head" in said(["kv", str(kv_file), "--scales", str(folder)], capsys, code=1)


def test_sglangs_file(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scales.json"
    ranks = {"0": {"2": 0.125, "10": 3.0}}
    content: dict[str, Any] = {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": ranks}}
    path.write_text(json.dumps(content))
    data = as_json(["kv", str(kv_file), "--scales", str(path), "--engine", "sglang"], capsys, code=1)
    assert [p["scale"] for p in data["parts"]] == [0.125, 0.125, 3.0, 3.0]
    assert {p["recipe"] for p in data["parts"]} == {"sglang.kv_fp8_number"}, (
        "a Python number, whose reciprocal multiplies"
    )
    assert data["findings"] == [], "one scale for both is no half of a pair"
    assert found(data, layer(10), "v") == ["flushes", "the scale is off"]
    assert "is SGLang's; give --engine sglang" in refused(["kv", str(kv_file), "--scales", str(path)], capsys)
    for change, reason in (
        ({"dtype": "fp8"}, "SGLang takes 'float8_e4m3fn' alone"),
        ({"scaling_factor": {"0": {"2": 1}, "1": {"2": 2}}}, "ranks have different scales"),
        ({"scaling_factor": {"0": {"2": "x"}}}, "'x' is no number"),
        ({"scaling_factor": []}, "expected kv_cache.scaling_factor: RANK -> LAYER -> NUMBER"),
    ):
        path.write_text(json.dumps(content | {"kv_cache": content["kv_cache"] | change}))
        assert reason in refused(["kv", str(kv_file), "--scales", str(path), "--engine", "sglang"], capsys)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("q=1", "'q'; expected k=NUMBER and v=NUMBER"),
        ("k=1,k=2", "'k'; expected k=NUMBER and v=NUMBER, each once"),
        ("k=one", "'one' is no number"),
        ("kv=1,k=1", "kv stands for both"),
        ("nothing", "no folder; expected a checkpoint's"),
        ("no.json", "no file no.json"),
        ("no.safetensors", "cannot read no.safetensors"),
    ],
)
def test_scales_that_are_none(text: str, reason: str, kv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in refused(["kv", str(kv_file), "--scales", text], capsys)


def test_more_scales_that_are_none(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["kv", str(kv_file), "--scales"]
    (tmp_path / "e").mkdir()
    assert "holds no weights: no file that ends in .safetensors" in refused([*start, str(tmp_path / "e")], capsys)
    other = checkpoint(
        tmp_path / "c", {"model.layers.5.self_attn.k_scale": 1.0, "model.layers.5.self_attn.v_scale": 1.0}
    )
    assert "has scales for model.layers.5.self_attn, .., and no layer of them is one of" in refused(
        [*start, str(other)], capsys
    )
    twice = checkpoint(tmp_path / "d", {f"{layer(2)}.k_scale": 1.0, f"{layer(2)}.k_proj.k_scale": 1.0})
    assert "has two tensors for the scale of k" in refused([*start, str(twice)], capsys)
    empty = checkpoint(tmp_path / "f", {f"{layer(2)}.k_scale": np.zeros(0, F32)})
    assert "holds no number" in refused([*start, str(empty)], capsys)
    for content, reason in (
        ("[]", "expected a JSON object, and this is a list"),
        ("{", "byte 1: this is no JSON"),
        ("{}", "names no layer"),
        ('{"a": {"q": 1}}', "layer 'a'"),
    ):
        (tmp_path / "s.json").write_text(content)
        assert reason in refused([*start, str(tmp_path / "s.json")], capsys)
