"""AMD's matrix units: CDNA1 to CDNA3, and what is known of those of which there is no model. No NaN's code is known."""

from __future__ import annotations

from functools import partial

from narrowgauge.reference.units.families_amd import Exact, Pairwise, Rounded
from narrowgauge.reference.units.families_plain import Chain, Whole
from narrowgauge.reference.units.names import (
    BF16,
    DOC,
    F16,
    F32,
    F64,
    FNUZ,
    FP8,
    HALVES,
    INT4,
    INT8,
    KX,
    NARROW,
    ONE,
    S32,
    TF,
    TF32,
    TWO,
)  # fmt: skip
from narrowgauge.reference.units.unit import Unit, Unknown

CDNA1, CDNA2, CDNA3, CDNA4 = ("gfx908",), ("gfx90a",), ("gfx940", "gfx941", "gfx942"), ("gfx950",)
RDNA3, RDNA4 = ("gfx1100", "gfx1151"), ("gfx1200", "gfx1201")
#: [K] has parameters of CDNA3 in scripts whose model file is not published
PARAMETERS = "[K] parameters; [X]"
FLUSHES = "[K] [X]; MIOpen and rocBLAS guides: flushes"
INFERRED = "exact; that it wraps is inferred from RDNA's"
U = partial(Unit, known_nan=False)

UNITS: tuple[Unit, ...] = (
    U("cdna1.mfma_f16", CDNA1, "v_mfma_f32_*f16", (F16,), F32, Exact(4), TWO, KX),
    U("cdna1.mfma_bf16", CDNA1, "v_mfma_f32_*bf16", (BF16,), F32, Exact(2), TWO, KX),
    U("cdna1.mfma_f32", CDNA1, "v_mfma_f32_*f32", (F32,), F32, Chain(), TWO, KX),
    U("cdna2.mfma", CDNA2, "v_mfma_f32_*f16, *bf16_1k", HALVES, F32, Pairwise(4), TWO, FLUSHES),
    U("cdna2.mfma_bf16_old", CDNA2, "v_mfma_f32_*bf16", (BF16,), F32, Pairwise(2), TWO, FLUSHES),
    U("cdna2.mfma_f32", CDNA2, "v_mfma_f32_*f32", (F32,), F32, Chain(), TWO, KX),
    U("cdna2.mfma_f64", CDNA2, "v_mfma_f64_*f64", (F64,), F64, Chain(True), ONE, "[X]"),
    U("cdna3.mfma", CDNA3, "v_mfma_f32_*_f16, *_bf16", HALVES, F32, Rounded(8, wide=True), TWO, PARAMETERS),
    U("cdna3.mfma_xf32", CDNA3, "v_mfma_f32_*_xf32", TF, F32, Rounded(4, wide=True), TWO, PARAMETERS, TF32),
    U("cdna3.mfma_fp8", CDNA3, "v_mfma_f32_*_fp8_bf8 …", FNUZ, F32, Rounded(16, True), TWO, PARAMETERS),
    # Triton 3.9 converts OCP's fp8 before, for want of an instruction
    U("cdna3.mfma_of_ocp", CDNA3, "v_mfma_f32_*_f16 of converted fp8", FP8, F32, Rounded(8), TWO, "[S] [X]", F16),
    U("cdna3.mfma_f32", CDNA3, "v_mfma_f32_*_f32", (F32,), F32, Chain(), TWO, KX),
    U("cdna3.mfma_f64", CDNA3, "v_mfma_f64_*_f64", (F64,), F64, Chain(True), ONE, "[X]"),
    U("cdna.mfma_i8", (*CDNA1, *CDNA2, *CDNA3, *CDNA4), "v_mfma_i32_*i8", INT8[:1], S32, Whole(16), DOC, INFERRED),
    U("rdna.wmma_iu8", (*RDNA3, *RDNA4), "v_wmma_i32_*_iu8", INT8, S32, Whole(16), ONE, "rocm-systems #7272: wraps"),
    U("rdna.wmma_iu4", (*RDNA3, *RDNA4), "v_wmma_i32_*_iu4", INT4, S32, Whole(16), DOC, "as iu8"),
)

FLOATS = (*HALVES, *TF, *NARROW, *FNUZ)
UNKNOWN: tuple[Unknown, ...] = (
    Unknown(
        CDNA4, FLOATS,
        "fp8 is OCP's, Triton 3.9 converts FNUZ to float16; there is no xf32; operands below 32 bits keep subnormals "
        "whatever MODE.denorm says",
        "CDNA4 ISA 7.4, as audited for rocjitsu; llama.cpp #21570; [S]",
    ),
    Unknown(
        RDNA3, HALVES,
        "two products and the addend are added in sign and magnitude; a term of the other sign is off by a unit of a "
        "grid that follows the operands' exponents, so whole numbers add exactly only where all terms have one sign; "
        "subnormals of float32 accumulators and of bfloat16 operands are flushed; there is no fp8; how wide the grid "
        "is, and how it rounds, is not published in words",
        "rocm-systems #12056, measured on gfx1151; hipBLASLt #1464; llvm #205101",
    ),
    Unknown(RDNA4, (*HALVES, *FP8), "fp8 is OCP's, with an instruction; RDNA3's adder is gone", "hipBLASLt #1464; [S]"),
    Unknown(("gfx1250",), FLOATS, "nothing: it is not released", ""),
)  # fmt: skip
