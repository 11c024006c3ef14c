"""NVIDIA conversions and minimum / maximum, from the PTX ISA 9.1, by opcode as it stands in PTX.

"cvt" is its section 9.7.9.21, "Data Movement and Conversion Instructions: cvt"; what was read, and what was not, is
told in the package's docstring.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import numpy as np

from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Answers, Bits, Mask, Model, packed
from narrowgauge.devices.emulator.models.nvidia_approx import APPROXIMATIONS
from narrowgauge.devices.emulator.models.rounding import Layout, Rounding

CVT = "PTX ISA 9.1, cvt"
SATFINITE = (
    f"{CVT}, .satfinite: a magnitude above MAX_NORM, infinity too, gives MAX_NORM with the sign; NaN gives NaN, or "
    "positive MAX_NORM in a format without NaN; .rn: to nearest, ties to even"
)
PACKING = "; the element of operand a, or of the upper half, is the upper element"
RS = (
    f"{CVT}, .rs: integer addition of the random bits to the discarded bits of the mantissa; the carry decides between "
    "toward and away from zero"
)
NAN = "which NaN: canonical here"
OF_RS_SUBNORMALS = "subnormal results: which discarded bits the random bits meet; first aligns the significand before"

UE8M0_TOP, UE8M0_NAN = 0xFE, 0xFF
NARROW = {"e4m3": r.E4M3, "e5m2": r.E5M2, "e2m1": r.E2M1, "e2m3": r.E2M3, "e3m2": r.E3M2}
#: bits that one element takes in a register
FIELD = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "e2m3": 8, "e3m2": 8, "ue8m0": 8}
WIDE = {"f16": r.F16, "bf16": r.BF16}
Convert = Callable[[Bits], Answers]


def halves(word: Bits) -> tuple[Bits, Bits]:
    """Lower and upper 16 bits."""
    return word & np.uint32(0xFFFF), (word >> np.uint32(16)) & np.uint32(0xFFFF)


def relu(bits: Bits) -> Bits:
    """``.relu``: a negative result becomes +0. The sign of the source is the sign of the result, so the source is cut;
    NaN stays and becomes the canonical NaN."""
    return np.where((bits >= r.SIGN) & ~r.is_nan(bits), np.uint32(0), bits)


def _as_is(bits: Bits) -> Bits:
    return bits


def _to(layout: Layout, how: Rounding, saturate: bool, bits: Bits) -> Answers:
    """One binary32 to a code. Without ``.satfinite``, IEEE 754 overflow: .rz stops at the largest finite value."""
    over = layout.top if saturate or how == "rz" else layout.special
    return Answers(r.narrowed(bits, layout, how, over, layout.top if saturate else layout.special))


def _to_tf32(how: Rounding, saturate: bool, bits: Bits) -> Answers:
    """The upper 19 bits of a register; the 13 lower ones are not part of the number."""
    return Answers(_to(r.TF32, how, saturate, bits).first << np.uint32(13))


def _to_ue8m0(up: bool, saturate: bool, bits: Bits) -> Answers:
    """binary32 to a power of two: the exponent, of the magnitude."""
    field = (bits >> np.uint32(23)) & np.uint32(0xFF)
    fraction = bits & np.uint32(0x7FFFFF)
    if up:  # the smallest power is 2^-127, which binary32 holds as a subnormal with fraction 0x400000
        raised = np.where(field == 0, fraction > np.uint32(0x400000), fraction != 0) & (field < 255)
        field = field + raised.astype(np.uint32)
    code = np.where(field >= 255, np.uint32(UE8M0_TOP if saturate else UE8M0_NAN), field)
    code = np.where(r.is_nan(bits), np.uint32(UE8M0_NAN), code)
    too_large = (field >= 255) | r.is_nan(bits)
    below = np.where((bits > r.SIGN) & ~too_large, np.uint32(0), code)
    not_a_number = np.where((bits > r.SIGN) & ~too_large, np.uint32(UE8M0_NAN), code)
    return Answers(code, (below, not_a_number))


def _from_ue8m0(code: Bits) -> Answers:
    """bfloat16 of 2^(code - 127); the smallest is a subnormal."""
    shifted = np.where(code == 0, np.uint32(0x40), code << np.uint32(7))
    return Answers(np.where(code == UE8M0_NAN, np.uint32(0x7FFF), shifted))


def _pair(convert: Convert, width: int, cut: Callable[[Bits], Bits], a: Bits, b: Bits) -> Answers:
    return packed((convert(cut(b)), convert(cut(a))), width)


def _halves(convert: Convert, width: int, source: Layout, cut: Callable[[Bits], Bits], a: Bits) -> Answers:
    low, high = (cut(r.widened(half, source)) for half in halves(a))
    return packed((convert(low), convert(high)), width)


def _single(convert: Convert, cut: Callable[[Bits], Bits], a: Bits) -> Answers:
    return convert(cut(a))


def _unpack(source: Layout, width: int, to: Layout, cut: Callable[[Bits], Bits], a: Bits) -> Answers:
    low, high = a & np.uint32((1 << width) - 1), (a >> np.uint32(width)) & np.uint32((1 << width) - 1)
    table = _unpacked(source, to, cut)
    return packed([Answers(table[each & np.uint32(2 * source.sign - 1)]) for each in (low, high)], 16)


@functools.cache
def _unpacked(source: Layout, to: Layout, cut: Callable[[Bits], Bits]) -> Bits:
    """Every code of ``source`` in a wider format."""
    codes = np.arange(2 * source.sign, dtype=np.uint32)
    return _to(to, "rn", False, cut(r.widened(codes, source))).first


def _rs(layout: Layout, width: int, saturate: bool, bits: Bits, random: Bits) -> Answers:
    """Stochastic rounding of one element; the other neighbour too where the words do not fix the place of the bits."""
    over = layout.top if saturate else layout.special
    first = r.stochastic(bits, layout, random, width, over, over)
    free = r.is_subnormal_in(bits, layout) if width == 23 - layout.mantissa else np.ones(bits.shape, bool)
    toward, away = r.narrowed(bits, layout, "rz", over, over), r.narrowed(bits, layout, "away", over, over)
    return Answers(first, (np.where(free, np.where(first == toward, away, toward), first),))


def _rs_pair(layout: Layout, saturate: bool, cut: Callable[[Bits], Bits], a: Bits, b: Bits, random: Bits) -> Answers:
    width = 23 - layout.mantissa
    low, high = (half & np.uint32((1 << width) - 1) for half in halves(random))
    return packed((_rs(layout, width, saturate, cut(b), low), _rs(layout, width, saturate, cut(a), high)), 16)


def _reversed(bits: Bits, width: int) -> Bits:
    turned: Bits = np.bitwise_or.reduce(
        [((bits >> np.uint32(i)) & np.uint32(1)) << np.uint32(width - 1 - i) for i in range(width)]
    )
    return turned


def random_fields(random: Bits, width: int) -> tuple[Bits, Bits]:
    """The 16 random bits of operands e, f and of a, b: the halves, or, for 4-bit elements, the lower and upper bytes of
    both halves."""
    low, high = halves(random)
    if width == 8:
        return low, high
    lower, upper = np.uint32(0xFF), np.uint32(8)
    return (low & lower) | ((high & lower) << upper), (low >> upper) | ((high >> upper) << upper)


def _rs_four(
    layout: Layout, width: int, cut: Callable[[Bits], Bits], a: Bits, b: Bits, e: Bits, f: Bits, random: Bits
) -> Answers:
    lower, upper = random_fields(random, width)
    bits = (lower, _reversed(lower, 16), upper, _reversed(upper, 16))
    return packed([_rs(layout, 16, True, cut(x), rbits) for x, rbits in zip((f, e, b, a), bits, strict=True)], width)


def _extreme(name: str, layout: Layout, propagate: bool, xorsign: bool, a: Bits, b: Bits) -> Bits:
    """min or max of one element of a format of 16 or 32 bits, given as its own code."""
    sign, magnitude = np.uint32(layout.sign), np.uint32(layout.sign - 1)
    crossed = (a ^ b) & sign
    first, second = (a & magnitude, b & magnitude) if xorsign else (a, b)

    def key(code: Bits) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        size = (code & magnitude).astype(np.int64)
        return np.where(code & sign != 0, -1 - size, size)

    takes_first = key(first) > key(second) if name == "max" else key(first) < key(second)
    chosen = np.where(takes_first, first, second)
    nan_a, nan_b = _nan_codes(a, layout), _nan_codes(b, layout)
    chosen = np.where(nan_a, second, np.where(nan_b, first, chosen))
    chosen = np.where(crossed != 0, chosen | sign, chosen) if xorsign else chosen
    lost = (nan_a | nan_b) if propagate else (nan_a & nan_b)
    return np.where(lost, np.uint32(layout.nan or 0), chosen).astype(np.uint32)


def _nan_codes(code: Bits, layout: Layout) -> Mask:
    beyond: Mask = (code & np.uint32(layout.sign - 1)) > np.uint32(layout.infinity or 0)
    return beyond


def _flushed(code: Bits, layout: Layout, two: bool) -> Bits:
    """``.ftz``: a subnormal becomes zero with its sign, in each half of a pair."""
    field = np.uint32(layout.infinity or 0)
    flushed = [
        np.where(each & field == 0, each & np.uint32(layout.sign), each) for each in (halves(code) if two else (code,))
    ]
    return packed([Answers(each) for each in flushed], 16).first


def _minmax(
    name: str, layout: Layout, two: bool, ftz: bool, propagate: bool, xorsign: bool, a: Bits, b: Bits
) -> Answers:
    if ftz:
        a, b = _flushed(a, layout, two), _flushed(b, layout, two)
    if not two:
        return Answers(_extreme(name, layout, propagate, xorsign, a, b))
    pairs = zip(halves(a), halves(b), strict=True)
    return packed([Answers(_extreme(name, layout, propagate, xorsign, x, y)) for x, y in pairs], 16)


def _cuts() -> tuple[tuple[str, Callable[[Bits], Bits]], ...]:
    return (("", _as_is), (".relu", relu))


def _to_narrow() -> list[Model]:
    """cvt.rn.satfinite{.relu}.TYPEx2.{f32, f16x2, bf16x2}."""
    models = []
    for name, layout in NARROW.items():
        width, output = FIELD[name], "b8" if name == "e2m1" else "b16"
        convert = partial(_to, layout, "rn", True)
        for suffix, cut in _cuts():
            head = f"cvt.rn.satfinite{suffix}.{name}x2"
            pair = partial(_pair, convert, width, cut)
            models.append(Model(f"{head}.f32", ("f32", "f32"), output, SATFINITE + PACKING, pair, NAN))
            for source, of_source in WIDE.items():
                run = partial(_halves, convert, width, of_source, cut)
                models.append(Model(f"{head}.{source}x2", (f"{source}x2",), output, SATFINITE + PACKING, run, NAN))
    return models


def _from_narrow() -> list[Model]:
    """cvt.rn{.relu}.{f16x2, bf16x2}.TYPEx2: every value is exact in either."""
    return [
        Model(
            f"cvt.rn{suffix}.{to}x2.{name}x2",
            ("b8" if name == "e2m1" else "b16",),
            f"{to}x2",
            f"{CVT}: each element is converted{PACKING}",
            partial(_unpack, layout, FIELD[name], of_target, cut),
            NAN,
        )
        for name, layout in NARROW.items()
        for to, of_target in WIDE.items()
        for suffix, cut in _cuts()
    ]


def _to_wide() -> list[Model]:
    """cvt.{rn, rz}{.relu}{.satfinite}.{f16, f16x2, bf16, bf16x2, tf32}.f32, cvt.rna{.satfinite}.tf32.f32."""
    models = []
    words = f"{CVT}: .rn to nearest, ties to even; .rz toward zero; .rna ties away from zero"
    for how in ("rn", "rz", "rna"):
        for saturate in (False, True):
            for suffix, cut in _cuts():
                end = suffix + (".satfinite" if saturate else "")
                if how != "rna":
                    for to, layout in WIDE.items():
                        convert = partial(_to, layout, how, saturate)
                        single, pair = partial(_single, convert, cut), partial(_pair, convert, 16, cut)
                        models.append(Model(f"cvt.{how}{end}.{to}.f32", ("f32",), to, words, single, NAN))
                        models.append(
                            Model(f"cvt.{how}{end}.{to}x2.f32", ("f32", "f32"), f"{to}x2", words + PACKING, pair, NAN)
                        )
                if how != "rna" or not suffix:
                    run = partial(_single, partial(_to_tf32, how, saturate), cut)
                    free = f"{NAN}; the 13 lower bits: zero here"
                    models.append(Model(f"cvt.{how}{end}.tf32.f32", ("f32",), "tf32", words, run, free))
    return models


def _widening() -> list[Model]:
    def run(layout: Layout, code: Bits) -> Answers:
        return Answers(r.widened(code, layout))

    words = f"{CVT}: no rounding is written"
    return [
        *(Model(f"cvt.f32.{n}", (n,), "f32", f"{CVT}: exact", partial(run, f), NAN) for n, f in WIDE.items()),
        Model("cvt.bf16.f16", ("f16",), "bf16", words, _unrounded, f"what is inexact: first to nearest even; {NAN}"),
    ]


def _unrounded(code: Bits) -> Answers:
    """float16 to bfloat16, ptxas takes it without a rounding. Exact for the 8-bit formats that Triton converts so."""
    wide = r.widened(code, r.F16)
    nearest, cut = (r.narrowed(wide, r.BF16, how, r.BF16.special, r.BF16.special) for how in ("rn", "rz"))
    return Answers(nearest, (cut,))


def _ue8m0() -> list[Model]:
    words = (
        f"{CVT}, .rz, .rp, .satfinite: beyond the largest power the positive largest, NaN gives NaN; without "
        ".satfinite NaN (the only special code)"
    )
    free = (
        "negative values in range: first takes the magnitude, as the vendor's header does on the host (cuda_fp8.hpp, "
        "CUDA 13); the others are the smallest power and NaN. Zero and what is below 2^-127 give the smallest power"
    )
    models = [Model("cvt.rn.bf16x2.ue8m0x2", ("b16",), "bf16x2", f"{CVT}: exact{PACKING}", _from_ue8m0_pair, NAN)]
    for how in ("rz", "rp"):
        for saturate in (False, True):
            head = f"cvt.{how}{'.satfinite' if saturate else ''}.ue8m0x2"
            convert = partial(_to_ue8m0, how == "rp", saturate)
            pair, both = partial(_pair, convert, 8, _as_is), partial(_halves, convert, 8, r.BF16, _as_is)
            models.append(Model(f"{head}.f32", ("f32", "f32"), "b16", words + PACKING, pair, free))
            models.append(Model(f"{head}.bf16x2", ("bf16x2",), "b16", words + PACKING, both, free))
    return models


def _from_ue8m0_pair(a: Bits) -> Answers:
    low, high = a & np.uint32(0xFF), (a >> np.uint32(8)) & np.uint32(0xFF)
    return packed((_from_ue8m0(low), _from_ue8m0(high)), 16)


def _stochastic() -> list[Model]:
    models = []
    of_four = (
        f"{OF_RS_SUBNORMALS}; which of 20 or more discarded bits 16 random bits meet: the highest in first; e and a "
        "read their half reversed in first (seen on B200 by third parties); both neighbours are allowed everywhere"
    )
    for suffix, cut in _cuts():
        for to, layout in WIDE.items():
            for saturate in (False, True):
                end = suffix + (".satfinite" if saturate else "")
                run = partial(_rs_pair, layout, saturate, cut)
                inputs, free = ("f32", "f32", "rbits"), f"{OF_RS_SUBNORMALS}; {NAN}"
                models.append(Model(f"cvt.rs{end}.{to}x2.f32", inputs, f"{to}x2", RS + PACKING, run, free))
        for name, layout in NARROW.items():
            run_four = partial(_rs_four, layout, FIELD[name], cut)
            output = "b16" if name == "e2m1" else "b32"
            head = f"cvt.rs{suffix}.satfinite.{name}x4.f32"
            models.append(Model(head, ("f32", "f32", "f32", "f32", "rbits"), output, RS + PACKING, run_four, of_four))
    return models


def _extremes() -> list[Model]:
    words = (
        "PTX ISA 9.1, min, max: one NaN gives the other operand, with .NaN the canonical NaN; two NaN give "
        "the canonical NaN; -0 < +0; .xorsign.abs: of the magnitudes, with the exclusive or of the signs"
    )
    models = []
    for name in ("min", "max"):
        for of, layout in (("f32", r.F32), ("f16", r.F16), ("bf16", r.BF16)):
            for ftz in (False, True) if of != "bf16" else (False,):
                for propagate in (False, True):
                    for xorsign in (False, True):
                        dots = ".ftz" * ftz + ".NaN" * propagate + ".xorsign.abs" * xorsign
                        for two in (False, True) if of != "f32" else (False,):
                            run = partial(_minmax, name, layout, two, ftz, propagate, xorsign)
                            kind = of + "x2" * two
                            models.append(Model(f"{name}{dots}.{kind}", (kind, kind), kind, words, run))
    return models


#: by opcode, as it stands in PTX
NVIDIA: dict[str, Model] = {
    model.name: model
    for model in (
        *_to_narrow(),
        *_from_narrow(),
        *_to_wide(),
        *_widening(),
        *_ue8m0(),
        *_stochastic(),
        *_extremes(),
        *APPROXIMATIONS,
    )
}


def nvidia_model(opcode: str) -> Model | None:
    """The model of an opcode as PTX has it, or None. ``.relu`` and ``.satfinite`` may stand in either order."""
    for one, other in ((".relu.satfinite", ".satfinite.relu"), (".satfinite.relu", ".relu.satfinite")):
        if opcode not in NVIDIA:
            opcode = opcode.replace(one, other) if opcode.replace(one, other) in NVIDIA else opcode
    return NVIDIA.get(opcode)
