"""What a kernel's code says of its arithmetic: which matrix units compute it, and what that means for its claim.

Opcodes are mapped to the units of reference/units by ``_RULES``, a line each. A unit that nobody has published a model
of has no line: it is named by its opcode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from narrowgauge.reference.matmul.multiplying import Multiplying

#: of NVIDIA's targets whose arithmetic is known, how the names of their units begin
_NVIDIA = {
    "sm_75": "turing", "sm_80": "ampere", "sm_86": "ampere", "sm_89": "ada", "sm_90": "hopper", "sm_100": "blackwell",
    "sm_120": "rtx_blackwell",
}  # fmt: skip
_QMMA = {"ada": "qmma", "rtx_blackwell": "qmma", "hopper": "mma_fp8", "blackwell": "mma_fp8"}
_FP8, _HALF = r"e[45]m[23]\.e[45]m[23]", r"(?:f16\.f16|bf16\.bf16)"
_GFX94, _GFX11, _GFX12 = r"gfx94[0-2]", r"gfx11\d\d", r"gfx120\d"

#: target, opcode, and what unit of reference/units it is; of ``*`` the beginning follows from the target
_RULES: tuple[tuple[str, str, str], ...] = (
    (r"sm_90", rf"wgmma\..*\.f32\.{_FP8}", "hopper.qgmma"),
    (r"sm_90", rf"wgmma\..*\.f16\.{_FP8}", "hopper.qgmma_f16"),
    (r"sm_90", rf"wgmma\..*\.f32\.{_HALF}", "hopper.hgmma"),
    (r"sm_90", r"wgmma\..*\.f16\.f16\.f16", "hopper.hgmma_f16"),
    (r"sm_90", r"wgmma\..*\.f32\.tf32", "hopper.hgmma_tf32"),
    (r"sm_\d+", r"mma\.sync\..*\.satfinite\.s32\.[su]8", "nvidia.imma_satfinite"),
    (r"sm_\d+", r"(?:mma\.sync|wgmma)\..*\.s32\.[su]8|tcgen05\.mma\..*kind::i8", "nvidia.imma"),
    (r"sm_100", r"tcgen05\.mma\..*kind::f16", "blackwell.tcgen05"),
    (r"sm_100", r"tcgen05\.mma\..*kind::tf32", "blackwell.tcgen05_tf32"),
    (r"sm_100", r"tcgen05\.mma\..*kind::f8f6f4", "blackwell.tcgen05_fp8"),
    (r"sm_100|sm_120", r".*kind::mxf8f6f4", "*.mxf8f6f4"),
    (r"sm_100|sm_120", r".*kind::mxf4nvf4.*(?:block16|scale_vec::4X)", "*.mxf4nvf4"),
    (r"sm_100|sm_120", r".*kind::mxf4", "*.mxf4"),
    (r"sm_\d+", rf"mma\.sync\..*\.f32\.{_FP8}", "*.fp8"),
    (r"sm_\d+", rf"mma\.sync\..*\.f16\.{_FP8}", "*.fp8_f16"),
    (r"sm_\d+", rf"mma\.sync\..*\.f32\.{_HALF}", "*.hmma"),
    (r"sm_\d+", r"mma\.sync\..*\.f16\.f16\.f16", "*.hmma_f16"),
    (r"sm_\d+", r"mma\.sync\..*\.f32\.tf32", "*.hmma_tf32"),
    (r"gfx90a", r"v_mfma_f32_\w+x\d+_?(?:f16|bf16_1k)", "cdna2.mfma"),
    (r"gfx90a", r"v_mfma_f32_\w+x\d+_?bf16$", "cdna2.mfma_bf16_old"),
    (r"gfx90a", r"v_mfma_f32_\w+x\d+_?f32", "cdna2.mfma_f32"),
    (_GFX94, r"v_mfma_f32_\w+_(?:fp8|bf8)_(?:fp8|bf8)", "cdna3.mfma_fp8"),
    (_GFX94, r"v_mfma_f32_\w+_b?f16", "cdna3.mfma"),
    (_GFX94, r"v_mfma_f32_\w+_xf32", "cdna3.mfma_xf32"),
    (_GFX94, r"v_mfma_f32_\w+_f32", "cdna3.mfma_f32"),
    (rf"gfx90a|{_GFX94}", r"v_mfma_i32_\w+i8", "cdna.mfma_i8"),
    (rf"{_GFX11}|{_GFX12}", r"v_wmma_i32_\w+_iu8", "rdna.wmma_iu8"),
    (rf"{_GFX11}|{_GFX12}", r"v_wmma_i32_\w+_iu4", "rdna.wmma_iu4"),
)
_MATRIX = re.compile(r"wgmma\.mma_async|mma\.sync|tcgen05\.mma\.|v_smfmac_|v_swmmac_|v_mfma_|v_wmma_")
#: sums of float32; products that are added are among them
_SUMS = re.compile(r"(?:add|fma)\.(?:rn\.)?f32|v_(?:pk_)?(?:add|fma|fmac|mac)_f32|v_dual_(?:add|fmac)_f32")
_CHAIN = re.compile(r"fma\.rn\.f32|v_(?:pk_)?(?:fma|fmac)_f32|v_dual_fmac_f32")
#: what stands in the record of a kernel: matrix units, float32, and conversions from and to narrow floats
_TOLD = re.compile(
    rf"{_MATRIX.pattern}|[A-Z]*MMA\b|[A-Z]*MMA\.|FADD|FMUL|FFMA|F2FP|v_(?:pk_)?(?:add|mul|fma|fmac)_f32"
    r"|cvt\.\S*(?:e4m3|e5m2|e2m1|bf16|tf32)|v_cvt_\w*(?:fp8|bf8|fp4|bf16)"
)
#: units whose sums keep 13 bits
THIRTEEN = ("ada.qmma", "hopper.qgmma")
#: p of accumulators of 13 bits, and of float16: whole numbers below 2^p are added without error
_BITS_OF_13, _BITS_OF_16 = 14, 11
#: units whose operands have 16 bits, and opcodes of those without a model
_SIXTEEN = ("hmma", "hgmma", "mfma", "tcgen05")
_AMD_SIXTEEN = r"v_(?:mfma|wmma)_f32_\w+_b?f16"
_OCP, _FNUZ = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
#: targets whose matrix units take fp8, and which
_HAS_FP8 = ((r"sm_89|sm_9|sm_1", _OCP), (r"gfx94", _FNUZ), (r"gfx950|gfx12", _OCP))


@dataclass(frozen=True)
class Finding:
    """``name`` of a rule, what it says here, and whether the claim is contradicted."""

    name: str
    text: str
    contradicts: bool = False


@dataclass(frozen=True)
class Code:
    """What one product became on one target."""

    target: str
    kernels: tuple[str, ...]  #: names of the functions that were launched
    units: tuple[str, ...]  #: names of reference/units, or opcodes of units without a model
    sums_in_loop: bool  #: whether float32 sums stand in the loop of the matrix unit
    told: Mapping[str, int] = field(default_factory=dict)  #: opcodes that matter, of the machine's code

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target, "kernels": list(self.kernels), "units": list(self.units),
            "sums_in_loop": self.sums_in_loop, "instructions": dict(self.told),
        }  # fmt: skip


def code_of(target: str, launches: Sequence[Mapping[str, Any]]) -> Code:
    """What launches, as devices/machine_code.py counts them, say."""
    written = [name for launch in launches for name in launch["code"]]
    units = dict.fromkeys(unit_of(target, name) for name in written if _MATRIX.match(name))
    if not units and any(_CHAIN.match(name) for name in written):
        units = {"plain.fma": None}
    loops = [launch["loop"] for launch in launches if any(_MATRIX.match(name) for name in launch["loop"])]
    told: dict[str, int] = {}
    for launch in launches:
        for name, count in launch["machine"].items():
            if _TOLD.match(name):
                told[name] = told.get(name, 0) + count
    return Code(
        target=target,
        kernels=tuple(launch["kernel"] for launch in launches),
        units=tuple(units),
        sums_in_loop=any(_SUMS.match(name) for loop in loops for name in loop),
        told=told,
    )


def unit_of(target: str, opcode: str) -> str:
    """The name of the unit that an opcode stands for, or the opcode where there is no model of it."""
    for where, pattern, unit in _RULES:
        if not re.fullmatch(where, target) or not re.match(pattern, opcode):
            continue
        if not unit.startswith("*"):
            return unit
        if family := _NVIDIA.get(target):
            return family + unit[1:].replace("fp8", _QMMA.get(family, "fp8"))
    return opcode


def findings(code: Code, multiplying: Multiplying) -> list[Finding]:
    """What the code of a product means for its claim."""
    found = [*_of_sums(code, multiplying), *_of_conversion(code, multiplying)]
    if "nvidia.imma_satfinite" in code.units:
        found.append(Finding("clamps", "sums beyond int32 are clamped here; other units of int8 wrap"))
    if any(unit.endswith(("_tf32", "_xf32")) for unit in code.units):
        rounded = any("cvt.rna.tf32" in name for name in code.told)
        how = "rounded to nearest" if rounded else "cut by the unit, toward zero"
        found.append(Finding("tf32", f"float32 operands are {how} to 10 bits of fraction"))
    unknown = [unit for unit in code.units if _MATRIX.match(unit)]
    if unknown:
        found.append(Finding("no_model", f"nobody has published how {', '.join(unknown)} adds on {code.target}"))
    return found


def _of_sums(code: Code, multiplying: Multiplying) -> list[Finding]:
    """Units of 13 bits and of float16, against what the claim says of sums."""
    claimed = multiplying.accumulator
    found = []
    for unit in code.units:
        if unit in THIRTEEN and code.sums_in_loop:
            text = f"{unit} keeps 13 bits; sums are taken out of it within the loop and added in float32"
            found.append(("thirteen_bits", text, claimed.exact_bits > _BITS_OF_13))
        elif unit in THIRTEEN:
            text = f"{unit} keeps 13 bits, and nothing is added in float32 within its loop: all of K is summed in it"
            found.append(("no_promotion", text, claimed.exact_bits > _BITS_OF_13 or claimed.promote_every > 0))
        elif unit.endswith("_f16") and not _MATRIX.match(unit):  # opcodes end with what they multiply
            found.append(("float16_sums", f"{unit} keeps float16", claimed.exact_bits > _BITS_OF_16))
    return [Finding(name, f"{text}; the claim is {claimed.name}" if no else text, no) for name, text, no in found]


def _of_conversion(code: Code, multiplying: Multiplying) -> list[Finding]:
    """Operands of fewer bits that meet a unit of 16 bits."""
    wide = [unit for unit in code.units if unit.split(".")[-1] in _SIXTEEN or re.fullmatch(_AMD_SIXTEEN, unit)]
    product, source = multiplying.product, multiplying.source
    if not wide:
        return []
    if product.scaled == "unit":
        text = f"scales are multiplied in before {wide[0]}, whose operands have 16 bits: what does not fit is rounded"
        return [Finding("scaled_before", text)]
    if product.a.enters or source not in (*_OCP, *_FNUZ):
        return []
    text = f"{source} is converted to 16 bits before {wide[0]} multiplies it"
    has = next((formats for where, formats in _HAS_FP8 if re.match(where, code.target)), ())
    if source in has:
        return [Finding("converted", f"{text}: larger tiles may go to the fp8 unit, whose sums differ")]
    return [Finding("converted", f"{text}: {code.target} has no unit for {source}")]
