"""Words of the tables of units: formats, and what their sources are called there."""

from __future__ import annotations

from narrowgauge.reference.units.unit import Grade

F64, F32, F16, BF16, TF32, S32 = "float64", "float32", "float16", "bfloat16", "tfloat32", "int32"
HALVES, TF = (F16, BF16), (TF32, F32)
FP8, FNUZ = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
FP4 = ("float4_e2m1fn",)
NARROW = (*FP8, "float6_e2m3fn", "float6_e3m2fn", *FP4)
INT8, INT4 = ("int8", "uint8"), ("int4", "uint4")
E8M0, E4M3 = "float8_e8m0fnu", "float8_e4m3fn"

#: abbreviations in ``Unit.source``
SOURCES = {
    "[R]": "answers of real GPUs, recorded: MATLAB-tensor-core, folder model_validation",
    "[K]": "models of the same repository: Khattak and Mikaitis, arXiv 2512.07004",
    "[X]": "MMA-Sim: Xie et al., arXiv 2511.10909; mmasim 2.1.1",
    "[P]": "PTX ISA, of mma, wgmma and tcgen05.mma",
    "[S]": "machine code that ptxas 13.0 and Triton 3.9.0 make",
}
RKX, KX = "[R] [K] [X]", "[K] [X]"
REC: Grade = "recorded"
TWO: Grade = "two groups"
ONE: Grade = "one group"
DOC: Grade = "document"
