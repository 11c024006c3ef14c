"""``python -m narrowgauge.suites.meta.amd_additions``: what AMD's code generator leaves of opcodes it writes out.

Compiles each entry of llvm_fusion.EXPANDED alone, on an old and a new target, and prints as JSON, by target and entry,
how many additions of which kind there are in the text.
"""

from __future__ import annotations

import json

from narrowgauge.devices.emulator.llvm_fusion import EXPANDED, additions

KERNEL = """
define amdgpu_kernel void @k(ptr addrspace(1) %p) {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i64, ptr addrspace(1) %p, i32 %id
  %q = getelementptr i8, ptr addrspace(1) %at, i32 4096
  %a = load {kind}, ptr addrspace(1) %at
  %b = load {kind}, ptr addrspace(1) %q
  %r = {line}
  store {to} %r, ptr addrspace(1) %at
  ret void
}}
declare i32 @llvm.amdgcn.workitem.id.x()
{declared}
"""
TYPES = {"f16": "half", "f32": "float", "f64": "double"}
TARGETS = ("gfx942", "gfx1250")


def text(entry: str) -> str:
    """A kernel that does nothing else."""
    opcode, *kinds = entry.split()
    if not kinds:
        kind = TYPES[opcode.rpartition(".")[2]]
        line, declared = f"call {kind} @{opcode}({kind} %a)", f"declare {kind} @{opcode}({kind})"
        return KERNEL.format(kind=kind, line=line, to=kind, declared=declared)
    line = f"{opcode} {kinds[0]} %a, %b" if len(kinds) == 1 else f"{opcode} {kinds[0]} %a to {kinds[1]}"
    return KERNEL.format(kind=kinds[0], line=line, to=kinds[-1], declared="")


def main() -> None:
    from triton.backends.amd import compiler

    found = {
        target: {
            entry: additions(
                compiler.compile_amdgpu(
                    text(entry), compiler.get_amd_codegen_target_triple(target), target, "", flags=[],
                    enable_fp_fusion=True, disable_optimization=False, canonicalize_gep=False, disabled_passes="",
                    dump_ir=False, enable_timing=False,
                )
            )
            for entry in EXPANDED
        }
        for target in TARGETS
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
