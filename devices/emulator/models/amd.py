"""AMD's conversions, minimum, maximum and median, by instruction, for a family of targets.

Words: "CDNA3" and "CDNA4" are AMD's "Instruction Set Architecture" references of MI300 and MI350, "RDNA4" that of the
RX 9000; sections are "VOP1", "VOP2", "VOP3A Instructions" and, for MODE, "Wave state, Mode register". Element 0 of a
packed result is the first source. A result that fills a part of the register keeps the rest of ``old``.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from narrowgauge.contracts.errors import unknown
from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.amd_plain import PLAIN
from narrowgauge.devices.emulator.models.answers import Answers, Bits, Mask, Model, packed
from narrowgauge.devices.emulator.models.rounding import Layout

OVFL = (
    "MODE.FP16_OVFL = 1 clamps an overflow and preserves a true infinity (RDNA3 and RDNA4, table of MODE, of FP16; "
    "AMD's Triton back end and LLVM set it for fp8); = 0 gives infinity, or NaN in a format without one"
)
OF_INFINITY = (
    "an infinity under FP16_OVFL = 1: first is preserved (infinity, or NaN in a format without one), the other is the "
    "largest value; which NaN"
)
SEED = "the seed's upper bits are added to the discarded bits of the mantissa, the carry rounds away from zero"
OF_SEED = "subnormal results: first aligns the significand before (seen on RDNA4 by third parties), else its neighbour"
#: the pseudo-code of CDNA4 adds S1[31:12] (bf8: S1[31:11]) to the 23 bits of the mantissa, lets them wrap around
#: without a carry into the exponent, and rounds the sum to nearest even. Read literally 1.99 could become 1, and
#: results would be half a step too large on average; this is taken for a slip
OF_LITERAL = (
    "CDNA's pseudo-code wraps the sum around and rounds it once more to nearest, which is no rounding of the source: "
    "first truncates the sum with its carry (so seen on RDNA4 by third parties), else the other neighbour"
)
SCALE = (
    "the exponent of the binary32 scale is used, as E8M0: source / 2^(exponent - 127), one rounding, to nearest even"
)
BACK = "the exponent of the binary32 scale is used, as E8M0: value x 2^(exponent - 127), one rounding, to nearest even"
OF_SCALE = "sign and mantissa of the scale are ignored here; exponent 255 gives NaN; MODE.FP16_OVFL as for the others"

SOURCES: dict[str, Layout] = {"f32": r.F32, "f16": r.F16, "bf16": r.BF16}
#: families, by the layouts that their instructions call FP8 and BF8
FAMILIES: dict[str, dict[str, Layout]] = {
    "gfx942": {"fp8": r.E4M3Z, "bf8": r.E5M2Z},
    "gfx950": {"fp8": r.E4M3, "bf8": r.E5M2},
    "gfx12": {"fp8": r.E4M3, "bf8": r.E5M2},
    "gfx1250": {"fp8": r.E4M3, "bf8": r.E5M2},
}
_FAMILY_OF = {
    **dict.fromkeys(("gfx940", "gfx941", "gfx942"), "gfx942"),
    "gfx950": "gfx950",
    **dict.fromkeys(("gfx1200", "gfx1201"), "gfx12"),
    "gfx1250": "gfx1250",
}


def as_binary32(bits: Bits, kind: str) -> Bits:
    """A source of 16 or 32 bits as binary32."""
    return bits if kind == "f32" else r.widened(bits, SOURCES[kind])


def _encoded(layout: Layout, ovfl: bool, bits: Bits, scale: Bits | None = None) -> Answers:
    """One binary32 to a code, to nearest even, divided by the scale's power of two."""
    over = layout.top if ovfl else layout.special
    power = None if scale is None else _power(scale)
    first = r.narrowed(bits, layout, "rn", over, layout.special, power)
    other = r.narrowed(bits, layout, "rn", over, over, power)
    if scale is not None and layout.nan is not None:
        first, other = (np.where(_no_scale(scale), np.uint32(layout.nan), each) for each in (first, other))
    return Answers(first, (other,)) if ovfl else Answers(first)


def _power(scale: Bits) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return ((scale >> np.uint32(23)) & np.uint32(0xFF)).astype(np.int32) - np.int32(127)


def _no_scale(scale: Bits) -> Mask:
    lost: Mask = (scale & r.INFINITE) == r.INFINITE
    return lost


def _stochastic(layout: Layout, seen: bool, ovfl: bool, bits: Bits, seed: Bits) -> Answers:
    """One binary32 to a code with random bits: as many of the seed's upper bits as are discarded. ``seen``: only
    subnormal results are open."""
    width = 23 - layout.mantissa
    random = seed >> np.uint32(32 - width)
    over = layout.top if ovfl else layout.special
    first = r.stochastic(bits, layout, random, width, over, layout.special)
    toward = r.narrowed(bits, layout, "rz", over, over)
    away = r.narrowed(bits, layout, "away", over, over)
    free = r.is_subnormal_in(bits, layout) if seen else ~r.is_infinite(bits)
    other = np.where(free, np.where(first == toward, away, toward), np.where(r.is_infinite(bits), toward, first))
    return Answers(first, (other,))


def inserted(old: Bits, part: Answers, width: int, place: int) -> Answers:
    """A field of ``width`` bits, the ``place``-th, written into a register that keeps its other bits."""
    shift, field = np.uint32(width * place), np.uint32(((1 << width) - 1) << (width * place))
    words = [(old & ~field) | ((each << shift) & field) for each in (part.first, *part.others)]
    return Answers(words[0], tuple(words[1:]))


def _cvt_pk(layout: Layout, a: Bits, b: Bits, old: Bits, word: int, ovfl: bool) -> Answers:
    return inserted(old, packed((_encoded(layout, ovfl, a), _encoded(layout, ovfl, b)), 8), 16, word)


def _cvt_sr(layout: Layout, seen: bool, a: Bits, seed: Bits, old: Bits, byte: int, ovfl: bool) -> Answers:
    return inserted(old, _stochastic(layout, seen, ovfl, a, seed), 8, byte)


def _cvt_f32(layout: Layout, a: Bits, byte: int) -> Answers:
    return Answers(r.widened((a >> np.uint32(8 * byte)) & np.uint32(0xFF), layout))


def _cvt_pk_f32(layout: Layout, a: Bits, word: int) -> tuple[Answers, Answers]:
    return _cvt_f32(layout, a, 2 * word), _cvt_f32(layout, a, 2 * word + 1)


def _two(kind: str, operands: tuple[Bits, ...]) -> tuple[Bits, Bits]:
    """The two sources: two registers of binary32, or the halves of one."""
    if kind == "f32":
        return operands[0], operands[1]
    low, high = operands[0] & np.uint32(0xFFFF), operands[0] >> np.uint32(16)
    return as_binary32(low, kind), as_binary32(high, kind)


def _scaled_pk(layout: Layout, kind: str, *operands: Bits, scale: Bits, old: Bits, place: int, ovfl: bool) -> Answers:
    width = 1 + layout.exponent + layout.mantissa
    pair = packed([_encoded(layout, ovfl, each, scale) for each in _two(kind, operands)], width)
    return inserted(old, pair, 2 * width, place)


def _scaled_pk8(layout: Layout, *operands: Bits, scale: Bits, ovfl: bool) -> tuple[Answers, Answers]:
    low, high = (packed([_encoded(layout, ovfl, each, scale) for each in operands[i : i + 4]], 8) for i in (0, 4))
    return low, high


def _one_fp4(scale: Bits, bits: Bits) -> Answers:
    """FP4 has neither infinity nor NaN: all overflows saturate. What becomes of a NaN is not said."""
    first = r.narrowed(bits, r.E2M1, scale=_power(scale))
    lost = r.is_nan(bits) | _no_scale(scale)
    first = np.where(lost, np.uint32(7) | ((bits >> np.uint32(31)) << np.uint32(3)), first)
    return Answers(first, tuple(np.where(lost, np.uint32(code), first) for code in (0x0, 0x7, 0xF)))


def _scaled_fp4(kind: str, *operands: Bits, scale: Bits, old: Bits, place: int) -> Answers:
    return inserted(old, packed([_one_fp4(scale, each) for each in _two(kind, operands)], 4), 8, place)


def _scaled_fp4_pk8(*operands: Bits, scale: Bits) -> tuple[Answers]:
    """Every combination of eight open answers is too many: all NaN of a lane become the same code."""
    codes = [_one_fp4(scale, each) for each in operands]
    choices = zip(*((code.first, *code.others) for code in codes), strict=True)
    first, *others = (packed([Answers(each) for each in choice], 4).first for choice in choices)
    return (Answers(first, tuple(others)),)


def _back(layout: Layout, out: Layout, code: Bits, scale: Bits) -> Answers:
    """One code times the power of two of a binary32 scale."""
    value = r.narrowed(r.widened(code, layout), out, "rn", out.special, out.special, -_power(scale))
    return Answers(np.where(_no_scale(scale), np.uint32(out.nan or 0), value))


def _scaled_back(layout: Layout, to: str, a: Bits, scale: Bits, place: int) -> tuple[Answers, Answers]:
    """Two codes times the power of two: a pair of binary32, or of 16-bit values, lower first."""
    width = 1 + layout.exponent + layout.mantissa
    low, high = ((a >> np.uint32(width * (2 * place + i))) & np.uint32((1 << width) - 1) for i in (0, 1))
    return _back(layout, SOURCES[to], low, scale), _back(layout, SOURCES[to], high, scale)


def _scaled_back8(layout: Layout, to: str, *words: Bits, scale: int) -> tuple[Answers, ...]:
    """Eight codes times 2^(scale - 127), the lowest first."""
    width = 1 + layout.exponent + layout.mantissa
    by = np.array([scale << 23], np.uint32)
    places = [(word, np.uint32(place)) for word in words for place in range(0, 32, width)]
    return tuple(_back(layout, SOURCES[to], word >> place & np.uint32((1 << width) - 1), by) for word, place in places)


def _of_family(family: str) -> list[Model]:
    isa = {"gfx942": "CDNA3", "gfx950": "CDNA4", "gfx12": "RDNA4", "gfx1250": "RDNA4"}[family]
    models = []
    for name, layout in FAMILIES[family].items():
        upper = name.upper()
        models += [
            Model(
                f"v_cvt_pk_{name}_f32",
                ("f32", "f32", "old", "word select", "FP16_OVFL"),
                "b32",
                f"{isa}, VOP3A: V_CVT_PK_{upper}_F32, to nearest even; {OVFL}",
                partial(_cvt_pk, layout),
                OF_INFINITY,
            ),
            Model(
                f"v_cvt_sr_{name}_f32",
                ("f32", "seed", "old", "byte select", "FP16_OVFL"),
                "b32",
                f"{isa}, VOP3A: V_CVT_SR_{upper}_F32, {SEED}; {OVFL}",
                partial(_cvt_sr, layout, family.startswith("gfx12")),
                f"{OF_SEED if family == 'gfx12' else OF_LITERAL}; {OF_INFINITY}",
            ),
            Model(
                f"v_cvt_f32_{name}",
                ("b32", "byte select"),
                "f32",
                f"{isa}, VOP1: V_CVT_F32_{upper}, exact",
                partial(_cvt_f32, layout),
                "which NaN",
            ),
            Model(
                f"v_cvt_pk_f32_{name}",
                ("b32", "word select"),
                "f32, f32",
                f"{isa}, VOP1: V_CVT_PK_F32_{upper}, exact; a pair of answers",
                partial(_cvt_pk_f32, layout),
                "which NaN",
            ),
        ]
    if family == "gfx1250":
        return models + _scaled_by_eight()
    return models + (_scaled() if family == "gfx950" else [])


def _scaled_by_eight() -> list[Model]:
    """gfx1250 has no public ISA: the names are LLVM's, the words those of gfx950's conversions of two."""
    words = "CDNA4, VOP3A: {} (gfx1250 has no public ISA); {}; "
    models = []
    for name, layout in (*FAMILIES["gfx1250"].items(), ("fp4", r.E2M1)):
        fp4, pair = name == "fp4", f"V_CVT_SCALEF32_PK_{name.upper()}_F32"
        models.append(
            Model(
                f"v_cvt_scalef32_pk8_{name}_f32",
                (*["f32"] * 8, "scale") if fp4 else (*["f32"] * 8, "scale", "ovfl"),
                "b32" if fp4 else "b32, b32",
                f"{words.format(pair, SCALE)}a tuple of answers",
                _scaled_fp4_pk8 if fp4 else partial(_scaled_pk8, layout),
                f"everything, strictly; {'a NaN' if fp4 else OF_INFINITY}; {OF_SCALE}",
            )
        )
        models += [
            Model(
                f"v_cvt_scale_pk8_{kind}_{name}",
                ("b32", "scale") if fp4 else ("b32", "b32", "scale"),
                ", ".join([kind] * 8),
                f"{words.format(f'V_CVT_SCALEF32_PK_{kind.upper()}_{name.upper()}', BACK)}eight answers",
                partial(_scaled_back8, layout, kind),
                "everything, strictly; which NaN",
            )
            for kind in SOURCES
        ]
    return models


def _scaled() -> list[Model]:
    """gfx950's conversions with a scale. The keyword arguments are the operands that follow the sources."""
    models = []
    for kind in SOURCES:
        inputs = ("f32", "f32") if kind == "f32" else (f"{kind}x2",)
        for name, layout in (*FAMILIES["gfx950"].items(), ("fp4", r.E2M1)):
            to, back = f"v_cvt_scalef32_pk_{name}_{kind}", f"v_cvt_scalef32_pk_{kind}_{name}"
            fp4 = name == "fp4"
            run = partial(_scaled_fp4, kind) if fp4 else partial(_scaled_pk, layout, kind)
            controls = ("scale", "old", "place") if fp4 else ("scale", "old", "place", "ovfl")
            free = "a NaN: the largest with its sign in first, else zero or either largest" if fp4 else OF_INFINITY
            models.append(
                Model(
                    to, (*inputs, *controls), "b32", f"CDNA4, VOP3A: {to.upper()}; {SCALE}", run, f"{free}; {OF_SCALE}"
                )
            )
            models.append(
                Model(
                    back,
                    ("b32", "scale", "place"),
                    f"{kind}, {kind}",
                    f"CDNA4, VOP3A: {back.upper()}; {BACK}; a pair of answers",
                    partial(_scaled_back, layout, kind),
                    OF_SCALE,
                )
            )
    return models


#: by family and instruction
AMD: dict[str, dict[str, Model]] = {f: {m.name: m for m in (*_of_family(f), *PLAIN)} for f in FAMILIES}
#: what has no fp8 instruction (gfx90a, gfx11)
AMD["plain"] = {model.name: model for model in PLAIN}


def models_of(target: str) -> dict[str, Model]:
    """The models of a target, by instruction. Raises ``BadInput`` for a target of another vendor."""
    if not target.startswith("gfx"):
        raise unknown("AMD target", target, _FAMILY_OF)
    return AMD[_FAMILY_OF.get(target, "plain")]
