"""Hardware instructions as pure functions of NumPy arrays, written from the words of the instruction sets.

Read for it (2026-11-30, stored public copies): PTX ISA, cvt (9.0 and 9.1, whole), div.full's bound, shfl; AMD's ISA texts
of V_MIN_F32, V_MAX_F32, V_MED3_F32, V_EXP_F32, V_RCP_F32, V_CVT_PKRTZ_F16_F32, the table of DPP_CTRL, and MODE.FP16_OVFL
of RDNA3 and RDNA4. Figures that cvt.rs's text refers to are pictures and were not seen.
Not found, and written from general knowledge of these texts: PTX's bounds of rcp, sqrt, rsqrt, ex2, lg2 and div.approx,
its min and max with .NaN and .xorsign.abs; AMD's V_CVT_PK_FP8_F32 family, whose words on overflow are taken from
MODE.FP16_OVFL, its scaled forms (from AMD's own software model of gfx950 in hipBLASLt and rocWMMA sources), V_LOG, V_RSQ,
V_SQRT, V_MAXIMUM, V_MAX_NUM, permutes and swaps. Nothing here has been compared with a device.
"""
