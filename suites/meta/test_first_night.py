"""What AMD's first night runs besides the lane: that it is assembled for AMD's GPUs, and counts right."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from narrowgauge.command import devices, probe
from narrowgauge.kernels_under_test import MODULES
from narrowgauge.suites.meta.marks import needs_triton

pytestmark = [pytest.mark.meta, needs_triton]

#: torch and Triton are imported in a child alone
CHILD = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from narrowgauge.kernels_under_test import first_night_amd as night

def code(asm, target):
    signature = {"x_pointer": "*fp32", "y_pointer": "*i32", "ASM": "constexpr", "BLOCK": "constexpr"}
    source = ASTSource(fn=night.ask, signature=signature, constexprs={(2,): asm, (3,): 64})
    return triton.compile(source, target=GPUTarget("hip", target, 64)).asm["amdgcn"].splitlines()

words = ("v_cvt_pk", "s_setreg", "v_rcp")
told = {
    "narrow": [x.strip() for x in code(night.narrow("v_cvt_pk_bf8_f32", 1), "gfx950") if x.strip().startswith(words)],
    "plain": [x.strip() for x in code(night.plain("v_rcp_f32"), "gfx942") if x.strip().startswith(words)],
}
# 1 / 1, 1 / 2 and 1 / 3; 1 / 3 rounded is 0x3eaaaaab
bits = np.array([0x3f800000, 0x3effffff, 0x3eaaaaac], np.int32)
told["differences"] = night.differences("v_rcp_f32", np.array([1, 2, 3], np.float32), bits).tolist()
told["at 4"] = {name: float(function(np.float64(4))) for name, function in night.FUNCTIONS.items()}
told["counted"] = night.counted(np.array([0, 0, -1, 1, 0], np.int8))
told["probed"] = night.PROBED
sys.argv = ["first_night_amd", "--out", sys.argv[1]]
told["exit"] = night.main()
out = Path(sys.argv[2])
told["written"] = out.exists()

# A GPU that rounds every function rightly, gives code 7 for every conversion, and has no bf8; no probes.
def answers(asm, x):
    if "bf8" in asm:
        raise RuntimeError("assembler: instruction not supported")
    if "setreg" in asm:
        return np.full(x.size, 0xABCD07, np.int32)
    return night.FUNCTIONS[asm.split()[0]](x.astype(np.float64)).astype(np.float32).view(np.int32)

night.LAST = night.FIRST + 2048
said = []
night.answers, night.kept = answers, lambda path, *rest, **given: said.append([path.name, *rest, given])
night.torch.version.hip = "7.2"
night.torch.cuda.is_available = lambda: True
night.torch.cuda.get_device_properties = lambda i: SimpleNamespace(gcnArchName="gfx942")
told["second_exit"] = night.main()
told["files"] = sorted(p.name for p in out.iterdir())
told["commands"] = said
told["said"] = json.loads((out / "instructions.json").read_text())
told["kept"] = {n: [v.dtype.str, v.size] for n, v in np.load(out / "differences.npz").items()}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("night") / "out"
    # A cache of its own: an entry of an earlier run would not be assembled.
    environment = {**os.environ, "TRITON_CACHE_DIR": str(out.parent / "cache"), "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(out)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_a_conversion_runs_between_two_settings_of_its_mode(told: dict[str, Any]) -> None:
    first, conversion, last = told["narrow"]
    assert first == "s_setreg_imm32_b32 hwreg(1, 23, 1), 1"
    assert conversion.startswith("v_cvt_pk_bf8_f32 v")
    assert last == "s_setreg_imm32_b32 hwreg(1, 23, 1), 0"


def test_a_function_is_the_instruction_itself(told: dict[str, Any]) -> None:
    (only,) = told["plain"]
    assert only.startswith("v_rcp_f32 v")


def test_differences_are_in_last_bits_of_the_rounded_result(told: dict[str, Any]) -> None:
    assert told["differences"] == [0, -1, 1]
    assert told["counted"] == {"-1": 1, "0": 3, "1": 1}
    assert told["at 4"] == {"v_rcp_f32": 0.25, "v_sqrt_f32": 2, "v_rsq_f32": 0.5, "v_exp_f32": 16, "v_log_f32": 2}


def test_a_machine_without_an_amd_gpu_is_unfit_and_nothing_is_written(told: dict[str, Any]) -> None:
    assert (told["exit"], told["written"]) == (3, False)


def test_answers_are_counted_and_kept(told: dict[str, Any]) -> None:
    assert told["second_exit"] == 0
    assert told["files"] == ["differences.npz", "instructions.json"]
    functions = told["said"]["functions"]
    assert {name: found["differences"] for name, found in functions.items()} == {
        f"v_{name}_f32": {"0": 2048} for name in ("rcp", "sqrt", "rsq", "exp", "log")
    }
    assert told["kept"] == {name: ["|i1", 2048] for name in functions}
    conversions = told["said"]["conversions"]
    assert conversions["v_cvt_pk_fp8_f32 FP16_OVFL=1"]["inf"] == "0x07"
    assert conversions["v_cvt_pk_bf8_f32 FP16_OVFL=0"] == "assembler: instruction not supported"
    assert len(conversions) == 4


def test_commands_are_such_as_narrowgauge_knows(told: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    devices.register(subparsers)
    probe.register(subparsers)
    for _, *arguments, variables in told["commands"]:
        parser.parse_args([*arguments, "--json"])
        assert set(variables) <= {"HIP_VISIBLE_DEVICES"}
    names = [command[0] for command in told["commands"]]
    assert len(set(names)) == len(names) == 3 + len(told["probed"])


def test_kernels_that_are_probed_are_ours(told: dict[str, Any]) -> None:
    package = Path(__file__).resolve().parents[2]
    sources = "".join((package / "kernels_under_test" / f"{m.rpartition('.')[2]}.py").read_text() for m in MODULES)
    missing = [name for name in told["probed"] if f"def {name}(" not in sources and f'"{name}"' not in sources]
    assert missing == []
