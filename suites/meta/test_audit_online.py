"""What --to RECIPE says of stored weights: band by band the same as of the whole, and judged by what is usual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.checkpoints import online
from narrowgauge.checkpoints.asked import Asked, destinations
from narrowgauge.checkpoints.audit import audit
from narrowgauge.checkpoints.model import Stored
from narrowgauge.checkpoints.online import OfWeight, findings_of, of_weight, through, usual
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.report import Report
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.errors import BadInput
from narrowgauge.reference.calibrated import calibrated
from narrowgauge.reference.measures import Measured, measure
from narrowgauge.reference.quantize import quantize
from narrowgauge.reference.recipes import RECIPES, recipe_named
from narrowgauge.suites.meta.small_bytes import Array, bf16, write_safetensors
from narrowgauge.suites.meta.small_checkpoints import write

pytestmark = pytest.mark.meta

ROWS, COLUMNS = 256, 384
#: one of each way in which a band can depend on what lies beyond it
KINDS = (
    "vllm.fp8_per_token_dynamic",  # a row
    "vllm.fp8_group",  # a group of a row
    "vllm.fp8_block",  # rows of a block
    "vllm.fp8_per_tensor_dynamic",  # the largest of all, without NaN
    "vllm.fp8_native_tensor",  # and with NaN
    "vllm.fp8_static_tensor",  # given
    "vllm.fp8_static_channel",  # given for each column
    "vllm.int8_static_azp",  # given, with a zero point
    "vllm.fp8_per_token_dynamic_bounded",  # a bound of all, and a row
    "compressed_tensors.nvfp4",  # two levels
    "vllm.nvfp4",  # two levels, the upper one given, and NaN where a whole block is
    "plain.kv_fp8_head",  # columns of a head
    "awq.uint4",  # [inputs, outputs]
    "gptq.uint4_symmetric",
)


def matrix(nan: bool) -> Coded:
    """Numbers over many binades, rows of other sizes, and a block and single elements that are NaN."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ROWS, COLUMNS)) * np.exp(2 * rng.standard_normal((ROWS, COLUMNS)))
    x[40:44] *= 1e3
    x[8:11] = 0.0
    if nan:
        x[3, 5] = x[200, 300] = np.nan
        x[100, 16:32] = np.nan
    return Coded("bfloat16", (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))


def bands_of(x: Coded, most: int) -> online.Bands:
    def bands(multiple: int) -> Iterator[Coded]:
        each = max(1, most // multiple) * multiple
        for first in range(0, x.shape[0], each):
            yield Coded(x.format, x.data[first : first + each])

    return bands


def whole(x: Coded, name: str, format_name: str) -> Measured:
    recipe = recipe_named(name)
    given = calibrated(x, recipe, format_name, {})
    return measure(x, quantize(x, recipe, format_name, given=given), recipe, format_name, given).tensor


@pytest.mark.parametrize("nan", [False, True], ids=["finite", "nan"])
@pytest.mark.parametrize("name", KINDS)
def test_bands_say_what_the_whole_says(name: str, nan: bool) -> None:
    """Counts and the largest error are the same; sums of up to 98,304 squares in another order differ by at most that
    many roundings of 2^-53 of the sum, since none of them is negative."""
    x, recipe = matrix(nan), RECIPES[name]
    turned = Coded(x.format, np.ascontiguousarray(x.data.T))
    for format_name in [d.format for d in recipe.destinations][:2]:
        want = whole(turned if name in ("awq.uint4", "gptq.uint4_symmetric") else x, name, format_name)
        got = through(bands_of(x, 70), (ROWS, COLUMNS), recipe, format_name)
        assert got.counts == want.counts
        assert got.max_ulp == want.max_ulp
        bound = x.data.size * 2.0**-53
        assert got.signal == pytest.approx(want.signal, rel=bound, abs=0)
        for kind, energy in want.noise.items():
            assert got.noise[kind] == pytest.approx(energy, rel=bound, abs=0)


def test_every_recipe_that_refuses_the_whole_refuses_the_bands() -> None:
    x = Coded("bfloat16", matrix(nan=False).data[:100, :100])
    refused = 0
    for recipe in RECIPES.values():
        shape = (100, 100)
        if not recipe.blocks.divide(*shape):
            with pytest.raises(BadInput, match="no whole number of blocks"):
                through(bands_of(x, 70), shape, recipe, recipe.destinations[0].format)
            refused += 1
    assert refused > 20


def stored(folder: Path, weight: Array, name: str = "layers.0.up_proj.weight") -> Stored:
    write_safetensors(folder / "model.safetensors", {name: bf16(weight)})
    return open_checkpoint(folder).tensors[name]


def test_experts_are_quantized_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a scale of its own: 1 and 2^-20 stay what they are, where one scale over both would flush the other.

    One element of the second lies halfway between two codes.
    """
    weight = np.stack([np.full((6, 8), 1.0), np.full((6, 8), 2.0**-20)])
    weight[:, 0, 0] *= 1.75  # of 448, so that scales are powers of two
    weight[1, 3, 3] *= 1.0625
    tensor = stored(tmp_path, weight)
    to = destinations(["vllm.fp8_per_tensor_dynamic"])[0]
    monkeypatch.setattr(online, "BAND", 16)
    one = of_weight(tensor, to)
    assert one.measured is not None
    assert {kind: n for kind, n in one.measured.counts.items() if n} == {"exact": 95, "rounded": 1}
    assert one.measured.max_ulp == 0.5
    flat = of_weight(stored(tmp_path, weight.reshape(12, 8)), to)
    assert flat.measured is not None
    assert flat.measured.counts["flushed"] == 48


def test_scales_are_no_weights(tmp_path: Path) -> None:
    """The matrices of scales of a checkpoint that is quantized already do not go through a recipe."""
    asked = Asked(write("deepseek", tmp_path / "m").folder, destinations(["ocp.mxfp8_e4m3"]))
    report = list(audit(asked))[-1]
    assert isinstance(report, Report)
    assert any(tensor.name.endswith("weight_scale_inv") for tensor in report.chosen)
    measured = {one.tensor for one in report.online}
    assert not any("scale" in name for name in {*measured, *report.spared})


def counted(**counts: int) -> Measured:
    every = dict.fromkeys(("exact", "clipped", "flushed", "rounded", "not_finite", "lost"), 0) | counts
    return Measured(every, 1000.0, {"exact": 0.0, "clipped": 0.0, "flushed": 0.0, "rounded": 1.0}, 1.0)


def noisy(clipped: float, count: int, rounded: float = 1.0) -> Measured:
    """100,000 elements, of which a few are clipped, with the energies of the errors; the signal's is 1,000."""
    noise = {"exact": 0.0, "clipped": clipped, "flushed": 0.0, "rounded": rounded}
    return Measured(counted(rounded=100_000 - count, clipped=count).counts, 1000.0, noise, 1.0)


@pytest.mark.parametrize("recipe", ["ocp.mxfp4", "ocp.mxfp8_e4m3", "ocp.mxfp8_e5m2"])
def test_common_weights_survive_scales_that_are_rounded_down(recipe: str, tmp_path: Path) -> None:
    """Elements are clipped by the definition of MX; nothing is to be done about it, so nothing is wrong."""
    weight = np.random.default_rng(7).normal(0, 0.05, (64, 128))
    to = destinations([recipe])[0]
    one = of_weight(stored(tmp_path, weight), to)
    assert one.measured is not None
    assert one.measured.counts["clipped"] > 0
    assert list(findings_of(one, to)) == []


@pytest.mark.parametrize(
    ("measured", "recipe", "kinds"),
    [
        (counted(rounded=100), "vllm.fp8_per_tensor_dynamic", []),  # 30 dB
        (counted(rounded=99, lost=1), "vllm.fp8_per_tensor_dynamic", ["quantizing loses"]),
        (noisy(clipped=99.0, count=1), "vllm.fp8_per_tensor_dynamic", ["quantizing costs much"]),
        (noisy(clipped=99.0, count=2), "vllm.fp8_per_tensor_dynamic", ["quantizing clips", "quantizing costs much"]),
        (noisy(clipped=0.9, count=2), "vllm.fp8_per_tensor_dynamic", []),  # 27.2 dB, where 31.6 is usual
        (noisy(clipped=9.0, rounded=20.0, count=2), "vllm.fp8_per_tensor_dynamic", ["quantizing costs much"]),
        (counted(rounded=95, flushed=5), "vllm.fp8_per_tensor_dynamic", []),
        (counted(rounded=94, flushed=6), "vllm.fp8_per_tensor_dynamic", ["quantizing flushes"]),
        (counted(rounded=50, flushed=50), "vllm.fp8_per_tensor_dynamic", ["quantizing flushes"]),
        (counted(rounded=49, flushed=51), "vllm.fp8_per_tensor_dynamic", ["quantizing ruins"]),
        (counted(rounded=60, flushed=40), "compressed_tensors.nvfp4", []),
        (counted(rounded=30), "vllm.int8_per_token_dynamic", ["quantizing costs much"]),  # usual: 40.8 dB
        (Measured(counted(rounded=9).counts, 9.9, {"rounded": 1.0}, 0.0), "modelopt.nvfp4", ["quantizing ruins"]),
        (Measured(counted(exact=9).counts, 9.9, {"rounded": 0.0}, 0.0), "modelopt.nvfp4", []),
    ],
)  # fmt: skip
def test_what_is_said_of_a_weight(measured: Measured, recipe: str, kinds: list[str]) -> None:
    to = destinations([recipe])[0]
    found = list(findings_of(OfWeight("t", to.name, to.format, measured), to))
    assert [f.kind for f in found] == kinds
    assert {f.tensor for f in found} <= {"t"}


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_what_is_usual_of_a_float(bits: int) -> None:
    """By numbers spread evenly over the logarithm of a binade, rounded to so many bits.

    The formula has errors spread evenly over each step of 2^-bits; the density 1 / x of these numbers, of 1 at least,
    is off from its middle by a factor of 1 / (1 - 2^-(bits + 1)) at most, and so is the noise.
    """
    x = 2.0 ** (np.arange(1 << 16) / (1 << 16))
    error = np.rint(x * 2**bits) / 2**bits - x
    measured = 10 * np.log10((x * x).mean() / (error * error).mean())
    name = {1: "float4_e2m1fn", 2: "float8_e5m2", 3: "float8_e4m3fn"}[bits]
    assert usual(name) == pytest.approx(measured, abs=-10 * np.log10(1 - 2.0 ** -(bits + 1)))
    assert usual("int8") == pytest.approx(10 * np.log10(12 * (127 / 4) ** 2))
    assert usual("uint4") == pytest.approx(10 * np.log10(12 * (7 / 4) ** 2))


@pytest.mark.parametrize(
    ("name", "spared"),
    [
        ("model.embed_tokens.weight", True), ("lm_head.weight", True), ("model.layers.0.mlp.gate.weight", True),
        ("model.layers.0.self_attn.q_norm.weight", True), ("transformer.wte.weight", True), ("output.weight", True),
        ("bert.embeddings.word_embeddings.weight", True), ("token_embd.weight", True),
        ("model.layers.0.block_sparse_moe.router.weight", True), ("model.layers.0.linear_attn.conv1d.weight", True),
        ("model.layers.0.mlp.gate_proj.weight", False), ("model.layers.0.self_attn.q_proj.weight", False),
        ("model.layers.3.mlp.experts.4.down_proj.weight", False), ("transformer.h.0.attn.c_attn.weight", False),
        ("encoder.layer.0.attention.output.dense.weight", False), ("blk.0.ffn_gate.weight", False),
    ],
)  # fmt: skip
def test_engines_quantize_linear_layers(name: str, spared: bool) -> None:
    assert online.is_spared(name) == spared
