"""What Triton compiles our kernels to, and what that code gives: a program of its own, for pytest imports no Triton.

``python -m narrowgauge.suites.portability.native_program WHAT OUT`` writes an .npz. WHAT is one of:

* formats: for each target and format of a cast from float32, the conversions in the code, or "refused";
* facts: codes and values of native casts and of the soft one, and scales, on emulated targets;
* blocks: what the kernels of triton_blocks give on the default targets;
* interpreted: the same in Triton's interpreter (with TRITON_INTERPRET=1).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from narrowgauge.devices.discovery import EMULATED_BY_DEFAULT
from narrowgauge.devices.targets import EMULATED, TARGETS

Found = dict[str, npt.NDArray[Any]]
FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
#: conversions of float32 by an instruction, in PTX and in AMDGCN
CONVERSION = re.compile(r"cvt\.rn\.(?:satfinite\.)?(?:e4m3|e5m2|bf16)[.\w]*|v_cvt_\w*(?:fp8|bf8|bf16)_f32")
POINTERS = {"float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16", "uint8": "*u8", "int32": "*i32"}
#: what ``facts`` and the test of it agree on
ENCODED_FROM_HALF = tuple(t for t in EMULATED if t not in ("sm_80", "sm_89"))  # two are enough of one instruction
DECODED = tuple(t for t in EMULATED if t != "gfx1250")  # its conversions of eight back have no model
SCALED = ("sm_90", *(t for t in EMULATED_BY_DEFAULT if t != "sm_90"))
ROWS, COLUMNS, TOKENS, WIDTH, SLOTS = 512, 300, 9, 96, 12
SLOTS_OF_TOKENS = (3, -1, 0, 7, 11, -1, 5, 4, 1)


def compiled(jitted: Any, target: str, arguments: Sequence[Any]) -> tuple[Any, dict[str, str]]:
    """A kernel compiled for a target as a launch with these arguments would, and its signature."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    known, signature, constants = TARGETS[target], {}, {}
    for index, (parameter, value) in enumerate(zip(jitted.params, arguments, strict=True)):
        if parameter.is_constexpr:
            signature[parameter.name], constants[(index,)] = "constexpr", value
        elif hasattr(value, "data_ptr"):
            signature[parameter.name] = POINTERS[str(value.dtype).removeprefix("torch.")]
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
    number: int | str = int(target.removeprefix("sm_")) if known.backend == "cuda" else target
    made = compile(ASTSource(jitted, signature, constants), target=GPUTarget(known.backend, number, known.warp))
    return made, signature


def run(jitted: Any, target: str, grid: int, *arguments: Any) -> None:
    """Launch a kernel in the emulator, or in the interpreter."""
    if target == "interpreter":
        jitted[(grid,)](*arguments)
        return
    from narrowgauge.devices.emulator import launching

    made, signature = compiled(jitted, target, arguments)
    warp, metadata = TARGETS[target].warp, made.metadata
    if TARGETS[target].backend == "cuda":
        text: str = made.asm["ptx"]
        fronts: tuple[launching.Front, ...] = (launching.nvidia,)
    else:
        text, threads = made.asm["llir"], metadata.num_warps * warp
        fronts = launching.amd_fronts(text, made.asm["amdgcn"], target, threads, metadata.enable_fp_fusion)
    launching.launch(fronts, text, signature, arguments, (grid, 1, 1), metadata.shared, warp, 0xA5)


def formats() -> Found:
    import torch
    import triton.language as tl

    from narrowgauge.kernels_under_test.triton_cast import TRITON_TYPES, native_cast, native_decode

    x, codes, wide = torch.zeros(1024), torch.zeros(1024, dtype=torch.uint8), torch.zeros(1024, dtype=torch.bfloat16)
    launches = {name: (native_cast, (x, codes, 1024, TRITON_TYPES[name], 1024)) for name in FP8}
    launches["bfloat16"] = native_decode, (x.view(torch.int32), wide, 1024, tl.float32, 1024)
    found: Found = {}
    for target in TARGETS:
        for name, (jitted, arguments) in launches.items():
            try:
                made, _ = compiled(jitted, target, arguments)
                text = made.asm.get("ptx") or made.asm["amdgcn"]
                found[f"{target}/{name}"] = np.array(" ".join(sorted(set(CONVERSION.findall(text)))))
            except Exception as error:  # whatever the compiler raises, it does not compile
                print(f"{target} {name}: {error}", file=sys.stderr)
                found[f"{target}/{name}"] = np.array("refused")
    return found


def facts() -> Found:
    import torch

    from narrowgauge.kernels_under_test import triton_blocks, triton_cast
    from narrowgauge.kernels_under_test.triton_codec import LAYOUTS

    found: Found = {}
    half = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    single = torch.from_numpy(edges())
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    for target in ENCODED_FROM_HALF:
        out = torch.zeros(65536, dtype=torch.uint8)
        run(triton_cast.native_cast, target, 64, half, out, 65536, triton_cast.TRITON_TYPES[FP8[0]], 1024)
        found[f"encode/{target}"] = out.numpy()
    for target in DECODED:
        for name in FP8[:2]:
            if name in TARGETS[target].triton:
                back = torch.zeros(256, dtype=torch.bfloat16)
                run(triton_cast.native_decode, target, 1, codes, back, 256, triton_cast.TRITON_TYPES[name], 256)
                found[f"decode/{name}/{target}"] = back.view(torch.int16).numpy().view(np.uint16)
    layout = LAYOUTS[FP8[0]]
    shape = (layout.mantissa, layout.bias, layout.top, layout.sign, layout.top, layout.top, layout.nan, layout.nan)
    for target in EMULATED:
        out = torch.zeros(single.numel(), dtype=torch.uint8)
        grid = -(-single.numel() // 1024)
        run(triton_cast.soft_cast, target, grid, single, out, single.numel(), False, *shape, True, 1024)
        found[f"soft/{target}"] = out.numpy()
    x = torch.from_numpy(rows())
    for target in SCALED:
        amaxes, scales = torch.zeros(ROWS), torch.zeros(ROWS)
        run(triton_blocks.row_scale, target, ROWS, x, amaxes, scales, COLUMNS, 448.0, 128)
        found[f"amax/{target}"], found[f"scale/{target}"] = amaxes.numpy(), scales.numpy()
    return found


def blocks(targets: Sequence[str] = EMULATED_BY_DEFAULT) -> Found:
    import torch

    from narrowgauge.kernels_under_test import triton_blocks

    found: Found = {}
    x, tokens = torch.from_numpy(rows()[:16]), torch.from_numpy(rows()[:TOKENS, :WIDTH].copy())
    slots = torch.tensor(SLOTS_OF_TOKENS, dtype=torch.int32)
    for target in targets:
        packed, sums = torch.zeros(16, COLUMNS // 2, dtype=torch.uint8), torch.zeros(16, dtype=torch.int32)
        run(triton_blocks.pack_fp4, target, 16, x, packed, sums, COLUMNS, 64)
        cache, scales = torch.full((SLOTS, WIDTH), 0xAA, dtype=torch.uint8), torch.full((SLOTS,), -1.0)
        run(triton_blocks.kv_write, target, TOKENS, tokens, slots, cache, scales, WIDTH, 448.0, 128)
        out = torch.full((TOKENS, WIDTH), 7.0)
        run(triton_blocks.kv_read, target, TOKENS, cache, scales, slots, out, WIDTH, 128)
        for name, value in (("packed", packed), ("sums", sums), ("cache", cache), ("scales", scales), ("out", out)):
            found[f"{name}/{target}"] = value.numpy()
    return found


def rows() -> npt.NDArray[np.float32]:
    """ROWS of COLUMNS floats of many sizes, the same in every process."""
    random = np.random.default_rng(448)
    return (random.standard_normal((ROWS, COLUMNS)) * 2.0 ** random.integers(-12, 12, (ROWS, 1))).astype(np.float32)


def edges() -> npt.NDArray[np.float32]:
    """Every bfloat16 with what lies next to it among the float32, and specials."""
    bits = np.arange(65536, dtype=np.uint32) << np.uint32(16)
    return np.concatenate([bits, bits + np.uint32(1), bits - np.uint32(1)]).view(np.float32)


def main() -> None:
    what, path = sys.argv[1:]
    makers: dict[str, Callable[[], Found]] = {
        "formats": formats,
        "facts": facts,
        "blocks": blocks,
        "interpreted": lambda: blocks(["interpreter"]),
    }
    arrays: dict[str, Any] = makers[what]()
    np.savez(path, **arrays)


if __name__ == "__main__":
    main()
