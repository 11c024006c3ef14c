"""Asks an AMD GPU what no document says; the suite's own kernels do not need these answers, its models do.

    python -m narrowgauge.kernels_under_test.first_night_amd --out DIR

``instructions.json``  by instruction, how often the result is another than the rounded one, and by how many last bits;
                       what the conversions to fp8 make of infinities, with the overflow mode off and on
``differences.npz``    the same for each input, to build a model from
``probe-KERNEL.json``  portraits of products, from which a model of the matrix unit can be found
``devices-….json``     which GPUs are listed, with each of the first two alone, and with whatever is set

docs/first-night-amd.md says what each settles. It judges nothing, so it has no oracle.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

Array = npt.NDArray[np.float64]

BLOCK = 1024
#: patterns of float32 from 1 up to 4: every significand, with an even and an odd exponent
FIRST, LAST = 0x3F800000, 0x40800000
#: by instruction, the function in float64. Rounding 1 / x and sqrt(x) from float64 to float32 is rounding them once,
#: since 53 >= 2 * 24 + 2; the others are off by float64's own last bits, which tell only near the middle of two results
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "v_rcp_f32": lambda x: 1.0 / x,
    "v_sqrt_f32": np.sqrt,
    "v_rsq_f32": lambda x: 1.0 / np.sqrt(x),
    "v_exp_f32": np.exp2,
    "v_log_f32": np.log2,
}
#: MODE.FP16_OVFL is bit 23 of hardware register 1; it is off again for whatever runs next
MODE = "s_setreg_imm32_b32 hwreg(1, 23, 1), {}"
NARROW = ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
SPECIALS = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan, "1e6": 1e6, "-1e6": -1e6, "448": 448.0, "240": 240.0}
#: products whose portraits say which unit they ran on
PROBED = (
    "torch_matmul_bf16", "torch_matmul_fp16", "torch_scaled_mm", "torch_int_mm", "triton_native_matmul_bfloat16",
    "triton_native_matmul_float16", "triton_native_matmul_fp8", "triton_dot_scaled_mxfp8", "triton_dot_scaled_mxfp4",
)  # fmt: skip


@triton.jit
def ask(x_pointer, y_pointer, ASM: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + at)
    y = tl.inline_asm_elementwise(ASM, "=v,v", [x], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y_pointer + at, y)


def plain(name):
    """The text of an instruction of one operand."""
    return f"{name} $0, $1"


def narrow(name, overflow):
    """A conversion to fp8 under an overflow mode, 0 or 1. The code is in the lowest byte."""
    return "\n".join([MODE.format(overflow), f"{name} $0, $1, $1", MODE.format(0)])


def answers(asm, x):
    """What the GPU makes of float32 numbers, as bits. Their number is a multiple of BLOCK."""
    source = torch.from_numpy(x).cuda()
    result = torch.empty(x.shape, dtype=torch.int32, device="cuda")
    ask[(x.size // BLOCK,)](source, result, ASM=asm, BLOCK=BLOCK)
    return result.cpu().numpy()


def differences(name, x, bits):
    """By how many last bits each result differs from the rounded one; all results are positive."""
    want = FUNCTIONS[name](x.astype(np.float64)).astype(np.float32).view(np.int32)
    return bits - want


def counted(found):
    """How often each difference was seen."""
    values, counts = np.unique(found, return_counts=True)
    return {str(value): int(count) for value, count in zip(values, counts, strict=True)}


def instructions():
    """The table of functions, and each difference."""
    x = np.arange(FIRST, LAST, dtype=np.uint32).view(np.float32)
    table, each = {}, {}
    for name in FUNCTIONS:
        bits = answers(plain(name), x)
        each[name] = differences(name, x, bits).astype(np.int8)
        table[name] = {"results_sha256": hashlib.sha256(bits).hexdigest(), "differences": counted(each[name])}
    return table, each


def infinities():
    """By conversion and overflow mode, the code of each special number; a text where there is no such instruction."""
    x = np.zeros(BLOCK, np.float32)
    x[: len(SPECIALS)] = list(SPECIALS.values())
    table: dict[str, dict[str, str] | str] = {}
    for name in NARROW:
        for overflow in (0, 1):
            try:
                codes = answers(narrow(name, overflow), x) & 0xFF
                told = {n: f"{code:#04x}" for n, code in zip(SPECIALS, codes, strict=False)}
            except Exception as error:  # whatever the compiler raises where it refuses
                table[f"{name} FP16_OVFL={overflow}"] = str(error).strip().splitlines()[-1][:200]
            else:
                table[f"{name} FP16_OVFL={overflow}"] = told
    return table


def kept(path, *arguments, **variables):
    """What a command of narrowgauge says, in a file. In a process of its own: what it does to the GPU stays there."""
    command = [sys.executable, "-m", "narrowgauge", *arguments, "--json"]
    with path.open("w") as file:
        code = subprocess.run(command, stdout=file, env={**os.environ, **variables}, check=False).returncode
    print(f"{path.name}: exit code {code}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Ask an AMD GPU what no document says.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    out = parser.parse_args().out
    if torch.version.hip is None or not torch.cuda.is_available():
        print("first_night_amd: torch sees no AMD GPU here", file=sys.stderr)
        return 3
    out.mkdir(parents=True, exist_ok=True)
    target = torch.cuda.get_device_properties(0).gcnArchName
    said = {"target": target, "torch": torch.__version__, "hip": torch.version.hip, "triton": triton.__version__}
    table, each = instructions()
    said |= {"functions": table, "conversions": infinities()}
    np.savez_compressed(out / "differences.npz", **each)
    # Written before the probes: they are long, and this may be all that is left of a lost machine.
    (out / "instructions.json").write_text(json.dumps(said, indent=1) + "\n")
    kept(out / "devices-as-set.json", "devices")
    for number in ("0", "1"):
        kept(out / f"devices-{number}.json", "devices", HIP_VISIBLE_DEVICES=number)
    for kernel in PROBED:
        kept(out / f"probe-{kernel}.json", "probe", f"--kernel={kernel}", "--device=hip:0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
