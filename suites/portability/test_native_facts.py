"""What Triton makes of native casts, measured: formats by target, the wrong codes of its defects, scales, blocks.

Each set is exact: a release of Triton that mends a defect, or makes another, fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import narrowgauge
from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices import discovery
from narrowgauge.devices.discovery import EMULATED_BY_DEFAULT, NO_GPU
from narrowgauge.devices.targets import EMULATED, TARGETS
from narrowgauge.reference.expected import expected
from narrowgauge.suites.portability import native_program as program

pytestmark = [
    pytest.mark.meta,
    pytest.mark.emulated,
    pytest.mark.skipif(not discovery.has_triton(), reason="triton is not installed: nothing compiles for a target"),
]

UPSTREAM = Path(narrowgauge.__file__).parents[1] / "docs" / "upstream"
Array = npt.NDArray[Any]
#: targets whose casts are integer operations where Triton emits no instruction
AMD_SOFTWARE = {t for t in EMULATED if TARGETS[t].backend == "hip" and "float8_e4m3fn" in TARGETS[t].software}
NVIDIA = {t for t in EMULATED if TARGETS[t].backend == "cuda"}
#: bfloat16 patterns that come of the codes which are infinity or NaN: the exponent is mended and nothing else
E5M2_LOST = {0x7C: 0x4780, 0x7D: 0x47A0, 0x7E: 0x47C0, 0x7F: 0x47E0} | {
    0xFC: 0xC780, 0xFD: 0xC7A0, 0xFE: 0xC7C0, 0xFF: 0xC7E0,
}  # fmt: skip
#: of AMD's instructions, float16 infinity to e4m3fn: the model's first answer, and no proof (models/amd.py)
OPEN = {0x7C00: 0x7F, 0xFC00: 0xFF}
E4M3FN_LOST = {0x7F: 0x43F0, 0xFF: 0xC3F0}  # 480, -480


def _environment(folder: Path, **more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return plain | NO_GPU | {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DEFAULT_FP_FUSION": "1"} | more


def _found(what: str, folder: Path, **more: str) -> dict[str, Array]:
    """What the program writes."""
    out = folder / f"{what}.npz"
    command = [sys.executable, "-m", program.__name__, what, str(out)]
    ended = subprocess.run(command, env=_environment(folder, **more), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    with np.load(out) as found:
        return dict(found)


def test_the_table_of_formats_is_what_triton_compiles(tmp_path: Path) -> None:
    found = _found("formats", tmp_path)
    compiled: dict[str, dict[str, str]] = {}
    for key, text in found.items():
        target, name = key.split("/")
        compiled.setdefault(target, {})[name] = {"refused": "refused", "": "software"}.get(str(text), "instruction")
    assert compiled == {name: _of_table(name) for name in TARGETS}


def _of_table(name: str) -> dict[str, str]:
    target = TARGETS[name]
    how = dict.fromkeys(target.instruction, "instruction") | dict.fromkeys(target.software, "software")
    knows = name not in ("gfx940", "gfx941")  # refused whatever the kernel
    wide = ("instruction" if target.bfloat16 else "software") if knows else "refused"
    return {fmt: how.get(fmt, "refused") for fmt in program.FP8} | {"bfloat16": wide}


def test_measured_facts(tmp_path: Path) -> None:
    found = _found("facts", tmp_path)
    for target in program.ENCODED_FROM_HALF:
        lost = {} if target in NVIDIA else _nan_below_480() if target in AMD_SOFTWARE else OPEN
        assert _wrong_from_half(found[f"encode/{target}"]) == lost, target
    for target in program.DECODED:
        for name, lost, where in (
            ("float8_e5m2", E5M2_LOST, NVIDIA | AMD_SOFTWARE), ("float8_e4m3fn", E4M3FN_LOST, AMD_SOFTWARE),
        ):  # fmt: skip
            if name in TARGETS[target].triton:
                wrong = _wrong_bfloat16(found[f"decode/{name}/{target}"], name)
                assert wrong == (lost if target in where else {}), (target, name)
    right = _codes("cast/ocp_saturate/float32/float8_e4m3fn", program.edges())
    for target in EMULATED:
        assert np.array_equal(found[f"soft/{target}"], right), target
    _scales(found)


def _codes(claim: str, x: Array) -> Array:
    """The codes that the reference gives for float32 values."""
    made: Array = expected(Claim.parse(claim), Coded("float32", x.view(np.uint32)))["codes"].low.data
    return made


def _wrong_from_half(codes: Array) -> dict[int, int]:
    """float16 patterns that native code casts to e4m3fn otherwise than saturation does, with what it gives."""
    patterns = np.arange(65536, dtype=np.uint16)
    right = _codes("cast/ocp_saturate/float32/float8_e4m3fn", patterns.view(np.float16).astype(np.float32))
    both_nan = (codes & 0x7F == 0x7F) & (right & 0x7F == 0x7F)
    return {int(p): int(c) for p, c in zip(patterns, codes, strict=True) if c != right[p] and not both_nan[p]}


def _nan_below_480() -> dict[int, int]:
    """By hand: 464 is 0x5F40 and 480 is 0x5F80. What lies between rounds to 480, whose code is NaN."""
    magnitudes = range(0x5F41, 0x5F80)
    return dict.fromkeys(magnitudes, 127) | {m | 0x8000: 0xFF for m in magnitudes}


def _wrong_bfloat16(patterns: Array, source: str) -> dict[int, int]:
    every = Coded(source, np.arange(256, dtype=np.uint8))
    right = expected(Claim.parse(f"cast/ieee/{source}/bfloat16"), every)["codes"].low.data

    def value(p: Array) -> Array:
        return (p.astype(np.uint32) << np.uint32(16)).view(np.float32)

    both_nan = np.isnan(value(patterns)) & np.isnan(value(right))
    return {c: int(patterns[c]) for c in range(256) if patterns[c] != right[c] and not both_nan[c]}


def _scales(found: Mapping[str, Array]) -> None:
    """``amax / 448``: NVIDIA's code multiplies by the reciprocal, AMD's divides. Most scales are not the same."""
    amax = np.abs(program.rows()).max(axis=1)
    bound = np.float32(448.0)
    quotient, product = amax / bound, amax * (np.float32(1.0) / bound)
    assert np.count_nonzero(quotient == product) == 191  # of 512
    for target in program.SCALED:
        assert np.array_equal(found[f"amax/{target}"], amax), target
        assert np.array_equal(found[f"scale/{target}"], product if target in NVIDIA else quotient), target


def test_loops_reductions_slots_and_packing(tmp_path: Path) -> None:
    """Compiled for the default targets and interpreted, these kernels give what NumPy and the reference give."""
    found = _found("blocks", tmp_path) | _found("interpreted", tmp_path, TRITON_INTERPRET="1")
    want = _packed() | _cached()
    for target in (*EMULATED_BY_DEFAULT, "interpreter"):
        for name, right in want.items():
            assert found[f"{name}/{target}"].tobytes() == right.tobytes(), (target, name)


def _packed() -> dict[str, Array]:
    codes = _codes("cast/ptx_satfinite/float32/float4_e2m1fn", program.rows()[:16])
    return {"packed": codes[:, ::2] | codes[:, 1::2] << 4, "sums": codes.sum(axis=1, dtype=np.int32)}


def _cached() -> dict[str, Array]:
    x, slots = program.rows()[: program.TOKENS, : program.WIDTH], program.SLOTS_OF_TOKENS
    scale = np.abs(x).max(axis=1) / np.float32(448.0)
    codes = _codes("cast/ocp_saturate/float32/float8_e4m3fn", x / scale[:, None])
    cache, scales = np.full((program.SLOTS, program.WIDTH), 0xAA, np.uint8), np.full(program.SLOTS, -1.0, np.float32)
    out = np.zeros(x.shape, np.float32)
    back = expected(Claim.parse("cast/ieee/float8_e4m3fn/float32"), Coded("float8_e4m3fn", codes))["codes"].low.data
    for token, slot in enumerate(slots):
        if slot >= 0:
            cache[slot], scales[slot] = codes[token], scale[token]
            out[token] = back.view(np.float32)[token] * scale[token]
    return {"cache": cache, "scales": scales, "out": out}


@pytest.mark.parametrize("page", ["triton-fp16-to-e4m3fn-nan", "triton-fp8-to-bf16-specials"])
def test_a_report_for_upstream_runs_as_it_stands(page: str, tmp_path: Path) -> None:
    """Its script needs torch and Triton only, and without a GPU prints what the page says that it prints."""
    text = (UPSTREAM / f"{page}.md").read_text()
    script, said = re.findall(r"^```(?:python|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    imported = {m.split(".")[0] for m in re.findall(r"^(?:import|from) ([\w.]+)", script, re.MULTILINE)}
    assert imported <= {"numpy", "torch", "triton", "re"}
    path = tmp_path / "report.py"
    path.write_text(script)
    ended = subprocess.run(
        [sys.executable, str(path)], env=_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout == said
