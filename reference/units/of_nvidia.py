"""NVIDIA's matrix units, from Volta to Blackwell. The instruction fixes the arithmetic, not the GPU."""

from __future__ import annotations

from narrowgauge.reference.units.families import Truncating as T
from narrowgauge.reference.units.families import TruncatingGroups, TwoHalves
from narrowgauge.reference.units.families_plain import Chain, Whole
from narrowgauge.reference.units.names import (
    DOC,
    E4M3,
    E8M0,
    F16,
    F32,
    F64,
    FP4,
    FP8,
    HALVES,
    INT4,
    INT8,
    KX,
    NARROW,
    ONE,
    REC,
    RKX,
    S32,
    TF,
    TF32,
    TWO,
)  # fmt: skip
from narrowgauge.reference.units.unit import Unit as U
from narrowgauge.reference.units.unit import Unknown

VOLTA, TURING, AMPERE, ADA, HOPPER = ("sm_70",), ("sm_75",), ("sm_80", "sm_86"), ("sm_89",), ("sm_90",)
B200, RTX = ("sm_100",), ("sm_120",)
FROM_AMPERE = (*AMPERE, *ADA, *HOPPER, *B200, *RTX)
FROM_TURING = (*TURING, *FROM_AMPERE)
HMMA, HMMA_TF, QMMA = "mma.sync (HMMA)", "mma.sync .tf32 (HMMA)", "mma.sync fp8 (QMMA)"
HGMMA, HGMMA_TF, QGMMA = "wgmma (HGMMA)", "wgmma .tf32 (HGMMA)", "wgmma fp8 (QGMMA)"
FADD, HADD = "mma.sync fp8 (2 HMMA, FADD)", "mma.sync fp8 (2 HMMA, HADD2)"
T5, T5TF, T5N = "tcgen05.mma kind::f16", "tcgen05.mma kind::tf32", "tcgen05.mma kind::f8f6f4"
QMMAN = "mma.sync fp8, kind::f8f6f4 (QMMA)"
T5MX, T5X4, T5NV = (
    f"tcgen05.mma kind::{kind}" for kind in ("mxf8f6f4", "mxf4, mxf4nvf4 .block32", "mxf4nvf4 .block16")
)
MX, MX4, NV4 = (f"mma.sync kind::{kind}" for kind in ("mxf8f6f4", "mxf4, mxf4nvf4 .block32", "mxf4nvf4 .block16"))
#: two steps, since the unit of fp8 is not used: unpacked to float16 first
SPLIT, SPLIT_F16 = TwoHalves(T(16, 25, 23, -133)), TwoHalves(T(16, 25, 10, -21))
GROUPS = TruncatingGroups(64, 16, 35, -139)
#: half of the eight positions of k are zeros in the recordings of tf32
FOUR_OF_8, NO_ADDEND = "[R] of k 8, 4 zeros; [K] [X]", "[R] addend 0; [K] [X]"

UNITS: tuple[U, ...] = (
    U("volta.hmma", VOLTA, HMMA, (F16,), F32, T(4, 23, 23, -131), REC, RKX),
    U("volta.hmma_f16", VOLTA, HMMA, (F16,), F16, T(4, 23, 10, -19), REC, RKX),
    U("turing.hmma", TURING, HMMA, (F16,), F32, T(8, 24, 23, -132), ONE, "[X]"),
    U("turing.hmma_f16", TURING, HMMA, (F16,), F16, T(8, 24, 10, -20), ONE, "[X]"),
    U("ampere.hmma", AMPERE, HMMA, HALVES, F32, T(8, 24, 23, -132), REC, RKX),
    U("ampere.hmma_f16", AMPERE, HMMA, (F16,), F16, T(8, 24, 10, -20), REC, RKX),
    U("ampere.hmma_tf32", AMPERE, HMMA_TF, TF, F32, T(4, 24, 23, -132), REC, RKX, TF32),
    U("ada.hmma", ADA, HMMA, HALVES, F32, T(8, 24, 23, -132), REC, RKX),
    U("ada.hmma_f16", ADA, HMMA, (F16,), F16, T(8, 24, 10, -20), REC, RKX),
    U("ada.hmma_tf32", ADA, HMMA_TF, TF, F32, T(4, 24, 23, -132), REC, RKX, TF32),
    U("ada.qmma", ADA, QMMA, FP8, F32, T(16, 13, 13, -132), REC, RKX),
    U("ada.qmma_f16", ADA, QMMA, FP8, F16, T(16, 13, 10, -20), REC, RKX),
    U("hopper.qgmma", HOPPER, QGMMA, FP8, F32, T(32, 13, 13, -133), REC, NO_ADDEND),
    U("hopper.qgmma_f16", HOPPER, QGMMA, FP8, F16, T(32, 13, 10, -21), ONE, "[X]"),
    U("hopper.mma_fp8", HOPPER, FADD, FP8, F32, SPLIT, REC, "[R] [S]", F16),
    U("hopper.mma_fp8_f16", HOPPER, HADD, FP8, F16, SPLIT_F16, REC, "[R] [S]", F16),
    U("hopper.hmma", HOPPER, HMMA, HALVES, F32, T(16, 25, 23, -133), REC, RKX),
    U("hopper.hmma_f16", HOPPER, HMMA, (F16,), F16, T(16, 25, 10, -21), REC, RKX),
    U("hopper.hmma_tf32", HOPPER, HMMA_TF, TF, F32, T(8, 25, 23, -133), REC, FOUR_OF_8, TF32),
    U("hopper.hgmma", HOPPER, HGMMA, HALVES, F32, T(16, 25, 23, -133), TWO, KX),
    U("hopper.hgmma_f16", HOPPER, HGMMA, (F16,), F16, T(16, 25, 10, -21), TWO, KX),
    U("hopper.hgmma_tf32", HOPPER, HGMMA_TF, TF, F32, T(8, 25, 23, -133), TWO, KX, TF32),
    U("blackwell.tcgen05_fp8", B200, T5N, NARROW, F32, T(32, 25, 23, -133), TWO, KX),
    U("blackwell.tcgen05_fp8_f16", B200, T5N, NARROW, F16, T(32, 25, 10, -21), TWO, KX),
    U("blackwell.mma_fp8", B200, FADD, FP8, F32, SPLIT, REC, "[R] [S]", F16),
    U("blackwell.mma_fp8_f16", B200, HADD, FP8, F16, SPLIT_F16, REC, "[R] [S]", F16),
    U("blackwell.hmma", B200, HMMA, HALVES, F32, T(16, 25, 23, -133), REC, RKX),
    U("blackwell.hmma_f16", B200, HMMA, (F16,), F16, T(16, 25, 10, -21), REC, RKX),
    U("blackwell.hmma_tf32", B200, HMMA_TF, TF, F32, T(8, 25, 23, -133), REC, FOUR_OF_8, TF32),
    U("blackwell.tcgen05", B200, T5, HALVES, F32, T(16, 25, 23, -133), ONE, "[X]"),
    U("blackwell.tcgen05_f16", B200, T5, (F16,), F16, T(16, 25, 10, -21), ONE, "[X]"),
    U("blackwell.tcgen05_tf32", B200, T5TF, TF, F32, T(8, 25, 23, -133), ONE, "[X]", TF32),
    U("blackwell.mxf8f6f4", B200, T5MX, NARROW, F32, T(32, 25, 23, -133), ONE, "[X]", scales=(E8M0,), block=32),
    U("blackwell.mxf4", B200, T5X4, FP4, F32, GROUPS, ONE, "[X]", scales=(E8M0,), block=32),
    U("blackwell.mxf4nvf4", B200, T5NV, FP4, F32, GROUPS, ONE, "[X]", scales=(E4M3, E8M0), block=16),
    U("rtx_blackwell.qmma", RTX, QMMAN, NARROW, F32, T(32, 25, 23, -133), TWO, KX),
    U("rtx_blackwell.qmma_f16", RTX, QMMAN, NARROW, F16, T(32, 25, 10, -21), TWO, KX),
    U("rtx_blackwell.hmma", RTX, HMMA, HALVES, F32, T(16, 25, 23, -133), TWO, KX),
    U("rtx_blackwell.hmma_f16", RTX, HMMA, (F16,), F16, T(16, 25, 10, -21), TWO, KX),
    U("rtx_blackwell.hmma_tf32", RTX, HMMA_TF, TF, F32, T(8, 25, 23, -133), TWO, KX, TF32),
    U("rtx_blackwell.mxf8f6f4", RTX, MX, NARROW, F32, T(32, 25, 23, -133), ONE, "[X]", scales=(E8M0,), block=32),
    U("rtx_blackwell.mxf4", RTX, MX4, FP4, F32, GROUPS, ONE, "[X]", scales=(E8M0,), block=32),
    U("rtx_blackwell.mxf4nvf4", RTX, NV4, FP4, F32, GROUPS, ONE, "[X]", scales=(E4M3, E8M0), block=16),
    U("nvidia.imma", FROM_TURING, "mma.sync .s8 .u8 (IMMA)", INT8, S32, Whole(16), DOC, "[P] wraps"),
    U("nvidia.imma_int4", FROM_TURING, "mma.sync .s4 .u4", INT4, S32, Whole(16), DOC, "[P] wraps; [S]"),
    U("nvidia.imma_satfinite", FROM_TURING, "mma.sync .s8 .u8 .satfinite", INT8, S32, Whole(16, True), DOC, "[P]"),
    U("nvidia.dmma", FROM_AMPERE, "mma.sync .f64", (F64,), F64, Chain(True), DOC, "[P] fma.rn; [X]", known_nan=False),
)  # fmt: skip

UNKNOWN: tuple[Unknown, ...] = (
    Unknown(
        ("sm_103", "sm_121"), (*HALVES, *TF, *NARROW, F64, *INT8, *INT4),
        "the instructions are those of sm_100 and of sm_120; nobody has published whether the arithmetic is", "",
    ),
)  # fmt: skip
