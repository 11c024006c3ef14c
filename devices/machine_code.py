"""Which instructions Triton made of a kernel, counted. Runs in the child.

NVIDIA: PTX names what is multiplied, the machine code what that became; nvdisasm comes with Triton. AMD: the assembly
is both.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from typing import Any

from narrowgauge.contracts.outcome import NotExecuted

#: the opcode of a line, behind a predicate: of PTX and assembly; of nvdisasm, behind the address
_OPCODE = re.compile(r"^\s+(?:@!?%\w+\s+)?([a-z][\w.:]+)", re.MULTILINE)
_DISASSEMBLED = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", re.MULTILINE)
_LABEL = re.compile(r"^(\$?[.\w]+):", re.MULTILINE)
_BRANCH = re.compile(r"\b(?:bra|s_c?branch)\S*\s+(\$?[.\w]+)")
#: what multiplies matrices
MATRIX = re.compile(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma|v_mfma_|v_smfmac_|v_wmma_|v_swmmac_")


def instructions(compiled: Any) -> dict[str, dict[str, int]]:
    """Counts by opcode: ``code`` as the compiler wrote it, ``machine`` as it runs, and ``loop``, those of ``code`` that
    stand in a loop with a multiplication of matrices (all, where it stands in none)."""
    asm = compiled.asm
    code = asm["ptx"] if "ptx" in asm else asm["amdgcn"]
    machine = _DISASSEMBLED.findall(_disassembled(asm["cubin"])) if "ptx" in asm else _OPCODE.findall(code)
    return {"code": _counted(_OPCODE.findall(code)), "machine": _counted(machine), "loop": _counted(_in_loop(code))}


def _counted(opcodes: list[str]) -> dict[str, int]:
    return dict(sorted(Counter(opcodes).items()))


def _in_loop(code: str) -> list[str]:
    """Opcodes of the smallest loops with such a multiplication: from a label to a branch back to it."""
    labels = {label[1]: label.start() for label in _LABEL.finditer(code)}
    back = [(labels.get(b[1], b.end()), b.end()) for b in _BRANCH.finditer(code)]
    loops = [(first, last) for first, last in back if first < last and MATRIX.search(code, first, last)]
    inner = [one for one in loops if not any(_within(other, one) for other in loops)]
    return [opcode for first, last in inner or [(0, len(code))] for opcode in _OPCODE.findall(code[first:last])]


def _within(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and other[0] <= one[0] and one[1] <= other[1]


def _disassembled(cubin: bytes) -> str:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            ended = subprocess.run(
                [knobs.nvidia.nvdisasm.path, "-c", file.name], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError, RuntimeError) as error:
            raise NotExecuted(f"nvdisasm, which comes with Triton, does not run: {error}") from error
    return ended.stdout
