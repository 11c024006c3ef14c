"""narrowgauge sqnr: a module in its process, captured tensors, and what a layer loses by the second derivation."""

from __future__ import annotations

import importlib.util
import math
import struct
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput, Infrastructure
from narrowgauge.devices import capturing
from narrowgauge.golden.safetensors_file import write
from narrowgauge.reference.layers import Pair, To, measure_layer
from narrowgauge.reference.noise import noise
from narrowgauge.reference.recipes import RECIPES
from narrowgauge.suites.layers import read_capture
from narrowgauge.suites.meta.command_sets import as_json, refused, said
from narrowgauge.suites.meta.marks import needs_matplotlib, needs_torch
from narrowgauge.suites.meta.second_derivation import decode
from narrowgauge.suites.meta.second_measures import real
from narrowgauge.suites.meta.second_recipes import SECOND

pytestmark = [pytest.mark.meta, pytest.mark.usefixtures("plain_terminal")]

E4 = "float8_e4m3fn"
TOKEN, TENSOR, MX = "vllm.fp8_per_token_dynamic", "vllm.fp8_per_tensor_dynamic", "ocp.mxfp4"


def coded(x: npt.NDArray[np.float32]) -> Coded:
    return Coded("float32", np.ascontiguousarray(x, np.float32).view(np.uint32))


def matrix(rows: int, columns: int, seed: int) -> npt.NDArray[np.float32]:
    return noise(rows * columns, seed).reshape(rows, columns).astype(np.float32)


def to(name: str) -> To:
    return To(RECIPES[name], RECIPES[name].destinations[0].format, {})


# --- one layer -------------------------------------------------------------------------------------------------------


def back(x: npt.NDArray[np.float32]) -> list[list[Fraction]]:
    """Rows by vLLM's per-token recipe and back, by the second derivation."""
    found = []
    for row in coded(x).data:
        answer = SECOND[TOKEN]([decode(int(c), "float32") for c in row], "float32", E4, {})
        scale = real(decode(answer.scale, "float32"))
        found.append([real(decode(code, E4)) * scale for code in answer.codes])
    return found


def exact(x: npt.NDArray[np.float32]) -> list[list[Fraction]]:
    return [[Fraction(float(v)) for v in row] for row in x]


def decibels(want: list[list[Fraction]], got: list[list[Fraction]]) -> float:
    pairs = [(w, g) for a, b in zip(want, got, strict=True) for w, g in zip(a, b, strict=True)]
    return 10 * math.log10(sum(w * w for w, _ in pairs) / sum((w - g) ** 2 for w, g in pairs))


def product(x: list[list[Fraction]], w: list[list[Fraction]]) -> list[list[Fraction]]:
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in w] for row in x]


def test_a_layer_by_the_second_derivation() -> None:
    """Energies are sums of squares in float64 of errors that are a part in 2^5 of what they are errors of: no term is
    off by 2^-45 of itself, and no ratio by 1e-9 dB."""
    x, w = matrix(4, 24, 1), matrix(3, 24, 2)
    one = measure_layer("layer", coded(x), coded(w), Pair(to(TOKEN), to(TOKEN)))
    xs, ws, xb, wb = exact(x), exact(w), back(x), back(w)
    assert one.input is not None
    assert one.weight is not None
    assert one.output is not None
    assert one.input.sqnr == pytest.approx(decibels(xs, xb), abs=1e-9)
    assert one.weight.sqnr == pytest.approx(decibels(ws, wb), abs=1e-9)
    assert one.output.sqnr == pytest.approx(decibels(product(xs, ws), product(xb, wb)), abs=1e-9)
    alone = measure_layer("layer", coded(x), coded(w), Pair(None, to(TOKEN)))
    assert alone.input is None
    assert alone.output is not None
    assert alone.output.sqnr == pytest.approx(decibels(product(xs, ws), product(xs, wb)), abs=1e-9)


def test_what_a_layer_loses_comes_first() -> None:
    """One NaN in a block of MX makes 31 numbers NaN, and the outputs of its row."""
    x = matrix(4, 32, 1)
    good = measure_layer("good", coded(x), coded(x), Pair(to(MX), to(MX)))
    x[2, 5] = np.nan
    lost = measure_layer("lost", coded(x), coded(matrix(4, 32, 1)), Pair(to(MX), to(MX)))
    assert lost.input is not None
    assert lost.output is not None
    assert lost.input.counts["lost"] == 31
    assert lost.output.counts["not_finite"] == 4, "of a NaN input every output is NaN before, too"
    odd = measure_layer("odd", coded(matrix(4, 33, 1)), coded(matrix(4, 33, 1)), Pair(to(MX), to(MX)))
    assert "33 columns has no whole number of blocks of 32" in odd.refused
    assert sorted([odd, good, lost], key=lambda one: one.worst_first) == [lost, good, odd]


# --- a module in its process -----------------------------------------------------------------------------------------

MODULE = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(8, 4, bias=False)
            self.tail = nn.ModuleDict({"last": nn.Linear(4, 2), "never": nn.Linear(4, 2)})

        def forward(self, x, twice=False):
            y = self.first(x)
            return self.tail["last"](y if not twice else y.bfloat16().float())

    def build():
        print("said by the module")
        model = Model()
        with torch.no_grad():
            model.first.weight.copy_(torch.arange(32.0).reshape(4, 8) - 16)
        x = torch.arange(2 * 5 * 8.0).reshape(2, 5, 8)
        return model, [x, (x + 100,), {"x": x + 200, "twice": True}]

    def without_batches():
        return nn.Linear(8, 4, dtype=torch.float64)

    def raises():
        model, batches = build()
        model.tail["last"] = None
        return model, batches
"""
#: a file without torch, which takes seconds to import
WRONG = """
    import os

    def no_module():
        return 3, []

    def dies():
        os._exit(7)

    def ends():
        raise SystemExit("enough")
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "model.py"
    path.write_text(textwrap.dedent(MODULE))
    return path


@pytest.fixture(scope="module")
def captured(module: Path) -> Path:
    out = module.parent / "captured.safetensors"
    told: list[tuple[int, int]] = []
    capturing.capture(module, "build", out, 6, None, lambda number, of: told.append((number, of)))
    assert told == [(0, 3), (1, 3), (2, 3)]
    return out


@needs_torch
def test_what_is_captured(captured: Path) -> None:
    """Six rows of 30: two of each batch, its first and its last. A layer that is not called is named."""
    capture = read_capture(captured)
    assert set(capture.layers) == {"first", "tail.last"}
    x, weight = (c.data.view(np.float32) for c in capture.layers["first"])
    assert x.tolist() == [[i + b for i in range(a, a + 8)] for b in (0, 100, 200) for a in (0, 72)]
    assert weight.tolist() == (np.arange(32.0).reshape(4, 8) - 16).tolist()
    y, _ = (c.data.view(np.float32) for c in capture.layers["tail.last"])
    assert y[0].tolist() == (weight @ x[0]).tolist()
    assert capture.about["rows"] == {"first": 30, "tail.last": 30}
    assert (capture.about["unused"], capture.about["batches"]) == (["tail.never"], 3)


@needs_torch
def test_the_command_on_a_module(module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """float64 becomes float32, batches come from a file, and a module that is one layer has a name."""
    batches, kept = tmp_path / "batches.safetensors", tmp_path / "kept.safetensors"
    x = np.arange(24.0).reshape(3, 8)
    write(
        batches, {"b": Coded("float64", x.view(np.uint64)), "a": Coded("float64", (-x).view(np.uint64))}, {}, typed=True
    )
    arguments = [
        "sqnr",
        f"{module}:without_batches",
        "--batches",
        str(batches),
        "--recipe",
        TOKEN,
        "--capture",
        str(kept),
    ]
    data = as_json(arguments, capsys)
    assert [one["layer"] for each in data["layers"] for one in each] == ["module"]
    (layer,) = read_capture(kept).layers.values()
    assert layer[0].data.view(np.float32).tolist() == [*(-x).tolist(), *x.tolist()]


@needs_torch
def test_what_a_module_does_wrong(module: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(textwrap.dedent(WRONG))

    def reason(function: str, file: Path = wrong) -> str:
        with pytest.raises(BadInput) as found:
            capturing.capture(file, function, tmp_path / "out", 6, None, lambda number, of: None)
        assert not (tmp_path / "out").exists()
        return str(found.value)

    assert "has no function 'buld'; expected one that returns a module" in reason("buld")
    assert "no_module() returned int; expected a torch.nn.Module" in reason("no_module")
    assert "'NoneType' object is not callable" in reason("raises", module)
    assert reason("ends") == f"{wrong}: SystemExit: enough"
    assert "the process that ran dies() ended with 7" in reason("dies")


def test_without_torch_a_file_is_enough(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Infrastructure, match="torch is not installed"):
        capturing.capture(module, "build", tmp_path / "out", 6, None, lambda number, of: None)
    path = layers_file(tmp_path)
    assert "layers 2, the worst first" in said(["sqnr", str(path), "--recipe", TOKEN], capsys)


# --- the command on a file -------------------------------------------------------------------------------------------


def layers_file(folder: Path) -> Path:
    """Two layers: of "b" one input is 4,000 times what it should be, which costs int8 its other elements."""
    path, loud = folder / "layers.safetensors", matrix(8, 64, 3)
    loud[:, 5] *= 4000
    tensors = {
        "a.input": coded(matrix(8, 64, 1)), "a.weight": coded(matrix(4, 64, 2)),
        "b.input": coded(loud.reshape(2, 4, 64)), "b.weight": coded(matrix(4, 64, 4)),
    }  # fmt: skip
    write(path, tensors, {"of": "somebody"}, typed=True)
    return path


def test_the_worst_layer_stands_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layers_file(tmp_path)
    arguments = ["sqnr", str(path), "--recipe", "vllm.int8_per_token_dynamic", "--recipe", TOKEN]
    data = as_json(arguments, capsys)
    assert [[one["layer"] for one in each] for each in data["layers"]] == [["b", "b"], ["a", "a"]]
    by_first, by_second = ([each[i]["output"]["sqnr_db"] for each in data["layers"]] for i in (0, 1))
    assert by_first == sorted(by_first)
    swapped = as_json(["sqnr", str(path), "--recipe", TOKEN, "--recipe", "vllm.int8_per_token_dynamic"], capsys)
    assert [each[0]["output"]["sqnr_db"] for each in swapped["layers"]] == sorted(by_second)
    weights_only = ["sqnr", str(path), "--input-recipe", "vllm.int8_per_token_dynamic", "--weight-recipe", TOKEN]
    (pair,) = {one["recipe"] for each in as_json(weights_only, capsys)["layers"] for one in each}
    assert pair == f"vllm.int8_per_token_dynamic × {TOKEN} ({E4})"
    b = data["layers"][0][0]
    assert b["input"]["counts"]["flushed"] > 300
    assert b["input"]["error_shares"]["flushed"] > 0.5


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layers_file(tmp_path)
    text = said(["sqnr", str(path), "--recipe", MX, "--recipe", "vllm.fp8_native_group", "--top", "1"], capsys)
    assert text.startswith(
        f"layers 2, the worst first, by the output under {MX} clipped, flushed how many of the input's"
    )
    assert "… and 1 layers more" in text
    assert "64 columns has no whole number of blocks of 128" not in text, "vLLM's groups may be ragged"
    text = said(["sqnr", str(path), "--recipe", "vllm.fp8_group"], capsys)
    assert text.count("a matrix of 64 columns has no whole number of blocks of 128 columns") == 2
    text = said(["sqnr", str(path), "--weight-recipe", "vllm.fp8_static_tensor", "--format", "e4m3fnuz"], capsys)
    assert "as it is × vllm.fp8_static_tensor (float8_e4m3fnuz)" in text
    assert "scale from each tensor: the tensor's largest finite magnitude over" in text
    text = said(["sqnr", str(path), "--weight-recipe", "vllm.fp8_static_tensor", "--given", "scale=0.5"], capsys)
    assert "scale 0.5, as was said" in text


def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = layers_file(tmp_path)
    start = ["sqnr", str(path)]
    assert "no recipe; give --recipe R" in refused(start, capsys)
    assert "2 --input-recipe and 1 --weight-recipe" in refused(
        [*start, "--input-recipe", TOKEN, "--input-recipe", MX, "--weight-recipe", MX], capsys
    )
    recipe = [*start, "--recipe", TOKEN]
    assert "--rows 0; expected 1 or more" in refused([*recipe, "--rows", "0"], capsys)
    assert "no recipe here is given that beside x" in refused([*recipe, "--given", "scale=1"], capsys)
    assert "no recipe here has destination 'int8'" in refused([*recipe, "--format", "int8"], capsys)
    assert "--batches is for a module that is run" in refused([*recipe, "--batches", "b"], capsys)
    assert "no file" in refused(["sqnr", f"{tmp_path}/no.py:build", "--recipe", TOKEN], capsys)
    assert "cannot read" in refused(["sqnr", f"{tmp_path}/no.safetensors", "--recipe", TOKEN], capsys)
    assert "ends in .png or .svg" in refused([*recipe, "--picture", "x.pdf"], capsys)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"x": (2, 4)}, "holds no layer: expected tensors NAME.input and NAME.weight"),
        ({"x.input": (2, 4)}, "layer 'x' has no tensor 'x.weight'"),
        ({"x.input": (2, 4), "x.weight": (4, 2)}, "input [2, 4], weight [4, 2]; expected [.., features]"),
        ({"x.input": (0, 4), "x.weight": (2, 4)}, "layer 'x' is empty: input [0, 4]"),
    ],
)
def test_files_that_hold_no_layers(
    tensors: dict[str, tuple[int, int]], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.safetensors"
    write(path, {name: coded(np.ones(shape, np.float32)) for name, shape in tensors.items()}, {}, typed=True)
    assert reason in refused(["sqnr", str(path), "--recipe", TOKEN], capsys)
    write(
        path,
        {"x.input": Coded(E4, np.zeros((1, 1), np.uint8)), "x.weight": coded(np.ones((1, 1), np.float32))},
        {},
        typed=True,
    )
    assert "tensor 'x.input' is float8_e4m3fn; expected float32" in refused(
        ["sqnr", str(path), "--recipe", TOKEN], capsys
    )


@needs_matplotlib
def test_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "layers.png"
    arguments = ["sqnr", str(layers_file(tmp_path)), "--recipe", TOKEN, "--recipe", TENSOR, "--picture", str(path)]
    assert said(arguments, capsys).endswith(f"picture written to {path}")
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (1200,)
