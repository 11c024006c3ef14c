# SPDX-License-Identifier: Apache-2.0
"""Which matrix units our products become: the mapping from opcodes, loops, what is said of claims, and a record.

The record (instructions.json) is what Triton made of every product of ours; another release differs, and says so here.
``narrowgauge instructions --target sm_90 … --json`` and record_instructions.py make the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.command import main
from narrowgauge.contracts.operations import Claim, Matmul
from narrowgauge.contracts.verdict import Exit
from narrowgauge.devices import machine_code
from narrowgauge.reference.behaviour import multiplying_of
from narrowgauge.reference.instructions import _RULES, code_of, findings, unit_of
from narrowgauge.reference.units.registry import UNITS
from narrowgauge.suites.meta.marks import needs_triton
from narrowgauge.suites.meta.record_instructions import key, recorded

pytestmark = pytest.mark.meta

RECORD = json.loads((Path(__file__).parent / "instructions.json").read_text())
#: what is compiled here; the rest of the record is not
COMPILED = "triton_native_fp8_tensor"
TARGETS = ("sm_90", "gfx942")
#: opcodes as compilers write them, and what they are (facts of the instruction sets, not of our table)
OPCODES = (
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", "hopper.qgmma"),
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k32.f16.e5m2.e4m3", "hopper.qgmma_f16"),
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "hopper.hgmma"),
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k16.f16.f16.f16", "hopper.hgmma_f16"),
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32", "hopper.hgmma_tf32"),
    ("sm_90", "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", "nvidia.imma"),
    ("sm_90", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "hopper.mma_fp8"),
    ("sm_89", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "ada.qmma"),
    ("sm_89", "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16", "ada.qmma_f16"),
    ("sm_120", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "rtx_blackwell.qmma"),
    ("sm_80", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "ampere.hmma"),
    ("sm_86", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "ampere.hmma_f16"),
    ("sm_80", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "ampere.hmma_tf32"),
    ("sm_90", "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", "nvidia.imma_satfinite"),
    ("sm_90", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "nvidia.imma"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::f16", "blackwell.tcgen05"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::tf32", "blackwell.tcgen05_tf32"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::f8f6f4", "blackwell.tcgen05_fp8"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.block32", "blackwell.mxf8f6f4"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32", "blackwell.mxf4"),
    ("sm_100", "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16", "blackwell.mxf4nvf4"),
    ("sm_103", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ""),  # no model of sm_103
    ("gfx942", "v_mfma_f32_32x32x16_fp8_fp8", "cdna3.mfma_fp8"),
    ("gfx942", "v_mfma_f32_32x32x8_f16", "cdna3.mfma"),
    ("gfx942", "v_mfma_f32_32x32x8_bf16", "cdna3.mfma"),
    ("gfx942", "v_mfma_f32_32x32x4_xf32", "cdna3.mfma_xf32"),
    ("gfx942", "v_mfma_f32_32x32x2_f32", "cdna3.mfma_f32"),
    ("gfx942", "v_mfma_i32_32x32x16_i8", "cdna.mfma_i8"),
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", "cdna2.mfma"),
    ("gfx90a", "v_mfma_f32_32x32x8f16", "cdna2.mfma"),
    ("gfx90a", "v_mfma_f32_32x32x4bf16", "cdna2.mfma_bf16_old"),
    ("gfx90a", "v_mfma_f32_32x32x2f32", "cdna2.mfma_f32"),
    ("gfx950", "v_mfma_f32_32x32x64_f8f6f4", ""),
    ("gfx950", "v_mfma_f32_32x32x16_bf16", ""),
    ("gfx1100", "v_wmma_i32_16x16x16_iu8", "rdna.wmma_iu8"),
    ("gfx1100", "v_wmma_f32_16x16x16_f16", ""),
)


@pytest.mark.parametrize(("target", "opcode", "unit"), OPCODES)
def test_an_opcode_is_a_unit_of_that_target(target: str, opcode: str, unit: str) -> None:
    assert unit_of(target, opcode) == (unit or opcode)
    assert not unit or target in UNITS[unit].targets


def test_every_rule_is_tried() -> None:
    named = {unit for _, _, unit in OPCODES}
    ends = {rule.lstrip("*") for _, _, rule in _RULES} - {".fp8", ".fp8_f16"}  # their name depends on the family
    untried = {end for end in ends if not any(unit.endswith(end) for unit in named)}
    assert untried == {"rdna.wmma_iu4"}


PTX = """\
$L__BB0_1:
\tld.global.b32 %r1, [%rd1];
$L__BB0_2:
\twgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%f1}, %rd2, %rd3;
\tPROMOTION
\t@%p1 bra \t$L__BB0_2;
\tmul.f32 \t%f3, %f3, %f4;
\t@%p2 bra $L__BB0_1;
\tadd.f32 \t%f5, %f3, %f4;
\t@%p3 bra $L__BB0_9;
$L__BB0_9:
"""
LOOPLESS = "\twgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%f1}, %rd2, %rd3;\n\tadd.f32 \t%f5, %f3, %f4;\n"


class Compiled:
    """As Triton's, of AMD: nothing is disassembled."""

    def __init__(self, text: str) -> None:
        self.asm = {"amdgcn": text}


def launched(text: str) -> dict[str, Any]:
    return {"kernel": "one", **machine_code.instructions(Compiled(text))}


def test_the_loop_is_the_inner_one_with_the_matrix_unit() -> None:
    found = machine_code.instructions(Compiled(PTX.replace("PROMOTION", "add.f32 %f3, %f1, %f2;")))
    assert found["loop"] == {"add.f32": 1, "bra": 1, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3": 1}
    assert found["code"]["add.f32"] == 2
    assert machine_code.instructions(Compiled(LOOPLESS))["loop"]["add.f32"] == 1


@pytest.mark.parametrize(
    ("accumulator", "promoted", "said"),
    [
        ("float32", False, ("no_promotion", True)),
        ("promoted_128", False, ("no_promotion", True)),
        ("tensor_core_13", False, ("no_promotion", False)),
        ("float32", True, ("thirteen_bits", True)),
        ("promoted_128", True, ("thirteen_bits", False)),
    ],
)
def test_a_unit_of_13_bits_is_held_against_the_claim(accumulator: str, promoted: bool, said: tuple[str, bool]) -> None:
    claim = Claim(Matmul("vllm.fp8_tensor", accumulator), "float8_e4m3fn", "bfloat16")
    text = PTX.replace("PROMOTION", "fma.rn.f32 %f3, %f1, %f2, %f3;" if promoted else "mov.b32 %r1, %r2;")
    (found,) = findings(code_of("sm_90", [launched(text)]), multiplying_of(claim))
    assert (found.name, found.contradicts) == said


@pytest.mark.parametrize(
    ("target", "source", "opcode", "said"),
    [
        ("gfx942", "float8_e4m3fn", "v_mfma_f32_32x32x8_f16", "gfx942 has no unit for float8_e4m3fn"),
        ("gfx950", "float8_e4m3fnuz", "v_mfma_f32_32x32x16_f16", "gfx950 has no unit for float8_e4m3fnuz"),
        ("gfx942", "float8_e4m3fnuz", "v_mfma_f32_32x32x8_f16", "larger tiles may go to the fp8 unit"),
        ("sm_90", "float8_e4m3fn", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "larger tiles may go"),
        ("sm_80", "float8_e4m3fn", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80 has no unit for"),
        ("gfx942", "float8_e4m3fnuz", "v_mfma_f32_32x32x16_fp8_fp8", ""),
    ],
)
def test_fp8_that_is_converted_is_told(target: str, source: str, opcode: str, said: str) -> None:
    claim = Claim(Matmul("vllm.fp8_tensor", "float32"), source, "bfloat16")
    found = findings(code_of(target, [launched(f"\t{opcode} a, b\n")]), multiplying_of(claim))
    assert [said in one.text for one in found if one.name == "converted"] == ([True] if said else [])
    assert not any(one.contradicts for one in found)


def test_sums_in_float16_are_told() -> None:
    claim = Claim(Matmul("plain.matmul", "float32"), "float16", "float16")
    text = "\tmma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 a, b\n"
    (found,) = findings(code_of("sm_90", [launched(text)]), multiplying_of(claim))
    assert (found.name, found.contradicts) == ("float16_sums", True)


@needs_triton
@pytest.mark.emulated
def test_what_is_compiled_is_what_was_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    targets = [word for name in TARGETS for word in ("--target", name)]
    assert main(["instructions", COMPILED, *targets, "--json"]) == Exit.OK
    found = {key(one): one for one in json.loads(capsys.readouterr().out)}
    assert set(found) == {f"{COMPILED}/float8_e4m3{kind}/{name}" for kind in ("fn", "fnuz") for name in TARGETS}
    for name, one in found.items():
        assert recorded(one) == RECORD["found"][name], f"{name}; recorded with Triton {RECORD['triton']}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--target", "sm_91"], "unknown target 'sm_91'"),
        (["--rows", "0"], "--rows 0; expected 1 or more"),
        (["--kernels", "nowhere.py"], "'nowhere.py': no such file"),
    ],
)
def test_a_bad_call_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["instructions", *words]) == Exit.BAD_INPUT
    assert says in capsys.readouterr().err


def test_the_record_says_what_the_facts_say() -> None:
    """Triton's default on Hopper is 13 bits all along K; OCP's fp8 is float16 on MI300, and FNUZ on MI350."""
    found = RECORD["found"]
    fast, own = (f"triton_native_fp8_tensor_fast/float8_e4m3{kind}" for kind in ("fn", "fnuz"))
    assert found[f"{fast}/sm_90"]["units"] == ["hopper.qgmma"]
    assert not found[f"{fast}/sm_90"]["sums_in_loop"]
    assert found["triton_native_fp8_tensor/float8_e4m3fn/sm_90"]["sums_in_loop"]
    assert found[f"{fast}/gfx942"]["units"] == ["cdna3.mfma"]
    assert found[f"{own}/gfx942"]["units"] == ["cdna3.mfma_fp8"]
    assert found[f"{own}/sm_90"] == "refused"
    assert found["triton_dot_scaled_nvfp4/float4_e2m1fn/gfx950"] == "refused"
