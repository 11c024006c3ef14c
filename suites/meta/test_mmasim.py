"""Models of matrix units against mmasim's, where that is installed (with torch, ninja and a C++ compiler).

mmasim is the program of one of the groups whose papers the models rest on: agreement shows that we read them alike, not
that GPUs do the same. Of CDNA3's fp8 results that are not finite here are left out: mmasim takes an addend that is
infinite or NaN for one far below the products, drops it, and goes on with a number.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.golden import units as golden
from narrowgauge.reference.fast_codec import decode_values
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.reference.units.running import dot
from narrowgauge.reference.units.unit import Unit
from narrowgauge.suites.meta import mmasim_program
from narrowgauge.suites.meta.unit_sets import Dots, cases, drawn, golden_dots

MISSING = [name for name in ("mmasim", "torch") if importlib.util.find_spec(name) is None]
MISSING += [] if shutil.which("ninja") else ["ninja"]
pytestmark = [
    pytest.mark.meta,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

COUNT, SEED = 40, 301
ARCHITECTURES = {
    "volta": "Volta", "turing": "Turing", "ampere": "Ampere", "ada": "Ada Lovelace", "hopper": "Hopper",
    "blackwell": "Blackwell", "rtx_blackwell": "RTX Blackwell", "cdna1": "CDNA1", "cdna2": "CDNA2", "cdna3": "CDNA3",
}  # fmt: skip
WORDS = {
    "float64": "f64", "float32": "f32", "tfloat32": "tf32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2",
    "float4_e2m1fn": "e2m1", "float8_e4m3fnuz": "fp8", "float8_e5m2fnuz": "bf8",
    "float8_e8m0fnu": "ue8m0", "": "",
}  # fmt: skip
MFMA = {
    ("cdna1", "f16"): "f32_32x32x8f16", ("cdna1", "bf16"): "f32_32x32x4bf16", ("cdna1", "f32"): "f32_32x32x2f32",
    ("cdna2", "f16"): "f32_32x32x8f16", ("cdna2", "bf16"): "f32_32x32x8bf16_1k", ("cdna2", "f32"): "f32_32x32x2f32",
    ("cdna2", "f64"): "f64_16x16x4f64", ("cdna3", "f16"): "f32_32x32x8_f16", ("cdna3", "bf16"): "f32_32x32x8_bf16",
    ("cdna3", "tf32"): "f32_32x32x4_xf32", ("cdna3", "fp8"): "f32_32x32x16_fp8_fp8",
    ("cdna3", "bf8"): "f32_32x32x16_bf8_bf8", ("cdna3", "f32"): "f32_32x32x2_f32", ("cdna3", "f64"): "f64_16x16x4_f64",
}  # fmt: skip
#: by kind of an operation its length along k
LENGTHS = {"f16": 16, "bf16": 16, "tf32": 8}


def operation(unit: Unit, fmt: str, scale: str) -> tuple[str, ...] | None:
    """The class of mmasim and its arguments; None for a unit that it has not."""
    architecture, _, instruction = unit.name.partition(".")
    name, word, out = ARCHITECTURES.get(architecture, ""), WORDS.get(fmt, ""), WORDS.get(unit.out, "")
    length = LENGTHS.get(word, 32)
    if unit.name == "nvidia.dmma":
        return "MMA", "Hopper", "m16n8k16.f64.f64.f64.f64"
    if unit.name == "cdna2.mfma_bf16_old":
        return "MFMA", name, "f32_32x32x4bf16"
    if not name or (fmt == "float32" and unit.through) or instruction.startswith(("mma_fp8", "mfma_of_ocp")):
        return None
    if instruction.startswith("mfma"):
        return "MFMA", name, MFMA[architecture, word]
    if scale:
        kind = instruction
        size = "k32" if kind == "mxf8f6f4" else "k64"
        scaled = f"kind::{kind}.block{unit.block}.f32.{word}.{word}"
        if architecture == "blackwell":
            return "TCGen05MMABlockScale", name, f"m128n16{size}.{scaled}.{scales_word(scale)}"
        return "MMABlockScale", name, f"m16n8{size}.{scaled}.f32.{scales_word(scale)}"
    if instruction.startswith(("hgmma", "qgmma")):
        return "WGMMA", name, f"m64n8k{length}.{out}.{word}.{word}"
    if instruction.startswith("tcgen05"):
        kind = {16: "f16", 8: "tf32", 32: "f8f6f4"}[length]
        return "TCGen05MMA", name, f"m128n16k{length}.kind::{kind}.{out}.{word}.{word}"
    if instruction.startswith("qmma"):
        kind = "" if word in ("e4m3", "e5m2") else "kind::f8f6f4."
        return "MMA", name, f"m16n8k32.{kind}{out}.{word}.{word}.{out}"
    shape = {"volta": "m8n8k4", "turing": "m16n8k8"}.get(architecture, f"m16n8k{length}")
    return "MMA", name, f"{shape}.{out}.{word}.{word}.{out}"


def scales_word(scale: str) -> str:
    return "ue4m3" if scale == "float8_e4m3fn" else WORDS[scale]


def asked() -> dict[str, tuple[tuple[str, ...], Dots]]:
    """By name the operation, and dots that are one step of it where it takes scales."""
    found = {}
    for unit in UNITS.values():
        for fmt, scale in cases(unit):
            how = operation(unit, fmt, scale)
            if how is not None:
                found[f"{unit.name} {fmt} {scale}"] = how, one_step(drawn(unit, fmt, COUNT, SEED, scale), unit)
        for rule, out in golden.families():
            fmt, _, scale = rule.partition(".")
            how = operation(unit, fmt, scale) if unit in golden.units_of(rule, out) else None
            if how is not None:
                (dots,) = [d for d in golden_dots(rule, out) if d.unit == unit.name]
                found[f"{unit.name} {rule} golden"] = how, one_step(dots, unit)
    return found


def one_step(dots: Dots, unit: Unit) -> Dots:
    """The first step where there are scales: mmasim's take no more of them."""
    if not unit.scales:
        return dots
    size = unit.family.length
    a, b = (Coded(side.format, side.data[:, :size]) for side in (dots.a, dots.b))
    scales = tuple(Coded(s.format, s.data[:, : size // unit.block]) for s in dots.scales)
    return Dots(dots.unit, a, b, dots.c, scales, dots.want)


def sent(name: str, how: tuple[str, ...], dots: Dots) -> dict[str, np.ndarray]:
    """As the program takes it: tf32 in a register of 32 bits, four-bit codes of f8f6f4 in the middle of a byte."""
    shift = 13 if dots.a.format == "tfloat32" else 2 if dots.a.format == "float4_e2m1fn" and "f8f6f4" in how[-1] else 0
    arrays = {f"{name}.how": np.array(how), f"{name}.c": dots.c.data}
    arrays |= {f"{name}.a": padded(dots.a, unit=UNITS[dots.unit]) << shift}
    arrays |= {f"{name}.b": padded(dots.b, unit=UNITS[dots.unit]) << shift}
    for key, scale in zip(("alpha", "beta"), dots.scales, strict=False):
        arrays[f"{name}.{key}"] = scale.data
    return arrays


def padded(side: Coded, unit: Unit) -> np.ndarray:
    """With zeros up to whole steps."""
    missing = -side.shape[1] % (32 if unit.family.length > 1 and not unit.scales else 1)
    return np.pad(side.data, ((0, 0), (0, missing)))


def test_units_agree_with_mmasim(tmp_path: Path) -> None:
    questions = asked()
    arrays: dict[str, np.ndarray] = {}
    for name, (how, dots) in questions.items():
        arrays |= sent(name, how, dots)
    np.savez(tmp_path / "asked.npz", **arrays)  # type: ignore[arg-type]
    program = [sys.executable, mmasim_program.__file__, str(tmp_path / "asked.npz"), str(tmp_path / "answers.npz")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-2000:]
    answers = np.load(tmp_path / "answers.npz")
    wrong = []
    for name, (_, dots) in questions.items():
        unit = UNITS[dots.unit]
        got, other = dot(unit, dots.a, dots.b, dots.c, *dots.scales), answers[name]
        values, theirs = decode_values(got), decode_values(Coded(got.format, other))
        same = (got.data == other) | (np.isnan(values) & np.isnan(theirs))
        if unit.name == "cdna3.mfma_fp8":
            same |= ~np.isfinite(values)
        wrong += [(name, int(i), hex(int(got.data[i])), hex(int(other[i]))) for i in np.flatnonzero(~same)[:2]]
    assert len(questions) > 100
    assert wrong == []
