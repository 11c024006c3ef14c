# SPDX-License-Identifier: Apache-2.0
"""What is found about scales and codes: counts, places, and where nothing is to be found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from narrowgauge.checkpoints.against_config import config_findings
from narrowgauge.checkpoints.codes import code_findings
from narrowgauge.checkpoints.counting import counted
from narrowgauge.checkpoints.dtypes import UNITS
from narrowgauge.checkpoints.findings import Finding
from narrowgauge.checkpoints.kinds import KINDS
from narrowgauge.checkpoints.model import Checkpoint, Stored
from narrowgauge.checkpoints.opening import open_checkpoint
from narrowgauge.checkpoints.passports import passports
from narrowgauge.checkpoints.scales import scale_findings
from narrowgauge.checkpoints.shards import shard_findings
from narrowgauge.checkpoints.values import readable, rows
from narrowgauge.contracts.errors import BadInput
from narrowgauge.suites.meta.second_codes import table
from narrowgauge.suites.meta.small_checkpoints import write

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
N, K = 32, 256

Array = npt.NDArray[Any]


def checkpoint_of(folder: Path, **tensors: tuple[str, Array]) -> Checkpoint:
    """One layer ``x`` of tensors by their suffixes, with ``__`` for a dot."""
    found, path = {}, folder / "model.safetensors"
    with open(path, "wb") as file:
        for suffix, (dtype, data) in tensors.items():
            name, start = suffix.replace("__", "."), file.tell()
            file.write(np.ascontiguousarray(data).tobytes())
            found[name] = Stored(name, dtype, data.shape, path, start, data.nbytes, UNITS[dtype].format)
    return Checkpoint(folder, "safetensors", found)


def fp8(folder: Path, scale: Array, codes: Array | None = None) -> Checkpoint:
    """fp8 by rows, whose codes reach 448."""
    codes = np.full((N, K), 0x7E, np.uint8) if codes is None else codes
    codes[:, 1:] = np.where(codes[:, 1:] == 0x7E, 0x38, codes[:, 1:])
    return checkpoint_of(folder, x__weight=("F8_E4M3", codes), x__weight_scale=("F32", scale.astype("<f4")))


def found(checkpoint: Checkpoint) -> list[Finding]:
    mine, wrong = passports(checkpoint)
    each = [finding for passport in mine for find in (scale_findings, code_findings) for finding in find(passport)]
    return [*wrong, *each, *shard_findings(mine)]


def scales(*changed: tuple[int, float]) -> Array:
    every = np.full((N, 1), 1e-3)
    for row, value in changed:
        every[row] = value
    return every


def test_a_good_one_says_nothing(tmp_path: Path) -> None:
    assert found(fp8(tmp_path, scales())) == []


@pytest.mark.parametrize(
    ("kind", "changed", "shown"),
    [
        ("scale negative", ((3, -1e-3), (9, -2e-3)), "-0.001"),
        ("scale not finite", ((3, np.inf), (9, np.nan)), "inf"),
        ("scale subnormal", ((3, 1e-40), (9, 1e-40)), "9.99995e-41"),
        ("scale zero", ((3, 0.0), (9, 0.0)), "0"),
    ],
)
def test_a_scale_that_cannot_be_is_counted_and_placed(
    kind: str, changed: tuple[tuple[int, float], ...], shown: str, tmp_path: Path
) -> None:
    (finding,) = found(fp8(tmp_path, scales(*changed)))
    assert (finding.kind, finding.count, finding.tensor) == (kind, 2, "x.weight_scale")
    assert [place.index for place in finding.places] == [(3, 0), (9, 0)]
    assert finding.places[0].value.startswith(shown)


def test_a_zero_over_zeros_is_a_note(tmp_path: Path) -> None:
    codes = np.full((N, K), 0x7E, np.uint8)
    codes[3] = 0
    (finding,) = found(fp8(tmp_path, scales((3, 0.0)), codes))
    assert finding.kind == "scale zero over zeros"
    assert KINDS[finding.kind].level == "note"


def test_all_ones(tmp_path: Path) -> None:
    kinds = [finding.kind for finding in found(fp8(tmp_path, np.ones((N, 1))))]
    assert kinds == ["all scales one"]


@pytest.mark.parametrize(("scale", "said"), [(5e3, "up to 2.24e+06"), (1e-12, "up to 4.48e-10")])
def test_a_size_that_weights_do_not_have(scale: float, said: str, tmp_path: Path) -> None:
    """448 times 5,000, and 448 times 1e-12."""
    (finding,) = found(fp8(tmp_path, np.full((N, 1), scale)))
    assert finding.kind == "scale implausible"
    assert said in finding.said


def test_codes_of_the_other_flavour(tmp_path: Path) -> None:
    """240 is 0x77 in OCP: the largest value of FNUZ, requantized, and none above it."""
    codes = np.full((N, K), 0x38, np.uint8)
    codes[:, 0] = 0x77
    (finding,) = found(fp8(tmp_path, scales(), codes))
    assert (finding.kind, finding.count) == ("scale too large", N)
    assert "FNUZ" in finding.said


def test_codes_that_saturate(tmp_path: Path) -> None:
    codes = np.full((N, K), 0x38, np.uint8)
    codes[:, 0] = 0x7E
    codes[:, 1:200] = 0xFE  # -448
    (finding,) = found(fp8(tmp_path, scales(), codes))
    assert (finding.kind, finding.count) == ("codes saturate", N * 200)


def test_small_groups_reach_the_top_by_construction(tmp_path: Path) -> None:
    """A group of three has one code of three at the top: that is how its scale was found."""
    codes = np.tile(np.array([[127, 20, 30]], np.int8), (N, 1))
    checkpoint = checkpoint_of(tmp_path, x__qweight=("I8", codes), x__scale=("F32", scales().astype("<f4")))
    assert found(checkpoint) == []


@pytest.mark.parametrize(
    ("dtype", "codes", "expected"),
    [
        ("F8_E4M3", [0x7E] * 200 + [0x38] * 56, [("codes saturate", N * 200)]),
        ("F8_E4M3", [0xFE] * 200 + [0x38] * 56, [("codes saturate", N * 200)]),
        ("F8_E4M3", [0x7D] * 200 + [0x7E] + [0x38] * 55, []),  # one step below the top
        ("F8_E4M3", [0xF7] + [0x38] * 255, [("scale too large", 1)]),  # -240
        ("I8", [127] * 100 + [129] * 100 + [1] * 56, [("codes saturate", N * 200)]),
        ("I8", [126] * 100 + [128] * 1 + [1] * 155, []),
        ("I8", [60] + [1] * 255, [("scale too large", 1)]),
        ("I8", [196] + [1] * 255, [("scale too large", 1)]),  # -60
        ("F8_E5M2", [0x7B] * 200 + [0x38] * 56, [("codes saturate", N * 200)]),
    ],
)
def test_one_scale_over_all_bytes(
    dtype: str, codes: list[int], expected: list[tuple[str, int]], tmp_path: Path
) -> None:
    """Every byte is looked at, as an integer."""
    every, scale = np.tile(np.array(codes, np.uint8), (N, 1)), np.array([1e-4 if dtype != "F8_E5M2" else 1e-6], "<f4")
    checkpoint = checkpoint_of(tmp_path, x__weight=(dtype, every), x__weight_scale=("F32", scale))
    assert [(finding.kind, finding.count) for finding in found(checkpoint)] == expected


def fours() -> Array:
    """Codes of e2m1 that are 1 but for a 6 in each group of 16."""
    codes = np.full((N, K // 2), 0x22, np.uint8)
    codes[:, ::8] = 0x27
    return codes


def mxfp4(folder: Path, exponents: Array) -> Checkpoint:
    codes = fours()
    return checkpoint_of(folder, x__weight_packed=("U8", codes), x__weight_scale=("U8", exponents))


def test_exponents_of_0_and_255(tmp_path: Path) -> None:
    exponents = np.full((N, K // 32), 120, np.uint8)
    exponents[1, 2], exponents[4, 5], exponents[4, 6] = 0, 255, 255
    both = {finding.kind: finding for finding in found(mxfp4(tmp_path, exponents))}
    assert set(both) == {"E8M0 zero", "E8M0 not a number"}
    assert [place.index for place in both["E8M0 not a number"].places] == [(4, 5), (4, 6)]
    assert (both["E8M0 zero"].count, both["E8M0 zero"].places[0].index) == (1, (1, 2))


def nvfp4(folder: Path, second: float, divides: bool) -> Checkpoint:
    codes = fours()
    block = np.full((N, K // 16), 0x7E, np.uint8)
    one = np.array([second], "<f4")
    if divides:
        return checkpoint_of(
            folder, x__weight_packed=("U8", codes), x__weight_scale=("F8_E4M3", block),
            x__weight_global_scale=("F32", one),
        )  # fmt: skip
    return checkpoint_of(
        folder, x__weight=("U8", codes), x__weight_scale=("F8_E4M3", block), x__weight_scale_2=("F32", one)
    )


@pytest.mark.parametrize("divides", [False, True])
def test_the_second_scale_has_a_direction(divides: bool, tmp_path: Path) -> None:
    """448 * 6 / 0.0879 = 30,583, as compressed-tensors divides, and its reciprocal, as ModelOpt multiplies (facts)."""
    right, wrong = (30583.5, 1 / 30583.5) if divides else (1 / 30583.5, 30583.5)
    assert found(nvfp4(tmp_path, right, divides)) == []
    (finding,) = found(nvfp4(tmp_path, wrong, divides))
    assert finding.kind == "second scale inverted"
    assert "up to 0.0879" in finding.said


@pytest.mark.parametrize(("shape", "said"), [((N, K), 0), ((N, K - 3), 0), ((K, N), 1), ((N, K - 8), 1)])
def test_the_shape_that_a_tensor_says(shape: tuple[int, int], said: int, tmp_path: Path) -> None:
    """Eight codes a word: of the last word some may be padding, and a whole word may not."""
    words = np.full((N, K // 8), 0x1F777777, "<i4")
    scale, numbers = np.full((N, 2), 1e-3, "<f4"), np.array(shape, "<i8")
    checkpoint = checkpoint_of(
        tmp_path, x__weight_packed=("I32", words), x__weight_scale=("F32", scale), x__weight_shape=("I64", numbers)
    )
    assert [finding.kind for finding in found(checkpoint)] == ["shape disagrees"] * said


@pytest.mark.parametrize("kind", ["gptq_v1", "gptq_v2"])
def test_symmetric_zero_points_tell_their_version(kind: str, tmp_path: Path) -> None:
    """Without checkpoint_format zeros are read as less 1: in v1 they are 8, and in v2 called v1 they are 9."""
    checkpoint = open_checkpoint(write(kind, tmp_path).folder)
    said = dict(checkpoint.config["quantization_config"])
    said = {key: value for key, value in said.items() if key not in ("checkpoint_format", "format")} | {"sym": True}
    told = replace(checkpoint, config={**checkpoint.config, "quantization_config": said}, others={})
    mine, _ = passports(told)
    kinds = {finding.kind for finding in config_findings(told, mine)} | {f.kind for f in scale_findings(mine[0])}
    assert kinds == (set() if kind == "gptq_v1" else {"zeros version not said", "zeros out of step"})


def test_codes_of_bitsandbytes_are_named_and_not_read(tmp_path: Path) -> None:
    """A weight is a column of bytes, two codes each; what it is of is in a JSON that is not read."""
    every = {
        "x__weight": ("U8", np.zeros((N * K // 2, 1), np.uint8)),
        "x__weight__absmax": ("F32", np.ones(N * K // 64, "<f4")),
    }
    checkpoint = replace(
        checkpoint_of(tmp_path, **every), config={"quantization_config": {"quant_method": "bitsandbytes"}}
    )
    (one,), wrong = passports(checkpoint)
    assert (one.scheme.name, one.count, wrong) == ("bitsandbytes_4bit", N * K, [])
    assert "quant_state" in readable(one)


def test_shards_that_differ_say_the_ratio(tmp_path: Path) -> None:
    every = {}
    for part, second in (("gate_proj", 2e-5), ("up_proj", 5e-5)):
        every[f"m__{part}__weight"] = ("U8", fours())
        every[f"m__{part}__weight_scale"] = ("F8_E4M3", np.full((N, K // 16), 0x7E, np.uint8))
        every[f"m__{part}__weight_scale_2"] = ("F32", np.array([second], "<f4"))
    (finding,) = found(checkpoint_of(tmp_path, **every))
    assert finding.kind == "shards differ"
    assert finding.said.endswith("a ratio of 2.5")


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F16", "BF16"])
def test_what_is_counted_by_codes_is_what_numbers_are(dtype: str, tmp_path: Path) -> None:
    """Every code once: zeros, signs, NaN and subnormals, as the second derivation has them."""
    fmt = {"F8_E4M3": "float8_e4m3fn", "F16": "float16", "BF16": "bfloat16"}[dtype]
    values = table(fmt) if dtype == "F8_E4M3" else _halves(dtype)
    least = {"F8_E4M3": 2.0**-6, "F16": 2.0**-14, "BF16": 2.0**-126}[dtype]
    codes = np.arange(len(values)).astype(np.uint8 if dtype == "F8_E4M3" else "<u2")
    (tensor,) = checkpoint_of(tmp_path, x=(dtype, codes)).tensors.values()
    mine = counted(tensor)
    with np.errstate(invalid="ignore"):
        assert mine.zero == np.count_nonzero(values == 0) == 2
        assert mine.negative == np.count_nonzero(values < 0)
        assert mine.not_finite == np.count_nonzero(~np.isfinite(values))
        assert mine.subnormal == np.count_nonzero((values != 0) & (np.abs(values) < least))
        assert (mine.one, mine.every) == (1, len(values))
        good = values[np.isfinite(values) & (values > 0)]
    assert (mine.least, mine.most) == (good.min(), good.max())


def _halves(dtype: str) -> npt.NDArray[np.float64]:
    codes = np.arange(1 << 16, dtype=np.uint32)
    if dtype == "F16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (codes << 16).view(np.float32).astype(np.float64)


CHANGES: tuple[Callable[[Stored, int], Stored], ...] = (
    lambda tensor, seed: replace(tensor, shape=tensor.shape[::-1]),
    lambda tensor, seed: replace(tensor, shape=(*tensor.shape, 1)),
    lambda tensor, seed: replace(tensor, shape=(1, *tensor.shape)),
    lambda tensor, seed: _sized(tensor, tensor.dtype, tuple(max(seed % 2, size // 2) for size in tensor.shape)),
    lambda tensor, seed: _sized(tensor, ("U8", "F32", "F4", "I64", "F8_E8M0", "BF16")[seed % 6], None),
)


def _sized(tensor: Stored, dtype: str, shape: tuple[int, ...] | None) -> Stored:
    unit = UNITS[dtype]
    shape = shape if shape is not None else (tensor.size // unit.bytes * unit.elements,)
    size = prod(shape) // unit.elements * unit.bytes
    return replace(tensor, dtype=dtype, format=unit.format, shape=shape, size=min(size, tensor.size))


@pytest.mark.parametrize("kind", ["ct_NVFP4", "ct_W4A16_ASYM", "deepseek", "gptq_actorder", "awq", "gpt_oss", "gguf"])
def test_no_shape_or_dtype_breaks_anything(kind: str, tmp_path: Path) -> None:
    """Values are read, or ``BadInput`` says why not; findings raise nothing."""
    checkpoint = open_checkpoint(write(kind, tmp_path).folder)
    names = [name for name in checkpoint.tensors if ".0." in name][:14]
    for number, name in enumerate(names):
        for place, change in enumerate(CHANGES):
            other = change(checkpoint.tensors[name], number + place)
            broken = replace(checkpoint, tensors={**checkpoint.tensors, name: other})
            mine, _ = passports(broken)
            list(config_findings(broken, mine, to_float16=True, kv_cache_dtype="fp8"))
            list(shard_findings(mine))
            for passport in mine:
                if name in {tensor.name for tensor in passport.tensors.values()}:
                    _ = [*scale_findings(passport), *code_findings(passport)]
                    if readable(passport):
                        continue
                    with suppress(BadInput):
                        list(rows(passport))
