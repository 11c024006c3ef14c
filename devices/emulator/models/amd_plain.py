"""AMD's instructions that mean the same on every target: wide conversions, minimum, maximum, median, approximations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from narrowgauge.devices.emulator.models import rounding as r
from narrowgauge.devices.emulator.models.answers import Answers, Band, Bits, Mask, Model, packed
from narrowgauge.devices.emulator.models.bands import reals, with_flush, within_ulp

QUIET = np.uint32(0x00400000)


def _pair_to(layout: r.Layout, how: r.Rounding, a: Bits, b: Bits) -> Answers:
    over = layout.top if how == "rz" else layout.special
    return packed([Answers(r.narrowed(x, layout, how, over, layout.special)) for x in (a, b)], 16)


def _is_signalling(bits: Bits) -> Mask:
    signalling: Mask = r.is_nan(bits) & (bits & QUIET == 0)
    return signalling


def _key(bits: Bits) -> npt.NDArray[np.int64]:
    """A number that orders values, -0 below +0."""
    size = (bits & r.MAGNITUDE).astype(np.int64)
    return np.where(bits >= r.SIGN, -1 - size, size)


def _numbers(name: str, a: Bits, b: Bits) -> Bits:
    """The smaller or larger of two that are no NaN."""
    first = _key(a) > _key(b) if name == "max" else _key(a) < _key(b)
    return np.where(first, a, b)


def minmax(name: str, a: Bits, b: Bits, ieee: bool) -> Bits:
    """v_min_f32, v_max_f32. One NaN gives the other operand; with MODE.IEEE a signalling one is returned, quieted."""
    result = np.where(r.is_nan(a), b, np.where(r.is_nan(b), a, _numbers(name, a, b)))
    if ieee:
        result = np.where(_is_signalling(a), a | QUIET, np.where(_is_signalling(b), b | QUIET, result))
    return result.astype(np.uint32)


def _minmax(name: str, a: Bits, b: Bits, ieee: bool = True) -> Answers:
    return Answers(minmax(name, a, b, ieee))


def _minmax_num(name: str, a: Bits, b: Bits) -> Answers:
    """IEEE 754-2019 minimumNumber, maximumNumber: a number beats every NaN; two NaN give a quiet one."""
    both = r.is_nan(a) & r.is_nan(b)
    return Answers(np.where(both, a | QUIET, minmax(name, a, b, ieee=False)).astype(np.uint32))


def _extremum(name: str, a: Bits, b: Bits) -> Answers:
    """IEEE 754-2019 minimum, maximum: a NaN stays, quieted."""
    result = np.where(r.is_nan(a), a | QUIET, np.where(r.is_nan(b), b | QUIET, _numbers(name, a, b)))
    return Answers(result.astype(np.uint32))


def _med3(a: Bits, b: Bits, c: Bits, ieee: bool = True) -> Answers:
    """With a NaN the minimum of the three, else drop the largest and take the larger of the others."""
    any_nan = r.is_nan(a) | r.is_nan(b) | r.is_nan(c)
    smallest = minmax("min", minmax("min", a, b, ieee), c, ieee)
    largest = reals(minmax("max", minmax("max", a, b, ieee), c, ieee))
    ab, ac, bc = (minmax("max", x, y, ieee) for x, y in ((a, b), (a, c), (b, c)))
    median = np.where(largest == reals(a), bc, np.where(largest == reals(b), ac, ab))
    return Answers(np.where(any_nan, smallest, median).astype(np.uint32))


def _approximate(function: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]], a: Bits) -> Band:
    with np.errstate(all="ignore"):
        return within_ulp(function(reals(a)), 1)


def _reciprocal(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.float64(1.0) / x


def _reciprocal_root(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.float64(1.0) / np.sqrt(x)


#: instruction, function; VOP1, all with the same note in the ISA
_APPROXIMATE: dict[str, Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]] = {
    "v_exp_f32": np.exp2,
    "v_log_f32": np.log2,
    "v_rcp_f32": _reciprocal,
    "v_rsq_f32": _reciprocal_root,
    "v_sqrt_f32": np.sqrt,
}

_PAIRS: tuple[tuple[str, str, r.Layout, r.Rounding, str], ...] = (
    ("v_cvt_pkrtz_f16_f32", "f16x2", r.F16, "rz", "CDNA3, VOP3A: V_CVT_PKRTZ_F16_F32, toward zero, first source below"),
    (
        "v_cvt_pk_bf16_f32",
        "bf16x2",
        r.BF16,
        "rn",
        "CDNA4, VOP3A: V_CVT_PK_BF16_F32, to nearest even, first source below",
    ),
)

PLAIN: tuple[Model, ...] = (
    *(
        Model(name, ("f32", "f32"), to, words, partial(_pair_to, layout, how), "which NaN")
        for name, to, layout, how, words in _PAIRS
    ),
    *(
        model
        for name in ("min", "max")
        for model in (
            Model(
                f"v_{name}_f32",
                ("f32", "f32", "IEEE"),
                "f32",
                f"CDNA3, VOP2: V_{name.upper()}_F32, of one NaN the other operand; -0 < +0; MODE.IEEE quiets an sNaN",
                partial(_minmax, name),
            ),
            Model(
                f"v_{name}_num_f32",
                ("f32", "f32"),
                "f32",
                f"RDNA4, VOP2: V_{name.upper()}_NUM_F32, IEEE 754-2019 {name}imumNumber",
                partial(_minmax_num, name),
                "payload of a NaN",
            ),
            Model(
                f"v_{name}imum_f32",
                ("f32", "f32"),
                "f32",
                f"RDNA4, VOP3: V_{name.upper()}IMUM_F32, IEEE 754-2019 {name}imum",
                partial(_extremum, name),
                "which NaN of two",
            ),
        )
    ),
    Model(
        "v_med3_f32",
        ("f32", "f32", "f32", "IEEE"),
        "f32",
        "CDNA3, VOP3A: V_MED3_F32, with a NaN the minimum of the three, else without the largest the larger of two",
        _med3,
    ),
    *(
        Model(
            name,
            ("f32",),
            "f32",
            f"CDNA3, VOP1: {name.upper()}, 1 ulp accuracy, denormals are flushed; zeros and infinities as IEEE 754",
            partial(with_flush, partial(_approximate, function)),
            "the last bit: first is correctly rounded",
        )
        for name, function in _APPROXIMATE.items()
    ),
)


def _written_out(function: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]], ulp: int, bits: Bits) -> Band:
    with np.errstate(all="ignore"):
        return within_ulp(function(reals(bits)), ulp)


_WORDS = "LLVM AMDGPU backend, written out around {}; the LangRef states no accuracy: OpenCL C's bound is taken, {} ulp"
#: functions of LLVM that the code generator writes out in several instructions, subnormals kept
WRITTEN_OUT: dict[str, Model] = {
    name: Model(
        f"llvm.{name}.f32",
        ("f32",),
        "f32",
        _WORDS.format(by, ulp),
        partial(_written_out, function, ulp),
        "the last bits: first is correctly rounded",
    )
    for name, function, by, ulp in (
        ("exp2", np.exp2, "v_exp_f32", 1),
        ("log2", np.log2, "v_log_f32", 1),
        ("exp", np.exp, "v_exp_f32", 3),
        ("exp10", lambda x: np.power(10.0, x), "v_exp_f32", 3),
        ("log", np.log, "v_log_f32", 3),
        ("log10", np.log10, "v_log_f32", 3),
    )
}


def _half_reciprocal(a: Bits) -> Answers:
    x = a.astype(np.uint16).view(np.float16).astype(np.float64)
    with np.errstate(all="ignore"):
        true = np.float64(1.0) / x
        first = true.astype(np.float16)
        other = np.nextafter(first, np.where(true > first, np.float16(np.inf), np.float16(-np.inf)))
        ends = [
            np.where(np.isinf(each), np.copysign(65536.0, true), each.astype(np.float64)) for each in (first, other)
        ]
        gap = np.abs(ends[1] - ends[0])
        near = np.isfinite(true) & (true != 0) & (np.abs(ends[1] - true) <= 0.51 * gap)
    codes, others = (each.view(np.uint16).astype(np.uint32) for each in (first, other))
    codes = np.where(np.isnan(x), a | np.uint32(0x200), codes)
    return Answers(codes, (np.where(near, others, codes),))


HALF_RECIPROCAL = Model(
    "v_rcp_f16",
    ("f16",),
    "f16",
    "CDNA3, VOP1: V_RCP_F16, 0.51 ulp accuracy; zeros and infinities as IEEE 754",
    _half_reciprocal,
    "the last bit near the middle of two numbers: first is correctly rounded",
)
