"""narrowgauge kv on files: what is given, what is in use, what is found, and every way in which a file can be wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.kv.findings import KINDS, THRESHOLDS
from narrowgauge.reference.kv.histogram import histogram_of
from narrowgauge.reference.noise import noise
from narrowgauge.suites.kv_scales import NOTHING, read_scales
from narrowgauge.suites.kv_stats import Stats, in_order, number_of, read_stats, write_stats
from narrowgauge.suites.kv_use import use_of
from narrowgauge.suites.meta.command_sets import as_json, ends, refused, said
from narrowgauge.suites.meta.marks import needs_matplotlib

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

#: largest magnitude of |K| and |V| of two layers, over that of the noise (3.5)
SIZES = {2: (1.0, 1.0), 10: (400.0, 0.0005)}


def layer(n: int) -> str:
    return f"model.layers.{n}.self_attn"


def tensor(size: float, seed: int) -> Coded:
    x = noise(64 * 64, seed).reshape(64, 64).astype(np.float32) * np.float32(size)
    return Coded("bfloat16", (x.view(np.uint32) >> 16).astype(np.uint16))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kv") / "kv.safetensors"
    layers = {
        layer(n): {"k": histogram_of(tensor(k, n), 4, rope="after"), "v": histogram_of(tensor(v, n + 1), 4)}
        for n, (k, v) in SIZES.items()
    }
    write_stats(path, Stats(in_order(layers), "tiny", 64, {"torch": "2.13"}))
    return path


def found(data: Any, name: str = "", part: str = "") -> list[str]:
    """Kinds of findings, of a part or of what is no part."""
    if not part:
        return [f["kind"] for f in data["findings"] if f["layer"] == name]
    return [f["kind"] for p in data["parts"] if (p["layer"], p["part"]) == (name, part) for f in p["findings"]]


# --- what is found ---------------------------------------------------------------------------------------------------


def test_which_layers_need_scales(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No scale is given: all run at 1. One layer does not suffer, the other clips K and flushes V."""
    data = as_json(["kv", str(file)], capsys, code=1)
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
    text = said(["kv", str(file)], capsys, code=1)
    assert text.startswith(
        "verdict 1 of 2 layers: clips (1), needs a scale (1), flushes (1) cache vllm --kv-cache-dtype fp8_e4m3"
    )
    assert "seen tiny, 64 tokens; 2 seen at the cache after RoPE, 2 seen at the cache" in text
    assert text.index(layer(10)) < text.index(layer(2)), "the worst first"
    for threshold in THRESHOLDS.values():
        assert threshold.said in text


def test_good_scales_are_no_finding(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scales that are said to be good, given, leave nothing to say."""
    data = as_json(["kv", str(file)], capsys, code=1)
    good: dict[str, dict[str, float]] = {}
    for part in data["parts"]:
        good.setdefault(part["layer"], {})[part["part"]] = part["good_scale"]
    path = tmp_path / "scales.json"
    path.write_text(json.dumps(good))
    data = as_json(["kv", str(file), "--scales", str(path)], capsys)
    assert [f for p in data["parts"] for f in p["findings"]] == data["findings"] == []
    assert "verdict nothing is wrong with the scales of 2 layers" in said(
        ["kv", str(file), "--scales", str(path)], capsys
    )
    # on a platform of FNUZ the engine doubles what is given, so the same K has the same range: 240 for 448 / 2
    fnuz = as_json(["kv", str(file), "--scales", str(path), "--target", "gfx942"], capsys)
    for mine, other in zip(data["parts"], fnuz["parts"], strict=True):
        assert other["scale"] == 2 * mine["scale"]
        assert other["in_use"]["counts"]["clipped"] == [0, 0]
    assert fnuz["format"] == "float8_e4m3fnuz"


def test_the_top_and_the_writers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["kv", str(file), "--top", "1"], capsys, code=1)
    assert "… and 1 layers more" in text
    assert layer(2) not in text
    for option, recipe in (("--writer", "vllm.kv_fp8_tensor_triton"), ("--engine", "sglang.kv_fp8")):
        word = recipe.split(".")[0] if option == "--engine" else "triton"
        data = as_json(["kv", str(file), option, word], capsys, code=1)
        assert data["recipe"] == recipe


def test_a_format_and_where_it_is_stored(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = as_json(["kv", str(file), "--format", "e4m3fn", "--target", "gfx942"], capsys, code=1)
    assert data["format"] == "float8_e4m3fnuz"
    assert "fp8_e4m3 stores float8_e4m3fnuz on gfx942, not float8_e4m3fn" in data["says"]
    data = as_json(["kv", str(file), "--format", "float8_e5m2"], capsys, code=1)
    e5m2 = [found(data, layer(n), part) for n in SIZES for part in "kv"]
    assert e5m2 == [["unity is harmless here"]] * 3 + [["flushes"]]
    data = as_json(["kv", str(file), "--format", "int8", "--scales", "k=4,v=0.03"], capsys, code=1)
    assert (data["engine"], data["recipe"], data["parts"][0]["scale"]) == ("", "vllm.int8_static_tensor", 4.0)


# --- scales ----------------------------------------------------------------------------------------------------------

F32 = np.float32


def checkpoint(folder: Path, scales: Mapping[str, Any], config: Any = None) -> Path:
    """A folder with scales alone, float32 of one number unless arrays are given."""
    folder.mkdir(exist_ok=True)
    tensors = {name: value if isinstance(value, np.ndarray) else np.array(value, F32) for name, value in scales.items()}
    (folder / "model.safetensors").write_bytes(save({"model.embed.weight": np.zeros((2, 2), F32), **tensors}))
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


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
    "as calibrated": (pairs(0.1, 0.2, 3, 4e-6), FP8, "", "", (3, 4e-6)),
    "zero": ({"10.k_scale": 0, "10.v_scale": 0}, FP8, "--engine sglang", "zero, missing here", (1, 1)),
    "zero in vLLM": ({"10.k_scale": 0, "10.v_scale": 0}, FP8, "", "zero, missing here, the engine ends", ENDS),
    "negative": ({"10.k_scale": -2, "10.v_scale": -1}, FP8, "", "negative, missing here", (1, 1)),
    "NaN": ({"10.k_scale": np.nan, "10.v_scale": 1}, FP8, "", "not a number, missing here, the engine ends", ENDS),
    "K alone": ({"10.k_scale": 0.5}, FP8, "", "one of the pair, missing here", (0.5, 0.5)),
    "V alone": ({"10.v_scale": 0.5}, FP8, "", "one of the pair, missing here, the engine ends", ENDS),
    "V alone, no guard": ({"10.v_scale": 0.5, "2.v_scale": 2}, COMPRESSED, "", "one of the pair", (1, 0.5)),
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
def test_provenance(name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scales, configuration, options, kinds, used = PROVENANCE[name]
    given = {f"model.layers.{key.replace('.', '.self_attn.')}": value for key, value in scales.items()}
    folder = checkpoint(tmp_path / "c", given, configuration)
    code = ends(["kv", str(file), "--scales", str(folder), *options.split(), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert {f["kind"] for f in data["findings"]} == set(filter(None, kinds.split(", ")))
    assert tuple(p["scale"] for p in data["parts"] if p["layer"] == layer(10)) == pytest.approx(used)
    every = [*data["findings"], *(f for p in data["parts"] for f in p["findings"])]
    assert code == (1 if "wrong" in {f["level"] for f in every} else 0)
    if name == "all alike":
        assert "ModelOpt" in data["findings"][0]["said"]


def test_a_scale_for_each_head(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """compressed-tensors has them; what can be said is whether a head's own scale clips it."""
    heads = {
        f"{layer(n)}.{s}_scale": np.full(4, size, F32)
        for n, pair in SIZES.items()
        for s, size in zip("kv", pair, strict=True)
    }
    folder = checkpoint(tmp_path / "c", heads, COMPRESSED)
    data = as_json(["kv", str(file), "--scales", str(folder)], capsys)
    assert [found(data, layer(n), s) for n in SIZES for s in "kv"] == [["not judged"]] * 4
    assert data["parts"][0]["in_use"] is None
    checkpoint(folder, {**heads, f"{layer(10)}.k_scale": np.array([400, 400, 2, 400], F32)}, COMPRESSED)
    data = as_json(["kv", str(file), "--scales", str(folder)], capsys, code=1)
    assert found(data, layer(10), "k") == ["clips"]
    assert "one a head" in said(["kv", str(file), "--scales", str(folder)], capsys, code=1)


def test_sglangs_file(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scales.json"
    ranks = {"0": {"2": 0.125, "10": 3.0}}
    content: dict[str, Any] = {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": ranks}}
    path.write_text(json.dumps(content))
    data = as_json(["kv", str(file), "--scales", str(path), "--engine", "sglang"], capsys, code=1)
    assert [p["scale"] for p in data["parts"]] == [0.125, 0.125, 3.0, 3.0]
    assert found(data, layer(10), "v") == ["flushes", "the scale is off"]
    assert "is SGLang's; give --engine sglang" in refused(["kv", str(file), "--scales", str(path)], capsys)
    for change, reason in (
        ({"dtype": "fp8"}, "SGLang takes 'float8_e4m3fn' alone"),
        ({"scaling_factor": {"0": {"2": 1}, "1": {"2": 2}}}, "ranks have different scales"),
        ({"scaling_factor": {"0": {"2": "x"}}}, "'x' is no number"),
        ({"scaling_factor": []}, "expected kv_cache.scaling_factor: RANK -> LAYER -> NUMBER"),
    ):
        path.write_text(json.dumps(content | {"kv_cache": content["kv_cache"] | change}))
        assert reason in refused(["kv", str(file), "--scales", str(path), "--engine", "sglang"], capsys)


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
def test_scales_that_are_none(text: str, reason: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reason in refused(["kv", str(file), "--scales", text], capsys)


def test_more_scales_that_are_none(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["kv", str(file), "--scales"]
    (tmp_path / "e").mkdir()
    assert "holds no safetensors file" in refused([*start, str(tmp_path / "e")], capsys)
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
        ("[]", "holds no JSON object"),
        ("{", "as JSON"),
        ("{}", "names no layer"),
        ('{"a": {"q": 1}}', "layer 'a'"),
    ):
        (tmp_path / "s.json").write_text(content)
        assert reason in refused([*start, str(tmp_path / "s.json")], capsys)


def test_what_is_asked_for_wrongly(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["kv", str(file)]
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


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of the same make one with twice the counts, and the same decibels."""
    out = tmp_path / "sum.safetensors"
    one, two = (
        as_json(["kv", *[str(file)] * n, *(["--capture", str(out)] if n == 2 else [])], capsys, code=1) for n in (1, 2)
    )
    first, second = read_stats(file), read_stats(out)
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


def test_files_that_do_not_go_together(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stats = read_stats(file)
    other = tmp_path / "other.safetensors"
    write_stats(other, Stats({layer(2): stats.layers[layer(2)]}, "tiny", 1, {}))
    assert "do not have the same layers and parts" in refused(["kv", str(file), str(other)], capsys)
    write_stats(other, Stats(stats.layers, "large", 1, {}))
    assert "is of model 'tiny' and" in refused(["kv", str(file), str(other)], capsys)


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


# --- the picture, and the words of the manual ------------------------------------------------------------------------


@needs_matplotlib
def test_the_picture(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kv.png"
    assert said(["kv", str(file), "--picture", str(path)], capsys, code=1).endswith(f"picture written to {path}")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1200,)


def test_the_manual_has_every_finding() -> None:
    """docs/kv.md has the table of findings, their levels and meanings, and the thresholds as they are."""
    text = (Path(__file__).parents[2] / "docs" / "kv.md").read_text()
    for kind, (level, meaning) in KINDS.items():
        assert f"| {kind} | {level} | {meaning} |" in text
    for threshold in THRESHOLDS.values():
        assert threshold.said in " ".join(text.split())
