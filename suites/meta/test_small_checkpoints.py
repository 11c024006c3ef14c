# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints are what they say: weights by a second derivation, names and keys by what the tools write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from narrowgauge.suites.meta.second_small import WEIGHTS
from narrowgauge.suites.meta.small_bytes import value_of
from narrowgauge.suites.meta.small_checkpoints import FLAWS, KINDS, LLMS, draft_of, write
from narrowgauge.suites.meta.small_drafts import draft
from narrowgauge.suites.meta.small_models import llama

pytestmark = [pytest.mark.meta, pytest.mark.checkpoint]
DATA = os.environ.get("NARROWGAUGE_DATA", "")
REAL = "quantised-checkpoints"


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_are_what_the_bytes_say(kind: str) -> None:
    """Of some layers, at places that touch every block, word and nibble: float64 holds it, or rounds once."""
    made = LLMS[kind]
    content = draft_of(kind)
    for path, (rows, columns) in list(made.model.linear.items())[:: max(1, len(made.model.linear) - 2)]:
        steps = [(n, (n * 37 + j * 83) % columns) for n in range(0, rows, 3) for j in range(2)]
        for n, k in steps:
            exact = WEIGHTS[kind](content.tensors, path, n, k)
            assert content.weights[f"{path}.weight"][n, k] == float(exact), (kind, path, n, k)


def test_every_quantized_kind_has_a_second_derivation() -> None:
    assert set(WEIGHTS) == {name for name, row in LLMS.items() if row.scheme}


#: decibels of signal to noise that the kinds' formats give on normal weights, less a decibel, by the name of the kind
FLOOR = {
    "FP8": 30.4, "fp8": 30.4, "deepseek_v4": 17.0, "deepseek": 30.4, "MXFP8": 29.4, "W8A8": 41.0, "awq": 18.5,
    "bf16": 300.0, "fp16": 140.0,
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("torch")])
def test_weights_are_near_what_they_were_made_from(kind: str) -> None:
    """No scheme is so wrong that it would pass for another: 4 bit from 17 dB, 8 bit from 29 dB."""
    content = draft_of(kind)
    least = next((db for part, db in FLOOR.items() if part in kind), 17.0)
    for name, x in content.originals.items():
        noise = float(((x - content.weights[name]) ** 2).sum())
        assert not noise or 10 * np.log10(float((x**2).sum()) / noise) > least, name


@pytest.mark.parametrize("kind", ["bf16_sharded", "ct_NVFP4", "mo_NVFP4", "deepseek", "gpt_oss", "gptq_v2"])
def test_another_reader_of_safetensors_agrees(kind: str, tmp_path: Path) -> None:
    """Names, dtypes and shapes as its authors' library reads them, and values where NumPy has the dtype."""
    write(kind, tmp_path)
    expected = draft_of(kind).tensors
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(tmp_path.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118
                part = file.get_slice(name)
                found[name] = (part.get_dtype(), tuple(part.get_shape()))
                if found[name][0] in ("F32", "I32", "U8", "F16", "I64"):
                    assert file.get_tensor(name).tobytes() == expected[name].data
    assert found == {name: (raw.dtype, raw.shape) for name, raw in expected.items()}


def test_an_index_names_every_shard(tmp_path: Path) -> None:
    write("bf16_sharded", tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {path.name for path in tmp_path.glob("*.safetensors")}
    assert len(index["weight_map"]) == len(draft_of("bf16_sharded").tensors)


def test_the_small_network_is_well_in_float16() -> None:
    for raw in draft_of("conv_fp32").tensors.values():
        if raw.dtype == "F32":
            assert np.isfinite(value_of(raw).astype(np.float16)).all()


# ---------------- what the tools write


def real() -> Iterator[str]:
    """Kinds of which a tool's own folder is at hand; compressed-tensors dropped the scheme of ct_FP8_KV there."""
    yield from sorted(set(KINDS) & {path.name for path in Path(DATA, REAL).glob("*")} - {"ct_FP8_KV"})


@pytest.mark.skipif(not DATA, reason="NARROWGAUGE_DATA names no folder with checkpoints that tools wrote")
@pytest.mark.parametrize("kind", list(real()) if DATA else [""])
def test_names_shapes_and_keys_are_those_of_the_tool(kind: str) -> None:
    """The same model, 256 wide, as theirs: of one layer and another vocabulary, all else alike."""
    folder = Path(DATA, REAL, kind)
    made = draft(replace(LLMS[kind], model=llama(256, 512)))
    ours = {name: raw for name, raw in made.tensors.items() if ".layers.1." not in name}
    with safe_open(folder / "model.safetensors", "np") as file:
        theirs = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        assert set(ours) == set(theirs)
        for name, part in theirs.items():
            vocabulary = (
                [512 if "embed" in name or "lm_head" in name else ours[name].shape[0]] if part.get_shape() else []
            )
            assert (part.get_dtype(), part.get_shape()) == (ours[name].dtype, [*vocabulary, *ours[name].shape[1:]]), (
                name
            )
    sizes = {"num_hidden_layers": 1, "vocab_size": 512}
    config = json.loads((folder / "config.json").read_text())
    assert made.config | sizes == config
    assert list(made.config["quantization_config"]) == list(config["quantization_config"]), "in the tool's order"
    for name, content in made.others.items():
        assert json.loads((folder / name).read_text()) == content


# ---------------- mistakes


IN_WHAT_IS_ASKED = {"OCP bytes for an FNUZ device", "KV scheme dropped"}


@pytest.mark.parametrize("name", [name for name, flaw in FLAWS.items() if not flaw.after])
def test_a_flaw_changes_what_is_written(name: str) -> None:
    """All but those that lie in what is asked of a good file."""
    clean, edited = draft_of(FLAWS[name].kind), draft_of(FLAWS[name].kind)
    FLAWS[name].edit(edited)
    changed = any(getattr(edited, part) != getattr(clean, part) for part in ("tensors", "config", "others"))
    assert changed != (name in IN_WHAT_IS_ASKED)


def test_a_flaw_belongs_to_its_kind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a flaw of"):
        write("bf16", tmp_path, "scale missing")
