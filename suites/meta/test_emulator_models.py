"""Models of instructions in the emulator: the same answers, their names on the way to the verdict, and the fuzzer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from narrowgauge.contracts.coded import Coded
from narrowgauge.contracts.operations import Claim
from narrowgauge.devices.emulator.launching import merge
from narrowgauge.devices.emulator.modelled import note
from narrowgauge.devices.emulator.models.nvidia import NVIDIA, nvidia_model
from narrowgauge.devices.emulator.ptx_convert import QUICK
from narrowgauge.devices.emulator.ptx_operands import TYPES
from narrowgauge.reference.behaviour import behaviour_of
from narrowgauge.reference.judge import judge
from narrowgauge.reference.message import failure_message
from narrowgauge.suites.meta import emulator_fuzz
from narrowgauge.suites.meta.marks import needs_triton
from narrowgauge.suites.meta.test_emulator_ptx import apply, run

pytestmark = pytest.mark.meta

CAST = Claim.parse("cast/ocp_saturate/float32/float8_e4m3fn")
ONE, TWO, THREE = 0x3F800000, 0x40000000, 0x40400000
SEED = 160
OPEN, FIXED = {"div.full.f32 (PTX 9.1)": True}, {"cvt.rn.satfinite.e4m3x2.f32 (PTX 9.1)": False}


@pytest.mark.parametrize("opcode", QUICK)
def test_quick_conversions_are_their_models(opcode: str) -> None:
    """All codes of 16 bits; of float32 both sides of every tie of float16 and bfloat16, subnormals, NaNs, a sample."""
    model = nvidia_model(opcode)
    assert model is not None
    if model.inputs == ("f32",) or model.inputs == ("f32", "f32"):
        upper = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
        half = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32) + np.uint32(0x1000)
        sample = np.random.default_rng(5).integers(0, 2**32, 2**16, np.uint32)
        near = [upper, upper + 0x7FFF, upper + 0x8000, upper + 0x8001, upper + 1, half - 1, half, half + 1, sample]
        bits = np.concatenate(near).astype(np.uint32)
    else:
        bits = np.arange(2**16, dtype=np.uint32)
    operands = [bits, np.roll(bits, 77)][: len(model.inputs)]
    answer = model.run(*operands)
    assert not isinstance(answer, tuple)
    assert not answer.open().any()
    given = [each.astype(f"u{TYPES[model.inputs[0]].itemsize}").view(TYPES[model.inputs[0]]) for each in operands]
    with np.errstate(all="ignore"):
        found = QUICK[opcode](*given)
    pattern = found.view(f"u{found.dtype.itemsize}").astype(np.uint32)
    np.testing.assert_array_equal(pattern, answer.first)


@pytest.mark.parametrize(
    ("opcode", "operands", "want"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32", (THREE, ONE), 0x4438),  # a is the upper code
        ("cvt.rn.satfinite.relu.e5m2x2.f32", (0xC0400000, ONE), 0x003C),
        ("cvt.rz.satfinite.ue8m0x2.f32", (THREE, 0x7F800000), 0x80FE),
    ],
)
def test_models_answer_in_the_machine(opcode: str, operands: tuple[int, int], want: int) -> None:
    loads = "\tld.global.b32 %r1, [%d0];\n\tld.global.b32 %r2, [%d0+8];"
    body = f"{loads}\n\t{opcode} %h1, %r1, %r2;\n\tcvt.u64.u16 %d9, %h1;\n\tst.global.b64 [%d1], %d9;"
    assert int(run(body, [operands[0]], [operands[1]])[0]) == want


def test_stochastic_rounding_takes_a_vector_and_random_bits() -> None:
    """1.0625 is half a step above 1: the highest random bit decides, of lane 0 up and of lane 1 down."""
    body = """
	ld.global.b32 %r1, [%d0];
	ld.global.b32 %r2, [%d0+8];
	cvt.rs.satfinite.e4m3x4.f32 %r3, {%r1, %r1, %r1, %r1}, %r2;
	cvt.u64.u32 %d9, %r3;
	st.global.b64 [%d1], %d9;"""
    assert [int(w) for w in run(body, [0x3F880000] * 2, [0x80000000, 0])] == [0x38393838, 0x38383838]


@pytest.mark.parametrize(
    ("opcode", "operands", "want"),
    [
        ("div.full.f32", (THREE, TWO), 0x3FC00000),
        ("ex2.approx.ftz.f32", (TWO,), 0x40800000),
        ("ex2.approx.ftz.f32", (0xC3008000,), 0),  # 2^-128.5 is flushed
        ("ex2.approx.f32", (0xC3008000,), 0x0016A09E),
        ("lg2.approx.f32", (0x40800000,), TWO),
        ("rcp.approx.ftz.f32", (TWO,), 0x3F000000),
        ("sqrt.approx.f32", (0x40800000,), TWO),
        ("rsqrt.approx.f32", (0x40800000,), 0x3F000000),
        ("sin.approx.f32", (0,), 0),
        ("cos.approx.f32", (0,), ONE),
        ("tanh.approx.f32", (0x7F800000,), ONE),
    ],
)
def test_approximations_by_values_that_are_exact(opcode: str, operands: tuple[int, ...], want: int) -> None:
    assert apply(opcode, *([each] for each in operands)) == [want]


def test_an_answer_is_open_only_where_a_lane_that_took_part_has_several() -> None:
    """ex2 of zero is exactly 1 by its words; of 0.5 it is not. Once open, a model stays so."""
    model = NVIDIA["ex2.approx.f32"]
    answer = model.run(np.array([0, 0x3F000000], np.uint32))
    assert not isinstance(answer, tuple)
    models: dict[str, bool] = {}
    note(models, model, answer, np.array([True, False]))
    assert models == {"ex2.approx.f32 (PTX 9.1)": False}
    note(models, model, answer, None)
    assert models == {"ex2.approx.f32 (PTX 9.1)": True}
    merge(models, {"ex2.approx.f32 (PTX 9.1)": False, "other": False})
    assert models == {"ex2.approx.f32 (PTX 9.1)": True, "other": False}


def test_sines_far_out_may_be_anything() -> None:
    model = NVIDIA["sin.approx.f32"]
    answer = model.run(np.array([0x3F800000, 0x49742400], np.uint32))  # 1, 1e6
    assert not isinstance(answer, tuple)
    low, high = answer.allows(np.array([0xBF800000] * 2, np.uint32)), answer.allows(np.array([ONE] * 2, np.uint32))
    assert (low.tolist(), high.tolist()) == ([False, True], [False, True])


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_what_an_open_model_gave_is_disputed_at_worst() -> None:
    x = Coded("float32", np.array([1.0, 500.0], np.float32).view(np.uint32))
    right = behaviour_of(CAST).run(x)
    wrong = {"codes": Coded(CAST.format, np.array([0x39, 0x7E], np.uint8))}
    shape = {"codes": Coded(CAST.format, np.array([0x38], np.uint8))}
    both = FIXED | OPEN
    results = [judge(CAST, x, wrong, models=m).result for m in (None, {}, FIXED, both)]
    assert results == ["failed", "failed", "failed", "disputed"]
    assert judge(CAST, x, right, models=both).result == "passed"
    assert judge(CAST, x, shape, models=both).result == "failed"  # no instruction's last bit is to blame for a shape
    verdict = judge(CAST, x, wrong, models=both)
    assert verdict.models == both
    text = failure_message(verdict, "theirs")
    assert "disputed: the instruction set allows several answers of div.full.f32 (PTX 9.1); the emulator" in text
    assert "\nemulated with models: cvt.rn.satfinite.e4m3x2.f32 (PTX 9.1), div.full.f32 (PTX 9.1)" in text
    assert "emulated with models" not in failure_message(judge(CAST, x, wrong), "theirs")
    assert "breaks: a specification" in failure_message(judge(CAST, x, wrong, models=FIXED), "theirs")


# --- the fuzzer ------------------------------------------------------------------------------------------------------


@needs_triton
def test_random_kernels_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    """Kernels of which none has anything that the compiler does otherwise: equal to the last bit."""
    assert emulator_fuzz.compare(3, SEED, "sm_90", tmp_path) == []


def test_the_fuzzer_sees_one_bit_and_an_error() -> None:
    f, i = np.array([1.0, np.nan, 0.0], np.float32), np.arange(3, dtype=np.int32)

    def apart(**other: np.ndarray[Any, Any]) -> str:
        found = {"a/f0": f, "a/i0": i, **{f"b/{name}": array for name, array in other.items()}}
        return emulator_fuzz.difference(found, "a", "b", 0)

    assert apart(f0=np.array([1.0, -np.nan, 0.0], np.float32), i0=i) == ""
    assert "1 of 3 f" in apart(f0=np.array([1.0, np.nan, -0.0], np.float32), i0=i)
    assert "1 of 3 i" in apart(f0=f, i0=i ^ np.array([0, 0, 1], np.int32))
    assert apart(e0=np.array("KernelError: x")) == "KernelError: x"
