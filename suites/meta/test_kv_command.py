"""narrowgauge kv on files: what is found of each layer, and how it is said."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.kv.findings import KINDS, THRESHOLDS
from narrowgauge.suites.kv_use import use_of
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.kv_stats_sets import SIZES, found, layer, tensor
from narrowgauge.suites.meta.marks import needs_matplotlib

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]


def test_which_layers_need_scales(kv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No scale is given: all run at 1. One layer does not suffer, the other clips K and flushes V."""
    data = as_json(["kv", str(kv_file)], capsys, code=1)
    assert found(data, layer(2), "k") == found(data, layer(2), "v") == ["unity is harmless here"]
    assert found(data, layer(10), "k") == ["clips", "needs a scale"]
    assert found(data, layer(10), "v") == ["flushes", "needs a scale"]
    assert {p["scale"] for p in data["parts"]} == {1.0}
    assert [p["given"] for p in data["parts"]] == [None] * 4
    k = next(p for p in data["parts"] if (p["layer"], p["part"]) == (layer(10), "k"))
    raw = np.abs((tensor(400.0, 10).codes.astype(np.uint32) << 16).view(np.float32))
    assert k["in_use"]["counts"]["clipped"] == [int((raw > 464).sum())] * 2
    assert k["good_scale"] == float(raw.max() / np.float32(448))
    assert k["amax"] == raw.reshape(64, 4, 16).max(axis=(0, 2)).tolist()
    text = said(["kv", str(kv_file)], capsys, code=1)
    assert text.startswith(
        "verdict 1 of 2 layers: clips (1), needs a scale (1), flushes (1) cache vllm --kv-cache-dtype fp8_e4m3"
    )
    assert "seen tiny, 64 tokens; 2 seen at the cache after RoPE, 2 seen at the cache" in text
    assert text.index(layer(10)) < text.index(layer(2)), "the worst first"
    for threshold in THRESHOLDS.values():
        assert threshold.said in text


def test_good_scales_are_no_finding(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scales that are said to be good, given, leave nothing to say."""
    data = as_json(["kv", str(kv_file)], capsys, code=1)
    good: dict[str, dict[str, float]] = {}
    for part in data["parts"]:
        good.setdefault(part["layer"], {})[part["part"]] = part["good_scale"]
    path = tmp_path / "scales.json"
    path.write_text(json.dumps(good))
    data = as_json(["kv", str(kv_file), "--scales", str(path)], capsys)
    assert [f for p in data["parts"] for f in p["findings"]] == data["findings"] == []
    assert "verdict nothing is wrong with the scales of 2 layers" in said(
        ["kv", str(kv_file), "--scales", str(path)], capsys
    )
    # on a platform of FNUZ the engine doubles what is given, so the same K has the same range: 240 for 448 / 2
    fnuz = as_json(["kv", str(kv_file), "--scales", str(path), "--target", "gfx942"], capsys)
    for mine, other in zip(data["parts"], fnuz["parts"], strict=True):
        assert other["scale"] == 2 * mine["scale"]
        assert other["in_use"]["counts"]["clipped"] == [0, 0]
    assert fnuz["format"] == "float8_e4m3fnuz"


def test_the_top_and_the_writers(kv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["kv", str(kv_file), "--top", "1"], capsys, code=1)
    assert "… and 1 layers more" in text
    assert layer(2) not in text
    for option, recipe in (("--writer", "vllm.kv_fp8_tensor_triton"), ("--engine", "sglang.kv_fp8")):
        word = recipe.split(".")[0] if option == "--engine" else "triton"
        data = as_json(["kv", str(kv_file), option, word], capsys, code=1)
        assert data["recipe"] == recipe


def test_a_format_and_where_it_is_stored(kv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["kv", str(kv_file), "--format", "e4m3fn", "--target", "gfx942"], capsys, code=1)
    assert data["format"] == "float8_e4m3fnuz"
    assert "fp8_e4m3 stores float8_e4m3fnuz on gfx942, not float8_e4m3fn" in data["says"]
    data = as_json(["kv", str(kv_file), "--format", "float8_e5m2"], capsys, code=1)
    e5m2 = [found(data, layer(n), part) for n in SIZES for part in "kv"]
    assert e5m2 == [["unity is harmless here"]] * 3 + [["flushes"]]
    data = as_json(["kv", str(kv_file), "--format", "int8", "--scales", "k=4,v=0.03"], capsys, code=1)
    assert (data["engine"], data["recipe"], data["parts"][0]["scale"]) == ("", "vllm.int8_static_tensor", 4.0)


def test_what_is_asked_for_wrongly(kv_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["kv", str(kv_file)]
    for options, reason in (
        (["--kv-cache-dtype", "fp8", "--format", "int8"], "expected one of them"),
        (["--kv-cache-dtype", "fp8_e4m4"], "did you mean fp8_e4m3"),
        (["--kv-cache-dtype", "bfloat16"], "is given no scale of K and V"),
        (["--format", "e5m2", "--target", "gfx942"], "unsupported data type of the cache"),
        (["--format", "float4_e2m1fn"], "expected float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, int8"),
        (["--target", "gfx943"], "unknown target 'gfx943'"),
        (["--top", "0"], "--top 0; expected 1 or more"),
        (["--batches", "x"], "--batches is for a module"),
        (["--picture", "x.pdf"], "ends in .png or .svg"),
        (["m.py:build"], "expected one module, or files"),
    ):
        assert reason in refused([*start, *options], capsys), options
    assert "give a module or files of histograms" in refused(["kv"], capsys)
    with pytest.raises(BadInput, match="unknown engine 'vlm'"):
        use_of("vlm", "", "", "", "native")


@needs_matplotlib
def test_the_picture(kv_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kv.png"
    assert said(["kv", str(kv_file), "--picture", str(path)], capsys, code=1).endswith(f"picture written to {path}")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1200,)


def test_the_manual_has_every_finding() -> None:
    """docs/kv.md has the table of findings, their levels and meanings, and the thresholds as they are."""
    page = Path(__file__).resolve().parents[2] / "docs" / "kv.md"
    if not page.exists():
        pytest.skip("the package is installed without docs/")
    text = page.read_text()
    for kind, (level, meaning) in KINDS.items():
        assert f"| {kind} | {level} | {meaning} |" in text
    for threshold in THRESHOLDS.values():
        assert threshold.said in " ".join(text.split())
