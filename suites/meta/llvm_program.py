"""Small kernels of LLVM IR, and what comes of running them in the emulator."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from narrowgauge.devices.emulator import launching, llvm_ir, ptx
from narrowgauge.devices.emulator.memory import GlobalMemory, Region
from narrowgauge.devices.targets import TARGETS

M = 0xFFFFFFFF
OVFL = "  tail call void @llvm.amdgcn.s.setreg(i32 1473, i32 1)"
IN, OUT = 0x10000, 0x20000
FRAME = """
@global_smem = external local_unnamed_addr addrspace(3) global [0 x i8], align 16
define amdgpu_kernel void @probe(ptr addrspace(1) captures(none) %0, ptr addrspace(1) %1, i32 inreg %2) #0 !dbg !4 {{
  %id = tail call i32 @llvm.amdgcn.workitem.id.x(), !dbg !14
  %wide = zext nneg i32 %id to i64
  %from = getelementptr inbounds <{columns} x i64>, ptr addrspace(1) %0, i64 %wide
  %to = getelementptr inbounds i64, ptr addrspace(1) %1, i64 %wide
{body}
  ret void
}}
attributes #0 = {{ "denormal-fp-math-f32"="{denormals}" }}
!1 = !DIFile(filename: "probe.py", directory: "somewhere")
!4 = distinct !DISubprogram(name: "probe", scope: !1, file: !1, line: 3)
!14 = !DILocation(line: 7, column: 3, scope: !4)
"""
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "half": 16, "bfloat": 16, "double": 64}
Words = npt.NDArray[np.uint64]


def run(
    body: str, *columns: list[int], target: str = "gfx942", threads: int = 0, fusion: bool = True,
    denormals: str = "ieee", fill: int = 0xA5, choice: str = "first", used: dict[str, bool] | None = None,
    right: bool = False,
) -> Words:  # fmt: skip
    """Words that each thread stored at %to. A thread's inputs are the i64 at %from, … ``used``: gets the models."""
    warp = TARGETS[target].warp
    rows = len(columns[0]) if columns else threads or warp
    threads = threads or max(warp, -(-rows // warp) * warp)
    given = np.zeros((threads, max(1, len(columns))), np.uint64)
    for i, column in enumerate(columns):
        given[:rows, i] = np.array([value & (1 << 64) - 1 for value in column], np.uint64)
    out = np.full(threads, 0x5555555555555555, np.uint64)
    text = FRAME.format(columns=given.shape[1], body=body, denormals=denormals)
    kernel = llvm_ir.parse(text, target, threads, fusion, right)
    program, parameters = kernel.program, kernel.parameters
    memory = GlobalMemory(
        [Region("argument 'x'", IN, given.view(np.uint8).ravel()), Region("argument 'out'", OUT, out.view(np.uint8))]
    )
    held = {p.name: ptx.parameter_bytes(p, v) for p, v in zip(parameters, (IN, OUT, 77), strict=True)}
    models = launching.run(program, (1, 1, 1), memory, 256, warp, held, fill, choice)
    if used is not None:
        used.update(models)
    return out[:rows]


def inputs(kind: str, count: int) -> str:
    """%a, %b, … of a kind from the thread's words."""
    lines = []
    for i, name in enumerate("abcd"[:count]):
        narrow = f"trunc i64 %w{name} to i{BITS[kind]}" if BITS[kind] < 64 else f"freeze i64 %w{name}"
        lines += [
            f"  %p{name} = getelementptr i64, ptr addrspace(1) %from, i32 {i}",
            f"  %w{name} = load i64, ptr addrspace(1) %p{name}, align 8",
            f"  %n{name} = {narrow}",
            f"  %{name} = bitcast i{BITS[kind]} %n{name} to {kind}",
        ]
    return "\n".join(lines)


def output(kind: str) -> str:
    """Store %r."""
    if kind == "i1":
        return "  %rw = zext i1 %r to i64\n  store i64 %rw, ptr addrspace(1) %to, align 8"
    last = "  %rw = freeze i64 %rb" if BITS[kind] == 64 else f"  %rw = zext i{BITS[kind]} %rb to i64"
    return f"  %rb = bitcast {kind} %r to i{BITS[kind]}\n{last}\n  store i64 %rw, ptr addrspace(1) %to, align 8"


def apply(
    line: str, kind: str, *columns: list[int], to: str = "", before: str = "", target: str = "gfx942", fill: int = 0xA5
) -> list[int]:
    """Results of ``%r = line`` on %a, %b, … of a kind."""
    body = "\n".join([before, inputs(kind, len(columns)), f"  %r = {line}", output(to or kind)])
    return [int(v) for v in run(body, *columns, target=target, fill=fill)]


def f32(*values: float) -> list[int]:
    return [int.from_bytes(struct.pack("<f", value), "little") for value in values]
